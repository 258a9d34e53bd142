"""The decoder of haplotype attention on the CPU: `HaplotypeAttention.decode` and `decode_absent`, compiled.

An *entry* is a query at a site. For most entries, no class member and no sibling has the minor allele; a
linear map (`decode_absent`) predicts these entries. All other entries go through the decoder network.

Axes: Q queries, G gaps of a block, E ends of a gap, U sites of a block, X entries with a minor allele, F
features, H hidden units, P entries of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import SMALLEST
from spinimpute.predictors.haplotype_attention.agreement import NO_AGREEMENT
from spinimpute.predictors.haplotype_attention.copying import CarriedEntries
from spinimpute.predictors.haplotype_attention.layers import dense_relu, padded, transposed
from spinimpute.predictors.haplotype_attention.settings import ABSENT_LOGIT, EPSILON, SCALE, SPREAD_FEATURES
from spinimpute.runtime.fast_math import fast_log
from spinimpute.runtime.kernels import kernel

ENTRIES_PER_BATCH = 128  # entries that go through the network together: their arrays fit the L1 cache
PROBABILITIES = 4  # the first fields of `network.Copied` are this many probabilities


class DecoderWeights(NamedTuple):
    """The weights of a decoder, float32, padded for `layers`.

    absent_spread_E, absent_site_F and absent_bias are the linear map for entries without a minor allele.
    """

    first_FH: np.ndarray
    first_H: np.ndarray
    second_HH: np.ndarray
    second_H: np.ndarray
    last_H: np.ndarray
    last_bias: np.float32
    absent_spread_E: np.ndarray
    absent_site_F: np.ndarray
    absent_bias: np.float32

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> DecoderWeights:
        """Return the decoder's part of the weights of `HaplotypeAttention`."""
        absent = weights["absent.weight"][0]
        return cls(
            transposed(weights["decoder.0.weight"]),
            padded(weights["decoder.0.bias"]),
            transposed(weights["decoder.2.weight"]),
            padded(weights["decoder.2.bias"]),
            padded(weights["decoder.4.weight"][0]),
            np.float32(weights["decoder.4.bias"][0]),
            absent[:SPREAD_FEATURES].copy(),
            absent[SPREAD_FEATURES:].copy(),
            np.float32(ABSENT_LOGIT) + np.float32(weights["absent.bias"][0]),
        )


class SiteFeatures(NamedTuple):
    """The description of a block's sites for the decoder."""

    gap_U: np.ndarray  # int64, index in the block of a site's gap
    site_UF: np.ndarray  # float32, see `site_features`
    flip_U: np.ndarray  # bool, whether ALT is the major allele
    frequency_U: np.ndarray  # float64, of ALT


@kernel(fast=True)
def _fill_absent(weights, spread_QGE, agreed_QG, sites, out_UQ):  # type: ignore[no-untyped-def]
    """Write P(ALT) to all entries as if no class member had the minor allele.

    P(minor) = 1 / (1 + a_gq b_u): the linear map is a sum of a part for the query's gap and a part for the
    site, so its exponential is a product.
    """
    spread_E, site_F, bias = weights.absent_spread_E, weights.absent_site_F, weights.absent_bias
    gap_U, site_UF, flip_U, frequency_U = sites
    n_queries, n_gaps, _ = spread_QGE.shape
    one = np.float32(1)
    odds_GQ = np.empty((n_gaps, n_queries), np.float32)
    for q in range(n_queries):
        for g in range(n_gaps):
            total = bias
            for e in range(len(spread_E)):
                total += spread_E[e] * spread_QGE[q, g, e]
            odds_GQ[g, q] = np.exp(-total) if agreed_QG[q, g] == NO_AGREEMENT else np.inf
    for u in range(len(gap_U)):
        g = gap_U[u]
        if frequency_U[u] == 0 or frequency_U[u] == 1:  # the panel has one allele only
            out_UQ[u] = np.float32(frequency_U[u])
            continue
        total = np.float32(0)
        for f in range(len(site_F)):
            total += site_F[f] * site_UF[u, f]
        odds = max(np.exp(-total), SMALLEST)  # avoids 0 times infinity
        if flip_U[u]:
            for q in range(n_queries):
                out_UQ[u, q] = one - one / (one + odds * odds_GQ[g, q])
        else:
            for q in range(n_queries):
                out_UQ[u, q] = one / (one + odds * odds_GQ[g, q])


@kernel(fast=True)
def _decode_entries(weights, entries, spread_QGE, sites, out_UQ):  # type: ignore[no-untyped-def]
    """Write P(ALT) of the entries with a minor allele."""
    first_FH, first_H, second_HH, second_H = (
        weights.first_FH,
        weights.first_H,
        weights.second_HH,
        weights.second_H,
    )
    last_H, last_bias = weights.last_H, weights.last_bias
    site_X, query_X, pooled_XF = entries
    gap_U, site_UF, flip_U, _ = sites
    n_copied, n_site = pooled_XF.shape[1], site_UF.shape[1]
    one, scale, epsilon = np.float32(1), np.float32(SCALE), np.float32(EPSILON)
    x_FP = np.zeros((first_FH.shape[0], ENTRIES_PER_BATCH), np.float32)
    first_HP = np.empty((len(first_H), ENTRIES_PER_BATCH), np.float32)
    second_HP = np.empty((len(second_H), ENTRIES_PER_BATCH), np.float32)
    logit_P = np.empty(ENTRIES_PER_BATCH, np.float32)
    for start in range(0, len(site_X), ENTRIES_PER_BATCH):
        n = min(ENTRIES_PER_BATCH, len(site_X) - start)
        for p in range(n):
            u, q = site_X[start + p], query_X[start + p]
            g = gap_U[u]
            for f in range(n_copied):
                x_FP[f, p] = pooled_XF[start + p, f]
            for e in range(SPREAD_FEATURES):
                x_FP[n_copied + e, p] = spread_QGE[q, g, e]
            for f in range(n_site):
                x_FP[n_copied + SPREAD_FEATURES + f, p] = site_UF[u, f]
        for f in range(PROBABILITIES):
            for p in range(n):
                probability = min(max(x_FP[f, p], epsilon), one - epsilon)
                x_FP[f, p] = (fast_log(probability) - fast_log(one - probability)) * scale
        for p in range(n):
            logit_P[p] = x_FP[0, p] / scale
            x_FP[PROBABILITIES, p] *= scale
            x_FP[PROBABILITIES + 1, p] = fast_log(one + x_FP[PROBABILITIES + 1, p]) * scale
        dense_relu(first_FH, first_H, x_FP, n, first_HP)
        dense_relu(second_HH, second_H, first_HP, n, second_HP)
        logit_P[:n] += last_bias
        for h in range(len(last_H)):
            for p in range(n):
                logit_P[p] += last_H[h] * second_HP[h, p]
        for p in range(n):
            probability = one / (one + np.exp(-logit_P[p]))
            u = site_X[start + p]
            out_UQ[u, query_X[start + p]] = one - probability if flip_U[u] else probability


def decode(
    weights: DecoderWeights,
    entries: CarriedEntries,
    spread_QGE: np.ndarray,
    agreed_QG: np.ndarray,
    sites: SiteFeatures,
) -> np.ndarray:
    """Return P(ALT) at a block's sites, float32 (U, Q).

    spread_QGE is the entropy of the weights of classes. In gaps where the candidates agree
    (`agreed_patterns`), minor alleles get probability 0 here; `fill_agreed` writes the candidates' alleles.
    """
    out_UQ = np.empty((len(sites.gap_U), len(spread_QGE)), np.float32)
    _fill_absent(weights, spread_QGE, agreed_QG, sites, out_UQ)
    _decode_entries(weights, entries, spread_QGE, sites, out_UQ)
    return out_UQ
