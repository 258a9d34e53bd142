"""Scores of a window: the paper's R², and r² of minor-allele dosages.

The paper pools all test haplotypes and SNPs, so differences between sites count: allele frequencies alone
score well. The r² of minor-allele dosages is therefore shown, too. Both are computed from the dosages of
people, because the phases of targets and truth differ in one of the sets. The score of haplotypes is also
stored.

Axes: Q target haplotypes (those of a person are adjacent), U untyped sites, P people.
"""

from __future__ import annotations

import numpy as np

from spinimpute.quality.metrics import mean_variant_r2, minor_allele_dosage, pooled_r2, site_statistics

R2, R2_HAPLOTYPES, R2_MINOR, R2_RARE, R2_COMMON, MEAN_R2 = (
    "R2", "R2 of haplotypes", "r2 minor", "r2 minor, rare", "r2 minor, common", "mean r2"
)  # fmt: skip
COMMON = 0.01  # minor allele frequency in the panel, above which a site is common


def window_scores(p_QU: np.ndarray, truth_QU: np.ndarray, frequency_U: np.ndarray) -> dict[str, float]:
    """Return the scores of a window; `frequency_U` is the frequency of ALT in the panel."""
    dosage_UP, true_UP = _dosages(p_QU), _dosages(truth_QU)
    minor_UP, minor_U = minor_allele_dosage(dosage_UP, frequency_U)
    statistics = site_statistics(minor_allele_dosage(true_UP, frequency_U)[0], minor_UP)
    common_U = minor_U > COMMON
    return {
        R2: _squared_correlation(dosage_UP, true_UP),
        R2_HAPLOTYPES: _squared_correlation(p_QU, truth_QU),
        R2_MINOR: pooled_r2(statistics),
        R2_RARE: pooled_r2(statistics[~common_U]),
        R2_COMMON: pooled_r2(statistics[common_U]),
        MEAN_R2: mean_variant_r2(statistics),
        "common sites": int(common_U.sum()),
    }


def _dosages(allele_QU: np.ndarray) -> np.ndarray:
    return (allele_QU[::2].astype(np.float64) + allele_QU[1::2]).T


def _squared_correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x.ravel(), y.ravel())[0, 1] ** 2)
