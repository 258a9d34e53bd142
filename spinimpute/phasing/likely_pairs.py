"""Genotype probabilities of samples with few reads, from all pairs of likely haplotypes.

With few reads, many pairs of panel haplotypes can explain a sample. Its two chains (`chains`) settle on one
explanation. This model instead sums over all pairs (`pair_posteriors`) of the haplotypes that the chains copy
most in a window. `chains` averages the genotype probabilities of both models, because the chains know more
haplotypes and the rare alleles. The fewer reads there are, the more the sum over pairs gains.

Axes: S sites, R sites whose minor allele frequency is above MAX_RARE_FREQUENCY, B bytes, W windows, N panel
haplotypes, K haplotypes whose pairs are summed; 3: genotype, as copies of ALT.
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

# These values were chosen on samples held out of the real panels, see benchmarks/tried.md.
# Rows: upper limit of the share of observed sites (0.29 and 2.3 reads per site), number of
# haplotypes, and weight of the pairs in the average. Better covered samples gain nothing from pairs.
PAIRS = ((0.25, 192, 0.5), (0.9, 128, 0.3))
# Pairs ignore which bases lie on the same fragment, so their weight is at most this if fragments are known.
WEIGHT_WITH_FRAGMENTS = 0.3
# Mean number of common sites per fragment above which pairs are not used. Two reads of 150 bases cover 2.
MAX_SITES_PER_FRAGMENT = 4.0
SCALE = 0.75  # switches per cM, whatever the number of haplotypes
WINDOW_CM = 1.5
MAX_RARE_FREQUENCY = 0.0005  # sites up to this minor allele frequency are ignored: many rare calls are errors
MIN_FREQUENCY = 0.005  # the genotypes of rarer alleles are left to the chains


class LikelyPairs:
    """The model of pairs at consecutive panel sites, for any number of samples.

    count_places: see `CopyingWindows`.
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
        """Return the number of haplotypes and the weight of pairs for a sample; zeros if pairs gain nothing.

        share: share of the sites at which the sample is observed. linked: bases of fragments that cover
        several sites. first: `FragmentBases.panel_index` of the first site of the model.
        """
        n_chosen, weight = next(
            ((n_chosen, weight) for below, n_chosen, weight in PAIRS if share < below), (0, 0.0)
        )
        if linked is not None and len(linked.fragment):
            n_fragments = len(np.unique(linked.fragment))
            if self.common_S[linked.panel_index - first].sum() > MAX_SITES_PER_FRAGMENT * n_fragments:
                return 0, 0.0
            weight = min(weight, WEIGHT_WITH_FRAGMENTS)
        return n_chosen, weight

    def genotypes(
        self, usage_WN: np.ndarray, likelihood_S3: np.ndarray, n_chosen: int, mismatch: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return common sites, int64 (R,), and a diploid sample's P(0, 1 and 2 copies) there, float32 (R, 3).

        The probabilities of a site do not use its own likelihoods. None of them is 0. usage_WN: how much the
        chains copy each haplotype, see `Chains`. likelihood_S3: likelihoods, flattened at sites of low trust.
        n_chosen: haplotypes in a window. mismatch: probability that an allele is not the copied one.
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
            chosen_K = np.sort(np.argsort(-usage_N, kind="stable")[:n_chosen])
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
        """Return the alleles of the chosen haplotypes, uint8 (R, K)."""
        byte_RK = self.packed_RB[place_R][:, chosen_K >> 3]
        allele_RK = (byte_RK >> (7 - (chosen_K & 7)).astype(np.uint8)) & np.uint8(1)
        return np.ascontiguousarray(allele_RK)

    def _mix_with_frequencies(self, genotype_R3: np.ndarray, row_R: np.ndarray) -> np.ndarray:
        """Mix genotype probabilities with those expected from the frequency, by the trust in the site."""
        f_R, trust_R1 = self.frequency_S[row_R], self.trust_S[row_R][:, None]
        by_frequency_R3 = np.stack([(1 - f_R) ** 2, 2 * f_R * (1 - f_R), f_R**2], axis=1)
        return trust_R1 * genotype_R3 + (1 - trust_R1) * by_frequency_R3
