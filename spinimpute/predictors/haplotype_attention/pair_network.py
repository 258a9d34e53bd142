"""The pair network of haplotype attention on the CPU: `HaplotypeAttention.weigh`, compiled.

The network maps the features of a pair (a query and an IBS class) to an attention logit for each end of the
gap, and to a value, which describes the class to the decoder.

Axes: Q queries, G gaps, K classes, F features, H hidden units, P pairs of a batch, V value, E ends of a gap,
O = 2 + V outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.haplotype_attention.ibs_classes import LOG_COUNT, IBSClasses
from spinimpute.predictors.haplotype_attention.layers import dense, dense_relu, padded, transposed
from spinimpute.predictors.haplotype_attention.settings import ABSENT_CLASS_LOGIT, SCALE
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

GAPS_PER_BATCH = 8  # gaps whose pairs go through the layers together: their arrays fit the L1 cache


class WeighedClasses(NamedTuple):
    """Attention over IBS classes, float32; see `network.ClassWeights`. Undefined for absent classes."""

    weight_QGEK: np.ndarray
    logit_QGK: np.ndarray
    value_QGVK: np.ndarray
    spread_QGE: np.ndarray  # entropy of the weights, see `network.spread`; 0 if there are no classes


class PairWeights(NamedTuple):
    """The weights of a pair network, float32, padded for `layers`."""

    first_FH: np.ndarray  # F: the features of a pair, then the features of a gap
    first_H: np.ndarray
    second_HH: np.ndarray
    second_H: np.ndarray
    last_HO: np.ndarray
    last_O: np.ndarray
    n_value: int

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> PairWeights:
        """Return the pair network's part of the weights of `HaplotypeAttention`."""
        return cls(
            transposed(weights["pair.0.weight"] * SCALE),
            padded(weights["pair.0.bias"]),
            transposed(weights["pair.2.weight"]),
            padded(weights["pair.2.bias"]),
            transposed(weights["pair.4.weight"]),
            padded(weights["pair.4.bias"]),
            len(weights["pair.4.bias"]) - 2,
        )

    def weigh(self, classes: IBSClasses, gap_GF: np.ndarray) -> WeighedClasses:
        """Return the attention over classes. gap_GF are the features of the gaps, see `gap_features`."""
        q, g, k = classes.count_QGK.shape
        weighed = WeighedClasses(
            np.empty((q, g, 2, k), np.float32),
            np.empty((q, g, k), np.float32),
            np.empty((q, g, self.n_value, k), np.float32),
            np.zeros((q, g, 2), np.float32),
        )
        _weigh(classes.features_QGFK, classes.count_QGK, gap_GF, self, weighed)
        return weighed


@kernel(fast=True)
def _weigh(features_QGFK, count_QGK, gap_GF, weights, weighed):  # type: ignore[no-untyped-def]
    """Fill the arrays of `WeighedClasses`.

    The inner loops run over the pairs of several gaps. They are long enough to be vectorized.
    """
    first_FH, first_H, second_HH, second_H, last_HO, last_O, _ = weights
    weight_QGEK, logit_QGK, value_QGVK, spread_QGE = weighed
    n_queries, n_gaps, n_features, n_classes = features_QGFK.shape
    n_inputs, n_hidden, n_outputs = len(first_FH), len(first_H), len(last_O)
    max_pairs = -(-GAPS_PER_BATCH * n_classes // LANES) * LANES
    x_FP, y_OP = np.zeros((n_inputs, max_pairs), np.float32), np.empty((n_outputs, max_pairs), np.float32)
    first_HP, second_HP = (
        np.empty((n_hidden, max_pairs), np.float32),
        np.empty((n_hidden, max_pairs), np.float32),
    )
    weight_EP, log_P = np.empty((2, max_pairs), np.float32), np.empty(max_pairs, np.float32)
    start_G1 = np.zeros(GAPS_PER_BATCH + 1, np.int64)
    zero, min_weight, scale = np.float32(0), np.float32(1e-9), np.float32(SCALE)
    for q in range(n_queries):
        for start in range(0, n_gaps, GAPS_PER_BATCH):
            n_gaps_here = min(GAPS_PER_BATCH, n_gaps - start)
            n = 0
            for i in range(n_gaps_here):
                g = start + i
                first = n
                while n < first + n_classes and count_QGK[q, g, n - first] > 0:
                    n += 1
                start_G1[i + 1] = n
                for f in range(n_features):
                    for p in range(first, n):
                        x_FP[f, p] = features_QGFK[q, g, f, p - first]
                for f in range(n_features, n_inputs):
                    for p in range(first, n):
                        x_FP[f, p] = gap_GF[g, f - n_features]
            if n == 0:
                continue
            dense_relu(first_FH, first_H, x_FP, n, first_HP)
            dense_relu(second_HH, second_H, first_HP, n, second_HP)
            dense(last_HO, last_O, second_HP, n, y_OP)
            for e in range(2):
                weight_P = weight_EP[e]
                for p in range(n):
                    weight_P[p] = y_OP[e, p] + x_FP[LOG_COUNT, p]
                for i in range(n_gaps_here):
                    largest = np.float32(ABSENT_CLASS_LOGIT)
                    for p in range(start_G1[i], start_G1[i + 1]):
                        largest = max(largest, weight_P[p])
                    for p in range(start_G1[i], start_G1[i + 1]):
                        weight_P[p] -= largest
                for p in range(n):
                    weight_P[p] = fast_exp(weight_P[p])
                for i in range(n_gaps_here):
                    total = zero
                    for p in range(start_G1[i], start_G1[i + 1]):
                        total += weight_P[p]
                    for p in range(start_G1[i], start_G1[i + 1]):
                        weight_P[p] /= total
                for p in range(n):
                    log_P[p] = weight_P[p] * fast_log(max(weight_P[p], min_weight))
                for i in range(n_gaps_here):
                    entropy = zero
                    for p in range(start_G1[i], start_G1[i + 1]):
                        entropy -= log_P[p]
                    spread_QGE[q, start + i, e] = entropy * scale
            for i in range(n_gaps_here):
                g, first = start + i, start_G1[i]
                for k in range(start_G1[i + 1] - first):
                    weight_QGEK[q, g, 0, k] = weight_EP[0, first + k]
                    weight_QGEK[q, g, 1, k] = weight_EP[1, first + k]
                    logit_QGK[q, g, k] = (y_OP[0, first + k] + y_OP[1, first + k]) * np.float32(0.5)
                for v in range(value_QGVK.shape[2]):
                    for k in range(start_G1[i + 1] - first):
                        value_QGVK[q, g, v, k] = y_OP[2 + v, first + k]
