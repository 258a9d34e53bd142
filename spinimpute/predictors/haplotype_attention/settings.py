"""Features of gaps and sites for haplotype attention, and the sizes of its networks.

This module does not import torch, because imputing on the CPU does not need torch.

Axes: G gaps, S typed places, X sites in any shape, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from spinimpute.predictors.haplotype_attention.ibs_classes import CM_OFFSET, FEATURES
from spinimpute.predictors.interface import check_arrays, layer_shapes

EPSILON = 1e-4  # copied probabilities are clipped to [EPSILON, 1 - EPSILON] before their logit is taken
ABSENT_LOGIT = -9.2  # logit of EPSILON: initial prediction of an allele that no class member has
CONTRAST = 12.0  # `Copied.contrast` is clipped to [-CONTRAST, CONTRAST]
ABSENT_CLASS_LOGIT = -1e9  # attention logit of an absent class
SCALE = 0.25  # factor of logarithms and logits as network inputs, which are then about -1 to 1
# numbers of input features of the networks
GAP_FEATURES = 2
COPIED_FEATURES = 6
SPREAD_FEATURES = 2
SITE_FEATURES = 5


@dataclass(frozen=True)
class HaplotypeSettings:
    """Sizes of the networks: the table [model] of a configuration."""

    classes: int = 48  # K, maximum number of IBS classes of a query at a gap
    hidden: int = 32  # width of the pair network
    value: int = 7  # V, length of the vector by which the pair network describes a class to the decoder
    decoder_hidden: int = 32  # width of the decoder


def check_weights(weights: Mapping[str, np.ndarray], settings: HaplotypeSettings) -> None:
    """Raise ValueError if a size is invalid, or a weight has a wrong name, shape or type or is not finite."""
    for name, size in asdict(settings).items():
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} must be a positive whole number, got {size!r}")
    h, v, d = settings.hidden, settings.value, settings.decoder_hidden
    spread_and_site = SPREAD_FEATURES + SITE_FEATURES
    layers = {
        "pair.0": (h, FEATURES + GAP_FEATURES),
        "pair.2": (h, h),
        "pair.4": (2 + v, h),
        "decoder.0": (d, COPIED_FEATURES + 2 * v + spread_and_site),
        "decoder.2": (d, d),
        "decoder.4": (1, d),
        "absent": (1, spread_and_site),
    }
    check_arrays(weights, layer_shapes(layers))


def gap_features(typed_cM_S: np.ndarray, place_G: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Return the features of the gaps that end at place_G: log width (cM), log panel size; float32 (G, 2)."""
    last = len(typed_cM_S) - 1
    width_G = typed_cM_S[np.clip(place_G, 0, last)] - typed_cM_S[np.clip(place_G - 1, 0, last)]
    return np.stack(
        [np.log(width_G + CM_OFFSET), np.full(len(width_G), np.log(n_haplotypes))], axis=1, dtype=np.float32
    )


def site_features(
    frequency_X: np.ndarray,
    fraction_X: np.ndarray,
    left_X: np.ndarray,
    right_X: np.ndarray,
    n_haplotypes: int,
) -> np.ndarray:
    """Return the features of sites, float32 (X, F).

    The features are the logit of the minor allele frequency, the position in the gap (fraction_X: 0 at the
    left typed site, 1 at the right one), the logs of the distances in cM to these typed sites (left_X and
    right_X), and the log of the panel size. Logits and logs are multiplied by SCALE.
    """
    min_frequency = 0.25 / n_haplotypes
    frequency_X = frequency_X.clip(min_frequency, 1 - min_frequency)
    return np.stack(
        [
            np.log(frequency_X / (1 - frequency_X)) * SCALE,
            fraction_X,
            np.log(left_X + CM_OFFSET) * SCALE,
            np.log(right_X + CM_OFFSET) * SCALE,
            np.full(frequency_X.shape, np.log(n_haplotypes) * SCALE),
        ],
        axis=-1,
        dtype=np.float32,
    )
