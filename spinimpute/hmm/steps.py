"""All steps of forward and backward values of the model of Li and Stephens.

A query copies one haplotype of the panel, leaves it before a place with a probability that grows with genetic
length, for one that is drawn from all, and what is known of the query at a place has a probability for either
allele of what it copies (`emissions`).

The states are one of two things. All haplotypes, for LANES queries side by side: haplotypes of one pattern
share their steps within a span, where the forward value of haplotype n in pattern d is stay_d g_n + come_d /
count_d; g_n is its value before the span, stay_d belongs to those that never left it and come_d to those that
came since. The backward value is stay_d g_n + come_d, with g_n behind the span. Or a list of haplotypes for a
single query, with the share of each among those that it may change to.

Axes: N panel haplotypes, S places, D patterns of a span, L queries side by side, K states of a query, a
multiple of LANES, 2 alleles of a state.

References
----------
Li & Stephens 2003, Genetics 165:2213. Das et al. 2016, Nat. Genet. 48:1284 (patterns).
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import (
    all_lanes,
    by_allele,
    by_bit,
    first_lanes,
    load,
    store,
    sum_lanes,
    where_positive,
    without_tiny,
)
from spinimpute.hmm.parameters import LANES
from spinimpute.runtime.kernels import kernel

# all haplotypes, LANES queries


@kernel(fast=True)
def leave(count_D, jump, n, scale_L, stay_DL, come_DL):  # type: ignore[no-untyped-def]
    """Forward values from the place before to this one, without its emissions.

    scale_L: one over the sum of all values before.
    """
    keep, arrive = np.float32(1) - jump, jump / np.float32(n)
    scale = load(scale_L, 0)
    for d in range(len(count_D)):
        store(stay_DL, d, without_tiny(load(stay_DL, d) * scale * keep))
        store(come_DL, d, load(come_DL, d) * scale * keep + arrive * count_D[d])


@kernel(fast=True)
def emit(bits_D, at, emission_2L, left_DL, scale_L, stay_DL, come_DL):  # type: ignore[no-untyped-def]
    """Forward values with the emissions of place `at` of the span.

    left_DL: sums of values before the span. scale_L becomes one over the sum of all values.
    """
    total = all_lanes(np.float32(0))
    for d in range(len(bits_D)):
        emission = load(emission_2L, allele_at(bits_D[d], at))
        stay, come = load(stay_DL, d) * emission, load(come_DL, d) * emission
        store(stay_DL, d, stay)
        store(come_DL, d, come)
        total += stay * load(left_DL, d) + come
    store(scale_L, 0, np.float32(1) / total)


@kernel(fast=True)
def step_back(  # type: ignore[no-untyped-def]
    bits_D, count_D, at, emission_2L, jump, n, right_DL, stay_DL, come_DL, divisor_L
):
    """Backward values from right of place `at` of the span to left of it, scaled to a mean of about 1.

    right_DL: sums of values behind the span. divisor_L becomes what values are divided by.
    """
    total = all_lanes(np.float32(0))
    for d in range(len(bits_D)):
        emission = load(emission_2L, allele_at(bits_D[d], at))
        total += emission * (load(stay_DL, d) * load(right_DL, d) + load(come_DL, d) * count_D[d])
    keep = (np.float32(1) - jump) * (np.float32(n) / total)
    store(divisor_L, 0, total * (np.float32(1) / np.float32(n)))
    for d in range(len(bits_D)):
        kept = load(emission_2L, allele_at(bits_D[d], at)) * keep
        store(stay_DL, d, without_tiny(kept * load(stay_DL, d)))
        store(come_DL, d, kept * load(come_DL, d) + jump)


@kernel(inline=True)
def allele_at(bits, at):  # type: ignore[no-untyped-def]
    """The allele of a pattern at a place of its span."""
    return (bits >> np.uint64(at)) & np.uint64(1)


@kernel(fast=True, inline=True)
def meet(stay, come, left, right_stay, right_come, right, product, share):  # type: ignore[no-untyped-def]
    """Sums of forward times backward values at a place, over a pattern's haplotypes.

    The first sum is of queries that have not left their haplotype since the span's start, the second of those
    that came to it since.

    left, right, product: sums of values before the span, of those behind it, and of their products. share:
    one over the haplotypes. All but it are lanes.
    """
    stayed = stay * (right_stay * product + right_come * left)
    came = come * (share * right_stay * right + right_come)
    return stayed, came


@kernel(fast=True)
def join(  # type: ignore[no-untyped-def]
    bits_D, count_D, at, stay_DL, come_DL, left_DL, right_stay_DL, right_come_DL, right_DL, product_DL,
    joined_2L,
):  # fmt: skip
    """Probabilities of what is known on both sides of place `at` of the span, by the allele copied there.

    What is known at the place itself does not enter. right_stay_DL, right_come_DL: backward values right of
    the place; left_DL, right_DL, product_DL: as by `sum_both`.
    """
    joined_2L[:] = 0
    for d in range(len(bits_D)):
        allele = allele_at(bits_D[d], at)
        product = load(product_DL, d)  # first: of two products summed the compiler fuses by order of loading
        stayed, came = meet(
            load(stay_DL, d), load(come_DL, d), load(left_DL, d), load(right_stay_DL, d),
            load(right_come_DL, d), load(right_DL, d), product, np.float32(1) / count_D[d],
        )  # fmt: skip
        store(joined_2L, allele, load(joined_2L, allele) + (came + stayed))


@kernel(fast=True)
def sum_patterns(pattern_N, x_NL, sum_DL):  # type: ignore[no-untyped-def]
    """Sums of values in each pattern."""
    sum_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(sum_DL, d, load(sum_DL, d) + load(x_NL, h))


@kernel(fast=True)
def sum_both(pattern_N, x_NL, y_NL, x_DL, y_DL, product_DL):  # type: ignore[no-untyped-def]
    """Sums of values before a span, of those behind it, and of their products, in each pattern."""
    x_DL[:] = 0
    y_DL[:] = 0
    product_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        x, y = load(x_NL, h), load(y_NL, h)
        store(x_DL, d, load(x_DL, d) + x)
        store(y_DL, d, load(y_DL, d) + y)
        store(product_DL, d, load(product_DL, d) + x * y)


@kernel(fast=True)
def end_span(count_D, scale_L, stay_DL, come_DL):  # type: ignore[no-untyped-def]
    """Forward values at a span's end, scaled, with come_DL of each haplotype, as `go_through` needs them."""
    scale = load(scale_L, 0)
    for d in range(len(count_D)):
        store(stay_DL, d, load(stay_DL, d) * scale)
        store(come_DL, d, load(come_DL, d) * (scale / count_D[d]))


@kernel(fast=True)
def go_through_alone(pattern_N, stay_DL, come_DL, x_NL):  # type: ignore[no-untyped-def]
    """Values of haplotypes on the far side of a span from those on the near side, in place."""
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(x_NL, h, load(stay_DL, d) * load(x_NL, h) + load(come_DL, d))


@kernel(fast=True)
def go_through(pattern_N, stay_DL, come_DL, x_NL, out_NL, next_pattern_N, sum_DL):  # type: ignore[no-untyped-def]
    """Values of haplotypes on the far side of a span, and their sums in the next span's patterns.

    x_NL: values on the near side; out_NL may be the same array. All in one pass, as memory access takes most
    of the time.
    """
    sum_DL[:] = 0
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        x = load(stay_DL, d) * load(x_NL, h) + load(come_DL, d)
        store(out_NL, h, x)
        store(sum_DL, e, load(sum_DL, e) + x)


@kernel(fast=True)
def go_through_to_meet(  # type: ignore[no-untyped-def]
    pattern_N, stay_DL, come_DL, x_NL, next_pattern_N, y_NL, x_DL, y_DL, product_DL
):
    """`go_through`, in place, with the next span's sums as by `sum_both`."""
    x_DL[:] = 0
    y_DL[:] = 0
    product_DL[:] = 0
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        x, y = load(stay_DL, d) * load(x_NL, h) + load(come_DL, d), load(y_NL, h)
        store(x_NL, h, x)
        store(x_DL, e, load(x_DL, e) + x)
        store(y_DL, e, load(y_DL, e) + y)
        store(product_DL, e, load(product_DL, e) + x * y)


# a list of haplotypes, one query


def whole_lanes(alleles_SN: np.ndarray) -> np.ndarray:
    """Pad the haplotypes to a multiple of LANES.

    Parameters
    ----------
    alleles_SN : uint8 (S, N)
        0 or 1.

    Returns
    -------
    uint8 (S, K)
        The alleles, then 0 for states that must get no share.
    """
    n_places, n = alleles_SN.shape
    alleles_SK = np.zeros((n_places, -(-n // LANES) * LANES), np.uint8)
    alleles_SK[:, :n] = alleles_SN
    return alleles_SK


@kernel(fast=True)
def step_forward_states(  # type: ignore[no-untyped-def]
    allele_K, share_K, emission_2, jump, before_K, before_total, forward_K
):
    """Forward values from the place before to this one; returns their sum, by which they are not divided.

    allele_K: uint8, of the states at this place. share_K: of each state among all haplotypes that the query
    may change to, 0 of what it may not copy. before_K: at the place before, or share_K; forward_K may be the
    same. before_total: their sum.
    """
    one = np.float32(1)
    keep = (one - jump) * (one / before_total)
    total = all_lanes(np.float32(0))
    for k in range(0, len(allele_K), LANES):
        emission = by_allele(allele_K, k, emission_2[0], emission_2[1])
        value = (load(before_K, k) * keep + jump * load(share_K, k)) * emission
        store(forward_K, k, value)
        total += value
    return sum_lanes(total)


@kernel(fast=True)
def step_back_states(  # type: ignore[no-untyped-def]
    allele_K, share_K, emission_2, jump, forward_K, forward_total, backward_K
):
    """Backward values from right of this place to left of it.

    Returns the probability that the query left its haplotype between the place before and this one.

    forward_K, forward_total: of the place before, and their sum; share_K and 1 if nothing is known there. The
    rest as in `step_forward_states`.
    """
    one = np.float32(1)
    all_come, all_stay = all_lanes(np.float32(0)), all_lanes(np.float32(0))
    for k in range(0, len(allele_K), LANES):
        share = load(share_K, k)
        emission = by_allele(allele_K, k, emission_2[0], emission_2[1])
        # what cannot be copied would grow without end
        value = where_positive(share, load(backward_K, k) * emission)
        store(backward_K, k, value)
        all_come += share * value
        all_stay += load(forward_K, k) * value
    come = jump * sum_lanes(all_come)
    stayed = (one - jump) * sum_lanes(all_stay) / forward_total
    scale = one / (come + stayed)
    keep, arrive = (one - jump) * scale, come * scale
    for k in range(0, len(allele_K), LANES):
        store(backward_K, k, load(backward_K, k) * keep + arrive)
    return come / (come + stayed)


@kernel(fast=True)
def step_list(bits_IK, place, n, emission_2, keep, arrive, value_K):  # type: ignore[no-untyped-def]
    """Values of n states, times `keep`, plus `arrive`, times the emissions of a place; returns their sum.

    All states have the same share. Forwards `keep` and `arrive` bring the values from the place before;
    backwards they are those of the place behind, whose step is so completed with this one.

    bits_IK: uint16, the states' alleles at 16 places side by side.
    """
    bits_K, bit = bits_IK[place >> 4], place & 15
    total = all_lanes(np.float32(0))
    whole = n // LANES * LANES
    for k in range(0, whole, LANES):
        value = (load(value_K, k) * keep + arrive) * by_bit(bits_K, k, bit, emission_2[0], emission_2[1])
        store(value_K, k, value)
        total += value
    if whole < n:
        value = (load(value_K, whole) * keep + arrive) * by_bit(
            bits_K, whole, bit, emission_2[0], emission_2[1]
        )
        value = first_lanes(value, n - whole)
        store(value_K, whole, value)
        total += value
    return sum_lanes(total)
