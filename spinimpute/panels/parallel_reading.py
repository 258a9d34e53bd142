"""The haplotypes of a VCF read by several processes, a stretch of the chromosome each."""

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

from spinimpute.errors import InputError
from spinimpute.genotypes.sites import AT_POSITION_0, NoRecord, Region
from spinimpute.panels.pieces import Piece, PieceReader
from spinimpute.vcf.index_reader import index_error


class _Stretch(NamedTuple):
    pieces: list[Piece]
    skipped: dict[str, int]


class StretchReader:
    """The same pieces as those of `PieceReader`, but cut elsewhere: `for piece in reader`, once.

    stretches: what the processes read, in order; they are not to overlap. Records that begin before a stretch
    are left to the one before. Two stretches for each process are held at once, as they are stored. Raises
    InputError as `PieceReader`, if a process dies, and if the file has another chromosome than the stretches.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        stretches: Sequence[Region],
        processes: int,
    ) -> None:
        with closing(PieceReader(vcf, region, samples)) as first:
            piece = next(iter(first))  # tells the ploidy, and much that is wrong with a file
        if piece.sites.chrom != stretches[0].chrom:
            raise index_error("panel", Path(vcf), f"the file begins with chromosome {piece.sites.chrom}")
        self.samples, self.contig_line, self.ploidy = first.samples, first.contig_line, first.ploidy
        at_0 = first.skipped.get(AT_POSITION_0, 0)  # in front of all pieces, and outside of all stretches
        self.skipped: dict[str, int] = {AT_POSITION_0: at_0} if at_0 else {}
        self._vcf, self._chosen = Path(vcf), samples
        self._stretches, self._processes = stretches, min(processes, len(stretches))

    def __iter__(self) -> Iterator[Piece]:
        # a fork would copy threads' locks in whatever state they are
        pool = ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _end_with_parent)
        try:
            left = iter(self._stretches)
            reading: deque[Future[_Stretch]] = deque()
            while True:
                for stretch in islice(left, 2 * self._processes - len(reading)):
                    with _interrupts_held():
                        future = pool.submit(_read_stretch, self._vcf, stretch, self._chosen, self.ploidy)
                    reading.append(future)
                if not reading:
                    break
                pieces, skipped = reading.popleft().result()
                for reason, count in skipped.items():
                    self.skipped[reason] = self.skipped.get(reason, 0) + count
                yield from pieces
        except BrokenProcessPool as error:
            raise InputError(
                f"panel {self._vcf}: a process that read it was killed; is there enough memory? "
                "Build it with --threads 1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C goes to all processes: those that are started here never see it, and end when this one does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A parent that is killed can tell nobody; its processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only called in processes that are started here"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _read_stretch(vcf: Path, stretch: Region, samples: Sequence[str] | None, ploidy: np.ndarray) -> _Stretch:
    reader = PieceReader(vcf, stretch, samples, ploidy)
    try:
        return _Stretch(list(reader), reader.skipped)
    except NoRecord:
        return _Stretch([], reader.skipped)
