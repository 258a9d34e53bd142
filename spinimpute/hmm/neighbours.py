"""Neighbours of a query in the order of reversed prefixes: whose matches are longest, and lists of them.

Axes: N panel haplotypes, A blocks that a place counts for, M haplotypes noted for a block, C those of all
blocks and queries, W 64-bit words of marks, V of which words have some.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.runtime.kernels import kernel

SEEN = 2_048  # equal matches on each side of the query of which some are taken
COMPARED = 32  # matches at once


@kernel()
def _any_later(start_N, first, start):  # type: ignore[no-untyped-def]
    """Whether one of COMPARED matches from `first` on starts behind `start`."""
    latest = np.int32(0)
    for match_start in start_N[first : first + COMPARED]:
        latest = max(latest, match_start)
    return latest > start


@kernel()
def _last_later(start_N, first, last, start):  # type: ignore[no-untyped-def]
    """The last of the places first + 1 ... last whose match starts behind `start`; else `first`."""
    while last - first >= COMPARED and not _any_later(start_N, last - COMPARED + 1, start):
        last -= COMPARED
    while last > first and start_N[last] <= start:
        last -= 1
    return last


@kernel()
def _first_later(start_N, first, end, start):  # type: ignore[no-untyped-def]
    """The first of the places first ... end - 1 whose match starts behind `start`; else `end`."""
    while end - first >= COMPARED and not _any_later(start_N, first, start):
        first += COMPARED
    while first < end and start_N[first] <= start:
        first += 1
    return first


@kernel()
def note_neighbours(  # type: ignore[no-untyped-def]
    order_N, start_N, position_Q, start_Q2, place, nearest, most, first_block, last_block, before_Q6,
    marked_QAW, list_QAM, n_listed_QA,
):  # fmt: skip
    """Note the haplotypes whose matches with queries that end at `place` are longest, for some blocks.

    position_Q: where a query is in the order; start_Q2: where the matches with those above and below start.
    before_Q6: of the place before, where the longest matches started, how many they were (-1 if more than
    are looked at may match as long), the first and the last of them, and the blocks. If they all go on, and
    no others are taken, the same haplotypes would be noted again. marked_QAW, or list_QAM and n_listed_QA:
    where they are noted, see `_walk`.
    """
    for q in range(len(position_Q)):
        _note_neighbours(
            order_N, start_N, position_Q[q], start_Q2[q, 0], start_Q2[q, 1], place, nearest, most,
            first_block, last_block, before_Q6[q], marked_QAW[q], list_QAM[q], n_listed_QA[q],
        )  # fmt: skip


@kernel()
def _note_neighbours(  # type: ignore[no-untyped-def]
    order_N, start_N, position, start_above, start_below, place, nearest, most, first_block, last_block,
    before_6, marked_AW, list_AM, n_listed_A,
):  # fmt: skip
    """`note_neighbours` of one query."""
    n = len(order_N)
    above, below = position - 1, position
    none = place + 1
    taken, in_lists = 0, list_AM.shape[1] > 0
    while taken < nearest:
        start = min(start_above, start_below)
        if start == none:
            break
        # all that match as long lie next to those before, on both sides
        first = old_first = above + 1
        last = old_last = below
        if start_above == start:
            first = _last_later(start_N, max(above + 1 - SEEN, 0), above, start)
            above, start_above = first - 1, max(start, start_N[first]) if first > 0 else none
        if start_below == start:
            last = _first_later(start_N, below + 1, min(below + SEEN, n), start)
            below, start_below = last, max(start, start_N[last]) if last < n else none
        n_above, here = old_first - first, old_first - first + last - old_last
        done_first = done_last = 0
        if taken == 0:
            all_seen = max(n_above, last - old_last) < SEEN
            one, other = order_N[first], order_N[last - 1]
            same = (
                start == before_6[0] and here == before_6[1] and one == before_6[2] and other == before_6[3]
            )
            if same and here >= nearest:
                done_first, done_last = before_6[4], before_6[5]
            before_6[0], before_6[1] = start, here if all_seen else -1
            before_6[2], before_6[3] = one, other
            before_6[4], before_6[5] = first_block, last_block
        asked = min(here, most - taken)
        step, step_rest = here // asked, here % asked
        for block in range(first_block, last_block):
            if done_first <= block < done_last:
                continue
            slot = block % len(n_listed_A)
            marked_W, list_M, listed = marked_AW[slot], list_AM[slot], n_listed_A[slot]
            at, rest = 0, 0  # number * here // asked, without a division
            for _ in range(asked):
                haplotype = order_N[first + at if at < n_above else old_last + at - n_above]
                if in_lists:
                    list_M[listed] = haplotype
                    listed += 1
                else:
                    marked_W[haplotype >> 6] |= np.uint64(1) << np.uint64(haplotype & 63)
                at, rest = at + step, rest + step_rest
                if rest >= asked:
                    at, rest = at + 1, rest - asked
            n_listed_A[slot] = listed
        taken += asked
        if asked < here:
            break


@kernel()
def take_marked(marked_W, word, found_C, n):  # type: ignore[no-untyped-def]
    """List whose bits are set in a word from the n-th place on, and unset them; returns the list's end."""
    bits = marked_W[word]
    marked_W[word] = 0
    while bits != np.uint64(0):
        found_C[n] = (word << 6) + trailing_zeros(bits)
        bits &= bits - np.uint64(1)
        n += 1
    return n


@kernel()
def sort_once(list_M, marked_W, touched_V, found_C, n):  # type: ignore[no-untyped-def]
    """List haplotypes once each, ascending, from the n-th place on; returns where the list ends.

    marked_W: a bit for each haplotype, touched_V: one for each word of marked_W. None is set, and none is
    afterwards.
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
