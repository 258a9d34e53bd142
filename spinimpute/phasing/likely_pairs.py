"""Genotypes of samples with few reads: partly by two chains, partly by all pairs of likely haplotypes.

In each window a sample's haplotypes are those that its chains copy most, over all sweeps. `pair_posteriors`
sums over their pairs. The chains know more haplotypes, and rare alleles. The fewer reads there are, the
more pairs of haplotypes can explain them, and the more the sum over pairs gains.

Axes: S sites, R of them whose alleles are not the rarest, B bytes, W windows, N panel haplotypes, K that
may be copied; 3: copies of ALT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.steps import jump_probabilities
from spinimpute.phasing.copied_panel import CopiedPanel, CopyingWindows
from spinimpute.phasing.likelihood_passes import MUTATION
from spinimpute.phasing.pair_posteriors import observed_given_copied, pair_posteriors
from spinimpute.sequencing.fragments import FragmentBases

# Chosen on samples left out of the real panels, see benchmarks/tried.md.
# Number of haplotypes and weight of the pairs, for samples observed at up to this share of the sites: those
# with 0.29 and 2.3 reads per site. Pairs gain nothing for better covered samples.
PAIRS = ((0.25, 192, 0.5), (0.9, 128, 0.3))
# Pairs ignore which bases lie on one fragment: they gain less with fragments, and nothing with long reads.
WEIGHT_WITH_FRAGMENTS = 0.3
MAX_SITES_PER_FRAGMENT = (
    4.0  # mean number of common sites of a fragment; pairs of reads of 150 bases have two
)
SCALE = 0.75  # jumps per cM of a haplotype
WINDOW_CM = 1.5
MAX_RARE_FREQUENCY = 0.0005  # alleles up to this frequency tell more about errors than about haplotypes
MIN_FREQUENCY = 0.005  # rarer alleles are left to the chains


class LikelyPairs:
    """The data that the pairs of all samples at some panel sites share.

    count_places: places at which copying is counted, see `CopyingWindows`.
    """

    def __init__(self, panel: CopiedPanel, sites: Interval, count_places: Sequence[int]) -> None:
        self.cM_S, self.trust_S = panel.cM[sites.slice], panel.trust[sites.slice]
        self.frequency_S = panel.frequency[sites.slice].astype(np.float32)
        minor_S = np.minimum(self.frequency_S, 1 - self.frequency_S)
        self.common_S = minor_S >= MIN_FREQUENCY
        self.rows_R = np.flatnonzero(minor_S > MAX_RARE_FREQUENCY)
        self.packed_RB = panel.packed_rows(sites.start + self.rows_R)
        self.windows = CopyingWindows(self.cM_S, count_places, WINDOW_CM)

    def plan(self, share: float, linked: FragmentBases | None, first: int) -> tuple[int, float]:
        """Return the number of haplotypes in pairs and the weight of pairs; zeros where they gain nothing.

        share: of the sites at which the sample is observed. linked: bases of fragments with several sites.
        first: number of the first site in linked.
        """
        most, weight = next(((most, weight) for below, most, weight in PAIRS if share < below), (0, 0.0))
        if linked is not None and len(linked.fragment):
            n_fragments = len(np.unique(linked.fragment))
            if self.common_S[linked.panel_index - first].sum() > MAX_SITES_PER_FRAGMENT * n_fragments:
                return 0, 0.0
            weight = min(weight, WEIGHT_WITH_FRAGMENTS)
        return most, weight

    def genotypes(
        self, usage_WN: np.ndarray, likelihood_S3: np.ndarray, most: int, mismatch: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sites, int64 (R,), and a diploid sample's P(0, 1 and 2 copies) there, float32 (R, 3).

        The probabilities depend on all other places; no genotype is impossible. usage_WN: how much the
        chains copy each haplotype. likelihood_S3: likelihoods, reduced by the trust in a site. most: number
        of haplotypes in a window. mismatch: probability that an allele differs from the copied one.
        """
        known_S = (likelihood_S3 != likelihood_S3[:, :1]).any(axis=1)
        used_R = self.common_S[self.rows_R] | known_S[self.rows_R]
        rows_R = self.rows_R[used_R]
        place_R = np.flatnonzero(used_R)
        genotypes_of_windows = [np.empty((0, 3), np.float32)]
        for window, usage_N in zip(self.windows.windows, usage_WN, strict=True):
            (low, high), (first, last) = np.searchsorted(rows_R, np.array(window)).tolist()
            if low == high:
                continue
            chosen_K = np.sort(np.argsort(-usage_N, kind="stable")[:most])
            seen_R = rows_R[first:last]
            jump_R = jump_probabilities(self.cM_S[seen_R], len(chosen_K), SCALE * len(chosen_K))
            allele_RK = self._alleles(place_R[first:last], chosen_K)
            copied_R3 = pair_posteriors(allele_RK, likelihood_S3[seen_R], jump_R, mismatch)
            genotype_R3 = copied_R3 @ observed_given_copied(float(MUTATION))
            genotypes_of_windows.append(
                self._mix_with_frequencies(genotype_R3, seen_R)[low - first : high - first]
            )
        kept_R = self.common_S[rows_R]
        return rows_R[kept_R], np.concatenate(genotypes_of_windows)[kept_R]

    def _alleles(self, place_R: np.ndarray, chosen_K: np.ndarray) -> np.ndarray:
        """Return the alleles of some haplotypes, uint8 (R, K)."""
        byte_RK = self.packed_RB[place_R][:, chosen_K >> 3]
        allele_RK = (byte_RK >> (7 - (chosen_K & 7)).astype(np.uint8)) & np.uint8(1)
        return np.ascontiguousarray(allele_RK)

    def _mix_with_frequencies(self, genotype_R3: np.ndarray, row_R: np.ndarray) -> np.ndarray:
        """Draw genotypes towards frequencies where alleles contradict the haplotypes around them."""
        f_R, trust_R1 = self.frequency_S[row_R], self.trust_S[row_R][:, None]
        by_frequency_R3 = np.stack([(1 - f_R) ** 2, 2 * f_R * (1 - f_R), f_R**2], axis=1)
        return trust_R1 * genotype_R3 + (1 - trust_R1) * by_frequency_R3
