"""Search of a large panel for the most likely haplotypes of each sample in each window.

Two methods are combined:

1. Chains run over the common sites only. Their states are all panel haplotypes, or an evenly spaced subset of
   MAX_SEARCHED haplotypes. The haplotypes that they copy most in a window are chosen.
2. If chains saw only a subset, the haplotypes of the whole panel with the longest matches to the alleles of a
   sample's chains are added. The positional Burrows-Wheeler transform finds them (`hmm.pbwt`).

Axes: T common sites, X samples, H = HALF = LANES / 2 samples that are computed together, W windows, N
haplotypes, M searched haplotypes, Q haplotypes of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import pairwise

import numpy as np

from spinimpute.genotypes.bit_rows import order_packed
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import MAX_SEARCHED
from spinimpute.hmm.pbwt import CandidateSettings, longest_matches, unite
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.phasing.all_haplotypes import ChainsOverAll, group_patterns, last_places
from spinimpute.phasing.chains import Evidence
from spinimpute.phasing.copied_panel import CopyingWindows, PanelSubset
from spinimpute.phasing.large_panels.haplotype_alleles import HaplotypeAlleles
from spinimpute.phasing.large_panels.states import spread
from spinimpute.sequencing.fragments import FragmentBases

MIN_COMMON_FREQUENCY = 0.005  # minimum minor allele frequency of common sites
WINDOW_CM = 1.0
MIN_PROBABILITY = 0.9  # less probable alleles of chains count as missing when matches are searched
BLOCK = 8  # common sites per list of matches
MATCH_SETTINGS = CandidateSettings(nearest=8, most=32, margin=0)


def common_sites(frequency_S: np.ndarray) -> np.ndarray:
    """Return the sites to search, bool (S,): the common sites, or if there are none, the least rare sites."""
    minor_S = np.minimum(frequency_S, 1 - frequency_S)
    return minor_S >= min(MIN_COMMON_FREQUENCY, minor_S.max())


class Search:
    """Search of a panel at consecutive sites, for any number of samples.

    Sites are counted from the first of these sites. common_T: the searched sites. windows: windows of sites,
    for which haplotypes are chosen. searches_all: the states are all haplotypes.
    """

    def __init__(self, panel: Panel, sites: Interval) -> None:
        self.common_T = np.flatnonzero(common_sites(panel.frequency[sites.slice]))
        packed_TB = panel.packed_rows(sites.start + self.common_T)
        self.alleles = HaplotypeAlleles.read(panel, sites, self.common_T, packed_TB)
        n = panel.n_haplotypes
        self.searches_all = n <= MAX_SEARCHED
        self._searched_M = spread(min(n, MAX_SEARCHED), n)
        searched_TB = order_packed(packed_TB, self._searched_M)
        n_searched = len(self._searched_M)
        searched = PanelSubset.select(panel, sites.start + self.common_T, searched_TB, n_searched)
        self._columns = searched.cM, searched.frequency, searched.trust
        n_common = len(self.common_T)
        self._patterns = group_patterns(searched, Interval(0, n_common))
        self._copying = CopyingWindows(searched.cM, last_places(self._patterns, n_common), WINDOW_CM)
        starts = [int(self.common_T[window.places.start]) for window in self._copying.windows[1:]]
        self.windows = [Interval(*bounds) for bounds in pairwise([0, *starts, sites.n_sites])]
        self._panels = None
        if not self.searches_all:
            forwards = PanelAlleles(packed_TB, self.alleles.bits_NW)
            self._panels = forwards, forwards.backwards()

    def most_copied(
        self,
        phred_SH3: np.ndarray,
        haploid_H: np.ndarray,
        linked_H: Sequence[FragmentBases],
        share_H: np.ndarray,
        n_chosen: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the `n_chosen` haplotypes that HALF samples' chains copy most, int64 (H, W, C), and P(ALT).

        P(ALT), float32 (T, 2, H), is the result of the chains. phred_SH3: likelihoods at all sites. linked_H:
        bases at the common sites, see `Evidence`.
        """
        phred_TH3 = np.ascontiguousarray(phred_SH3[self.common_T])
        evidence = Evidence(*self._columns, phred_TH3, haploid_H, linked_H, 0, share_H)
        chains = ChainsOverAll(self._patterns, evidence, self._copying, None)
        chains.run()
        order_WMH = np.argsort(-chains.usage_WNH, axis=1, kind="stable")[:, :n_chosen]
        return self._searched_M[order_WMH].transpose(2, 0, 1), chains.haplotype_probabilities()

    def longest_matches(self, p_T2X: np.ndarray, n_chosen: int, pool: Executor) -> list[list[np.ndarray]]:
        """Return the haplotypes with the longest matches to each sample's chains, by sample and window.

        In each block of sites the longest matches are listed. The `n_chosen` haplotypes that are listed in
        the largest number of blocks of a window are returned. p_T2X: P(ALT) of the chains at the common
        sites.
        """
        assert self._panels is not None, "chains see all haplotypes"
        forwards, backwards = self._panels
        n_common, _, n_samples = p_T2X.shape
        p_TQ = p_T2X.transpose(0, 2, 1).reshape(n_common, 2 * n_samples)
        is_certain_TQ = np.maximum(p_TQ, 1 - p_TQ) >= MIN_PROBABILITY
        queries = TypedAlleles.from_alleles(np.where(is_certain_TQ, p_TQ > 0.5, MISSING).astype(np.uint8))
        first_B = np.arange(1, max(n_common, 2), BLOCK)
        blocks = first_B, np.minimum(BLOCK, n_common + 1 - first_B), MATCH_SETTINGS
        left = pool.submit(longest_matches, forwards, queries, *blocks, on_left=True)
        right = pool.submit(longest_matches, backwards, queries, *blocks, on_left=False)
        candidates = unite(left.result(), right.result())
        windows = [slice(*np.searchsorted(first_B, window.seen).tolist()) for window in self._copying.windows]

        def choose(x: int) -> list[np.ndarray]:
            return [
                _most_frequent(candidates.haplotype_C, candidates.first_BQ1[w], x, n_chosen) for w in windows
            ]

        return list(pool.map(choose, range(n_samples)))


def _most_frequent(haplotype_C: np.ndarray, first_BQ1: np.ndarray, x: int, n_chosen: int) -> np.ndarray:
    """Return the haplotypes that are in the most lists of sample x's two haplotypes."""
    lists = [haplotype_C[first:last] for first, last in first_BQ1[:, [2 * x, 2 * x + 2]].tolist()]
    haplotype, count = np.unique(np.concatenate([np.empty(0, np.int32), *lists]), return_counts=True)
    return haplotype[np.argsort(-count, kind="stable")[:n_chosen]].astype(np.int64)
