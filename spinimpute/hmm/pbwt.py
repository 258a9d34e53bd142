"""Candidates: the panel haplotypes that match a query longest around a gap, by the positional BWT.

The PBWT (Durbin 2014, Bioinformatics 30:1266) keeps haplotypes sorted by their reversed prefixes while it
walks along the sites, so that those with the longest matches ending here are neighbours. A query is never
inserted: only the two haplotypes between which it would lie are known. A second walk from the other end finds
the longest matches that begin here.

A block of gaps takes the neighbours at every typed site in and around it. So a haplotype whose match is
interrupted by an error at one typed site is found at the sites behind it: mismatches do not cost a candidate.

Up to the first block the haplotypes are sorted by eight sites at a time (a radix sort), which takes a tenth
of the time of single steps. A missing call is then that of a neighbour, of eight sites at once.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, B blocks of the chunk, A blocks that a place
counts for, C candidates, W 64-bit words, P bytes of packed bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, advance, allele_of, mismatch_at_or_before
from spinimpute.hmm import parameters
from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.neighbours import note_neighbours, sort_once, take_marked
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.runtime.kernels import kernel

COUNTED = 512  # haplotypes between counts of those before them


@dataclass(frozen=True)
class CandidateSettings:
    """How many candidates are taken.

    Attributes
    ----------
    nearest : int
        Haplotypes taken at each typed site and side, with all that match as long as the last of them.
    most : int
        Largest number taken there; of more equal matches (`neighbours.SEEN` on each side count) every
        second, third, ... in the order. Those next to the query resemble one another where they differ from
        it.
    margin : int
        Typed sites beyond a block's ends whose neighbours count, too.
    """

    nearest: int = 8
    most: int = 256
    margin: int = 8


@kernel()
def _byte(bits_W, step):  # type: ignore[no-untyped-def]
    """The places 8 step ... 8 step + 7 of a row, the first one in the lowest bit."""
    return np.int64((bits_W[step >> 3] >> np.uint64(8 * (step & 7))) & np.uint64(255))


@kernel()
def _sort_before(place, panel_NW, query_QW, known_QW, order_N, start_N, position_Q):  # type: ignore[no-untyped-def]
    """The walk's state before `place`: order, match starts, and between which haplotypes queries lie.

    A missing call is as that of the haplotype that the query follows or comes before.
    """
    n = len(order_N)
    next_order_N = np.empty_like(order_N)
    key_N = np.empty(n, np.uint8)
    next_K = np.empty(256, np.int64)
    before_CK = np.empty((n // COUNTED + 1, 256), np.int32)  # places that were given to keys before
    for step in range((place + 7) >> 3):
        asked = (1 << min(8, place - 8 * step)) - 1
        next_K[:] = 0
        for i in range(n):
            key = _byte(panel_NW[i], step) & asked
            key_N[i] = key
            next_K[key] += 1
        total = 0
        for key in range(256):
            total += next_K[key]
            next_K[key] = total - next_K[key]
        for i in range(n):
            if i % COUNTED == 0:
                for key in range(256):
                    before_CK[i // COUNTED, key] = next_K[key]
            haplotype = order_N[i]
            key = key_N[haplotype]
            next_order_N[next_K[key]] = haplotype
            next_K[key] += 1
        for q in range(len(position_Q)):
            position = position_Q[q]
            known = _byte(known_QW[q], step)
            neighbour = key_N[order_N[position if position < n else position - 1]]
            key = asked & ((_byte(query_QW[q], step) & known) | (neighbour & ~known))
            if position == n:
                position_Q[q] = next_K[key]
                continue
            counted = position // COUNTED
            position_Q[q] = before_CK[counted, key]
            for i in range(counted * COUNTED, position):
                position_Q[q] += key_N[order_N[i]] == key
        order_N[:] = next_order_N
    known_W = np.full(panel_NW.shape[1], ALL_ONES)
    start_N[0] = place
    for i in range(1, n):
        one_W, other_W = panel_NW[order_N[i - 1]], panel_NW[order_N[i]]
        start_N[i] = mismatch_at_or_before(one_W, other_W, known_W, place - 1) + 1


@kernel()
def _match_starts(order_N, panel_NW, query_QW, known_QW, position_Q, place, start_Q2):  # type: ignore[no-untyped-def]
    """Where the matches of queries with both neighbours start that end at `place`; place + 1 without one.

    For all queries at once, as a processor can wait for several rows of the panel at the same time.
    """
    n = len(order_N)
    for q in range(len(position_Q)):
        for side in range(2):
            neighbour = position_Q[q] - 1 + side
            start_Q2[q, side] = place + 1
            if 0 <= neighbour < n:
                row_W = panel_NW[order_N[neighbour]]
                start_Q2[q, side] = mismatch_at_or_before(row_W, query_QW[q], known_QW[q], place) + 1


@kernel()
def _longer(list_C, n):  # type: ignore[no-untyped-def]
    """A list with room for n."""
    if n <= len(list_C):
        return list_C
    longer = np.empty(2 * n, np.int32)
    longer[: len(list_C)] = list_C
    return longer


@kernel()
def _walk(  # type: ignore[no-untyped-def]
    panel_SP, panel_NW, query_SQ, query_QW, known_QW, first_S, last_S, nearest, most, n_open, most_listed,
    start_BQ, stop_BQ,
):  # fmt: skip
    """Walk along the places; at each, note the neighbours of every query for blocks [first_S, last_S).

    The walk begins at the first place that counts for a block and ends at the last one. Returns a list of the
    haplotypes that were found; start_BQ, stop_BQ: where those of a block and query lie in it. n_open: in how
    many blocks a place is, at most.

    Of small panels who is noted for a block has its bit set. In large ones these bits would lie in memory
    that is far away each time: there they are listed, and made bits when the block ends. most_listed: so many
    at most, or 0 in small panels.
    """
    n_places, n = len(panel_SP), len(panel_NW)
    n_queries = query_SQ.shape[1]
    order_N, start_N = np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1 = np.zeros(n + 1, dtype=np.int32)
    position_Q, start_Q2 = np.zeros(n_queries, np.int32), np.empty((n_queries, 2), np.int32)
    n_words = (n + 63) >> 6
    marked_QAW = np.zeros((n_queries, n_open, 0 if most_listed else n_words), np.uint64)
    list_QAM = np.empty((n_queries, n_open, most_listed), np.int32)
    n_listed_QA = np.zeros((n_queries, n_open), np.int32)
    shared_W, touched_V = np.zeros(n_words, np.uint64), np.zeros((n_words + 63) >> 6, np.uint64)
    before_Q6 = np.full((n_queries, 6), -1, np.int32)
    found_C, n_found = np.empty(4_096, np.int32), 0
    begin, end = 0, n_places
    while begin < end and first_S[begin] >= last_S[begin]:
        begin += 1
    while begin < end and first_S[end - 1] >= last_S[end - 1]:
        end -= 1
    _sort_before(begin, panel_NW, query_QW, known_QW, order_N, start_N, position_Q)
    for place in range(begin, end):
        advance(
            panel_SP[place], order_N, start_N, place, zeros_N1, ones_N, one_start_N,
            next_order_N, next_start_N,
        )  # fmt: skip
        zeros = zeros_N1[n]
        for q in range(n_queries):
            position, allele = position_Q[q], query_SQ[place, q]
            if allele == MISSING:  # as the haplotype that it follows or comes before
                allele = allele_of(panel_SP[place], order_N[position if position < n else position - 1])
            before = zeros_N1[position]
            position_Q[q] = before if allele == 0 else zeros + position - before
        order_N, next_order_N = next_order_N, order_N
        start_N, next_start_N = next_start_N, start_N
        first, last = first_S[place], last_S[place]
        if first >= last:
            continue
        _match_starts(order_N, panel_NW, query_QW, known_QW, position_Q, place, start_Q2)
        note_neighbours(
            order_N, start_N, position_Q, start_Q2, place, nearest, most, first, last, before_Q6, marked_QAW,
            list_QAM, n_listed_QA,
        )  # fmt: skip
        for block in range(first, last):
            if place + 1 < n_places and first_S[place + 1] <= block < last_S[place + 1]:
                continue
            for q in range(n_queries):  # no further place counts for this block
                start_BQ[block, q] = n_found
                slot = block % n_open
                if most_listed:
                    list_M = list_QAM[q, slot, : n_listed_QA[q, slot]]
                    n_listed_QA[q, slot] = 0
                    found_C = _longer(found_C, n_found + len(list_M))
                    n_found = sort_once(list_M, shared_W, touched_V, found_C, n_found)
                else:
                    found_C = _longer(found_C, n_found + 64 * n_words)
                    marked_W = marked_QAW[q, slot]
                    for word in range(n_words):
                        if marked_W[word]:
                            n_found = take_marked(marked_W, word, found_C, n_found)
                stop_BQ[block, q] = n_found
    return found_C[:n_found].copy()


@kernel()
def _unite(one_C, one_start_BQ, one_stop_BQ, other_C, other_start_BQ, other_stop_BQ, first_BQ1):  # type: ignore[no-untyped-def]
    """What is in either list, and in first_BQ1 where it lies."""
    n_blocks, n_queries = one_start_BQ.shape
    most = (one_stop_BQ - one_start_BQ).sum() + (other_stop_BQ - other_start_BQ).sum()
    out_C, n = np.empty(most, np.int32), 0
    for b in range(n_blocks):
        for q in range(n_queries):
            first_BQ1[b, q] = n
            i, j = one_start_BQ[b, q], other_start_BQ[b, q]
            while i < one_stop_BQ[b, q] or j < other_stop_BQ[b, q]:
                if j == other_stop_BQ[b, q] or (i < one_stop_BQ[b, q] and one_C[i] <= other_C[j]):
                    if j < other_stop_BQ[b, q] and one_C[i] == other_C[j]:
                        j += 1
                    out_C[n] = one_C[i]
                    i += 1
                else:
                    out_C[n] = other_C[j]
                    j += 1
                n += 1
        first_BQ1[b, n_queries] = n
    return out_C[:n].copy()


def anchors(n_places: int, first_P: np.ndarray, last_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The blocks [first, last) for which each place counts, int32 (S,) each.

    Parameters
    ----------
    n_places : int
        S.
    first_P, last_P : int64
        Each block's first and last place; both increase with the block, or both decrease.

    Returns
    -------
    first_S, last_S : int32
        Blocks.
    """
    if first_P[0] > first_P[-1]:
        first_S, last_S = anchors(n_places, first_P[::-1], last_P[::-1])
        return len(first_P) - last_S, len(first_P) - first_S
    places = np.arange(n_places)
    first_S = np.searchsorted(last_P, places, side="left")
    last_S = np.searchsorted(first_P, places, side="right")
    return first_S.astype(np.int32), last_S.astype(np.int32)


class Matches(NamedTuple):
    """Haplotypes with the longest matches on one side.

    Attributes
    ----------
    haplotype_C : int32
        Lists, ascending.
    start_BQ, stop_BQ : int64 (B, Q)
        Where that of a block and query lies.
    """

    haplotype_C: np.ndarray
    start_BQ: np.ndarray
    stop_BQ: np.ndarray

    def part(self, first: int, last: int) -> Matches:
        """Those of the queries [first, last)."""
        start_BQ, stop_BQ = (np.ascontiguousarray(x[:, first:last]) for x in (self.start_BQ, self.stop_BQ))
        return Matches(self.haplotype_C, start_BQ, stop_BQ)


def matches_on_left(
    panel: PanelAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
) -> Matches:
    """The longest matches that end on the left of a block's gaps, or near it.

    Parameters
    ----------
    panel : PanelAlleles
        In order of places.
    queries, first_B, n_gaps_B, settings
        As of `find_candidates`.

    Returns
    -------
    Matches
        Of each block and query.
    """
    return _longest_matches(panel, queries, first_B - 1, first_B + n_gaps_B - 2, settings)


def matches_on_right(
    panel_backwards: PanelAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
) -> Matches:
    """The longest matches that begin on the right of a block's gaps; as `matches_on_left`.

    Parameters
    ----------
    panel_backwards : PanelAlleles
        In reverse order of places.
    queries, first_B, n_gaps_B, settings
        As of `find_candidates`.

    Returns
    -------
    Matches
        Of each block and query.
    """
    last_B = len(panel_backwards.packed_SP) - 1 - first_B  # counted from the other end
    return _longest_matches(panel_backwards, queries.backwards(), last_B - n_gaps_B + 1, last_B, settings)


def unite(left: Matches, right: Matches) -> Candidates:
    """Candidates: the haplotypes that match on either side, of the same blocks and queries."""
    n_blocks, n_queries = left.start_BQ.shape
    first_BQ1 = np.empty((n_blocks, n_queries + 1), np.int64)
    return Candidates(_unite(*left, *right, first_BQ1), first_BQ1)


def _longest_matches(
    panel: PanelAlleles,
    queries: TypedAlleles,
    left_B: np.ndarray,
    right_B: np.ndarray,
    settings: CandidateSettings,
) -> Matches:
    """The haplotypes with the longest matches that end at the places [left, right] of a block, or near it.

    left_B and right_B both increase or both decrease. Of equally long matches those count that are next to
    the query in the order of reversed prefixes, in which equal haplotypes keep the panel's order and the
    query comes first.
    """
    first_S, last_S = anchors(len(panel.packed_SP), left_B - settings.margin, right_B + settings.margin)
    start_BQ, stop_BQ = np.zeros((2, len(left_B), queries.alleles_SX.shape[1]), np.int64)
    most_listed = 0
    if len(panel.bits_NW) > parameters.MOST_STATES:
        most_listed = settings.most * int((right_B - left_B).max() + 1 + 2 * settings.margin)
    haplotype_C = _walk(
        panel.packed_SP, panel.bits_NW, queries.alleles_SX, queries.bits_XW, queries.known_XW, first_S,
        last_S, settings.nearest, settings.most, max(1, int((last_S - first_S).max())), most_listed, start_BQ,
        stop_BQ,
    )  # fmt: skip
    return Matches(haplotype_C, start_BQ, stop_BQ)


def find_candidates(
    panel: PanelAlleles,
    panel_backwards: PanelAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
) -> Candidates:
    """Candidates of blocks of gaps.

    Parameters
    ----------
    panel, panel_backwards : PanelAlleles
        Of the panel, in order of places and in reverse order.
    queries : TypedAlleles
        In order of places.
    first_B : int64
        The place on the right of a block's first gap.
    n_gaps_B : int64
        Number of gaps of a block.
    settings : CandidateSettings
        How many are taken.

    Returns
    -------
    Candidates
        Of each block and query.

    References
    ----------
    Durbin 2014, Bioinformatics 30:1266.
    """
    blocks = first_B, n_gaps_B, settings
    return unite(
        matches_on_left(panel, queries, *blocks), matches_on_right(panel_backwards, queries, *blocks)
    )
