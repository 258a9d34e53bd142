"""The haplotypes of a VCF read by several processes, a region of the chromosome at a time."""

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
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import AT_POSITION_0, NoRecord, Region
from spinimpute.panels.pieces import Piece, PieceReader
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.watched import READING, begins, ends
from spinimpute.vcf.index_reader import index_error


class _RegionRead(NamedTuple):
    pieces: list[Piece]
    skipped: dict[str, int]


class ParallelReader:
    """The same haplotypes as those of `PieceReader`, in other pieces: `for piece in reader`, once.

    Two regions for each process are held at once, as they are stored. Attributes are those of `PieceReader`.

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
        As `PieceReader`, if a process dies, and if the file has another chromosome than the regions.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        regions: Sequence[Region],
        processes: int,
    ) -> None:
        with closing(PieceReader(vcf, region, samples)) as first:
            piece = next(iter(first))  # gives the ploidy, and finds much that is wrong with a file
        if piece.sites.chrom != regions[0].chrom:
            raise index_error("panel", Path(vcf), f"the file begins with chromosome {piece.sites.chrom}")
        self.samples, self.contig_line, self.ploidy = first.samples, first.contig_line, first.ploidy
        at_0 = first.skipped.get(AT_POSITION_0, 0)  # in front of all pieces, and outside of all regions
        self.skipped: dict[str, int] = {AT_POSITION_0: at_0} if at_0 else {}
        self._vcf, self._chosen = Path(vcf), samples
        self._regions, self._processes = regions, min(processes, len(regions))

    def __iter__(self) -> Iterator[Piece]:
        # a fork would copy threads' locks in whatever state they are
        pool = ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _end_with_parent)
        begins(READING, f"panel {self._vcf}")  # they print to where this process does
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
            ends(READING, f"panel {self._vcf}")


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
    reader = PieceReader(vcf, region, samples, ploidy)
    try:
        return _RegionRead(list(reader), reader.skipped)
    except NoRecord:
        return _RegionRead([], reader.skipped)
