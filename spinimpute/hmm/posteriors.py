"""Posterior probability that a query copies each candidate, by the model of Li and Stephens.

Unlike a comparison of a query with a single haplotype, the posterior of a hidden Markov model (`steps`)
depends on whether another haplotype matches better, here or nearby. Its states are all haplotypes of the
panel, or, in a panel of more than MOST_STATES, a query's own candidates, of all blocks: with a hundred
thousand haplotypes nearly all of the probability lies on the few hundred that match a query somewhere in the
chunk, and going through all of them takes most of the time. A query still leaves a haplotype for any of the
panel: those that are no states explain none of its calls. Each query has states of its own, so that no
result depends on which queries are imputed together.

Axes: S typed places of a chunk, N panel haplotypes, K states of a query, Q queries, G groups of queries, L
queries side by side, B blocks of gaps, I spans, D patterns of a span, C candidates, P places of a block or
span, W 64-bit words, 2 alleles of a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.emissions import side_by_side
from spinimpute.hmm.lanes import all_lanes, load, store, sum_lanes
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, most_patterns
from spinimpute.hmm.steps import (
    emit,
    end_span,
    go_through,
    go_through_to_meet,
    leave,
    meet,
    step_back,
    step_back_states,
    step_forward_states,
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
        Those that stay.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    candidate_C, first_BQ1 = candidates
    out_CP = np.zeros((len(candidate_C), int(n_gaps_B.max()) + 1), np.float32)
    n_haplotypes = len(panel_NW)
    blocks = first_B - 1, first_B + n_gaps_B - 1, first_BQ1
    if n_haplotypes > parameters.MOST_STATES:
        _posteriors_of_lists(panel_NW, emission_QS2, jump_S, *blocks, candidate_C, out_CP)
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
    n_kept = first_I1[wanted_stop] - kept_first
    start_INL = np.empty((wanted_stop - wanted_first, n, LANES), np.float32)
    stay_PDL, come_PDL = (
        np.empty((SPAN, n_kept, LANES), np.float32),
        np.empty((SPAN, n_kept, LANES), np.float32),
    )
    back_stay_PDL, back_come_PDL = (
        np.empty((SPAN, most, LANES), np.float32),
        np.empty((SPAN, most, LANES), np.float32),
    )
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    forward_DL, backward_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L, scale_PL = np.empty(LANES, np.float32), np.empty((SPAN, LANES), np.float32)
    for group in range(len(emission_GS2L)):
        emission_S2L = emission_GS2L[group]
        forward_NL[:] = np.float32(1) / n
        if wanted_first == 0:
            start_INL[0] = forward_NL
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
                if i >= wanted_first:
                    stay_PDL[at, first - kept_first : first - kept_first + d] = stay_DL[:d]
                    come_PDL[at, first - kept_first : first - kept_first + d] = come_DL[:d]
            if i + 1 == wanted_stop:
                continue
            end_span(count_here_D, scale_L, stay_DL, come_DL)
            go_through(
                pattern_IN[i], stay_DL, come_DL,
                start_INL[i - wanted_first] if i >= wanted_first else forward_NL,
                start_INL[i + 1 - wanted_first] if i + 1 >= wanted_first else forward_NL,
                pattern_IN[i + 1], forward_DL[: first_I1[i + 2] - first_I1[i + 1]],
            )  # fmt: skip
        backward_NL[:] = 1
        last_d = first_I1[n_spans] - first_I1[n_spans - 1]
        if n_spans == wanted_stop:
            sum_both(
                pattern_IN[n_spans - 1], start_INL[n_spans - 1 - wanted_first], backward_NL,
                forward_DL[:last_d], backward_DL[:last_d], product_DL[:last_d],
            )  # fmt: skip
        else:
            sum_patterns(pattern_IN[n_spans - 1], backward_NL, backward_DL[:last_d])
        for i in range(n_spans - 1, wanted_first - 1, -1):
            first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
            kept = slice(first - kept_first, first - kept_first + d)
            bits_here_D, count_here_D = bits_D[first : first + d], count_D[first : first + d]
            wanted = i < wanted_stop
            stay_DL[:d] = 1
            come_DL[:d] = 0
            for p in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
                at = p - i * SPAN
                if wanted:
                    back_stay_PDL[at, :d] = stay_DL[:d]
                    back_come_PDL[at, :d] = come_DL[:d]
                    _scale_of_place(
                        count_here_D, forward_DL, backward_DL, product_DL, stay_PDL[at, kept],
                        come_PDL[at, kept], stay_DL, come_DL, scale_PL[at],
                    )  # fmt: skip
                step_back(
                    bits_here_D, count_here_D, at, emission_S2L[p], jump_S[p], n, backward_DL,
                    stay_DL, come_DL,
                )  # fmt: skip
            if wanted:
                for block in range(n_blocks):
                    low = max(block_first_B[block], i * SPAN)
                    high = min(block_last_B[block] + 1, i * SPAN + SPAN, n_places)
                    if low < high:
                        _write_probabilities(
                            pattern_IN[i], count_here_D, start_INL[i - wanted_first], backward_NL,
                            stay_PDL[:, kept], come_PDL[:, kept], back_stay_PDL, back_come_PDL, scale_PL,
                            candidate_C, first_BQ1[block], group * LANES, low - i * SPAN, high - i * SPAN,
                            low - block_first_B[block], out_CP,
                        )  # fmt: skip
            if i == wanted_first:
                continue
            next_d = first - first_I1[i - 1]
            if i - 1 < wanted_stop:
                go_through_to_meet(
                    pattern_IN[i], stay_DL, come_DL, backward_NL, pattern_IN[i - 1],
                    start_INL[i - 1 - wanted_first], backward_DL[:next_d], forward_DL[:next_d],
                    product_DL[:next_d],
                )  # fmt: skip
            else:
                go_through(
                    pattern_IN[i], stay_DL, come_DL, backward_NL, backward_NL, pattern_IN[i - 1],
                    backward_DL[:next_d],
                )  # fmt: skip


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
    pattern_N, count_D, forward_NL, backward_NL, stay_PDL, come_PDL, back_stay_PDL, back_come_PDL, scale_PL,
    candidate_C, first_Q1, q0, low, high, slot, out_CP,
):  # fmt: skip
    """Of the candidates of LANES queries at the places [low, high) of a span; slot: where the first goes."""
    for l in range(min(LANES, len(first_Q1) - 1 - q0)):
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            h = candidate_C[c]
            d = pattern_N[h]
            f, b, share = forward_NL[h, l], backward_NL[h, l], np.float32(1) / count_D[d]
            for p in range(low, high):
                forward = stay_PDL[p, d, l] * f + come_PDL[p, d, l] * share
                backward = back_stay_PDL[p, d, l] * b + back_come_PDL[p, d, l]
                out_CP[c, slot + p - low] = forward * backward * scale_PL[p, l]


# a query's own candidates are states


@kernel()
def _posteriors_of_lists(  # type: ignore[no-untyped-def]
    panel_NW, emission_QS2, jump_S, block_first_B, block_last_B, first_BQ1, candidate_C, out_CP
):
    """Fill out_CP as `_posteriors_of_all` does."""
    n_places, n_blocks = len(jump_S), len(block_first_B)
    n_haplotypes, n_words = panel_NW.shape
    first = max(block_first_B[0], 0)
    stop = min(block_last_B[n_blocks - 1], n_places - 1) + 1
    number_N = np.full(n_haplotypes, -1, np.int32)
    state_N = np.empty(n_haplotypes, np.int32)
    forward_X = np.empty(0, np.float32)  # of all queries, one after the other: memory that is new costs time
    for q in range(len(emission_QS2)):
        emission_S2 = emission_QS2[q]
        n = _states(candidate_C, first_BQ1, q, number_N, state_N)
        if n == 0:
            continue
        n_padded = -(-n // LANES) * LANES
        bits_WK = np.zeros((n_words, n_padded), np.uint64)
        for k in range(n):
            for w in range(n_words):
                bits_WK[w, k] = panel_NW[state_N[k], w]
        share_K, allele_K = np.zeros(n_padded, np.float32), np.empty(n_padded, np.uint8)
        share_K[:n] = np.float32(1) / np.float32(n_haplotypes)
        if len(forward_X) < (stop - first) * n_padded:
            forward_X = np.empty(2 * (stop - first) * n_padded, np.float32)
        forward_SK = forward_X[: (stop - first) * n_padded].reshape((stop - first, n_padded))
        value_K, total = share_K.copy(), np.float32(1)
        for p in range(stop):
            _alleles_at(bits_WK, p, allele_K)
            next_K = value_K if p < first else forward_SK[p - first]
            total = step_forward_states(allele_K, share_K, emission_S2[p], jump_S[p], value_K, total, next_K)
            value_K = next_K
        backward_K, posterior_K = np.ones(n_padded, np.float32), np.empty(n_padded, np.float32)
        for p in range(n_places - 1, first - 1, -1):
            if p < stop:
                _multiply(forward_SK[p - first], backward_K, posterior_K)
                for b in range(n_blocks):
                    if block_first_B[b] <= p <= block_last_B[b]:
                        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                            out_CP[c, p - block_first_B[b]] = posterior_K[number_N[candidate_C[c]]]
            _alleles_at(bits_WK, p, allele_K)
            step_back_states(allele_K, share_K, emission_S2[p], jump_S[p], share_K, np.float32(1), backward_K)
        for k in range(n):
            number_N[state_N[k]] = -1


@kernel()
def _states(candidate_C, first_BQ1, q, number_N, state_N):  # type: ignore[no-untyped-def]
    """List a query's candidates once each in state_N, and return their number.

    number_N: -1, then their places in the list.
    """
    n_states = 0
    for b in range(len(first_BQ1)):
        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
            h = candidate_C[c]
            if number_N[h] < 0:
                number_N[h] = n_states
                state_N[n_states] = h
                n_states += 1
    return n_states


@kernel()
def _alleles_at(bits_WK, place, allele_K):  # type: ignore[no-untyped-def]
    word, bit = place >> 6, np.uint64(place & 63)
    for k in range(len(allele_K)):
        allele_K[k] = (bits_WK[word, k] >> bit) & np.uint64(1)


@kernel(fast=True)
def _multiply(forward_K, backward_K, posterior_K):  # type: ignore[no-untyped-def]
    """Posteriors of the states."""
    total = all_lanes(np.float32(0))
    for k in range(0, len(posterior_K), LANES):
        product = load(forward_K, k) * load(backward_K, k)
        store(posterior_K, k, product)
        total += product
    scale = np.float32(1) / sum_lanes(total)
    for k in range(0, len(posterior_K), LANES):
        store(posterior_K, k, load(posterior_K, k) * scale)
