"""Compute the lengths of matches between carriers of a rare allele: the compiled part of `rare_phase`.

A haplotype is a row of bits, its alleles at the common sites. A *place* is the index of a common site.

Axes: R rare sites, C haplotypes that carry their alleles, N haplotypes, W 64-bit words, T common sites.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, leading_zeros, trailing_zeros
from spinimpute.runtime.kernels import kernel

MAX_MISMATCHES = 1  # mismatches that a match may contain on each side: a wrong call or a mutation
MAX_CM, MIN_CM = 2.0, 1e-3  # cM: maximum length on one side; length that is added to each side


@kernel()
def _left_end(first_W, second_W, place):  # type: ignore[no-untyped-def]
    """Return the place of the second mismatch to the left of `place`, or -1 if there is none."""
    remaining, nearest = MAX_MISMATCHES, place - 1
    for word in range(nearest >> 6, -1, -1):  # -1 >> 6 is -1: no word is searched
        differ = first_W[word] ^ second_W[word]
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
def _right_end(first_W, second_W, place, n_places):  # type: ignore[no-untyped-def]
    """Return the place of the second mismatch from `place` to the right, or n_places if there is none."""
    remaining = MAX_MISMATCHES
    for word in range(place >> 6, len(first_W)):
        differ = first_W[word] ^ second_W[word]
        if word == place >> 6:
            differ &= ALL_ONES << np.uint64(place & 63)
        while differ:
            if remaining == 0:
                return (word << 6) + trailing_zeros(differ)
            remaining -= 1
            differ &= differ - np.uint64(1)
    return n_places


@kernel()
def _match(first_W, second_W, place, cM, cM_T):  # type: ignore[no-untyped-def]
    """Return the length of a match around a site: log(cM to the left) + log(cM to the right)."""
    first, last = _left_end(first_W, second_W, place), _right_end(first_W, second_W, place, len(cM_T))
    left = cM - cM_T[first] if first >= 0 else MAX_CM
    right = cM_T[last] - cM if last < len(cM_T) else MAX_CM
    return math.log(min(left, MAX_CM) + MIN_CM) + math.log(min(right, MAX_CM) + MIN_CM)


@kernel()
def fill_gains(bits_NW, cM_T, place_R, cM_R, start_R1, carrier_C, sibling_N, gain_C):  # type: ignore[no-untyped-def]
    """Fill gain_C with the gain of moving each rare allele to the sibling haplotype.

    The gain is the sibling's longest match with another carrier minus the carrying haplotype's longest match
    with another carrier (lengths are logarithms, see `_match`). It is NaN if the sibling also carries the
    allele, or if there is no sibling. place_R is the first common site after each rare site.
    """
    for r in range(len(place_R)):
        first, last = start_R1[r], start_R1[r + 1]
        for i in range(first, last):
            carrier = carrier_C[i]
            sibling = sibling_N[carrier]
            gain_C[i] = np.nan
            if sibling == carrier or (i > first and carrier_C[i - 1] == sibling):
                continue
            if i + 1 < last and carrier_C[i + 1] == sibling:
                continue
            best = best_of_sibling = -np.inf
            for j in range(first, last):
                if j != i:
                    other_carrier_W = bits_NW[carrier_C[j]]
                    best = max(best, _match(bits_NW[carrier], other_carrier_W, place_R[r], cM_R[r], cM_T))
                    matched = _match(bits_NW[sibling], other_carrier_W, place_R[r], cM_R[r], cM_T)
                    best_of_sibling = max(best_of_sibling, matched)
            gain_C[i] = best_of_sibling - best
