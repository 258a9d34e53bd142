"""The haplotypes of a VCF, some sites at a time, in the form in which a panel file stores them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import AT_POSITION_0, NoRecord, Region, Sites
from spinimpute.panels.stored_rows import allele_counts, store_rows
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.open_files import closed, opened
from spinimpute.vcf.index_reader import index_error
from spinimpute.vcf.reader import HaplotypeBlock, HaplotypeReader

DUPLICATE_RECORD = "duplicate of an earlier record"
CONTRADICTORY_RECORD = "contradicts another record of the same site"


class SiteBatch(NamedTuple):
    """Consecutive sites of a VCF.

    Attributes
    ----------
    sites : Sites
        n of them.
    allele_count : uint32 (n,)
        Haplotypes with the ALT allele.
    multiallelic : bool (n,)
        Sites split from a multi-allelic record.
    stored : bytes
        Their haplotypes, see `stored_rows.store_rows`.
    """

    sites: Sites
    allele_count: np.ndarray
    multiallelic: np.ndarray
    stored: bytes


class BatchReader:
    """Streams the pieces of a VCF: `for piece in reader`, once.

    The records of one position are sorted by REF and ALT, as `bcftools sort` does: no result depends on their
    order in the file. Of several records with the same position and alleles one is kept, or none if
    their calls differ.

    Parameters
    ----------
    vcf : str or Path
        VCF, VCF.gz or BCF.
    region : Region, optional
        The part of the chromosome to read; by default all.
    samples : sequence of str, optional
        The samples to read; by default all.
    ploidy : uint8 (n_samples,), optional
        Of another part of the same VCF; samples that differ from it are refused.

    Raises
    ------
    InputError
        As `HaplotypeReader`, and for missing calls.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        ploidy: np.ndarray | None = None,
    ) -> None:
        self._reader = HaplotypeReader(
            vcf, region, samples=samples, role="panel", allow_missing=False, ploidy=ploidy
        )
        self._left_out = {DUPLICATE_RECORD: 0, CONTRADICTORY_RECORD: 0}

    @property
    def samples(self) -> list[str]:
        """Names, known from the start."""
        return self._reader.samples

    @property
    def contigs(self) -> list[str]:
        """Names in the order of the header, or of the index."""
        return self._reader.contigs

    @property
    def contig_line(self) -> str:
        """The header's line of the chromosome, known from the first piece on."""
        return self._reader.contig_line

    @property
    def ploidy(self) -> np.ndarray:
        """uint8 (n_samples,), 1 or 2, known from the first piece on."""
        return self._reader.ploidy

    @property
    def skipped(self) -> dict[str, int]:
        """Records not taken, by reason; complete at the end."""
        return self._reader.skipped | {reason: n for reason, n in self._left_out.items() if n}

    def close(self) -> None:
        """Release the file. Reading to the end does so, too."""
        self._reader.close()

    def __iter__(self) -> Iterator[SiteBatch]:
        for sites, alleles, multiallelic in self._without_duplicates():
            # a choice of columns may lie in memory the other way round
            packed = np.ascontiguousarray(np.packbits(alleles.view(np.uint8), axis=1))
            yield SiteBatch(sites, allele_counts(packed), multiallelic, store_rows(packed, alleles.shape[1]))

    def _without_duplicates(self) -> Iterator[HaplotypeBlock]:
        """Blocks in the order of their sites' keys, each key once.

        A site whose records contradict each other is left out.
        """
        for block in self._whole_positions():
            keys = block.sites.keys()
            kept = []
            for _, same in groupby(sorted(range(len(keys)), key=keys.__getitem__), keys.__getitem__):
                first, *others = same
                if others and (block.alleles[others] != block.alleles[first]).any():
                    self._left_out[CONTRADICTORY_RECORD] += 1 + len(others)
                    continue
                self._left_out[DUPLICATE_RECORD] += len(others)
                kept.append(first)
            yield block if kept == list(range(len(keys))) else _take(block, np.array(kept))

    def _whole_positions(self) -> Iterator[HaplotypeBlock]:
        """The reader's blocks, cut between positions: no two of them share a position."""
        held: HaplotypeBlock | None = None
        for block in self._reader:
            if held is not None:
                block = HaplotypeBlock(
                    Sites.concatenate([held.sites, block.sites]),
                    np.concatenate([held.alleles, block.alleles]),
                    np.concatenate([held.multiallelic, block.multiallelic]),
                )
            first = int(np.searchsorted(block.sites.position, block.sites.position[-1]))
            held = _take(block, slice(first, None))
            if first:
                yield _take(block, slice(first))
        if held is not None:
            yield held


def _take(block: HaplotypeBlock, rows: np.ndarray | slice) -> HaplotypeBlock:
    return HaplotypeBlock(block.sites.take(rows), block.alleles[rows], block.multiallelic[rows])


class _RegionRead(NamedTuple):
    pieces: list[SiteBatch]
    skipped: dict[str, int]


class ParallelBatchReader:
    """The same haplotypes as those of `BatchReader`, in other pieces: `for piece in reader`, once.

    Two regions for each process are held at once, as they are stored. Attributes are those of `BatchReader`.

    Parameters
    ----------
    vcf : str or Path
        A file with an index.
    region : Region, optional
        The part of the chromosome to read; by default all.
    samples : sequence of str, optional
        The samples to read; by default all.
    regions : sequence of Region
        What the processes read, in order, without overlaps. Records that begin before a region belong to the
        one before.
    processes : int
        How many read at the same time.

    Raises
    ------
    InputError
        As `BatchReader`, if a process dies, and if the file has another chromosome than the regions.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        regions: Sequence[Region],
        processes: int,
    ) -> None:
        with closing(BatchReader(vcf, region, samples)) as first:
            piece = next(iter(first))  # gives the ploidy, and finds much that is wrong with a file
        if piece.sites.chrom != regions[0].chrom:
            raise index_error("panel", Path(vcf), f"the file begins with chromosome {piece.sites.chrom}")
        self.samples, self.contig_line, self.ploidy = first.samples, first.contig_line, first.ploidy
        at_0 = first.skipped.get(AT_POSITION_0, 0)  # in front of all pieces, and outside of all regions
        self.skipped: dict[str, int] = {AT_POSITION_0: at_0} if at_0 else {}
        self._vcf, self._chosen = Path(vcf), samples
        self._regions, self._processes = regions, min(processes, len(regions))

    def __iter__(self) -> Iterator[SiteBatch]:
        # a fork would copy threads' locks in whatever state they are
        pool = ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _end_with_parent)
        opened("read", f"panel {self._vcf}")  # they print to where this process does
        try:
            remaining = iter(self._regions)
            reading: deque[Future[_RegionRead]] = deque()
            while True:
                for region in islice(remaining, 2 * self._processes - len(reading)):
                    with _interrupts_held():
                        future = pool.submit(_read_region, self._vcf, region, self._chosen, self.ploidy)
                    reading.append(future)
                if not reading:
                    break
                pieces, skipped = reading.popleft().result()
                for reason, count in skipped.items():
                    self.skipped[reason] = self.skipped.get(reason, 0) + count
                yield from pieces
        except BrokenProcessPool as error:
            raise InputError(
                "damaged",
                f"panel {self._vcf}: a process that read it ended; the file is damaged, or memory ran out. "
                f"Build it with {argument('threads', 1)}",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
            closed("read", f"panel {self._vcf}")


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C goes to all processes: those that are started here never see it, and end when this one does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A parent that is killed cannot stop its processes, which would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only called in processes that are started here"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _read_region(vcf: Path, region: Region, samples: Sequence[str] | None, ploidy: np.ndarray) -> _RegionRead:
    reader = BatchReader(vcf, region, samples, ploidy)
    try:
        return _RegionRead(list(reader), reader.skipped)
    except NoRecord:
        return _RegionRead([], reader.skipped)
