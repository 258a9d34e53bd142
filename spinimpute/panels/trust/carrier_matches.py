"""Compiled part of `rare_phase`: the length of the matches between carriers of an allele.

Axes: R rare sites, C carriers of all of them, N haplotypes, W 64-bit words, T common sites.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, leading_zeros, trailing_zeros
from spinimpute.runtime.kernels import kernel

MAX_MISMATCHES = 1  # differences that a match includes on each side: a wrong call or a mutation
MAX_CM, MIN_CM = 2.0, 1e-3  # cM of a match on one side


@kernel()
def _left_end(one_W, other_W, place):  # type: ignore[no-untyped-def]
    """The last place before `place` where two rows differ for the second time; -1 if there is none."""
    remaining, nearest = MAX_MISMATCHES, place - 1
    for word in range(nearest >> 6, -1, -1):  # of -1 it is -1: there is none
        differ = one_W[word] ^ other_W[word]
        if word == nearest >> 6:
            differ &= ALL_ONES >> np.uint64(63 - (nearest & 63))
        while differ:
            highest = 63 - leading_zeros(differ)
            if remaining == 0:
                return (word << 6) + highest
            remaining -= 1
            differ ^= np.uint64(1) << np.uint64(highest)
    return -1


@kernel()
def _right_end(one_W, other_W, place, n_places):  # type: ignore[no-untyped-def]
    """The first place >= `place` where two rows differ for the second time; n_places if there is none."""
    remaining = MAX_MISMATCHES
    for word in range(place >> 6, len(one_W)):
        differ = one_W[word] ^ other_W[word]
        if word == place >> 6:
            differ &= ALL_ONES << np.uint64(place & 63)
        while differ:
            if remaining == 0:
                return (word << 6) + trailing_zeros(differ)
            remaining -= 1
            differ &= differ - np.uint64(1)
    return n_places


@kernel()
def _match(one_W, other_W, place, cM, cM_T):  # type: ignore[no-untyped-def]
    """Sum of the logs of the lengths of a match on both sides of a site."""
    first, last = _left_end(one_W, other_W, place), _right_end(one_W, other_W, place, len(cM_T))
    left = cM - cM_T[first] if first >= 0 else MAX_CM
    right = cM_T[last] - cM if last < len(cM_T) else MAX_CM
    return math.log(min(left, MAX_CM) + MIN_CM) + math.log(min(right, MAX_CM) + MIN_CM)


@kernel()
def fill_gains(bits_NW, cM_T, place_R, cM_R, start_R1, carrier_C, sibling_N, gain_C):  # type: ignore[no-untyped-def]
    """Fill gain_C: the log of how much longer a carrier's sibling matches another carrier, on both sides.

    NaN for carriers whose sibling is a carrier or who have no sibling. place_R: the first common site after
    each rare site.
    """
    for r in range(len(place_R)):
        first, last = start_R1[r], start_R1[r + 1]
        for i in range(first, last):
            one = carrier_C[i]
            sibling = sibling_N[one]
            gain_C[i] = np.nan
            if sibling == one or (i > first and carrier_C[i - 1] == sibling):
                continue
            if i + 1 < last and carrier_C[i + 1] == sibling:
                continue
            best = best_of_sibling = -np.inf
            for j in range(first, last):
                if j != i:
                    other_W = bits_NW[carrier_C[j]]
                    best = max(best, _match(bits_NW[one], other_W, place_R[r], cM_R[r], cM_T))
                    matched = _match(bits_NW[sibling], other_W, place_R[r], cM_R[r], cM_T)
                    best_of_sibling = max(best_of_sibling, matched)
            gain_C[i] = best_of_sibling - best
