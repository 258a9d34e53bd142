"""Imputes one window: its parts are spread over threads, each computed by one thread alone.

Because the arithmetic of a part never depends on how many threads there are, neither does any result.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.windows import Window
from spinimpute.imputation.copying_rate import rate_of_panel
from spinimpute.imputation.haplotype_chunk import PanelChunk, chunks_of, prepare_chunk
from spinimpute.imputation.haplotype_predictor import HaplotypePredictor

Task = TypeVar("Task")
Result = TypeVar("Result")
QUERIES_OF_A_PART = 128
CHUNKS_AHEAD = 3  # prepared or being computed at the same time: bounds the memory,
ENTRIES_AHEAD = 12_000_000  # and so do as many sites x queries, if more than one chunk waits


def default_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

    def impute_windows(self, windows: Sequence[Window], typed_TQ: np.ndarray) -> Iterator[np.ndarray]:
        """`impute_window` of one window after the other; later ones may be computed already."""
        for window in windows:
            yield self.impute_window(window, typed_TQ)


def panel_frequencies(frequency_X: np.ndarray, window: Window, n_queries: int) -> np.ndarray:
    """Float32 (stop - start, Q): what is known of every query without any typed site."""
    return np.repeat(frequency_X[window.start : window.stop, None].astype(np.float32), n_queries, axis=1)


@dataclass(frozen=True)
class _RunningChunk:
    """parts: some queries each; size: results of all; window: the results of its window if it is the last."""

    parts: list[Future[None]]
    size: int
    window: np.ndarray | None

    def finish(self) -> Iterator[np.ndarray]:
        for part in self.parts:
            part.result()
        if self.window is not None:
            yield self.window


class HaplotypeEngine(Engine):
    """Haplotype attention; a part is some queries in a chunk."""

    def __init__(
        self, panel: Panel, predictor: HaplotypePredictor, typed_index: np.ndarray, threads: int
    ) -> None:
        super().__init__(typed_index, threads)
        self.panel, self.predictor = panel, predictor
        # a worker's first task, which the others can wait for
        self._jumps_per_cM = self.pool.submit(rate_of_panel, panel, typed_index)

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """As `Engine.impute_window`."""
        (p_UQ,) = self.impute_windows([window], typed_TQ)
        return p_UQ

    def impute_windows(self, windows: Sequence[Window], typed_TQ: np.ndarray) -> Iterator[np.ndarray]:
        """As `Engine.impute_windows`. Workers never wait for each other: a chunk's parts are submitted when
        it is prepared, whether or not the window before is finished."""
        n_queries = typed_TQ.shape[1]
        if len(self.typed_index) == 0:
            for window in windows:
                yield panel_frequencies(self.panel.frequency, window, n_queries)
            return
        batches = [slice(i, i + QUERIES_OF_A_PART) for i in range(0, n_queries, QUERIES_OF_A_PART)]

        def prepare(task: tuple[Window, int]) -> PanelChunk:
            return prepare_chunk(self.panel, self.typed_index, task[1], task[0])

        def impute(chunk: PanelChunk, window: Window, p_UQ: np.ndarray, queries: slice) -> None:
            first = int(chunk.site_start_G1[0])
            p = self.predictor.impute_chunk(
                self.panel, chunk, typed_TQ[:, queries], self._jumps_per_cM.result()
            )
            start, stop = max(first, window.start), min(first + len(p), window.stop)
            p_UQ[start - window.start : stop - window.start, queries] = p[start - first : stop - first]

        numbers = [chunks_of(window, self.typed_index) for window in windows]
        prepared = self._ahead(
            prepare, [(window, n) for window, of in zip(windows, numbers, strict=True) for n in of]
        )
        running: deque[_RunningChunk] = deque()
        entries = 0
        for window, of_window in zip(windows, numbers, strict=True):
            p_UQ = np.empty((window.stop - window.start, n_queries), np.float32)
            for number in of_window:
                chunk = next(prepared)
                parts = [self.pool.submit(impute, chunk, window, p_UQ, queries) for queries in batches]
                size = int(chunk.site_start_G1[-1] - chunk.site_start_G1[0]) * n_queries
                running.append(_RunningChunk(parts, size, p_UQ if number == of_window[-1] else None))
                entries += size
                while len(running) > CHUNKS_AHEAD or (len(running) > 1 and entries > ENTRIES_AHEAD):
                    entries -= running[0].size
                    yield from running.popleft().finish()
        while running:
            yield from running.popleft().finish()

    def _ahead(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in order, the next of them being computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self.pool.submit(work, task))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
