"""Corrections of the network's predictions: posteriors of Li and Stephens, and odds of rare alleles.

Alleles pooled by the posteriors of the model of Li and Stephens alone are mixed with the network's
predictions: a mixture is more accurate than either. The shipped network was trained with panels of up to
6,000 haplotypes. In larger panels hundreds of haplotypes match a query alike, the model of Li and Stephens is
close to the truth, and both get the same weight. `benchmarks.imputation left-out` compares weights.

The prior odds of rare alleles follow the panel's own site frequency spectrum. How many further haplotypes
carry an allele that c of n panel haplotypes carry? Not c / n of them: in a growing population most singletons
are private to one family, and a file without the sites that have a single carrier among panel and targets has
singletons that the targets are sure to carry. The spectrum gives the answer: alleles seen c times are seen
again at a rate of (c + 1) S(c + 1) / (c S(c)) times c / n, where S(c) is the number of sites with c carriers
(Good 1953, Biometrika 40:237). This *return ratio* is about 0.5 for singletons of 1000 Genomes panels. The
network learned from panels with return ratios of their own. Where the ratio of a panel differs, Bayes' rule
multiplies the odds of each prediction by the quotient of the two ratios.

Axes: Q queries, G gaps of a block, C candidates or numbers of carriers, P places, U sites of a block,
N panel haplotypes.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, GapPatterns, GapSites
from spinimpute.predictors.haplotype_attention.ibs_classes import BlockCandidates
from spinimpute.runtime.kernels import kernel

SMALL, LARGE = 6_000, 20_000  # haplotypes: panels like those of training, and large panels
SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.2, 0.5
FEWEST_CARRIERS = 2  # it is uncertain which haplotype of its carrier has a singleton, as the network knows
# Return ratios of alleles with 1, 2, ... carriers in panels like those of training (benchmarks/simulated).
# Alleles with more carriers return at rates that differ less between panels than they can be estimated.
TRAINED_RATIOS = (0.67, 0.84, 0.84, 0.86, 0.95)
# Variance of the log of a quotient between panels: a ratio of few sites is drawn towards that of training.
RATIO_VARIANCE = 0.09


def large_panel_share(n_haplotypes: int) -> float:
    """How large a panel is, from 0 (up to SMALL haplotypes) to 1 (LARGE and more)."""
    return min(max(math.log(n_haplotypes / SMALL) / math.log(LARGE / SMALL), 0.0), 1.0)


def posterior_weight(n_haplotypes: int) -> float:
    """Weight of posteriors beside the network, from SMALLEST_WEIGHT to LARGEST_WEIGHT."""
    return SMALLEST_WEIGHT + (LARGEST_WEIGHT - SMALLEST_WEIGHT) * large_panel_share(n_haplotypes)


@kernel(fast=True)
def _pool(candidates, patterns, sites, wanted_QG, out_UQ):  # type: ignore[no-untyped-def]
    haplotype_C, posterior_CP, first_Q1 = candidates
    first_gap, gap_start_G1, fraction_U, _ = sites
    pattern_NG = patterns.pattern_BNG[first_gap // BLOCK_GAPS]
    count_G, first_word_G, minor_W = patterns.count_G, patterns.first_word_G, patterns.minor_W
    out_UQ[:] = 0
    n_gaps = len(gap_start_G1) - 1
    most_patterns = 1
    for g in range(n_gaps):
        most_patterns = max(most_patterns, count_G[first_gap + g])
    slot_D = np.full(most_patterns, -1, np.int32)
    pattern_I, mass_IE = np.empty(most_patterns, np.int32), np.empty((most_patterns, 2), np.float32)
    for q in range(len(first_Q1) - 1):
        for g in range(n_gaps):
            first_site, n_sites = gap_start_G1[g], gap_start_G1[g + 1] - gap_start_G1[g]
            if n_sites == 0 or not wanted_QG[q, g]:
                continue
            gap, n_words = first_gap + g, (n_sites + 63) >> 6
            place = gap % BLOCK_GAPS
            n_slots = 0
            left_sum = right_sum = np.float32(1e-12)
            for c in range(first_Q1[q], first_Q1[q + 1]):
                left, right = posterior_CP[c, g], posterior_CP[c, g + 1]
                left_sum += left
                right_sum += right
                pattern = pattern_NG[haplotype_C[c], place]
                slot = slot_D[pattern]
                if slot < 0:
                    slot = n_slots
                    n_slots += 1
                    slot_D[pattern] = slot
                    pattern_I[slot] = pattern
                    mass_IE[slot] = 0
                mass_IE[slot, 0] += left
                mass_IE[slot, 1] += right
            left_scale, right_scale = np.float32(1) / left_sum, np.float32(1) / right_sum
            for slot in range(n_slots):
                slot_D[pattern_I[slot]] = -1
                left, right = mass_IE[slot, 0] * left_scale, mass_IE[slot, 1] * right_scale
                at = first_word_G[gap] + n_words * pattern_I[slot]
                for word in range(n_words):
                    minor = minor_W[at + word]
                    while minor:
                        u = first_site + (word << 6) + trailing_zeros(minor)
                        minor &= minor - np.uint64(1)
                        out_UQ[u, q] += (np.float32(1) - fraction_U[u]) * left + fraction_U[u] * right


def posterior_alleles(
    candidates: BlockCandidates, patterns: GapPatterns, sites: GapSites, wanted_QG: np.ndarray | None = None
) -> np.ndarray:
    """P(minor allele) at a block's sites by copying alone, float32 (U, Q).

    The posteriors of the carriers are divided by the sum over all candidates, and interpolated linearly
    between the ends of a gap. 0 for queries without candidates, and in gaps that are not wanted.
    """
    n_queries, n_gaps = len(candidates.first_Q1) - 1, len(sites.start_G1) - 1
    out_UQ = np.empty((len(sites.fraction_U), n_queries), np.float32)
    if wanted_QG is None:
        wanted_QG = np.ones((n_queries, n_gaps), bool)
    _pool(candidates, patterns, sites, wanted_QG, out_UQ)
    return np.minimum(out_UQ, 1, out=out_UQ)  # sums are rounded


def mix(
    p_UQ: np.ndarray, minor_UQ: np.ndarray, flip_U: np.ndarray, carriers_U: np.ndarray, weight_Q: np.ndarray
) -> None:
    """Mix the network's P(ALT) with `posterior_alleles`, in place, where several haplotypes carry the allele.

    minor_UQ is overwritten. carriers_U: panel haplotypes with the minor allele. weight_Q: `posterior_weight`,
    0 for queries without candidates.
    """
    minor_UQ[flip_U] = 1 - minor_UQ[flip_U]
    minor_UQ -= p_UQ
    minor_UQ *= weight_Q
    minor_UQ[carriers_U < FEWEST_CARRIERS] = 0
    p_UQ += minor_UQ


def rare_allele_odds(carriers_X: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Factors for the odds of alleles with 0, 1, 2, ... carriers, float32 (C,).

    carriers_X: carriers of the minor allele at all sites of the panel. The last factor is 1 and holds for all
    alleles with more carriers. In a very small panel all factors are 1: minor alleles hardly have more
    carriers there.
    """
    most = len(TRAINED_RATIOS)
    sites_C = np.bincount(np.minimum(carriers_X, most + 2), minlength=most + 3)
    odds_C = np.ones(most + 2, np.float32)
    for c, trained in enumerate(TRAINED_RATIOS, start=1):
        here, beyond = int(sites_C[c]), int(sites_C[c + 1])
        if here and beyond and 2 * (c + 1) < n_haplotypes:
            log_quotient = np.log((c + 1) * beyond / (c * here) / trained)
            odds_C[c] = np.exp(log_quotient * RATIO_VARIANCE / (RATIO_VARIANCE + 1 / here + 1 / beyond))
    return odds_C


@kernel()
def multiply_odds(odds_U, flip_U, p_UQ):  # type: ignore[no-untyped-def]
    """Multiply the odds of minor alleles, in place."""
    one = np.float32(1)
    for u in range(len(odds_U)):
        if odds_U[u] != one:
            odds = one / odds_U[u] if flip_U[u] else odds_U[u]
            for q in range(p_UQ.shape[1]):
                carried = odds * p_UQ[u, q]
                p_UQ[u, q] = carried / (one - p_UQ[u, q] + carried)
