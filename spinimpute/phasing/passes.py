"""One pass of phasing: from the right with the phase as it was, then from the left, deciding.

Each haplotype of a target copies the panel by the model of Li and Stephens (`li_stephens`). At a heterozygote
the four ways to go on are weighed: as it was, its alleles exchanged, everything behind it exchanged, or both.
What lies on the left is as decided in this pass, what lies on the right as in the last one.

HALF targets go through side by side: lane l is one haplotype of a target, lane l + HALF its other one.

Axes: S typed places of a window, I spans, N haplotypes that may be copied, D patterns of a span, P places of
a span, L lanes, X targets, H = HALF targets.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.li_stephens import LANES, SMALLEST, SPAN, go_through, query_bits, sum_patterns
from spinimpute.kernels import kernel

HALF = LANES // 2
AS_IT_WAS, EXCHANGED, EXCHANGED_BEHIND = 0, 1, 2  # the two may come together


@kernel(fast=True)
def pass_backward(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, query_LW, known_LW, jump_S, mismatch, right_INL, stay_DPL, come_DPL
):
    """Backward values just right of every place: of haplotype n in pattern d, stay x right + come, where
    right_INL holds its value right of the span."""
    n_spans, n = pattern_IN.shape
    n_places = len(jump_S)
    most = 1
    for i in range(n_spans):
        most = max(most, first_I1[i + 1] - first_I1[i])
    sum_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    query_L, known_L = np.empty(LANES, np.uint64), np.empty(LANES, np.uint64)
    scale_L = np.empty(LANES, np.float32)
    one, zero = np.float32(1), np.float32(0)
    right = one - mismatch
    right_INL[n_spans - 1] = 1
    last = first_I1[n_spans] - first_I1[n_spans - 1]
    sum_patterns(pattern_IN[n_spans - 1], right_INL[n_spans - 1], sum_DL[:last])
    for i in range(n_spans - 1, -1, -1):
        first, n_patterns = first_I1[i], first_I1[i + 1] - first_I1[i]
        query_bits(query_LW, 0, i, query_L)
        query_bits(known_LW, 0, i, known_L)
        stay_DL[:n_patterns] = 1
        come_DL[:n_patterns] = 0
        for place in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
            at = place - i * SPAN
            bit = np.uint64(1) << np.uint64(at)
            keep, jump = one - jump_S[place], jump_S[place]
            scale_L[:] = 0
            for d in range(n_patterns):
                bits, count = bits_D[first + d], count_D[first + d]
                for l in range(LANES):
                    stay_DPL[first + d, at, l], come_DPL[first + d, at, l] = stay_DL[d, l], come_DL[d, l]
                    e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                    scale_L[l] += e * (stay_DL[d, l] * sum_DL[d, l] + come_DL[d, l] * count)
            for l in range(LANES):
                scale_L[l] = np.float32(n) / scale_L[l]
            for d in range(n_patterns):
                bits = bits_D[first + d]
                for l in range(LANES):
                    e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                    e *= keep * scale_L[l]
                    stay = e * stay_DL[d, l]
                    stay_DL[d, l] = stay if stay > SMALLEST else zero
                    come_DL[d, l] = e * come_DL[d, l] + jump
        if i > 0:
            go_through(
                pattern_IN[i], stay_DL, come_DL, right_INL[i], right_INL[i - 1], pattern_IN[i - 1],
                sum_DL[: first - first_I1[i - 1]],
            )  # fmt: skip


@kernel(fast=True)
def _sums_of_span(pattern_N, left_NL, right_NL, left_DL, right_DL, own_DL, cross_DL):  # type: ignore[no-untyped-def]
    """By pattern: of forward values left of a span, backward ones right of it, their products in the same
    lane, and those of forward values with the backward ones of the target's other lane."""
    left_DL[:] = 0
    right_DL[:] = 0
    own_DL[:] = 0
    cross_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        for l in range(LANES):
            left_DL[d, l] += left_NL[h, l]
            right_DL[d, l] += right_NL[h, l]
            own_DL[d, l] += left_NL[h, l] * right_NL[h, l]
        for l in range(HALF):
            cross_DL[d, l] += left_NL[h, l] * right_NL[h, l + HALF]
            cross_DL[d, l + HALF] += left_NL[h, l + HALF] * right_NL[h, l]


@kernel(fast=True, inline=True)
def _joined(left_stay, left_come, left, right_stay, right_come, right, product, share):  # type: ignore[no-untyped-def]
    """Sum over a pattern's haplotypes of forward times backward values at a place."""
    return left_stay * (right_stay * product + right_come * left) + left_come * (
        share * right_stay * right + right_come
    )


@kernel(fast=True)
def _join(  # type: ignore[no-untyped-def]
    bits_D, count_D, at, stay_DL, come_DL, left_DL, right_DL, own_DL, cross_DL, right_stay_DPL,
    right_come_DPL, joined_4L,
):  # fmt: skip
    """Probabilities of what is left of a place together with what is right of it, without its own alleles:
    with haplotypes that have allele 0, 1 there and the lane's own right side; the same with the other
    lane's."""
    joined_4L[:] = 0
    bit = np.uint64(1) << np.uint64(at)
    for d in range(len(bits_D)):
        allele = 1 if bits_D[d] & bit else 0
        share = np.float32(1) / count_D[d]
        for l in range(LANES):
            joined_4L[allele, l] += _joined(
                stay_DL[d, l], come_DL[d, l], left_DL[d, l], right_stay_DPL[d, at, l],
                right_come_DPL[d, at, l], right_DL[d, l], own_DL[d, l], share,
            )  # fmt: skip
        for l in range(HALF):
            m = l + HALF
            joined_4L[2 + allele, l] += _joined(
                stay_DL[d, l], come_DL[d, l], left_DL[d, l], right_stay_DPL[d, at, m],
                right_come_DPL[d, at, m], right_DL[d, m], cross_DL[d, l], share,
            )  # fmt: skip
            joined_4L[2 + allele, m] += _joined(
                stay_DL[d, m], come_DL[d, m], left_DL[d, m], right_stay_DPL[d, at, l],
                right_come_DPL[d, at, l], right_DL[d, l], cross_DL[d, m], share,
            )  # fmt: skip


@kernel()
def _with_allele(joined_4L, first_row, lane, allele, mismatch):  # type: ignore[no-untyped-def]
    same = np.float64(joined_4L[first_row + allele, lane])
    other = np.float64(joined_4L[first_row + 1 - allele, lane])
    return same * (1 - np.float64(mismatch)) + other * np.float64(mismatch)


@kernel()
def _decide(joined_4L, lane, allele, mismatch, may_cross):  # type: ignore[no-untyped-def]
    """The best of the four ways, and its share of the sum. allele: of the lane at the place."""
    m, other = lane + HALF, 1 - allele
    best, largest, total = AS_IT_WAS, 0.0, 0.0
    for way in range(4 if may_cross else 2):
        row = 2 if way & EXCHANGED_BEHIND else 0
        here, there = (other, allele) if way & EXCHANGED else (allele, other)
        probability = _with_allele(joined_4L, row, lane, here, mismatch) * _with_allele(
            joined_4L, row, m, there, mismatch
        )
        total += probability
        if probability > largest * (1 + 1e-6):  # of equals the first
            best, largest = way, probability
    return best, largest / total if total > 0 else 0.0


@kernel()
def _exchange(x_XL, lane):  # type: ignore[no-untyped-def]
    for i in range(len(x_XL)):
        x_XL[i, lane], x_XL[i, lane + HALF] = x_XL[i, lane + HALF], x_XL[i, lane]


@kernel(fast=True)
def pass_forward(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, query_LW, known_LW, open_LW, jump_S, mismatch, right_INL,
    right_stay_DPL, right_come_DPL, n_targets, first_decided, stop_decided, starting, locked_H2, everywhere,
    way_HS, sure_HS, probability_LS,
):  # fmt: skip
    """Decide at the open heterozygotes of the places [first_decided, stop_decided).

    query_LW, known_LW: alleles of the lanes and whether a call is there; open_LW: heterozygotes without
    phase. starting: nothing is known of the right side's phase. locked_H2: places of a target's first and
    last heterozygote whose phase is known; between them nothing behind is exchanged.
    Fills way_HS and sure_HS at
    the open heterozygotes, and probability_LS, P(allele 1) by what is around, where a call is missing, or
    everywhere.
    """
    n_spans, n = pattern_IN.shape
    most = 1
    for i in range(n_spans):
        most = max(most, first_I1[i + 1] - first_I1[i])
    left_DL, right_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    own_DL, cross_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    query_L, known_L, open_L = (
        np.empty(LANES, np.uint64), np.empty(LANES, np.uint64), np.empty(LANES, np.uint64),
    )  # fmt: skip
    scale_L, total_L = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    joined_4L = np.empty((4, LANES), np.float32)
    left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
    one, zero = np.float32(1), np.float32(0)
    right = one - mismatch
    way_H, linked_H = np.zeros(HALF, np.uint8), np.full(HALF, first_decided == 0)
    for i in range((stop_decided - 1) // SPAN + 1):
        first, n_patterns = first_I1[i], first_I1[i + 1] - first_I1[i]
        here = slice(first, first + n_patterns)
        query_bits(query_LW, 0, i, query_L)
        query_bits(known_LW, 0, i, known_L)
        query_bits(open_LW, 0, i, open_L)
        _sums_of_span(
            pattern_IN[i], left_NL, right_INL[i], left_DL[:n_patterns], right_DL[:n_patterns],
            own_DL[:n_patterns], cross_DL[:n_patterns],
        )  # fmt: skip
        stay_DL[:n_patterns] = 1
        come_DL[:n_patterns] = 0
        scale_L[:] = 1
        for place in range(i * SPAN, min(i * SPAN + SPAN, stop_decided)):
            at = place - i * SPAN
            bit = np.uint64(1) << np.uint64(at)
            keep, arrive = one - jump_S[place], jump_S[place] / np.float32(n)
            for d in range(n_patterns):
                came = arrive * count_D[first + d]
                for l in range(LANES):
                    stay = stay_DL[d, l] * scale_L[l] * keep
                    stay_DL[d, l] = stay if stay > SMALLEST else zero
                    come_DL[d, l] = come_DL[d, l] * scale_L[l] * keep + came
            wanted = everywhere
            way_H[:] = AS_IT_WAS
            for l in range(n_targets):
                wanted |= (open_L[l] & bit) != np.uint64(0) or (known_L[l] & bit) == np.uint64(0)
            if wanted and place >= first_decided:
                _join(
                    bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_DL, own_DL, cross_DL,
                    right_stay_DPL[here], right_come_DPL[here], joined_4L,
                )  # fmt: skip
                for l in range(LANES):
                    probability_LS[l, place] = joined_4L[1, l] / (joined_4L[0, l] + joined_4L[1, l])
                for l in range(n_targets):
                    if open_L[l] & bit:
                        may_cross = not starting and (place < locked_H2[l, 0] or place >= locked_H2[l, 1])
                        way, sure = _decide(joined_4L, l, 1 if query_L[l] & bit else 0, mismatch, may_cross)
                        way_H[l], sure_HS[l, place] = way, sure
                        if linked_H[l] or way != EXCHANGED | EXCHANGED_BEHIND:
                            way_HS[l, place] = way
                        linked_H[l] = True
                        if way & EXCHANGED:
                            query_L[l] ^= bit
                            query_L[l + HALF] ^= bit
            total_L[:] = 0
            for d in range(n_patterns):
                bits = bits_D[first + d]
                for l in range(LANES):
                    e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                    stay, come = stay_DL[d, l] * e, come_DL[d, l] * e
                    stay_DL[d, l], come_DL[d, l] = stay, come
                    total_L[l] += stay * left_DL[d, l] + come
            for l in range(LANES):
                scale_L[l] = one / total_L[l]
            for l in range(n_targets):
                if way_H[l] & EXCHANGED_BEHIND:
                    # the right side keeps its lanes, what is left of it changes them
                    m = l + HALF
                    _exchange(stay_DL[:n_patterns], l)
                    _exchange(come_DL[:n_patterns], l)
                    _exchange(left_DL[:n_patterns], l)
                    _exchange(left_NL, l)
                    for d in range(n_patterns):
                        own_DL[d, l], cross_DL[d, m] = cross_DL[d, m], own_DL[d, l]
                        own_DL[d, m], cross_DL[d, l] = cross_DL[d, l], own_DL[d, m]
                    scale_L[l], scale_L[m] = scale_L[m], scale_L[l]
        for d in range(n_patterns):
            for l in range(LANES):
                stay_DL[d, l] *= scale_L[l]
                come_DL[d, l] *= scale_L[l] / count_D[first + d]
        for h in range(n):
            d = pattern_IN[i, h]
            for l in range(LANES):
                left_NL[h, l] = stay_DL[d, l] * left_NL[h, l] + come_DL[d, l]
