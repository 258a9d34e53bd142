"""The compiled kernel of `matching.compiled_match`; see `matching` for what it computes.

It processes one query at a time, so it needs no (D, Q, H) array. This module does not import torch, so the
kernel can be compiled together with those of commands that do not need torch.

Axes: D columns, V K-mers of a column, Q queries, H inducing points, G heads, F features of runs.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, store, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

DISTANCE_OFFSET = 1e-4  # cM, added to distances before taking logs
MIN_WEIGHT = 1e-18  # smaller weights of columns are set to 0, because arithmetic on denormal squares is slow


@kernel(fast=True)
def fill_match(  # type: ignore[no-untyped-def]
    kmer_QD, missing_QD, likelihood_DVH, information_DV, weight_GD, step_D, valid_D, min_tolerance,
    score_GQH, runs_FQH,
):  # fmt: skip
    """Fill score_GQH and runs_FQH, see `matching.Match`.

    kmer_QD has 0 bits for missing calls; missing_QD has a 1 bit for each missing call.
    """
    n_queries, n_columns = kmer_QD.shape
    n_heads, n_points = len(weight_GD), likelihood_DVH.shape[2]
    tolerances, middle = len(runs_FQH) // 4, n_columns // 2
    n_padded = -(-n_points // LANES) * LANES
    match_DH = np.zeros((n_columns, n_padded), np.float32)
    run_weight_DH = np.zeros((n_columns, n_padded), np.float32)
    cumulative_H = np.empty(n_points, np.float32)
    sum_H, information_H = np.empty(n_padded, np.float32), np.empty(n_padded, np.float32)
    query_information_D = np.empty(n_columns, np.float32)
    one, zero = np.float32(1), np.float32(0)
    for q in range(n_queries):
        for d in range(n_columns):
            query_information_D[d] = valid_D[d] * _fill_column(
                kmer_QD[q, d], missing_QD[q, d], d, n_points, likelihood_DVH, information_DV, match_DH
            )
        for g in range(n_heads):
            _sum_rows(match_DH, weight_GD, g, sum_H)
            score_GQH[g, q] = sum_H[:n_points]
        for side in range(2):
            first, stop = (middle, n_columns) if side else (0, middle + 1)
            cumulative_H[:] = zero
            for i in range(stop - first):
                d = middle + (i if side else -i)
                scaled = min_tolerance * valid_D[d]
                for h in range(n_points):
                    cumulative_H[h] += scaled * match_DH[d, h]
                    run_weight_DH[d, h] = fast_exp(cumulative_H[h])
            for t in range(tolerances):
                _sum_runs(run_weight_DH, first, stop, step_D, query_information_D, sum_H, information_H)
                length, information = 2 * side * tolerances + t, (2 * side + 1) * tolerances + t
                for h in range(n_points):
                    runs_FQH[length, q, h] = (
                        fast_log(sum_H[h] + np.float32(DISTANCE_OFFSET)) * np.float32(0.25) + one
                    )
                    runs_FQH[information, q, h] = fast_log(one + max(information_H[h], zero)) * np.float32(
                        0.5
                    )


@kernel(fast=True)
def _sum_rows(x_DH, weight_GD, g, sum_H):  # type: ignore[no-untyped-def]
    """Write the sum of all rows of x, weighted by weight_GD[g], to sum_H; H is a multiple of LANES."""
    row = len(sum_H) // LANES  # `load` counts in vectors of LANES numbers
    for column in range(row):
        total = all_lanes(np.float32(0))
        for d in range(len(x_DH)):
            total += load(x_DH, d * row + column) * weight_GD[g, d]
        store(sum_H, column * LANES, total)


@kernel(fast=True)
def _sum_runs(run_weight_DH, first, stop, step_D, query_information_D, length_H, information_H):  # type: ignore[no-untyped-def]
    """Write a run's sums over the columns [first, stop) to length_H and information_H; square the weights.

    Squaring gives the weights of the next tolerance, which is twice as large. H is a multiple of LANES.
    """
    row = len(length_H) // LANES
    for column in range(row):
        length, information = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        for d in range(first, stop):
            weight = load(run_weight_DH, d * row + column)
            weight = where_positive(weight + np.float32(-MIN_WEIGHT), weight)
            length += weight * step_D[d]
            information += weight * query_information_D[d]
            store(run_weight_DH, d * row + column, weight * weight)
        store(length_H, column * LANES, length)
        store(information_H, column * LANES, information)


@kernel(fast=True)
def _fill_column(kmer, missing, d, n_points, likelihood_DVH, information_DV, match_DH):  # type: ignore[no-untyped-def]
    """Fill row d of match_DH with the log-likelihoods of a K-mer. Return the K-mer's information.

    If calls are missing, the likelihoods and frequencies of all possible K-mers are summed.
    """
    if missing == 0:
        for h in range(n_points):
            match_DH[d, h] = likelihood_DVH[d, kmer, h]
        return information_DV[d, kmer]
    n_kmers = likelihood_DVH.shape[1]
    share = np.float32(0)
    match_DH[d, :n_points] = share
    if missing == n_kmers - 1:  # all calls are missing: the likelihoods of all K-mers sum to 1, its log is 0
        for number in range(n_kmers):
            share += fast_exp(-information_DV[d, number])
        return -fast_log(share)
    subset = missing
    while True:  # each subset of the missing bits, down to the empty one, is one possible K-mer
        number = kmer | subset
        share += fast_exp(-information_DV[d, number])
        for h in range(n_points):
            match_DH[d, h] += fast_exp(likelihood_DVH[d, number, h])
        if subset == 0:
            break
        subset = (subset - 1) & missing
    for h in range(n_points):
        match_DH[d, h] = fast_log(match_DH[d, h])
    return -fast_log(share)
