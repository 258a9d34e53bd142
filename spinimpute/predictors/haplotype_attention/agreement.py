"""Gaps at which the candidates of a query have the same alleles, so that no network is needed.

These are seven in ten gaps with real arrays, and nine in ten with dense arrays and large panels. The networks
would predict the candidates' alleles there. The networks are still used where they know more: how far rare
alleles can be trusted, and that an allele of one or two copies may be on the wrong haplotype of its carrier.

Axes: Q queries, G gaps of a tile or block, P places around a block's gaps (G + 1), D patterns of all gaps of
a tile, U sites, N panel haplotypes, C candidates, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS
from spinimpute.runtime.kernels import kernel

MOST_COUNTED = 255  # copies; also for patterns without minor alleles
# Chosen on samples left out of panels (benchmarks/tried.md). Candidates agree if those with other alleles
# have at most DISSENT of the probability. If all candidates carry an allele of fewer than BELIEVED copies,
# the allele is wrong in up to 20 % of the cases, other alleles in 2 of 1,000. Alleles of fewer than
# RIGHTLY_PLACED copies are looked for on siblings, too.
DISSENT, BELIEVED = 0.001, 30
CERTAIN = 0.998  # probability of an allele on which candidates agree
NONE = -1  # candidates do not agree


class RarestAlleles(NamedTuple):
    """Number of copies of the rarest minor allele of each pattern."""

    first_G: np.ndarray  # int64, where the patterns of a gap start
    copies_D: np.ndarray  # uint8, at most MOST_COUNTED


@kernel()
def rarest_alleles(patterns, gap_start_G1, copies_U):  # type: ignore[no-untyped-def]
    """Find the `RarestAlleles` of all patterns of a tile.

    gap_start_G1: int64, first site of each gap, counted from 0. copies_U: int64, number of panel haplotypes
    with the minor allele.
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
            fewest = np.int64(MOST_COUNTED)
            for word in range(n_words):
                minor = minor_W[first_word_G[g] + d * n_words + word]
                while minor:
                    u = gap_start_G1[g] + (word << 6) + trailing_zeros(minor)
                    minor &= minor - np.uint64(1)
                    fewest = min(fewest, copies_U[u])
            rarest_D[first_G[g] + d] = fewest
    return RarestAlleles(first_G, rarest_D)


@kernel()
def _find_likeliest(posterior_CP, first, last, best_G, likeliest_G):  # type: ignore[no-untyped-def]
    """Find the likeliest of the candidates [first, last) at each gap; best_G is a workspace."""
    best_G[:] = -1
    for c in range(first, last):
        for g in range(len(best_G)):
            probability = posterior_CP[c, g] + posterior_CP[c, g + 1]
            larger = probability > best_G[g]
            best_G[g] = probability if larger else best_G[g]
            likeliest_G[g] = c if larger else likeliest_G[g]


@kernel()
def _add_candidates(  # type: ignore[no-untyped-def]
    candidates, first, last, pattern_NG, rare_N, sibling_N, first_gap, pattern_G, all_P, left_G, right_G
):
    """Sum the probabilities of candidates, and at both ends of each gap of those with other patterns.

    The candidates are [first, last). Returns the gaps, as bits, in which candidates or their siblings have an
    allele that may be misplaced.
    """
    haplotype_C, posterior_CP, _ = candidates
    n_gaps = len(pattern_G)
    rare = np.uint16(0)
    for c in range(first, last):
        haplotype = haplotype_C[c]
        rare |= rare_N[haplotype] | rare_N[sibling_N[haplotype]]
        for p in range(n_gaps + 1):
            all_P[p] += posterior_CP[c, p]
        any_differs = 0  # most candidates have the same alleles in the whole block
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
    """Patterns on which a query's candidates agree in the gaps of a block, int32 (Q, G); NONE elsewhere.

    Candidates (`BlockCandidates`) with other patterns have at most DISSENT of the probability at either end
    of the gap. The pattern has no allele of fewer than BELIEVED copies, and neither the candidates nor their
    siblings have an allele of fewer than RIGHTLY_PLACED copies. The first gap is counted in the tile.
    """
    haplotype_C, posterior_CP, first_Q1 = candidates
    first_G, copies_D = rarest
    agreed_QG, first_gap = np.empty((len(first_Q1) - 1, n_gaps), np.int32), first_tile_gap % BLOCK_GAPS
    pattern_NG = patterns.pattern_BNG[first_tile_gap // BLOCK_GAPS]
    rare_N = patterns.rare_BN[first_tile_gap // BLOCK_GAPS]
    best_G, likeliest_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.int32)
    pattern_G = np.empty(n_gaps, np.int32)
    all_P = np.empty(n_gaps + 1, np.float32)
    left_G, right_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.float32)
    share = np.float32(DISSENT)
    for q in range(len(agreed_QG)):
        agreed_QG[q] = NONE
        first, last = first_Q1[q], first_Q1[q + 1]
        if first == last:
            continue
        _find_likeliest(posterior_CP, first, last, best_G, likeliest_G)
        for g in range(n_gaps):
            pattern_G[g] = pattern_NG[haplotype_C[likeliest_G[g]], first_gap + g]
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
                and left_G[g] <= share * all_P[g]
                and right_G[g] <= share * all_P[g + 1]
                and not (rare >> np.uint16(first_gap + g)) & np.uint16(1)
                and copies_D[first_G[first_tile_gap + g] + pattern_G[g]] >= BELIEVED
            ):
                agreed_QG[q, g] = pattern_G[g]
    return agreed_QG


@kernel()
def fill_agreed(agreed_QG, patterns, sites, minor_p, out_UQ):  # type: ignore[no-untyped-def]
    """Write P(ALT) into out_UQ at the minor alleles of agreed patterns, each with probability minor_p."""
    first_gap, gap_start_G1, _, flip_U = sites
    first_word_G, minor_W = patterns.first_word_G, patterns.minor_W
    for q in range(len(agreed_QG)):
        for g in range(agreed_QG.shape[1]):
            first_site, n_sites = gap_start_G1[g], gap_start_G1[g + 1] - gap_start_G1[g]
            if n_sites == 0 or agreed_QG[q, g] == NONE:
                continue
            n_words = (n_sites + 63) >> 6
            at = first_word_G[first_gap + g] + n_words * agreed_QG[q, g]
            for word in range(n_words):
                minor = minor_W[at + word]
                while minor:
                    u = first_site + (word << 6) + trailing_zeros(minor)
                    minor &= minor - np.uint64(1)
                    out_UQ[u, q] = np.float32(1) - minor_p if flip_U[u] else minor_p
