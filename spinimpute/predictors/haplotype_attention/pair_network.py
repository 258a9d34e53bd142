"""`HaplotypeAttention.weigh` for processors: the same numbers, without tensors that leave the cache.

Axes: Q queries, G gaps, K classes, F features, H hidden units, P pairs (of a query and a class), V value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spinimpute.fast_math import fast_exp, fast_log
from spinimpute.kernels import kernel
from spinimpute.predictors.haplotype_attention.ibs_classes import FEATURES, LOG_COUNT
from spinimpute.predictors.haplotype_attention.layers import add_products, dense_relu, padded
from spinimpute.predictors.haplotype_attention.settings import GAP_FEATURES, NOTHING, SCALE

GAPS_AT_ONCE = 8  # whose pairs go through the layers together: they fit the first cache


@dataclass(frozen=True)
class PairWeights:
    """A pair network's weights as float32 arrays.

    Zeros fill up rows and columns to the multiples that `add_products` needs (`layers`).

    Attributes
    ----------
    pair_HF, gap_HG, first_H
        First layer: features of a pair and of a gap, and bias.
    second_HH, second_bias_H
        Second layer.
    last_OH, last_bias_O
        Last layer, O = 2 + V.
    n_value : int
        V.
    """

    pair_HF: np.ndarray
    gap_HG: np.ndarray
    first_H: np.ndarray
    second_HH: np.ndarray
    second_bias_H: np.ndarray
    last_OH: np.ndarray
    last_bias_O: np.ndarray
    n_value: int

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> PairWeights:
        """Take them from the weights of `HaplotypeAttention`; KeyError or ValueError for another model's."""
        first = weights["pair.0.weight"] * SCALE
        if first.shape[1] != FEATURES + GAP_FEATURES:
            raise ValueError(f"{first.shape[1]} numbers for a pair, {FEATURES + GAP_FEATURES} expected")
        return cls(
            padded(first[:, :FEATURES], 4, 4),
            padded(first[:, FEATURES:], 4),
            padded(weights["pair.0.bias"], 4),
            padded(weights["pair.2.weight"], 4, 4),
            padded(weights["pair.2.bias"], 4),
            padded(weights["pair.4.weight"], 4, 4),
            padded(weights["pair.4.bias"], 4),
            len(weights["pair.4.bias"]) - 2,
        )


@kernel(fast=True)
def _weigh(  # type: ignore[no-untyped-def]
    features_QGFK, count_QGK, gap_GF, pair_HF, gap_HG, first_H, second_HH, second_bias_H, last_OH,
    last_bias_O, weight_QGEK, logit_QGK, value_QGVK, spread_QGE,
):  # fmt: skip
    n_queries, n_gaps, n_features, n_classes = features_QGFK.shape
    n_hidden, n_outputs = len(first_H), len(last_bias_O)
    most = GAPS_AT_ONCE * n_classes
    x_FP, y_OP = np.zeros((pair_HF.shape[1], most), np.float32), np.empty((n_outputs, most), np.float32)
    first_HP, second_HP = np.empty((n_hidden, most), np.float32), np.empty((n_hidden, most), np.float32)
    of_gap_GH = np.empty((n_gaps, n_hidden), np.float32)
    for g in range(n_gaps):
        for h in range(n_hidden):
            total = first_H[h]
            for f in range(gap_HG.shape[1]):
                total += gap_HG[h, f] * gap_GF[g, f]
            of_gap_GH[g, h] = total
    zero, least, scale = np.float32(0), np.float32(1e-9), np.float32(SCALE)
    for q in range(n_queries):
        for start in range(0, n_gaps, GAPS_AT_ONCE):
            stop = min(start + GAPS_AT_ONCE, n_gaps)
            n = 0
            for g in range(start, stop):
                n_present = 0
                while n_present < n_classes and count_QGK[q, g, n_present] > 0:
                    n_present += 1
                for f in range(n_features):
                    x_FP[f, n : n + n_present] = features_QGFK[q, g, f, :n_present]
                for h in range(n_hidden):
                    first_HP[h, n : n + n_present] = of_gap_GH[g, h]
                n += n_present
            add_products(pair_HF, x_FP, n, first_HP)
            for h in range(n_hidden):
                for p in range(n):
                    first_HP[h, p] = max(first_HP[h, p], zero)
            dense_relu(second_HH, second_bias_H, first_HP, n, second_HP)
            for o in range(n_outputs):
                y_OP[o, :n] = last_bias_O[o]
            add_products(last_OH, second_HP, n, y_OP)
            n = 0
            for g in range(start, stop):
                left_K, right_K = weight_QGEK[q, g, 0], weight_QGEK[q, g, 1]
                largest_left = largest_right = np.float32(NOTHING)
                n_present = 0
                while n_present < n_classes and count_QGK[q, g, n_present] > 0:
                    left, right = y_OP[0, n + n_present], y_OP[1, n + n_present]
                    logit_QGK[q, g, n_present] = (left + right) * np.float32(0.5)
                    left_K[n_present] = left + features_QGFK[q, g, LOG_COUNT, n_present]
                    right_K[n_present] = right + features_QGFK[q, g, LOG_COUNT, n_present]
                    largest_left = max(largest_left, left_K[n_present])
                    largest_right = max(largest_right, right_K[n_present])
                    n_present += 1
                for v in range(value_QGVK.shape[2]):
                    value_QGVK[q, g, v, :n_present] = y_OP[2 + v, n : n + n_present]
                total_left = total_right = zero
                for k in range(n_present):
                    left_K[k] = fast_exp(left_K[k] - largest_left)
                    right_K[k] = fast_exp(right_K[k] - largest_right)
                for k in range(n_present):
                    total_left += left_K[k]
                    total_right += right_K[k]
                left_spread = right_spread = zero
                for k in range(n_present):
                    left_K[k] /= total_left
                    right_K[k] /= total_right
                for k in range(n_present):
                    left_spread -= left_K[k] * fast_log(max(left_K[k], least))
                    right_spread -= right_K[k] * fast_log(max(right_K[k], least))
                spread_QGE[q, g, 0], spread_QGE[q, g, 1] = left_spread * scale, right_spread * scale
                n += n_present


def weigh(
    weights: PairWeights, features_QGFK: np.ndarray, count_QGK: np.ndarray, gap_GF: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `HaplotypeAttention.weigh`, of float32 arrays.

    Parameters
    ----------
    weights : PairWeights
        The pair network.
    features_QGFK, count_QGK, gap_GF : float32
        As of `HaplotypeAttention.weigh`.

    Returns
    -------
    weight_QGEK, logit_QGK, value_QGVK : float32
        As in `ClassWeights`; 0 for absent classes.
    spread_QGE : float32
        The weights' entropy, as of `spread`.
    """
    q, g, k = count_QGK.shape
    weight_QGEK, logit_QGK = np.zeros((q, g, 2, k), np.float32), np.zeros((q, g, k), np.float32)
    value_QGVK = np.zeros((q, g, weights.n_value, k), np.float32)
    spread_QGE = np.zeros((q, g, 2), np.float32)
    _weigh(
        features_QGFK, count_QGK, gap_GF, weights.pair_HF, weights.gap_HG,
        weights.first_H, weights.second_HH, weights.second_bias_H, weights.last_OH, weights.last_bias_O,
        weight_QGEK, logit_QGK, value_QGVK, spread_QGE,
    )  # fmt: skip
    return weight_QGEK, logit_QGK, value_QGVK, spread_QGE
