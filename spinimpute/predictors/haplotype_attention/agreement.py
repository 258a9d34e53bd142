"""Gaps at which a query's candidates have the same alleles: there is nothing to weigh.

Of real arrays these are seven gaps in ten, of dense ones in large panels nine. Networks would say there what
the candidates say. Two things they know better, and are asked: how far rare alleles can be believed, and that
an allele of one or two copies may stand on the wrong haplotype of its carrier.

Axes: Q queries, G gaps of a chunk or block, P places around a block's gaps (G + 1), D patterns of all of a
chunk's gaps, U sites, N panel haplotypes, C candidates, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, GapPatterns
from spinimpute.runtime.kernels import kernel

MOST_COUNTED = 255  # copies; for patterns without minor alleles, too
# Chosen on people left out of panels (benchmarks/tried.md). What has more than DISSENT of the probability is
# weighed. Alleles of fewer than BELIEVED copies that all candidates carry are wrong in up to 20 % of the
# cases, others in 2 of 1,000. Those of fewer than RIGHTLY_PLACED are looked for on siblings, too.
DISSENT, BELIEVED = 0.001, 30
CERTAIN = 0.998
NONE = -1  # nothing is agreed on


class RarestAlleles(NamedTuple):
    """How many copies the rarest minor allele of each pattern has.

    Attributes
    ----------
    first_G : int64
        Where the patterns of a gap begin.
    copies_D : uint8
        At most MOST_COUNTED.
    """

    first_G: np.ndarray
    copies_D: np.ndarray


@kernel()
def _count_rarest(count_G, first_word_G, minor_W, gap_start_G1, copies_U, first_G, rarest_D):  # type: ignore[no-untyped-def]
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


def rarest_alleles(patterns: GapPatterns, gap_start_G1: np.ndarray, copies_U: np.ndarray) -> RarestAlleles:
    """Of all patterns of a chunk.

    Parameters
    ----------
    patterns : GapPatterns
        Of the chunk's gaps.
    gap_start_G1 : int64
        Sites of the gaps, counted from 0.
    copies_U : int64
        Panel haplotypes that carry the minor allele of a site.

    Returns
    -------
    RarestAlleles
        In the order of the patterns.
    """
    last_G = np.cumsum(patterns.count_G, dtype=np.int64)
    first_G = last_G - patterns.count_G
    copies_D = np.empty(int(last_G[-1]), np.uint8)
    _count_rarest(
        patterns.count_G, patterns.first_word_G, patterns.minor_W, gap_start_G1, copies_U, first_G, copies_D
    )
    return RarestAlleles(first_G, copies_D)


@kernel()
def _find_likeliest(posterior_CP, best_G, likeliest_G):  # type: ignore[no-untyped-def]
    """The likeliest candidate at every gap; best_G: room for its probability at both ends."""
    best_G[:] = -1
    for c in range(len(posterior_CP)):
        posterior_P = posterior_CP[c]
        for g in range(len(best_G)):
            probability = posterior_P[g] + posterior_P[g + 1]
            larger = probability > best_G[g]
            best_G[g] = probability if larger else best_G[g]
            likeliest_G[g] = c if larger else likeliest_G[g]


@kernel()
def _add_candidates(  # type: ignore[no-untyped-def]
    candidate_C, probability_CP, pattern_NG, rare_N, sibling_N, begin, pattern_G, all_P, left_G, right_G
):
    """Add up probabilities of candidates, and at both ends of a gap those of candidates with other patterns.

    Returns in which gaps candidates or their siblings have an allele that may be misplaced.
    """
    n_gaps = len(pattern_G)
    rare = np.uint16(0)
    for c in range(len(candidate_C)):
        haplotype = candidate_C[c]
        rare |= rare_N[haplotype] | rare_N[sibling_N[haplotype]]
        for p in range(n_gaps + 1):
            all_P[p] += probability_CP[c, p]
        any_differs = 0  # most candidates have the same alleles in the whole block
        for g in range(n_gaps):
            any_differs |= pattern_NG[haplotype, begin + g] ^ pattern_G[g]
        if any_differs:
            for g in range(n_gaps):
                if pattern_NG[haplotype, begin + g] != pattern_G[g]:
                    left_G[g] += probability_CP[c, g]
                    right_G[g] += probability_CP[c, g + 1]
    return rare


@kernel()
def _find_agreed(  # type: ignore[no-untyped-def]
    haplotype_C, posterior_CP, first_Q1, pattern_NG, rare_N, sibling_N, first_G, copies_D, begin, agreed_QG
):
    """Fill agreed_QG; begin: where its gaps begin in the block, first_G: where the patterns of each do."""
    n_gaps = agreed_QG.shape[1]
    best_G, likeliest_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.int32)
    pattern_G = np.empty(n_gaps, np.int32)
    all_P = np.empty(n_gaps + 1, np.float32)
    left_G, right_G = np.empty(n_gaps, np.float32), np.empty(n_gaps, np.float32)
    share = np.float32(DISSENT)
    for q in range(len(agreed_QG)):
        agreed_G = agreed_QG[q]
        agreed_G[:] = NONE
        candidate_C = haplotype_C[first_Q1[q] : first_Q1[q + 1]]
        probability_CP = posterior_CP[first_Q1[q] : first_Q1[q + 1]]
        if len(candidate_C) == 0:
            continue
        _find_likeliest(probability_CP, best_G, likeliest_G)
        for g in range(n_gaps):
            pattern_G[g] = pattern_NG[candidate_C[likeliest_G[g]], begin + g]
        all_P[:] = 0
        left_G[:] = 0
        right_G[:] = 0
        rare = _add_candidates(
            candidate_C,
            probability_CP,
            pattern_NG,
            rare_N,
            sibling_N,
            begin,
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
                and not (rare >> np.uint16(begin + g)) & np.uint16(1)
                and copies_D[first_G[g] + pattern_G[g]] >= BELIEVED
            ):
                agreed_G[g] = pattern_G[g]


def agreed_patterns(
    posterior_CP: np.ndarray,
    haplotype_C: np.ndarray,
    first_Q1: np.ndarray,
    sibling_N: np.ndarray,
    patterns: GapPatterns,
    rarest: RarestAlleles,
    first_gap: int,
    n_gaps: int,
) -> np.ndarray:
    """What candidates agree on, where networks need not be asked.

    Parameters
    ----------
    posterior_CP, haplotype_C, first_Q1
        As of `posterior_alleles`.
    sibling_N : int64
        The sibling haplotype of each haplotype.
    patterns : GapPatterns
        Of the chunk.
    rarest : RarestAlleles
        Of the chunk.
    first_gap, n_gaps : int
        Gaps of one block, counted in the chunk.

    Returns
    -------
    int32 (Q, G)
        The pattern that a query's candidates have, but for DISSENT of the sum of their probabilities at
        either end of the gap, if it has no allele of fewer than BELIEVED copies, and neither they nor their
        siblings have one of fewer than RIGHTLY_PLACED; else NONE. NONE for queries without candidates.
    """
    agreed_QG = np.empty((len(first_Q1) - 1, n_gaps), np.int32)
    block, begin = divmod(first_gap, BLOCK_GAPS)
    _find_agreed(
        haplotype_C, posterior_CP, first_Q1, patterns.pattern_BNG[block], patterns.rare_BN[block], sibling_N,
        rarest.first_G[first_gap : first_gap + n_gaps], rarest.copies_D, begin, agreed_QG,
    )  # fmt: skip
    return agreed_QG


@kernel()
def _fill_carried(  # type: ignore[no-untyped-def]
    agreed_QG, first_word_G, minor_W, first_gap, gap_start_G1, flip_U, minor_P, out_UQ
):
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
                    out_UQ[u, q] = np.float32(1) - minor_P if flip_U[u] else minor_P


def fill_carried(
    agreed_QG: np.ndarray,
    patterns: GapPatterns,
    first_gap: int,
    gap_start_G1: np.ndarray,
    flip_U: np.ndarray,
    p: float,
    out_UQ: np.ndarray,
) -> None:
    """Write P(ALT) at the minor alleles of patterns that are agreed on; all else stays.

    Parameters
    ----------
    agreed_QG : int32
        See `agreed_patterns`.
    patterns : GapPatterns
        Of the chunk.
    first_gap : int
        The block's first gap in the chunk.
    gap_start_G1 : int64
        Sites of the block's gaps, counted from 0.
    flip_U : bool
        Whether ALT is the major allele.
    p : float
        P(minor allele).
    out_UQ : float32
        P(ALT), written to.
    """
    _fill_carried(
        agreed_QG, patterns.first_word_G, patterns.minor_W, first_gap, gap_start_G1, flip_U, np.float32(p),
        out_UQ,
    )  # fmt: skip
