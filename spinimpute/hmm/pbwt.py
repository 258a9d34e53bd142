"""Search of candidates: the panel haplotypes with the longest matches to a query around a block of gaps.

The positional Burrows-Wheeler transform (PBWT; Durbin 2014, Bioinformatics 30:1266) walks along the sites and
keeps the haplotypes sorted by their reversed prefixes. Haplotypes with long matches that end at the current
site are then adjacent. A query is not inserted; the walk only tracks its position in the order. A second
walk, from the other end, finds the longest matches that start at a site.

The candidates of a block are the query's neighbours in the order at every typed site in and around the block.
A haplotype whose match is interrupted by a wrong call at one typed site is found at the sites next to it.

Before the first block nothing needs to be recorded, so the haplotypes are sorted by eight sites at a time
(radix sort). This takes a tenth of the time of single steps.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, B blocks of the chunk, A open blocks (to which
the current place contributes), C candidates, M haplotypes of a list, K values of a byte (256), W 64-bit
words, P bytes of a place's packed bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, advance, allele_of, mismatch_at_or_before
from spinimpute.hmm import parameters
from spinimpute.hmm.neighbours import NotedHaplotypes, note_neighbours, sort_once, take_marked
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.runtime.kernels import kernel

COUNT_INTERVAL = 512  # haplotypes between two positions at which `_sort_before` stores counts


class Candidates(NamedTuple):
    """Panel haplotypes that queries may copy: one list for each block and query."""

    haplotype_C: np.ndarray  # int32, haplotypes, ascending within a list
    first_BQ1: np.ndarray  # int64, start of each list; the last column is the end of the block's last list

    def take(self, block: int, query: int) -> np.ndarray:
        """Return the candidates of a query in a block."""
        first, last = self.first_BQ1[block, query : query + 2]
        return self.haplotype_C[first:last]


class CandidateSettings(NamedTuple):
    """Settings for the number of candidates."""

    # Minimum number of haplotypes taken per typed site and side. All haplotypes whose matches are as long as
    # the shortest of these are taken, too.
    nearest: int = 8
    # Maximum number taken per typed site and side. If more match equally long (up to `neighbours.MAX_TIES`
    # are examined), the taken ones are evenly spaced in the order, because haplotypes that are next to one
    # another in the order tend to differ from the query at the same sites.
    most: int = 256
    margin: int = 8  # further typed sites on each side of a block whose neighbours become candidates


class _Queries(NamedTuple):
    """The fields of `TypedAlleles`, as a tuple that kernels can take."""

    alleles_SQ: np.ndarray
    bits_QW: np.ndarray
    known_QW: np.ndarray


class _Anchors(NamedTuple):
    """The open blocks [first, last) of each place, int32: those to which it contributes candidates."""

    first_S: np.ndarray
    last_S: np.ndarray


@kernel(inline=True)
def _byte(bits_XW, x, step):  # type: ignore[no-untyped-def]
    """Return the bits of the places 8 step ... 8 step + 7 of row x; the first place is the lowest bit."""
    return np.int64((bits_XW[x, step >> 3] >> np.uint64(8 * (step & 7))) & np.uint64(255))


@kernel()
def _sort_before(place, panel_NW, queries, order_N, start_N, position_Q):  # type: ignore[no-untyped-def]
    """Fill the walk's state before `place`: order, match starts, and the queries' positions in the order.

    A query's missing call is replaced by the allele of the next haplotype in the order (the previous one at
    the end). Eight places at a time use the same neighbour.
    """
    n = len(order_N)
    next_order_N = np.empty_like(order_N)
    key_N = np.empty(n, np.uint8)
    next_K = np.empty(256, np.int64)
    # new position of the next haplotype with each key, stored at every COUNT_INTERVAL-th haplotype
    before_CK = np.empty((n // COUNT_INTERVAL + 1, 256), np.int32)
    for step in range((place + 7) >> 3):
        mask = (1 << min(8, place - 8 * step)) - 1
        next_K[:] = 0
        for i in range(n):
            key = _byte(panel_NW, i, step) & mask
            key_N[i] = key
            next_K[key] += 1
        total = 0
        for key in range(256):
            total += next_K[key]
            next_K[key] = total - next_K[key]
        for i in range(n):
            if i % COUNT_INTERVAL == 0:
                for key in range(256):
                    before_CK[i // COUNT_INTERVAL, key] = next_K[key]
            haplotype = order_N[i]
            key = key_N[haplotype]
            next_order_N[next_K[key]] = haplotype
            next_K[key] += 1
        for q in range(len(position_Q)):
            position = position_Q[q]
            known = _byte(queries.known_QW, q, step)
            neighbour = key_N[order_N[position if position < n else position - 1]]
            key = mask & ((_byte(queries.bits_QW, q, step) & known) | (neighbour & ~known))
            if position == n:
                position_Q[q] = next_K[key]
                continue
            stored = position // COUNT_INTERVAL
            position_Q[q] = before_CK[stored, key]
            for i in range(stored * COUNT_INTERVAL, position):
                position_Q[q] += key_N[order_N[i]] == key
        order_N[:] = next_order_N
    known_W = np.full(panel_NW.shape[1], ALL_ONES)
    start_N[0] = place
    for i in range(1, n):
        previous_W, row_W = panel_NW[order_N[i - 1]], panel_NW[order_N[i]]
        start_N[i] = mismatch_at_or_before(previous_W, row_W, known_W, place - 1) + 1


@kernel()
def _find_match_starts(order_N, panel_NW, queries, position_Q, place, start_Q2):  # type: ignore[no-untyped-def]
    """Fill start_Q2: the start of each neighbour's match that ends at `place`; place + 1 without a match.

    All queries are done in one loop, so the processor can fetch several rows of the panel at the same time.
    """
    n = len(order_N)
    for q in range(len(position_Q)):
        for side in range(2):
            neighbour = position_Q[q] - 1 + side
            start_Q2[q, side] = place + 1
            if 0 <= neighbour < n:
                row_W = panel_NW[order_N[neighbour]]
                bits_W, known_W = queries.bits_QW[q], queries.known_QW[q]
                start_Q2[q, side] = mismatch_at_or_before(row_W, bits_W, known_W, place) + 1


@kernel()
def _lengthened(list_C, n):  # type: ignore[no-untyped-def]
    """Return the list, or a longer copy if it is too short for n entries."""
    if n <= len(list_C):
        return list_C
    longer = np.empty(2 * n, np.int32)
    longer[: len(list_C)] = list_C
    return longer


@kernel()
def _walk(panel_SP, panel_NW, queries, anchors, settings, n_open, max_listed, start_BQ, stop_BQ):  # type: ignore[no-untyped-def]
    """Walk along the places, and record the neighbours of every query for the open blocks of each place.

    Returns the recorded haplotypes, and fills start_BQ and stop_BQ: the bounds of the list of each block and
    query. n_open: largest number of open blocks of a place. max_listed: largest length of a list in a large
    panel, 0 in a small panel.

    In a small panel, recording a haplotype sets its bit. In a large panel these bits would be far apart in
    memory; there, haplotypes are appended to a list, which is sorted when the block ends.
    """
    n_places, n = len(panel_SP), len(panel_NW)
    n_queries = queries.alleles_SQ.shape[1]
    first_S, last_S = anchors
    order_N, start_N = np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1 = np.zeros(n + 1, dtype=np.int32)
    position_Q, start_Q2 = np.zeros(n_queries, np.int32), np.empty((n_queries, 2), np.int32)
    n_words = (n + 63) >> 6
    noted = NotedHaplotypes(
        np.zeros((n_queries, n_open, 0 if max_listed else n_words), np.uint64),
        np.empty((n_queries, n_open, max_listed), np.int32),
        np.zeros((n_queries, n_open), np.int32),
        np.full((n_queries, 6), -1, np.int32),
    )
    shared_W, touched_V = np.zeros(n_words, np.uint64), np.zeros((n_words + 63) >> 6, np.uint64)
    found_C, n_found = np.empty(4_096, np.int32), 0
    begin, end = 0, n_places
    while begin < end and first_S[begin] >= last_S[begin]:
        begin += 1
    while begin < end and first_S[end - 1] >= last_S[end - 1]:
        end -= 1
    _sort_before(begin, panel_NW, queries, order_N, start_N, position_Q)
    for place in range(begin, end):
        advance(
            panel_SP[place], order_N, start_N, place, zeros_N1, ones_N, one_start_N,
            next_order_N, next_start_N,
        )  # fmt: skip
        zeros = zeros_N1[n]
        for q in range(n_queries):
            position, allele = position_Q[q], queries.alleles_SQ[place, q]
            if allele == MISSING:  # replaced by the allele of the query's neighbour in the order
                allele = allele_of(panel_SP[place], order_N[position if position < n else position - 1])
            before = zeros_N1[position]
            position_Q[q] = before if allele == 0 else zeros + position - before
        order_N, next_order_N = next_order_N, order_N
        start_N, next_start_N = next_start_N, start_N
        first, last = first_S[place], last_S[place]
        if first >= last:
            continue
        _find_match_starts(order_N, panel_NW, queries, position_Q, place, start_Q2)
        note_neighbours(order_N, start_N, position_Q, start_Q2, place, settings, (first, last), noted)
        for block in range(first, last):
            if place + 1 < n_places and first_S[place + 1] <= block < last_S[place + 1]:
                continue
            # this was the block's last place
            for q in range(n_queries):
                start_BQ[block, q] = n_found
                slot = block % n_open
                if max_listed:
                    list_M = noted.list_QAM[q, slot, : noted.n_listed_QA[q, slot]]
                    noted.n_listed_QA[q, slot] = 0
                    found_C = _lengthened(found_C, n_found + len(list_M))
                    n_found = sort_once(list_M, shared_W, touched_V, found_C, n_found)
                else:
                    found_C = _lengthened(found_C, n_found + 64 * n_words)
                    marked_W = noted.marked_QAW[q, slot]
                    for word in range(n_words):
                        if marked_W[word]:
                            n_found = take_marked(marked_W, word, found_C, n_found)
                stop_BQ[block, q] = n_found
    return found_C[:n_found].copy()


@kernel()
def _merge_lists(left, right, first_BQ1):  # type: ignore[no-untyped-def]
    """Return the union of two `Matches`, list by list, and fill the start of each list in first_BQ1."""
    n_blocks, n_queries = left.start_BQ.shape
    size = (left.stop_BQ - left.start_BQ).sum() + (right.stop_BQ - right.start_BQ).sum()
    left_C, right_C, out_C, n = left.haplotype_C, right.haplotype_C, np.empty(size, np.int32), 0
    for b in range(n_blocks):
        for q in range(n_queries):
            first_BQ1[b, q] = n
            i, i_stop = left.start_BQ[b, q], left.stop_BQ[b, q]
            j, j_stop = right.start_BQ[b, q], right.stop_BQ[b, q]
            while i < i_stop or j < j_stop:
                if j == j_stop or (i < i_stop and left_C[i] <= right_C[j]):
                    if j < j_stop and left_C[i] == right_C[j]:
                        j += 1
                    out_C[n] = left_C[i]
                    i += 1
                else:
                    out_C[n] = right_C[j]
                    j += 1
                n += 1
        first_BQ1[b, n_queries] = n
    return out_C[:n].copy()


def _find_anchors(n_places: int, first_B: np.ndarray, last_B: np.ndarray) -> _Anchors:
    """Find the open blocks of each place.

    first_B, last_B: int64, each block's first and last place. Both are sorted, ascending or descending.
    """
    if first_B[0] > first_B[-1]:
        first_S, last_S = _find_anchors(n_places, first_B[::-1], last_B[::-1])
        return _Anchors(len(first_B) - last_S, len(first_B) - first_S)
    places = np.arange(n_places)
    first_S = np.searchsorted(last_B, places, side="left")
    last_S = np.searchsorted(first_B, places, side="right")
    return _Anchors(first_S.astype(np.int32), last_S.astype(np.int32))


class Matches(NamedTuple):
    """Haplotypes with the longest matches on one side of the blocks: one list for each block and query."""

    haplotype_C: np.ndarray  # int32, haplotypes, ascending within a list
    # start_BQ, stop_BQ: int64, bounds of each list
    start_BQ: np.ndarray
    stop_BQ: np.ndarray

    def part(self, first: int, last: int) -> Matches:
        """Return the matches of the queries [first, last)."""
        start_BQ, stop_BQ = (np.ascontiguousarray(x[:, first:last]) for x in (self.start_BQ, self.stop_BQ))
        return Matches(self.haplotype_C, start_BQ, stop_BQ)


def longest_matches(
    panel: PanelAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
    *,
    on_left: bool,
) -> Matches:
    """Find the haplotypes with the longest matches on one side of each block.

    With on_left, these are matches that end at a typed site to the left of one of the block's gaps; otherwise
    matches that start to the right of one. Sites in the margin count too. The parameters are those of
    `find_candidates`; for matches on the right, `panel` is the panel backwards. In the order, equal
    haplotypes keep the panel's order, and a query comes before the haplotypes that are equal to it.
    """
    n_places = len(panel.packed_SP)
    left_B, right_B = first_B - 1, first_B + n_gaps_B - 2  # places to the left of the first and the last gap
    if not on_left:  # places are counted from the other end
        left_B, right_B = n_places - first_B - n_gaps_B, n_places - 1 - first_B
        queries = TypedAlleles.from_alleles(queries.alleles_SX[::-1])
    anchors = _find_anchors(n_places, left_B - settings.margin, right_B + settings.margin)
    start_BQ, stop_BQ = np.zeros((2, len(left_B), queries.alleles_SX.shape[1]), np.int64)
    max_listed = 0
    if len(panel.bits_NW) > parameters.MAX_PANEL_AS_STATES:
        max_listed = settings.most * int((right_B - left_B).max() + 1 + 2 * settings.margin)
    n_open = max(1, int((anchors.last_S - anchors.first_S).max()))
    walked = _Queries(queries.alleles_SX, queries.bits_XW, queries.known_XW)
    haplotype_C = _walk(
        panel.packed_SP, panel.bits_NW, walked, anchors, settings, n_open, max_listed, start_BQ, stop_BQ
    )
    return Matches(haplotype_C, start_BQ, stop_BQ)


def unite(left: Matches, right: Matches) -> Candidates:
    """Return the union of the matches on both sides of the same blocks."""
    n_blocks, n_queries = left.start_BQ.shape
    first_BQ1 = np.empty((n_blocks, n_queries + 1), np.int64)
    return Candidates(_merge_lists(left, right, first_BQ1), first_BQ1)


def find_candidates(
    panel: PanelAlleles,
    panel_backwards: PanelAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
) -> Candidates:
    """Find the candidates of each query in each block of gaps.

    first_B, n_gaps_B: int64, the place to the right of each block's first gap, and the block's number of
    gaps. panel_backwards: `panel` with the order of places reversed.
    """
    blocks = first_B, n_gaps_B, settings
    return unite(
        longest_matches(panel, queries, *blocks, on_left=True),
        longest_matches(panel_backwards, queries, *blocks, on_left=False),
    )
