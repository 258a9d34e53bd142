"""Attention of a query to inducing points, compiled; see `GenotypeSPIN.attend` and `LabelDecoder.read`.

Axes: H inducing points, padded to a multiple of LANES, G heads, F features of a pair of the query and a
point, W width of the pair network, C summaries of a query's attention (two for each head), L inputs and O
outputs of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import all_lanes, lane, load, maximum, sum_lanes
from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.haplotype_attention.layers import dense, dense_relu, padded, transposed
from spinimpute.predictors.spin.settings import ENTROPY_OFFSET, MIN_LOG_MASS, MIN_SCORE, POINT_FEATURES
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel


class PairLayers(NamedTuple):
    """Weights of the pair network, padded for `layers`, and priors of the heads, float32."""

    first_FW: np.ndarray
    first_W: np.ndarray
    second_WG: np.ndarray
    second_G: np.ndarray
    prior_G: np.ndarray  # of all heads: those that sum over columns, then those of the pair network

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> PairLayers:
        """Return them from the arrays of a `GenotypeSPIN`."""
        second = weights["pair.2.weight"]
        return cls(
            transposed(weights["pair.0.weight"]),
            padded(weights["pair.0.bias"]),
            transposed(np.pad(second, ((0, 0), (0, -second.shape[1] % 8)))),
            padded(weights["pair.2.bias"]),
            np.concatenate([weights["prior"], np.ones(len(second), np.float32)]),
        )


class QueryWeights(NamedTuple):
    """Weights of the parts of the decoder that depend on the query alone, float32."""

    gate_first_CO: np.ndarray
    gate_first_O: np.ndarray
    gate_second_LG: np.ndarray
    gate_second_G: np.ndarray
    correction_CW: np.ndarray  # padded for `layers`

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> QueryWeights:
        """Return them from the arrays of a `GenotypeSPIN`."""
        first, second = (np.ascontiguousarray(weights[f"decoder.gate_query.{i}.weight"].T) for i in (0, 2))
        bias = (weights[f"decoder.gate_query.{i}.bias"] for i in (0, 2))
        return cls(first, next(bias), second, next(bias), transposed(weights["decoder.from_query.weight"]))


class AttentionMemory(NamedTuple):
    """Arrays that `attend_query` overwrites, float32."""

    x_FH: np.ndarray
    hidden_WH: np.ndarray
    pair_GH: np.ndarray
    logit_GH: np.ndarray
    attention_HG: np.ndarray
    summary_C: np.ndarray
    gate_L: np.ndarray
    gate_G: np.ndarray
    correction_W: np.ndarray


def attention_memory(pair: PairLayers, query: QueryWeights, n_padded: int) -> AttentionMemory:
    """Return memory for `attend_query`; n_padded is H."""
    n_heads = len(pair.prior_G)
    shapes = (
        (len(pair.first_FW), n_padded), (len(pair.first_W), n_padded), (len(pair.second_G), n_padded),
        (n_heads, n_padded), (n_padded, -(-n_heads // LANES) * LANES), (2 * n_heads,),
        (len(query.gate_first_O),), (n_heads,), (query.correction_CW.shape[1],),
    )  # fmt: skip
    return AttentionMemory(*(np.zeros(shape, np.float32) for shape in shapes))


@kernel(fast=True)
def gelu(x_L):  # type: ignore[no-untyped-def]
    """Replace each number x by x times the probability that a normal number is below x."""
    for i in range(len(x_L)):
        x_L[i] *= np.float32(0.5) * (np.float32(1) + np.float32(math.erf(x_L[i] * 0.7071067811865476)))


@kernel(fast=True)
def softmax(x_L):  # type: ignore[no-untyped-def]
    """Replace numbers by their softmax."""
    largest = x_L[0]
    for i in range(len(x_L)):
        largest = max(largest, x_L[i])
    total = np.float32(0)
    for i in range(len(x_L)):
        x_L[i] = fast_exp(x_L[i] - largest)
        total += x_L[i]
    for i in range(len(x_L)):
        x_L[i] /= total


@kernel(fast=True)
def largest_of_row(x_GH, g, n):  # type: ignore[no-untyped-def]
    """Return the largest of the first n numbers of row g; overwrite the other numbers."""
    row = x_GH.shape[1] // LANES
    for h in range(n, x_GH.shape[1]):
        x_GH[g, h] = x_GH[g, 0]
    largest = load(x_GH, g * row)
    for column in range(1, row):
        largest = maximum(load(x_GH, g * row + column), largest)
    result = lane(largest, 0)
    for i in range(1, LANES):
        result = max(result, lane(largest, i))
    return result


@kernel(fast=True)
def sum_of_row(x_GH, g):  # type: ignore[no-untyped-def]
    """Return the sum of row g."""
    row = x_GH.shape[1] // LANES
    lanes_sum = all_lanes(np.float32(0))
    for column in range(row):
        lanes_sum += load(x_GH, g * row + column)
    return sum_lanes(lanes_sum)


@kernel(fast=True)
def attend_query(pair, query, log_mass_H, n_points, size_feature, points_feature, n_sums, memory):  # type: ignore[no-untyped-def]
    """Compute the attention of a query, its summary, its gates and its part of the correction network.

    Return whether all logits and gates are finite.

    The first 4 T rows of memory.x_FH are the runs of the match, and the first n_sums rows of memory.logit_GH
    its scores; points from n_points on are padding.
    """
    first_FW, first_W, second_WG, second_G, prior_G = pair
    gate_first_CO, gate_first_O, gate_second_LG, gate_second_G, correction_CW = query
    x_FH, hidden_WH, pair_GH, logit_GH, attention_HG, summary_C, gate_L, gate_G, correction_W = memory
    n_heads, check = len(prior_G), np.float32(0)
    eighth, third = np.float32(1 / 8), np.float32(1 / 3)
    n_padded = logit_GH.shape[1]
    row = len(x_FH) - n_sums - POINT_FEATURES
    for g in range(n_sums):
        best = largest_of_row(logit_GH, g, n_points)
        for h in range(n_points):
            x_FH[row + g, h] = max(logit_GH[g, h] - best, np.float32(MIN_SCORE)) * eighth
    row += n_sums
    for h in range(n_points):
        x_FH[row, h] = max(log_mass_H[h], np.float32(MIN_LOG_MASS)) * third
        x_FH[row + 1, h] = size_feature
        x_FH[row + 2, h] = points_feature
    dense_relu(first_FW, first_W, x_FH, n_points, hidden_WH)
    dense(second_WG, second_G, hidden_WH, n_points, pair_GH)
    for g in range(n_sums, n_heads):
        for h in range(n_points):
            logit_GH[g, h] = pair_GH[g - n_sums, h]
    for g in range(n_heads):
        prior = prior_G[g]
        for h in range(n_points):
            logit_GH[g, h] += prior * log_mass_H[h]
        best = largest_of_row(logit_GH, g, n_points)
        check += sum_of_row(logit_GH, g) * np.float32(0)
        for h in range(n_points):
            logit_GH[g, h] = fast_exp(min(logit_GH[g, h] - best, np.float32(0)))
        for h in range(n_points, n_padded):
            logit_GH[g, h] = np.float32(0)
        scale = np.float32(1) / sum_of_row(logit_GH, g)
        for h in range(n_padded):
            weight = logit_GH[g, h] * scale
            logit_GH[g, h] = weight
            pair_GH[0, h] = weight * fast_log(weight + np.float32(ENTROPY_OFFSET))
        for h in range(n_points):
            attention_HG[h, g] = logit_GH[g, h]
        summary_C[g] = -sum_of_row(pair_GH, 0) * third
        summary_C[n_heads + g] = scale  # the largest weight: exp(0) / total
    gate_L[:] = gate_first_O
    gate_G[:] = gate_second_G
    correction_W[:] = np.float32(0)
    for c in range(len(summary_C)):
        summary = summary_C[c]
        for o in range(len(gate_L)):
            gate_L[o] += summary * gate_first_CO[c, o]
        for w in range(len(correction_W)):
            correction_W[w] += summary * correction_CW[c, w]
    gelu(gate_L)
    for o in range(len(gate_L)):
        for g in range(n_heads):
            gate_G[g] += gate_L[o] * gate_second_LG[o, g]
    for g in range(n_heads):
        check += gate_G[g] * np.float32(0)
    softmax(gate_G)
    return math.isfinite(check)
