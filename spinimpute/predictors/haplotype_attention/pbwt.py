"""Candidates: the panel haplotypes that match a query longest around a gap, by the positional BWT.

The PBWT (Durbin 2014, Bioinformatics 30:1266) keeps haplotypes sorted by their reversed prefixes while it
walks along the sites, so that those with the longest matches ending here are neighbours. A query is never
inserted: only the two haplotypes between which it would lie are known. A second walk from the other end finds
the longest matches that begin here.

A block of gaps takes the neighbours at every typed site in and around it. So a haplotype whose match is
interrupted by an error at one typed site is found at the sites behind it: mismatches do not cost a candidate.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, B blocks of the chunk, A blocks that a place
counts for, C candidates, W 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import mismatch_at_or_before, pack_rows, trailing_zeros
from spinimpute.hmm.candidates import Candidates
from spinimpute.kernels import kernel

MISSING = 2
FEW = 3_000  # haplotypes of a panel that needs no more candidates than are asked for,
MOST_TIMES = 5  # and times as many as larger ones take, at most
LEAST_MARGIN = 2  # of large panels


@dataclass(frozen=True)
class CandidateSettings:
    """How many candidates are taken.

    Attributes
    ----------
    nearest : int
        Haplotypes taken at each typed site and side, with all that match as long as the last of them.
    most : int
        Largest number taken there; of equal matches those next in the order.
    margin : int
        Typed sites beyond a block's ends whose neighbours count, too.
    """

    nearest: int = 8
    most: int = 256
    margin: int = 8

    def for_panel(self, n_haplotypes: int) -> CandidateSettings:
        """More for a panel of more than FEW haplotypes, in proportion: more of them match equally well.

        With so many at each typed site, fewer sites beyond a block's ends are as good.
        """
        factor = min(max(1.0, n_haplotypes / FEW), MOST_TIMES)
        return CandidateSettings(
            nearest=round(factor * self.nearest),
            most=round(factor * self.most),
            margin=max(min(LEAST_MARGIN, self.margin), round(self.margin / factor)),
        )


@kernel()
def _advance(alleles_N, order_N, start_N, place, zeros_N1, next_order_N, next_start_N):  # type: ignore[no-untyped-def]
    """One step of the PBWT: order and match starts after `place`, from those before it.

    order_N: haplotypes sorted by the reversed prefix; start_N[i]: where the match of order[i - 1] and
    order[i] starts; zeros_N1[i]: how many of the first i haplotypes in the order have allele 0.
    """
    n = len(order_N)
    zeros = 0
    for i in range(n):
        zeros_N1[i] = zeros
        zeros += 1 - alleles_N[order_N[i]]
    zeros_N1[n] = zeros
    at_0, at_1 = 0, zeros
    start_0 = start_1 = place + 1
    for i in range(n):
        haplotype = order_N[i]
        start_0 = max(start_0, start_N[i])
        start_1 = max(start_1, start_N[i])
        if alleles_N[haplotype] == 0:
            next_order_N[at_0], next_start_N[at_0] = haplotype, start_0
            at_0 += 1
            start_0 = 0
        else:
            next_order_N[at_1], next_start_N[at_1] = haplotype, start_1
            at_1 += 1
            start_1 = 0


@kernel()
def _mark_neighbours(  # type: ignore[no-untyped-def]
    order_N,
    start_N,
    panel_NW,
    query_W,
    known_W,
    position,
    place,
    nearest,
    most,
    first_block,
    last_block,
    marked_AW,
):
    """Mark the haplotypes whose matches with the query that end at `place` are longest, in some blocks."""
    n = len(order_N)
    above, below = position - 1, position
    none = place + 1
    start_above = start_below = none
    if above >= 0:
        start_above = mismatch_at_or_before(panel_NW[order_N[above]], query_W, known_W, place) + 1
    if below < n:
        start_below = mismatch_at_or_before(panel_NW[order_N[below]], query_W, known_W, place) + 1
    taken, last = 0, -1
    while taken < most:
        start = min(start_above, start_below)
        if start == none or (taken >= nearest and start != last):
            break
        if start_above <= start_below:
            haplotype = order_N[above]
            start_above = max(start_above, start_N[above]) if above > 0 else none
            above -= 1
        else:
            haplotype = order_N[below]
            below += 1
            start_below = max(start_below, start_N[below]) if below < n else none
        for block in range(first_block, last_block):
            marked_AW[block % len(marked_AW), haplotype >> 6] |= np.uint64(1) << np.uint64(haplotype & 63)
        taken += 1
        last = start


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
    panel_SN, panel_NW, query_SQ, query_QW, known_QW, first_S, last_S, nearest, most, n_marked, start_BQ,
    stop_BQ,
):  # fmt: skip
    """Walk along the places; at each, mark the neighbours of every query in blocks [first_S, last_S).

    Returns a list of those that were marked; start_BQ, stop_BQ: where those of a block and query lie in it.
    n_marked: in how many blocks a place is, at most.
    """
    n_places, n = panel_SN.shape
    n_queries = query_SQ.shape[1]
    order_N, start_N = np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1 = np.zeros(n + 1, dtype=np.int32)
    position_Q = np.zeros(n_queries, dtype=np.int32)
    marked_QAW = np.zeros((n_queries, n_marked, (n + 63) >> 6), np.uint64)
    found_C, n_found = np.empty(4_096, np.int32), 0
    for place in range(n_places):
        _advance(panel_SN[place], order_N, start_N, place, zeros_N1, next_order_N, next_start_N)
        zeros = zeros_N1[n]
        for q in range(n_queries):
            position, allele = position_Q[q], query_SQ[place, q]
            if allele == MISSING:  # as the haplotype that it follows or comes before
                allele = panel_SN[place, order_N[position if position < n else position - 1]]
            before = zeros_N1[position]
            position_Q[q] = before if allele == 0 else zeros + position - before
        order_N, next_order_N = next_order_N, order_N
        start_N, next_start_N = next_start_N, start_N
        first, last = first_S[place], last_S[place]
        if first >= last:
            continue
        for q in range(n_queries):
            _mark_neighbours(
                order_N, start_N, panel_NW, query_QW[q], known_QW[q], position_Q[q], place,
                nearest, most, first, last, marked_QAW[q],
            )  # fmt: skip
        for block in range(first, last):
            if place + 1 < n_places and first_S[place + 1] <= block < last_S[place + 1]:
                continue
            for q in range(n_queries):  # no further place counts for this block
                start_BQ[block, q] = n_found
                marked_W = marked_QAW[q, block % n_marked]
                for word in range(len(marked_W)):
                    bits = marked_W[word]
                    if bits == np.uint64(0):
                        continue
                    found_C = _longer(found_C, n_found + 64)
                    while bits != np.uint64(0):
                        found_C[n_found] = (word << 6) + trailing_zeros(bits)
                        bits &= bits - np.uint64(1)
                        n_found += 1
                    marked_W[word] = 0
                stop_BQ[block, q] = n_found
    return found_C[:n_found].copy()


@kernel()
def _unite(one_C, one_start_BQ, one_stop_BQ, other_C, other_start_BQ, other_stop_BQ, first_BQ1):  # type: ignore[no-untyped-def]
    """What is in either list, and in first_BQ1 where it lies."""
    n_blocks, n_queries = one_start_BQ.shape
    out_C, n = np.empty(len(one_C) + len(other_C), np.int32), 0
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


@dataclass(frozen=True)
class TypedAlleles:
    """Alleles at typed places, of a panel's haplotypes or of queries (X).

    Attributes
    ----------
    alleles_SX : uint8
        0, 1 or MISSING.
    bits_XW : uint64
        Bit s is set where allele 1 is (`pack_rows`).
    known_XW : uint64
        Bit s is set where there is a call.
    """

    alleles_SX: np.ndarray
    bits_XW: np.ndarray
    known_XW: np.ndarray

    @classmethod
    def of(cls, alleles_SX: np.ndarray) -> TypedAlleles:
        """From any integers; what is neither 0 nor 1 is missing."""
        known_SX = (alleles_SX == 0) | (alleles_SX == 1)
        return cls(
            np.ascontiguousarray(np.where(known_SX, alleles_SX, MISSING).astype(np.uint8)),
            pack_rows((alleles_SX == 1).astype(np.uint8)),
            pack_rows(known_SX.astype(np.uint8)),
        )

    def backwards(self) -> TypedAlleles:
        """The same in reverse order of places."""
        return TypedAlleles.of(self.alleles_SX[::-1])

    def take(self, haplotypes: slice) -> TypedAlleles:
        """Some of the haplotypes."""
        return TypedAlleles(
            self.alleles_SX[:, haplotypes], self.bits_XW[haplotypes], self.known_XW[haplotypes]
        )


class _Matches(NamedTuple):
    """Lists of haplotypes, and where those of a block and query lie."""

    haplotype_C: np.ndarray
    start_BQ: np.ndarray
    stop_BQ: np.ndarray


def _longest_matches(
    panel: TypedAlleles,
    queries: TypedAlleles,
    left_B: np.ndarray,
    right_B: np.ndarray,
    settings: CandidateSettings,
) -> _Matches:
    """The haplotypes with the longest matches that end at the places [left, right] of a block, or near it.

    left_B and right_B both increase or both decrease. Of equally long matches those count that are next to
    the query in the order of reversed prefixes, in which equal haplotypes keep the panel's order and the
    query comes first.
    """
    first_S, last_S = anchors(len(panel.alleles_SX), left_B - settings.margin, right_B + settings.margin)
    start_BQ, stop_BQ = np.zeros((2, len(left_B), queries.alleles_SX.shape[1]), np.int64)
    haplotype_C = _walk(
        panel.alleles_SX, panel.bits_XW, queries.alleles_SX, queries.bits_XW, queries.known_XW, first_S,
        last_S, settings.nearest, settings.most, max(1, int((last_S - first_S).max())), start_BQ, stop_BQ,
    )  # fmt: skip
    return _Matches(haplotype_C, start_BQ, stop_BQ)


def find_candidates(
    panel: TypedAlleles,
    panel_backwards: TypedAlleles,
    queries: TypedAlleles,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    settings: CandidateSettings,
) -> Candidates:
    """Candidates of blocks of gaps.

    Parameters
    ----------
    panel, panel_backwards : TypedAlleles
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
    # matches that end on the left of a gap, and those that begin on its right
    left = _longest_matches(panel, queries, first_B - 1, first_B + n_gaps_B - 2, settings)
    last_B = len(panel.alleles_SX) - 1 - first_B  # counted from the other end
    right = _longest_matches(panel_backwards, queries.backwards(), last_B - n_gaps_B + 1, last_B, settings)
    first_BQ1 = np.empty((len(first_B), queries.alleles_SX.shape[1] + 1), np.int64)
    return Candidates(_unite(*left, *right, first_BQ1), first_BQ1)
