"""Comparison of a query with inducing points, compiled; see `predictors.spin.matching` for what it computes.

Axes: D columns, V K-mers of a column, R K-mers that queries have (pairs of a column and a K-mer), H inducing
points, G heads, F features of runs. H is padded to a multiple of LANES.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, store, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.spin.settings import DISTANCE_OFFSET, FREQUENCY_OFFSET
from spinimpute.runtime.fast_math import fast_exp, fast_log
from spinimpute.runtime.kernels import kernel

MIN_WEIGHT = 1e-18  # smaller weights of columns are set to 0, because arithmetic on denormal squares is slow


class PointKeys(NamedTuple):
    """What the attention to a block's inducing points needs of the points and columns, float32."""

    likelihood_RH: np.ndarray  # log-likelihood of the K-mers that queries have, given an inducing point
    information_R: np.ndarray  # minus the log of the K-mer's frequency in the panel
    row_DV: np.ndarray  # row of each K-mer, int64; -1 if no query can have the K-mer
    weight_GD: np.ndarray  # weights of the columns in the scores of each head
    step_D: np.ndarray  # see `matching.run_steps`
    valid_D: np.ndarray  # share of the column's places that have a site
    log_mass_H: np.ndarray


class MatchMemory(NamedTuple):
    """Arrays that `match_query` overwrites, float32."""

    match_DH: np.ndarray
    run_weight_DH: np.ndarray
    cumulative_H: np.ndarray
    sum_H: np.ndarray
    information_H: np.ndarray
    information_D: np.ndarray


def match_memory(n_columns: int, n_padded: int) -> MatchMemory:
    """Return memory for `match_query`; n_padded is H."""
    shapes = ((n_columns, n_padded), (n_columns, n_padded), n_padded, n_padded, n_padded, n_columns)
    return MatchMemory(*(np.zeros(shape, np.float32) for shape in shapes))


@kernel(fast=True)
def mark_kmers(kmer_QD, missing_QD, needed_DV):  # type: ignore[no-untyped-def]
    """Set needed_DV to 1 for all K-mers that the queries may have, see `match_query`."""
    n_kmers = needed_DV.shape[1]
    for q in range(len(kmer_QD)):
        for d in range(len(needed_DV)):
            missing = missing_QD[q, d]
            if missing == n_kmers - 1:
                continue
            subset = missing
            while True:  # each subset of the missing bits, down to the empty one, is one possible K-mer
                needed_DV[d, kmer_QD[q, d] | subset] = 1
                if subset == 0:
                    break
                subset = (subset - 1) & missing


@kernel(fast=True)
def match_query(q, kmer_QD, missing_QD, keys, min_tolerance, memory, score_GH, runs_FH):  # type: ignore[no-untyped-def]
    """Fill score_GH and runs_FH for query q, see `predictors.spin.matching.Match`.

    kmer_QD has 0 bits for missing calls; missing_QD has a 1 bit for each missing call.
    """
    likelihood_RH, information_R, row_DV, weight_GD, step_D, valid_D, _ = keys
    match_DH, run_weight_DH, cumulative_H, sum_H, information_H, information_D = memory
    n_columns, n_points = match_DH.shape
    tolerances, middle = len(runs_FH) // 4, n_columns // 2
    one, zero = np.float32(1), np.float32(0)
    for d in range(n_columns):
        information_D[d] = valid_D[d] * _fill_column(
            kmer_QD[q, d], missing_QD[q, d], d, likelihood_RH, information_R, row_DV, match_DH
        )
    for g in range(len(weight_GD)):
        _sum_rows(match_DH, weight_GD, g, score_GH)
    for side in range(2):
        first, stop = (middle, n_columns) if side else (0, middle + 1)
        cumulative_H[:] = zero
        for i in range(stop - first):
            d = middle + (i if side else -i)
            scaled = min_tolerance * valid_D[d]
            for h in range(n_points):
                cumulative_H[h] += scaled * match_DH[d, h]
                run_weight_DH[d, h] = fast_exp(min(cumulative_H[h], zero))
        for t in range(tolerances):
            _sum_runs(run_weight_DH, first, stop, step_D, information_D, sum_H, information_H)
            length, information = 2 * side * tolerances + t, (2 * side + 1) * tolerances + t
            for h in range(n_points):
                runs_FH[length, h] = fast_log(sum_H[h] + np.float32(DISTANCE_OFFSET)) * np.float32(0.25) + one
                runs_FH[information, h] = fast_log(one + max(information_H[h], zero)) * np.float32(0.5)


@kernel(fast=True)
def _sum_rows(x_DH, weight_GD, g, sum_GH):  # type: ignore[no-untyped-def]
    """Write the sum of all rows of x, weighted by weight_GD[g], to sum_GH[g]."""
    row = sum_GH.shape[1] // LANES  # `load` counts in vectors of LANES numbers
    for column in range(row):
        total = all_lanes(np.float32(0))
        for d in range(len(x_DH)):
            total += load(x_DH, d * row + column) * weight_GD[g, d]
        store(sum_GH, g * row + column, total)


@kernel(fast=True)
def _sum_runs(run_weight_DH, first, stop, step_D, query_information_D, length_H, information_H):  # type: ignore[no-untyped-def]
    """Write a run's sums over the columns [first, stop) to length_H and information_H; square the weights.

    Squaring gives the weights of the next tolerance, which is twice as large.
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
def _fill_column(kmer, missing, d, likelihood_RH, information_R, row_DV, match_DH):  # type: ignore[no-untyped-def]
    """Fill row d of match_DH with the log-likelihoods of a K-mer. Return the K-mer's information.

    If calls are missing, the likelihoods and frequencies of all possible K-mers are summed.
    """
    n_points, n_kmers = match_DH.shape[1], row_DV.shape[1]
    if missing == 0:
        row = row_DV[d, kmer]
        for h in range(n_points):
            match_DH[d, h] = likelihood_RH[row, h]
        return information_R[row]
    share = np.float32(0)
    for h in range(n_points):
        match_DH[d, h] = share
    if missing == n_kmers - 1:  # all calls are missing: the likelihoods of all K-mers sum to 1, its log is 0
        return -fast_log(np.float32(1 + FREQUENCY_OFFSET * n_kmers))
    subset = missing
    while True:  # see `mark_kmers`
        row = row_DV[d, kmer | subset]
        share += fast_exp(-information_R[row])
        for h in range(n_points):
            match_DH[d, h] += fast_exp(likelihood_RH[row, h])
        if subset == 0:
            break
        subset = (subset - 1) & missing
    for h in range(n_points):
        match_DH[d, h] = fast_log(match_DH[d, h])
    return -fast_log(share)
