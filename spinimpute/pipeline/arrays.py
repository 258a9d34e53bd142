"""Imputation for those who have arrays and no VCF."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.sites import Sites, match_sites
from spinimpute.genotypes.windows import Window
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.settings import PredictorSettings, Resources, check_settings
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.loading import predictor_for


def impute_haplotypes(
    panel: ReferencePanel,
    typed_alleles: np.ndarray,
    typed_sites: np.ndarray | Sites,
    predictor: PredictorSettings = PredictorSettings(),
    *,
    resources: Resources = Resources(),
) -> np.ndarray:
    """P(ALT) of haplotypes at all sites of a panel.

    Alleles that are given come back unchanged. The whole result is held in memory: for whole chromosomes use
    `impute`.

    Parameters
    ----------
    panel : Panel or InducingPanel
        Open. Of an inducing panel, only the sites of its array are used.
    typed_alleles : int (T, Q)
        0 REF, 1 ALT, -1 missing; one column for each haplotype.
    typed_sites : Sites or int64 (T,)
        The sites of the rows, or increasing panel site indices.
    predictor : PredictorSettings
        Which predictor imputes.
    resources : Resources
        Threads, device and memory.

    Returns
    -------
    float32 (n_sites, Q)
        P(ALT).

    Raises
    ------
    InputError
        The panel is not open, or settings are of another class; no typed site is in the panel, or the
        inducing panel belongs to another model or array.
    ValueError
        Shapes or values are unusable.
    """
    check_settings(predictor=(predictor, PredictorSettings), resources=(resources, Resources))
    if isinstance(panel, str | Path):
        raise InputError(f"panel must be an open one, such as Panel.open({str(panel)!r}), however: a path")
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
    given = resources.predictor_options(predictor)
    loaded, options = predictor_for(panel, predictor.model, predictor.name, given, resources.device)
    threads = choose_threads(resources.threads)
    with loaded.engine(ImputationJob(panel, typed_index, threads, typed_TQ.shape[1], options)) as engine:
        p_UQ = engine.impute_window(Window(0, 0, panel.n_sites, 0, panel.n_sites), typed_TQ)
    p_UQ[typed_index] = np.where(typed_TQ >= 0, typed_TQ, p_UQ[typed_index])
    return p_UQ


def _rows(panel: ReferencePanel, typed_sites: np.ndarray | Sites) -> tuple[np.ndarray, np.ndarray]:
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
