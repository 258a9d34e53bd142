"""Posteriors of copying where a query's own candidates, of all blocks, are the states.

With a hundred thousand haplotypes nearly all of the probability lies on the few thousand that match a query
somewhere in the chunk, and going through all of them takes most of the time. A query still leaves a haplotype
for any of the panel: those that are no states explain none of its calls. Each query has states of its own, so
that no result depends on which queries are imputed together.

A query's candidates in a block are those whose matches are longest there. After a wrong call at a typed site
these may be other haplotypes than the one that it copied before and copies on. Where little of a query's
probability lies on a block's candidates, its likeliest states join them.

Forward and backward values are kept at the ends of each block. Between them they are computed again for the
few states that may have a posterior worth keeping: how large it can be at most, if the state agrees with all
that is known between, follows from the values at both ends.

Axes: S typed places of a chunk, N panel haplotypes, K states of a query, Q queries, B blocks of gaps, I
spans, C candidates, X states that may be likely in a block, P places of a block, W 64-bit words, 2 alleles of
a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidates import Candidates, in_blocks
from spinimpute.hmm.parameters import LANES, ROUNDING
from spinimpute.hmm.steps import step_list
from spinimpute.runtime.kernels import kernel


def posteriors_of_own_states(
    panel_NW: np.ndarray,
    emission_QS2: np.ndarray,
    jump_S: np.ndarray,
    candidates: Candidates,
    block_first_B: np.ndarray,
    block_last_B: np.ndarray,
    n_slots: int,
    least: np.float32,
) -> tuple[np.ndarray, Candidates]:
    """As `copying_posteriors`, at the places that there are.

    Parameters
    ----------
    panel_NW, emission_QS2, jump_S, candidates
        As there.
    block_first_B, block_last_B : int64
        The places around the gaps of blocks, before the first place and behind the last one, too. Blocks
        ascend.
    n_slots : int
        Places of the largest block.
    least : float32
        Candidates with less at all places of a block are dropped, if they also have less than LEAST_OF_ALIKE
        of what a state has where all are alike.

    Returns
    -------
    float32 (C, n_slots)
        Posteriors of the candidates that stay, 0 where there is no place.
    Candidates
        Those that stay, and likely states where they are unlikely; at most as many as there were.
    """
    n_queries, n_blocks = len(emission_QS2), len(block_first_B)
    begin_B, end_B = np.maximum(block_first_B, 0), np.minimum(block_last_B + 1, len(jump_S))
    found_C = np.empty(len(candidates.haplotype_C), np.int32)
    found_CP = np.empty((len(found_C), n_slots), np.float32)
    start_QB, count_QB = np.zeros((2, n_queries, n_blocks), np.int64)
    _fill_posteriors(
        panel_NW, emission_QS2, jump_S, begin_B, end_B, begin_B - block_first_B, *candidates, least,
        np.float32(parameters.LEAST_OF_ALIKE), np.float32(parameters.LEAST_MASS), found_C, found_CP, start_QB,
        count_QB,
    )  # fmt: skip
    return in_blocks(found_C, found_CP, start_QB, count_QB)


@kernel()
def _fill_posteriors(  # type: ignore[no-untyped-def]
    panel_NW, emission_QS2, jump_S, begin_B, end_B, slot_B, candidate_C, first_BQ1, least_of_all,
    least_of_alike, least_mass, found_C, found_CP, start_QB, count_QB,
):  # fmt: skip
    """Of each query and block: how many candidates stay, and from start_QB on who, and their posteriors.

    begin_B, end_B: a block's places; slot_B: where the first one goes.
    """
    n_places, n_blocks, n_haplotypes = len(jump_S), len(begin_B), len(panel_NW)
    share, one = np.float32(1) / np.float32(n_haplotypes), np.float32(1)
    number_N, state_N = np.full(n_haplotypes, -1, np.int32), np.empty(n_haplotypes, np.int32)
    total_S = np.empty(n_places, np.float32)
    keep_S, arrive_S, joint_S = (
        np.empty(n_places, np.float32),
        np.empty(n_places, np.float32),
        np.empty(n_places, np.float32),
    )
    most = 1  # states of a query, at most
    for q in range(len(emission_QS2)):
        most = max(most, (first_BQ1[:, q + 1] - first_BQ1[:, q]).sum())
    most = min(most, n_haplotypes)
    # once for all queries: memory of this size would be new each time
    forward_BK, backward_BK = np.empty((n_blocks, most), np.float32), np.empty((n_blocks, most), np.float32)
    n_found = 0
    for q in range(len(emission_QS2)):
        emission_S2 = emission_QS2[q]
        n, at_C = _states(candidate_C, first_BQ1, q, number_N, state_N)
        if n == 0:
            continue
        least = min(least_of_all, least_of_alike / np.float32(n))
        bits_IK = _bits_by_span(panel_NW, state_N[:n])
        value_K = np.empty(bits_IK.shape[1], np.float32)
        value_K[:n] = share
        value_K[n:] = 0
        total, b = one, 0
        for p in range(n_places):
            keep = (one - jump_S[p]) * (one / total)
            total = step_list(bits_IK, p, n, emission_S2[p], keep, jump_S[p] * share, value_K)
            total_S[p] = total
            while b < n_blocks and begin_B[b] == p:
                forward_BK[b, :n] = value_K[:n]
                b += 1
        value_K[:n] = 1
        keep, arrive, joint = one, np.float32(0), one / total
        b = n_blocks - 1
        for p in range(n_places - 1, begin_B[0] - 1, -1):
            keep_S[p], arrive_S[p], joint_S[p] = keep, arrive, joint
            while b >= 0 and end_B[b] - 1 == p:
                backward_BK[b, :n] = value_K[:n]
                b -= 1
            divisor = share * step_list(bits_IK, p, n, emission_S2[p], keep, arrive, value_K)
            keep, arrive = (one - jump_S[p]) / divisor, jump_S[p]
            if p > 0:  # forward times backward values have the same sum, but for their scales
                joint *= divisor / total_S[p - 1]
        i = len(at_C)
        for b in range(n_blocks - 1, -1, -1):
            begin, end = begin_B[b], end_B[b]
            own_K = at_C[i - (first_BQ1[b, q + 1] - first_BQ1[b, q]) : i]
            i -= len(own_K)
            bound_4 = _bound(emission_S2, jump_S, share, total_S, keep_S, arrive_S, joint_S, begin, end)
            # X counts likely states: likely_X says which ones these are, chosen_X which of them stay
            likely_X = _likely(bound_4, forward_BK[b, :n], backward_BK[b, :n], least)
            posterior_PX, most_X = _posteriors_between(
                bits_IK, likely_X, emission_S2, jump_S, share, total_S, keep_S, arrive_S, joint_S,
                forward_BK[b], backward_BK[b], begin, end,
            )  # fmt: skip
            for x in range(len(likely_X)):
                number_N[likely_X[x]] = x  # of states, which are no more than haplotypes
            chosen_X = _choose(own_K, number_N, posterior_PX, most_X, state_N[likely_X], least, least_mass)
            for k in likely_X:
                number_N[k] = -1
            start_QB[q, b], count_QB[q, b] = n_found, len(chosen_X)
            for x in chosen_X:
                found_C[n_found] = state_N[likely_X[x]]
                found_CP[n_found] = 0
                for slot in range(end - begin):
                    found_CP[n_found, slot_B[b] + slot] = posterior_PX[slot, x]
                n_found += 1


@kernel()
def _bound(  # type: ignore[no-untyped-def]
    emission_S2, jump_S, share, total_S, keep_S, arrive_S, joint_S, begin, end
):
    """What bounds the sum of a state's posteriors at the places [begin, end).

    With f, its forward value at the first place, and v, its backward value at the last one, the bound is
    bound[0] f v + bound[1] f + bound[2] v + bound[3]: the sum itself, if the state agrees with what is known
    at each place between.
    """
    n = end - begin
    forward_P2, backward_P2 = np.zeros((n, 2), np.float32), np.zeros((n, 2), np.float32)
    forward_P2[0, 0] = backward_P2[n - 1, 0] = 1
    one = np.float32(1)
    for p in range(begin + 1, end):
        stay, come = _forward_step(jump_S, share, total_S, p)
        best = max(emission_S2[p, 0], emission_S2[p, 1])
        forward_P2[p - begin, 0] = forward_P2[p - begin - 1, 0] * stay * best
        forward_P2[p - begin, 1] = (forward_P2[p - begin - 1, 1] * stay + come) * best
    for p in range(end - 1, begin, -1):
        best = max(emission_S2[p, 0], emission_S2[p, 1])
        backward_P2[p - begin - 1, 0] = backward_P2[p - begin, 0] * keep_S[p] * best
        backward_P2[p - begin - 1, 1] = (backward_P2[p - begin, 1] * keep_S[p] + arrive_S[p]) * best
    bound_4 = np.zeros(4, np.float32)
    for p in range(begin, end):
        of_f, alone = forward_P2[p - begin] * joint_S[p]
        of_v = backward_P2[p - begin, 0] * keep_S[p]
        rest = backward_P2[p - begin, 1] * keep_S[p] + arrive_S[p]
        bound_4[0] += of_f * of_v
        bound_4[1] += of_f * rest
        bound_4[2] += alone * of_v
        bound_4[3] += alone * rest
    return bound_4 * (one + ROUNDING)


@kernel(fast=True)
def _likely(bound_4, forward_K, backward_K, least):  # type: ignore[no-untyped-def]
    """The states that may have `least` by their values at both ends.

    Of a query that is like none of its states the bound may be infinite, or no number.
    """
    likely_X, n = np.empty(len(forward_K), np.int32), 0
    of_both, of_forward, of_backward, alone = bound_4
    for k in range(len(forward_K)):
        likely_X[n] = k
        f, v = forward_K[k], backward_K[k]
        n += not ((of_both * v + of_forward) * f + (of_backward * v + alone) < least)
    return likely_X[:n]


@kernel(inline=True)
def _forward_step(jump_S, share, total_S, place):  # type: ignore[no-untyped-def]
    """What brings forward values from the place before to this one, without its emissions."""
    one = np.float32(1)
    return (one - jump_S[place]) * (one / total_S[place - 1]), jump_S[place] * share


@kernel()
def _posteriors_between(  # type: ignore[no-untyped-def]
    bits_IK, likely_X, emission_S2, jump_S, share, total_S, keep_S, arrive_S, joint_S, forward_K, backward_K,
    begin, end,
):  # fmt: skip
    """Posteriors of some states at the places [begin, end), from their values at both ends; their largest."""
    n, first = len(likely_X), begin >> 4
    width = -(-n // LANES) * LANES
    bits_IX = np.zeros((((end - 1) >> 4) + 1 - first, width), np.uint16)
    for i in range(len(bits_IX)):
        for x in range(n):
            bits_IX[i, x] = bits_IK[first + i, likely_X[x]]
    posterior_PX, backward_X = np.empty((end - begin, width), np.float32), np.zeros(width, np.float32)
    posterior_PX[0, n:] = 0
    most_X = np.zeros(width, np.float32)
    for x in range(n):
        posterior_PX[0, x], backward_X[x] = forward_K[likely_X[x]], backward_K[likely_X[x]]
    for p in range(begin + 1, end):
        forward_X = posterior_PX[p - begin]
        forward_X[:] = posterior_PX[p - begin - 1]
        stay, come = _forward_step(jump_S, share, total_S, p)
        step_list(bits_IX, p - 16 * first, n, emission_S2[p], stay, come, forward_X)
    for p in range(end - 1, begin - 1, -1):
        _multiply(posterior_PX[p - begin], backward_X, keep_S[p], arrive_S[p], joint_S[p], most_X)
        if p > begin:
            step_list(bits_IX, p - 16 * first, n, emission_S2[p], keep_S[p], arrive_S[p], backward_X)
    return posterior_PX, most_X


@kernel(fast=True)
def _multiply(forward_X, backward_X, keep, arrive, joint, most_X):  # type: ignore[no-untyped-def]
    """Posteriors in the place of forward values; most_X: the largest ones so far."""
    for x in range(len(forward_X)):
        posterior = forward_X[x] * (backward_X[x] * keep + arrive) * joint
        forward_X[x] = posterior
        most_X[x] = posterior if posterior > most_X[x] else most_X[x]


@kernel()
def _choose(own_K, number_K, posterior_PX, most_X, state_X, least, least_mass):  # type: ignore[no-untyped-def]
    """Of likely states: those of a block's candidates that have `least`, at any place.

    Where they have less than least_mass at one, the likeliest others join them, until they are as many as the
    candidates were.

    own_K: the block's candidates, as states, in order of haplotypes. number_K: where a state is among the
    likely ones, -1 if nowhere.
    """
    stay_X, n = np.empty(len(own_K), np.int64), 0
    for k in own_K:
        x = number_K[k]
        if x >= 0 and most_X[x] >= least:
            stay_X[n] = x
            n += 1
    n_others = len(own_K) - n
    stay_X = stay_X[:n]
    for p in range(len(posterior_PX)):
        mass = np.float32(0)
        for x in stay_X:
            mass += posterior_PX[p, x]
        if mass < least_mass:
            break
    else:
        return stay_X
    is_other_X = most_X[: len(state_X)] >= least
    is_other_X[stay_X] = False
    other_X = np.flatnonzero(is_other_X)
    other_X = other_X[np.argsort(-most_X[other_X], kind="mergesort")[:n_others]]
    both_X = np.concatenate((stay_X, other_X))
    return both_X[np.argsort(state_X[both_X])]


@kernel()
def _states(candidate_C, first_BQ1, q, number_N, state_N):  # type: ignore[no-untyped-def]
    """List a query's candidates once each in state_N; returns their number, and where each candidate is.

    number_N: -1, also afterwards.
    """
    n_candidates = 0
    for b in range(len(first_BQ1)):
        n_candidates += first_BQ1[b, q + 1] - first_BQ1[b, q]
    at_C, i = np.empty(n_candidates, np.int32), 0
    n_states = 0
    for b in range(len(first_BQ1)):
        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
            h = candidate_C[c]
            if number_N[h] < 0:
                number_N[h] = n_states
                state_N[n_states] = h
                n_states += 1
            at_C[i] = number_N[h]
            i += 1
    for k in range(n_states):
        number_N[state_N[k]] = -1
    return n_states, at_C


@kernel()
def _bits_by_span(panel_NW, state_K):  # type: ignore[no-untyped-def]
    """Typed alleles of states, uint16 (I, K), of 16 places each; K is a multiple of LANES."""
    n_words = panel_NW.shape[1]
    bits_IK = np.zeros((4 * n_words, -(-len(state_K) // LANES) * LANES), np.uint16)
    for k in range(len(state_K)):
        row_W = panel_NW[state_K[k]]
        for w in range(n_words):
            for part in range(4):
                bits_IK[4 * w + part, k] = np.uint16((row_W[w] >> np.uint64(16 * part)) & np.uint64(0xFFFF))
    return bits_IK
