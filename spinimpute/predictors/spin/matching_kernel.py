"""How queries match inducing points, compiled: what `matching.match` computes, without its (D, Q, H) tensor.

Without torch, so that it can be compiled beside the kernels of other commands.

Axes: D columns, V K-mers, Q queries, H inducing points, G heads, F features of runs.
"""

from __future__ import annotations

import numpy as np

from spinimpute.fast_math import fast_exp, fast_log
from spinimpute.kernels import kernel

NEAREST = 1e-4  # cM: added to distances under a logarithm


@kernel(fast=True)
def fill_match(  # type: ignore[no-untyped-def]
    kmer_QD, missing_QD, likelihood_DVH, information_DV, weight_GD, step_D, valid_D, least,
    score_GQH, runs_FQH,
):  # fmt: skip
    """Fill in score_GQH and runs_FQH, see `matching.Match`; missing_QD: 1 at calls that are missing."""
    n_queries, n_columns = kmer_QD.shape
    n_heads, n_points = len(weight_GD), likelihood_DVH.shape[2]
    tolerances = len(runs_FQH) // 4
    reach_H, open_H = np.empty(n_points, np.float32), np.empty(n_points, np.float32)
    match_H = np.empty(n_points, np.float32)
    one, zero = np.float32(1), np.float32(0)
    for q in range(n_queries):
        score_GQH[:, q] = zero
        runs_FQH[:, q] = zero
        for side in range(2):
            of_length, of_gained = 2 * side * tolerances, (2 * side + 1) * tolerances
            reach_H[:] = zero
            for i in range(n_columns // 2 + 1 if side == 0 else n_columns - n_columns // 2):
                d = n_columns // 2 + (i if side else -i)
                information = _matching(
                    kmer_QD[q, d],
                    missing_QD[q, d],
                    likelihood_DVH[d],
                    information_DV[d],
                    match_H,
                )
                if side == 0 or i > 0:  # the middle column belongs to both sides and is scored once
                    for g in range(n_heads):
                        weight, score_H = weight_GD[g, d], score_GQH[g, q]
                        for h in range(n_points):
                            score_H[h] += weight * match_H[h]
                step, gain = step_D[d], information * valid_D[d]
                scaled = least * valid_D[d]
                for h in range(n_points):
                    reach_H[h] += scaled * match_H[h]
                    open_H[h] = fast_exp(reach_H[h])
                for t in range(tolerances):
                    length_H, gained_H = runs_FQH[of_length + t, q], runs_FQH[of_gained + t, q]
                    for h in range(n_points):
                        length_H[h] += step * open_H[h]
                        gained_H[h] += gain * open_H[h]
                        open_H[h] *= open_H[h]
            for t in range(tolerances):
                length_H, gained_H = runs_FQH[of_length + t, q], runs_FQH[of_gained + t, q]
                for h in range(n_points):
                    length_H[h] = fast_log(length_H[h] + np.float32(NEAREST)) * np.float32(0.25) + one
                    gained_H[h] = fast_log(one + max(gained_H[h], zero)) * np.float32(0.5)


@kernel(fast=True)
def _matching(kmer, missing, likelihood_VH, information_V, match_H):  # type: ignore[no-untyped-def]
    """Fill in how a K-mer matches; returns its information. Missing bits may be any: likelihoods add up."""
    if missing == 0:
        match_H[:] = likelihood_VH[kmer]
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
