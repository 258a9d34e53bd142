"""One sweep over genotype likelihoods: two chains a sample, each given what the other is likely to have.

Either haplotype of a sample copies the panel by the model of Li and Stephens. A chain's emission of allele a
is the sum over the other chain's alleles b of P(b) L(a + b); P(b) is by what is left and right of the place,
so that a chain never hears its own evidence back. What lies on the left is as of this sweep, what lies on the
right as of the last one (`backward_values`). At some places it is weighed whether everything behind is better
exchanged between the two chains. Fragments with several sites say which of the two has an allele
(`fragment_phase`): they change what is likely of heterozygotes, and of an exchange.

HALF samples go through side by side: lane l is the first chain of a sample, lane l + HALF its second one.

Axes: S places of a window, I spans, N haplotypes that may be copied, D patterns of a span, P places of a
span, L lanes, H = HALF samples, 2 alleles of a state, 3: copies of ALT.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import most_patterns
from spinimpute.hmm.steps import emit, end_span, go_through_alone, join, leave, sum_both
from spinimpute.phasing.fragment_phase import (
    TIE,
    arrive,
    exchange_left,
    exchange_odds,
    heterozygote_factors,
    pass_on,
)
from spinimpute.phasing.passes import HALF, exchange, join_cross, sum_cross
from spinimpute.runtime.kernels import kernel

MUTATION = np.float32(1e-5)  # an allele that is not the one copied, of what is written
EXCHANGE_EVERY = 8  # places; more often brings nothing


@kernel(fast=True)
def sweep_forward(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, likelihood_S3H, haploid_H, jump_S, behind_INL, right_stay_PDL,
    right_come_PDL, left_NL, mismatch, starting, fragments, first_place, emission_S2L, exchanged_HS,
    probability_SL, factor_S2H,
):  # fmt: skip
    """Update the emissions of some spans, and decide on exchanges.

    left_NL: forward values of all haplotypes before these spans, then behind them.
    likelihood_S3H: of 0, 1 and 2 copies of ALT; equal where nothing is known. emission_S2L: as of the last
    sweep, which behind_INL, right_stay_PDL and right_come_PDL (`backward_values`) have too. starting: the two
    chains are still the same; each is given the likeliest allele of the other, and nothing is exchanged. Else
    probability_SL, P(ALT) by what is around, is filled in at all places, those without likelihoods too, and
    exchanged_HS says whether all behind a place changes chains.
    fragments: `SweptFragments`, of places of which these spans' first one is first_place. factor_S2H: what
    they make of what is known, `heterozygote_factors`.
    """
    n = pattern_IN.shape[1]
    most = most_patterns(first_I1)
    left_DL, right_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    own_DL, cross_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L = np.empty(LANES, np.float32)
    own_2L, cross_2L = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    crossed_2H = np.empty((2, HALF), np.float32)
    exchanged_H, known_H = np.zeros(HALF, np.uint8), np.zeros(HALF, np.bool_)
    for i in range(len(pattern_IN)):
        first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
        here = slice(first, first + d)
        sum_both(pattern_IN[i], left_NL, behind_INL[i], left_DL[:d], right_DL[:d], own_DL[:d])
        if not starting:
            sum_cross(pattern_IN[i], left_NL, behind_INL[i], cross_DL[:d])
        stay_DL[:d] = 1
        come_DL[:d] = 0
        scale_L[:] = 1
        for place in range(i * SPAN, min(i * SPAN + SPAN, len(jump_S))):
            at = place - i * SPAN
            leave(count_D[here], jump_S[place], n, scale_L, stay_DL, come_DL)
            known_here = find_known(likelihood_S3H[place], known_H)
            exchanged_H[:] = 0
            crossing = not starting and at % EXCHANGE_EVERY == 0
            if known_here or not starting:
                join(
                    bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_stay_PDL[at, here],
                    right_come_PDL[at, here], right_DL, own_DL, own_2L,
                )  # fmt: skip
                if crossing:
                    join_cross(
                        bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_stay_PDL[at, here],
                        right_come_PDL[at, here], right_DL, cross_DL, cross_2L,
                    )  # fmt: skip
                for l in range(HALF):
                    stop = arrive(fragments, l, first_place + place)
                    heterozygote_factors(fragments, l, stop, False, factor_S2H[place])
                    if crossing and not haploid_H[l]:
                        as_it_is = joint(own_2L, l, likelihood_S3H[place], factor_S2H[place])
                        heterozygote_factors(fragments, l, stop, True, crossed_2H)
                        crossed = joint(cross_2L, l, likelihood_S3H[place], crossed_2H)
                        if crossed * exchange_odds(fragments, l) > as_it_is * (1 + TIE):
                            exchanged_H[l] = exchanged_HS[l, place] = 1
                            factor_S2H[place, :, l] = crossed_2H[:, l]
                            for a in range(2):
                                own_2L[a, l], own_2L[a, l + HALF] = cross_2L[a, l], cross_2L[a, l + HALF]
                    predict(own_2L, l, probability_SL[place])
                    if known_H[l]:
                        condition(
                            likelihood_S3H[place], factor_S2H[place], l, haploid_H[l], mismatch, starting,
                            fragments, stop, exchanged_H[l], emission_S2L[place], probability_SL[place],
                        )  # fmt: skip
            if known_here:
                emit(bits_D[here], at, emission_S2L[place], left_DL, scale_L, stay_DL, come_DL)
            for l in range(HALF):
                if not known_H[l]:  # the sum stays 1, and no sample depends on those beside it
                    scale_L[l] = scale_L[l + HALF] = 1
            for l in range(HALF):
                if exchanged_H[l]:
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
                    exchange_left(fragments, l)
        end_span(count_D[here], scale_L, stay_DL, come_DL)
        go_through_alone(pattern_IN[i], stay_DL, come_DL, left_NL)


@kernel()
def find_known(likelihood_3H, known_H):  # type: ignore[no-untyped-def]
    """Find the samples of which something is known at a place; returns whether there is any."""
    found = False
    for l in range(len(known_H)):
        first = likelihood_3H[0, l]
        known_H[l] = first != likelihood_3H[1, l] or first != likelihood_3H[2, l]
        found |= known_H[l]
    return found


@kernel()
def _alt(joined_2L, lane):  # type: ignore[no-untyped-def]
    """P(ALT) of a chain: of what it copies, or a mutation since."""
    p = joined_2L[1, lane] / (joined_2L[0, lane] + joined_2L[1, lane])
    return p + MUTATION * (np.float32(1) - np.float32(2) * p)


@kernel()
def joint(joined_2L, lane, likelihood_3H, factor_2H):  # type: ignore[no-untyped-def]
    """Probability of what is known at a place and around it, of both chains; factor_2H: of heterozygotes."""
    other = lane + joined_2L.shape[1] // 2
    p, q = _alt(joined_2L, lane), _alt(joined_2L, other)
    around = (np.float64(joined_2L[0, lane]) + np.float64(joined_2L[1, lane])) * (
        np.float64(joined_2L[0, other]) + np.float64(joined_2L[1, other])
    )
    at_place = (
        (1 - p) * (1 - q) * likelihood_3H[0, lane]
        + (p * (1 - q) * factor_2H[0, lane] + q * (1 - p) * factor_2H[1, lane]) * likelihood_3H[1, lane]
        + p * q * likelihood_3H[2, lane]
    )
    return around * at_place


@kernel()
def predict(joined_2L, lane, probability_L):  # type: ignore[no-untyped-def]
    """P(ALT) of a sample's chains by what is around."""
    other = lane + len(probability_L) // 2
    probability_L[lane], probability_L[other] = _alt(joined_2L, lane), _alt(joined_2L, other)


@kernel()
def condition(  # type: ignore[no-untyped-def]
    likelihood_3H, factor_2H, lane, haploid, mismatch, starting, fragments, stop, exchanged, emission_2L,
    probability_L,
):  # fmt: skip
    """Emissions of a sample's chains at a place, each given the other, and messages of fragments."""
    one = np.float32(1)
    other = lane + len(probability_L) // 2
    p, q = probability_L[lane], probability_L[other]
    none, two = likelihood_3H[0, lane], likelihood_3H[2, lane]
    if haploid:  # its other chain has nothing to say
        _set_emission(emission_2L, lane, none, two, mismatch)
        emission_2L[:, other] = 1
        return
    # with the ALT of the first chain, and with that of the second one
    first, second = likelihood_3H[1, lane] * factor_2H[0, lane], likelihood_3H[1, lane] * factor_2H[1, lane]
    if starting:
        p, q = _likeliest_pair(p, q, none, first, second, two)
    _set_emission(emission_2L, lane, (one - q) * none + q * second, (one - q) * first + q * two, mismatch)
    _set_emission(emission_2L, other, (one - p) * none + p * first, (one - p) * second + p * two, mismatch)
    pass_on(
        fragments, lane, stop, exchanged, (one - p) * (one - q) * none, p * (one - q) * first,
        (one - p) * q * second, p * q * two,
    )  # fmt: skip


@kernel()
def _likeliest_pair(p, q, none, first, second, two):  # type: ignore[no-untyped-def]
    """The likeliest alleles of both chains; of two heterozygotes that are as likely the first has ALT."""
    zero, one = np.float32(0), np.float32(1)
    best, pair = (one - p) * (one - q) * none, (zero, zero)
    alt_ref, ref_alt, both = p * (one - q) * first, q * (one - p) * second, p * q * two
    if alt_ref > best:
        best, pair = alt_ref, (one, zero)
    if ref_alt > best * (one + TIE):
        best, pair = ref_alt, (zero, one)
    if both > best:
        pair = one, one
    return pair


@kernel()
def _set_emission(emission_2L, lane, ref, alt, mismatch):  # type: ignore[no-untyped-def]
    share = alt / (ref + alt)
    share = share + mismatch * (np.float32(1) - np.float32(2) * share)
    emission_2L[0, lane], emission_2L[1, lane] = np.float32(1) - share, share
