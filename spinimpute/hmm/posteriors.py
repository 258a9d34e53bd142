"""Posterior probability that a query copies each candidate, by the model of Li and Stephens.

Unlike a comparison of a query with a single haplotype, the posterior of a hidden Markov model (`steps`)
depends on whether another haplotype matches better, here or nearby. Its states are all haplotypes of the
panel, or, in a panel of more than MOST_STATES, a query's own candidates (`candidate_states`).

Most candidates of a block turn out to be unlikely and are dropped. So the sum of a candidate's posteriors
over the block's places comes first, the expected number of places that are copied from it. Its pattern has it
as a function of the values on both sides of the span. Where it is too little, no posterior needs to be known.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, G groups of queries, L queries side by side, B
blocks of gaps, I spans, H spans that are held, D patterns of a span, F factors, C candidates, P places of a
block or span, X values that are kept, W 64-bit words, 2 alleles of a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidate_states import posteriors_of_own_states
from spinimpute.hmm.candidates import Candidates, in_blocks
from spinimpute.hmm.emissions import side_by_side
from spinimpute.hmm.lanes import all_lanes, lane, load, store
from spinimpute.hmm.parameters import LANES, ROUNDING, SPAN
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
from spinimpute.runtime.kernels import kernel

FACTORS = 4  # of the values on both sides of a span: both, either, none
assert SPAN == LANES, "what is known of a span's places is read as one row of lanes"


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
        places of a block are dropped; in a large panel only if it is also below LEAST_OF_ALIKE of what each
        of the query's states has where all are alike.

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
    n_queries = len(emission_QS2)
    found_C = np.empty(len(candidate_C), np.int32)
    found_CP = np.empty((len(candidate_C), n_slots), np.float32)
    start_QB, count_QB = np.zeros((2, n_queries, len(first_B)), np.int64)
    _posteriors_of_all(
        *patterns, side_by_side(emission_QS2), jump_S, *blocks, candidate_C, least, found_C, found_CP,
        start_QB, count_QB,
    )  # fmt: skip
    out_CP, kept = in_blocks(found_C, found_CP, start_QB, count_QB)
    _fill_ends(len(jump_S), *blocks[:2], kept.first_BQ1, out_CP)
    return out_CP, kept


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
    candidate_C, least, found_C, found_CP, start_QB, count_QB,
):  # fmt: skip
    """Fill found_C and found_CP with candidates that have `least` at any place of their block.

    start_QB, count_QB: where those of a query and block begin, and how many they are.
    """
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
    # spans in which a block has places
    n_held = ((block_last_B - block_first_B).max() + SPAN - 1) // SPAN + 1
    back_stay_HPDL, back_come_HPDL = (
        np.empty((n_held, SPAN, most, LANES), np.float32),
        np.empty((n_held, SPAN, most, LANES), np.float32),
    )
    sum_HDLF = np.empty((n_held, most, LANES, FACTORS), np.float32)
    values_HDFP, row_X = (
        np.empty((n_held, most, FACTORS, SPAN), np.float32),
        np.empty(n_held * SPAN, np.float32),
    )
    filled_HD, kept_from_H3 = np.full((n_held, most), -1, np.int64), np.empty((n_held, 3), np.int64)
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    forward_DL, backward_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L, scale_SL = np.empty(LANES, np.float32), np.empty((n_places, LANES), np.float32)
    divisor_L, joint_L, joint_HPL = (
        np.empty(LANES, np.float32),
        np.empty(LANES, np.float32),
        np.empty((n_held, SPAN, LANES), np.float32),
    )
    kept_X, forward_IB = np.empty(1_024, np.float32), np.empty((n_spans, n_blocks), np.int64)
    backward_IB = np.empty((n_spans, n_blocks), np.int64)
    n_found = 0
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
                        forward_IB[i, block] = n_kept
                        kept_X, n_kept = _keep(
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
                    back_stay_HPDL[i % n_held, at, :d] = stay_DL[:d]
                    back_come_HPDL[i % n_held, at, :d] = come_DL[:d]
                    joint_HPL[i % n_held, at] = joint_L
                step_back(
                    bits_here_D, count_here_D, at, emission_S2L[p], jump_S[p], n, backward_DL,
                    stay_DL, come_DL, divisor_L,
                )  # fmt: skip
                if wanted and p > 0:  # forward times backward values have the same sum, but for their scales
                    store(joint_L, 0, load(joint_L, 0) * load(divisor_L, 0) * load(scale_SL[p - 1], 0))
            if wanted:
                for block in range(n_blocks):
                    block_first, block_last = block_first_B[block], block_last_B[block]
                    low, high = _shared(block_first, block_last, i, n_places)
                    if low >= high:
                        continue
                    backward_IB[i, block] = n_kept
                    kept_X, n_kept = _keep(
                        backward_NL, candidate_C, first_BQ1[block], group * LANES, kept_X, n_kept
                    )
                    if low > max(block_first, 0):
                        continue  # it has places in the span before
                    stop = min(block_last, n_places - 1) // SPAN + 1
                    for span in range(i, stop):
                        low, high = _shared(block_first, block_last, span, n_places)
                        _sum_over_places(
                            count_D[first_I1[span] : first_I1[span + 1]], first_I1[span] - kept_first,
                            stay_PDL, come_PDL, back_stay_HPDL[span % n_held], back_come_HPDL[span % n_held],
                            joint_HPL[span % n_held], low - span * SPAN, high - span * SPAN,
                            sum_HDLF[span % n_held],
                        )  # fmt: skip
                    n_found = _write_likely(
                        pattern_IN, first_I1, count_D, stay_PDL, come_PDL, back_stay_HPDL, back_come_HPDL,
                        joint_HPL, sum_HDLF, kept_X, forward_IB[:, block], backward_IB[:, block], i, stop,
                        block_first, block_last, n_places, kept_first, candidate_C, first_BQ1[block],
                        group * LANES, least, values_HDFP, filled_HD, (group * n_blocks + block) * LANES,
                        row_X, kept_from_H3, found_C, found_CP, start_QB[:, block], count_QB[:, block],
                        n_found,
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
def _keep(value_NL, candidate_C, first_Q1, q0, kept_X, n_kept):  # type: ignore[no-untyped-def]
    """Put aside values on one side of a span, of LANES queries' candidates; returns all and their number."""
    n_queries = min(LANES, len(first_Q1) - 1 - q0)
    n = n_kept + first_Q1[q0 + n_queries] - first_Q1[q0]
    if n > len(kept_X):
        longer = np.empty(2 * n, np.float32)
        longer[:n_kept] = kept_X[:n_kept]
        kept_X = longer
    for l in range(n_queries):
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            kept_X[n_kept] = value_NL[candidate_C[c], l]
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
def _sum_over_places(  # type: ignore[no-untyped-def]
    count_D, first, stay_PDL, come_PDL, back_stay_PDL, back_come_PDL, joint_PL, low, high, sum_DLF
):
    """What the sum of posteriors over the places [low, high) of a span is made of, for each pattern.

    With f and b, a haplotype's values on both sides of the span, the sum is sum[0] f b + sum[1] f +
    sum[2] b + sum[3]. first: the span's first pattern among those of stay_PDL. joint_PL: one over the sums
    of forward times backward values of all haplotypes.
    """
    for d in range(len(count_D)):
        share = np.float32(1) / count_D[d]
        of_both, of_forward = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        of_backward, alone = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        for p in range(low, high):
            joint = load(joint_PL, p)
            stay, come = load(stay_PDL[p], first + d) * joint, load(come_PDL[p], first + d) * joint * share
            back_stay, back_come = load(back_stay_PDL[p], d), load(back_come_PDL[p], d)
            of_both += stay * back_stay
            of_forward += stay * back_come
            of_backward += come * back_stay
            alone += come * back_come
        for l in range(LANES):
            sum_DLF[d, l, 0], sum_DLF[d, l, 1] = lane(of_both, l), lane(of_forward, l)
            sum_DLF[d, l, 2], sum_DLF[d, l, 3] = lane(of_backward, l), lane(alone, l)


@kernel(fast=True)
def _write_likely(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, count_D, stay_PDL, come_PDL, back_stay_HPDL, back_come_HPDL, joint_HPL, sum_HDLF,
    kept_X, forward_I, backward_I, begin, stop, block_first, block_last, n_places, kept_first, candidate_C,
    first_Q1, q0, least, values_HDFP, filled_HD, first_number, row_X, kept_from_H3, found_C, found_CP,
    start_Q, count_Q, n_found,
):  # fmt: skip
    """Of LANES queries' candidates of a block those that have `least`; returns how many are found in all.

    The block has places in the spans [begin, stop). forward_I, backward_I: where values on both sides of a
    span lie in kept_X. values_HDFP: room for `_fill_values`; filled_HD: the number of the query for which
    they are there, which another block or group has another number of; first_number: that of the first query
    here. row_X: room for posteriors at the spans' places; kept_from_H3: room.
    """
    n_held, n_spans = len(joint_HPL), stop - begin
    for j in range(n_spans):
        i = begin + j
        kept_from_H3[j, 0], kept_from_H3[j, 1], kept_from_H3[j, 2] = i % n_held, forward_I[i], backward_I[i]
    first_place, stop_place = max(block_first, 0), min(block_last + 1, n_places)
    for l in range(min(LANES, len(first_Q1) - 1 - q0)):
        start_Q[q0 + l] = n_found
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            h, x = candidate_C[c], c - first_Q1[q0]
            expected = np.float32(0)  # how many of the block's places the query copies from it
            for j in range(n_spans):
                f, b = kept_X[kept_from_H3[j, 1] + x], kept_X[kept_from_H3[j, 2] + x]
                sum_F = sum_HDLF[kept_from_H3[j, 0], pattern_IN[begin + j, h], l]
                expected += (sum_F[0] * b + sum_F[1]) * f + (sum_F[2] * b + sum_F[3])
            if expected * (np.float32(1) + ROUNDING) < least:
                continue
            for j in range(n_spans):
                held, d = kept_from_H3[j, 0], pattern_IN[begin + j, h]
                values_FP = values_HDFP[held, d]
                if filled_HD[held, d] != first_number + l:  # most candidates of a query share few patterns
                    filled_HD[held, d] = first_number + l
                    first = first_I1[begin + j]
                    _fill_values(
                        stay_PDL, come_PDL, first - kept_first + d, back_stay_HPDL[held],
                        back_come_HPDL[held], d, joint_HPL[held], l, np.float32(1) / count_D[first + d],
                        values_FP,
                    )  # fmt: skip
                f, b = kept_X[kept_from_H3[j, 1] + x], kept_X[kept_from_H3[j, 2] + x]
                forward = load(values_FP, 0) * f + load(values_FP, 1)
                store(row_X, j * SPAN, forward * (load(values_FP, 2) * b + load(values_FP, 3)))
            likely = 0
            for slot in range(found_CP.shape[1]):
                found_CP[n_found, slot] = 0
            for place in range(first_place, stop_place):
                posterior = row_X[place - begin * SPAN]
                found_CP[n_found, place - block_first] = posterior
                likely |= posterior >= least
            if likely:
                found_C[n_found] = h
                n_found += 1
        count_Q[q0 + l] = n_found - start_Q[q0 + l]
    return n_found


@kernel(fast=True)
def _fill_values(  # type: ignore[no-untyped-def]
    stay_PDL, come_PDL, d, back_stay_PDL, back_come_PDL, back_d, joint_PL, l, share, values_FP
):
    """What posteriors of a pattern's haplotypes at the places of a span are made of, for the query in lane l.

    With f and b, a haplotype's values on both sides of the span, they are (values[0] f + values[1])
    (values[2] b + values[3]). Places behind the last one get anything.
    """
    for p in range(SPAN):
        joint = joint_PL[p, l]
        values_FP[0, p] = stay_PDL[p, d, l] * joint
        values_FP[1, p] = come_PDL[p, d, l] * (share * joint)
        values_FP[2, p] = back_stay_PDL[p, back_d, l]
        values_FP[3, p] = back_come_PDL[p, back_d, l]
