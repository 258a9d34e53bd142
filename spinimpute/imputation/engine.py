"""Imputes one window: its parts are spread over threads, each computed by one thread alone.

A part is a block, or some queries in a chunk. Because its arithmetic never depends on how many threads there
are, neither does any result.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from spinimpute.errors import InputError
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.windows import Window
from spinimpute.imputation.haplotype_chunk import PanelChunk, chunks_of, prepare_chunk
from spinimpute.imputation.haplotype_predictor import HaplotypePredictor
from spinimpute.imputation.panel_blocks import BlockPredictor, BlockReader, EncodedBlock, PanelBlock
from spinimpute.imputation.predictors import Predictor

Result = TypeVar("Result")
QUERIES_OF_A_PART = 256
CHUNKS_AHEAD = 3  # prepared or being computed at the same time: bounds the memory


def default_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """Threads with a predictor; a context manager.

    typed_index: int64 (T,), the typed panel sites, increasing; typed_TQ: int8 (T, Q), the queries' alleles
    there, -1 where missing.
    """

    def __init__(self, panel: Panel, predictor: Predictor, typed_index: np.ndarray, threads: int) -> None:
        self.panel, self.predictor, self.typed_index = panel, predictor, typed_index
        if threads < 1:
            raise InputError(f"the number of threads must be at least 1, found {threads}")
        self._torch_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(threads, "impute", initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._torch_threads)  # what a thread sets, later threads inherit

    def visible(self, window: Window) -> tuple[int, int]:
        """The typed sites [low, high) of a window with its overlaps."""
        low, high = np.searchsorted(self.typed_index, [window.left, window.right])
        return int(low), int(high)

    def encode_window(self, window: Window) -> list[EncodedBlock]:
        """Inducing points of every block of a window; none where no typed site is visible."""
        if isinstance(self.predictor, HaplotypePredictor):
            raise TypeError("haplotype attention has no inducing points")
        return self._map_blocks(self.predictor, window, self.predictor.encode)

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT), float32 (stop - start, Q), at the core sites; the panel's frequency if nothing is typed."""
        frequency = self.panel.frequency[window.start : window.stop].astype(np.float32)
        p_UQ = np.repeat(frequency[:, None], typed_TQ.shape[1], axis=1)
        predictor = self.predictor
        if isinstance(predictor, HaplotypePredictor):
            self._impute_chunks(predictor, window, typed_TQ, p_UQ)
            return p_UQ

        def impute(block: PanelBlock) -> tuple[np.ndarray, np.ndarray]:
            encoded = predictor.encode(block)
            return encoded.sites.panel_index_U, predict_block(predictor, encoded, typed_TQ)

        for index_U, p in self._map_blocks(predictor, window, impute):
            p_UQ[index_U - window.start] = p
        return p_UQ

    def _map_blocks(
        self, predictor: BlockPredictor, window: Window, work: Callable[[PanelBlock], Result]
    ) -> list[Result]:
        low, high = self.visible(window)
        if low == high:
            return []
        reader = BlockReader(
            self.panel, self.typed_index, predictor.shape, low, high, window.start, window.stop
        )
        return list(self._pool.map(lambda number: work(reader.read(number)), reader.blocks))

    def _impute_chunks(
        self, predictor: HaplotypePredictor, window: Window, typed_TQ: np.ndarray, p_UQ: np.ndarray
    ) -> None:
        """Fill p_UQ. Workers never wait for each other: a chunk's parts are submitted when it is prepared."""
        if len(self.typed_index) == 0:
            return
        n_queries = typed_TQ.shape[1]
        batches = [slice(i, i + QUERIES_OF_A_PART) for i in range(0, n_queries, QUERIES_OF_A_PART)]

        def prepare(number: int) -> PanelChunk:
            return prepare_chunk(self.panel, self.typed_index, number, window)

        def impute(chunk: PanelChunk, queries: slice) -> None:
            first = int(chunk.site_start_G1[0]) - window.start
            p = predictor.impute_chunk(self.panel, chunk, typed_TQ[:, queries])
            p_UQ[first : first + len(p), queries] = p

        running: deque[list[Future[None]]] = deque()
        for chunk in self._ahead(prepare, chunks_of(window, self.typed_index)):
            running.append([self._pool.submit(impute, chunk, queries) for queries in batches])
            if len(running) > CHUNKS_AHEAD:
                _finish(running.popleft())
        while running:
            _finish(running.popleft())

    def _ahead(self, work: Callable[[int], Result], numbers: range) -> Iterator[Result]:
        """Results in order, the next of them being computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for number in numbers:
            waiting.append(self._pool.submit(work, number))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _finish(parts: list[Future[None]]) -> None:
    for part in parts:
        part.result()


def predict_block(predictor: BlockPredictor, encoded: EncodedBlock, typed_TQ: np.ndarray) -> np.ndarray:
    """P(ALT), float32 (U, Q), of queries given at all typed sites: int8 (T, Q), -1 where missing."""
    query_QS = encoded.places.fill(typed_TQ)
    known_QS = (query_QS >= 0).astype(np.uint8)
    return predictor.predict(encoded, np.maximum(query_QS, 0).astype(np.uint8), known_QS)
