"""One pass of phasing: from the right with the phase as it was, then from the left, deciding.

Each haplotype of a target copies the panel by the model of Li and Stephens. At a heterozygote the four ways
to go on are weighed: as it was, its alleles exchanged, everything behind it exchanged, or both. What lies on
the left is as decided in this pass, what lies on the right as in the last one (`backward_values`).

HALF targets go through side by side: lane l is one haplotype of a target, lane l + HALF its other one.

Axes: S typed places of a window, I spans, N haplotypes that may be copied, D patterns of a span, P places of
a span, L lanes, H = HALF targets, 2 alleles of a state or haplotypes of a target.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import halves_exchanged, load, store
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import most_patterns
from spinimpute.hmm.steps import (
    allele_at,
    emit,
    end_span,
    go_through,
    join,
    leave,
    meet,
    sum_both,
    sum_patterns,
)
from spinimpute.runtime.kernels import kernel

HALF = LANES // 2
AS_IT_WAS, EXCHANGED, EXCHANGED_BEHIND = 0, 1, 2  # the two may come together


@kernel(fast=True)
def pass_forward(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, emission_S2L, jump_S, behind_INL, right_stay_PDL, right_come_PDL,
    open_SH, wanted_S, first_decided, stop_decided, starting, locked_H2, way_HS, sure_HS, probability_SL,
):  # fmt: skip
    """Decide at the open heterozygotes of the places [first_decided, stop_decided).

    emission_S2L: of the lanes' alleles; those of a target are exchanged where it is decided so. behind_INL,
    right_stay_PDL, right_come_PDL: `backward_values` of these places. open_SH: heterozygotes without phase;
    wanted_S: places where probability_SL is asked for. starting: nothing is known of the right side's phase.
    locked_H2: places of a target's first and last heterozygote whose phase is known; between them nothing
    behind is exchanged.
    Fills way_HS and sure_HS at the open heterozygotes, and probability_SL, P(ALT) by what is around, at these
    places and the wanted ones.
    """
    n = pattern_IN.shape[1]
    most = most_patterns(first_I1)
    left_DL, right_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    own_DL, cross_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L = np.empty(LANES, np.float32)
    own_2L, cross_2L = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
    way_H, linked_H = np.zeros(HALF, np.uint8), np.full(HALF, first_decided == 0)
    first_span, n_spans = first_decided // SPAN, (stop_decided - 1) // SPAN + 1  # of those that decide
    if first_span == 0:
        sum_both(pattern_IN[0], left_NL, behind_INL[0], left_DL, right_DL, own_DL)
        sum_cross(pattern_IN[0], left_NL, behind_INL[0], cross_DL)
    else:
        sum_patterns(pattern_IN[0], left_NL, left_DL)
    for i in range(n_spans):
        first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
        here = slice(first, first + d)
        stay_DL[:d] = 1
        come_DL[:d] = 0
        scale_L[:] = 1
        for place in range(i * SPAN, min(i * SPAN + SPAN, stop_decided)):
            at = place - i * SPAN
            leave(count_D[here], jump_S[place], n, scale_L, stay_DL, come_DL)
            is_open = open_SH[place].any()
            way_H[:] = AS_IT_WAS
            if (is_open or wanted_S[place]) and place >= first_decided:
                join(
                    bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_stay_PDL[at, here],
                    right_come_PDL[at, here], right_DL, own_DL, own_2L,
                )  # fmt: skip
                for l in range(LANES):
                    probability_SL[place, l] = own_2L[1, l] / (own_2L[0, l] + own_2L[1, l])
                if is_open and not starting:
                    join_cross(
                        bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_stay_PDL[at, here],
                        right_come_PDL[at, here], right_DL, cross_DL, cross_2L,
                    )  # fmt: skip
                for l in range(HALF):
                    if open_SH[place, l]:
                        may_cross = not starting and (place < locked_H2[l, 0] or place >= locked_H2[l, 1])
                        way, sure = _decide(own_2L, cross_2L, emission_S2L[place], l, may_cross)
                        way_H[l], sure_HS[l, place] = way, sure
                        if linked_H[l] or way != EXCHANGED | EXCHANGED_BEHIND:
                            way_HS[l, place] = way
                        linked_H[l] = True
                        if way & EXCHANGED:
                            exchange(emission_S2L[place], l)
            emit(bits_D[here], at, emission_S2L[place], left_DL, scale_L, stay_DL, come_DL)
            for l in range(HALF):
                if way_H[l] & EXCHANGED_BEHIND:
                    # the right side keeps its lanes, what is left of it changes them
                    exchange(stay_DL[:d], l)
                    exchange(come_DL[:d], l)
                    exchange(left_DL[:d], l)
                    exchange(left_NL, l)
                    m = l + HALF
                    for x in range(d):
                        own_DL[x, l], cross_DL[x, m] = cross_DL[x, m], own_DL[x, l]
                        own_DL[x, m], cross_DL[x, l] = cross_DL[x, l], own_DL[x, m]
                    scale_L[l], scale_L[m] = scale_L[m], scale_L[l]
        if i + 1 < n_spans:
            end_span(count_D[here], scale_L, stay_DL, come_DL)
            if i + 1 < first_span:
                go_through(pattern_IN[i], stay_DL, come_DL, left_NL, left_NL, pattern_IN[i + 1], left_DL)
            else:
                go_through_to_decide(
                    pattern_IN[i], stay_DL, come_DL, left_NL, pattern_IN[i + 1],
                    behind_INL[i + 1 - first_span], left_DL, right_DL, own_DL, cross_DL,
                )  # fmt: skip


@kernel(fast=True)
def sum_cross(pattern_N, left_NL, right_NL, cross_DL):  # type: ignore[no-untyped-def]
    """Sums by pattern of values left of a span times those right of it of the target's other haplotype."""
    cross_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(cross_DL, d, load(cross_DL, d) + load(left_NL, h) * halves_exchanged(load(right_NL, h)))


@kernel(fast=True)
def go_through_to_decide(  # type: ignore[no-untyped-def]
    pattern_N, stay_DL, come_DL, left_NL, next_pattern_N, right_NL, left_DL, right_DL, own_DL, cross_DL
):
    """`go_through`, in place, with the next span's sums as by `sum_both` and `sum_cross`."""
    left_DL[:] = 0
    right_DL[:] = 0
    own_DL[:] = 0
    cross_DL[:] = 0
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        left, right = load(stay_DL, d) * load(left_NL, h) + load(come_DL, d), load(right_NL, h)
        store(left_NL, h, left)
        store(left_DL, e, load(left_DL, e) + left)
        store(right_DL, e, load(right_DL, e) + right)
        store(own_DL, e, load(own_DL, e) + left * right)
        store(cross_DL, e, load(cross_DL, e) + left * halves_exchanged(right))


@kernel(fast=True)
def join_cross(  # type: ignore[no-untyped-def]
    bits_D, count_D, at, stay_DL, come_DL, left_DL, right_stay_DL, right_come_DL, right_DL, cross_DL,
    joined_2L,
):  # fmt: skip
    """`join` of what is left of a place with what is right of it of the target's other haplotype."""
    joined_2L[:] = 0
    for d in range(len(bits_D)):
        allele = allele_at(bits_D[d], at)
        product = load(cross_DL, d)  # first, as in `join`
        stayed, came = meet(
            load(stay_DL, d), load(come_DL, d), load(left_DL, d), halves_exchanged(load(right_stay_DL, d)),
            halves_exchanged(load(right_come_DL, d)), halves_exchanged(load(right_DL, d)), product,
            np.float32(1) / count_D[d],
        )  # fmt: skip
        store(joined_2L, allele, load(joined_2L, allele) + (came + stayed))


@kernel()
def _decide(own_2L, cross_2L, emission_2L, lane, may_cross):  # type: ignore[no-untyped-def]
    """The best of the four ways, and its posterior probability. own_2L: `join`; cross_2L: `join_cross`."""
    best, largest, total = AS_IT_WAS, 0.0, 0.0
    for way in range(4 if may_cross else 2):
        joined_2L = cross_2L if way & EXCHANGED_BEHIND else own_2L
        first, second = lane, lane + HALF
        if way & EXCHANGED:
            first, second = second, first
        probability = _with_emission(joined_2L, lane, emission_2L, first) * _with_emission(
            joined_2L, lane + HALF, emission_2L, second
        )
        total += probability
        if probability > largest * (1 + 1e-6):  # of equals the first
            best, largest = way, probability
    return best, largest / total if total > 0 else 0.0


@kernel()
def _with_emission(joined_2L, lane, emission_2L, emitting):  # type: ignore[no-untyped-def]
    """Probability of what is around a lane, and of what a lane of the same target has at the place."""
    return np.float64(joined_2L[0, lane]) * np.float64(emission_2L[0, emitting]) + np.float64(
        joined_2L[1, lane]
    ) * np.float64(emission_2L[1, emitting])


@kernel()
def exchange(x_XL, lane):  # type: ignore[no-untyped-def]
    """Exchange what a sample's two lanes have."""
    for i in range(len(x_XL)):
        x_XL[i, lane], x_XL[i, lane + HALF] = x_XL[i, lane + HALF], x_XL[i, lane]
