"""Features of gaps and sites for haplotype attention, and the sizes of its networks.

Without torch: imputing on a processor does not need it.

Axes: G gaps, S typed places, X sites in any shape, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.predictors.haplotype_attention.ibs_classes import SMALLEST_CM

EPSILON = 1e-4  # copied probabilities are cut to [EPSILON, 1 - EPSILON] before their logit is taken
ABSENT_LOGIT = -9.2  # of EPSILON
CONTRAST = 12.0  # the largest difference of logits, also where only carriers or only others are found
NOTHING = -1e9  # logit of a class that is not there
SCALE = 0.25  # of logarithms and logits, so that inputs are about 1
GAP_FEATURES = 2
COPIED_FEATURES = 6
SPREAD_FEATURES = 2
SITE_FEATURES = 5


@dataclass(frozen=True)
class HaplotypeSettings:
    """Sizes of the networks.

    Attributes
    ----------
    classes : int
        K.
    hidden : int
        Width of the pair network.
    value : int
        V.
    decoder_hidden : int
        Width of the decoder.
    """

    classes: int = 48
    hidden: int = 32
    value: int = 7
    decoder_hidden: int = 32


def gap_features(typed_cM_S: np.ndarray, place_G: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Features of the gaps on the left of places: log width in cM, log panel size; float32 (G, F)."""
    last = len(typed_cM_S) - 1
    width_G = typed_cM_S[np.clip(place_G, 0, last)] - typed_cM_S[np.clip(place_G - 1, 0, last)]
    return np.stack(
        [np.log(width_G + SMALLEST_CM), np.full(len(width_G), np.log(n_haplotypes))], axis=1, dtype=np.float32
    )


def site_features(
    frequency_X: np.ndarray,
    fraction_X: np.ndarray,
    left_X: np.ndarray,
    right_X: np.ndarray,
    n_haplotypes: int,
) -> np.ndarray:
    """Features of sites: frequency, position in the gap, panel size; scaled.

    Parameters
    ----------
    frequency_X : float
        Of the minor allele.
    fraction_X : float
        t, 0 at the left typed site, 1 at the right one.
    left_X, right_X : float
        Genetic distance (cM) to both ends of the gap.
    n_haplotypes : int
        Of the panel.

    Returns
    -------
    float32 (X, F)
        Logit of the frequency, t, logs of the distances, log panel size.
    """
    least = 0.25 / n_haplotypes
    frequency_X = frequency_X.clip(least, 1 - least)
    return np.stack(
        [
            np.log(frequency_X / (1 - frequency_X)) * SCALE,
            fraction_X,
            np.log(left_X + SMALLEST_CM) * SCALE,
            np.log(right_X + SMALLEST_CM) * SCALE,
            np.full(frequency_X.shape, np.log(n_haplotypes) * SCALE),
        ],
        axis=-1,
        dtype=np.float32,
    )
