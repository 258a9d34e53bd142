"""Imputes one window: its parts are spread over threads, each computed by one thread alone.

Because the arithmetic of a part never depends on how many threads there are, neither does any result.
"""

from __future__ import annotations

import itertools
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.windows import Window
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.panels.panel import Panel
from spinimpute.predictors.haplotype_attention.chunk import PanelChunk, chunks_between, prepare_chunk
from spinimpute.predictors.haplotype_attention.memory import DEFAULT, Limits
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.results import ChunkResults, FileResults

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(ABC):
    """Threads that impute windows; a context manager. Raises InputError for less than one thread.

    typed_index: int64 (T,), the typed panel sites, increasing.
    """

    def __init__(self, typed_index: np.ndarray, threads: int) -> None:
        if threads < 1:
            raise InputError(f"the number of threads must be at least 1, found {threads}")
        self.typed_index = typed_index
        self.pool = ThreadPoolExecutor(threads, "impute")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    @abstractmethod
    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT), float32 (stop - start, Q), at the core sites; the panel's frequency if nothing is typed.

        typed_TQ: int8 (T, Q), the queries' alleles at the typed sites, -1 where missing.
        """

    def impute_windows(self, windows: Sequence[Window], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """`impute_window` of one window after the other; later ones may be computed already."""
        for window in windows:
            yield self.impute_window(window, typed_TQ)


def panel_frequencies(frequency_X: np.ndarray, window: Window, n_queries: int) -> np.ndarray:
    """Float32 (stop - start, Q): what is known of every query without any typed site."""
    return np.repeat(frequency_X[window.start : window.stop, None].astype(np.float32), n_queries, axis=1)


@dataclass(frozen=True)
class _Stretch:
    """Windows whose results are computed together: one of whole chunks, or all that one chunk is cut into."""

    windows: list[Window]
    chunks: range

    @property
    def whole(self) -> Window:
        first, last = self.windows[0], self.windows[-1]
        return Window(first.index, first.start, last.stop, first.left, last.right)

    @staticmethod
    def of(windows: Sequence[Window], typed_index: np.ndarray) -> list[_Stretch]:
        def chunks(window: Window) -> range:
            return chunks_between(window.start, window.stop, typed_index)

        stretches: list[_Stretch] = []
        for numbers, some in itertools.groupby(windows, chunks):
            together = list(some)
            if len(numbers) == 1:
                stretches.append(_Stretch(together, numbers))
            else:
                stretches += [_Stretch([window], numbers) for window in together]
        return stretches


@dataclass(frozen=True)
class _RunningChunk:
    """parts: some queries each; size: results of all that are in memory; results: of its stretch; stretch:
    if it is the last of it."""

    parts: list[Future[None]]
    size: int
    results: ChunkResults
    stretch: _Stretch | None

    def finish(self) -> Iterator[np.ndarray]:
        """The results of its stretch, if it is the last of it."""
        try:
            for part in self.parts:
                part.result()
            if self.stretch is not None:
                first = self.stretch.whole.start
                for window in self.stretch.windows:
                    yield self.results.take(window.start - first, window.stop - first)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Nothing is left of it, whatever went wrong."""
        # waiting for a cancelled part has no end if the pool is shut down before a worker comes to it
        wait([part for part in self.parts if not part.cancel()])
        self.results.close()


class HaplotypeEngine(Engine):
    """Haplotype attention; a part is some queries in a chunk.

    limits: what is worked on at the same time. scratch: folder for the results of chunks that are cut into
    several windows. jumps_per_cM: None for the scale that is estimated at the typed sites
    (`recombination_scale`).
    """

    def __init__(
        self,
        panel: Panel,
        predictor: HaplotypePredictor,
        typed_index: np.ndarray,
        threads: int,
        limits: Limits = DEFAULT,
        scratch: Path | None = None,
        jumps_per_cM: float | None = None,
    ) -> None:
        super().__init__(typed_index, threads)
        self.panel, self.predictor, self.limits = panel, predictor, limits
        self.scratch = Path(tempfile.gettempdir()) if scratch is None else scratch

        def rate() -> float:
            return recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM

        self._jumps_per_cM = self.pool.submit(rate)  # a worker's first task, which the others can wait for

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """As `Engine.impute_window`."""
        (p_UQ,) = self.impute_windows([window], typed_TQ)
        return p_UQ

    def impute_windows(self, windows: Sequence[Window], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """As `Engine.impute_windows`. Workers never wait for each other: a chunk's parts are submitted when
        it is prepared, whether or not the window before is finished."""
        n_queries = typed_TQ.shape[1]
        if len(self.typed_index) == 0:
            for window in windows:
                yield panel_frequencies(self.panel.frequency, window, n_queries)
            return
        limits = self.limits
        batches = [slice(i, i + limits.queries) for i in range(0, n_queries, limits.queries)]

        def prepare(task: tuple[Window, int]) -> PanelChunk:
            return prepare_chunk(self.panel, self.typed_index, task[1], task[0])

        def impute(chunk: PanelChunk, window: Window, results: ChunkResults, queries: slice) -> None:
            first = int(chunk.site_start_G1[0])
            p = self.predictor.impute_chunk(
                self.panel, chunk, typed_TQ[:, queries], self._jumps_per_cM.result()
            )
            start, stop = max(first, window.start), min(first + len(p), window.stop)
            results.put(start - window.start, queries, p[start - first : stop - first])

        stretches = _Stretch.of(windows, self.typed_index)
        prepared = self._ahead(prepare, [(one.whole, number) for one in stretches for number in one.chunks])
        running: deque[_RunningChunk] = deque()
        entries = 0
        opened: ChunkResults | None = None
        try:
            for stretch in stretches:
                window = stretch.whole
                in_file = len(stretch.windows) > 1
                shape = (window.stop - window.start, n_queries)
                results = FileResults(*shape, self.scratch) if in_file else ChunkResults(*shape)
                opened = results
                for number in stretch.chunks:
                    chunk = next(prepared)
                    parts = [self.pool.submit(impute, chunk, window, results, queries) for queries in batches]
                    size = 0 if in_file else int(np.ptp(chunk.site_start_G1)) * n_queries
                    last = number == stretch.chunks[-1]
                    running.append(_RunningChunk(parts, size, results, stretch if last else None))
                    entries += size
                    while len(running) > limits.chunks_ahead or (len(running) > 1 and entries > limits.ahead):
                        entries -= running[0].size
                        yield from running.popleft().finish()
            while running:
                yield from running.popleft().finish()
        finally:
            for chunk_left in running:
                chunk_left.abandon()
            if opened is not None:  # its chunk may not have come to run
                opened.close()

    def _ahead(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in order, the next of them being computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self.pool.submit(work, task))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
