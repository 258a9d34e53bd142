"""Batches: files that `impute` wrote for some of the samples.

`merge` reads all batches together, a few records at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np

from spinimpute.pipeline.chunk_file import (
    COMMAND_LINE,
    RECORDS_LINE,
    SAMPLES_LINE,
    check_order,
    format_names,
    open_imputed,
    read_lines,
    remove_options,
    scan_records,
)
from spinimpute.quality.stored_sums import SUMS
from spinimpute.runtime.errors import InputError, argument, refuse_pipe
from spinimpute.vcf.bgzf import BgzfReader
from spinimpute.vcf.header import PIECE_BYTES, definition
from spinimpute.vcf.raw_records import BcfRecords, RawRecords, RecordTable, SplitRecord, TextRecords
from spinimpute.vcf.variant_file import check_variant_file

# Options of `impute` that name files or samples. They differ between batches, and other header lines or the
# records show whether the content of the files fits.
OWN_OPTIONS = ("--samples", "--samples-file")
FILE_OPTIONS = (
    "--vcf", "--gl", "--bam", "--bam-list", "--panel", "--map", "--model", "--sex", "--chain", "--reference",
    "--regions-file", "--loo",
)  # fmt: skip
_MEMORY = 2**23  # bytes of records that are read at once from all batches together
_MIN_PIECE = 2**16
_COUNT = re.compile(
    r"##spinimpute_region=\S+ sites=([0-9]{1,10})(?: unmatched=([0-9]{1,10}))?"
    rf"|{RECORDS_LINE}([0-9]{{1,10}})$"
)


@dataclass(frozen=True)
class Batch:
    """The header of a batch."""

    path: Path
    lines: list[str]  # header lines up to the line of column names, which is left out
    samples: list[str]
    formats: list[str]  # names of FORMAT fields
    chrom: str
    is_bcf: bool
    n_records: int  # number of records according to the header

    def values(self, prefix: str) -> list[str]:
        """Return what follows this prefix in the header lines that start with it."""
        return [line.removeprefix(prefix) for line in self.lines if line.startswith(prefix)]

    @property
    def options(self) -> list[str]:
        """The recorded command without the names of files and samples."""
        return [remove_options([*OWN_OPTIONS, *FILE_OPTIONS], line) for line in self.values(COMMAND_LINE)]


def read_batch(path: Path) -> Batch:
    """Read the header of a batch. Raises InputError if `impute --mergeable` did not write the file."""

    def error(what: str) -> InputError:
        return InputError("content", f"batch {path}: {what}")

    refuse_pipe(path, "batch")
    check_variant_file(path, "batch")
    with open_imputed(path, "batch", 1) as stream:
        start, lines = read_lines(path, "batch", stream)
    samples = lines.pop().split("\t")[9:]
    if not any(line.startswith("##source=spinimpute") for line in lines):
        raise error("spinimpute did not impute it; merge outputs of 'spinimpute impute --mergeable'")
    defined = [found for found in map(definition, lines) if found is not None]
    if ("INFO", SUMS) not in defined:
        raise error(
            f"it lacks INFO/{SUMS}, from which R2 and the other INFO fields are recomputed. Impute it again "
            f"with {argument('mergeable', True)}"
        )
    contigs = [name for kind, name in defined if kind == "contig"]
    if len(contigs) != 1:
        raise error(
            f"it is of {len(contigs)} chromosomes. Impute one file per chromosome ('{{chrom}}' in the name "
            "of the output), and merge the files of each chromosome"
        )
    counts = [match for match in map(_COUNT.match, lines) if match]
    if len(counts) != 1:
        raise error(
            "its header does not say how many records it has: another program or an older version of "
            "spinimpute wrote the header. Impute it again"
        )
    n_records = sum(int(count) for count in counts[0].groups() if count)
    formats = format_names(path, "batch", lines)
    batch = Batch(path, lines, samples, formats, contigs[0], start.is_bcf, n_records)
    if not samples:
        raise error("it has no samples. Leave it out")
    if batch.values(SAMPLES_LINE) != [str(len(samples))]:
        counted = ", ".join(batch.values(SAMPLES_LINE)) or "unknown"
        raise error(
            f"it has {len(samples)} samples, but the number over which its INFO was computed is {counted}: "
            "another program has changed it. Merge the outputs of 'spinimpute impute' themselves"
        )
    return batch


class BatchStream:
    """Reader of the records of a batch. `table` and `row` are the unread records that were scanned."""

    def __init__(self, batch: Batch, stream: BufferedReader | BgzfReader, n_batches: int) -> None:
        self._piece = max(_MIN_PIECE, min(PIECE_BYTES, _MEMORY // n_batches))
        start, lines = read_lines(batch.path, "batch", stream, self._piece)
        if lines[:-1] != batch.lines:
            raise InputError("content", f"batch {batch.path}: the file has changed while it was read")
        self.batch, self.table, self.row, self.n_read = batch, RecordTable(), 0, 0
        self._last_position = 0
        record_class = BcfRecords if batch.is_bcf else TextRecords
        self._records: RawRecords = record_class(batch.chrom, batch.formats, len(batch.samples), batch.lines)
        self._stream, self._data, self._at = stream, start.rest, 0

    @property
    def n_scanned(self) -> int:
        """Number of records that `take` can return."""
        return len(self.table.position) - self.row

    def tell(self) -> int:
        """Return how many bytes of the file have been read."""
        return self._stream.tell()

    def keys(self, first: int, stop: int) -> list[int]:
        """Return the `site_key` of some of these records."""
        return self.table.key[self.row + first : self.row + stop]

    def fill(self) -> None:
        """Scan further records if there is none to take. At the end of the file there still is none.

        Raises InputError if the file is truncated or not sorted, or if a record is invalid.
        """
        if self.n_scanned:
            return
        data, file = self._data[self._at :], f"batch {self.batch.path}"
        self.table, self.row = RecordTable(), 0
        while not self.n_scanned:
            # Each read at least doubles the data. So a long record is scanned only a few times.
            piece = self._stream.read(max(self._piece, len(data)))
            data += piece
            scan_records(self._records, data, self.table, file, self.n_read)
            if not piece:
                break
        self._data, self._at = data, 0
        check_order(
            file, self.batch.chrom, np.array([self._last_position, *self.table.position]), self.n_read
        )
        self._last_position = max([self._last_position, *self.table.position])
        if not self.n_scanned and data:
            number = self.n_read + 1
            raise InputError("damaged", f"{file}: the file is truncated: it ends within record {number}")
        expected = self.batch.n_records
        if not self.n_scanned and expected != self.n_read:
            raise InputError(
                "damaged",
                f"{file}: the file has {self.n_read} records, but its header says {expected}; impute it "
                "again, or copy it again",
            )

    def take(self, n_records: int) -> list[SplitRecord]:
        """Return the next records. Raises InputError if their text is not valid UTF-8."""
        lengths = self.table.length[self.row : self.row + n_records]
        stop = self._at + sum(lengths)
        try:
            records = self._records.split(self._data[self._at : stop], lengths)
        except UnicodeDecodeError as error:
            raise InputError(
                "content",
                f"batch {self.batch.path}: the text of records {self.n_read + 1} to "
                f"{self.n_read + n_records} is not valid UTF-8; impute it again, or copy it again",
            ) from error
        self._at, self.row, self.n_read = stop, self.row + n_records, self.n_read + n_records
        return records
