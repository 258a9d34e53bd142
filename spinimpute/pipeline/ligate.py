"""`ligate`: join the chunks of a chromosome into the file of a single run.

Every chunk is read twice: once to check all of it before anything is written, once to copy its records
unchanged. Values are read in overlaps only, and changed only where the haplotypes of a sample must be
exchanged.

Axes: R records, N samples.
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
    """The join of two neighbouring chunks."""

    left: Chunk
    right: Chunk
    sites: int  # sites in the overlap
    exchanged: int = 0  # samples whose haplotypes were exchanged after the join
    # largest difference of DS in the overlap; None without DS or overlap
    largest_difference: float | None = None

    @property
    def from_left(self) -> int:
        """Number of sites that are taken from the left chunk."""
        return self.sites // 2

    def line(self) -> str:
        """The join as one line of text."""
        text = f"{self.left.path} and {self.right.path}: {self.sites} sites in both"
        if self.sites:
            text += f", haplotypes of {self.exchanged} samples exchanged"
        if self.largest_difference is not None:
            text += f", DS differ by {self.largest_difference:.4f} at most"
        return text


@dataclass
class LigationSummary:
    """Counts and warnings of `ligate`."""

    span: str = ""  # region from the start of the first chunk to the end of the last
    chunks: int = 0
    samples: int = 0
    sites: int = 0
    joins: list[Join] = field(default_factory=list)  # one per pair of neighbours
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The summary as text."""
        return [
            f"chunks:   {self.chunks}, of {self.samples} samples",
            *(f"join:     {join.line()}" for join in self.joins),
            f"written:  {self.sites} sites of {self.span}",
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

    The first half of an overlap is taken from the left chunk. If the two chunks disagree about the phase of
    most heterozygotes of a sample there, the haplotypes of this sample are exchanged in the right chunk.
    Chunks of a phased target give the bytes of a single run; with `predictor="spin"` the last digit of a few
    dosages may differ.

    Parameters
    ----------
    chunks : sequence of str or Path
        Files that `impute` wrote for regions, in any order.
    out : str or Path
        BCF if the chunks are BCF, else `.vcf.gz` or `.vcf`. The file appears when it is complete.
    panel : ReferencePanel, str or Path, optional
        The panel of the chunks. Each of its sites between the first and the last region must be in a chunk.
    output_type : str, optional
        "z" (VCF.gz), "b" (BCF) or "v" (VCF). Default: by suffix.
    allow_gaps : bool
        Allow sites that no chunk contains: between regions, and, with a panel, before and after them.
    threads : int, optional
        Default: all processors.
    force : bool
        Overwrite `out` if it exists.
    progress : callable, optional
        Called with the fraction that is done.

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
    summary.joins = [Join(left, right, shared_sites(left, right)) for left, right in pairwise(read)]
    if panel is None:
        check_gaps(read, allow_gaps)
    else:
        with open_reference(panel) as panels:
            check_panel(read, panels, str(panel_path), allow_gaps, summary.warnings)
    if "GT" not in read[0].formats and any(join.sites for join in summary.joins):
        summary.warnings.append(
            "the chunks have no GT: haplotypes are joined as they are, whatever the phase"
        )
    contigs = {
        defined[1]: contig_length(line)
        for line in read[0].lines
        if (defined := definition(line)) and defined[0] == "contig"
    }
    writing_progress = None if progress is None else lambda fraction: progress((1 + fraction) / 2)
    with IndexedFile(out, output_type, read[0].file_start(), contigs, threads) as writer:
        _write(read, summary, writer, threads, writing_progress)
    summary.span = str(Region(read[0].region.chrom, read[0].region.start, read[-1].region.end))
    summary.chunks, summary.samples = len(read), len(read[0].samples)
    return summary


def _write(
    chunks: Sequence[Chunk],
    summary: LigationSummary,
    writer: IndexedFile,
    threads: int,
    progress: Callable[[float], None] | None,
) -> None:
    swap_N = np.zeros(len(chunks[0].samples), bool)
    first = 0  # record of the chunk that is written first
    for number, chunk in enumerate(chunks):
        join = summary.joins[number] if number < len(summary.joins) else None
        overlap = len(chunk) - (join.sites if join else 0)
        with chunk.open_records(threads, first) as stream:
            for begin, stop in chunk.batches(first, overlap):
                _append(writer, chunk, begin, stop, stream.read_until(stop), swap_N)
                if progress is not None:
                    progress((number + stop / len(chunk)) / len(chunks))
            summary.sites += overlap - first
            if join is not None:
                swap_N = _write_overlap(join, stream, writer, swap_N, threads)
                first = join.from_left
                summary.sites += first


def _write_overlap(
    join: Join, left: ChunkStream, writer: IndexedFile, swap_N: np.ndarray, threads: int
) -> np.ndarray:
    """Write the left half of an overlap, and compare all of it.

    exchanged_N: samples whose haplotypes are exchanged in the left chunk, bool (N,). Returns those of the
    right chunk.
    """
    chunk, other = join.left, join.right
    overlap = len(chunk) - join.sites
    middle = overlap + join.from_left
    agreement_N = np.zeros(len(swap_N), np.int64)
    with other.open_records(threads) as right:
        batches = [*chunk.batches(overlap, middle), *chunk.batches(middle, len(chunk))]
        for begin, stop in batches:
            data, right_data = left.read_until(stop), right.read_until(stop - overlap)
            if stop <= middle:
                _append(writer, chunk, begin, stop, data, swap_N)
            left_RN2, left_dosage_RN = chunk.records.genotypes(data, chunk.length[begin:stop])
            right_RN2, right_dosage_RN = other.records.genotypes(
                right_data, other.length[begin - overlap : stop - overlap]
            )
            agreement_N += _count_phase_agreement(left_RN2, right_RN2)
            if left_dosage_RN is not None and right_dosage_RN is not None:
                difference = np.fmax.reduce(np.abs(left_dosage_RN - right_dosage_RN), axis=None, initial=0.0)
                join.largest_difference = max(join.largest_difference or 0.0, float(difference))
    # votes are about the chunks as they came, the left one of which may be exchanged itself
    swap_right_N = np.where(swap_N, -agreement_N, agreement_N) < 0
    join.exchanged = int(swap_right_N.sum())
    return swap_right_N


def _count_phase_agreement(left_RN2: np.ndarray, right_RN2: np.ndarray) -> np.ndarray:
    """Number of heterozygotes with equal phase minus those with opposite phase, int64 (N,)."""
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
    writer.append(chunk.region.chrom, chunk.position[rows], chunk.ref_length[rows], chunk.length[rows], data)
