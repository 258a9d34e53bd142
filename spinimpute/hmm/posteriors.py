"""Posterior probability that a query copies each of its candidates, by the model of Li and Stephens.

Unlike the length of a match, the posterior of the hidden Markov model (`steps`) takes into account whether
other haplotypes match better, here or nearby. Predictors use it to weight the candidates that `pbwt` has
found. The states of the model are all panel haplotypes or, in a panel of more than MAX_PANEL_AS_STATES
haplotypes, a query's own candidates (`candidate_states`).

Most candidates of a block are unlikely and are dropped. The sum of a candidate's posteriors over the places
of a span is a simple function of the candidate's pattern and of its values on both sides of the span.
Therefore the sum over the block's spans is computed first. Posteriors at single places are computed only if
this sum reaches the threshold.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, G groups of LANES queries, L queries of a
group, B blocks of gaps, I spans, H spans whose backward values are kept, J spans of a block, D patterns of a
span, F = FACTORS coefficients, C candidates, P places of a block or span, X stored values, 2 alleles of a
state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.candidate_states import (
    BlockPlaces,
    KeptCandidates,
    fill_posteriors_of_own_states,
    order_by_block,
)
from spinimpute.hmm.lanes import all_lanes, lane, load, store
from spinimpute.hmm.parameters import LANES, ROUNDING, SPAN
from spinimpute.hmm.patterns import SpanPatterns, max_patterns
from spinimpute.hmm.pbwt import Candidates
from spinimpute.hmm.steps import (
    SpanSums,
    SpanValues,
    apply_emissions,
    cross_span_and_sum,
    end_span,
    group_lanes,
    n_patterns,
    span_sums,
    span_values,
    start_span,
    step_back,
    sum_around,
    sum_patterns,
    sum_products,
    transition,
)
from spinimpute.runtime.kernels import kernel

FACTORS = 4  # coefficients of f b, f, b and 1, for the values f and b on both sides of a span
assert SPAN == LANES, "values at a span's places are read as one row of lanes"


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
    """Return the posteriors of the likely candidates of each block and query, and these candidates.

    patterns: may be None for panels of more than MAX_PANEL_AS_STATES haplotypes. emission_QS2, jump_S: see
    `allele_emissions` and `jump_probabilities`. first_B, n_gaps_B: int64, the place to the right of each
    block's first gap and the block's number of gaps; blocks ascend.

    The posteriors, float32 (C, P), are those at the places on both sides of the block's gaps: first - 1 ...
    first + n_gaps - 1. A candidate is dropped if its posterior is below a threshold at all of these places.
    The threshold is least_share / N. In a large panel it is at most MAX_THRESHOLD_SHARE / (number of the
    query's states), and other states may be added to the candidates (`candidate_states`).
    """
    n_slots = int(n_gaps_B.max()) + 1
    blocks = BlockPlaces(first_B - 1, first_B + n_gaps_B - 1)
    threshold = np.float32(least_share / len(panel_NW))
    n_candidates = len(candidates.haplotype_C)
    start_QB, count_QB = np.zeros((2, len(emission_QS2), len(first_B)), np.int64)
    kept = KeptCandidates(
        np.empty(n_candidates, np.int32), np.empty((n_candidates, n_slots), np.float32), start_QB, count_QB
    )
    if len(panel_NW) > parameters.MAX_PANEL_AS_STATES:
        fill_posteriors_of_own_states(panel_NW, emission_QS2, jump_S, blocks, candidates, threshold, kept)
    else:
        assert patterns is not None, "only a large panel needs no patterns"
        emission_GS2L = group_lanes(emission_QS2)
        _fill_posteriors_of_all(_Model(patterns, jump_S, blocks, candidates, threshold), emission_GS2L, kept)
    posterior_CP, candidates = order_by_block(kept)
    _fill_ends(len(jump_S), blocks, candidates.first_BQ1, posterior_CP)
    return posterior_CP, candidates


@kernel()
def _fill_ends(n_places, blocks, first_BQ1, posterior_CP):  # type: ignore[no-untyped-def]
    """Copy the nearest place's values to first and last places of blocks that are outside of the chunk."""
    for block in range(len(first_BQ1)):
        for c in range(first_BQ1[block, 0], first_BQ1[block, -1]):
            if blocks.first_B[block] < 0:
                posterior_CP[c, 0] = posterior_CP[c, 1]
            if blocks.last_B[block] >= n_places:
                slot = n_places - blocks.first_B[block]
                posterior_CP[c, slot] = posterior_CP[c, slot - 1]


class _Forward(NamedTuple):
    """Forward values of a group of queries in the spans [first_span, stop_span), which the blocks cover."""

    first_span: int
    stop_span: int
    first_pattern: int  # index of these spans' first pattern among the patterns of all spans
    # stay_PDL, switch_PDL: float32, values of `steps.SpanValues` at each place; D starts with first_pattern
    stay_PDL: np.ndarray
    switch_PDL: np.ndarray
    scale_SL: np.ndarray  # float32, one over the sum of all values at each place


class _Held(NamedTuple):
    """Backward values of a group of queries in the spans of one block; span i is at index i modulo H.

    The arrays are float32, except filled_HD.
    """

    # stay_HPDL, switch_HPDL: values of `steps.SpanValues` to the right of each place
    stay_HPDL: np.ndarray
    switch_HPDL: np.ndarray
    joint_HPL: np.ndarray  # one over the sum of forward times backward values of all haplotypes
    # sum_HDLF, values_HDFP: see `_sum_over_places` and `_fill_values`
    sum_HDLF: np.ndarray
    values_HDFP: np.ndarray
    filled_HD: np.ndarray  # int64, number of the block and query for which values_HDFP was last filled


class _Ends(NamedTuple):
    """Values of the candidates on both sides of each span of their block."""

    value_X: np.ndarray  # float32, for each span and block the values of the candidates of LANES queries
    # forward_IB, backward_IB: int64, where the forward and backward values of a span and block start in
    # value_X
    forward_IB: np.ndarray
    backward_IB: np.ndarray


class _Model(NamedTuple):
    """The arguments of `copying_posteriors` that all groups of queries share."""

    patterns: SpanPatterns
    jump_S: np.ndarray
    blocks: BlockPlaces
    candidates: Candidates
    threshold: np.float32


class _Workspace(NamedTuple):
    """Memory that is reused for each group of queries."""

    values: SpanValues
    sums: SpanSums
    forward_NL: np.ndarray
    backward_NL: np.ndarray
    forward: _Forward
    held: _Held
    ends: _Ends


@kernel(fast=True)
def _fill_posteriors_of_all(model, emission_GS2L, kept):  # type: ignore[no-untyped-def]
    """Fill `KeptCandidates` with the candidates that reach the threshold at any place of their block."""
    work, n_kept = _allocate(model), 0
    for group in range(len(emission_GS2L)):
        n_ends = _go_forward(model, emission_GS2L[group], group, work)
        n_kept = _go_backward(model, emission_GS2L[group], group, work, n_ends, kept, n_kept)


@kernel()
def _allocate(model):  # type: ignore[no-untyped-def]
    patterns, blocks = model.patterns, model.blocks
    n_spans, n = patterns.pattern_IN.shape
    n_places, n_blocks = len(model.jump_S), len(blocks.first_B)
    first_span = max(blocks.first_B[0], 0) // SPAN
    stop_span = min(blocks.last_B[n_blocks - 1], n_places - 1) // SPAN + 1
    max_d, first_pattern = max_patterns(patterns.first_I1), patterns.first_I1[first_span]
    shape_PDL = SPAN, patterns.first_I1[stop_span] - first_pattern, LANES
    forward = _Forward(
        first_span, stop_span, first_pattern, np.empty(shape_PDL, np.float32),
        np.empty(shape_PDL, np.float32), np.empty((n_places, LANES), np.float32),
    )  # fmt: skip
    n_held = ((blocks.last_B - blocks.first_B).max() + SPAN - 1) // SPAN + 1
    shape_HPDL = n_held, SPAN, max_d, LANES
    held = _Held(
        np.empty(shape_HPDL, np.float32), np.empty(shape_HPDL, np.float32),
        np.empty((n_held, SPAN, LANES), np.float32), np.empty((n_held, max_d, LANES, FACTORS), np.float32),
        np.empty((n_held, max_d, FACTORS, SPAN), np.float32), np.full((n_held, max_d), -1, np.int64),
    )  # fmt: skip
    ends = _Ends(
        np.empty(_max_end_values(blocks, model.candidates.first_BQ1, n_places), np.float32),
        np.empty((n_spans, n_blocks), np.int64), np.empty((n_spans, n_blocks), np.int64),
    )  # fmt: skip
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    return _Workspace(
        span_values(patterns), span_sums(patterns), forward_NL, backward_NL, forward, held, ends
    )


@kernel()
def _max_end_values(blocks, first_BQ1, n_places):  # type: ignore[no-untyped-def]
    """Return the size of `_Ends.value_X` that suffices for every group of queries."""
    n_queries, largest = first_BQ1.shape[1] - 1, 0
    for q in range(0, n_queries, LANES):
        n_values = 0
        for block in range(len(first_BQ1)):
            first, last = max(blocks.first_B[block], 0), min(blocks.last_B[block], n_places - 1)
            n_candidates = first_BQ1[block, min(q + LANES, n_queries)] - first_BQ1[block, q]
            n_values += 2 * n_candidates * (last // SPAN + 1 - first // SPAN)
        largest = max(largest, n_values)
    return largest


@kernel(fast=True)
def _go_forward(model, emission_S2L, group, work):  # type: ignore[no-untyped-def]
    """Run the forward pass of a group of queries; return the number of values in `_Ends`."""
    patterns, jump_S, blocks, candidates, _ = model
    values, sums, forward_NL, _, forward, _, ends = work
    n_places, n_ends = len(jump_S), 0
    forward_NL[:] = np.float32(1) / len(forward_NL)
    sum_patterns(patterns, 0, forward_NL, sums.left_DL)
    for i in range(forward.stop_span):
        d = n_patterns(patterns, i)
        first = patterns.first_I1[i] - forward.first_pattern
        start_span(patterns, i, values)
        for p in range(i * SPAN, min(i * SPAN + SPAN, n_places)):
            transition(patterns, p, jump_S[p], values)
            apply_emissions(patterns, p, emission_S2L, sums.left_DL, values)
            forward.scale_SL[p] = values.scale_L
            if i >= forward.first_span:
                forward.stay_PDL[p - i * SPAN, first : first + d] = values.stay_DL[:d]
                forward.switch_PDL[p - i * SPAN, first : first + d] = values.switch_DL[:d]
        if i >= forward.first_span:
            for block in range(len(blocks.first_B)):
                low, high = _shared_places(blocks, block, i, n_places)
                if low < high:
                    ends.forward_IB[i, block] = n_ends
                    n_ends = _keep_ends(forward_NL, candidates, block, group, ends.value_X, n_ends)
        if i + 1 < forward.stop_span:
            end_span(patterns, i, values)
            cross_span_and_sum(patterns, i, i + 1, values, forward_NL, forward_NL, sums.left_DL)
    return n_ends


@kernel(fast=True)
def _go_backward(model, emission_S2L, group, work, n_ends, kept, n_kept):  # type: ignore[no-untyped-def]
    """Run the backward pass of a group of queries.

    When the pass reaches a block's first place, the block's likely candidates are written to `kept`. n_ends:
    number of values in `_Ends`. n_kept: number of candidates in `kept`; the new number is returned.
    """
    patterns, jump_S, blocks, candidates, _ = model
    values, sums, forward_NL, backward_NL, forward, held, ends = work
    n_spans, n_places, n_held = len(patterns.pattern_IN), len(jump_S), len(held.joint_HPL)
    joint_L = np.empty(LANES, np.float32)
    backward_NL[:] = 1
    sum_patterns(patterns, n_spans - 1, backward_NL, sums.right_DL)
    for i in range(n_spans - 1, forward.first_span - 1, -1):
        d = n_patterns(patterns, i)
        needed = i < forward.stop_span
        last = min(i * SPAN + SPAN, n_places) - 1
        start_span(patterns, i, values)
        if i == forward.stop_span - 1:
            sum_around(patterns, i, forward_NL, backward_NL, sums)
            _scale_of_place(patterns, last, forward, sums, values, joint_L)
        for p in range(last, i * SPAN - 1, -1):
            offset = p - i * SPAN
            if needed:
                held.stay_HPDL[i % n_held, offset, :d] = values.stay_DL[:d]
                held.switch_HPDL[i % n_held, offset, :d] = values.switch_DL[:d]
                held.joint_HPL[i % n_held, offset] = joint_L
            step_back(patterns, p, emission_S2L, jump_S[p], sums.right_DL, values)
            if needed and p > 0:  # the sum of forward times backward values changes only by scaling
                store(joint_L, 0, load(joint_L, 0) * load(values.scale_L, 0) * load(forward.scale_SL, p - 1))
        if needed:
            for block in range(len(blocks.first_B)):
                low, high = _shared_places(blocks, block, i, n_places)
                if low >= high:
                    continue
                ends.backward_IB[i, block] = n_ends
                n_ends = _keep_ends(backward_NL, candidates, block, group, ends.value_X, n_ends)
                if low > max(blocks.first_B[block], 0):
                    continue  # the block also has places in the span to the left
                stop = min(blocks.last_B[block], n_places - 1) // SPAN + 1
                for span in range(i, stop):
                    low, high = _shared_places(blocks, block, span, n_places)
                    _sum_over_places(patterns, span, low - span * SPAN, high - span * SPAN, forward, held)
                n_kept = _write_likely(model, i, stop, block, group, work, kept, n_kept)
        if i > forward.first_span:
            cross_span_and_sum(patterns, i, i - 1, values, backward_NL, backward_NL, sums.right_DL)
    return n_kept


@kernel()
def _shared_places(blocks, block, span, n_places):  # type: ignore[no-untyped-def]
    """Return the interval of places [low, high) that are in both the block and the span."""
    low = max(blocks.first_B[block], span * SPAN)
    return low, min(blocks.last_B[block] + 1, span * SPAN + SPAN, n_places)


@kernel()
def _keep_ends(value_NL, candidates, block, group, value_X, n):  # type: ignore[no-untyped-def]
    """Append the values of a group's candidates on one side of a span to value_X; return its new length.

    n: the length of value_X so far.
    """
    first_BQ1, first_query = candidates.first_BQ1, group * LANES
    for l in range(min(LANES, first_BQ1.shape[1] - 1 - first_query)):
        for c in range(first_BQ1[block, first_query + l], first_BQ1[block, first_query + l + 1]):
            value_X[n] = value_NL[candidates.haplotype_C[c], l]
            n += 1
    return n


@kernel(fast=True)
def _scale_of_place(patterns, place, forward, sums, values, scale_L):  # type: ignore[no-untyped-def]
    """Fill scale_L with one over the sum of forward times backward values of all haplotypes."""
    stay_DL, switch_DL, _ = values
    left_DL, right_DL, product_DL = sums
    span = place // SPAN
    offset, first_count = place % SPAN, patterns.first_I1[span]
    first = first_count - forward.first_pattern
    total = all_lanes(np.float32(0))
    for d in range(n_patterns(patterns, span)):
        stayed, switch, factor = sum_products(
            load(forward.stay_PDL, (offset, first + d)), load(forward.switch_PDL, (offset, first + d)),
            load(left_DL, d), load(stay_DL, d), load(switch_DL, d), load(right_DL, d), load(product_DL, d),
            np.float32(1) / patterns.count_D[first_count + d],
        )  # fmt: skip
        total += stayed
        total += switch * factor
    store(scale_L, 0, np.float32(1) / total)


@kernel(fast=True)
def _sum_over_places(patterns, span, low, high, forward, held):  # type: ignore[no-untyped-def]
    """Fill sum_HDLF: each pattern's coefficients of the sum of posteriors over the places [low, high).

    For a haplotype with forward value f to the left of the span and backward value b to its right, the sum is

        sum[0] f b + sum[1] f + sum[2] b + sum[3]
    """
    h, first_count = span % len(held.joint_HPL), patterns.first_I1[span]
    first = first_count - forward.first_pattern
    stay_HPDL, switch_HPDL, joint_HPL, sum_HDLF = (
        held.stay_HPDL,
        held.switch_HPDL,
        held.joint_HPL,
        held.sum_HDLF,
    )
    for d in range(n_patterns(patterns, span)):
        share = np.float32(1) / patterns.count_D[first_count + d]
        factor_fb, factor_f = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        factor_b, constant = all_lanes(np.float32(0)), all_lanes(np.float32(0))
        for p in range(low, high):
            joint = load(joint_HPL, (h, p))
            stay = load(forward.stay_PDL, (p, first + d)) * joint
            switch = load(forward.switch_PDL, (p, first + d)) * joint * share
            back_stay, back_switch = load(stay_HPDL, (h, p, d)), load(switch_HPDL, (h, p, d))
            factor_fb += stay * back_stay
            factor_f += stay * back_switch
            factor_b += switch * back_stay
            constant += switch * back_switch
        for l in range(LANES):
            sum_HDLF[h, d, l, 0], sum_HDLF[h, d, l, 1] = lane(factor_fb, l), lane(factor_f, l)
            sum_HDLF[h, d, l, 2], sum_HDLF[h, d, l, 3] = lane(factor_b, l), lane(constant, l)


@kernel(fast=True)
def _write_likely(model, first_span, stop_span, block, group, work, kept, n_kept):  # type: ignore[no-untyped-def]
    """Write the candidates of a block that reach the threshold, for LANES queries.

    The block has places in the spans [first_span, stop_span). n_kept: number of candidates in `kept`; the new
    number is returned.
    """
    pattern_IN, first_I1, _, count_D = model.patterns
    haplotype_C, first_BQ1 = model.candidates
    forward, held, ends, threshold = work.forward, work.held, work.ends, model.threshold
    sum_HDLF, values_HDFP, filled_HD, value_X = held.sum_HDLF, held.values_HDFP, held.filled_HD, ends.value_X
    first_query, block_first = group * LANES, model.blocks.first_B[block]
    first_place, stop_place = max(block_first, 0), min(model.blocks.last_B[block] + 1, len(model.jump_S))
    n_spans = stop_span - first_span
    row_X, held_J = np.empty(n_spans * SPAN, np.float32), np.empty(n_spans, np.int64)
    forward_J, backward_J = np.empty(n_spans, np.int64), np.empty(n_spans, np.int64)
    for j in range(n_spans):
        i = first_span + j
        held_J[j], forward_J[j], backward_J[j] = (
            i % len(held.joint_HPL), ends.forward_IB[i, block], ends.backward_IB[i, block],
        )  # fmt: skip
    for l in range(min(LANES, first_BQ1.shape[1] - 1 - first_query)):
        q = first_query + l
        block_query = (group * len(first_BQ1) + block) * LANES + l
        kept.start_QB[q, block] = n_kept
        for c in range(first_BQ1[block, q], first_BQ1[block, q + 1]):
            haplotype, offset = haplotype_C[c], c - first_BQ1[block, first_query]
            expected = np.float32(0)  # sum of the candidate's posteriors over the block's places
            for j in range(n_spans):
                f, b = value_X[forward_J[j] + offset], value_X[backward_J[j] + offset]
                h, d = held_J[j], pattern_IN[first_span + j, haplotype]
                expected += (sum_HDLF[h, d, l, 0] * b + sum_HDLF[h, d, l, 1]) * f + (
                    sum_HDLF[h, d, l, 2] * b + sum_HDLF[h, d, l, 3]
                )
            if expected * (np.float32(1) + ROUNDING) < threshold:
                continue
            for j in range(n_spans):
                h, d, first = held_J[j], pattern_IN[first_span + j, haplotype], first_I1[first_span + j]
                if filled_HD[h, d] != block_query:  # filled once per pattern: candidates have few patterns
                    filled_HD[h, d] = block_query
                    _fill_values(
                        forward, first - forward.first_pattern + d, held, h, d, l, count_D[first + d]
                    )
                f, b = value_X[forward_J[j] + offset], value_X[backward_J[j] + offset]
                left = load(values_HDFP, (h, d, 0)) * f + load(values_HDFP, (h, d, 1))
                right = load(values_HDFP, (h, d, 2)) * b + load(values_HDFP, (h, d, 3))
                store(row_X, j * SPAN, left * right)
            for slot in range(kept.posterior_CP.shape[1]):
                kept.posterior_CP[n_kept, slot] = 0
            likely = 0
            for place in range(first_place, stop_place):
                posterior = row_X[place - first_span * SPAN]
                kept.posterior_CP[n_kept, place - block_first] = posterior
                likely |= posterior >= threshold
            if likely:
                kept.haplotype_C[n_kept] = haplotype
                n_kept += 1
        kept.count_QB[q, block] = n_kept - kept.start_QB[q, block]
    return n_kept


@kernel(fast=True)
def _fill_values(forward, forward_d, held, h, d, l, count):  # type: ignore[no-untyped-def]
    """Fill values_HDFP: coefficients of a pattern's posteriors at each place of a span, for lane l.

    For a haplotype with forward value f to the left of the span and backward value b to its right, the
    posterior at a place is

        (values[0] f + values[1]) (values[2] b + values[3])

    Coefficients of places after the last one are undefined.
    """
    values_HDFP, share = held.values_HDFP, np.float32(1) / count
    for p in range(SPAN):
        joint = held.joint_HPL[h, p, l]
        values_HDFP[h, d, 0, p] = forward.stay_PDL[p, forward_d, l] * joint
        values_HDFP[h, d, 1, p] = forward.switch_PDL[p, forward_d, l] * (share * joint)
        values_HDFP[h, d, 2, p] = held.stay_HPDL[h, p, d, l]
        values_HDFP[h, d, 3, p] = held.switch_HPDL[h, p, d, l]
