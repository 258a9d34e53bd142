"""`ligate`: join the chunks of a chromosome into one file.

Every chunk is read twice: once to check all its records before anything is written, and once to copy the
records as bytes. Genotypes are decoded only in overlaps of neighbouring chunks. There, `ligate` compares the
phase of the two chunks. If it is opposite for a sample, this sample's haplotypes are exchanged in the right
chunk. Records are not changed otherwise.

Axes: R records, N samples; a trailing 2 is the two haplotypes of a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from spinimpute.genotypes.builds import contig_length
from spinimpute.genotypes.sites import Region
from spinimpute.panels.opening import get_panel_paths, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_checks import (
    check_formats,
    check_gaps,
    check_headers,
    check_panel,
    check_regions,
    check_targets,
    shared_sites,
)
from spinimpute.pipeline.chunk_file import Chunk, ChunkStream, read_chunk
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_output
from spinimpute.runtime.progress import Progress
from spinimpute.vcf.header import definition
from spinimpute.vcf.writer import IndexedFile, choose_output_type


@dataclass
class Join:
    """Two neighbouring chunks and how they were joined."""

    left: Chunk
    right: Chunk
    left_rows: np.ndarray  # records of the sites that both chunks have, int64: numbers in the left chunk
    right_rows: np.ndarray  # the same sites in the right chunk
    exchanged: int = 0  # number of samples whose haplotypes are exchanged in the right chunk
    # largest difference of DS between the chunks in the overlap; None without DS or overlap
    largest_difference: float | None = None

    @property
    def sites(self) -> int:
        """Number of sites that both chunks have."""
        return len(self.left_rows)

    @property
    def left_start(self) -> int:
        """Number of the overlap's first record in the left chunk."""
        return int(np.searchsorted(self.left.position, self.right.region.start))

    def cut(self) -> tuple[int, int]:
        """Return the end of the left chunk's records in the output, and the start of the right chunk's.

        Filters may leave out different sites in the two chunks, so an overlap may have no shared site.
        """
        if self.sites:
            middle = self.sites // 2
            return int(self.left_rows[middle]), int(self.right_rows[middle])
        end = self.left.region.end
        return len(self.left), int(np.searchsorted(self.right.position, end, side="right"))

    def line(self) -> str:
        """Return a description in one line."""
        text = f"{self.left.path} and {self.right.path}: {self.sites} sites in both"
        if self.sites:
            text += f", haplotypes of {self.exchanged} samples exchanged"
        if self.largest_difference is not None:
            text += f", DS differ by {self.largest_difference:.4f} at most"
        return text


@dataclass
class LigationSummary:
    """Counts and warnings of `ligate`."""

    span: str = ""  # region from the start of the first chunk to the end of the last one
    chunks: int = 0
    samples: int = 0
    sites: int = 0
    joins: list[Join] = field(default_factory=list)  # one per pair of neighbours
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        return [
            f"chunks:   {self.chunks}, of {self.samples} samples",
            *(f"join:     {join.line()}" for join in self.joins),
            f"written:  {self.sites} records of {self.span}",
        ]


def ligate(
    chunks: Sequence[str | Path],
    out: str | Path,
    *,
    panel: ReferencePanel | str | Path | None = None,
    output_type: str | None = None,
    allow_gaps: bool = False,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> LigationSummary:
    """Join the chunks of one chromosome that `impute` wrote with `region`.

    The first half of an overlap is copied from the left chunk, the second half from the right one. If the
    phase of most of a sample's heterozygotes in the overlap is opposite in the two chunks, the haplotypes of
    this sample are exchanged in the right chunk. For a phased target, the output is identical to that of a
    single run, except that with `predictor="spin"` the last digit of a few dosages may differ.

    Parameters
    ----------
    chunks : sequence of str or Path
        Files that `impute` wrote for regions, in any order.
    out : str or Path
        Output file: BCF if the chunks are BCF, otherwise `.vcf.gz` or `.vcf`.
    panel : ReferencePanel, str or Path, optional
        The panel from which the chunks were imputed. If it is given, each of its sites must be in a chunk.
    output_type : str, optional
        "z" (VCF.gz), "b" (BCF) or "v" (VCF). Default: chosen by the suffix.
    allow_gaps : bool
        Allow positions between chunks that no chunk covers, and panel sites outside of all chunks.
    threads : int, optional
        Number of threads. Default: all processors.
    force : bool
        Overwrite `out` if it exists.
    progress : callable, optional
        Called with the completed fraction of the run.

    Returns
    -------
    LigationSummary
        Counts and warnings.

    Raises
    ------
    InputError
        A chunk is incomplete, chunks do not belong together, or, without `force`, `out` exists.
    """
    panel_path = None if panel is None else get_panel_paths(panel)[0]
    out = check_output(out, force, [*chunks, panel_path])
    output_type = choose_output_type(out, output_type)
    threads = choose_threads(threads)
    if not chunks:
        raise InputError("arguments", "there are no chunks to join")
    summary = LigationSummary()
    reading_progress = None if progress is None else lambda fraction: progress(fraction / 2)
    read: list[Chunk] = []
    for path in chunks:
        read.append(read_chunk(path, threads))
        if reading_progress is not None:
            reading_progress(len(read) / len(chunks))
    read.sort(key=lambda chunk: (chunk.region.start, chunk.region.end))
    check_formats(read, output_type)
    for chunk in read[1:]:
        check_headers(read[0], chunk, summary.warnings)
    check_targets(read)
    check_regions(read)
    summary.joins = [Join(left, right, *shared_sites(left, right)) for left, right in pairwise(read)]
    if panel is None:
        check_gaps(read, allow_gaps)
    else:
        with open_reference(panel) as panels:
            check_panel(read, panels, str(panel_path), allow_gaps, summary.warnings)
    if "GT" not in read[0].formats and any(join.sites for join in summary.joins):
        summary.warnings.append("the chunks have no GT: haplotypes are joined without comparing the phase")
    contigs = {
        defined[1]: contig_length(line)
        for line in read[0].lines
        if (defined := definition(line)) and defined[0] == "contig"
    }
    writing_progress = None if progress is None else lambda fraction: progress((1 + fraction) / 2)
    start = read[0].output_start(_count_records(read, summary.joins))
    with IndexedFile(out, output_type, start, contigs, threads) as writer:
        _write(read, summary, writer, threads, writing_progress)
    summary.span = str(Region(read[0].region.chrom, read[0].region.start, read[-1].region.end))
    summary.chunks, summary.samples = len(read), len(read[0].samples)
    return summary


def _count_records(chunks: Sequence[Chunk], joins: Sequence[Join]) -> int:
    """Return the number of records of the output."""
    cuts = [join.cut() for join in joins]
    starts, ends = [0, *(start for _, start in cuts)], [*(end for end, _ in cuts), len(chunks[-1])]
    return sum(ends) - sum(starts)


def _write(
    chunks: Sequence[Chunk],
    summary: LigationSummary,
    writer: IndexedFile,
    threads: int,
    progress: Callable[[float], None] | None,
) -> None:
    swap_N = np.zeros(len(chunks[0].samples), bool)
    first = 0  # number of the first record to copy from the current chunk
    for number, chunk in enumerate(chunks):
        join = summary.joins[number] if number < len(summary.joins) else None
        overlap = join.left_start if join else len(chunk)
        with chunk.open_records(threads, first) as stream:
            for begin, stop in chunk.batches(first, overlap):
                _append(writer, chunk, begin, stop, stream.read_until(stop), swap_N)
                if progress is not None:
                    progress((number + stop / len(chunk)) / len(chunks))
            summary.sites += overlap - first
            if join is not None:
                swap_N = _write_overlap(join, stream, writer, swap_N, threads)
                end, first = join.cut()
                summary.sites += end - overlap


def _write_overlap(
    join: Join, left: ChunkStream, writer: IndexedFile, swap_N: np.ndarray, threads: int
) -> np.ndarray:
    """Write the first half of an overlap from the left chunk, and compare the chunks in the whole overlap.

    swap_N: samples whose haplotypes are exchanged in the left chunk, bool (N,). Return the samples whose
    haplotypes must be exchanged in the right chunk, bool (N,).
    """
    left_chunk, right_chunk = join.left, join.right
    overlap, (middle, _) = join.left_start, join.cut()
    agreement_N = np.zeros(len(swap_N), np.int64)
    with right_chunk.open_records(threads) as right:
        batches = [*left_chunk.batches(overlap, middle), *left_chunk.batches(middle, len(left_chunk))]
        for begin, stop in batches:
            left_data = left.read_until(stop)
            if stop <= middle:
                _append(writer, left_chunk, begin, stop, left_data, swap_N)
            pairs = slice(*np.searchsorted(join.left_rows, [begin, stop]).tolist())
            left_rows, right_rows = join.left_rows[pairs], join.right_rows[pairs]
            if not len(left_rows):
                continue
            left_RN2, left_dosage_RN = _genotypes(left_chunk, left_data, begin, stop, left_rows)
            right_begin, right_stop = right.row, int(right_rows[-1]) + 1
            right_data = right.read_until(right_stop)
            right_RN2, right_dosage_RN = _genotypes(
                right_chunk, right_data, right_begin, right_stop, right_rows
            )
            agreement_N += _count_phase_agreement(left_RN2, right_RN2)
            if left_dosage_RN is not None and right_dosage_RN is not None:
                difference = np.fmax.reduce(np.abs(left_dosage_RN - right_dosage_RN), axis=None, initial=0.0)
                join.largest_difference = max(join.largest_difference or 0.0, float(difference))
    # agreement_N compares the input files; the sign is reversed for samples exchanged in the left chunk
    swap_right_N = np.where(swap_N, -agreement_N, agreement_N) < 0
    join.exchanged = int(swap_right_N.sum())
    return swap_right_N


def _genotypes(
    chunk: Chunk, data: bytes, begin: int, stop: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return calls and dosages of the records `rows`, int64 (R,). `data` are the records begin to stop."""
    calls, dosages = chunk.records.genotypes(data, chunk.length[begin:stop])
    return calls[rows - begin], None if dosages is None else dosages[rows - begin]


def _count_phase_agreement(left_RN2: np.ndarray, right_RN2: np.ndarray) -> np.ndarray:
    """Return the number of heterozygotes with equal phase minus that with opposite phase, int64 (N,)."""
    one, another = left_RN2[:, :, 0], left_RN2[:, :, 1]
    het = (one >= 0) & (another >= 0) & (one != another)
    same = het & (left_RN2 == right_RN2).all(axis=2)
    other = het & (left_RN2 == right_RN2[:, :, ::-1]).all(axis=2)
    return same.sum(axis=0, dtype=np.int64) - other.sum(axis=0, dtype=np.int64)


def _append(
    writer: IndexedFile, chunk: Chunk, begin: int, stop: int, data: bytes, swap_N: np.ndarray
) -> None:
    rows = slice(begin, stop)
    if swap_N.any():
        data = chunk.records.swap_haplotypes(data, chunk.length[rows], swap_N)
    writer.append(chunk.region.chrom, chunk.position[rows], chunk.last[rows], chunk.length[rows], data)
