"""Posterior probability that a query copies each candidate, by the model of Li and Stephens.

Unlike a comparison of a query with a single haplotype, the posterior of a hidden Markov model (`steps`)
depends on whether another haplotype matches better, here or nearby. Its states are all haplotypes of the
panel, or, in a panel of more than MOST_STATES, a query's own candidates, of all blocks: with a hundred
thousand haplotypes nearly all of the probability lies on the few hundred that match a query somewhere in the
chunk, and going through all of them takes most of the time. A query still leaves a haplotype for any of the
panel: those that are no states explain none of its calls. Each query has states of its own, so that no
result depends on which queries are imputed together.

A query's candidates in a block are those whose matches are longest there. After a wrong call at a typed site
these may be other haplotypes than the one that it copied before and copies on. Where little of a query's
probability lies on a block's candidates, its likeliest states take their places.

Axes: S typed places of a chunk, N panel haplotypes, K states of a query, Q queries, G groups of queries, L
queries side by side, B blocks of gaps, I spans, D patterns of a span, C candidates, P places of a block or
span, W 64-bit words, 2 alleles of a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.emissions import side_by_side
from spinimpute.hmm.lanes import all_lanes, load, store
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, most_patterns
from spinimpute.hmm.steps import (
    emit,
    end_span,
    go_through,
    leave,
    meet,
    step_back,
    step_list,
    sum_both,
    sum_patterns,
)
from spinimpute.kernels import kernel


def copying_posteriors(
    patterns: SpanPatterns | None,
    panel_NW: np.ndarray,
    emission_QS2: np.ndarray,
    jump_S: np.ndarray,
    candidates: Candidates,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    least_share: float,
) -> tuple[np.ndarray, Candidates]:
    """Posteriors of candidates at the places around the gaps of blocks.

    Parameters
    ----------
    patterns : SpanPatterns or None
        Patterns of the panel; a panel of more than MOST_STATES needs none.
    panel_NW : uint64 (N, W)
        Typed alleles of the panel, see `pack_rows`.
    emission_QS2 : float32 (Q, S, 2)
        What is known of the queries, see `allele_emissions`.
    jump_S : float32 (S,)
        See `jump_probabilities`.
    candidates : Candidates
        Of blocks of gaps.
    first_B, n_gaps_B : int64
        The place on the right of a block's first gap, and the number of its gaps.
    least_share : float
        Times the prior probability of a haplotype, 1 / N. Candidates whose posterior is below this at all
        places of a block are dropped.

    Returns
    -------
    float32 (C, P)
        Posteriors of the candidates that stay, in their order, at the places first - 1 ...
        first + n_gaps - 1.
    Candidates
        Those that stay; in a block with little of a query's probability others, see the module's docstring.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    candidate_C, first_BQ1 = candidates
    out_CP = np.zeros((len(candidate_C), int(n_gaps_B.max()) + 1), np.float32)
    n_haplotypes = len(panel_NW)
    blocks = first_B - 1, first_B + n_gaps_B - 1, first_BQ1
    if n_haplotypes > parameters.MOST_STATES:
        candidate_C = candidate_C.copy()
        _posteriors_of_lists(
            panel_NW, emission_QS2, jump_S, *blocks, np.float32(parameters.LEAST_MASS), candidate_C, out_CP
        )
    else:
        assert patterns is not None, "only a large panel needs none"
        _posteriors_of_all(*patterns, side_by_side(emission_QS2), jump_S, *blocks, candidate_C, out_CP)
    _fill_ends(len(jump_S), *blocks, out_CP)
    stay_C = (out_CP >= np.float32(least_share / n_haplotypes)).any(axis=1)
    before_C1 = np.concatenate([[0], np.cumsum(stay_C)])
    # most candidates go, and so does their memory
    return out_CP[stay_C], Candidates(candidate_C[stay_C], before_C1[first_BQ1])


@kernel()
def _fill_ends(n_places, block_first_B, block_last_B, first_BQ1, out_CP):  # type: ignore[no-untyped-def]
    """Before the first place and behind the last one: what is known there."""
    for block in range(len(block_first_B)):
        for c in range(first_BQ1[block, 0], first_BQ1[block, -1]):
            if block_first_B[block] < 0:
                out_CP[c, 0] = out_CP[c, 1]
            if block_last_B[block] >= n_places:
                slot = n_places - block_first_B[block]
                out_CP[c, slot] = out_CP[c, slot - 1]


# all haplotypes are states


@kernel(fast=True)
def _posteriors_of_all(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, emission_GS2L, jump_S, block_first_B, block_last_B, first_BQ1,
    candidate_C, out_CP,
):  # fmt: skip
    """Fill out_CP at the places that there are."""
    n_spans, n = pattern_IN.shape
    n_places, n_blocks = len(jump_S), len(block_first_B)
    # the spans whose probabilities are asked for
    wanted_first = max(block_first_B[0], 0) // SPAN
    wanted_stop = min(block_last_B[n_blocks - 1], n_places - 1) // SPAN + 1
    most = most_patterns(first_I1)
    kept_first = first_I1[wanted_first]
    n_patterns = first_I1[wanted_stop] - kept_first
    stay_PDL, come_PDL = (
        np.empty((SPAN, n_patterns, LANES), np.float32),
        np.empty((SPAN, n_patterns, LANES), np.float32),
    )
    back_stay_PDL, back_come_PDL = (
        np.empty((SPAN, most, LANES), np.float32),
        np.empty((SPAN, most, LANES), np.float32),
    )
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    forward_DL, backward_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L, scale_SL = np.empty(LANES, np.float32), np.empty((n_places, LANES), np.float32)
    divisor_L, joint_L, joint_PL = (
        np.empty(LANES, np.float32),
        np.empty(LANES, np.float32),
        np.empty((SPAN, LANES), np.float32),
    )
    kept_X, kept_IB = np.empty(1_024, np.float32), np.empty((n_spans, n_blocks), np.int64)
    for group in range(len(emission_GS2L)):
        emission_S2L = emission_GS2L[group]
        n_kept = 0
        forward_NL[:] = np.float32(1) / n
        sum_patterns(pattern_IN[0], forward_NL, forward_DL[: first_I1[1]])
        for i in range(wanted_stop):
            first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
            bits_here_D, count_here_D = bits_D[first : first + d], count_D[first : first + d]
            stay_DL[:d] = 1
            come_DL[:d] = 0
            scale_L[:] = 1
            for p in range(i * SPAN, min(i * SPAN + SPAN, n_places)):
                at = p - i * SPAN
                leave(count_here_D, jump_S[p], n, scale_L, stay_DL, come_DL)
                emit(bits_here_D, at, emission_S2L[p], forward_DL, scale_L, stay_DL, come_DL)
                scale_SL[p] = scale_L
                if i >= wanted_first:
                    stay_PDL[at, first - kept_first : first - kept_first + d] = stay_DL[:d]
                    come_PDL[at, first - kept_first : first - kept_first + d] = come_DL[:d]
            if i >= wanted_first:
                for block in range(n_blocks):
                    low, high = _shared(block_first_B[block], block_last_B[block], i, n_places)
                    if low < high:
                        kept_IB[i, block] = n_kept
                        kept_X, n_kept = _keep_forward(
                            forward_NL, candidate_C, first_BQ1[block], group * LANES, kept_X, n_kept
                        )
            if i + 1 < wanted_stop:
                end_span(count_here_D, scale_L, stay_DL, come_DL)
                go_through(
                    pattern_IN[i], stay_DL, come_DL, forward_NL, forward_NL, pattern_IN[i + 1],
                    forward_DL[: first_I1[i + 2] - first_I1[i + 1]],
                )  # fmt: skip
        backward_NL[:] = 1
        sum_patterns(
            pattern_IN[n_spans - 1], backward_NL, backward_DL[: first_I1[n_spans] - first_I1[n_spans - 1]]
        )
        for i in range(n_spans - 1, wanted_first - 1, -1):
            first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
            kept = slice(first - kept_first, first - kept_first + d)
            bits_here_D, count_here_D = bits_D[first : first + d], count_D[first : first + d]
            wanted = i < wanted_stop
            last = min(i * SPAN + SPAN, n_places) - 1
            stay_DL[:d] = 1
            come_DL[:d] = 0
            if i == wanted_stop - 1:
                sum_both(
                    pattern_IN[i], forward_NL, backward_NL, forward_DL[:d], backward_DL[:d], product_DL[:d]
                )
                _scale_of_place(
                    count_here_D, forward_DL, backward_DL, product_DL, stay_PDL[last - i * SPAN, kept],
                    come_PDL[last - i * SPAN, kept], stay_DL, come_DL, joint_L,
                )  # fmt: skip
            for p in range(last, i * SPAN - 1, -1):
                at = p - i * SPAN
                if wanted:
                    back_stay_PDL[at, :d] = stay_DL[:d]
                    back_come_PDL[at, :d] = come_DL[:d]
                    joint_PL[at] = joint_L
                step_back(
                    bits_here_D, count_here_D, at, emission_S2L[p], jump_S[p], n, backward_DL,
                    stay_DL, come_DL, divisor_L,
                )  # fmt: skip
                if wanted and p > 0:  # forward times backward values have the same sum, but for their scales
                    store(joint_L, 0, load(joint_L, 0) * load(divisor_L, 0) * load(scale_SL[p - 1], 0))
            if wanted:
                for block in range(n_blocks):
                    low, high = _shared(block_first_B[block], block_last_B[block], i, n_places)
                    if low < high:
                        _write_probabilities(
                            pattern_IN[i], count_here_D, kept_X[kept_IB[i, block] :], backward_NL,
                            stay_PDL[:, kept], come_PDL[:, kept], back_stay_PDL, back_come_PDL, joint_PL,
                            candidate_C, first_BQ1[block], group * LANES, low - i * SPAN, high - i * SPAN,
                            low - block_first_B[block], out_CP,
                        )  # fmt: skip
            if i > wanted_first:
                go_through(
                    pattern_IN[i], stay_DL, come_DL, backward_NL, backward_NL, pattern_IN[i - 1],
                    backward_DL[: first - first_I1[i - 1]],
                )  # fmt: skip


@kernel()
def _shared(block_first, block_last, span, n_places):  # type: ignore[no-untyped-def]
    """The places [low, high) that a block and a span have in common."""
    return max(block_first, span * SPAN), min(block_last + 1, span * SPAN + SPAN, n_places)


@kernel()
def _keep_forward(forward_NL, candidate_C, first_Q1, q0, kept_X, n_kept):  # type: ignore[no-untyped-def]
    """Put aside forward values before a span, of LANES queries' candidates; returns all and their number."""
    n_queries = min(LANES, len(first_Q1) - 1 - q0)
    n = n_kept + first_Q1[q0 + n_queries] - first_Q1[q0]
    if n > len(kept_X):
        longer = np.empty(2 * n, np.float32)
        longer[:n_kept] = kept_X[:n_kept]
        kept_X = longer
    for l in range(n_queries):
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            kept_X[n_kept] = forward_NL[candidate_C[c], l]
            n_kept += 1
    return kept_X, n_kept


@kernel(fast=True)
def _scale_of_place(  # type: ignore[no-untyped-def]
    count_D, left_DL, right_DL, product_DL, stay_DL, come_DL, right_stay_DL, right_come_DL, scale_L
):
    """One over the sum of forward times backward values of all haplotypes."""
    total = all_lanes(np.float32(0))
    for d in range(len(count_D)):
        stayed, came = meet(
            load(stay_DL, d), load(come_DL, d), load(left_DL, d), load(right_stay_DL, d),
            load(right_come_DL, d), load(right_DL, d), load(product_DL, d), np.float32(1) / count_D[d],
        )  # fmt: skip
        total += stayed
        total += came
    store(scale_L, 0, np.float32(1) / total)


@kernel(fast=True)
def _write_probabilities(  # type: ignore[no-untyped-def]
    pattern_N, count_D, forward_X, backward_NL, stay_PDL, come_PDL, back_stay_PDL, back_come_PDL, joint_PL,
    candidate_C, first_Q1, q0, low, high, slot, out_CP,
):  # fmt: skip
    """Of the candidates of LANES queries at the places [low, high) of a span.

    forward_X: their values before it. joint_PL: one over the sums of forward times backward values. slot:
    where the first place goes.
    """
    start = first_Q1[q0]
    for l in range(min(LANES, len(first_Q1) - 1 - q0)):
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            h = candidate_C[c]
            d = pattern_N[h]
            f, b, share = forward_X[c - start], backward_NL[h, l], np.float32(1) / count_D[d]
            for p in range(low, high):
                forward = stay_PDL[p, d, l] * f + come_PDL[p, d, l] * share
                backward = back_stay_PDL[p, d, l] * b + back_come_PDL[p, d, l]
                out_CP[c, slot + p - low] = forward * backward * joint_PL[p, l]


# a query's own candidates are states


@kernel()
def _posteriors_of_lists(  # type: ignore[no-untyped-def]
    panel_NW, emission_QS2, jump_S, block_first_B, block_last_B, first_BQ1, least_mass, candidate_C, out_CP
):
    """Fill out_CP as `_posteriors_of_all` does: with candidates' forward values at first.

    Where the candidates of a block have less than least_mass at a place, the likeliest states replace them.
    """
    n_places, n_blocks = len(jump_S), len(block_first_B)
    n_haplotypes = len(panel_NW)
    first = max(block_first_B[0], 0)
    stop = min(block_last_B[n_blocks - 1], n_places - 1) + 1
    share = np.float32(1) / np.float32(n_haplotypes)
    number_N, state_N = np.full(n_haplotypes, -1, np.int32), np.empty(n_haplotypes, np.int32)
    total_S, lacks_B = np.empty(n_places, np.float32), np.empty(n_blocks, np.bool_)
    for q in range(len(emission_QS2)):
        emission_S2 = emission_QS2[q]
        n, at_C = _states(candidate_C, first_BQ1, q, number_N, state_N)
        if n == 0:
            continue
        bits_IK, value_K = _bits_by_span(panel_NW, state_N[:n]), np.empty(-(-n // LANES) * LANES, np.float32)
        value_K[:n] = share
        value_K[n:] = 0
        total = np.float32(1)
        for p in range(n_places):
            keep = (np.float32(1) - jump_S[p]) * (np.float32(1) / total)
            total = step_list(bits_IK, p, n, emission_S2[p], keep, jump_S[p] * share, value_K)
            total_S[p] = total
            if first <= p < stop:
                i = 0
                for b in range(n_blocks):
                    start, end = first_BQ1[b, q], first_BQ1[b, q + 1]
                    if block_first_B[b] <= p <= block_last_B[b]:
                        slot = p - block_first_B[b]
                        for c in range(start, end):
                            out_CP[c, slot] = value_K[at_C[i + c - start]]
                    i += end - start
        value_K[:n] = 1
        keep, arrive, joint = np.float32(1), np.float32(0), np.float32(1) / total
        for p in range(n_places - 1, first - 1, -1):
            if p < stop:
                i = 0
                for b in range(n_blocks):
                    start, end = first_BQ1[b, q], first_BQ1[b, q + 1]
                    if block_first_B[b] <= p <= block_last_B[b]:
                        slot = p - block_first_B[b]
                        for c in range(start, end):
                            out_CP[c, slot] *= (value_K[at_C[i + c - start]] * keep + arrive) * joint
                    i += end - start
            divisor = share * step_list(bits_IK, p, n, emission_S2[p], keep, arrive, value_K)
            keep, arrive = (np.float32(1) - jump_S[p]) / divisor, jump_S[p]
            if p > 0:  # forward times backward values have the same sum, but for their scales
                joint *= divisor / total_S[p - 1]
        low, high = _lacking(out_CP, first_BQ1, q, block_first_B, block_last_B, n_places, least_mass, lacks_B)
        if low < high:
            posterior_PK = _of_all_states(bits_IK, n, emission_S2, jump_S, share, low, high)
            for b in range(n_blocks):
                if lacks_B[b]:
                    begin, end = max(block_first_B[b], 0), min(block_last_B[b] + 1, n_places)
                    _replace(
                        posterior_PK[begin - low : end - low], state_N[:n], first_BQ1[b, q],
                        first_BQ1[b, q + 1], begin - block_first_B[b], candidate_C, out_CP,
                    )  # fmt: skip


@kernel()
def _lacking(out_CP, first_BQ1, q, block_first_B, block_last_B, n_places, least_mass, lacks_B):  # type: ignore[no-untyped-def]
    """The places [low, high) of blocks whose candidates have less than least_mass; fills lacks_B."""
    low, high = n_places, 0
    for b in range(len(lacks_B)):
        begin, end = max(block_first_B[b], 0), min(block_last_B[b] + 1, n_places)
        lacks_B[b] = False
        if first_BQ1[b, q] == first_BQ1[b, q + 1]:
            continue
        for slot in range(begin - block_first_B[b], end - block_first_B[b]):
            mass = np.float32(0)
            for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                mass += out_CP[c, slot]
            if mass < least_mass:
                lacks_B[b] = True
                low, high = min(low, begin), max(high, end)
                break
    return low, high


@kernel()
def _of_all_states(bits_IK, n, emission_S2, jump_S, share, first, stop):  # type: ignore[no-untyped-def]
    """Posteriors of n states at the places [first, stop), (P, K)."""
    n_padded = bits_IK.shape[1]
    out_PK, value_K = np.empty((stop - first, n_padded), np.float32), np.empty(n_padded, np.float32)
    value_K[:n] = share
    value_K[n:] = 0
    total = np.float32(1)
    for p in range(stop):
        keep = (np.float32(1) - jump_S[p]) * (np.float32(1) / total)
        total = step_list(bits_IK, p, n, emission_S2[p], keep, jump_S[p] * share, value_K)
        if p >= first:
            out_PK[p - first] = value_K
    value_K[:n] = 1
    keep, arrive = np.float32(1), np.float32(0)
    for p in range(len(jump_S) - 1, first - 1, -1):
        if p < stop:
            total = np.float32(0)
            for k in range(n):
                out_PK[p - first, k] *= value_K[k] * keep + arrive
                total += out_PK[p - first, k]
            out_PK[p - first, :n] *= np.float32(1) / total
        divisor = share * step_list(bits_IK, p, n, emission_S2[p], keep, arrive, value_K)
        keep, arrive = (np.float32(1) - jump_S[p]) / divisor, jump_S[p]
    return out_PK


@kernel()
def _replace(posterior_PK, state_K, start, end, slot, candidate_C, out_CP):  # type: ignore[no-untyped-def]
    """Put the states that are likeliest at any place into candidates [start, end), in ascending order."""
    n_places, n = len(posterior_PK), len(state_K)
    most_K = np.zeros(n, np.float32)
    for p in range(n_places):
        for k in range(n):
            most_K[k] = max(most_K[k], posterior_PK[p, k])
    chosen_K = np.argsort(-most_K, kind="mergesort")[: end - start]
    chosen_K = chosen_K[np.argsort(state_K[chosen_K])]
    for c in range(start, end):
        k = chosen_K[c - start]
        candidate_C[c] = state_K[k]
        for p in range(n_places):
            out_CP[c, slot + p] = posterior_PK[p, k]


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
