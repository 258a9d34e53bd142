"""One pass of phasing over a window: decides at each unphased heterozygote how its alleles are phased.

Each haplotype of a target copies the panel by the model of Li and Stephens. The backward pass, from right to
left, uses the phase of the previous pass (`backward_values`). The forward pass, from left to right, uses the
decisions of this pass. At each heterozygote it compares four alternatives: no change, exchange the two
alleles of this site, exchange the target's haplotypes at all places to the right, or both.

HALF targets are computed together: lane l is one haplotype of target l, lane l + HALF its other haplotype.

Axes: S typed places of a window, N haplotypes that may be copied, D patterns of a span, X rows of any array,
L lanes, H = HALF targets, 2 alleles of a state or haplotypes of a target.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from spinimpute.hmm.lanes import exchange_halves, load, multiply_add, store
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.steps import (
    allele_at,
    apply_emissions,
    clear_sums,
    cross_span_and_sum,
    end_span,
    n_patterns,
    span_sums,
    span_values,
    start_span,
    sum_around,
    sum_by_allele,
    sum_patterns,
    sum_products,
    transition,
)
from spinimpute.runtime.kernels import kernel

HALF = LANES // 2
# Decisions. EXCHANGED: exchange the alleles of this site. EXCHANGED_RIGHT: exchange the haplotypes at all
# places to the right of it. Both: EXCHANGED | EXCHANGED_RIGHT.
UNCHANGED, EXCHANGED, EXCHANGED_RIGHT = 0, 1, 2


class LaneDecisions(NamedTuple):
    """Decisions on HALF targets in a window."""

    decision_SH: np.ndarray  # uint8, UNCHANGED, EXCHANGED, EXCHANGED_RIGHT or the last two combined
    posterior_SH: np.ndarray  # float32, posterior probability of the decision, 1 where nothing was decided
    # float32, P(ALT) of each haplotype, given all other places; filled at unphased heterozygotes and at
    # places with a missing call
    probability_SL: np.ndarray

    @classmethod
    def allocate(cls, n_places: int) -> Self:
        """Return decisions that change nothing."""
        shape_SH = n_places, HALF
        probability_SL = np.zeros((n_places, LANES), np.float32)
        return cls(np.zeros(shape_SH, np.uint8), np.ones(shape_SH, np.float32), probability_SL)


@kernel(fast=True)
def pass_forward(patterns, lanes, jump_S, right, core, locked_H2, is_first, decisions):  # type: ignore[no-untyped-def]
    """Fill `LaneDecisions` at the places of the interval `core`.

    lanes: `TargetLanes`; their call_S2L is exchanged where a decision exchanges alleles. right:
    `BackwardValues` of these places. locked_H2: first and last place of a target at which the phase of a
    heterozygote is known; between them EXCHANGED_RIGHT is not considered, because it would change known
    phase. is_first: this is the first pass, in which the right side has no phase yet, so EXCHANGED_RIGHT is
    not considered.
    """
    emission_S2L, open_SH = lanes.call_S2L, lanes.open_SH
    n = patterns.pattern_IN.shape[1]
    values, sums, cross_DL = span_values(patterns), span_sums(patterns), span_sums(patterns).product_DL
    own_2L, cross_2L = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
    decision_H, linked_H = np.zeros(HALF, np.uint8), np.full(HALF, core.start == 0)
    first_span, stop_span = core.start // SPAN, (core.stop - 1) // SPAN + 1
    if first_span == 0:
        sum_around(patterns, 0, left_NL, right.after_INL[0], sums)
        sum_cross(patterns, 0, left_NL, right.after_INL[0], cross_DL)
    else:
        sum_patterns(patterns, 0, left_NL, sums.left_DL)
    for i in range(stop_span):
        start_span(patterns, i, values)
        for place in range(i * SPAN, min(i * SPAN + SPAN, core.stop)):
            transition(patterns, place, jump_S[place], values)
            is_open = open_SH[place].any()
            decision_H[:] = UNCHANGED
            if (is_open or lanes.wanted_S[place]) and place >= core.start:
                sum_by_allele(patterns, place, values, sums, right, own_2L)
                for l in range(LANES):
                    decisions.probability_SL[place, l] = own_2L[1, l] / (own_2L[0, l] + own_2L[1, l])
                if is_open and not is_first:
                    sum_by_allele_crossed(patterns, place, values, sums, cross_DL, right, cross_2L)
                emission_2L = emission_S2L[place]
                for l in range(HALF):
                    if open_SH[place, l]:
                        may_cross = not is_first and (place < locked_H2[l, 0] or place >= locked_H2[l, 1])
                        decision, posterior = _decide(own_2L, cross_2L, emission_2L, l, may_cross)
                        decision_H[l], decisions.posterior_SH[place, l] = decision, posterior
                        # At the window's first heterozygote, exchanging both only renames the haplotypes.
                        if linked_H[l] or decision != EXCHANGED | EXCHANGED_RIGHT:
                            decisions.decision_SH[place, l] = decision
                        linked_H[l] = True
                        if decision & EXCHANGED:
                            exchange(emission_2L, 2, l)
            apply_emissions(patterns, place, emission_S2L, sums.left_DL, values)
            for l in range(HALF):
                if decision_H[l] & EXCHANGED_RIGHT:
                    exchange_left_side(patterns, i, values, sums, cross_DL, left_NL, l)
        if i + 1 < stop_span:
            end_span(patterns, i, values)
            if i + 1 < first_span:
                cross_span_and_sum(patterns, i, i + 1, values, left_NL, left_NL, sums.left_DL)
            else:
                after_NL = right.after_INL[i + 1 - first_span]
                _cross_span_and_sum_crossed(patterns, i, values, left_NL, after_NL, sums, cross_DL)


@kernel(fast=True)
def sum_cross(patterns, span, left_NL, right_NL, cross_DL):  # type: ignore[no-untyped-def]
    """Sum by pattern: left values of a target's haplotype times right values of its other haplotype."""
    cross_DL[: n_patterns(patterns, span)] = 0
    pattern_N = patterns.pattern_IN[span]
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(cross_DL, d, load(cross_DL, d) + load(left_NL, h) * exchange_halves(load(right_NL, h)))


@kernel(fast=True)
def _cross_span_and_sum_crossed(patterns, span, values, left_NL, right_NL, sums, cross_DL):  # type: ignore[no-untyped-def]
    """Do the work of `cross_span_and_sum_around`, and of `sum_cross` for the next span, in one loop."""
    stay_DL, switch_DL, _ = values
    left_DL, right_DL, own_DL = sums
    clear_sums(patterns, span + 1, sums)
    cross_DL[: n_patterns(patterns, span + 1)] = 0
    pattern_N, next_pattern_N = patterns.pattern_IN[span], patterns.pattern_IN[span + 1]
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        left, right = load(stay_DL, d) * load(left_NL, h) + load(switch_DL, d), load(right_NL, h)
        store(left_NL, h, left)
        store(left_DL, e, load(left_DL, e) + left)
        store(right_DL, e, load(right_DL, e) + right)
        store(own_DL, e, load(own_DL, e) + left * right)
        store(cross_DL, e, load(cross_DL, e) + left * exchange_halves(right))


@kernel(fast=True)
def sum_by_allele_crossed(patterns, place, values, sums, cross_DL, right, by_allele_2L):  # type: ignore[no-untyped-def]
    """Do the work of `sum_by_allele` as if the target's haplotypes were exchanged right of the place."""
    stay_DL, switch_DL, _ = values
    left_DL, right_DL, _ = sums
    span, bits_D, count_D = place // SPAN, patterns.bits_D, patterns.count_D
    first, p = patterns.first_I1[span], place % SPAN
    by_allele_2L[:] = 0
    for d in range(n_patterns(patterns, span)):
        allele = allele_at(bits_D[first + d], p)
        stayed, switch, factor = sum_products(
            load(stay_DL, d), load(switch_DL, d), load(left_DL, d),
            exchange_halves(load(right.stay_PDL, (p, first + d))),
            exchange_halves(load(right.switch_PDL, (p, first + d))), exchange_halves(load(right_DL, d)),
            load(cross_DL, d), np.float32(1) / count_D[first + d],
        )  # fmt: skip
        store(by_allele_2L, allele, load(by_allele_2L, allele) + multiply_add(switch, factor, stayed))


@kernel()
def _decide(own_2L, cross_2L, emission_2L, lane, may_cross):  # type: ignore[no-untyped-def]
    """Return the best decision and its posterior probability.

    own_2L, cross_2L: filled by `sum_by_allele` and `sum_by_allele_crossed`. may_cross: EXCHANGED_RIGHT is
    allowed.
    """
    best, largest, total = UNCHANGED, 0.0, 0.0
    for decision in range(4 if may_cross else 2):
        by_allele_2L = cross_2L if decision & EXCHANGED_RIGHT else own_2L
        first, second = lane, lane + HALF
        if decision & EXCHANGED:
            first, second = second, first
        probability = _with_emission(by_allele_2L, lane, emission_2L, first) * _with_emission(
            by_allele_2L, lane + HALF, emission_2L, second
        )
        total += probability
        if probability > largest * (1 + 1e-6):  # on a tie, keep the first
            best, largest = decision, probability
    return best, largest / total if total > 0 else 0.0


@kernel()
def _with_emission(by_allele_2L, lane, emission_2L, emitting):  # type: ignore[no-untyped-def]
    """Return P(a lane's calls at all other places, the call of lane `emitting` here), up to a factor."""
    return np.float64(by_allele_2L[0, lane]) * np.float64(emission_2L[0, emitting]) + np.float64(
        by_allele_2L[1, lane]
    ) * np.float64(emission_2L[1, emitting])


@kernel()
def exchange(x_XL, n, lane):  # type: ignore[no-untyped-def]
    """Exchange the two lanes of a target in the first n rows."""
    for i in range(n):
        x_XL[i, lane], x_XL[i, lane + HALF] = x_XL[i, lane + HALF], x_XL[i, lane]


@kernel()
def exchange_left_side(patterns, span, values, sums, cross_DL, left_NL, lane):  # type: ignore[no-untyped-def]
    """Exchange the two lanes of a target in all values that describe places to the left of this one."""
    d, m = n_patterns(patterns, span), lane + HALF
    exchange(values.stay_DL, d, lane)
    exchange(values.switch_DL, d, lane)
    exchange(sums.left_DL, d, lane)
    exchange(left_NL, len(left_NL), lane)
    own_DL, scale_L = sums.product_DL, values.scale_L
    for x in range(d):
        own_DL[x, lane], cross_DL[x, m] = cross_DL[x, m], own_DL[x, lane]
        own_DL[x, m], cross_DL[x, lane] = cross_DL[x, lane], own_DL[x, m]
    scale_L[lane], scale_L[m] = scale_L[m], scale_L[lane]
