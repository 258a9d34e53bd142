"""Imputes one window from an inducing panel; in the place of engines that need the haplotypes.

Its array's sites that a target has not typed are unknown there, as missing calls are. Because blocks are
read whole, results do not depend on windows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.windows import Window
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor
from spinimpute.predictors.engine import panel_frequencies
from spinimpute.predictors.loading import load_block_predictor
from spinimpute.predictors.spin.block_engine import TorchEngine

if TYPE_CHECKING:
    from spinimpute.predictors.loading import Predictor


def predictor_of(
    panel: InducingPanel,
    model: str | Path | Predictor | None = None,
    device: str = "auto",
    predictor: str | None = None,
    inducing_points: int | None = None,
) -> BlockPredictor:
    """The predictor that reads an inducing panel; parameters as of `impute`.

    Raises InputError if it is not the one that made the panel, and for choices that only a panel leaves.
    """
    if predictor not in (None, "inducing"):
        raise InputError(
            f"{panel.path} holds inducing points and no haplotypes: the predictor {predictor!r} needs a panel"
        )
    if inducing_points is not None:
        raise InputError(
            f"{panel.path} was made with {panel.inducing_points} inducing points a block: their number is "
            "chosen when the file is made"
        )
    found = load_block_predictor(model, device)
    panel.check_model(found.kind, found.fingerprint)
    return found


class InducingEngine(TorchEngine):
    """Blocks of an inducing panel.

    typed_index: int64 (T,), the typed panel sites, increasing, whether or not the array has them.
    """

    def __init__(
        self, panel: InducingPanel, predictor: BlockPredictor, typed_index: np.ndarray, threads: int
    ) -> None:
        super().__init__(typed_index, threads)
        self.panel, self.predictor = panel, predictor
        array = panel.typed_index
        row_T = np.searchsorted(typed_index, array)
        # of the typed sites, for each site of the array; near a region there may be none
        self._row_T = np.where(np.isin(array, typed_index), row_T, -1)

    def impute_window(self, window: Window, typed_TQ: np.ndarray) -> np.ndarray:
        """As `Engine.impute_window`."""
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
