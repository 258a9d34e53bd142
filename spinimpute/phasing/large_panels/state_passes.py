"""One sweep over genotype likelihoods, as in `likelihood_passes`, of one sample that copies a list of states.

There are few enough of them for values of each at each place. Whoever leaves its state comes to another one
with a probability in proportion to the state's share.

Axes: S places of a group, P = S or none, I words of 16 places, K states, a multiple of LANES, 2 chains or
alleles, L = 2 lanes, one for each chain; 3: copies of ALT, H = 1 sample.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import all_lanes, by_bit, load, store, sum_lanes, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.fragment_phase import TIE, arrive, exchange_left, exchange_odds, heterozygote_factors
from spinimpute.phasing.likelihood_passes import EXCHANGE_EVERY, condition, find_known, joint, predict
from spinimpute.runtime.kernels import kernel


@kernel(fast=True)
def fill_states_backwards(bits_IK, share_K, emission_S2L, jump_S, first_place, behind_2K, right_P2K):  # type: ignore[no-untyped-def]
    """Backward values of both chains from right of the last of some places to left of their first one.

    bits_IK: uint16, the states' alleles at all places, of which the first one here is first_place. share_K:
    of a sum of 1; 0 of states that only fill up. behind_2K: the values, in place. right_P2K: those right of
    each place, filled in where there is room for any.
    """
    one, zero = np.float32(1), np.float32(0)
    first_K, second_K = behind_2K[0], behind_2K[1]
    for s in range(len(jump_S) - 1, -1, -1):
        place = first_place + s
        bits_K, bit = bits_IK[place >> 4], place & 15
        if len(right_P2K):
            for k in range(len(share_K)):
                right_P2K[s, 0, k], right_P2K[s, 1, k] = first_K[k], second_K[k]
        ref_1, ref_2 = emission_S2L[s, 0, 0], emission_S2L[s, 0, 1]
        alt_1, alt_2 = emission_S2L[s, 1, 0], emission_S2L[s, 1, 1]
        all_1, all_2 = all_lanes(zero), all_lanes(zero)
        for k in range(0, len(share_K), LANES):
            share = load(share_K, k)
            # what cannot be copied would grow without end
            first = where_positive(share, load(first_K, k) * by_bit(bits_K, k, bit, ref_1, alt_1))
            second = where_positive(share, load(second_K, k) * by_bit(bits_K, k, bit, ref_2, alt_2))
            store(first_K, k, first)
            store(second_K, k, second)
            all_1 += share * first
            all_2 += share * second
        stay_1 = (one - jump_S[s]) / sum_lanes(all_1)
        stay_2 = (one - jump_S[s]) / sum_lanes(all_2)
        for k in range(0, len(share_K), LANES):
            store(first_K, k, load(first_K, k) * stay_1 + jump_S[s])
            store(second_K, k, load(second_K, k) * stay_2 + jump_S[s])


@kernel(fast=True)
def sweep_states_forward(  # type: ignore[no-untyped-def]
    bits_IK, share_K, likelihood_S3H, haploid_H, jump_S, right_P2K, left_2K, sum_2, mismatch, starting,
    fragments, first_place, emission_S2L, exchanged_HS, probability_SL, factor_S2H,
):  # fmt: skip
    """Update the emissions of a group of places, and decide on exchanges.

    left_2K, sum_2: forward values of both chains behind the place before, and their sums; then those behind
    the last place. right_P2K: `fill_states_backwards`. The rest as of `likelihood_passes.sweep_forward`.
    """
    own_2L, cross_2L = np.empty((2, 2), np.float32), np.empty((2, 2), np.float32)
    crossed_2H, known_H = np.empty((2, 1), np.float32), np.zeros(1, np.bool_)
    haploid = haploid_H[0]
    for s in range(len(jump_S)):
        place = first_place + s
        bits_K, bit = bits_IK[place >> 4], place & 15
        _arrive(bits_K, bit, share_K, jump_S[s], sum_2, left_2K, right_P2K[s], own_2L)
        known = find_known(likelihood_S3H[s], known_H)
        exchanged = False
        stop = arrive(fragments, 0, place)
        heterozygote_factors(fragments, 0, stop, False, factor_S2H[s])
        if not starting and not haploid and place % EXCHANGE_EVERY == 0:
            _join_cross(bits_K, bit, left_2K, right_P2K[s], cross_2L)
            as_it_is = joint(own_2L, 0, likelihood_S3H[s], factor_S2H[s])
            heterozygote_factors(fragments, 0, stop, True, crossed_2H)
            crossed = joint(cross_2L, 0, likelihood_S3H[s], crossed_2H)
            if crossed * exchange_odds(fragments, 0) > as_it_is * (1 + TIE):
                exchanged = True
                exchanged_HS[0, s] = 1
                factor_S2H[s] = crossed_2H
                own_2L[:] = cross_2L
        predict(own_2L, 0, probability_SL[s])
        if known:
            condition(
                likelihood_S3H[s], factor_S2H[s], 0, haploid, mismatch, starting, fragments, stop, exchanged,
                emission_S2L[s], probability_SL[s],
            )  # fmt: skip
            _emit(bits_K, bit, emission_S2L[s], left_2K, sum_2)
        if exchanged:  # the right side keeps its lanes, what is left of it changes them
            for k in range(len(share_K)):
                left_2K[0, k], left_2K[1, k] = left_2K[1, k], left_2K[0, k]
            sum_2[0], sum_2[1] = sum_2[1], sum_2[0]
            exchange_left(fragments, 0)


@kernel(fast=True)
def _arrive(bits_K, bit, share_K, jump, sum_2, left_2K, right_2K, own_2L):  # type: ignore[no-untyped-def]
    """Forward values from behind the place before to this one, without what is known here; their sum is 1.

    own_2L: sums of their products with those right of the place, by the allele copied there.
    """
    zero, one = np.float32(0), np.float32(1)
    first_K, second_K, right_1K, right_2K = left_2K[0], left_2K[1], right_2K[0], right_2K[1]
    stay_1, stay_2 = (one - jump) / sum_2[0], (one - jump) / sum_2[1]
    alt_1, all_1, alt_2, all_2 = all_lanes(zero), all_lanes(zero), all_lanes(zero), all_lanes(zero)
    for k in range(0, len(share_K), LANES):
        come, is_alt = load(share_K, k) * jump, by_bit(bits_K, k, bit, zero, one)
        first = load(first_K, k) * stay_1 + come
        second = load(second_K, k) * stay_2 + come
        store(first_K, k, first)
        store(second_K, k, second)
        first, second = first * load(right_1K, k), second * load(right_2K, k)
        all_1 += first
        all_2 += second
        alt_1 += first * is_alt
        alt_2 += second * is_alt
    sum_2[:] = 1
    _by_allele(sum_lanes(all_1), sum_lanes(alt_1), 0, own_2L)
    _by_allele(sum_lanes(all_2), sum_lanes(alt_2), 1, own_2L)


@kernel(fast=True)
def _join_cross(bits_K, bit, left_2K, right_2K, cross_2L):  # type: ignore[no-untyped-def]
    """Sums as of `_arrive`, of what is left of a place with what is right of it of the other chain."""
    zero, one = np.float32(0), np.float32(1)
    for c in range(2):
        left_K, right_K = left_2K[c], right_2K[1 - c]
        alt, both = all_lanes(zero), all_lanes(zero)
        for k in range(0, len(left_K), LANES):
            product = load(left_K, k) * load(right_K, k)
            both += product
            alt += product * by_bit(bits_K, k, bit, zero, one)
        _by_allele(sum_lanes(both), sum_lanes(alt), c, cross_2L)


@kernel()
def _by_allele(both, alt, lane, joined_2L):  # type: ignore[no-untyped-def]
    joined_2L[0, lane], joined_2L[1, lane] = max(both - alt, np.float32(0)), alt


@kernel(fast=True)
def _emit(bits_K, bit, emission_2L, left_2K, sum_2):  # type: ignore[no-untyped-def]
    """Forward values with what is known at a place, and their sums."""
    first_K, second_K = left_2K[0], left_2K[1]
    ref_1, alt_1, ref_2, alt_2 = emission_2L[0, 0], emission_2L[1, 0], emission_2L[0, 1], emission_2L[1, 1]
    all_1, all_2 = all_lanes(np.float32(0)), all_lanes(np.float32(0))
    for k in range(0, len(first_K), LANES):
        first = load(first_K, k) * by_bit(bits_K, k, bit, ref_1, alt_1)
        second = load(second_K, k) * by_bit(bits_K, k, bit, ref_2, alt_2)
        store(first_K, k, first)
        store(second_K, k, second)
        all_1 += first
        all_2 += second
    sum_2[0], sum_2[1] = sum_lanes(all_1), sum_lanes(all_2)
