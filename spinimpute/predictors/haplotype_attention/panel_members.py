"""Imputation of target samples that are members of the panel: they get their own alleles.

If one haplotype of a sample agrees with a panel haplotype at all typed places of a tile, they may still be
from two people. If both haplotypes of a sample agree with the two haplotypes of a panel sample, they are
probably from one person, unless many panel haplotypes agree.

Let a of the N panel haplotypes agree with the sample's first haplotype, and b with the second. Let p be the
number of haplotypes that agree with the first haplotype while their sibling agrees with the second. A person
outside the panel has the two observed haplotypes with probability (a / N) (b / N), approximately; a random
person of the panel has them with probability p / N. The odds of being in the panel are therefore the prior
odds times N p / (a b). A difference at a typed place lowers the odds: either the call is wrong, or the
sample is a relative who shares the haplotypes only in a part of the chromosome.

A sample whose two haplotypes agree with each other is not tested: the second one adds no evidence.

Axes: Q queries, N panel haplotypes, C candidates, M haplotypes of members, G gaps, U sites, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import bits_set, count_bits, trailing_zeros
from spinimpute.hmm.pbwt import Candidates
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS
from spinimpute.runtime.kernels import kernel

PRIOR_ODDS = 0.02  # with a = b = p = 1 and a panel of 300 haplotypes, the odds are then 6 to 1
PLACES_PER_ERROR = 200  # number of non-missing typed places for which one difference is allowed
# With d > 0 differences, the odds are min(odds, MAX_ODDS) * ERROR_ODDS^d.
MAX_ODDS, ERROR_ODDS = 100.0, 0.1
MIN_ODDS = 0.05  # samples with lower odds are treated as outside the panel
MAX_MATCHING = 20  # queries that agree with more candidates are not tested
MAX_COUNTED = 4_096  # b is estimated from at most this many evenly spread panel haplotypes


class PanelMembers(NamedTuple):
    """The queries whose samples may be in the panel."""

    probability_Q: np.ndarray  # float32, probability that the query's sample is in the panel
    haplotype_M: np.ndarray  # int32, panel haplotypes that may be the query itself
    first_Q1: np.ndarray  # int64, index in haplotype_M of each query's first haplotype


def find_members(
    panel: PanelAlleles,
    sibling_N: np.ndarray,
    queries: TypedAlleles,
    siblings: TypedAlleles,
    candidates: Candidates,
    block: int,
) -> PanelMembers:
    """Return the queries that agree with a panel haplotype while their siblings agree with its sibling.

    One of PLACES_PER_ERROR places may differ. Queries that agree with more than MAX_MATCHING candidates are
    omitted. sibling_N is the sibling of each panel haplotype, or the haplotype itself if it has none.
    `siblings` are the queries' siblings; all calls of a missing sibling are missing. `block` may be any block
    of the tile, because a haplotype that agrees at all places is a candidate in every block.
    """
    probability_Q = np.zeros(len(queries.bits_XW), np.float32)
    first_Q1 = candidates.first_BQ1[block]
    found_Q1 = np.empty(len(first_Q1), np.int64)
    found_M = _find_members(
        panel.bits_NW,
        sibling_N,
        (queries.bits_XW, queries.known_XW),
        (siblings.bits_XW, siblings.known_XW),
        (candidates.haplotype_C, first_Q1),
        MAX_COUNTED,
        (probability_Q, found_Q1),
    )
    return PanelMembers(probability_Q, found_M, found_Q1)


@kernel()
def _differences(panel_NW, haplotype, bits_W, known_W, limit):  # type: ignore[no-untyped-def]
    """Return the number of non-missing places at which a panel haplotype differs, at most limit + 1."""
    n = 0
    for word in range(len(bits_W)):
        n += bits_set((panel_NW[haplotype, word] ^ bits_W[word]) & known_W[word])
        if n > limit:
            return limit + 1
    return n


@kernel()
def _are_equal(first_W, second_W, first_known_W, second_known_W):  # type: ignore[no-untyped-def]
    """Return whether two haplotypes have equal alleles wherever neither is missing."""
    for word in range(len(first_W)):
        if (first_W[word] ^ second_W[word]) & first_known_W[word] & second_known_W[word]:
            return False
    return True


@kernel()
def _count_allowed_errors(known_W):  # type: ignore[no-untyped-def]
    """Return the number of allowed differences for a query with these calls; -1 if all calls are missing."""
    n_known = count_bits(known_W, 0, 64 * len(known_W))
    return n_known // PLACES_PER_ERROR if n_known else -1


@kernel()
def _odds(n, n_pairs, n_matching, n_siblings_matching, n_differ):  # type: ignore[no-untyped-def]
    """Return the odds of being in a panel of n haplotypes; see the module's docstring."""
    odds = PRIOR_ODDS * n * n_pairs / (n_matching * n_siblings_matching)
    return odds if n_differ == 0 else min(odds, MAX_ODDS) * ERROR_ODDS**n_differ


@kernel()
def _find_members(panel_NW, sibling_N, queries, siblings, candidates, counted, members):  # type: ignore[no-untyped-def]
    """Fill probability_Q and first_Q1 of `PanelMembers`. Return its haplotype_M."""
    query_QW, known_QW = queries
    sibling_QW, sibling_known_QW = siblings
    candidate_C, first_Q1 = candidates
    probability_Q, found_Q1 = members
    n = len(panel_NW)
    step = (n + counted - 1) // counted
    found_M, n_found = np.empty(64, np.int32), 0
    for q in range(len(query_QW)):
        found_Q1[q] = n_found
        query_W, known_W, sibling_W, sibling_known_W = (
            query_QW[q],
            known_QW[q],
            sibling_QW[q],
            sibling_known_QW[q],
        )
        query_max, sibling_max = _count_allowed_errors(known_W), _count_allowed_errors(sibling_known_W)
        if min(query_max, sibling_max) < 0 or _are_equal(query_W, sibling_W, known_W, sibling_known_W):
            continue
        n_matching, query_best = 0, 0
        sibling_best = best_total = query_max + sibling_max + 1
        for c in range(first_Q1[q], first_Q1[q + 1]):
            h = candidate_C[c]
            errors = _differences(panel_NW, h, query_W, known_W, query_max)
            if errors > query_max:
                continue
            n_matching += 1
            if n_matching > MAX_MATCHING:
                break
            if sibling_N[h] == h:
                continue
            sibling_errors = _differences(panel_NW, sibling_N[h], sibling_W, sibling_known_W, sibling_max)
            if sibling_errors <= sibling_max and errors + sibling_errors < best_total:
                best_total, query_best, sibling_best = (errors + sibling_errors, errors, sibling_errors)
        if n_matching > MAX_MATCHING or best_total > query_max + sibling_max:
            continue
        if n_found + n_matching > len(found_M):
            longer_M = np.empty(2 * (n_found + n_matching), np.int32)
            longer_M[:n_found] = found_M[:n_found]
            found_M = longer_M
        n_matching, n_pairs = 0, 0
        for c in range(first_Q1[q], first_Q1[q + 1]):
            h = candidate_C[c]
            if _differences(panel_NW, h, query_W, known_W, query_best) > query_best:
                continue
            n_matching += 1
            sibling = sibling_N[h]
            if (
                sibling != h
                and _differences(panel_NW, sibling, sibling_W, sibling_known_W, sibling_best) <= sibling_best
            ):
                found_M[n_found + n_pairs] = h
                n_pairs += 1
        n_siblings_matching = 0 if step == 1 else step  # round up, because haplotypes are skipped
        for h in range(0, n, step):
            if _differences(panel_NW, h, sibling_W, sibling_known_W, sibling_best) <= sibling_best:
                n_siblings_matching += step
        odds = _odds(n, n_pairs, n_matching, n_siblings_matching, best_total)
        if odds >= MIN_ODDS:
            probability_Q[q] = odds / (1 + odds)
            n_found += n_pairs
    found_Q1[len(query_QW)] = n_found
    return found_M[:n_found].copy()


@kernel()
def mix_members(members, patterns, sites, out_UQ):  # type: ignore[no-untyped-def]
    """Mix P(ALT) in out_UQ, in place, with the alleles of the panel haplotypes that may be the query."""
    probability_Q, haplotype_M, first_Q1 = members
    first_gap, gap_start_G1, _, flip_U = sites
    pattern_NG = patterns.pattern_BNG[first_gap // BLOCK_GAPS]
    first_word_G, minor_W = patterns.first_word_G, patterns.minor_W
    one = np.float32(1)
    carriers_U = np.empty(len(flip_U), np.int64)
    for q in range(len(probability_Q)):
        n = first_Q1[q + 1] - first_Q1[q]
        if n == 0:
            continue
        carriers_U[:] = 0
        for m in range(first_Q1[q], first_Q1[q + 1]):
            h = haplotype_M[m]
            for g in range(len(gap_start_G1) - 1):
                first_site = gap_start_G1[g]
                n_words = (gap_start_G1[g + 1] - first_site + 63) >> 6
                pattern_word = (
                    first_word_G[first_gap + g] + n_words * pattern_NG[h, (first_gap + g) % BLOCK_GAPS]
                )
                for word in range(n_words):
                    minor = minor_W[pattern_word + word]
                    while minor:
                        carriers_U[first_site + (word << 6) + trailing_zeros(minor)] += 1
                        minor &= minor - np.uint64(1)
        for u in range(len(flip_U)):
            p = np.float32(carriers_U[u]) / np.float32(n)
            p = one - p if flip_U[u] else p
            out_UQ[u, q] += probability_Q[q] * (p - out_UQ[u, q])
