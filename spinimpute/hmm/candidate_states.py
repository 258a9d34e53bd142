"""Posteriors of copying where a query's own candidates, of all blocks, are the states.

With a hundred thousand haplotypes nearly all of the probability lies on the few thousand that match a query
somewhere in the chunk, and going through all of them takes most of the time. A query still leaves a haplotype
for any of the panel: those that are no states explain none of its calls. Each query has states of its own, so
that no result depends on which queries are imputed together.

A query's candidates in a block are those whose matches are longest there. After a wrong call at a typed site
these may be other haplotypes than the one that it copied before and copies on. Where little of a query's
probability lies on a block's candidates, its likeliest states join them.

Forward values are kept at the first place of each block, and computed again within it when the backward
values arrive there: those of all states at all places do not fit the cache.

Axes: S typed places of a chunk, N panel haplotypes, K states of a query, Q queries, B blocks of gaps, I
spans, C candidates, X states of candidates of a block, P places of a block, W 64-bit words, 2 alleles of a
state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.parameters import LANES
from spinimpute.hmm.steps import step_list
from spinimpute.kernels import kernel


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
        ascend; neighbours share one place at most.
    n_slots : int
        Places of the largest block.
    least : float32
        Candidates with less at all places of a block are dropped.

    Returns
    -------
    float32 (C, n_slots)
        Posteriors of the candidates that stay, 0 where there is no place.
    Candidates
        Those that stay, and likely states where they are unlikely; at most as many as there were.
    """
    n_queries, n_blocks = len(emission_QS2), len(block_first_B)
    begin_B, end_B = np.maximum(block_first_B, 0), np.minimum(block_last_B + 1, len(jump_S))
    assert (begin_B[1:] >= end_B[:-1] - 1).all()
    found_C = np.empty(len(candidates.haplotype_C), np.int32)
    found_CP = np.empty((len(found_C), n_slots), np.float32)
    start_QB, count_QB = np.zeros((2, n_queries, n_blocks), np.int64)
    _fill_posteriors(
        panel_NW, emission_QS2, jump_S, begin_B, end_B, begin_B - block_first_B, *candidates, least,
        np.float32(parameters.LEAST_MASS), found_C, found_CP, start_QB, count_QB,
    )  # fmt: skip
    first_BQ1 = np.zeros((n_blocks, n_queries + 1), np.int64)
    np.cumsum(count_QB.T, axis=1, out=first_BQ1[:, 1:])
    first_BQ1[1:] += np.cumsum(first_BQ1[:-1, -1])[:, None]
    kept_C = np.empty(first_BQ1[-1, -1], np.int32)
    kept_CP = np.empty((len(kept_C), n_slots), np.float32)
    _put_in_blocks(found_C, found_CP, start_QB, first_BQ1, kept_C, kept_CP)
    return kept_CP, Candidates(kept_C, first_BQ1)


@kernel()
def _put_in_blocks(found_C, found_CP, start_QB, first_BQ1, kept_C, kept_CP):  # type: ignore[no-untyped-def]
    """Block by block what was found query by query."""
    for b in range(len(first_BQ1)):
        for q in range(len(start_QB)):
            found = start_QB[q, b]
            for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                kept_C[c] = found_C[found]
                kept_CP[c] = found_CP[found]
                found += 1


@kernel()
def _fill_posteriors(  # type: ignore[no-untyped-def]
    panel_NW, emission_QS2, jump_S, begin_B, end_B, slot_B, candidate_C, first_BQ1, least, least_mass,
    found_C, found_CP, start_QB, count_QB,
):  # fmt: skip
    """Of each query and block: how many candidates stay, and from start_QB on who, and their posteriors.

    begin_B, end_B: a block's places; slot_B: where the first one goes.
    """
    n_places, n_blocks, n_haplotypes = len(jump_S), len(begin_B), len(panel_NW)
    share, one = np.float32(1) / np.float32(n_haplotypes), np.float32(1)
    number_N, state_N = np.full(n_haplotypes, -1, np.int32), np.empty(n_haplotypes, np.int32)
    total_S = np.empty(n_places, np.float32)
    most_places = (end_B - begin_B).max()
    n_found = 0
    for q in range(len(emission_QS2)):
        emission_S2 = emission_QS2[q]
        n, at_C = _states(candidate_C, first_BQ1, q, number_N, state_N)
        if n == 0:
            continue
        bits_IK = _bits_by_span(panel_NW, state_N[:n])
        n_padded = bits_IK.shape[1]
        value_K, most_K = np.empty(n_padded, np.float32), np.empty(n_padded, np.float32)
        forward_BK = np.empty((n_blocks, n_padded), np.float32)
        posterior_PK = np.empty((most_places, n_padded), np.float32)
        value_K[:n] = share
        value_K[n:] = 0
        total, b = one, 0
        for p in range(n_places):
            keep = (one - jump_S[p]) * (one / total)
            total = step_list(bits_IK, p, n, emission_S2[p], keep, jump_S[p] * share, value_K)
            total_S[p] = total
            while b < n_blocks and begin_B[b] == p:
                forward_BK[b] = value_K
                b += 1
        value_K[:n] = 1
        keep, arrive, joint = one, np.float32(0), one / total
        p, i = n_places - 1, len(at_C)
        for b in range(n_blocks - 1, -1, -1):
            begin, end = begin_B[b], end_B[b]
            posterior_PK[0] = forward_BK[b]
            for later in range(begin + 1, end):
                forward_K = posterior_PK[later - begin]
                forward_K[:] = posterior_PK[later - begin - 1]
                stay, come = (one - jump_S[later]) * (one / total_S[later - 1]), jump_S[later] * share
                step_list(bits_IK, later, n, emission_S2[later], stay, come, forward_K)
            most_K[:] = 0
            while p >= begin:
                if p < end:
                    _multiply(posterior_PK[p - begin], value_K, keep, arrive, joint, most_K)
                if p == begin:  # it may be the last place of the block before, too
                    break
                divisor = share * step_list(bits_IK, p, n, emission_S2[p], keep, arrive, value_K)
                keep, arrive = (one - jump_S[p]) / divisor, jump_S[p]
                # forward times backward values have the same sum, but for their scales
                joint *= divisor / total_S[p - 1]
                p -= 1
            own_X = at_C[i - (first_BQ1[b, q + 1] - first_BQ1[b, q]) : i]
            i -= len(own_X)
            chosen_X = _choose(own_X, posterior_PK[: end - begin], most_K[:n], state_N, least, least_mass)
            start_QB[q, b], count_QB[q, b] = n_found, len(chosen_X)
            found_C[n_found : n_found + len(chosen_X)] = state_N[chosen_X]
            found_CP[n_found : n_found + len(chosen_X)] = 0
            for slot in range(end - begin):
                for x in range(len(chosen_X)):
                    found_CP[n_found + x, slot_B[b] + slot] = posterior_PK[slot, chosen_X[x]]
            n_found += len(chosen_X)


@kernel(fast=True)
def _multiply(forward_K, backward_K, keep, arrive, joint, most_K):  # type: ignore[no-untyped-def]
    """Posteriors in the place of forward values; most_K: the largest ones so far."""
    for k in range(len(most_K)):
        posterior = forward_K[k] * (backward_K[k] * keep + arrive) * joint
        forward_K[k] = posterior
        most_K[k] = posterior if posterior > most_K[k] else most_K[k]


@kernel()
def _choose(own_X, posterior_PK, most_K, state_N, least, least_mass):  # type: ignore[no-untyped-def]
    """States: those of a block's candidates that have `least`, at any place.

    Where they have less than least_mass at one, the likeliest others join them, until they are as many as the
    candidates were.
    """
    stay_X = own_X[most_K[own_X] >= least]
    for p in range(len(posterior_PK)):
        mass = np.float32(0)
        for k in stay_X:
            mass += posterior_PK[p, k]
        if mass < least_mass:
            break
    else:
        return stay_X
    is_likely_K = most_K >= least
    is_likely_K[stay_X] = False
    other_X = np.flatnonzero(is_likely_K)
    n_others = len(own_X) - len(stay_X)
    other_X = other_X[np.argsort(-most_K[other_X], kind="mergesort")[:n_others]].astype(np.int32)
    both_X = np.concatenate((stay_X, other_X))
    return both_X[np.argsort(state_N[both_X])]


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
