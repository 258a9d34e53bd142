"""Imputes one window: its parts are spread over threads, each computed by one thread alone.

Because the arithmetic of a part never depends on how many threads there are, neither does any result.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.windows import Window
from spinimpute.imputation.haplotype_chunk import PanelChunk, chunks_of, prepare_chunk
from spinimpute.imputation.haplotype_predictor import HaplotypePredictor

Result = TypeVar("Result")
QUERIES_OF_A_PART = 128
CHUNKS_AHEAD = 3  # prepared or being computed at the same time: bounds the memory


def default_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
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

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT), float32 (stop - start, Q), at the core sites; the panel's frequency if nothing is typed.

        typed_TQ: int8 (T, Q), the queries' alleles at the typed sites, -1 where missing.
        """
        raise NotImplementedError


def panel_frequencies(frequency_X: np.ndarray, window: Window, n_queries: int) -> np.ndarray:
    """Float32 (stop - start, Q): what is known of every query without any typed site."""
    return np.repeat(frequency_X[window.start : window.stop, None].astype(np.float32), n_queries, axis=1)


class HaplotypeEngine(Engine):
    """Haplotype attention; a part is some queries in a chunk."""

    def __init__(
        self, panel: Panel, predictor: HaplotypePredictor, typed_index: np.ndarray, threads: int
    ) -> None:
        super().__init__(typed_index, threads)
        self.panel, self.predictor = panel, predictor

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """As `Engine.impute_window`. Workers never wait for each other: a chunk's parts are submitted when it
        is prepared."""
        if len(self.typed_index) == 0:
            return panel_frequencies(self.panel.frequency, window, typed_TQ.shape[1])
        n_queries = typed_TQ.shape[1]
        p_UQ = np.empty((window.stop - window.start, n_queries), np.float32)
        batches = [slice(i, i + QUERIES_OF_A_PART) for i in range(0, n_queries, QUERIES_OF_A_PART)]

        def prepare(number: int) -> PanelChunk:
            return prepare_chunk(self.panel, self.typed_index, number, window)

        def impute(chunk: PanelChunk, queries: slice) -> None:
            first = int(chunk.site_start_G1[0]) - window.start
            p = self.predictor.impute_chunk(self.panel, chunk, typed_TQ[:, queries])
            p_UQ[first : first + len(p), queries] = p

        running: deque[list[Future[None]]] = deque()
        for chunk in self._ahead(prepare, chunks_of(window, self.typed_index)):
            running.append([self.pool.submit(impute, chunk, queries) for queries in batches])
            if len(running) > CHUNKS_AHEAD:
                _finish(running.popleft())
        while running:
            _finish(running.popleft())
        return p_UQ

    def _ahead(self, work: Callable[[int], Result], numbers: range) -> Iterator[Result]:
        """Results in order, the next of them being computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for number in numbers:
            waiting.append(self.pool.submit(work, number))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _finish(parts: list[Future[None]]) -> None:
    for part in parts:
        part.result()
