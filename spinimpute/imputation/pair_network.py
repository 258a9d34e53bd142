"""`HaplotypeAttention.weigh` for processors: the same numbers, without tensors that leave the cache.

Axes: Q queries, G gaps, K classes, F features, H hidden units, P pairs (of a query and a class), V value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from torch import Tensor, nn

from spinimpute.imputation.fast_math import fast_exp
from spinimpute.imputation.haplotype_attention import NOTHING, HaplotypeAttention
from spinimpute.imputation.matches import LOG_COUNT

GAPS_AT_ONCE = 8  # whose pairs go through the layers together: they fit the first cache


@dataclass(frozen=True)
class PairWeights:
    """A pair network's weights as float32 arrays: first layer by what it looks at, then the others.

    pair_HF, gap_HG, first_H; second_HH, second_bias_H; last_OH, last_bias_O (O = 2 + V); n_value: V. Zeros
    fill up rows and columns to the multiples that `_add_products` asks for.
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
    def of(cls, model: HaplotypeAttention) -> PairWeights:
        second, last = model.pair[2], model.pair[4]
        assert isinstance(second, nn.Linear)
        assert isinstance(last, nn.Linear)
        from_pair, from_gap, bias = model.first_layer()
        return cls(
            _padded(from_pair, 4, 4),
            _padded(from_gap, 4),
            _padded(bias, 4),
            _padded(second.weight, 4, 4),
            _padded(second.bias, 4),
            _padded(last.weight, 2, 4),
            _padded(last.bias, 2),
            model.settings.value,
        )


def _padded(tensor: Tensor, *multiples: int) -> np.ndarray:
    """Zeros behind the end of each dimension, up to multiples of these numbers."""
    array = tensor.detach().cpu().numpy().astype(np.float32)
    return np.pad(array, [(0, -size % m) for size, m in zip(array.shape, multiples, strict=False)])


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _add_products(weight_OI, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """out += weight @ x for the first n columns; O is even and I a multiple of 4. Columns are the inner loop,
    with two rows of out and four of x at a time: each number that is loaded serves several products."""
    for o in range(0, weight_OI.shape[0], 2):
        a_I, b_I = weight_OI[o], weight_OI[o + 1]
        out_a_P, out_b_P = out_OP[o], out_OP[o + 1]
        for i in range(0, weight_OI.shape[1], 4):
            a0, a1, a2, a3 = a_I[i], a_I[i + 1], a_I[i + 2], a_I[i + 3]
            b0, b1, b2, b3 = b_I[i], b_I[i + 1], b_I[i + 2], b_I[i + 3]
            x0_P, x1_P, x2_P, x3_P = x_IP[i], x_IP[i + 1], x_IP[i + 2], x_IP[i + 3]
            for p in range(n):
                x0, x1, x2, x3 = x0_P[p], x1_P[p], x2_P[p], x3_P[p]
                out_a_P[p] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                out_b_P[p] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _weigh(  # type: ignore[no-untyped-def]
    features_QGFK, count_QGK, gap_GF, pair_HF, gap_HG, first_H, second_HH, second_bias_H, last_OH,
    last_bias_O, weight_QGEK, logit_QGK, value_QGVK,
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
    zero = np.float32(0)
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
            _add_products(pair_HF, x_FP, n, first_HP)
            for h in range(n_hidden):
                for p in range(n):
                    first_HP[h, p] = max(first_HP[h, p], zero)
                second_HP[h, :n] = second_bias_H[h]
            _add_products(second_HH, first_HP, n, second_HP)
            for h in range(n_hidden):
                for p in range(n):
                    second_HP[h, p] = max(second_HP[h, p], zero)
            for o in range(n_outputs):
                y_OP[o, :n] = last_bias_O[o]
            _add_products(last_OH, second_HP, n, y_OP)
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
                for k in range(n_present):
                    left_K[k] /= total_left
                    right_K[k] /= total_right
                n += n_present


def weigh(
    weights: PairWeights, features_QGFK: np.ndarray, count_QGK: np.ndarray, gap_GF: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `HaplotypeAttention.weigh`, of float32 arrays: weight_QGEK, logit_QGK, value_QGVK, all float32 and 0
    for absent classes."""
    q, g, k = count_QGK.shape
    weight_QGEK, logit_QGK = np.zeros((q, g, 2, k), np.float32), np.zeros((q, g, k), np.float32)
    value_QGVK = np.zeros((q, g, weights.n_value, k), np.float32)
    _weigh(
        features_QGFK, count_QGK, gap_GF, weights.pair_HF, weights.gap_HG,
        weights.first_H, weights.second_HH, weights.second_bias_H, weights.last_OH, weights.last_bias_O,
        weight_QGEK, logit_QGK, value_QGVK,
    )  # fmt: skip
    return weight_QGEK, logit_QGK, value_QGVK
