"""A panel's genetic map, estimated from the panel alone where that is better than the map it came with.

Published maps are of other people, and many species have none. The lengths between common sites are tuned to
most of the panel's haplotypes (`tuning`). Some are left out: if these are more likely to copy the others
by the tuned map than by the one that the panel came with, the tuned one is better. By exact maps of simulated
panels they are not.

Axes: T sites, N haplotypes, Q of them that are left out, X all sites of the panel.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.maps.tuning import can_tune, fair_order, tuned_map
from spinimpute.hmm.recombination_scale import copying_log_likelihood
from spinimpute.hmm.windows import PhasedSites


class MapEstimate(NamedTuple):
    """An estimated map, and by how much it is better.

    Attributes
    ----------
    cM_X : float64
        Genetic positions of all sites.
    n_sites : int
        Those between which lengths were estimated.
    gain : float
        By which share the log-likelihood of haplotypes that were left out is nearer to 0.
    """

    cM_X: np.ndarray
    n_sites: int
    gain: float


@dataclass(frozen=True)
class _SomeHaplotypes:
    """A panel with some of its haplotypes only."""

    panel: PhasedSites
    chosen_N: np.ndarray

    @property
    def n_haplotypes(self) -> int:
        return len(self.chosen_N)

    @property
    def cM(self) -> np.ndarray:
        return self.panel.cM

    @property
    def position(self) -> np.ndarray:
        return self.panel.position

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        return np.packbits(_alleles(self.panel, index)[:, self.chosen_N], axis=1)


def estimated_map(panel: PhasedSites, frequency_X: np.ndarray, threads: int) -> MapEstimate | None:
    """Estimate a panel's genetic map from its haplotypes.

    Parameters
    ----------
    panel : PhasedSites
        With the genetic map to start from, at best a published one, at worst a constant rate.
    frequency_X : float64
        Of ALT.
    threads : int
        Results do not depend on it, nor on the order of the panel's haplotypes.

    Returns
    -------
    MapEstimate or None
        None if the panel's map is as good, or if there are too few sites or haplotypes to tell.
    """
    index_T = _spread_sites(panel.position, frequency_X, 0)
    n_left_out = min(parameters.MOST_LEFT_OUT, panel.n_haplotypes // 5)
    if not can_tune(panel, index_T) or n_left_out < parameters.LEAST_LEFT_OUT:
        return None
    order_N = fair_order(_alleles(panel, _middle(index_T, parameters.SCALE_SITES)))
    order_N = order_N[: n_left_out + parameters.MOST_ESTIMATED_FROM]
    stay = _SomeHaplotypes(panel, np.sort(order_N[n_left_out:]))
    cM_X = tuned_map(stay, index_T, threads).round(6)
    other_T = _spread_sites(panel.position, frequency_X, parameters.MAP_STEP // 2)
    other_T = _middle(other_T, parameters.JUDGED_SITES)
    alleles_TN, left_out_Q = _alleles(panel, other_T)[:, order_N], np.arange(n_left_out)

    def likelihood(map_X: np.ndarray) -> float:
        return copying_log_likelihood(alleles_TN, map_X[other_T], left_out_Q)

    with ThreadPoolExecutor(threads, "map") as pool:
        before, after = pool.map(likelihood, (panel.cM, cM_X))
    gain = (after - before) / -before if before < 0 else 0.0
    return MapEstimate(cM_X, len(index_T), gain) if gain >= parameters.LEAST_GAIN else None


def _spread_sites(position_X: np.ndarray, frequency_X: np.ndarray, shift: int) -> np.ndarray:
    """The commonest site of every MAP_STEP base pairs, if it is common, int64 (T,)."""
    minor_X = np.minimum(frequency_X, 1 - frequency_X)
    common_T = np.flatnonzero(minor_X >= parameters.COMMON)
    stretch_T = (position_X[common_T] + shift) // parameters.MAP_STEP
    order_T = np.lexsort((common_T, -minor_X[common_T], stretch_T))
    first = np.unique(stretch_T[order_T], return_index=True)[1]
    return common_T[order_T][first]


def _middle(index_T: np.ndarray, most: int) -> np.ndarray:
    extra = max(0, len(index_T) - most)
    return index_T[extra // 2 : len(index_T) - (extra + 1) // 2]


def _alleles(panel: PhasedSites, index_T: np.ndarray) -> np.ndarray:
    """uint8 (T, N)."""
    return np.unpackbits(panel.packed_rows(index_T), axis=1, count=panel.n_haplotypes)
