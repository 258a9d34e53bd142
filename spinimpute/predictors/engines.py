"""The predictor and the engine for a panel of either kind; what needs torch is loaded only where it is
used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engine import Engine, HaplotypeEngine
from spinimpute.predictors.haplotype_attention.memory import DEFAULT, Limits
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.loading import as_predictor

if TYPE_CHECKING:
    from spinimpute.predictors.loading import Predictor


def predictor_for(
    panel: Panel | InducingPanel,
    model: str | Path | Predictor | None = None,
    device: str = "auto",
    inducing_points: int | None = None,
    predictor: str | None = None,
) -> Predictor:
    """Parameters as of `impute`. Raises InputError as `as_predictor`, or as
    `inducing_engine.predictor_of`."""
    if isinstance(panel, Panel):
        return as_predictor(model, device, inducing_points, predictor)
    from spinimpute.predictors.spin.inducing_engine import predictor_of

    return predictor_of(panel, model, device, predictor, inducing_points)


def engine_for(
    panel: Panel | InducingPanel,
    predictor: Predictor,
    typed_index: np.ndarray,
    threads: int,
    limits: Limits = DEFAULT,
    scratch: Path | None = None,
    jumps_per_cM: float | None = None,
) -> Engine:
    """typed_index: int64 (T,), the typed panel sites, increasing; the rest as of `HaplotypeEngine`.

    Raises InputError as the engines do.
    """
    if isinstance(predictor, HaplotypePredictor):
        assert isinstance(panel, Panel), "predictor_for gives what reads the panel"
        return HaplotypeEngine(panel, predictor, typed_index, threads, limits, scratch, jumps_per_cM)
    from spinimpute.predictors.spin.block_engine import BlockEngine
    from spinimpute.predictors.spin.inducing_engine import InducingEngine

    if isinstance(panel, InducingPanel):
        return InducingEngine(panel, predictor, typed_index, threads)
    return BlockEngine(panel, predictor, typed_index, threads)
