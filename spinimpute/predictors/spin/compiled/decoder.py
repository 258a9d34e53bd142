"""The decoder of SPIN, compiled; see `predictors.spin.decoder` for what it computes.

The probabilities of one query at some sites stay in the cache from the pooled labels to the result.

Axes: Q queries, H inducing points, G heads, C summaries of a query's attention, U sites to impute, E entries:
points with a label above 0 at a site, B parts
of the sites, F inputs of the correction network (one for each head, and the
mixture), W its width, P sites of a part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import all_lanes, lane, load
from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.haplotype_attention.layers import add_products, dense_relu, padded, transposed
from spinimpute.predictors.spin.settings import FREQUENCY_SHARE, LOGIT_SCALE, MIN_PROBABILITY, MIN_TOTAL
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

SITES_PER_PART = 64  # sites of a part: its arrays fit into the cache


class Labels(NamedTuple):
    """Mean alleles of the points at the sites to impute, without those that are 0 (at some sites: 1)."""

    first_U1: np.ndarray  # int64; the entries of site u are [first_U1[u], first_U1[u + 1])
    point_E: np.ndarray  # int64
    label_E: np.ndarray  # float32; the mean of 1 - allele at sites with `complement_U`
    complement_U: np.ndarray  # bool

    @classmethod
    def of(cls, label_HU: np.ndarray) -> Labels:
        """Return the labels of a block."""
        complement_U = (label_HU != 1).sum(0) < (label_HU != 0).sum(0)
        label_UH = np.where(complement_U, 1 - label_HU, label_HU).T
        site_E, point_E = np.nonzero(label_UH)
        first_U1 = np.searchsorted(site_E, np.arange(len(label_UH) + 1))
        return cls(first_U1, point_E, label_UH[site_E, point_E].astype(np.float32), complement_U)


class CorrectionWeights(NamedTuple):
    """Weights of the correction network's layers, padded for `layers`."""

    first_FW: np.ndarray
    second_WW: np.ndarray
    second_W: np.ndarray
    last_W: np.ndarray
    last_bias: np.float32

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> CorrectionWeights:
        """Return them from the arrays of a `GenotypeSPIN`."""
        middle = weights["decoder.middle.weight"]
        return cls(
            transposed(weights["decoder.from_heads.weight"]),
            transposed(np.pad(middle, ((0, 0), (0, -len(middle) % 8)))),
            padded(weights["decoder.middle.bias"]),
            padded(weights["decoder.last.weight"][0]),
            np.float32(weights["decoder.last.bias"][0]),
        )


class SiteGates(NamedTuple):
    """What the decoder needs of the sites, in parts of SITES_PER_PART sites, float32."""

    weight_BGP: np.ndarray  # weights of the heads
    first_BWP: np.ndarray  # part of the correction network's first layer, with its bias, padded for `layers`
    frequency_BP: np.ndarray  # the panel's frequency of ALT

    @classmethod
    def of(cls, weight_GU: np.ndarray, first_WU: np.ndarray, frequency_U: np.ndarray) -> SiteGates:
        """Cut arrays of sites into parts."""
        frequency_BP = _parts(frequency_U[None]).reshape(-1, SITES_PER_PART)
        return cls(_parts(weight_GU), _parts(padded(first_WU)), frequency_BP)


def _parts(x_LU: np.ndarray) -> np.ndarray:
    """Cut rows into parts, (B, L, P), with zeros after the last site."""
    n = x_LU.shape[1]
    x_LBP = np.pad(x_LU, ((0, 0), (0, -n % SITES_PER_PART))).reshape(len(x_LU), -1, SITES_PER_PART)
    return np.ascontiguousarray(x_LBP.swapaxes(0, 1))


class DecoderMemory(NamedTuple):
    """Arrays that `decode_query` overwrites, float32."""

    x_FP: np.ndarray
    first_WP: np.ndarray
    second_WP: np.ndarray
    mixed_P: np.ndarray
    total_P: np.ndarray


def decoder_memory(n_heads: int, width: int) -> DecoderMemory:
    """Return memory for `decode_query`; `width` is the padded width of the correction network."""
    layers = (np.zeros((n, SITES_PER_PART), np.float32) for n in (n_heads + 1, width, width))
    return DecoderMemory(*layers, *(np.zeros(SITES_PER_PART, np.float32) for _ in range(2)))


@kernel(fast=True)
def pool_labels(labels, attention_HG, start, stop, pooled_GP):  # type: ignore[no-untyped-def]
    """Write the mean labels of the sites [start, stop) to pooled_GP, one mean for each head.

    attention_HG has a multiple of LANES heads.
    """
    first_U1, point_E, label_E, complement_U = labels
    row = attention_HG.shape[1] // LANES
    for column in range(row):
        for u in range(start, stop):
            first, end = first_U1[u], first_U1[u + 1]
            total, other = all_lanes(np.float32(0)), all_lanes(np.float32(0))
            # two sums, so that an addition need not wait for the one before
            for e in range(first, end - 1, 2):
                total += load(attention_HG, point_E[e] * row + column) * label_E[e]
                other += load(attention_HG, point_E[e + 1] * row + column) * label_E[e + 1]
            if (end - first) % 2:
                total += load(attention_HG, point_E[end - 1] * row + column) * label_E[end - 1]
            total += other
            for i in range(min(LANES, len(pooled_GP) - column * LANES)):
                p = lane(total, i)
                pooled_GP[column * LANES + i, u - start] = np.float32(1) - p if complement_U[u] else p


@kernel(fast=True)
def decode_query(weights, gate_G, query_W, sites, labels, attention_HG, memory, q, out_QU):  # type: ignore[no-untyped-def]
    """Write P(ALT) of query q at all sites; return whether all are finite.

    gate_G are the query's weights of the heads, query_W is its part of the correction network's first layer.
    """
    first_FW, second_WW, second_W, last_W, last_bias = weights
    weight_BGP, first_BWP, frequency_BP = sites
    x_FP, first_WP, second_WP, mixed_P, total_P = memory
    n_heads, n_sites = weight_BGP.shape[1], out_QU.shape[1]
    one, scale = np.float32(1), np.float32(LOGIT_SCALE)
    share, least = np.float32(FREQUENCY_SHARE), np.float32(MIN_PROBABILITY)
    check = np.float32(0)
    # loops over whole parts: at the end of a shorter loop, the compiler may round otherwise
    for b in range(len(weight_BGP)):
        start = b * SITES_PER_PART
        n = min(SITES_PER_PART, n_sites - start)
        pool_labels(labels, attention_HG, start, start + n, x_FP[:n_heads])
        mixed_P[:] = np.float32(0)
        total_P[:] = np.float32(MIN_TOTAL)
        for g in range(n_heads):
            gate = gate_G[g]
            for u in range(SITES_PER_PART):
                p = x_FP[g, u]
                p = min(max(p + share * (frequency_BP[b, u] - p), least), one - least)
                weight = gate * weight_BGP[b, g, u]
                mixed_P[u] += weight * p
                total_P[u] += weight
                x_FP[g, u] = fast_log(p / (one - p)) * scale
        for u in range(SITES_PER_PART):
            p = min(max(mixed_P[u] / total_P[u], least), one - least)
            logit = fast_log(p / (one - p))
            mixed_P[u] = logit + last_bias
            x_FP[n_heads, u] = logit * scale
        for w in range(len(query_W)):
            for u in range(SITES_PER_PART):
                first_WP[w, u] = query_W[w] + first_BWP[b, w, u]
        add_products(first_FW, x_FP, SITES_PER_PART, first_WP, True)
        dense_relu(second_WW, second_W, first_WP, SITES_PER_PART, second_WP)
        for w in range(len(query_W)):
            weight = last_W[w]
            for u in range(SITES_PER_PART):
                mixed_P[u] += weight * second_WP[w, u]
        for u in range(n):
            check += mixed_P[u] * np.float32(0)
        for u in range(SITES_PER_PART):
            odds = fast_exp(-abs(mixed_P[u]))  # of the less likely allele
            mixed_P[u] = (one if mixed_P[u] > 0 else odds) / (one + odds)
        for u in range(n):
            out_QU[q, start + u] = mixed_P[u]
    return math.isfinite(check)
