"""Write VCF, VCF.gz and BCF files and their indexes.

`IndexedFile` writes encoded records. `GenotypeWriter` also encodes them from dosages and calls.

Output is written to a hidden temporary file in the same folder, which is renamed when it is complete. On
standard output, the last byte is held back until the output is complete.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import STANDARD, OutputGroup
from spinimpute.runtime.partial_files import PartialFile
from spinimpute.vcf.bcf_encoder import BcfEncoder
from spinimpute.vcf.bgzf import BgzfWriter
from spinimpute.vcf.header import FORMAT_LINES, OutputLayout, make_header
from spinimpute.vcf.index_writer import TBI_MAX_LENGTH, ContigRecords, encode_index
from spinimpute.vcf.multiallelic import join_columns, join_sites, multiallelic_fields, record_intervals
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.record_fields import MAX_DECIMALS, NumberCodes, SampleLayout, allele_lengths, info_columns
from spinimpute.vcf.text_encoder import VcfTextEncoder

OUTPUT_TYPES = {".vcf.gz": "z", ".bcf": "b", ".vcf": "v"}
"""The output type of each suffix. Plain VCF ("v") has no index."""

_MULTIALLELIC_VALUES = 2**20  # numbers of samples of multi-allelic records to compute per step
_ENCODED_BYTES = 4 * 2**20  # approximate bytes of records to encode per step; limits the memory use
_MOST_ENCODERS = 8  # for numbers of ALT alleles; kept at a time


class IndexedFile(OutputGroup):
    """Writer of encoded records, a context manager. After an exception, it leaves no file at `path`.

    The bytes of the file do not depend on `threads` or on how many records each call appends.

    `path` may be "-" for standard output, which has no index. `output_type` is "z" (VCF.gz), "b" (BCF) or "v"
    (VCF). `file_start` is the encoded header. `contigs` maps the contigs, in order, to lengths or None.

    Raises InputError if the path cannot be written. All methods raise BrokenPipeError if the program that
    reads standard output has closed it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        output_type: str,
        file_start: bytes,
        contigs: Mapping[str, int | None],
        threads: int = 2,
    ) -> None:
        """Open the file and write its start."""
        self._output_type = output_type
        self._to_stdout = os.fspath(path) == STANDARD
        self._contigs = contigs
        # contig -> blocks of: 0-based start and end of the records, start and end in the uncompressed stream
        self._records: dict[str, list[tuple[np.ndarray, ...]]] = {}
        self._position = len(file_start)  # bytes of the uncompressed stream written so far
        self._file: BinaryIO | _StandardOutput | None = None
        self._bgzf: BgzfWriter | None = None
        super().__init__(Path(path), [] if self._to_stdout else [Path(path)])
        with self.convert_errors():
            if self._to_stdout:
                self._file = output = _StandardOutput()
                self.complete_stream = output.complete
                self.temporary_folder = Path(tempfile.gettempdir())
            else:  # an index of an overwritten file, in either format, must not remain
                self._file = self.files[0].path.open("wb")
                self.obsolete = [Path(f"{self.path}{suffix}") for suffix in (".tbi", ".csi")]
            self._bgzf = BgzfWriter(self._file, threads) if self._output_type != "v" else None
            (self._bgzf or self._file).write(file_start)

    def append(
        self, chrom: str, position: np.ndarray, last: np.ndarray, length: np.ndarray, data: bytes
    ) -> None:
        """Append r records of a contig after all earlier records. `data` are the encoded records.

        For each record, give the 1-based first and last position, and the length in bytes: integers (r,).
        Raises InputError if the file cannot be written, for example because the disk is full.
        """
        stop = self._position + np.cumsum(length)
        begin = np.maximum(position - 1, 0)  # POS 0 is the telomere before the first base
        self._records.setdefault(chrom, []).append((begin, last + begin - position + 1, stop - length, stop))
        self._position += len(data)
        with self.convert_errors():
            (self._bgzf or self._file).write(data)  # type: ignore[union-attr]

    def write_trailers(self) -> None:
        """Finish and close the file, and write its index."""
        assert self._file is not None
        if self._bgzf is not None:
            self._bgzf.finish()
        if self._to_stdout:
            return
        self._file.close()
        if self._bgzf is None:
            return
        is_bcf = self._output_type == "b"
        contigs = []
        for name in self._contigs if is_bcf else self._records:
            blocks = self._records.get(name, [(np.empty(0, np.int64),) * 4])
            begin, end, start, stop = (np.concatenate(column) for column in zip(*blocks, strict=True))
            offsets = map(self._bgzf.virtual_offsets, (start, stop))
            contigs.append(ContigRecords(name, begin, end, *offsets))
        lengths = [self._contigs[contig.name] or 0 for contig in contigs]
        length = max([*lengths, *(int(contig.end.max(initial=0)) for contig in contigs)], default=0)
        is_csi = is_bcf or length > TBI_MAX_LENGTH
        self.files.append(PartialFile(Path(f"{self.path}{'.csi' if is_csi else '.tbi'}")))
        with self.files[-1].path.open("wb") as file:
            index = BgzfWriter(file)
            index.write(encode_index(contigs, length if is_csi else None, is_bcf=is_bcf))
            index.finish()

    def drop(self) -> None:
        """Close the file without finishing it."""
        if self._bgzf is not None:
            self._bgzf.abandon()
        with contextlib.suppress(OSError):  # if the disk is full, the last flush fails again
            if self._file is not None:
                self._file.close()


class GenotypeWriter(IndexedFile):
    """Writer of dosages and calls, a context manager. After an exception, it leaves no file at `path`.

    The bytes of the file do not depend on `threads` or on the size of the blocks.

    `output_type` is "z" (VCF.gz), "b" (BCF) or "v" (VCF). If it is None, the suffix of the path decides.
    Raises InputError for an unknown suffix, a path that cannot be written, or invalid sample names, and
    ValueError if the layout is inconsistent.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: OutputLayout,
        output_type: str | None = None,
        threads: int = 2,
    ) -> None:
        """Check the arguments, open the file and write the header."""
        formats, decimals = layout.formats, layout.decimals
        if not formats or len(set(formats)) < len(formats) or not FORMAT_LINES.keys() >= set(formats):
            raise ValueError(
                f"formats must be distinct names out of {', '.join(FORMAT_LINES)}, got {formats!r}"
            )
        if "GT" in formats[1:]:
            raise ValueError(f"GT must be the first of the formats, got {formats!r}")
        if not 1 <= decimals <= MAX_DECIMALS:
            raise ValueError(f"decimals must be 1 to {MAX_DECIMALS}, got {decimals!r}")
        output_type = choose_output_type(Path(path), output_type)
        self._encodes_bcf = output_type == "b"
        self._header = make_header(layout)
        self._codes = NumberCodes(decimals)
        self._formats = formats
        self.set_ploidy(layout.ploidy)
        self._last_position = 0
        self.multiallelic_records = 0  # number of written records with several ALT alleles
        super().__init__(path, output_type, self._encoder(1)[1].file_start, self._header.contigs, threads)

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the samples in the following blocks. It differs between the parts of X."""
        self._ploidy = np.asarray(ploidy)
        # number of ALT alleles -> layout and encoder of such records
        self._encoders: dict[int, tuple[SampleLayout, BcfEncoder | VcfTextEncoder]] = {}

    def _encoder(self, n_alts: int) -> tuple[SampleLayout, BcfEncoder | VcfTextEncoder]:
        if n_alts not in self._encoders:
            if (
                len(self._encoders) == _MOST_ENCODERS
            ):  # their tables take memory; that of 1 ALT is always kept
                del self._encoders[list(self._encoders)[1]]
            layout = SampleLayout(self._ploidy, self._formats, self._codes, n_alts)
            encoder = BcfEncoder if self._encodes_bcf else VcfTextEncoder
            self._encoders[n_alts] = layout, encoder(self._header, layout)
        return self._encoders[n_alts]

    def write_block(self, block: RecordBlock) -> None:
        """Append records after all earlier records.

        Raises InputError if the file cannot be written, for example because the disk is full, and ValueError
        if the contig is unknown or the records are not sorted.
        """
        chrom, position = block.chrom, block.sites.position
        if chrom not in self._header.contigs:
            raise ValueError(
                f"no contig line was given for {chrom}, only for {', '.join(self._header.contigs)}"
            )
        if chrom in self._records and chrom != next(reversed(self._records)):
            raise ValueError(f"the records of {chrom} are not consecutive")
        previous = self._last_position if chrom in self._records else 0
        if (np.diff(position, prepend=previous) < 0).any():
            raise ValueError(f"the positions on {chrom} go backwards")
        step = max(1, _ENCODED_BYTES // self._encoder(1)[1].bytes_per_record)
        start = 0
        while start < len(block):
            stop = min(start + step, len(block))
            while block.continues is not None and stop < len(block) and block.continues[stop]:
                stop += 1
            self._write_part(block.take(slice(start, stop)))
            start = stop
        if len(block):
            self._last_position = int(position[-1])

    def _write_part(self, part: RecordBlock) -> None:
        sites = part.sites
        if part.continues is None or not part.continues.any():
            encoded, lengths = self._encode_biallelic(part)
        else:
            records = record_intervals(part.continues)
            sites = join_sites(sites, records)
            lengths = np.empty(len(records), np.int64)
            encoded = [b""] * (2 * len(records))
            for n_alts, chosen in self._group_by_alleles(records):
                own_records = [records[i] for i in chosen]
                if n_alts == 1:
                    biallelic = part.take(np.array([rows.start for rows in own_records]))
                    pieces, lengths[chosen] = self._encode_biallelic(biallelic)
                else:
                    self.multiallelic_records += len(own_records)
                    pieces, lengths[chosen] = self._encode_multiallelic(part, own_records, n_alts)
                for number, i in enumerate(chosen.tolist()):
                    encoded[2 * i : 2 * i + 2] = pieces[2 * number : 2 * number + 2]
        self.append(part.chrom, sites.position, sites.last_position(), lengths, b"".join(encoded))

    def _group_by_alleles(self, records: Sequence[Interval]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield groups of records with equally many ALT alleles: this number, and indices, int64."""
        n_alts = np.array([rows.n_sites for rows in records])
        for k in np.unique(n_alts).tolist():
            chosen = np.flatnonzero(n_alts == k)
            size = len(chosen)
            if k > 1:
                layout = self._encoder(k)[0]
                size = max(1, _MULTIALLELIC_VALUES // (layout.n_samples * sum(layout.n_values.values())))
            for start in range(0, len(chosen), size):
                yield k, chosen[start : start + size]

    def _encode_biallelic(self, part: RecordBlock) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Encode biallelic records: two pieces of bytes for each, and their lengths."""
        layout, encoder = self._encoder(1)
        values = info_columns(self._header, part.info, np.asarray(part.typed, bool))
        dosage = np.asarray(part.hap_dosage, np.float32)
        fields = layout.fields(dosage, part.haplotypes, part.unphased, self._allele_lengths(part.sites))
        return encoder.encode(part.sites, part.chrom, values, fields)

    def _allele_lengths(self, sites: Sites) -> np.ndarray | None:
        return allele_lengths(sites) if "ML" in self._formats else None

    def _encode_multiallelic(
        self, part: RecordBlock, records: Sequence[Interval], n_alts: int
    ) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Encode the records of some rows of a block. All have the same number of ALT alleles."""
        layout, encoder = self._encoder(n_alts)
        rows = np.concatenate([np.arange(*one) for one in records])
        chosen = part.take(rows)
        new = [Interval(start, start + n_alts) for start in range(0, len(rows), n_alts)]
        values = info_columns(self._header, chosen.info, np.asarray(chosen.typed, bool))
        p_RKQ = np.asarray(chosen.hap_dosage, np.float32).reshape(len(records), n_alts, -1)
        sites = join_sites(chosen.sites, new)
        fields = multiallelic_fields(layout, p_RKQ, self._allele_lengths(sites))
        return encoder.encode(sites, part.chrom, join_columns(values, new), fields)


class _StandardOutput:
    """Standard output as a file object that writes its last byte only in `complete`.

    Truncated output can therefore be recognised: its last line, or the end-of-file block of BGZF, is
    incomplete. Raises InputError if standard output is closed.
    """

    def __init__(self) -> None:
        if sys.stdout is None:
            raise InputError("write", "cannot write to standard output: it is closed. Give a file")
        self._file = open(os.dup(sys.stdout.fileno()), "wb", buffering=0)  # noqa: SIM115
        self._last_byte = b""

    def write(self, data: bytes) -> None:
        """Write the data except for the last byte, which is kept. Raises OSError."""
        if data:
            self._write_all(self._last_byte + data[:-1])
            self._last_byte = data[-1:]

    def complete(self) -> None:
        """Write the last byte and close the file. Raises OSError."""
        self._write_all(self._last_byte)
        self._file.close()

    def close(self) -> None:
        """Close the file without writing the last byte."""
        self._file.close()

    def _write_all(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:  # a pipe may accept only some of the bytes
            remaining = remaining[self._file.write(remaining) :]


def choose_output_type(path: Path, output_type: str | None, others: Sequence[str] = ()) -> str:
    """Return the output type: the one given by the user, or the one that the suffix of the path implies.

    The default for standard output ("-") is VCF. `others` are suffixes of further formats, for the message.
    Raises InputError if the type is unknown, contradicts the suffix, or is given by neither, and if binary
    output would be written to a terminal.
    """
    if output_type is not None and output_type not in OUTPUT_TYPES.values():
        raise InputError(
            "argument", f"unknown output type {output_type!r}. Give z (VCF.gz), b (BCF) or v (VCF)"
        )
    for suffix, suffix_type in OUTPUT_TYPES.items():
        if path.name.lower().endswith(suffix):
            if output_type not in (None, suffix_type):
                raise InputError(
                    "arguments",
                    f"output type {output_type!r} contradicts the name {path}, which means {suffix_type!r}. "
                    "Change one of the two",
                )
            return suffix_type
    if os.fspath(path) == STANDARD:
        if output_type in ("z", "b") and sys.stdout is not None and sys.stdout.isatty():
            raise InputError(
                "arguments",
                f"{'BCF' if output_type == 'b' else 'compressed VCF'} cannot be written to a terminal. "
                "Redirect standard output to a file or a pipe, or write text with "
                f"{argument('output_type', 'v')}",
            )
        return output_type or "v"
    if output_type is not None:
        return output_type
    raise InputError(
        "argument",
        f"the name of {path} has no known format. It must end with {', '.join([*OUTPUT_TYPES, *others])}, or "
        f"give {argument('output_type')} (z, b or v)",
    )
