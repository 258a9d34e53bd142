"""The engines of predictors that read a panel's blocks; a part is a block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numpy as np
import torch

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.panel_blocks import BlockPredictor, BlockReader, EncodedBlock, PanelBlock
from spinimpute.panels.soft_alleles import as_stored
from spinimpute.predictors.engine import Engine, ImputationJob, panel_frequencies
from spinimpute.runtime.errors import InputError, argument

Result = TypeVar("Result")


class TorchEngine(Engine):
    """An engine whose threads compute with torch: it gets one thread in each of them."""

    def __init__(self, job: ImputationJob) -> None:
        super().__init__(job)
        self._torch_threads = torch.get_num_threads()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        torch.set_num_threads(self._torch_threads)  # later threads inherit this setting

    @abstractmethod
    def predict_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT) of one window, as `Engine.predict_windows`."""

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """As `Engine.predict_windows`."""
        for window in windows:
            yield self.predict_window(window, typed_TQ)

    def map(self, work: Callable[[int], Result], numbers: range) -> list[Result]:
        """work(number) for every number, in order."""

        def alone(number: int) -> Result:
            torch.set_num_threads(1)
            return work(number)

        return list(self.pool.map(alone, numbers))


class BlockEngine(TorchEngine):
    """Blocks of a panel's haplotypes."""

    def __init__(self, predictor: BlockPredictor, job: ImputationJob) -> None:
        super().__init__(job)
        self.panel, self.predictor = job.haplotypes, predictor

    def encode_window(self, window: Interval) -> list[EncodedBlock]:
        """Inducing points of every block of a window; none without a typed site."""
        return self._map_blocks(window, self._encode)

    def _encode(self, block: PanelBlock) -> EncodedBlock:
        encoded = self.predictor.encode(block)
        if not all(values.isfinite().all() for values in encoded.points.values()):
            raise InputError(
                "damaged",
                "the model makes inducing points that are no numbers: it is not trained, or damaged. Give "
                f"another one ({argument('model')})",
            )
        return encoded

    def predict_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """As of `TorchEngine`."""
        p_UQ = panel_frequencies(self.panel.frequency, window, typed_TQ.shape[1])

        def impute(block: PanelBlock) -> tuple[np.ndarray, np.ndarray]:
            encoded = as_stored(self._encode(block))
            return encoded.sites.panel_index_U, predict_block(self.predictor, encoded, typed_TQ)

        for index_U, p in self._map_blocks(window, impute):
            p_UQ[index_U - window.start] = p
        return p_UQ

    def _map_blocks(self, window: Interval, work: Callable[[PanelBlock], Result]) -> list[Result]:
        n_typed = len(self.typed_index)
        if n_typed == 0:
            return []
        # a block sees the typed sites around it wherever a window ends, as it does in a file
        reader = BlockReader(
            self.panel, self.typed_index, self.predictor.shape, 0, n_typed, window.start, window.stop
        )
        return self.map(lambda number: work(reader.read(number)), reader.blocks)


def predict_block(predictor: BlockPredictor, encoded: EncodedBlock, typed_TQ: np.ndarray) -> np.ndarray:
    """P(ALT), float32 (U, Q), of queries with alleles at all typed sites: int8 (T, Q), -1 where missing."""
    query_QS = encoded.places.fill(typed_TQ)
    known_QS = (query_QS >= 0).astype(np.uint8)
    return predictor.predict(encoded, np.maximum(query_QS, 0).astype(np.uint8), known_QS)
