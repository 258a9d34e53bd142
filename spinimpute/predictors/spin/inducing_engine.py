"""Imputes windows from an inducing panel, in place of engines that need the haplotypes.

Its array's sites that a target has not typed are unknown there, as missing calls are. Because blocks are
read whole, results do not depend on windows.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor
from spinimpute.predictors.engine import ImputationJob, panel_frequencies
from spinimpute.predictors.spin.block_engine import TorchEngine


class InducingEngine(TorchEngine):
    """Blocks of an inducing panel; a job's typed sites count whether or not the array has them."""

    def __init__(self, predictor: BlockPredictor, panel: InducingPanel, job: ImputationJob) -> None:
        super().__init__(job)
        self.panel, self.predictor = panel, predictor
        array = panel.array_index
        row_T = np.searchsorted(job.typed_index, array)
        # of the typed sites, for each site of the array; near a region there may be none
        self._row_T = np.where(np.isin(array, job.typed_index), row_T, -1)

    def predict_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """As of `TorchEngine`."""
        p_UQ = panel_frequencies(self.panel.frequency, window, typed_TQ.shape[1])

        def impute(number: int) -> None:
            block = self.panel.read(number, window.start, window.stop)
            places = block.places
            row_V = self._row_T[places.first : places.last]
            if (row_V < 0).all():
                return
            seen = slice(places.offset, places.offset + len(row_V))
            alleles_QS = np.full((typed_TQ.shape[1], len(places.cM_S)), -1, dtype=np.int8)
            alleles_QS[:, seen] = np.where(row_V[:, None] >= 0, typed_TQ[row_V], -1).T
            known_QS = (alleles_QS >= 0).astype(np.uint8)
            p = self.predictor.predict(block, np.maximum(alleles_QS, 0).astype(np.uint8), known_QS)
            p_UQ[block.sites.panel_index_U - window.start] = p

        self.map(impute, self.panel.blocks(window.start, window.stop))
        return p_UQ
