"""Imputation for those who have arrays and no VCF."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.sites import Sites, match_sites
from spinimpute.genotypes.windows import Window
from spinimpute.imputation.engine import Engine, default_threads, predict_block
from spinimpute.imputation.inducing_panel import InducingPanel
from spinimpute.imputation.panel_blocks import BlockPredictor
from spinimpute.imputation.predictors import Predictor, as_predictor, load_block_predictor


def encode_panel(
    panel: Panel,
    typed_sites: np.ndarray | Sites,
    model: str | Path | Predictor | None = None,
    *,
    inducing_points: int | None = None,
    threads: int | None = None,
) -> InducingPanel:
    """Compress a panel into inducing points for one array: `impute_haplotypes` then needs no panel.

    typed_sites: the array's sites, as `Sites` or as increasing panel site indices int64 (T,).
    Raises InputError if none of the sites is in the panel, ValueError for unusable indices.
    """
    predictor = load_block_predictor(model, inducing_points=inducing_points)
    typed_index = _typed_index(panel, typed_sites)
    with Engine(panel, predictor, typed_index, default_threads() if threads is None else threads) as engine:
        blocks = engine.encode_window(_whole(panel))
    return InducingPanel(
        panel.sites,
        typed_index,
        panel.frequency.astype(np.float32),
        panel.n_haplotypes,
        blocks,
        predictor.kind,
        predictor.fingerprint,
        panel.checksum,
    )


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
        panel: an open panel, or its inducing points (made by the same model, for the same typed sites).
        typed_alleles: int (T, Q), 0 REF, 1 ALT, -1 missing; one column for each haplotype.
        typed_sites: the sites of its rows, as `Sites` or as increasing panel site indices int64 (T,).
        model, inducing_points: as for `impute`.
        threads: by default all processors; results do not depend on it.
    Raises:
        InputError: no typed site is in the panel, or the inducing points are of another model or array.
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
    if isinstance(panel, InducingPanel):
        encoder = load_block_predictor(model, inducing_points=inducing_points)
        p_UQ = _from_inducing_points(panel, encoder, typed_index, typed_TQ)
    else:
        predictor = as_predictor(model, inducing_points=inducing_points)
        with Engine(
            panel, predictor, typed_index, default_threads() if threads is None else threads
        ) as engine:
            p_UQ = engine.impute_window(_whole(panel), typed_TQ)
    p_UQ[typed_index] = np.where(typed_TQ >= 0, typed_TQ, p_UQ[typed_index])
    return p_UQ


def _from_inducing_points(
    panel: InducingPanel, predictor: BlockPredictor, typed_index: np.ndarray, typed_TQ: np.ndarray
) -> np.ndarray:
    if panel.fingerprint != predictor.fingerprint:
        raise InputError(
            f"the inducing points were made by the model {panel.kind} {panel.fingerprint}, not by "
            f"{predictor.kind} {predictor.fingerprint}: give that model, or encode the panel again"
        )
    if not np.array_equal(panel.typed_index, typed_index):
        raise InputError(
            f"the inducing points were made for an array of {len(panel.typed_index)} panel sites, not for "
            f"these {len(typed_index)}: encode the panel again for this array"
        )
    p_UQ = np.repeat(panel.frequency[:, None], typed_TQ.shape[1], axis=1)
    for block in panel.blocks:
        p_UQ[block.sites.panel_index_U] = predict_block(predictor, block, typed_TQ)
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


def _typed_index(panel: Panel, typed_sites: np.ndarray | Sites) -> np.ndarray:
    return _rows(panel, typed_sites)[1]


def _whole(panel: Panel) -> Window:
    return Window(0, 0, panel.n_sites, 0, panel.n_sites)
