"""`merge`: join imputed files of different samples, and recompute their INFO fields.

The columns of samples are copied as bytes. AF, MAF, R2, AVG_CS and ER2 are computed from sums over samples
that `impute --mergeable` stored. The sums are whole numbers, so the results equal those of a single run with
all samples, to the last digit. All batches are read together, a few records at a time.

Axes: B batches, U sites, K sums of a site.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.structural import StructuralVariant
from spinimpute.outputs.selection import (
    RecordFilter,
    SiteTableWriter,
    any_of_record,
    check_table_name,
    filtered_merge_error,
)
from spinimpute.pipeline.chunk_file import (
    COMMAND_LINE,
    RECORDS_LINE,
    SAMPLES_LINE,
    TARGET_LINE,
    add_checksums,
    checksum_line,
    open_imputed,
    read_checksums,
    remove_options,
)
from spinimpute.pipeline.merging.batch_checks import check_batches
from spinimpute.pipeline.merging.batch_file import OWN_OPTIONS, Batch, BatchStream, read_batch
from spinimpute.quality.leave_one_out import empirical_r2
from spinimpute.quality.site_quality import STRAND_CHOSEN, add_sums, site_quality
from spinimpute.quality.stored_sums import (
    ER2_SUMS,
    SUMS,
    decode_call_sums,
    decode_sums,
    encode_call_sums,
    encode_sums,
)
from spinimpute.quality.summary import RunSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import check_output, check_outputs
from spinimpute.runtime.progress import Progress
from spinimpute.vcf.bcf_encoder import join_bcf_records
from spinimpute.vcf.bcf_format import file_start
from spinimpute.vcf.header import OutputHeader, definition, header_of_lines
from spinimpute.vcf.multiallelic import join_columns, join_sites
from spinimpute.vcf.raw_records import SplitRecord
from spinimpute.vcf.record_fields import info_columns
from spinimpute.vcf.text_encoder import join_text_records
from spinimpute.vcf.writer import IndexedFile, choose_output_type

_NOTE_LINE = "##spinimpute_note="
_OTHER_FILES = 64  # files that may be open besides the batches
_MAX_RECORDS = 1_024  # records that are joined at once


@dataclass(repr=False)
class MergeSummary(RunSummary):
    """Counts of `merge_samples`."""

    batches: int = 0
    samples: int = 0

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        return [
            f"batches:  {self.batches}, of {self.samples} samples",
            *self.written_lines(),
            *(f"note:     {note}" for note in self.notes),
        ]


def merge_samples(
    batches: Sequence[str | Path],
    out: str | Path,
    *,
    output_type: str | None = None,
    mergeable: bool = False,
    min_r2: float = 0.0,
    min_maf: float = 0.0,
    sites: str | Path | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> MergeSummary:
    """Join files that `impute` wrote with `mergeable` for different samples of one region or chromosome.

    The output equals that of a single run with all samples: AF, MAF, R2, AVG_CS, ER2 and FAR are recomputed.
    If the target is unphased, a single run phases all samples together, and its genotypes may differ. Phase
    the target first to avoid this.

    Parameters
    ----------
    batches : sequence of str or Path
        The files. The output has their samples in this order.
    out : str or Path
        Output file: BCF if the batches are BCF, otherwise `.vcf.gz` or `.vcf`.
    output_type : str, optional
        "z" (VCF.gz), "b" (BCF) or "v" (VCF). Default: chosen by the suffix.
    mergeable : bool
        Write INFO/SUMS, so that the output can be merged with further files. Cannot be combined with `min_r2`
        and `min_maf`.
    min_r2 : float
        Smallest INFO/R2 of all samples together, for imputed sites to write. Typed sites are always written.
    min_maf : float
        Smallest INFO/MAF of all samples together, for sites to write.
    sites : str or Path, optional
        Table of all sites, also of those that the filters leave out (`.tsv.gz`).
    threads : int, optional
        Number of threads. Default: all processors.
    force : bool
        Overwrite `out` if it exists.
    progress : callable, optional
        Called with the completed fraction of the run.

    Returns
    -------
    MergeSummary
        Counts.

    Raises
    ------
    InputError
        A file is damaged, lacks records or is not mergeable, files differ in panel, sites, IDs or options,
        two have a sample of the same name, or, without `force`, `out` exists.
    """
    record_filter = RecordFilter(min_r2, min_maf)
    if mergeable and record_filter:
        raise filtered_merge_error()
    if not batches:
        raise InputError("arguments", "there is nothing to merge: give at least one file")
    if sites is not None:
        check_table_name(sites)
    check_outputs([out, sites], force, batches)
    out = check_output(out, force, batches)
    output_type = choose_output_type(out, output_type)
    threads = choose_threads(threads)
    read = [read_batch(Path(path)) for path in batches]
    check_batches(read, output_type)
    samples = [name for batch in read for name in batch.samples]
    summary = MergeSummary(batches=len(read), samples=len(samples))
    summary.note_few_samples(len(samples))
    lines = [*_merged_lines(read, summary.notes, mergeable), *record_filter.header_lines]
    header = header_of_lines(lines, samples)
    start = header.text.encode()
    with (
        IndexedFile(
            out, output_type, file_start(start) if output_type == "b" else start, header.contigs, threads
        ) as writer,
        _more_open_files(len(batches) + _OTHER_FILES),
        ExitStack() as stack,
        ThreadPoolExecutor(threads, "read") as pool,
    ):
        table = None if sites is None else SiteTableWriter(Path(sites), writer)
        if table is not None:
            stack.callback(table.drop)
        streams = []
        for batch in read:
            stream = stack.enter_context(open_imputed(batch.path, "batch", 1))
            streams.append(BatchStream(batch, stream, len(read)))
        size = read[0].path.stat().st_size
        while n_records := _fill(streams, pool):
            n_written, n_left_out = _write(streams, n_records, header, writer, record_filter, table)
            summary.written_sites += n_written
            summary.left_out_sites += n_left_out
            if progress is not None:
                progress(min(1.0, streams[0].tell() / size))
        if table is not None:
            table.finish()
    return summary


@contextmanager
def _more_open_files(count: int) -> Iterator[None]:
    """Let this process open `count` files in the `with` block. Raises InputError if it is not possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and count > soft:
        if hard != resource.RLIM_INFINITY and count > hard:
            raise InputError(
                "arguments",
                f"{count - _OTHER_FILES} files are more than a process may open here ({hard}). Merge them in "
                f"groups with {argument('mergeable', True)}, and then merge the results",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _merged_lines(batches: Sequence[Batch], notes: Sequence[str], mergeable: bool) -> list[str]:
    """Return the header lines of the output: those of a single run with all samples."""
    lines: list[str] = []
    sums = [] if mergeable else [("INFO", SUMS), ("INFO", ER2_SUMS)]
    notes_left = [f"{_NOTE_LINE}{note}" for note in notes]
    for line in batches[0].lines:
        if line.startswith(_NOTE_LINE):
            lines += notes_left
            notes_left = []
        elif line.startswith(SAMPLES_LINE):
            n_samples = sum(len(batch.samples) for batch in batches)
            lines += [f"{SAMPLES_LINE}{n_samples}"] if mergeable else []
        elif line.startswith(COMMAND_LINE):
            lines.append(remove_options(OWN_OPTIONS, line, flags=[] if mergeable else ["--mergeable"]))
        elif line.startswith(RECORDS_LINE):
            lines += [line] if mergeable else []
        elif definition(line) in sums:
            continue
        elif line.startswith(TARGET_LINE):
            checksums = [batch.values(TARGET_LINE) for batch in batches]
            # equal lines were copied from the header of one target of all samples, see `target_line`
            if any(one != checksums[0] for one in checksums):
                added = add_checksums([read_checksums(one) for one in checksums])
                line = checksum_line(added) if added else ""
            lines += [line] if line else []
        else:
            lines.append(line)
    return lines


def _fill(streams: Sequence[BatchStream], pool: ThreadPoolExecutor) -> int:
    """Read until each batch has records, and return how many to take from each; 0 at the end.

    Raises InputError if the sites of the batches differ.
    """
    for _ in pool.map(BatchStream.fill, streams):
        pass
    first = streams[0]
    n_records = min(_MAX_RECORDS, *(stream.n_scanned for stream in streams))
    for other in streams[1:]:
        if first.keys(0, n_records or 1) != other.keys(0, n_records or 1):
            row = next(
                row for row in range(n_records + 1) if first.keys(row, row + 1) != other.keys(row, row + 1)
            )
            positions = [s.table.position[s.row + row] for s in (first, other) if row < s.n_scanned]
            raise InputError(
                "mismatch",
                f"batches {first.batch.path} and {other.batch.path} do not have the same sites: they first "
                f"differ at {first.batch.chrom}:{min(positions)}. Impute all batches in the same way, and "
                "merge before you filter",
            )
    return n_records


def _write(
    streams: Sequence[BatchStream],
    n_records: int,
    header: OutputHeader,
    writer: IndexedFile,
    record_filter: RecordFilter,
    table: SiteTableWriter | None,
) -> tuple[int, int]:
    """Merge the next records of the batches, and write those that the filter keeps.

    Return the numbers of written sites and of sites that are left out. U are the ALT alleles of all records.
    """
    records = [stream.take(n_records) for stream in streams]
    chrom, formats = streams[0].batch.chrom, streams[0].batch.formats
    rows_of_record = _allele_rows(records[0])
    sites = Sites(
        chrom,
        np.array([record.position for record in records[0] for _ in record.alts], np.int64),
        [record.ref for record in records[0] for _ in record.alts],
        [alt for record in records[0] for alt in record.alts],
        [record.name for record in records[0] for _ in record.alts],
        _structural(streams[0], records[0]),
    )
    typed_BU = np.array([_has_flag("TYPED", rows) for rows in records])
    sums_BKU = [_decode_sums(*batch) for batch in zip(streams, records, strict=True)]
    chosen_BU = np.array([(sums_KU[-1] & STRAND_CHOSEN) > 0 for sums_KU in sums_BKU])
    _check_names(streams, records)
    _check_typed(streams, sites.position, typed_BU, "is typed in {} but not in {}")
    _check_typed(streams, sites.position, chosen_BU, "was switched to the other strand in {} but not in {}")
    columns = info_columns(header, _merged_info(streams, records, sums_BKU, header), typed_BU[0])
    if table is not None:
        table.append(chrom, sites, columns)
    kept_U = any_of_record(record_filter.keeps(columns, typed_BU[0]), rows_of_record)
    kept = [number for number, rows in enumerate(rows_of_record) if kept_U[rows.start]]
    kept_rows = [rows_of_record[number] for number in kept]
    n_kept = int(kept_U.sum())
    sites, columns = join_sites(sites, kept_rows), join_columns(columns, kept_rows)
    samples = [[rows[number].samples for rows in records] for number in kept]
    if streams[0].batch.is_bcf:
        n_samples = [len(stream.batch.samples) for stream in streams]
        encoded = join_bcf_records(header, sites, chrom, columns, formats, n_samples, samples)
    else:
        encoded = join_text_records(sites, chrom, columns, formats, samples)
    length = np.array(list(map(len, encoded)), np.int64)
    writer.append(chrom, sites.position, sites.last_position(), length, b"".join(encoded))
    return n_kept, len(kept_U) - n_kept


def _allele_rows(records: Sequence[SplitRecord]) -> list[Interval]:
    """Return the rows of each record in arrays with a row for each ALT allele."""
    stops = np.cumsum([len(record.alts) for record in records]).tolist()
    return [Interval(*rows) for rows in pairwise([0, *stops])]


def _structural(stream: BatchStream, records: Sequence[SplitRecord]) -> dict[int, StructuralVariant]:
    """Return the structural variants of the ALT alleles of some records of a batch, by their index."""
    if not any("END" in record.info for record in records):
        return {}
    lengths = _decode("SVLEN", np.array, stream, records).tolist()
    found: dict[int, StructuralVariant] = {}
    for record, rows in zip(records, _allele_rows(records), strict=True):
        end, svtype = record.info.get("END", ""), record.info.get("SVTYPE", "")
        if end.isdecimal():
            found |= {row: StructuralVariant(int(end), svtype, lengths[row]) for row in range(*rows)}
    return found


def _has_flag(name: str, records: Sequence[SplitRecord]) -> list[bool]:
    """Return for each ALT allele whether its record has a flag in INFO."""
    return [name in record.info for record in records for _ in record.alts]


def _check_names(streams: Sequence[BatchStream], records: Sequence[Sequence[SplitRecord]]) -> None:
    """Raise InputError if the ID of a record differs between batches."""
    for other, rows in zip(streams[1:], records[1:], strict=True):
        for one, another in zip(records[0], rows, strict=True):
            if one.name != another.name:
                raise InputError(
                    "mismatch",
                    f"the site {other.batch.chrom}:{one.position} has the ID {one.name} in "
                    f"{streams[0].batch.path} and {another.name} in {other.batch.path}. Impute all batches "
                    "from targets with the same IDs, and change IDs after you merge",
                )


def _check_typed(
    streams: Sequence[BatchStream], position_U: np.ndarray, flag_BU: np.ndarray, difference: str
) -> None:
    """Raise InputError if a flag of a site differs between batches. `difference` says how it differs."""
    if (differs_U := flag_BU.any(axis=0) & ~flag_BU.all(axis=0)).any():
        u = int(np.argmax(differs_U))
        paths = [streams[int(np.argmax(flag_BU[:, u] == flag))].batch.path for flag in (True, False)]
        raise InputError(
            "mismatch",
            f"the site {streams[0].batch.chrom}:{position_U[u]} {difference.format(*paths)}. Impute all "
            "batches from targets with the same sites. If frequencies decided the strand of A/T and C/G "
            f"sites, impute with {argument('ambiguous', 'keep')} or drop",
        )


def _decode(
    key: str,
    decode: Callable[[Sequence[str]], np.ndarray],
    stream: BatchStream,
    records: Sequence[SplitRecord],
) -> np.ndarray:
    """Return the sums in an INFO field of some records of a batch, int64 (K, U)."""
    try:
        return decode([text for record in records for text in _texts_of_alleles(key, record)])
    except ValueError as error:
        raise InputError(
            "content",
            f"batch {stream.batch.path}: INFO/{key} of a record between {records[0].position} and "
            f"{records[-1].position} is damaged; impute it again, or copy it again",
        ) from error


def _texts_of_alleles(key: str, record: SplitRecord) -> list[str]:
    """Return the text of an INFO field for each ALT allele; "" if it is missing. May raise ValueError."""
    if key not in record.info:
        return [""] * len(record.alts)
    texts = record.info[key].split(",")
    if len(texts) != len(record.alts):
        raise ValueError("there must be a text for each ALT allele")
    return ["" if text == "." else text for text in texts]


def _decode_sums(stream: BatchStream, records: Sequence[SplitRecord]) -> np.ndarray:
    """Return the sums in INFO/SUMS of some records of a batch, int64 (K, U)."""
    sums_KU = _decode(SUMS, decode_sums, stream, records)
    n_samples = len(stream.batch.samples)
    if (too_many_U := sums_KU[0] > 2 * n_samples).any():
        u = int(np.argmax(too_many_U))
        position_U = [record.position for record in records for _ in record.alts]
        raise InputError(
            "content",
            f"batch {stream.batch.path}: INFO/{SUMS} at {stream.batch.chrom}:{position_U[u]} is of "
            f"{sums_KU[0, u]} haplotypes, but the file has {n_samples} samples. Another program has changed "
            "the file: impute it again",
        )
    return sums_KU


def _merged_info(
    streams: Sequence[BatchStream],
    records: Sequence[Sequence[SplitRecord]],
    sums_BKU: Sequence[np.ndarray],
    header: OutputHeader,
) -> dict[str, np.ndarray | None]:
    """Return the INFO fields of all samples together."""
    sums_KU = reduce(add_sums, sums_BKU)
    info = site_quality(sums_KU)
    if SUMS in header.info_types:
        info[SUMS] = np.array(encode_sums(sums_KU), object)
    if "ER2" in header.info_types:
        batches = zip(streams, records, strict=True)
        call_sums_KU = np.sum([_decode(ER2_SUMS, decode_call_sums, *batch) for batch in batches], axis=0)
        info["ER2"] = empirical_r2(call_sums_KU)
        if ER2_SUMS in header.info_types:
            info[ER2_SUMS] = np.array(encode_call_sums(call_sums_KU), object)
    if "FAR" in header.info_types:  # far from the typed sites of all batches
        is_far = np.array([_has_flag("FAR", rows) for rows in records])
        info["FAR"] = np.logical_and.reduce(is_far, axis=0)
    return info
