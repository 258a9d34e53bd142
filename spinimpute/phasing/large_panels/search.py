"""The likeliest haplotypes of each sample in a large panel, window by window.

Chains go over the common sites alone, where they may copy all haplotypes, or of panels beyond MOST_SEARCHED
an even part of them. Those that they copy most are taken. Of such panels so are those with the longest
matches to the alleles that a sample's chains have there (by the positional BWT).

Axes: T common sites, X samples, H = HALF of them side by side, W windows, N haplotypes, M searched ones, Q
haplotypes of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from spinimpute.genotypes.bit_rows import order_packed
from spinimpute.hmm.parameters import MOST_SEARCHED
from spinimpute.hmm.pbwt import CandidateSettings, matches_on_left, matches_on_right, unite
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.phasing.all_haplotypes import ChainsOverAll, group_patterns, last_places
from spinimpute.phasing.chains import Evidence
from spinimpute.phasing.copied_panel import PanelPart
from spinimpute.phasing.copying_windows import CopyingWindows
from spinimpute.phasing.large_panels.haplotype_alleles import HaplotypeAlleles
from spinimpute.phasing.large_panels.states import spread
from spinimpute.sequencing.fragments import FragmentBases

COMMON = 0.005  # alleles from this frequency on
WINDOW_CM = 1.0
SURE = 0.9  # alleles of chains that are less probable match any
BLOCK = 8  # common sites for which matches are listed together
MATCHES = CandidateSettings(nearest=8, most=32, margin=0)


def common_sites(frequency_S: np.ndarray) -> np.ndarray:
    """Those that are searched, bool (S,): where no allele is common, the least rare ones."""
    minor_S = np.minimum(frequency_S, 1 - frequency_S)
    return minor_S >= min(COMMON, minor_S.max())


class Search:
    """What the search for all samples at some sites has in common.

    Parameters
    ----------
    panel : Panel
        Phased haplotypes.
    sites : slice
        Panel sites.

    Attributes
    ----------
    common_T : int64
        Common sites, counted from the first one.
    alleles : HaplotypeAlleles
        At all of the sites.
    bounds_W1 : list of int
        The first site of each window, and the end of the last.
    sees_all : bool
        Whether chains may copy all haplotypes.
    """

    def __init__(self, panel: Panel, sites: slice) -> None:
        self.common_T = np.flatnonzero(common_sites(panel.frequency[sites]))
        packed_TB = panel.packed_rows(sites.start + self.common_T)
        self.alleles = HaplotypeAlleles.of(panel, sites, self.common_T, packed_TB)
        n = panel.n_haplotypes
        self.sees_all = n <= MOST_SEARCHED
        self._searched_M = spread(min(n, MOST_SEARCHED), n)
        searched_TB = order_packed(packed_TB, self._searched_M)
        n_searched = len(self._searched_M)
        searched = PanelPart.of(panel, sites.start + self.common_T, searched_TB, n_searched)
        self._of_panel = searched.cM, searched.frequency, searched.trust
        n_common = len(self.common_T)
        self._patterns = group_patterns(searched, slice(0, n_common))
        self._windows = CopyingWindows(searched.cM, last_places(self._patterns, n_common), WINDOW_CM)
        low_W = [int(self.common_T[window.low]) for window in self._windows.windows[1:]]
        self.bounds_W1 = [0, *low_W, sites.stop - sites.start]
        self._panels = None
        if not self.sees_all:
            forwards = PanelAlleles(packed_TB, self.alleles.bits_NW)
            self._panels = forwards, forwards.backwards()

    def most_copied(
        self,
        phred_SH3: np.ndarray,
        haploid_H: np.ndarray,
        linked_H: Sequence[FragmentBases],
        share_H: np.ndarray,
        most: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those that the chains of HALF samples copy most.

        Parameters
        ----------
        phred_SH3 : uint8 (S, H, 3)
            Phred-scaled likelihoods at all sites.
        haploid_H : bool (H,)
            Samples with one copy.
        linked_H : sequence of FragmentBases
            As of `Evidence`, at the common sites.
        share_H : float (H,)
            As of `Evidence`.
        most : int
            How many are taken.

        Returns
        -------
        int64 (H, W, most)
            Haplotypes of the panel.
        float32 (T, 2, H)
            P(ALT) of the samples' haplotypes at the common sites.
        """
        phred_TH3 = np.ascontiguousarray(phred_SH3[self.common_T])
        evidence = Evidence(*self._of_panel, phred_TH3, haploid_H, linked_H, 0, share_H)
        chains = ChainsOverAll(self._patterns, evidence, self._windows, None)
        chains.run()
        order_WMH = np.argsort(-chains.usage_WNH, axis=1, kind="stable")[:, :most]
        return self._searched_M[order_WMH].transpose(2, 0, 1), chains.haplotype_probabilities()

    def longest_matches(self, p_T2X: np.ndarray, most: int, pool: Executor) -> list[list[np.ndarray]]:
        """Those that match longest what the samples' chains have.

        Parameters
        ----------
        p_T2X : float32 (T, 2, X)
            P(ALT) of the samples' haplotypes at the common sites.
        most : int
            How many are taken: those that are found in the largest number of blocks of a window.
        pool : Executor
            Threads.

        Returns
        -------
        list of list of int64 arrays
            Of each sample and window.
        """
        assert self._panels is not None, "chains see all haplotypes"
        forwards, backwards = self._panels
        n_common, _, n_samples = p_T2X.shape
        p_TQ = p_T2X.transpose(0, 2, 1).reshape(n_common, 2 * n_samples)
        sure_TQ = np.maximum(p_TQ, 1 - p_TQ) >= SURE
        queries = TypedAlleles.of(np.where(sure_TQ, p_TQ > 0.5, MISSING).astype(np.uint8))
        first_B = np.arange(1, max(n_common, 2), BLOCK)
        blocks = first_B, np.minimum(BLOCK, n_common + 1 - first_B), MATCHES
        left = pool.submit(matches_on_left, forwards, queries, *blocks)
        right = pool.submit(matches_on_right, backwards, queries, *blocks)
        found = unite(left.result(), right.result())
        windows = [
            slice(*np.searchsorted(first_B, [window.first, window.last]).tolist())
            for window in self._windows.windows
        ]

        def of_sample(x: int) -> list[np.ndarray]:
            return [_most_frequent(found.haplotype_C, found.first_BQ1[w], x, most) for w in windows]

        return list(pool.map(of_sample, range(n_samples)))


def _most_frequent(haplotype_C: np.ndarray, first_BQ1: np.ndarray, x: int, most: int) -> np.ndarray:
    """Of all blocks of a window and both haplotypes of a sample."""
    lists = [haplotype_C[first:last] for first, last in first_BQ1[:, [2 * x, 2 * x + 2]].tolist()]
    haplotype, count = np.unique(np.concatenate([np.empty(0, np.int32), *lists]), return_counts=True)
    return haplotype[np.argsort(-count, kind="stable")[:most]].astype(np.int64)
