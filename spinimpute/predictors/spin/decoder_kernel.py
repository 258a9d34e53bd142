"""The decoder of SPIN on the CPU: `decoder.LabelDecoder.decode`, compiled. It does not import torch.

The probabilities of one query at all sites of a batch stay in the cache from the pooled labels to the result.

Axes: Q queries, G heads, U sites, F inputs of the correction network (one for each head, and the mixture), W
its width, P sites, padded to a multiple of LANES.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.haplotype_attention.layers import add_products, dense_relu, padded, transposed
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

FREQUENCY_SHARE = 0.001  # weight of the panel's ALT frequency in the P(ALT) of a head
MIN_PROBABILITY = 1e-6  # not 1e-8, because 1 - 1e-8 equals 1 in float32
LOGIT_SCALE = 0.25  # of the inputs of the correction network
MIN_TOTAL = 1e-20  # of the weights of all heads


class CorrectionWeights(NamedTuple):
    """Weights of the layers of a `LabelDecoder` whose inputs differ between entries, padded for `layers`."""

    first_FW: np.ndarray
    second_WW: np.ndarray
    second_W: np.ndarray
    last_W: np.ndarray
    last_bias: np.float32

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> CorrectionWeights:
        """Return them from the arrays of a decoder."""
        last_W = padded(weights["last.weight"][0])
        return cls(
            transposed(weights["from_heads.weight"]),
            transposed(np.pad(weights["middle.weight"], ((0, 0), (0, -len(weights["middle.weight"]) % 8)))),
            padded(weights["middle.bias"]),
            last_W,
            np.float32(weights["last.bias"][0]),
        )


class Gates(NamedTuple):
    """What the decoder needs of queries and of sites, float32."""

    query_QG: np.ndarray  # weights of the heads for each query
    site_GU: np.ndarray  # weights of the heads for each site
    query_QW: np.ndarray  # part of the correction network's first layer, padded for `layers`
    site_WU: np.ndarray  # likewise; includes the bias


@kernel(fast=True)
def decode_labels(weights, gates, pooled_GQU, frequency_U, out_QU):  # type: ignore[no-untyped-def]
    """Write P(ALT) of each query at each site, from the mean labels of the heads."""
    first_FW, second_WW, second_W, last_W, last_bias = weights
    query_QG, site_GU, query_QW, site_WU = gates
    n_heads, n_queries, n_sites = pooled_GQU.shape
    width = len(second_W)
    n_padded = -(-n_sites // LANES) * LANES
    one, scale = np.float32(1), np.float32(LOGIT_SCALE)
    share, least = np.float32(FREQUENCY_SHARE), np.float32(MIN_PROBABILITY)
    x_FP = np.zeros((n_heads + 1, n_padded), np.float32)
    first_WP, second_WP = np.zeros((width, n_padded), np.float32), np.zeros((width, n_padded), np.float32)
    mixed_P, total_P = np.zeros(n_padded, np.float32), np.zeros(n_padded, np.float32)
    for q in range(n_queries):
        mixed_P[:] = np.float32(0)
        total_P[:] = np.float32(MIN_TOTAL)
        for g in range(n_heads):
            gate = query_QG[q, g]
            for u in range(n_sites):
                p = pooled_GQU[g, q, u]
                p = min(max(p + share * (frequency_U[u] - p), least), one - least)
                weight = gate * site_GU[g, u]
                mixed_P[u] += weight * p
                total_P[u] += weight
                x_FP[g, u] = (fast_log(p) - fast_log(one - p)) * scale
        for u in range(n_sites):
            p = min(max(mixed_P[u] / total_P[u], least), one - least)
            logit = fast_log(p) - fast_log(one - p)
            mixed_P[u] = logit + last_bias
            x_FP[n_heads, u] = logit * scale
        for w in range(width):
            start = query_QW[q, w]
            for u in range(n_sites):
                first_WP[w, u] = start + site_WU[w, u]
        add_products(first_FW, x_FP, n_sites, first_WP, True)
        dense_relu(second_WW, second_W, first_WP, n_sites, second_WP)
        for w in range(width):
            weight = last_W[w]
            for u in range(n_sites):
                mixed_P[u] += weight * second_WP[w, u]
        for u in range(n_sites):
            odds = fast_exp(-abs(mixed_P[u]))  # of the less likely allele
            out_QU[q, u] = (one if mixed_P[u] > 0 else odds) / (one + odds)
