"""Imputes one window: blocks are spread over threads, each computed by one thread alone.

Because a block's arithmetic never depends on how many threads there are, neither does any result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from spinimpute.errors import InputError
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.windows import Window
from spinimpute.imputation.panel_blocks import BlockPredictor, BlockReader, EncodedBlock, PanelBlock

Result = TypeVar("Result")


def default_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """Threads with a predictor; a context manager.

    typed_index: int64 (T,), the typed panel sites, increasing; typed_TQ: int8 (T, Q), the queries' alleles
    there, -1 where missing.
    """

    def __init__(
        self, panel: Panel, predictor: BlockPredictor, typed_index: np.ndarray, threads: int
    ) -> None:
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
        low, high = self.visible(window)
        if low == high:
            return []
        return self._map(window, low, high, self.predictor.encode)

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT), float32 (stop - start, Q), at the core sites; the panel's frequency if nothing is typed."""
        frequency = self.panel.frequency[window.start : window.stop].astype(np.float32)
        p_UQ = np.repeat(frequency[:, None], typed_TQ.shape[1], axis=1)
        low, high = self.visible(window)
        if low == high:
            return p_UQ

        def impute(block: PanelBlock) -> tuple[np.ndarray, np.ndarray]:
            encoded = self.predictor.encode(block)
            return encoded.sites.panel_index_U, predict_block(self.predictor, encoded, typed_TQ)

        for index_U, p in self._map(window, low, high, impute):
            p_UQ[index_U - window.start] = p
        return p_UQ

    def _map(self, window: Window, low: int, high: int, work: Callable[[PanelBlock], Result]) -> list[Result]:
        reader = BlockReader(
            self.panel, self.typed_index, self.predictor.shape, low, high, window.start, window.stop
        )
        return list(self._pool.map(lambda number: work(reader.read(number)), reader.blocks))


def predict_block(predictor: BlockPredictor, encoded: EncodedBlock, typed_TQ: np.ndarray) -> np.ndarray:
    """P(ALT), float32 (U, Q), of queries given at all typed sites: int8 (T, Q), -1 where missing."""
    query_QS = encoded.places.fill(typed_TQ)
    known_QS = (query_QS >= 0).astype(np.uint8)
    return predictor.predict(encoded, np.maximum(query_QS, 0).astype(np.uint8), known_QS)
