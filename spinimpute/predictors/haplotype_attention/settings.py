"""Features of gaps and sites for haplotype attention, and the sizes of its networks.

Without torch: imputing on a processor does not need it.

Axes: G gaps, S typed places, X sites in any shape, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from spinimpute.predictors.haplotype_attention.ibs_classes import FEATURES, SMALLEST_CM

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

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of `HaplotypeAttention`, by name."""
        h, v, d = self.hidden, self.value, self.decoder_hidden
        spread_and_site = SPREAD_FEATURES + SITE_FEATURES
        widths = {
            "pair.0": (h, FEATURES + GAP_FEATURES),
            "pair.2": (h, h),
            "pair.4": (2 + v, h),
            "decoder.0": (d, COPIED_FEATURES + 2 * v + spread_and_site),
            "decoder.2": (d, d),
            "decoder.4": (1, d),
            "absent": (1, spread_and_site),
        }
        weights = {f"{layer}.weight": shape for layer, shape in widths.items()}
        return weights | {f"{layer}.bias": shape[:1] for layer, shape in widths.items()}


def check_weights(weights: Mapping[str, np.ndarray], settings: HaplotypeSettings) -> None:
    """Check that weights are those of `HaplotypeAttention`: kernels read them without looking at their sizes.

    Parameters
    ----------
    weights : mapping of str to array
        By name.
    settings : HaplotypeSettings
        Sizes of the networks.

    Raises
    ------
    ValueError
        A size is none, or the weights are of other sizes, or no numbers.
    """
    for name, size in asdict(settings).items():
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} must be a positive whole number, found {size!r}")
    expected = settings.weight_shapes()
    found = {name: weight.shape for name, weight in weights.items()}
    wrong = sorted(name for name in expected.keys() | found if expected.get(name) != found.get(name))
    wrong = wrong or [
        name for name, w in weights.items() if w.dtype != np.float32 or not np.isfinite(w).all()
    ]
    if wrong:
        raise ValueError(f"weights of another network: {', '.join(wrong[:3])}")


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
