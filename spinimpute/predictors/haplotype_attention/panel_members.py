"""Target samples that are themselves in the panel: their alleles come back.

A haplotype that agrees with one of the panel at all typed places of a chunk may still be of someone else, and
in a centimorgan the model of Li and Stephens often holds several jumps for as likely. Both haplotypes of a
sample that agree with both of one panel sample are another matter: for others this is likely only where many
haplotypes agree.

With a of the N panel haplotypes as like the first, b as like the second, and p of them as like the first
whose siblings are as like the second, a sample from outside has both with a probability of about a / N times
b / N, one that is in the panel, in either order, with p / N. So the odds of being in the panel are those of
before times N p / (a b). Where places differ, typed calls must be wrong there; or the sample is a relative
who has the same haplotypes for a while, as likely in panels of any size.

That a sample's two haplotypes are alike tells nothing more than one of them, and one of them is not enough.

Axes: Q queries, N panel haplotypes, C candidates, M haplotypes of members, G gaps, U sites, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import bits_set, count_bits, trailing_zeros
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, GapPatterns
from spinimpute.runtime.kernels import kernel

PRIOR_ODDS = 0.02  # before anything is known; of 300 haplotypes one that alone agrees then has 6 to 1
PLACES_PER_ERROR = 200  # known typed places of a haplotype for each that may differ
# Where places differ the odds are no larger than the first, times the second for each of them.
MOST_ODDS, ERROR_ODDS = 100.0, 0.1
LEAST_ODDS = 0.05  # with less a sample is imputed like any other
MOST_ALIKE = 20  # candidates that are like a query, of which the panel says enough
COUNTED = 4_096  # haplotypes, evenly spread, among which those like the other haplotype are counted


class PanelMembers(NamedTuple):
    """Queries of samples that may be in the panel.

    Attributes
    ----------
    probability_Q : float32
        That it is; 0 for all others.
    haplotype_M : int32
        Whom each query may be, in lists.
    first_Q1 : int64 (Q + 1,)
        Where these begin.
    """

    probability_Q: np.ndarray
    haplotype_M: np.ndarray
    first_Q1: np.ndarray


def panel_members(
    panel: PanelAlleles,
    sibling_N: np.ndarray,
    queries: TypedAlleles,
    siblings: TypedAlleles,
    candidate_C: np.ndarray,
    first_Q1: np.ndarray,
) -> PanelMembers:
    """Find queries that agree with a panel haplotype, as their siblings do with its sibling.

    But for one of PLACES_PER_ERROR places, and unless MOST_ALIKE candidates and more agree.

    Parameters
    ----------
    panel : PanelAlleles
        At the typed places of a chunk.
    sibling_N : int64
        The sibling of each haplotype; itself where there is none.
    queries, siblings : TypedAlleles
        Queries, and the other haplotypes of their samples; without any call where there is none.
    candidate_C : int32
        Candidates of a block of the chunk: whoever agrees everywhere is one of them, but where many do.
    first_Q1 : int64
        Where those of a query begin.

    Returns
    -------
    PanelMembers
        Of these queries.
    """
    probability_Q = np.zeros(len(queries.bits_XW), np.float32)
    found_Q1 = np.empty(len(first_Q1), np.int64)
    found_M = _find_members(
        panel.bits_NW, sibling_N, queries.bits_XW, queries.known_XW, siblings.bits_XW, siblings.known_XW,
        candidate_C, first_Q1, COUNTED, probability_Q, found_Q1,
    )  # fmt: skip
    return PanelMembers(probability_Q, found_M, found_Q1)


@kernel()
def _differences(row_W, bits_W, known_W, most):  # type: ignore[no-untyped-def]
    """At how many known places a haplotype differs from a query; most + 1 if at more than `most`."""
    n = 0
    for word in range(len(row_W)):
        n += bits_set((row_W[word] ^ bits_W[word]) & known_W[word])
        if n > most:
            return most + 1
    return n


@kernel()
def _most_errors(known_W):  # type: ignore[no-untyped-def]
    """At how many places a query may differ from itself in the panel; -1 if nothing is known of it."""
    n_known = count_bits(known_W, 0, 64 * len(known_W))
    return n_known // PLACES_PER_ERROR if n_known else -1


@kernel()
def _odds(n, n_pairs, n_alike, n_others_alike, n_differ):  # type: ignore[no-untyped-def]
    """Of being in a panel of n haplotypes; see above."""
    odds = PRIOR_ODDS * n * n_pairs / (n_alike * n_others_alike)
    return odds if n_differ == 0 else min(odds, MOST_ODDS) * ERROR_ODDS**n_differ


@kernel()
def _find_members(  # type: ignore[no-untyped-def]
    panel_NW, sibling_N, query_QW, known_QW, other_QW, other_known_QW, candidate_C, first_Q1, counted,
    probability_Q, found_Q1,
):  # fmt: skip
    """Fill probability_Q and found_Q1; returns the haplotypes of members."""
    n = len(panel_NW)
    step = (n + counted - 1) // counted
    found_M, n_found = np.empty(64, np.int32), 0
    for q in range(len(query_QW)):
        found_Q1[q] = n_found
        query_W, known_W, other_W, other_known_W = query_QW[q], known_QW[q], other_QW[q], other_known_QW[q]
        most, others_most = _most_errors(known_W), _most_errors(other_known_W)
        if min(most, others_most) < 0 or _differences(query_W, other_W, known_W & other_known_W, 0) == 0:
            continue
        n_alike, own = 0, 0
        others = fewest = most + others_most + 1  # of the first pair with fewest differences
        for c in range(first_Q1[q], first_Q1[q + 1]):
            h = candidate_C[c]
            here = _differences(panel_NW[h], query_W, known_W, most)
            if here > most:
                continue
            n_alike += 1
            if n_alike > MOST_ALIKE:
                break
            if sibling_N[h] == h:
                continue
            there = _differences(panel_NW[sibling_N[h]], other_W, other_known_W, others_most)
            if there <= others_most and here + there < fewest:
                fewest, own, others = here + there, here, there
        if n_alike > MOST_ALIKE or fewest > most + others_most:
            continue
        if n_found + n_alike > len(found_M):
            longer_M = np.empty(2 * (n_found + n_alike), np.int32)
            longer_M[:n_found] = found_M[:n_found]
            found_M = longer_M
        n_alike, n_pairs = 0, 0
        for c in range(first_Q1[q], first_Q1[q + 1]):
            h = candidate_C[c]
            if _differences(panel_NW[h], query_W, known_W, own) > own:
                continue
            n_alike += 1
            sibling = sibling_N[h]
            if sibling != h and _differences(panel_NW[sibling], other_W, other_known_W, others) <= others:
                found_M[n_found + n_pairs] = h
                n_pairs += 1
        n_others_alike = 0 if step == 1 else step  # one more, where they may be between those looked at
        for h in range(0, n, step):
            if _differences(panel_NW[h], other_W, other_known_W, others) <= others:
                n_others_alike += step
        odds = _odds(n, n_pairs, n_alike, n_others_alike, fewest)
        if odds >= LEAST_ODDS:
            probability_Q[q] = odds / (1 + odds)
            n_found += n_pairs
    found_Q1[len(query_QW)] = n_found
    return found_M[:n_found].copy()


def mix_members(
    members: PanelMembers,
    patterns: GapPatterns,
    first_gap: int,
    gap_start_G1: np.ndarray,
    flip_U: np.ndarray,
    out_UQ: np.ndarray,
) -> None:
    """Mix P(ALT) with the alleles of whom queries may be, in place.

    Parameters
    ----------
    members : PanelMembers
        Of these queries.
    patterns : GapPatterns
        Of the chunk.
    first_gap : int
        The first gap in the chunk; all are of one block.
    gap_start_G1 : int64
        Sites of the block's gaps, counted from 0.
    flip_U : bool
        Whether ALT is the major allele.
    out_UQ : float32
        P(ALT).
    """
    pattern_NG, _, first_word_G, minor_W = patterns.around(first_gap)
    _mix_members(*members, pattern_NG, first_word_G, minor_W, first_gap, gap_start_G1, flip_U, out_UQ)


@kernel()
def _mix_members(  # type: ignore[no-untyped-def]
    probability_Q, haplotype_M, first_Q1, pattern_NG, first_word_G, minor_W, first_gap, gap_start_G1, flip_U,
    out_UQ,
):  # fmt: skip
    one = np.float32(1)
    carriers_U = np.empty(len(flip_U), np.int64)
    for q in range(len(probability_Q)):
        n = first_Q1[q + 1] - first_Q1[q]
        if n == 0:
            continue
        carriers_U[:] = 0
        for h in haplotype_M[first_Q1[q] : first_Q1[q + 1]]:
            for g in range(len(gap_start_G1) - 1):
                first_site = gap_start_G1[g]
                n_words = (gap_start_G1[g + 1] - first_site + 63) >> 6
                at = first_word_G[first_gap + g] + n_words * pattern_NG[h, (first_gap + g) % BLOCK_GAPS]
                for word in range(n_words):
                    minor = minor_W[at + word]
                    while minor:
                        carriers_U[first_site + (word << 6) + trailing_zeros(minor)] += 1
                        minor &= minor - np.uint64(1)
        for u in range(len(flip_U)):
            p = np.float32(carriers_U[u]) / np.float32(n)
            p = one - p if flip_U[u] else p
            out_UQ[u, q] += probability_Q[q] * (p - out_UQ[u, q])
