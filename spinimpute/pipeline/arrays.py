"""Imputation of numpy arrays, without files.

Axes: T typed or sequenced sites (rows of the input), S panel sites, X samples, Q haplotypes. A trailing 2 is
the two alleles of a genotype; a trailing 3 is 0, 1 or 2 copies of ALT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites, match_sites
from spinimpute.panels.opening import require_open_panel
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.genotypes import genotypes_by_window, threads_within
from spinimpute.pipeline.sequenced.inputs import expand_to_all_sites, require_haplotypes
from spinimpute.pipeline.sequenced.records import to_haplotype_columns
from spinimpute.pipeline.settings import PredictorSettings, Resources, check_settings
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.loading import predictor_for
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, stored_phred

NO_ALLELE = -2  # second allele of haploid genotypes, as in sgkit


def impute_haplotypes(
    panel: ReferencePanel,
    typed_alleles: np.ndarray,
    typed_sites: np.ndarray | Sites,
    predictor: PredictorSettings = PredictorSettings(),
    *,
    resources: Resources = Resources(),
) -> np.ndarray:
    """Impute haplotypes at all sites of a panel.

    Each haplotype is imputed independently. (`impute_genotypes` and `impute` also use the sample's other
    haplotype, to recognize samples that are in the panel.) Typed alleles are returned unchanged. The whole
    result is kept in memory; for whole chromosomes use `impute`.

    Parameters
    ----------
    panel : Panel or InducingPanel
        An open panel. With an inducing panel, only the sites of its array are used.
    typed_alleles : int (T, Q)
        0 REF, 1 ALT, -1 or masked: missing; one column per haplotype.
    typed_sites : Sites or int64 (T,)
        The site of each row: a `Sites` object, or increasing indices of panel sites.
    predictor : PredictorSettings
        The predictor.
    resources : Resources
        Threads, device and memory.

    Returns
    -------
    float32 (n_sites, Q)
        P(ALT) at each panel site.

    Raises
    ------
    InputError
        The panel is not open, settings have the wrong class, no typed site is in the panel, or the inducing
        panel belongs to another model or array.
    ValueError
        Shapes or values are invalid.
    """
    return _impute(panel, typed_alleles, typed_sites, predictor, resources, None)


def _impute(
    panel: ReferencePanel,
    typed_alleles: np.ndarray,
    typed_sites: np.ndarray | Sites,
    predictor: PredictorSettings,
    resources: Resources,
    sibling_Q: np.ndarray | None,
) -> np.ndarray:
    """Impute haplotypes. sibling_Q: column of each sample's other haplotype; None if samples are unknown."""
    check_settings(predictor=(predictor, PredictorSettings), resources=(resources, Resources))
    require_open_panel(panel)
    typed_alleles = _set_masked_missing(typed_alleles, "typed_alleles")
    if typed_alleles.ndim != 2 or not np.isin(typed_alleles, (-1, 0, 1)).all():
        raise ValueError(
            "typed_alleles must have 2 dimensions and values -1, 0, 1, got "
            f"ndim={typed_alleles.ndim}, values {np.unique(typed_alleles)[:5]}"
        )
    rows, typed_index = _find_panel_rows(panel, typed_sites, len(typed_alleles), "typed_sites")
    typed_TQ = typed_alleles[rows].astype(np.int8)
    options = resources.predictor_options(predictor)
    loaded, options = predictor_for(panel, predictor.model, predictor.name, options, resources.device)
    threads = choose_threads(resources.threads)
    if not typed_TQ.shape[1]:
        return np.empty((panel.n_sites, 0), np.float32)
    job = ImputationJob(panel, typed_index, threads, typed_TQ.shape[1], options, sibling_Q=sibling_Q)
    with loaded.engine(job) as engine:
        p_SQ = engine.impute_window(Interval(0, panel.n_sites), typed_TQ)
    p_SQ[typed_index] = np.where(typed_TQ >= 0, typed_TQ, p_SQ[typed_index])
    return p_SQ


def impute_genotypes(
    panel: ReferencePanel,
    genotypes: np.ndarray,
    sites: np.ndarray | Sites,
    predictor: PredictorSettings = PredictorSettings(),
    *,
    phased: np.ndarray | None = None,
    haploid: np.ndarray | None = None,
    resources: Resources = Resources(),
) -> ImputedSamples:
    """Impute phased genotypes of sgkit or scikit-allel at all sites of a panel.

    Typed genotypes are returned unchanged. The whole result is kept in memory. For whole chromosomes and for
    unphased genotypes, use `impute`.

    Parameters
    ----------
    panel : Panel or InducingPanel
        An open panel.
    genotypes : int (T, X, 2) or (T, X, 1)
        Axes: variants, samples, ploidy. For example `call_genotype` of sgkit or a `GenotypeArray` of
        scikit-allel. Alleles are 0 (REF), 1 (ALT), or -1 or masked (missing). The second allele of a haploid
        sample is -2 in all rows, as in sgkit.
    sites : Sites or int64 (T,)
        The site of each row: a `Sites` object, or increasing indices of panel sites.
    predictor : PredictorSettings
        The predictor.
    phased : bool (T, X), optional
        Which genotypes are phased (`call_genotype_phased`, `is_phased`); by default all.
    haploid : bool (X,), optional
        Haploid samples. Needed if their second alleles are not -2; scikit-allel writes -1.
    resources : Resources
        Threads, device and memory.

    Returns
    -------
    ImputedSamples
        Phased haplotypes, genotypes, dosages and genotype probabilities.

    Raises
    ------
    InputError
        See `impute_haplotypes`.
    ValueError
        Shapes or values are invalid, or a heterozygous genotype has no phase.
    """
    calls_TX2 = _set_masked_missing(genotypes, "genotypes", keep_value=NO_ALLELE)
    if calls_TX2.ndim != 3 or calls_TX2.shape[2] not in (1, 2) or calls_TX2.dtype.kind not in "iu":
        raise ValueError(
            "genotypes must be integers of shape (variants, samples, ploidy), ploidy 1 or 2, got "
            f"shape {calls_TX2.shape} of {calls_TX2.dtype}"
        )
    haploid_X = np.full(calls_TX2.shape[1], calls_TX2.shape[2] == 1)
    if calls_TX2.shape[2] == 2:
        haploid_X = _find_haploid(calls_TX2, haploid)
        if phased is not None:
            _check_phased(calls_TX2, np.asarray(phased))
    kept_XP = np.ones(calls_TX2.shape[1:], dtype=bool)
    kept_XP[haploid_X, 1:] = False
    alleles_TQ = calls_TX2[:, kept_XP]
    sibling_Q = sibling_haplotypes(np.repeat(np.arange(len(haploid_X)), kept_XP.sum(axis=1)))
    return ImputedSamples(_impute(panel, alleles_TQ, sites, predictor, resources, sibling_Q), haploid_X)


def _get_mask(array: np.ndarray, name: str) -> np.ndarray | None:
    """Return the mask of a numpy or scikit-allel array, broadcast to its shape; None if it has no mask."""
    values, mask = np.asarray(array), getattr(array, "mask", None)
    if not isinstance(mask, np.ndarray | np.bool_):  # pandas tables have a method `mask`
        return None
    if mask.shape != values.shape[: mask.ndim]:
        raise ValueError(
            f"the mask of {name} must have the shape {values.shape} or its first axes, got {mask.shape}"
        )
    return np.broadcast_to(mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim)), values.shape)


def _set_masked_missing(array: np.ndarray, name: str, keep_value: int | None = None) -> np.ndarray:
    """Return the array with masked entries set to -1, except entries that are `keep_value`."""
    alleles, mask = np.asarray(array), _get_mask(array, name)
    if mask is None or not mask.any():
        return alleles
    alleles = alleles.astype(np.int64 if alleles.dtype.kind in "ub" else alleles.dtype)
    alleles[mask if keep_value is None else mask & (alleles != keep_value)] = -1
    return alleles


def _find_haploid(calls_TX2: np.ndarray, haploid: np.ndarray | None) -> np.ndarray:
    """Return which samples are haploid, bool (X,). Raises ValueError if a sample's ploidy is unclear."""
    n_samples = calls_TX2.shape[1]
    flagged_X = np.zeros(n_samples, bool) if haploid is None else _check_haploid(haploid, n_samples)
    second_TX = calls_TX2[:, :, 1]
    has_rows = bool(len(second_TX))
    haploid_X = (second_TX == NO_ALLELE).all(axis=0) & has_rows
    partly_X = (second_TX == NO_ALLELE).any(axis=0) & ~haploid_X & ~flagged_X
    if partly_X.any():
        raise ValueError(
            f"sample {np.flatnonzero(partly_X)[0]} of genotypes has the second allele {NO_ALLELE} (none) "
            "in some rows only. It must be haploid in all rows or in none"
        )
    conflict_X = flagged_X & (second_TX >= 0).any(axis=0)
    if conflict_X.any():
        raise ValueError(
            f"sample {np.flatnonzero(conflict_X)[0]} is haploid, but some of its genotypes have two alleles"
        )
    unclear_X = (second_TX == -1).all(axis=0) & (calls_TX2[:, :, 0] >= 0).any(axis=0) & ~flagged_X & has_rows
    if unclear_X.any():
        raise ValueError(
            f"sample {np.flatnonzero(unclear_X)[0]} of genotypes has a second allele in no row. If it is "
            f"haploid, mark it with haploid=..., or set its second alleles to {NO_ALLELE}"
        )
    return np.asarray(haploid_X | flagged_X)


def _check_haploid(haploid: np.ndarray, n_samples: int) -> np.ndarray:
    haploid_X = np.asarray(haploid)
    if haploid_X.shape != (n_samples,) or haploid_X.dtype != bool:
        raise ValueError(
            f"haploid must be {n_samples} booleans, got shape {haploid_X.shape} of {haploid_X.dtype}"
        )
    return haploid_X


def _check_phased(calls_TX2: np.ndarray, phased_TX: np.ndarray) -> None:
    """Raise ValueError if a heterozygous genotype is not phased."""
    if phased_TX.shape != calls_TX2.shape[:2] or phased_TX.dtype != bool:
        raise ValueError(
            f"phased must be booleans of shape {calls_TX2.shape[:2]}, got "
            f"shape {phased_TX.shape} of {phased_TX.dtype}"
        )
    called_TX = (calls_TX2 >= 0).all(axis=2)
    unphased_TX = called_TX & (calls_TX2[:, :, 0] != calls_TX2[:, :, 1]) & ~phased_TX
    if unphased_TX.any():
        t, x = np.argwhere(unphased_TX)[0]
        raise ValueError(
            f"{unphased_TX.sum()} heterozygous genotypes are not phased, the first in row {t}, sample {x}. "
            "Write them to a file and phase it with `spinimpute.phase`"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ImputedSamples:
    """Imputed genotypes of samples at all sites of a panel.

    Attributes
    ----------
    haplotypes : float32 (S, Q)
        P(ALT) of the phased haplotypes: two columns per diploid sample, one per haploid sample.
        Dosages and genotype probabilities treat a sample's two haplotypes as independent.
    haploid : bool (X,)
        Which samples are haploid.
    """

    haplotypes: np.ndarray
    haploid: np.ndarray

    def __repr__(self) -> str:
        one_copy = f", {self.haploid.sum()} of them with one copy" if self.haploid.any() else ""
        return f"<ImputedSamples: {len(self.haplotypes):,} sites, {len(self.haploid)} samples{one_copy}>"

    @property
    def genotypes(self) -> np.ndarray:
        """Phased genotypes, int8 (S, X, 2): 0 REF, 1 ALT.

        The second allele of a haploid sample is -2, as in sgkit; scikit-allel reads it as missing.
        """
        first_SX, second_SX = self._pairs()
        called_SX2 = (np.stack([first_SX, second_SX], axis=-1) > 0.5).astype(np.int8)
        called_SX2[:, self.haploid, 1] = NO_ALLELE
        return called_SX2

    @property
    def dosages(self) -> np.ndarray:
        """Expected number of ALT alleles, float32 (S, X)."""
        first_SX, second_SX = self._pairs()
        return np.where(self.haploid, first_SX, first_SX + second_SX)

    @property
    def probabilities(self) -> np.ndarray:
        """Probabilities of 0, 1, 2 copies of ALT, float32 (S, X, 3). Haploid samples: P(REF), 0, P(ALT)."""
        first_SX, second_SX = self._pairs()
        two_SX, none_SX = first_SX * second_SX, (1 - first_SX) * (1 - second_SX)
        two_SX, none_SX = np.where(self.haploid, [first_SX, 1 - first_SX], [two_SX, none_SX])
        one_SX = np.where(self.haploid, 0, first_SX + second_SX - 2 * first_SX * second_SX)
        return np.stack([none_SX, one_SX, two_SX], axis=-1).astype(np.float32)

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return P(ALT) of each sample's first and last haplotype, two arrays (S, X)."""
        last_X = np.cumsum(np.where(self.haploid, 1, 2)) - 1
        return self.haplotypes[:, last_X - ~self.haploid], self.haplotypes[:, last_X]


def impute_likelihoods(
    panel: Panel,
    likelihoods: np.ndarray,
    sites: np.ndarray | Sites,
    *,
    haploid: np.ndarray | None = None,
    resources: Resources = Resources(),
) -> ImputedSamples:
    """Impute sequenced samples at all sites of a panel, from genotype likelihoods.

    Each sample is imputed independently of the others. The whole result is kept in memory; for whole
    chromosomes use `impute_sequenced`.

    Parameters
    ----------
    panel : Panel
        An open panel.
    likelihoods : float (T, X, 3)
        P(reads | genotype) for 0, 1 and 2 copies of ALT, times any constant per site and sample. Not the
        logarithm, and not Phred-scaled: convert PL by 10 ** (PL / -10.0). Three equal values, or a masked
        value, mean no data. Values are rounded to whole Phred units and limited to 255, as in files.
    sites : Sites or int64 (T,)
        The site of each row: a `Sites` object with the panel's REF and ALT, or increasing indices of panel
        sites.
    haploid : bool (X,), optional
        Haploid samples. Their first and last values are the likelihoods of REF and ALT.
    resources : Resources
        Threads and memory. Fewer threads are used if the memory budget is too small for all.

    Returns
    -------
    ImputedSamples
        Phased haplotypes, dosages and genotype probabilities.

    Raises
    ------
    InputError
        The panel is not open or holds inducing points, no site is in the panel, or memory is too small for
        one thread.
    ValueError
        Shapes or values are invalid.
    """
    check_settings(resources=(resources, Resources))
    require_open_panel(panel)
    panel = require_haplotypes(panel)
    likelihoods, haploid_X = _check_likelihoods(likelihoods, haploid)
    rows, index_T = _find_panel_rows(panel, sites, len(likelihoods), "sites")
    with np.errstate(divide="ignore"):
        phred_TX3 = -10 * np.log10(likelihoods[rows] / likelihoods[rows].max(axis=2, keepdims=True))
    at_panel_sites = GenotypeLikelihoods(
        [str(x) for x in range(len(haploid_X))],
        np.where(haploid_X, 1, 2).astype(np.uint8),
        index_T,
        stored_phred(phred_TX3, haploid_X),
        None,
        len(likelihoods),
    )
    threads, n_samples = choose_threads(resources.threads), len(haploid_X)
    threads = threads_within(resources.max_memory, panel, Interval(0, panel.n_sites), n_samples, threads)
    phred_SX3 = expand_to_all_sites(at_panel_sites, 0, panel.n_sites)
    windows = genotypes_by_window(panel, 0, phred_SX3, haploid_X, threads)
    return ImputedSamples(
        np.concatenate([to_haplotype_columns(p_S2X, haploid_X) for _, p_S2X in windows]), haploid_X
    )


def _check_likelihoods(likelihoods: np.ndarray, haploid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Check likelihoods. Return them as float64, and which samples are haploid, bool (X,)."""
    mask = _get_mask(likelihoods, "likelihoods")
    likelihoods = np.asarray(likelihoods)
    if likelihoods.ndim != 3 or likelihoods.shape[2] != 3 or likelihoods.dtype.kind not in "fiu":
        raise ValueError(
            "likelihoods must be numbers of shape (sites, samples, 3), got "
            f"shape {likelihoods.shape} of {likelihoods.dtype}"
        )
    n_samples = likelihoods.shape[1]
    haploid_X = np.zeros(n_samples, bool) if haploid is None else _check_haploid(haploid, n_samples)
    likelihoods = likelihoods.astype(np.float64)
    if mask is not None:
        likelihoods[mask.any(axis=2)] = 1
    likelihoods[:, haploid_X, 1] = 0  # haploid samples have no heterozygotes
    unusable_TX = ~np.isfinite(likelihoods).all(axis=2) | (likelihoods < 0).any(axis=2)
    unusable_TX |= (likelihoods == 0).all(axis=2)
    if unusable_TX.any():
        t, x = np.argwhere(unusable_TX)[0]
        raise ValueError(
            "likelihoods must be P(reads | genotype), not logarithms: finite, not negative, and not all 0; "
            f"row {t}, sample {x} has {likelihoods[t, x].tolist()}"
        )
    return likelihoods, haploid_X


def _find_panel_rows(
    panel: ReferencePanel, sites: np.ndarray | Sites, n_rows: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows whose sites are in the panel, and these panel sites. `name` is used in messages."""
    if len(sites) != n_rows:
        raise ValueError(f"{name} must have a site for each of {n_rows} rows, got {len(sites)}")
    if isinstance(sites, Sites):
        match = match_sites(panel.sites, sites)
        return match.target_index, match.panel_index
    index = np.asarray(sites)
    n_sites = len(panel.sites)
    if index.ndim != 1 or index.dtype.kind not in "iu" or (index[1:] <= index[:-1]).any():
        raise ValueError(f"{name} must be increasing panel site indices (1-dimensional integers)")
    if len(index) == 0:
        raise InputError("argument", f"there is no site in {name}")
    if index[0] < 0 or index[-1] >= n_sites:
        raise ValueError(f"{name} must lie in 0..{n_sites - 1}, got {index[0]}..{index[-1]}")
    return np.arange(len(index)), index.astype(np.int64)
