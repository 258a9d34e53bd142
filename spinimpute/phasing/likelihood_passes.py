"""One sweep over genotype likelihoods: updates both chains of each sample, given the other chain's alleles.

Each of a sample's two chains copies the panel by the model of Li and Stephens. The emission of allele a is

    sum_b P(b) L(a + b)

over the alleles b of the sample's other chain, with the likelihood L of a + b copies of ALT. P(b) is computed
from all places but the current one, so an observation is never used twice. Places to the left enter with
their values of this sweep, places to the right with those of the sweep before (`backward_values`).

At every EXCHANGE_EVERY-th place the sweep tests whether exchanging the two chains at all places to the right
makes the observations more likely. Fragments that cover several sites show which chain has an allele
(`fragment_phase`). They change the probabilities of heterozygotes and of exchanges.

HALF samples are computed together: lane l is the first chain of sample l, lane l + HALF its second chain.
`large_panels.state_passes` does the same for a list of states.

Axes: S places, N haplotypes that may be copied, L lanes, H = HALF samples, 2 alleles of a state; 3: genotype,
as copies of ALT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.steps import (
    apply_emissions,
    cross_span,
    end_span,
    span_sums,
    span_values,
    start_span,
    sum_around,
    sum_by_allele,
    transition,
)
from spinimpute.phasing.fragment_phase import (
    TIE,
    enter_place,
    exchange_left,
    exchange_odds,
    heterozygote_factors,
    leave_place,
)
from spinimpute.phasing.passes import HALF, exchange_left_side, sum_by_allele_crossed, sum_cross
from spinimpute.runtime.kernels import kernel

MUTATION = np.float32(1e-5)  # probability that a sample's allele differs from the copied one
MISMATCH = 1e-3  # the same probability, as used in the emissions of chains
EXCHANGE_EVERY = 8  # places between two tests of an exchange; smaller distances gain nothing


class SweptPlaces(NamedTuple):
    """The data of HALF samples at consecutive places, which a sweep reads and updates."""

    first_place: int  # index of the first of these places
    jump_S: np.ndarray  # float32, see `jump_probabilities`
    # float32, likelihoods of 0, 1 and 2 copies, mixed with 1 by the trust; all equal if not observed
    likelihood_S3H: np.ndarray
    haploid_H: np.ndarray  # bool, samples with one copy of the chromosome
    # Whether this is the first sweep. Both chains of a sample then start equal, so each is given the most
    # likely allele of the other instead of a probability, and no exchange is considered.
    is_first: bool
    emission_S2L: np.ndarray  # float32, the chains' emissions, updated by the sweep
    # float32, P(ALT) of the chains, given all other places; the first sweep fills only observed samples
    probability_SL: np.ndarray
    # float32, factors of a heterozygote's likelihood from fragments, see `heterozygote_factors`
    factor_S2H: np.ndarray
    swap_after_SH: np.ndarray  # bool, whether the chains are exchanged at all places to the right of a place


@kernel(fast=True)
def sweep_forward(patterns, swept, right, left_NL, fragments):  # type: ignore[no-untyped-def]
    """Update the `SweptPlaces` of consecutive spans.

    right: `BackwardValues` of these spans, computed with the emissions of the previous sweep. left_NL:
    forward values to the left of the spans, replaced by the values to their right. fragments:
    `SweptFragments`.
    """
    values, sums, cross_DL = span_values(patterns), span_sums(patterns), span_sums(patterns).product_DL
    own_2L, cross_2L = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    crossed_2H, known_H = np.empty((2, HALF), np.float32), np.zeros(HALF, np.bool_)
    scale_L, is_first = values.scale_L, swept.is_first
    for i in range(len(patterns.pattern_IN)):
        sum_around(patterns, i, left_NL, right.after_INL[i], sums)
        if not is_first:
            sum_cross(patterns, i, left_NL, right.after_INL[i], cross_DL)
        start_span(patterns, i, values)
        for place in range(i * SPAN, min(i * SPAN + SPAN, len(swept.jump_S))):
            transition(patterns, place, swept.jump_S[place], values)
            likelihood_3H, factor_2H = swept.likelihood_S3H[place], swept.factor_S2H[place]
            exchanged_H, any_known = swept.swap_after_SH[place], find_known(likelihood_3H, known_H)
            crossing = not is_first and place % EXCHANGE_EVERY == 0
            if any_known or not is_first:
                sum_by_allele(patterns, place, values, sums, right, own_2L)
                if crossing:
                    sum_by_allele_crossed(patterns, place, values, sums, cross_DL, right, cross_2L)
                for l in range(HALF):
                    stop = enter_place(fragments, l, swept.first_place + place)
                    heterozygote_factors(fragments, l, stop, False, factor_2H)
                    if crossing and not swept.haploid_H[l]:
                        unchanged = joint(own_2L, l, likelihood_3H, factor_2H)
                        heterozygote_factors(fragments, l, stop, True, crossed_2H)
                        crossed = joint(cross_2L, l, likelihood_3H, crossed_2H)
                        if crossed * exchange_odds(fragments, l) > unchanged * (1 + TIE):
                            exchanged_H[l] = True
                            factor_2H[:, l] = crossed_2H[:, l]
                            for a in range(2):
                                own_2L[a, l], own_2L[a, l + HALF] = cross_2L[a, l], cross_2L[a, l + HALF]
                    predict(own_2L, l, swept.probability_SL[place])
                    if known_H[l]:
                        condition(swept, place, l, fragments, stop)
            if any_known:
                apply_emissions(patterns, place, swept.emission_S2L, sums.left_DL, values)
            for l in range(HALF):
                if not known_H[l]:  # a sum of exactly 1 keeps a sample independent of the other lanes
                    scale_L[l] = scale_L[l + HALF] = 1
            for l in range(HALF):
                if exchanged_H[l]:
                    exchange_left_side(patterns, i, values, sums, cross_DL, left_NL, l)
                    exchange_left(fragments, l)
        end_span(patterns, i, values)
        cross_span(patterns, i, values, left_NL)


@kernel()
def find_known(likelihood_3H, known_H):  # type: ignore[no-untyped-def]
    """Fill known_H: whether each sample is observed at the place. Return whether any sample is."""
    any_known = False
    for l in range(len(known_H)):
        first = likelihood_3H[0, l]
        known_H[l] = first != likelihood_3H[1, l] or first != likelihood_3H[2, l]
        any_known |= known_H[l]
    return any_known


@kernel()
def _alt(by_allele_2L, lane):  # type: ignore[no-untyped-def]
    """Return P(ALT) of a chain: it copies ALT and does not mutate, or copies REF and mutates."""
    p = by_allele_2L[1, lane] / (by_allele_2L[0, lane] + by_allele_2L[1, lane])
    return p + MUTATION * (np.float32(1) - np.float32(2) * p)


@kernel()
def joint(by_allele_2L, lane, likelihood_3H, factor_2H):  # type: ignore[no-untyped-def]
    """Return the probability of all observations of a sample, up to a factor that exchanges do not change.

    by_allele_2L: see `sum_by_allele`. factor_2H: see `heterozygote_factors`.
    """
    other_lane = lane + by_allele_2L.shape[1] // 2
    p, q = _alt(by_allele_2L, lane), _alt(by_allele_2L, other_lane)
    around = (np.float64(by_allele_2L[0, lane]) + np.float64(by_allele_2L[1, lane])) * (
        np.float64(by_allele_2L[0, other_lane]) + np.float64(by_allele_2L[1, other_lane])
    )
    at_place = (
        (1 - p) * (1 - q) * likelihood_3H[0, lane]
        + (p * (1 - q) * factor_2H[0, lane] + q * (1 - p) * factor_2H[1, lane]) * likelihood_3H[1, lane]
        + p * q * likelihood_3H[2, lane]
    )
    return around * at_place


@kernel()
def predict(by_allele_2L, lane, probability_L):  # type: ignore[no-untyped-def]
    """Fill P(ALT) of a sample's two chains, given all other places."""
    other_lane = lane + len(probability_L) // 2
    probability_L[lane], probability_L[other_lane] = _alt(by_allele_2L, lane), _alt(by_allele_2L, other_lane)


@kernel()
def condition(swept, place, lane, fragments, stop):  # type: ignore[no-untyped-def]
    """Fill the emissions of a sample's chains at a place, and update its fragments' messages.

    stop: see `heterozygote_factors`.
    """
    one, likelihood_S3H = np.float32(1), swept.likelihood_S3H
    emission_2L, factor_S2H = swept.emission_S2L[place], swept.factor_S2H
    other_lane = lane + emission_2L.shape[1] // 2
    p, q = swept.probability_SL[place, lane], swept.probability_SL[place, other_lane]
    likelihood_0, likelihood_2 = likelihood_S3H[place, 0, lane], likelihood_S3H[place, 2, lane]
    if swept.haploid_H[lane]:  # the second chain has no effect
        _set_emission(emission_2L, lane, likelihood_0, likelihood_2)
        emission_2L[:, other_lane] = 1
        return
    # likelihood of a heterozygote with ALT on the first chain, and with ALT on the second
    first = likelihood_S3H[place, 1, lane] * factor_S2H[place, 0, lane]
    second = likelihood_S3H[place, 1, lane] * factor_S2H[place, 1, lane]
    if swept.is_first:
        p, q = _likeliest_pair(p, q, likelihood_0, first, second, likelihood_2)
    _set_emission(
        emission_2L, lane, (one - q) * likelihood_0 + q * second, (one - q) * first + q * likelihood_2
    )
    _set_emission(
        emission_2L, other_lane, (one - p) * likelihood_0 + p * first, (one - p) * second + p * likelihood_2
    )
    joint_4 = (
        (one - p) * (one - q) * likelihood_0,
        p * (one - q) * first,
        (one - p) * q * second,
        p * q * likelihood_2,
    )
    leave_place(fragments, lane, stop, swept.swap_after_SH[place, lane], joint_4)


@kernel()
def _likeliest_pair(p, q, likelihood_0, first, second, likelihood_2):  # type: ignore[no-untyped-def]
    """Return the most likely alleles of both chains; for a tied heterozygote the first chain has ALT."""
    zero, one = np.float32(0), np.float32(1)
    best, pair = (one - p) * (one - q) * likelihood_0, (zero, zero)
    alt_ref, ref_alt, alt_alt = p * (one - q) * first, q * (one - p) * second, p * q * likelihood_2
    if alt_ref > best:
        best, pair = alt_ref, (one, zero)
    if ref_alt > best * (one + TIE):
        best, pair = ref_alt, (zero, one)
    if alt_alt > best:
        pair = one, one
    return pair


@kernel()
def _set_emission(emission_2L, lane, ref, alt):  # type: ignore[no-untyped-def]
    share = alt / (ref + alt)
    share = share + np.float32(MISMATCH) * (np.float32(1) - np.float32(2) * share)
    emission_2L[0, lane], emission_2L[1, lane] = np.float32(1) - share, share
