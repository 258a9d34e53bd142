"""Genotypes of samples with few reads: in part by two chains, in part by all pairs of likely haplotypes.

In windows a sample's haplotypes are those that its chains copy most, over all sweeps. `pair_posteriors` sums
over their pairs; the chains know more haplotypes, and rare alleles. The fewer reads there are, the more ways
there are to explain them, and the more pairs bring.

Axes: S sites, R of them whose alleles are not the rarest, B bytes, W windows, G places at which it is known
what chains copy, N panel haplotypes, K that may be copied; 3: copies of ALT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.phasing.copied_panel import CopiedPanel
from spinimpute.phasing.copying_windows import CopyingWindows
from spinimpute.phasing.likelihood_passes import MUTATION
from spinimpute.phasing.pair_posteriors import pair_posteriors, written_given_copied
from spinimpute.sequencing.fragments import FragmentBases

# Chosen on people taken out of the real panels, see benchmarks/tried.md.
# Haplotypes and the weight of pairs, for samples of whom something is known at up to this share of the sites:
# with 0.29 and 2.3 reads a site. Beyond, pairs bring nothing.
PAIRS = ((0.25, 192, 0.5), (0.9, 128, 0.3))
# Pairs do not know which bases are of one fragment: less with fragments, nothing with those of long reads.
WEIGHT_WITH_FRAGMENTS = 0.3
MOST_OF_FRAGMENT = 4.0  # common sites, on average; pairs of reads of 150 bases have two
SCALE = 0.75  # jumps per cM of a haplotype
WINDOW_CM = 1.5
RAREST = 0.0005  # alleles up to this frequency say more of errors than of haplotypes
LEAST_FREQUENCY = 0.005  # rarer alleles are left to the chains


class LikelyPairs:
    """What the pairs of all samples of a stretch of sites have in common.

    Parameters
    ----------
    panel : CopiedPanel
        Phased haplotypes.
    sites : slice
        The stretch.
    known_G : list of int
        Places in it at which it will be known what chains copy; there are no more windows than these.
    """

    def __init__(self, panel: CopiedPanel, sites: slice, known_G: Sequence[int]) -> None:
        self.cM_S, self.trust_S = panel.cM[sites], panel.trust[sites]
        self.frequency_S = panel.frequency[sites].astype(np.float32)
        minor_S = np.minimum(self.frequency_S, 1 - self.frequency_S)
        self.common_S = minor_S >= LEAST_FREQUENCY
        self.rows_R = np.flatnonzero(minor_S > RAREST)
        self.packed_RB = panel.packed_rows(sites.start + self.rows_R)
        self.windows = CopyingWindows(self.cM_S, known_G, WINDOW_CM)

    def plan(self, share: float, linked: FragmentBases | None, first: int) -> tuple[int, float]:
        """How many haplotypes pairs are of, and the weight that they have; zeros where they bring nothing.

        Parameters
        ----------
        share : float
            Of the sites, those at which something is known of the sample.
        linked : FragmentBases or None
            Bases of fragments with several of the sites.
        first : int
            The panel site of the stretch's first one.
        """
        most, weight = next(((most, weight) for below, most, weight in PAIRS if share < below), (0, 0.0))
        if linked is not None and len(linked.fragment):
            n_fragments = len(np.unique(linked.fragment))
            if self.common_S[linked.panel_index - first].sum() > MOST_OF_FRAGMENT * n_fragments:
                return 0, 0.0
            weight = min(weight, WEIGHT_WITH_FRAGMENTS)
        return most, weight

    def genotypes(
        self, usage_WN: np.ndarray, likelihood_S3: np.ndarray, most: int, mismatch: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Genotype probabilities of a diploid sample by what is around each place.

        Parameters
        ----------
        usage_WN : float32 (W, N)
            How much either chain copies each haplotype.
        likelihood_S3 : float32 (S, 3)
            Of 0, 1 and 2 copies of ALT, as far as a site can be trusted; equal ones where nothing is known.
        most : int
            Haplotypes that may be copied in a window.
        mismatch : float
            The probability that an allele is not the one that is copied.

        Returns
        -------
        int64 (R,), float32 (R, 3)
            Sites, and P(0, 1 and 2 copies) at them; no genotype is impossible.
        """
        known_S = (likelihood_S3 != likelihood_S3[:, :1]).any(axis=1)
        taken_R = self.common_S[self.rows_R] | known_S[self.rows_R]
        rows_R = self.rows_R[taken_R]
        place_R = np.flatnonzero(taken_R)
        parts = [np.empty((0, 3), np.float32)]
        for window, usage_N in zip(self.windows.windows, usage_WN, strict=True):
            first, last, low, high = np.searchsorted(
                rows_R, [window.first, window.last, window.low, window.high]
            ).tolist()
            if low == high:
                continue
            chosen_K = np.sort(np.argsort(-usage_N, kind="stable")[:most])
            seen_R = rows_R[first:last]
            jump_R = jump_probabilities(self.cM_S[seen_R], len(chosen_K), SCALE * len(chosen_K))
            genotype_R3 = pair_posteriors(
                self._alleles(place_R[first:last], chosen_K), likelihood_S3[seen_R], jump_R, mismatch
            )
            written_R3 = genotype_R3 @ written_given_copied(float(MUTATION))
            parts.append(self._trusted(written_R3, seen_R)[low - first : high - first])
        kept_R = self.common_S[rows_R]
        return rows_R[kept_R], np.concatenate(parts)[kept_R]

    def _alleles(self, place_R: np.ndarray, chosen_K: np.ndarray) -> np.ndarray:
        """Alleles of some haplotypes, uint8 (R, K)."""
        byte_RK = self.packed_RB[place_R][:, chosen_K >> 3]
        allele_RK = (byte_RK >> (7 - (chosen_K & 7)).astype(np.uint8)) & np.uint8(1)
        return np.ascontiguousarray(allele_RK)

    def _trusted(self, genotype_R3: np.ndarray, row_R: np.ndarray) -> np.ndarray:
        """Drawn to what frequencies say where alleles contradict the haplotypes around them."""
        f_R, trust_R1 = self.frequency_S[row_R], self.trust_S[row_R][:, None]
        by_frequency_R3 = np.stack([(1 - f_R) ** 2, 2 * f_R * (1 - f_R), f_R**2], axis=1)
        return trust_R1 * genotype_R3 + (1 - trust_R1) * by_frequency_R3
