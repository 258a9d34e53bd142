"""Imputation for those who have arrays and no VCF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.devices import default_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.sites import Sites, match_sites
from spinimpute.genotypes.windows import Window
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engines import engine_for, predictor_for

if TYPE_CHECKING:
    from spinimpute.predictors.loading import Predictor


def impute_haplotypes(
    panel: Panel | InducingPanel,
    typed_alleles: np.ndarray,
    typed_sites: np.ndarray | Sites,
    model: str | Path | Predictor | None = None,
    *,
    inducing_points: int | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """P(ALT) of haplotypes at all sites of a panel: float32 (n_sites, Q).

    Parameters:
        panel: an open panel, or an inducing panel. The latter uses the sites of its array only.
        typed_alleles: int (T, Q), 0 REF, 1 ALT, -1 missing; one column for each haplotype.
        typed_sites: the sites of its rows, as `Sites` or as increasing panel site indices int64 (T,).
        model, inducing_points: as for `impute`.
        threads: by default all processors; results do not depend on it.
    Raises:
        InputError: no typed site is in the panel, or the inducing panel is of another model or array.
        ValueError: shapes or values are unusable.

    Where an allele was given it comes back as it is. All of the result is in memory at once: for whole
    chromosomes use `impute`.
    """
    typed_alleles = np.asarray(typed_alleles)
    if typed_alleles.ndim != 2 or not np.isin(typed_alleles, (-1, 0, 1)).all():
        raise ValueError(
            "typed_alleles must have 2 dimensions and values -1, 0, 1, however: "
            f"ndim={typed_alleles.ndim}, values {np.unique(typed_alleles)[:5]}"
        )
    if len(typed_sites) != len(typed_alleles):
        raise ValueError(
            f"typed_sites must name each of {len(typed_alleles)} rows, however: {len(typed_sites)} sites"
        )
    rows, typed_index = _rows(panel, typed_sites)
    typed_TQ = typed_alleles[rows].astype(np.int8)
    threads = default_threads() if threads is None else threads
    predictor = predictor_for(panel, model, inducing_points=inducing_points)
    with engine_for(panel, predictor, typed_index, threads) as engine:
        p_UQ = engine.impute_window(Window(0, 0, panel.n_sites, 0, panel.n_sites), typed_TQ)
    p_UQ[typed_index] = np.where(typed_TQ >= 0, typed_TQ, p_UQ[typed_index])
    return p_UQ


def _rows(panel: Panel | InducingPanel, typed_sites: np.ndarray | Sites) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the typed alleles that are used, and their panel sites."""
    if isinstance(typed_sites, Sites):
        match = match_sites(panel.sites, typed_sites)
        return match.target_index, match.panel_index
    index = np.asarray(typed_sites)
    n_sites = len(panel.sites)
    if index.ndim != 1 or index.dtype.kind not in "iu" or (np.diff(index) <= 0).any():
        raise ValueError("typed_sites must be increasing panel site indices (1-dimensional integers)")
    if len(index) == 0:
        raise InputError("there is no typed site")
    if index[0] < 0 or index[-1] >= n_sites:
        raise ValueError(f"typed_sites must lie in 0..{n_sites - 1}, however: {index[0]}..{index[-1]}")
    return np.arange(len(index)), index.astype(np.int64)
