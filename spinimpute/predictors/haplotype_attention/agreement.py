"""A shortcut for gaps in which all candidates of a query have the same alleles.

The networks would predict these alleles anyway, so they are predicted without the networks. Candidates agree
in seven of ten gaps with real arrays, and in nine of ten with dense arrays and large panels. Rare alleles are
still predicted by the networks. The networks have learned how reliable rare alleles are, and that an allele
with one or two panel copies may be on the wrong haplotype of its sample. A *pattern* is one of the distinct
haplotypes within a gap.

Axes: Q queries, G gaps of a tile or block, P both ends of a block's gaps (G + 1), D patterns of all gaps of
a tile, U sites, N panel haplotypes, C candidates, W 64-bit words. A trailing 1 means one more than the axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS
from spinimpute.runtime.kernels import kernel

MAX_COPIES = 255  # larger numbers of copies, and patterns without minor alleles, are stored as this number
# Chosen on held-out panel samples (benchmarks/tried.md). Candidates agree if candidates with other alleles
# have at most MAX_DISSENT of the posterior probability. An allele that all candidates carry is wrong in up to
# 20% of the cases if it has fewer than MIN_COPIES copies in the panel, otherwise in 2 of 1,000 cases.
MAX_DISSENT, MIN_COPIES = 0.001, 30
AGREED_PROBABILITY = 0.998  # predicted probability of an allele on which candidates agree
NO_AGREEMENT = -1  # stored in place of a pattern index


class RarestAlleles(NamedTuple):
    """The number of panel copies of the rarest minor allele of each pattern."""

    first_G: np.ndarray  # int64, index of each gap's first pattern in copies_D
    copies_D: np.ndarray  # uint8, at most MAX_COPIES


@kernel()
def rarest_alleles(patterns, gap_start_G1, copies_U):  # type: ignore[no-untyped-def]
    """Return the `RarestAlleles` of all patterns of a tile.

    gap_start_G1 is the first site of each gap, int64, relative to the tile's first site. copies_U is the
    number of panel haplotypes with the minor allele of each site, int64.
    """
    count_G, first_word_G, minor_W = patterns.count_G, patterns.first_word_G, patterns.minor_W
    first_G, n_patterns = np.empty(len(count_G), np.int64), 0
    for g in range(len(count_G)):
        first_G[g] = n_patterns
        n_patterns += count_G[g]
    rarest_D = np.empty(n_patterns, np.uint8)
    for g in range(len(count_G)):
        n_words = (gap_start_G1[g + 1] - gap_start_G1[g] + 63) >> 6
        for d in range(count_G[g]):
            min_copies = np.int64(MAX_COPIES)
            for word in range(n_words):
                minor = minor_W[first_word_G[g] + d * n_words + word]
                while minor:
                    u = gap_start_G1[g] + (word << 6) + trailing_zeros(minor)
                    minor &= minor - np.uint64(1)
                    min_copies = min(min_copies, copies_U[u])
            rarest_D[first_G[g] + d] = min_copies
    return RarestAlleles(first_G, rarest_D)


@kernel()
def _find_best_candidates(posterior_CP, first, last, largest_G, best_candidate_G):  # type: ignore[no-untyped-def]
    """Fill best_candidate_G with the most probable of the candidates [first, last); largest_G is scratch."""
    largest_G[:] = -1
    for c in range(first, last):
        for g in range(len(largest_G)):
            probability = posterior_CP[c, g] + posterior_CP[c, g + 1]
            larger = probability > largest_G[g]
            largest_G[g] = probability if larger else largest_G[g]
            best_candidate_G[g] = c if larger else best_candidate_G[g]


@kernel()
def _add_candidates(  # type: ignore[no-untyped-def]
    candidates, first, last, pattern_NG, rare_N, sibling_N, first_gap, pattern_G, all_P, left_G, right_G
):
    """Sum the probabilities of the candidates [first, last) at both ends of each gap.

    The sums are added to all_P (all candidates) and to left_G and right_G (candidates with another pattern
    than pattern_G, at the left and right end of each gap). Return a bit for each gap, which is set if a
    candidate or its sibling has an allele in the gap that may be misphased (`GapPatterns.rare_BN`).
    """
    haplotype_C, posterior_CP, _ = candidates
    n_gaps = len(pattern_G)
    rare = np.uint16(0)
    for c in range(first, last):
        haplotype = haplotype_C[c]
        rare |= rare_N[haplotype] | rare_N[sibling_N[haplotype]]
        for p in range(n_gaps + 1):
            all_P[p] += posterior_CP[c, p]
        any_differs = 0  # stays 0 for most candidates, which skip the slower loop below
        for g in range(n_gaps):
            any_differs |= pattern_NG[haplotype, first_gap + g] ^ pattern_G[g]
        if any_differs:
            for g in range(n_gaps):
                if pattern_NG[haplotype, first_gap + g] != pattern_G[g]:
                    left_G[g] += posterior_CP[c, g]
                    right_G[g] += posterior_CP[c, g + 1]
    return rare


@kernel()
def agreed_patterns(candidates, sibling_N, patterns, rarest, first_tile_gap, n_gaps):  # type: ignore[no-untyped-def]
    """Return the pattern on which the candidates of each query agree at each gap, int32 (Q, G).

    It is NO_AGREEMENT where they do not agree. Candidates (`BlockCandidates`) agree on a pattern at a gap if
    - candidates with other patterns have at most MAX_DISSENT of the probability at both ends of the gap,
    - no minor allele of the pattern has fewer than MIN_COPIES copies in the panel, and
    - no candidate and no candidate's sibling has an allele with fewer than MIN_TRUSTED_COPIES copies there.
    first_tile_gap is the block's first gap, relative to the tile.
    """
    haplotype_C, posterior_CP, first_Q1 = candidates
    first_G, copies_D = rarest
    agreed_QG, first_gap = np.empty((len(first_Q1) - 1, n_gaps), np.int32), first_tile_gap % BLOCK_GAPS
    pattern_NG = patterns.pattern_BNG[first_tile_gap // BLOCK_GAPS]
    rare_N = patterns.rare_BN[first_tile_gap // BLOCK_GAPS]
    largest_G, best_candidate_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.int32)
    pattern_G = np.empty(n_gaps, np.int32)
    all_P = np.empty(n_gaps + 1, np.float32)
    left_G, right_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.float32)
    max_dissent = np.float32(MAX_DISSENT)
    for q in range(len(agreed_QG)):
        agreed_QG[q] = NO_AGREEMENT
        first, last = first_Q1[q], first_Q1[q + 1]
        if first == last:
            continue
        _find_best_candidates(posterior_CP, first, last, largest_G, best_candidate_G)
        for g in range(n_gaps):
            pattern_G[g] = pattern_NG[haplotype_C[best_candidate_G[g]], first_gap + g]
        all_P[:] = 0
        left_G[:] = 0
        right_G[:] = 0
        rare = _add_candidates(
            candidates,
            first,
            last,
            pattern_NG,
            rare_N,
            sibling_N,
            first_gap,
            pattern_G,
            all_P,
            left_G,
            right_G,
        )
        for g in range(n_gaps):
            if (
                min(all_P[g], all_P[g + 1]) > 0
                and left_G[g] <= max_dissent * all_P[g]
                and right_G[g] <= max_dissent * all_P[g + 1]
                and not (rare >> np.uint16(first_gap + g)) & np.uint16(1)
                and copies_D[first_G[first_tile_gap + g] + pattern_G[g]] >= MIN_COPIES
            ):
                agreed_QG[q, g] = pattern_G[g]
    return agreed_QG


@kernel()
def fill_agreed(agreed_QG, patterns, sites, minor_p, out_UQ):  # type: ignore[no-untyped-def]
    """Write P(ALT) to out_UQ at sites where the agreed pattern has the minor allele.

    minor_p is the probability of this allele.
    """
    first_gap, gap_start_G1, _, flip_U = sites
    first_word_G, minor_W = patterns.first_word_G, patterns.minor_W
    for q in range(len(agreed_QG)):
        for g in range(agreed_QG.shape[1]):
            first_site, n_sites = gap_start_G1[g], gap_start_G1[g + 1] - gap_start_G1[g]
            if n_sites == 0 or agreed_QG[q, g] == NO_AGREEMENT:
                continue
            n_words = (n_sites + 63) >> 6
            pattern_word = first_word_G[first_gap + g] + n_words * agreed_QG[q, g]
            for word in range(n_words):
                minor = minor_W[pattern_word + word]
                while minor:
                    u = first_site + (word << 6) + trailing_zeros(minor)
                    minor &= minor - np.uint64(1)
                    out_UQ[u, q] = np.float32(1) - minor_p if flip_U[u] else minor_p
