"""The panel haplotypes with the longest matches to a query that end at a place, for `pbwt`.

`pbwt` keeps the haplotypes sorted by reversed prefixes, and knows the query's position in this order. The
haplotypes with the longest matches are then the neighbours above and below this position. They are recorded
for each open block, that is, for each block to which the current place contributes candidates.

Axes: N panel haplotypes, Q queries, A open blocks, M haplotypes in the list of a query and open block, C
haplotypes in the final lists of all blocks and queries, W 64-bit words with one bit per haplotype, V 64-bit
words with one bit per word of W.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.runtime.kernels import kernel

MAX_TIES = 2_048  # equally long matches that are examined on each side of the query
STRIDE = 32  # matches that are compared in one vectorised loop


class NotedHaplotypes(NamedTuple):
    """Haplotypes that are recorded for the open blocks; block b has the index b modulo A."""

    marked_QAW: np.ndarray  # uint64, in small panels: a bit for each recorded haplotype
    # list_QAM, n_listed_QA: int32, in large panels: the recorded haplotypes and their number
    list_QAM: np.ndarray
    n_listed_QA: np.ndarray
    # int32, about the longest matches at the previous place: their start, their number (-1 if there may be
    # more than were examined), the first and last of these haplotypes in the order, and the first block and
    # end of the blocks for which they were recorded. If exactly the same matches are the longest at this
    # place too, they need not be recorded again for these blocks.
    before_Q6: np.ndarray


@kernel(inline=True)
def _any_later(start_N, first, start):  # type: ignore[no-untyped-def]
    """Return whether any of the STRIDE matches beginning with index `first` starts after `start`."""
    latest = np.int32(0)
    for match_start in start_N[first : first + STRIDE]:
        latest = max(latest, match_start)
    return latest > start


@kernel(inline=True)
def _last_later(start_N, first, last, start):  # type: ignore[no-untyped-def]
    """Return the last index in (first, last] whose match starts after `start`; `first` if there is none."""
    while last - first >= STRIDE and not _any_later(start_N, last - STRIDE + 1, start):
        last -= STRIDE
    while last > first and start_N[last] <= start:
        last -= 1
    return last


@kernel(inline=True)
def _first_later(start_N, first, end, start):  # type: ignore[no-untyped-def]
    """Return the first index in [first, end) whose match starts after `start`; `end` if there is none."""
    while end - first >= STRIDE and not _any_later(start_N, first, start):
        first += STRIDE
    while first < end and start_N[first] <= start:
        first += 1
    return first


@kernel()
def note_neighbours(order_N, start_N, position_Q, start_Q2, place, settings, blocks, noted):  # type: ignore[no-untyped-def]
    """Record, for some blocks, the haplotypes with the longest matches to each query that end at `place`.

    order_N, start_N: the order and its match starts, see `bit_rows.advance`. position_Q: positions of the
    queries in the order. start_Q2: where their matches with the haplotypes above and below start. settings:
    `CandidateSettings`. blocks: first block and end of the blocks.
    """
    for q in range(len(position_Q)):
        _note_of_query(q, order_N, start_N, position_Q, start_Q2, place, settings, blocks, noted)


@kernel()
def _note_of_query(q, order_N, start_N, position_Q, start_Q2, place, settings, blocks, noted):  # type: ignore[no-untyped-def]
    """Do the work of `note_neighbours` for query q."""
    (nearest, most, _), (first_block, last_block) = settings, blocks
    marked_QAW, list_QAM, n_listed_QA, before_Q6 = noted
    start_above, start_below = start_Q2[q, 0], start_Q2[q, 1]
    n_open, in_lists = n_listed_QA.shape[1], list_QAM.shape[2] > 0
    n = len(order_N)
    above, below = position_Q[q] - 1, position_Q[q]
    no_match = place + 1
    taken = 0
    while taken < nearest:
        start = min(start_above, start_below)
        if start == no_match:
            break
        # All matches of this length are adjacent to those that were already taken, above and below.
        first = old_first = above + 1
        last = old_last = below
        if start_above == start:
            first = _last_later(start_N, max(above + 1 - MAX_TIES, 0), above, start)
            above, start_above = first - 1, max(start, start_N[first]) if first > 0 else no_match
        if start_below == start:
            last = _first_later(start_N, below + 1, min(below + MAX_TIES, n), start)
            below, start_below = last, max(start, start_N[last]) if last < n else no_match
        n_above, n_tied = old_first - first, old_first - first + last - old_last
        done_first = done_last = 0
        if taken == 0:
            all_examined = max(n_above, last - old_last) < MAX_TIES
            first_haplotype, last_haplotype = order_N[first], order_N[last - 1]
            same_length = start == before_Q6[q, 0] and n_tied == before_Q6[q, 1]
            if (
                same_length
                and first_haplotype == before_Q6[q, 2]
                and last_haplotype == before_Q6[q, 3]
                and n_tied >= nearest
            ):
                done_first, done_last = before_Q6[q, 4], before_Q6[q, 5]
            before_Q6[q, 0], before_Q6[q, 1] = start, n_tied if all_examined else -1
            before_Q6[q, 2], before_Q6[q, 3] = first_haplotype, last_haplotype
            before_Q6[q, 4], before_Q6[q, 5] = first_block, last_block
        wanted = min(n_tied, most - taken)
        step, step_remainder = n_tied // wanted, n_tied % wanted
        for block in range(first_block, last_block):
            if done_first <= block < done_last:
                continue
            slot = block % n_open
            listed = n_listed_QA[q, slot]
            index, remainder = 0, 0  # index = i * n_tied // wanted for the i-th taken haplotype
            for _ in range(wanted):
                haplotype = order_N[first + index if index < n_above else old_last + index - n_above]
                if in_lists:
                    list_QAM[q, slot, listed] = haplotype
                    listed += 1
                else:
                    bit = np.uint64(1) << np.uint64(haplotype & 63)
                    marked_QAW[q, slot, haplotype >> 6] |= bit
                index, remainder = index + step, remainder + step_remainder
                if remainder >= wanted:
                    index, remainder = index + 1, remainder - wanted
            n_listed_QA[q, slot] = listed
        taken += wanted
        if wanted < n_tied:
            break


@kernel()
def take_marked(marked_W, word, found_C, n):  # type: ignore[no-untyped-def]
    """Append the haplotypes of a word's set bits to found_C, clear the word, and return the new length.

    n: the length of found_C so far.
    """
    bits = marked_W[word]
    marked_W[word] = 0
    while bits != np.uint64(0):
        found_C[n] = (word << 6) + trailing_zeros(bits)
        bits &= bits - np.uint64(1)
        n += 1
    return n


@kernel()
def sort_once(list_M, marked_W, touched_V, found_C, n):  # type: ignore[no-untyped-def]
    """Append the haplotypes of list_M to found_C, sorted and without duplicates; return the new length.

    n: the length of found_C so far. marked_W: workspace with a bit per haplotype. touched_V: workspace with a
    bit per word of marked_W. All bits are 0 before and after.
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
