"""Alleles pooled by the posteriors of the model of Li and Stephens alone, and mixed with the network's.

A mixture is better than either. The shipped network was trained with panels of up to 6,000 haplotypes. In
larger ones hundreds of haplotypes match a query alike, the model of Li and Stephens is close to the truth,
and both count alike. `benchmarks.imputation left-out` compares weights.

Axes: Q queries, G gaps of a block, C candidates, P places, U sites of a block, N panel haplotypes.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, GapPatterns
from spinimpute.runtime.kernels import kernel

SMALL, LARGE = 6_000, 20_000  # haplotypes: panels like those of training, and large panels
SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.2, 0.5
FEWEST_CARRIERS = 2  # which haplotype of its carrier has a singleton is uncertain, as the network knows


def large_panel_share(n_haplotypes: int) -> float:
    """How large a panel is.

    Parameters
    ----------
    n_haplotypes : int
        Haplotypes of the panel.

    Returns
    -------
    float
        From 0 (up to SMALL haplotypes) to 1 (LARGE and more).
    """
    return min(max(math.log(n_haplotypes / SMALL) / math.log(LARGE / SMALL), 0.0), 1.0)


def posterior_weight(n_haplotypes: int) -> float:
    """The weight of posteriors beside the network.

    Parameters
    ----------
    n_haplotypes : int
        Haplotypes of the panel.

    Returns
    -------
    float
        From SMALLEST_WEIGHT to LARGEST_WEIGHT.
    """
    return SMALLEST_WEIGHT + (LARGEST_WEIGHT - SMALLEST_WEIGHT) * large_panel_share(n_haplotypes)


@kernel(fast=True)
def _pool(  # type: ignore[no-untyped-def]
    posterior_CP, haplotype_C, first_Q1, pattern_NG, count_G, first_word_G, minor_W, first_gap, gap_start_G1,
    fraction_U, wanted_QG, out_UQ,
):  # fmt: skip
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
    posterior_CP: np.ndarray,
    haplotype_C: np.ndarray,
    first_Q1: np.ndarray,
    patterns: GapPatterns,
    first_gap: int,
    gap_start_G1: np.ndarray,
    fraction_U: np.ndarray,
    wanted_QG: np.ndarray | None = None,
) -> np.ndarray:
    """P(minor allele) at a block's sites, by copying alone.

    Parameters
    ----------
    posterior_CP : float32 (C, P)
        Of candidates at the places around the block's gaps, as `copying_posteriors` gives them.
    haplotype_C : int32
        The candidates, numbered as in `patterns`.
    first_Q1 : int64 (Q + 1,)
        Where those of each query begin.
    patterns : GapPatterns
        Of the chunk.
    first_gap : int
        The first gap in the chunk; all are of one block.
    gap_start_G1 : int64
        Sites of the block's gaps, counted from 0.
    fraction_U : float32
        Position in the gap: 0 at the left typed site, 1 at the right one.
    wanted_QG : bool, optional
        Other gaps of a query are left out.

    Returns
    -------
    float32 (U, Q)
        Posteriors of the carriers, of all candidates' sum, linear between the ends of a gap; 0 for a query
        without candidates, and in gaps that are left out.
    """
    n_queries, n_gaps = len(first_Q1) - 1, len(gap_start_G1) - 1
    out_UQ = np.empty((len(fraction_U), n_queries), np.float32)
    if wanted_QG is None:
        wanted_QG = np.ones((n_queries, n_gaps), bool)
    _pool(
        posterior_CP,
        haplotype_C,
        first_Q1,
        *patterns.around(first_gap),
        first_gap,
        gap_start_G1,
        fraction_U,
        wanted_QG,
        out_UQ,
    )
    return np.minimum(out_UQ, 1, out=out_UQ)  # sums are rounded


def mix(
    p_UQ: np.ndarray, minor_UQ: np.ndarray, flip_U: np.ndarray, carriers_U: np.ndarray, weight_Q: np.ndarray
) -> None:
    """Mix the network's P(ALT) with what copying alone says, in place, where several carry an allele.

    Parameters
    ----------
    p_UQ : float32
        P(ALT) by the network.
    minor_UQ : float32
        P(minor allele), see `posterior_alleles`; its room is used.
    flip_U : bool
        Whether ALT is the major allele.
    carriers_U : integers
        Panel haplotypes with the minor allele.
    weight_Q : float32
        See `posterior_weight`; 0 for queries without candidates, of whom posteriors say nothing.
    """
    minor_UQ[flip_U] = 1 - minor_UQ[flip_U]
    minor_UQ -= p_UQ
    minor_UQ *= weight_Q
    minor_UQ[carriers_U < FEWEST_CARRIERS] = 0
    p_UQ += minor_UQ
