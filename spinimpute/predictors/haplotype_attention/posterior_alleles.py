"""Two corrections of the network's predictions: a mixture with Li-Stephens, and odds of rare alleles.

The first correction predicts alleles without the network, as the average of the candidates' alleles, weighted
with their posterior probabilities in the model of Li and Stephens. This prediction is mixed with that of the
network. The mixture is more accurate than either prediction alone. In panels larger than those of training
(6,000 haplotypes), hundreds of haplotypes match a query equally well, and the model of Li and Stephens is
close to the truth. There it gets more weight. `benchmarks.imputation left-out` compares weights.

The second correction adapts the prior odds of rare alleles to the panel's site frequency spectrum. If c of n
panel haplotypes have an allele, a further haplotype has it with probability r c / n. The *return ratio* r is
(c + 1) S(c + 1) / (c S(c)), where S(c) is the number of sites whose minor allele has c carriers (Good 1953,
Biometrika 40:237). In 1000 Genomes panels r is about 0.5 for singletons, because most singletons of a growing
population are private to one family. r is larger if a file omits sites with a single carrier among panel and
targets, because each remaining singleton then has a carrier among the targets. The network was trained on
panels with the return ratios TRAINED_RATIOS. By Bayes' rule, the odds of each prediction are multiplied by
the panel's ratio divided by the trained ratio.

Axes: Q queries, G gaps of a block, C candidates or numbers of carriers, P both ends of the gaps, U sites of a
block, N panel haplotypes, X sites of the panel. Carriers are panel haplotypes with the minor allele.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, GapPatterns, GapSites
from spinimpute.predictors.haplotype_attention.ibs_classes import BlockCandidates
from spinimpute.runtime.kernels import kernel

# The weight of Li-Stephens predictions is SMALLEST_WEIGHT for panels of up to SMALL_PANEL haplotypes, the
# largest ones in training, and LARGEST_WEIGHT for panels of at least LARGE_PANEL haplotypes.
SMALL_PANEL, LARGE_PANEL = 6_000, 20_000
SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.2, 0.5
# Singletons are not mixed: only the network has learned that they may be on the wrong haplotype.
FEWEST_CARRIERS = 2
LABEL_WEIGHT = 0.35  # smallest weight for labels, such as HLA types, with any number of carriers
# Return ratios of alleles with 1, 2, ... carriers in panels like those of training (benchmarks/simulated).
# Alleles with more carriers are not corrected: there panels differ less than the error of the estimates.
TRAINED_RATIOS = (0.67, 0.84, 0.84, 0.86, 0.95)
# Variance of log(ratio / trained ratio) across panels. It determines how strongly a ratio that is estimated
# from few sites is shrunk towards the trained ratio.
RATIO_VARIANCE = 0.09


def large_panel_share(n_haplotypes: int) -> float:
    """Return 0 for panels of up to SMALL_PANEL haplotypes, 1 for at least LARGE_PANEL, and 0 to 1 between."""
    return min(max(math.log(n_haplotypes / SMALL_PANEL) / math.log(LARGE_PANEL / SMALL_PANEL), 0.0), 1.0)


def posterior_weight(n_haplotypes: int) -> float:
    """Return the weight of `posterior_alleles` in the mixture, SMALLEST_WEIGHT to LARGEST_WEIGHT."""
    return SMALLEST_WEIGHT + (LARGEST_WEIGHT - SMALLEST_WEIGHT) * large_panel_share(n_haplotypes)


@kernel(fast=True)
def _pool_alleles(candidates, patterns, sites, wanted_QG, out_UQ):  # type: ignore[no-untyped-def]
    """Fill out_UQ, see `posterior_alleles`."""
    haplotype_C, posterior_CP, first_Q1 = candidates
    first_gap, gap_start_G1, fraction_U, _ = sites
    pattern_NG = patterns.pattern_BNG[first_gap // BLOCK_GAPS]
    count_G, first_word_G, minor_W = patterns.count_G, patterns.first_word_G, patterns.minor_W
    out_UQ[:] = 0
    n_gaps = len(gap_start_G1) - 1
    max_patterns = 1
    for g in range(n_gaps):
        max_patterns = max(max_patterns, count_G[first_gap + g])
    slot_D = np.full(max_patterns, -1, np.int32)
    pattern_I, mass_IE = np.empty(max_patterns, np.int32), np.empty((max_patterns, 2), np.float32)
    for q in range(len(first_Q1) - 1):
        for g in range(n_gaps):
            first_site, n_sites = gap_start_G1[g], gap_start_G1[g + 1] - gap_start_G1[g]
            if n_sites == 0 or not wanted_QG[q, g]:
                continue
            gap, n_words = first_gap + g, (n_sites + 63) >> 6
            gap_in_block = gap % BLOCK_GAPS
            n_slots = 0
            left_sum = right_sum = np.float32(1e-12)
            for c in range(first_Q1[q], first_Q1[q + 1]):
                left, right = posterior_CP[c, g], posterior_CP[c, g + 1]
                left_sum += left
                right_sum += right
                pattern = pattern_NG[haplotype_C[c], gap_in_block]
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
                pattern_word = first_word_G[gap] + n_words * pattern_I[slot]
                for word in range(n_words):
                    minor = minor_W[pattern_word + word]
                    while minor:
                        u = first_site + (word << 6) + trailing_zeros(minor)
                        minor &= minor - np.uint64(1)
                        out_UQ[u, q] += (np.float32(1) - fraction_U[u]) * left + fraction_U[u] * right


def posterior_alleles(
    candidates: BlockCandidates, patterns: GapPatterns, sites: GapSites, wanted_QG: np.ndarray | None = None
) -> np.ndarray:
    """Return the Li-Stephens prediction of P(minor allele) at a block's sites, float32 (U, Q).

    P is the sum of the posteriors of carriers divided by the sum for all candidates, interpolated linearly
    between the ends of a gap. P is 0 for queries without candidates, and in gaps where wanted_QG is False.
    """
    n_queries, n_gaps = len(candidates.first_Q1) - 1, len(sites.start_G1) - 1
    out_UQ = np.empty((len(sites.fraction_U), n_queries), np.float32)
    if wanted_QG is None:
        wanted_QG = np.ones((n_queries, n_gaps), bool)
    _pool_alleles(candidates, patterns, sites, wanted_QG, out_UQ)
    return np.minimum(out_UQ, 1, out=out_UQ)  # rounding can make sums exceed 1


def mixing_weights(n_haplotypes: int, carriers_U: np.ndarray, label_U: np.ndarray) -> np.ndarray:
    """Return the weight of `posterior_alleles` at each site, float32 (U,).

    carriers_U is the number of carriers of each site. label_U, bool, marks the sites whose ALT is a label.
    """
    weight = posterior_weight(n_haplotypes)
    weight_U = np.where(carriers_U < FEWEST_CARRIERS, 0, weight)
    return np.where(label_U, max(weight, LABEL_WEIGHT), weight_U).astype(np.float32)


def mix(
    p_UQ: np.ndarray,
    minor_UQ: np.ndarray,
    flip_U: np.ndarray,
    weight_U: np.ndarray,
    has_candidates_Q: np.ndarray,
) -> None:
    """Mix the network's P(ALT), in place, with `posterior_alleles`, see `mixing_weights`.

    minor_UQ is the result of `posterior_alleles` and is overwritten. Queries without candidates keep their
    P(ALT).
    """
    minor_UQ[flip_U] = 1 - minor_UQ[flip_U]
    minor_UQ -= p_UQ
    minor_UQ *= weight_U[:, None]
    minor_UQ[:, ~has_candidates_Q] = 0
    p_UQ += minor_UQ


def rare_allele_odds(carriers_X: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Return the factors for the odds of alleles with 0, 1, 2, ... carriers, float32 (C,).

    carriers_X is the number of carriers at each site of the panel. The last factor is 1 and applies to all
    larger numbers of carriers. The factor for c carriers is 1 in panels of at most 2 (c + 1) haplotypes,
    because an allele with c + 1 carriers would not be the minor allele.
    """
    n_trained = len(TRAINED_RATIOS)
    sites_C = np.bincount(np.minimum(carriers_X, n_trained + 2), minlength=n_trained + 3)
    odds_C = np.ones(n_trained + 2, np.float32)
    for c, trained in enumerate(TRAINED_RATIOS, start=1):
        n_sites, n_next_sites = int(sites_C[c]), int(sites_C[c + 1])
        if n_sites and n_next_sites and 2 * (c + 1) < n_haplotypes:
            log_quotient = np.log((c + 1) * n_next_sites / (c * n_sites) / trained)
            odds_C[c] = np.exp(
                log_quotient * RATIO_VARIANCE / (RATIO_VARIANCE + 1 / n_sites + 1 / n_next_sites)
            )
    return odds_C


@kernel()
def multiply_odds(odds_U, flip_U, p_UQ):  # type: ignore[no-untyped-def]
    """Multiply the odds of each site's minor allele by odds_U. p_UQ is P(ALT), changed in place."""
    one = np.float32(1)
    for u in range(len(odds_U)):
        if odds_U[u] != one:
            odds = one / odds_U[u] if flip_U[u] else odds_U[u]
            for q in range(p_UQ.shape[1]):
                carried = odds * p_UQ[u, q]
                p_UQ[u, q] = carried / (one - p_UQ[u, q] + carried)
