"""The forward and backward steps of the hidden Markov model of Li and Stephens.

A query copies one panel haplotype at a time. Before each place it switches to a random panel haplotype, with
a probability that grows with the genetic distance (`jump_probabilities`). The emissions (`allele_emissions`)
are the probabilities of the query's allele, given REF or ALT on the copied haplotype. All modules that use
the model (posteriors, phasing, leave-one-out, chains) are built from these steps.

There are two kinds of states:

1. All panel haplotypes, for LANES queries at the same time. Within a span of SPAN places, haplotypes with the
   same pattern (`patterns`) are computed together (Das et al. 2016). The forward value of haplotype n with
   pattern d is

       stay_d g_n + switch_d / count_d

   where g_n is the haplotype's value to the left of the span, stay_d belongs to queries that have stayed on
   their haplotype since then, switch_d to queries that have switched to one of the pattern's haplotypes, and
   count_d is the number of these. The backward value is stay_d g_n + switch_d, with g_n to the right of the
   span. So a span has three stages: `start_span`, steps at its places, and `cross_span`, which computes the
   values of all haplotypes on its other side.
2. A list of haplotypes for a single query, each with its own switch probability (its share).

Axes: N panel haplotypes, S places, P places of a span, D patterns of a span, L queries that are computed
together, Q queries, G groups of LANES queries, I words of 16 places, K states of a query (a multiple of
LANES), 2 alleles of a state.

References
----------
Li & Stephens 2003, Genetics 165:2213. Das et al. 2016, Nat. Genet. 48:1284 (patterns).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import (
    all_lanes,
    flush_tiny,
    keep_first_lanes,
    load,
    multiply_add,
    select_by_allele,
    select_by_bit,
    store,
    sum_lanes,
)
from spinimpute.hmm.parameters import JUMPS_PER_CM, LANES, SPAN
from spinimpute.hmm.patterns import max_patterns
from spinimpute.runtime.kernels import kernel

MIN_JUMP = 1e-7  # minimum jump probability, used where the map has no length


def jump_probabilities(cM_S: np.ndarray, n_haplotypes: int, jumps_per_cM: float = JUMPS_PER_CM) -> np.ndarray:
    """Return the probability that a query switches to a random haplotype before each place, float32 (S,).

    It is 1 before the first place. It decreases with the number of haplotypes: in a larger panel the nearest
    relative is closer.
    """
    probability_S = -np.expm1(-np.diff(cM_S, prepend=cM_S[:1]) * jumps_per_cM / n_haplotypes)
    probability_S = probability_S.clip(MIN_JUMP)
    probability_S[0] = 1
    return probability_S.astype(np.float32)


def allele_emissions(alleles: np.ndarray, mismatch: float | np.ndarray) -> np.ndarray:
    """Return P(allele | state has REF) and P(allele | state has ALT), float32 (..., 2).

    Alleles other than 0 and 1 are missing and fit either state. `mismatch` broadcasts with `alleles`. The
    model uses a query only through its emissions, so allele likelihoods may replace them. A factor that both
    alleles have in common does not change posteriors.
    """
    wrong = np.asarray(mismatch, np.float32)
    right = np.float32(1) - wrong
    ref, alt = np.where(alleles == 1, wrong, right), np.where(alleles == 0, wrong, right)
    return np.ascontiguousarray(np.stack([ref, alt], axis=-1))


def group_lanes(emission_QS2: np.ndarray) -> np.ndarray:
    """Arrange emissions in groups of LANES queries, float32 (G, S, 2, L), padded with the last query."""
    n_queries = len(emission_QS2)
    lane_GL = np.arange(-(-n_queries // LANES) * LANES).reshape(-1, LANES).clip(max=n_queries - 1)
    return np.ascontiguousarray(emission_QS2[lane_GL].transpose(0, 2, 3, 1))


# Steps for all haplotypes and LANES queries


class SpanValues(NamedTuple):
    """Values of the patterns at a place of a span, float32."""

    # stay_DL, switch_DL: see the formulas in the module's docstring
    stay_DL: np.ndarray
    switch_DL: np.ndarray
    # In a forward pass: one over the sum of all haplotypes' values. In a backward pass: the last divisor of
    # `step_back`.
    scale_L: np.ndarray


class SpanSums(NamedTuple):
    """Sums of values on both sides of a span, over the haplotypes of each pattern, float32 (D, L)."""

    left_DL: np.ndarray  # sum of forward values to the left of the span
    right_DL: np.ndarray  # sum of backward values to the right of the span
    product_DL: np.ndarray  # sum of a haplotype's left value times its right value


@kernel()
def span_values(patterns):  # type: ignore[no-untyped-def]
    """Allocate `SpanValues` that are large enough for each span."""
    largest = max_patterns(patterns.first_I1)
    return SpanValues(
        np.empty((largest, LANES), np.float32),
        np.empty((largest, LANES), np.float32),
        np.empty(LANES, np.float32),
    )


@kernel()
def span_sums(patterns):  # type: ignore[no-untyped-def]
    """Allocate `SpanSums` that are large enough for each span."""
    largest = max_patterns(patterns.first_I1)
    return SpanSums(
        np.empty((largest, LANES), np.float32),
        np.empty((largest, LANES), np.float32),
        np.empty((largest, LANES), np.float32),
    )


@kernel(inline=True)
def n_patterns(patterns, span):  # type: ignore[no-untyped-def]
    """Return the number of patterns of a span."""
    return patterns.first_I1[span + 1] - patterns.first_I1[span]


@kernel()
def start_span(patterns, span, values):  # type: ignore[no-untyped-def]
    """Set the values at the start of a span, where no query has switched yet."""
    d = n_patterns(patterns, span)
    values.stay_DL[:d] = 1
    values.switch_DL[:d] = 0
    values.scale_L[:] = 1


@kernel(fast=True)
def transition(patterns, place, jump, values):  # type: ignore[no-untyped-def]
    """Take forward values from the previous place to this one, without this place's emissions."""
    stay_DL, switch_DL, scale_L = values
    span, count_D = place // SPAN, patterns.count_D
    first = patterns.first_I1[span]
    keep, arrive = np.float32(1) - jump, jump / np.float32(patterns.pattern_IN.shape[1])
    scale = load(scale_L, 0)
    for d in range(n_patterns(patterns, span)):
        store(stay_DL, d, flush_tiny(load(stay_DL, d) * scale * keep))
        store(switch_DL, d, load(switch_DL, d) * scale * keep + arrive * count_D[first + d])


@kernel(fast=True)
def apply_emissions(patterns, place, emission_S2L, left_DL, values):  # type: ignore[no-untyped-def]
    """Multiply forward values by the emissions of a place; left_DL: see `SpanSums`."""
    stay_DL, switch_DL, scale_L = values
    span, bits_D = place // SPAN, patterns.bits_D
    first, p = patterns.first_I1[span], place % SPAN
    total = all_lanes(np.float32(0))
    for d in range(n_patterns(patterns, span)):
        emission = load(emission_S2L, (place, allele_at(bits_D[first + d], p)))
        stay, switch = load(stay_DL, d) * emission, load(switch_DL, d) * emission
        store(stay_DL, d, stay)
        store(switch_DL, d, switch)
        total += stay * load(left_DL, d) + switch
    store(scale_L, 0, np.float32(1) / total)


@kernel(fast=True)
def step_back(patterns, place, emission_S2L, jump, right_DL, values):  # type: ignore[no-untyped-def]
    """Take backward values from the right of a place to its left.

    They are divided by their mean over all haplotypes, which is written to scale_L. right_DL: see `SpanSums`.
    """
    stay_DL, switch_DL, divisor_L = values
    span, bits_D, count_D = place // SPAN, patterns.bits_D, patterns.count_D
    first, p, n = patterns.first_I1[span], place % SPAN, patterns.pattern_IN.shape[1]
    total = all_lanes(np.float32(0))
    for d in range(n_patterns(patterns, span)):
        emission = load(emission_S2L, (place, allele_at(bits_D[first + d], p)))
        total += emission * (load(stay_DL, d) * load(right_DL, d) + load(switch_DL, d) * count_D[first + d])
    keep = (np.float32(1) - jump) * (np.float32(n) / total)
    store(divisor_L, 0, total * (np.float32(1) / np.float32(n)))
    for d in range(n_patterns(patterns, span)):
        kept = load(emission_S2L, (place, allele_at(bits_D[first + d], p))) * keep
        store(stay_DL, d, flush_tiny(kept * load(stay_DL, d)))
        store(switch_DL, d, kept * load(switch_DL, d) + jump)


@kernel(inline=True)
def allele_at(bits, p):  # type: ignore[no-untyped-def]
    """Return the allele of a pattern (bits_D) at place p of its span."""
    return (bits >> np.uint64(p)) & np.uint64(1)


@kernel(fast=True, inline=True)
def sum_products(stay, switch, left, right_stay, right_switch, right, product, share):  # type: ignore[no-untyped-def]
    """Sum forward times backward values over the haplotypes of a pattern, at a place.

    Returns three numbers s, a, b; the sum is s + a b. s belongs to queries that have stayed on their
    haplotype since the span's start, a b to those that have switched. left, right, product: see `SpanSums`.
    share: one over the number of the pattern's haplotypes.
    """
    stayed = stay * multiply_add(right_switch, left, right_stay * product)
    return stayed, switch, share * right_stay * right + right_switch


@kernel(fast=True)
def sum_by_allele(patterns, place, values, sums, right, by_allele_2L):  # type: ignore[no-untyped-def]
    """Fill by_allele_2L: P(calls at all other places, copied haplotype has REF or ALT here), up to a factor.

    This is the sum of forward times backward values over the haplotypes with each allele. The emissions of
    the place itself are not used. right: `BackwardValues`.
    """
    stay_DL, switch_DL, _ = values
    left_DL, right_DL, product_DL = sums
    span, bits_D, count_D = place // SPAN, patterns.bits_D, patterns.count_D
    first, p = patterns.first_I1[span], place % SPAN
    by_allele_2L[:] = 0
    for d in range(n_patterns(patterns, span)):
        allele = allele_at(bits_D[first + d], p)
        stayed, switch, factor = sum_products(
            load(stay_DL, d), load(switch_DL, d), load(left_DL, d), load(right.stay_PDL, (p, first + d)),
            load(right.switch_PDL, (p, first + d)), load(right_DL, d),
            load(product_DL, d), np.float32(1) / count_D[first + d],
        )  # fmt: skip
        store(by_allele_2L, allele, load(by_allele_2L, allele) + multiply_add(switch, factor, stayed))


@kernel(fast=True)
def sum_patterns(patterns, span, x_NL, sum_DL):  # type: ignore[no-untyped-def]
    """Fill sum_DL with the sum of x_NL over the haplotypes of each pattern of a span."""
    sum_DL[: n_patterns(patterns, span)] = 0
    pattern_N = patterns.pattern_IN[span]
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(sum_DL, d, load(sum_DL, d) + load(x_NL, h))


@kernel(fast=True)
def sum_around(patterns, span, x_NL, y_NL, sums):  # type: ignore[no-untyped-def]
    """Fill `SpanSums` from the values to the left (x_NL) and to the right (y_NL) of a span."""
    x_DL, y_DL, product_DL = sums
    clear_sums(patterns, span, sums)
    pattern_N = patterns.pattern_IN[span]
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        x, y = load(x_NL, h), load(y_NL, h)
        store(x_DL, d, load(x_DL, d) + x)
        store(y_DL, d, load(y_DL, d) + y)
        store(product_DL, d, load(product_DL, d) + x * y)


@kernel()
def clear_sums(patterns, span, sums):  # type: ignore[no-untyped-def]
    """Set the `SpanSums` of a span to 0."""
    d = n_patterns(patterns, span)
    sums.left_DL[:d] = 0
    sums.right_DL[:d] = 0
    sums.product_DL[:d] = 0


@kernel(fast=True)
def end_span(patterns, span, values):  # type: ignore[no-untyped-def]
    """Scale forward values at a span's end for `cross_span`: switch_DL becomes the value per haplotype."""
    stay_DL, switch_DL, scale_L = values
    first, count_D = patterns.first_I1[span], patterns.count_D
    scale = load(scale_L, 0)
    for d in range(n_patterns(patterns, span)):
        store(stay_DL, d, load(stay_DL, d) * scale)
        store(switch_DL, d, load(switch_DL, d) * (scale / count_D[first + d]))


@kernel(fast=True)
def cross_span(patterns, span, values, x_NL):  # type: ignore[no-untyped-def]
    """Take the values of all haplotypes from one side of a span to the other, in place.

    This works in both directions; `values` are those after the last step within the span.
    """
    stay_DL, switch_DL, _ = values
    pattern_N = patterns.pattern_IN[span]
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        store(x_NL, h, load(stay_DL, d) * load(x_NL, h) + load(switch_DL, d))


@kernel(fast=True)
def cross_span_and_sum(patterns, span, next_span, values, x_NL, out_NL, sum_DL):  # type: ignore[no-untyped-def]
    """Do the work of `cross_span`, and of `sum_patterns` for the next span, in one loop.

    One loop is faster, because memory access takes most of the time. x_NL: values on the starting side.
    out_NL: filled with the values on the other side; it may be the same array.
    """
    stay_DL, switch_DL, _ = values
    sum_DL[: n_patterns(patterns, next_span)] = 0
    pattern_N, next_pattern_N = patterns.pattern_IN[span], patterns.pattern_IN[next_span]
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        x = load(stay_DL, d) * load(x_NL, h) + load(switch_DL, d)
        store(out_NL, h, x)
        store(sum_DL, e, load(sum_DL, e) + x)


@kernel(fast=True)
def cross_span_and_sum_around(patterns, span, values, x_NL, y_NL, sums):  # type: ignore[no-untyped-def]
    """Do the work of `cross_span`, and of `sum_around` for the next span, in one loop.

    x_NL: forward values to the left of the span, updated. y_NL: backward values to the right of the next
    span.
    """
    stay_DL, switch_DL, _ = values
    x_DL, y_DL, product_DL = sums
    clear_sums(patterns, span + 1, sums)
    pattern_N, next_pattern_N = patterns.pattern_IN[span], patterns.pattern_IN[span + 1]
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        x, y = load(stay_DL, d) * load(x_NL, h) + load(switch_DL, d), load(y_NL, h)
        store(x_NL, h, x)
        store(x_DL, e, load(x_DL, e) + x)
        store(y_DL, e, load(y_DL, e) + y)
        store(product_DL, e, load(product_DL, e) + x * y)


# Steps for a list of haplotypes and one query


def pad_to_lanes(alleles_SN: np.ndarray) -> np.ndarray:
    """Pad alleles, uint8, with 0 to a multiple of LANES haplotypes, (S, K). Its share must be 0."""
    n_places, n = alleles_SN.shape
    alleles_SK = np.zeros((n_places, -(-n // LANES) * LANES), np.uint8)
    alleles_SK[:, :n] = alleles_SN
    return alleles_SK


@kernel(fast=True)
def step_forward_states(  # type: ignore[no-untyped-def]
    allele_K, share_K, emission_2, jump, before_K, before_total, forward_K
):
    """Take forward values from the previous place to this one, and return their sum.

    The previous values are divided by their sum, the new ones are not. allele_K: uint8, the states' alleles
    at this place. share_K: P(a switch leads to this state), 0 for states that the query may not copy.
    before_K, before_total: values at the previous place and their sum; share_K and 1 for the first place.
    forward_K: the result; it may be the same array as before_K.
    """
    one = np.float32(1)
    keep = (one - jump) * (one / before_total)
    total = all_lanes(np.float32(0))
    for k in range(0, len(allele_K), LANES):
        emission = select_by_allele(allele_K, k, emission_2[0], emission_2[1])
        value = (load(before_K, k) * keep + jump * load(share_K, k)) * emission
        store(forward_K, k, value)
        total += value
    return sum_lanes(total)


@kernel(fast=True)
def step_list(bits_IK, place, n, emission_2, keep, arrive, value_K):  # type: ignore[no-untyped-def]
    """Replace the values of n states by (value * keep + arrive) * emission, and return their sum.

    All states have the same share. In a forward pass, `keep` and `arrive` are the transition from the
    previous place to this one. In a backward pass, they are the transition from the next place to this one.
    bits_IK: uint16, the states' alleles at 16 places per word.
    """
    bits_K, bit = bits_IK[place >> 4], place & 15
    total = all_lanes(np.float32(0))
    full_vectors_end = n // LANES * LANES
    for k in range(0, full_vectors_end, LANES):
        emission = select_by_bit(bits_K, k, bit, emission_2[0], emission_2[1])
        value = (load(value_K, k) * keep + arrive) * emission
        store(value_K, k, value)
        total += value
    if full_vectors_end < n:
        emission = select_by_bit(bits_K, full_vectors_end, bit, emission_2[0], emission_2[1])
        value = keep_first_lanes(
            (load(value_K, full_vectors_end) * keep + arrive) * emission, n - full_vectors_end
        )
        store(value_K, full_vectors_end, value)
        total += value
    return sum_lanes(total)
