"""How queries match inducing points, compiled: what `matching.match` computes, without its (D, Q, H) tensor.

Without torch, so that it can be compiled beside the kernels of other commands.

Axes: D columns, V K-mers, Q queries, H inducing points, G heads, F features of runs.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, store, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

NEAREST = 1e-4  # cM: added to distances under a logarithm
NEGLIGIBLE = 1e-18  # what is open by less is closed: squares that underflow would be slow


@kernel(fast=True)
def fill_match(  # type: ignore[no-untyped-def]
    kmer_QD, missing_QD, likelihood_DVH, information_DV, weight_GD, step_D, valid_D, least,
    score_GQH, runs_FQH,
):  # fmt: skip
    """Fill in score_GQH and runs_FQH, see `matching.Match`; missing_QD: 1 at calls that are missing."""
    n_queries, n_columns = kmer_QD.shape
    n_heads, n_points = len(weight_GD), likelihood_DVH.shape[2]
    tolerances, middle = len(runs_FQH) // 4, n_columns // 2
    n_padded = -(-n_points // LANES) * LANES
    match_DH, open_DH = (
        np.zeros((n_columns, n_padded), np.float32),
        np.zeros((n_columns, n_padded), np.float32),
    )
    reach_H, sum_H, other_H = (
        np.empty(n_points, np.float32),
        np.empty(n_padded, np.float32),
        np.empty(n_padded, np.float32),
    )
    gain_D = np.empty(n_columns, np.float32)
    one, zero = np.float32(1), np.float32(0)
    for q in range(n_queries):
        for d in range(n_columns):
            gain_D[d] = valid_D[d] * _matching(
                kmer_QD[q, d],
                missing_QD[q, d],
                likelihood_DVH[d],
                information_DV[d],
                match_DH[d, :n_points],
            )
        for g in range(n_heads):
            _add_columns(match_DH, 0, n_columns, weight_GD[g], sum_H)
            score_GQH[g, q] = sum_H[:n_points]
        for side in range(2):
            first, stop = (middle, n_columns) if side else (0, middle + 1)
            reach_H[:] = zero
            for i in range(stop - first):
                d = middle + (i if side else -i)
                scaled = least * valid_D[d]
                open_H, match_H = open_DH[d], match_DH[d]
                for h in range(n_points):
                    reach_H[h] += scaled * match_H[h]
                    open_H[h] = fast_exp(reach_H[h])
            for t in range(tolerances):
                _add_open(open_DH, first, stop, step_D, gain_D, sum_H, other_H)
                length_H = runs_FQH[2 * side * tolerances + t, q]
                gained_H = runs_FQH[(2 * side + 1) * tolerances + t, q]
                for h in range(n_points):
                    length_H[h] = fast_log(sum_H[h] + np.float32(NEAREST)) * np.float32(0.25) + one
                    gained_H[h] = fast_log(one + max(other_H[h], zero)) * np.float32(0.5)


@kernel(fast=True)
def _add_columns(x_DH, first, stop, weight_D, sum_H):  # type: ignore[no-untyped-def]
    """Weighted sums of rows; H is a multiple of LANES."""
    for h in range(0, len(sum_H), LANES):
        total = all_lanes(np.float32(0))
        for d in range(first, stop):
            total += load(x_DH[d], h) * weight_D[d]
        store(sum_H, h, total)


@kernel(fast=True)
def _add_open(open_DH, first, stop, step_D, gain_D, length_H, gained_H):  # type: ignore[no-untyped-def]
    """Two weighted sums of rows, which are then squared; H is a multiple of LANES."""
    for h in range(0, len(length_H), LANES):
        length, gained = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        for d in range(first, stop):
            still = load(open_DH[d], h)
            still = where_positive(still + np.float32(-NEGLIGIBLE), still)
            length += still * step_D[d]
            gained += still * gain_D[d]
            store(open_DH[d], h, still * still)
        store(length_H, h, length)
        store(gained_H, h, gained)


@kernel(fast=True)
def _matching(kmer, missing, likelihood_VH, information_V, match_H):  # type: ignore[no-untyped-def]
    """Fill in how a K-mer matches; returns its information. Missing bits may be any: likelihoods add up."""
    if missing == 0:
        for h in range(len(match_H)):
            match_H[h] = likelihood_VH[kmer, h]
        return information_V[kmer]
    share = np.float32(0)
    match_H[:] = share
    if missing == len(likelihood_VH) - 1:  # any K-mer: its probabilities add up to 1
        for number in range(len(likelihood_VH)):
            share += fast_exp(-information_V[number])
        return -fast_log(share)
    part = missing
    while True:  # all sets of the missing bits, down to none
        number = kmer | part
        share += fast_exp(-information_V[number])
        likelihood_H = likelihood_VH[number]
        for h in range(len(match_H)):
            match_H[h] += fast_exp(likelihood_H[h])
        if part == 0:
            break
        part = (part - 1) & missing
    for h in range(len(match_H)):
        match_H[h] = fast_log(match_H[h])
    return -fast_log(share)
