"""Posterior probability that a query copies each candidate, by the model of Li and Stephens.

Unlike a comparison of a query with a single haplotype, the posterior of a hidden Markov model (`steps`)
depends on whether another haplotype matches better, here or nearby. Its states are all haplotypes of the
panel, or, in a panel of more than MOST_STATES, a query's own candidates (`candidate_states`).

Axes: S typed places of a chunk, N panel haplotypes, Q queries, G groups of queries, L queries side by side, B
blocks of gaps, I spans, D patterns of a span, C candidates, P places of a block or span, W 64-bit words, 2
alleles of a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidate_states import posteriors_of_own_states
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
        The place on the right of a block's first gap, and the number of its gaps; blocks ascend.
    least_share : float
        Times the prior probability of a haplotype, 1 / N. Candidates whose posterior is below this at all
        places of a block are dropped.

    Returns
    -------
    float32 (C, P)
        Posteriors of the candidates that stay, in their order, at the places first - 1 ...
        first + n_gaps - 1.
    Candidates
        Those that stay; in a large panel others, too, where they are unlikely (`candidate_states`).

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    candidate_C, first_BQ1 = candidates
    n_haplotypes, n_slots = len(panel_NW), int(n_gaps_B.max()) + 1
    blocks = first_B - 1, first_B + n_gaps_B - 1, first_BQ1
    least = np.float32(least_share / n_haplotypes)
    if n_haplotypes > parameters.MOST_STATES:
        out_CP, kept = posteriors_of_own_states(
            panel_NW, emission_QS2, jump_S, candidates, *blocks[:2], n_slots, least
        )
        _fill_ends(len(jump_S), *blocks[:2], kept.first_BQ1, out_CP)
        return out_CP, kept
    assert patterns is not None, "only a large panel needs none"
    out_CP = np.zeros((len(candidate_C), n_slots), np.float32)
    stay_C = np.zeros(len(candidate_C), np.bool_)
    _posteriors_of_all(
        *patterns, side_by_side(emission_QS2), jump_S, *blocks, candidate_C, least, out_CP, stay_C
    )
    _fill_ends(len(jump_S), *blocks, out_CP)
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


@kernel(fast=True)
def _posteriors_of_all(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, emission_GS2L, jump_S, block_first_B, block_last_B, first_BQ1,
    candidate_C, least, out_CP, stay_C,
):  # fmt: skip
    """Fill out_CP at the places that there are, and stay_C: whether a candidate has `least` at any."""
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
                            low - block_first_B[block], least, out_CP, stay_C,
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
    candidate_C, first_Q1, q0, low, high, slot, least, out_CP, stay_C,
):  # fmt: skip
    """Of the candidates of LANES queries at the places [low, high) of a span.

    forward_X: their values before it. joint_PL: one over the sums of forward times backward values. slot:
    where the first place goes. stay_C: set where a candidate has `least`.
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
                posterior = forward * backward * joint_PL[p, l]
                out_CP[c, slot + p - low] = posterior
                if posterior >= least:
                    stay_C[c] = True
