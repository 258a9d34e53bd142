"""One sweep over genotype likelihoods for one sample whose chains copy a list of states.

The sweep computes the same as `likelihood_passes`, which explains it. There are few states, so the values of
all states at all places of a group are kept. A chain that leaves its state switches to another state with a
probability that is proportional to that state's share.

Axes: S places of a group, P = S or 0, I words of 16 places, K states (a multiple of LANES), 2 chains or
alleles, L = 2 lanes, one for each chain, H = 1 sample; 3: genotype, as copies of ALT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, select_by_bit, store, sum_lanes, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.fragment_phase import (
    TIE,
    enter_place,
    exchange_left,
    exchange_odds,
    heterozygote_factors,
)
from spinimpute.phasing.likelihood_passes import EXCHANGE_EVERY, condition, find_known, joint, predict
from spinimpute.runtime.kernels import kernel


class CopiedStates(NamedTuple):
    """The states of a sample."""

    bits_IK: np.ndarray  # uint16, alleles at 16 places; the first place is the lowest bit
    share_K: np.ndarray  # float32, probability to switch to each state; sums to 1, 0 for padding


@kernel(fast=True)
def fill_states_backwards(states, swept, after_2K, right_P2K):  # type: ignore[no-untyped-def]
    """Take backward values of both chains from the right end of a group to its left end, in place.

    swept: `SweptPlaces`. right_P2K: filled with the values to the right of each place, unless it is empty.
    """
    bits_IK, share_K = states
    one, zero, jump_S = np.float32(1), np.float32(0), swept.jump_S
    first_K, second_K, emission_S2L = after_2K[0], after_2K[1], swept.emission_S2L
    for s in range(len(jump_S) - 1, -1, -1):
        place = swept.first_place + s
        bits_K, bit = bits_IK[place >> 4], place & 15
        if len(right_P2K):
            for k in range(len(share_K)):
                right_P2K[s, 0, k], right_P2K[s, 1, k] = first_K[k], second_K[k]
        ref_1, ref_2 = emission_S2L[s, 0, 0], emission_S2L[s, 0, 1]
        alt_1, alt_2 = emission_S2L[s, 1, 0], emission_S2L[s, 1, 1]
        all_1, all_2 = all_lanes(zero), all_lanes(zero)
        for k in range(0, len(share_K), LANES):
            share = load(share_K, k)
            # Without this, the values of states with a share of 0 would grow without bound.
            first = where_positive(share, load(first_K, k) * select_by_bit(bits_K, k, bit, ref_1, alt_1))
            second = where_positive(share, load(second_K, k) * select_by_bit(bits_K, k, bit, ref_2, alt_2))
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
def sweep_states_forward(states, swept, right_P2K, left_2K, sum_2, fragments):  # type: ignore[no-untyped-def]
    """Update the `SweptPlaces` of a group, see `likelihood_passes.sweep_forward`.

    left_2K, sum_2: forward values of both chains to the left of the group and their sums, replaced by those
    to the right of the group. right_P2K: see `fill_states_backwards`.
    """
    own_2L, cross_2L = np.empty((2, 2), np.float32), np.empty((2, 2), np.float32)
    crossed_2H, known_H = np.empty((2, 1), np.float32), np.zeros(1, np.bool_)
    crossable = not swept.is_first and not swept.haploid_H[0]
    for s in range(len(swept.jump_S)):
        place = swept.first_place + s
        _arrive(states, place, swept.jump_S[s], sum_2, left_2K, right_P2K[s], own_2L)
        likelihood_3H, factor_2H = swept.likelihood_S3H[s], swept.factor_S2H[s]
        known = find_known(likelihood_3H, known_H)
        stop = enter_place(fragments, 0, place)
        heterozygote_factors(fragments, 0, stop, False, factor_2H)
        if crossable and place % EXCHANGE_EVERY == 0:
            _join_cross(states, place, left_2K, right_P2K[s], cross_2L)
            unchanged = joint(own_2L, 0, likelihood_3H, factor_2H)
            heterozygote_factors(fragments, 0, stop, True, crossed_2H)
            crossed = joint(cross_2L, 0, likelihood_3H, crossed_2H)
            if crossed * exchange_odds(fragments, 0) > unchanged * (1 + TIE):
                swept.swap_after_SH[s, 0] = True
                factor_2H[:] = crossed_2H
                own_2L[:] = cross_2L
        predict(own_2L, 0, swept.probability_SL[s])
        if known:
            condition(swept, s, 0, fragments, stop)
            _emit(states, place, swept.emission_S2L[s], left_2K, sum_2)
        if swept.swap_after_SH[s, 0]:  # exchange the left values instead of all values to the right
            for k in range(left_2K.shape[1]):
                left_2K[0, k], left_2K[1, k] = left_2K[1, k], left_2K[0, k]
            sum_2[0], sum_2[1] = sum_2[1], sum_2[0]
            exchange_left(fragments, 0)


@kernel(fast=True)
def _arrive(states, place, jump, sum_2, left_2K, right_2K, own_2L):  # type: ignore[no-untyped-def]
    """Take forward values to this place, without its emissions, and scale them to a sum of 1.

    own_2L: filled with the sums of forward times backward values, by the allele that the state has here.
    """
    bits_K, bit, share_K = states.bits_IK[place >> 4], place & 15, states.share_K
    zero, one = np.float32(0), np.float32(1)
    first_K, second_K, right_1K, right_2K = left_2K[0], left_2K[1], right_2K[0], right_2K[1]
    stay_1, stay_2 = (one - jump) / sum_2[0], (one - jump) / sum_2[1]
    alt_1, all_1, alt_2, all_2 = all_lanes(zero), all_lanes(zero), all_lanes(zero), all_lanes(zero)
    for k in range(0, len(share_K), LANES):
        switch, is_alt = load(share_K, k) * jump, select_by_bit(bits_K, k, bit, zero, one)
        first = load(first_K, k) * stay_1 + switch
        second = load(second_K, k) * stay_2 + switch
        store(first_K, k, first)
        store(second_K, k, second)
        first, second = first * load(right_1K, k), second * load(right_2K, k)
        all_1 += first
        all_2 += second
        alt_1 += first * is_alt
        alt_2 += second * is_alt
    sum_2[:] = 1
    _set_joined(sum_lanes(all_1), sum_lanes(alt_1), 0, own_2L)
    _set_joined(sum_lanes(all_2), sum_lanes(alt_2), 1, own_2L)


@kernel(fast=True)
def _join_cross(states, place, left_2K, right_2K, cross_2L):  # type: ignore[no-untyped-def]
    """Fill cross_2L like own_2L in `_arrive`, but with the backward values of the other chain."""
    bits_K, bit = states.bits_IK[place >> 4], place & 15
    zero, one = np.float32(0), np.float32(1)
    for c in range(2):
        left_K, right_K = left_2K[c], right_2K[1 - c]
        alt, total = all_lanes(zero), all_lanes(zero)
        for k in range(0, len(left_K), LANES):
            product = load(left_K, k) * load(right_K, k)
            total += product
            alt += product * select_by_bit(bits_K, k, bit, zero, one)
        _set_joined(sum_lanes(total), sum_lanes(alt), c, cross_2L)


@kernel()
def _set_joined(total, alt, lane, by_allele_2L):  # type: ignore[no-untyped-def]
    by_allele_2L[0, lane], by_allele_2L[1, lane] = max(total - alt, np.float32(0)), alt


@kernel(fast=True)
def _emit(states, place, emission_2L, left_2K, sum_2):  # type: ignore[no-untyped-def]
    """Multiply the forward values by the emissions of a place, and update their sums."""
    bits_K, bit = states.bits_IK[place >> 4], place & 15
    first_K, second_K = left_2K[0], left_2K[1]
    ref_1, alt_1, ref_2, alt_2 = emission_2L[0, 0], emission_2L[1, 0], emission_2L[0, 1], emission_2L[1, 1]
    all_1, all_2 = all_lanes(np.float32(0)), all_lanes(np.float32(0))
    for k in range(0, len(first_K), LANES):
        first = load(first_K, k) * select_by_bit(bits_K, k, bit, ref_1, alt_1)
        second = load(second_K, k) * select_by_bit(bits_K, k, bit, ref_2, alt_2)
        store(first_K, k, first)
        store(second_K, k, second)
        all_1 += first
        all_2 += second
    sum_2[0], sum_2[1] = sum_lanes(all_1), sum_lanes(all_2)
