"""The weights of a block's columns, probabilities of K-mers, and small networks, without torch.

Axes: D columns, G heads that sum over columns, H inducing points, V = 2^K K-mers, R pairs of a column and a
K-mer, F features, I inputs and O
outputs of a layer, P inputs that are computed together, padded to a multiple of LANES, X any number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.kmers import cut_columns
from spinimpute.hmm.parameters import LANES
from spinimpute.nn import MASS_OFFSET, NO_POINT
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.predictors.haplotype_attention.layers import dense, padded, transposed
from spinimpute.predictors.spin.compiled.attention import gelu
from spinimpute.predictors.spin.settings import (
    DISTANCE_OFFSET,
    ENCODER_DECAY,
    MIN_FREQUENCY,
    SPINSettings,
    size_feature,
)
from spinimpute.runtime.kernels import kernel


class ColumnWeights(NamedTuple):
    """The columns of a block, float32."""

    valid_D: np.ndarray  # share of the column's places that have a site
    step_D: np.ndarray  # see `matching.run_steps`
    encoder_D: np.ndarray  # weights in the encoder
    head_GD: np.ndarray  # weights in the scores of each head


class ColumnNetwork:
    """The network that computes weights of columns, from the weights of a `GenotypeSPIN`."""

    def __init__(self, weights: Mapping[str, np.ndarray], settings: SPINSettings) -> None:
        self._weights, self._k = weights, settings.k

    @np.errstate(over="ignore", invalid="ignore")  # weights of a damaged model
    def of(self, block: PanelBlock | EncodedBlock, n_points: int) -> ColumnWeights:
        """Return the columns of a block that has this number of inducing points."""
        weights, valid_S = self._weights, block.places.valid_S.astype(np.float32)
        valid_D = cut_columns(valid_S, self._k).mean(-1, dtype=np.float32)

        def mean_of_sites(x_S: np.ndarray) -> np.ndarray:
            mean_D: np.ndarray = cut_columns(x_S * valid_S, self._k).mean(-1) / valid_D.clip(min=1e-6)
            return mean_D

        frequency_S = block.frequency_S.clip(MIN_FREQUENCY, 1 - MIN_FREQUENCY)
        cM_D = mean_of_sites(block.places.cM_S.astype(np.float32))
        log_maf_D = mean_of_sites(np.log(np.minimum(frequency_S, 1 - frequency_S)))
        far_D, middle = np.abs(cM_D), len(cM_D) // 2
        offset_D = np.arange(len(cM_D)) - middle
        features_FD = np.stack(
            [
                np.log(far_D + DISTANCE_OFFSET) / 3 + 1,
                far_D.clip(max=2),
                np.abs(offset_D) / 12,
                np.sign(offset_D),
                log_maf_D / 3 + 0.5,
                valid_D,
                np.full(len(cM_D), size_feature(block.n_haplotypes)),
                np.full(len(cM_D), count_feature(n_points)),
            ],
            dtype=np.float32,
        )
        weight_GD = np.logaddexp(0, two_layers(weights, "column", features_FD) + 0.5) * valid_D
        sharpness = np.exp(weights["log_sharpness"])
        encoder_D = weight_GD[0] * np.exp(-ENCODER_DECAY * np.abs(offset_D)) * sharpness
        decay_GD = np.exp(-far_D * np.exp(-weights["log_scale"])[:, None])
        lean_GD = 2 / (1 + np.exp(-weights["lean"][:, None] * np.sign(offset_D)))
        head_GD = weight_GD[1:] * decay_GD * lean_GD
        between_D = np.abs(np.diff(cM_D))
        step_D = np.concatenate([between_D[:middle], [0], between_D[middle:]]) + DISTANCE_OFFSET
        others = (step_D * (valid_D > 0), encoder_D, head_GD)
        return ColumnWeights(valid_D, *(array.astype(np.float32) for array in others))


def two_layers(weights: Mapping[str, np.ndarray], name: str, x_FX: np.ndarray) -> np.ndarray:
    """Return the outputs (O, X) of a network of two layers with GELU between them."""
    hidden_FX = linear(weights[f"{name}.0.weight"], weights[f"{name}.0.bias"], x_FX)
    gelu(hidden_FX.reshape(-1))
    return linear(weights[f"{name}.2.weight"], weights[f"{name}.2.bias"], hidden_FX)


def linear(weight_OI: np.ndarray, bias_O: np.ndarray, x_IX: np.ndarray) -> np.ndarray:
    """Return weight @ x + bias, float32 (O, X). A column's result does not depend on the other columns."""
    n = x_IX.shape[1]
    x_IP = np.pad(x_IX, ((0, 0), (0, -n % LANES)))
    out_OP = np.empty((len(padded(bias_O)), x_IP.shape[1]), np.float32)
    dense(transposed(weight_OI), padded(bias_O), x_IP, n, out_OP)
    return np.ascontiguousarray(out_OP[: len(bias_O), :n])


def count_feature(n_points: int) -> float:
    """Return the log number of inducing points, scaled to about -1 to 1."""
    return math.log(n_points) / 4 - 1.3


def confusion_of(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return P(observed K-mer | true K-mer), float32 (V, V), see `similarity.Confusion`."""
    log_VV = weights["confusion.log_confusion"]
    odds_VV = np.exp(log_VV - log_VV.max(1, keepdims=True))
    confusion_VV: np.ndarray = odds_VV / odds_VV.sum(1, keepdims=True)
    return confusion_VV


def add_kmer_probabilities(
    token_DVH: np.ndarray,
    confusion_VV: np.ndarray,
    column_R: np.ndarray,
    kmer_R: np.ndarray,
    out_RH: np.ndarray,
) -> None:
    """Add the probability of observing some K-mers, given an inducing point; see `similarity.Confusion`."""
    _add_kmer_probabilities(token_DVH, token_DVH.any(-1), confusion_VV, column_R, kmer_R, out_RH)


@kernel(fast=True)
def _add_kmer_probabilities(token_DVH, present_DV, confusion_VV, column_R, kmer_R, out_RH):  # type: ignore[no-untyped-def]
    n_kmers, n_points = token_DVH.shape[1:]
    for r in range(len(column_R)):
        d, observed = column_R[r], kmer_R[r]
        for true in range(n_kmers):
            if present_DV[d, true]:
                share = confusion_VV[true, observed]
                for h in range(n_points):
                    out_RH[r, h] += share * token_DVH[d, true, h]


def log_priors(mass_H: np.ndarray, prior: float) -> np.ndarray:
    """Return prior * log mass of points, NO_POINT for points without haplotypes, float32 (H,)."""
    log_mass_H = np.log(mass_H + np.float32(MASS_OFFSET))
    return np.where(mass_H > 0, prior * log_mass_H, NO_POINT).astype(np.float32)
