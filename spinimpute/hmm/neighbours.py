"""Neighbours of a query in the order of reversed prefixes: the haplotypes whose matches are longest.

Axes: N panel haplotypes, Q queries, A blocks that are open at a place, M haplotypes listed for a block, C
those of all blocks and queries, W 64-bit words of marks, V 64-bit words that tell which words have marks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.runtime.kernels import kernel

MAX_TIES = 2_048  # equally long matches that are looked at on each side of the query
STRIDE = 32  # matches compared at once


class NotedHaplotypes(NamedTuple):
    """Haplotypes noted for open blocks: block b is at index b modulo A."""

    marked_QAW: np.ndarray  # uint64, in small panels, a bit for each noted haplotype
    # list_QAM, n_listed_QA: int32, in large panels, the noted haplotypes and their number
    list_QAM: np.ndarray
    n_listed_QA: np.ndarray
    # int32, about the place before: where the longest matches start, their number (-1 if more than are looked
    # at may be as long), the first and the last of these haplotypes, and the blocks. If all of these matches
    # continue and no others are taken, the same haplotypes need not be noted again.
    before_Q6: np.ndarray


@kernel()
def _any_later(start_N, first, start):  # type: ignore[no-untyped-def]
    """Return whether any of STRIDE matches from `first` on starts behind `start`."""
    latest = np.int32(0)
    for match_start in start_N[first : first + STRIDE]:
        latest = max(latest, match_start)
    return latest > start


@kernel()
def _last_later(start_N, first, last, start):  # type: ignore[no-untyped-def]
    """Return the last position in first + 1 ... last whose match starts behind `start`, or `first`."""
    while last - first >= STRIDE and not _any_later(start_N, last - STRIDE + 1, start):
        last -= STRIDE
    while last > first and start_N[last] <= start:
        last -= 1
    return last


@kernel()
def _first_later(start_N, first, end, start):  # type: ignore[no-untyped-def]
    """Return the first position in first ... end - 1 whose match starts behind `start`, or `end`."""
    while end - first >= STRIDE and not _any_later(start_N, first, start):
        first += STRIDE
    while first < end and start_N[first] <= start:
        first += 1
    return first


@kernel()
def note_neighbours(order_N, start_N, position, start_2, place, settings, blocks, noted, q):  # type: ignore[no-untyped-def]
    """Note the haplotypes whose matches with query q that end at `place` are longest, for some blocks.

    position: the query's position in the order. start_2: starts of the matches with the haplotypes above
    and below. settings: `CandidateSettings`. blocks: first one and end.
    """
    nearest, most, before_6 = settings.nearest, settings.most, noted.before_Q6[q]
    (first_block, last_block), start_above, start_below = blocks, start_2[0], start_2[1]
    n_open, in_lists = noted.n_listed_QA.shape[1], noted.list_QAM.shape[2] > 0
    n = len(order_N)
    above, below = position - 1, position
    none = place + 1
    taken = 0
    while taken < nearest:
        start = min(start_above, start_below)
        if start == none:
            break
        # all that match as long lie next to those before, on both sides
        first = old_first = above + 1
        last = old_last = below
        if start_above == start:
            first = _last_later(start_N, max(above + 1 - MAX_TIES, 0), above, start)
            above, start_above = first - 1, max(start, start_N[first]) if first > 0 else none
        if start_below == start:
            last = _first_later(start_N, below + 1, min(below + MAX_TIES, n), start)
            below, start_below = last, max(start, start_N[last]) if last < n else none
        n_above, here = old_first - first, old_first - first + last - old_last
        done_first = done_last = 0
        if taken == 0:
            all_examined = max(n_above, last - old_last) < MAX_TIES
            one, other = order_N[first], order_N[last - 1]
            same = (
                start == before_6[0] and here == before_6[1] and one == before_6[2] and other == before_6[3]
            )
            if same and here >= nearest:
                done_first, done_last = before_6[4], before_6[5]
            before_6[0], before_6[1] = start, here if all_examined else -1
            before_6[2], before_6[3] = one, other
            before_6[4], before_6[5] = first_block, last_block
        wanted = min(here, most - taken)
        step, step_rest = here // wanted, here % wanted
        for block in range(first_block, last_block):
            if done_first <= block < done_last:
                continue
            slot = block % n_open
            listed = noted.n_listed_QA[q, slot]
            at, rest = 0, 0  # number * here // wanted, without a division
            for _ in range(wanted):
                haplotype = order_N[first + at if at < n_above else old_last + at - n_above]
                if in_lists:
                    noted.list_QAM[q, slot, listed] = haplotype
                    listed += 1
                else:
                    bit = np.uint64(1) << np.uint64(haplotype & 63)
                    noted.marked_QAW[q, slot, haplotype >> 6] |= bit
                at, rest = at + step, rest + step_rest
                if rest >= wanted:
                    at, rest = at + 1, rest - wanted
            noted.n_listed_QA[q, slot] = listed
        taken += wanted
        if wanted < here:
            break


@kernel()
def take_marked(marked_W, word, found_C, n):  # type: ignore[no-untyped-def]
    """Append the haplotypes of a word's set bits to n listed ones, and clear it; returns their number."""
    bits = marked_W[word]
    marked_W[word] = 0
    while bits != np.uint64(0):
        found_C[n] = (word << 6) + trailing_zeros(bits)
        bits &= bits - np.uint64(1)
        n += 1
    return n


@kernel()
def sort_once(list_M, marked_W, touched_V, found_C, n):  # type: ignore[no-untyped-def]
    """Append haplotypes, once each and ascending, to n listed ones; returns their number.

    marked_W has a bit for each haplotype, touched_V one for each word of marked_W; all are clear before and
    after.
    """
    for haplotype in list_M:
        word = haplotype >> 6
        marked_W[word] |= np.uint64(1) << np.uint64(haplotype & 63)
        touched_V[word >> 6] |= np.uint64(1) << np.uint64(word & 63)
    for v in range(len(touched_V)):
        touched = touched_V[v]
        touched_V[v] = 0
        while touched != np.uint64(0):
            word = (v << 6) + trailing_zeros(touched)
            touched &= touched - np.uint64(1)
            n = take_marked(marked_W, word, found_C, n)
    return n
