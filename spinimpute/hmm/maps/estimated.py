"""A panel's genetic map, estimated from the panel alone where that is better than the map it came with.

Published maps are of other people, and many species have none. The lengths between common sites are tuned to
most of the panel's haplotypes (`tuning`). Some are left out: if these are more likely to copy the others
by the tuned map than by the one that the panel came with, the tuned one is better. By exact maps of simulated
panels they are not.

Axes: T sites, N haplotypes, Q of them that are left out, X all sites of the panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.maps.tuning import can_tune, fair_order, tuned_map
from spinimpute.hmm.recombination_scale import copying_log_likelihood
from spinimpute.hmm.windows import PhasedSites

SITES_AT_ONCE = 128
BASES_PER_CM = 1e6  # where a map has no length


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
    """A panel with some of its haplotypes only, and with a map of its own."""

    panel: PhasedSites
    chosen_N: np.ndarray
    cM: np.ndarray

    @property
    def n_haplotypes(self) -> int:
        return len(self.chosen_N)

    @property
    def position(self) -> np.ndarray:
        return self.panel.position

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        packed = [np.packbits(part_TN[:, self.chosen_N], axis=1) for part_TN in _alleles(self.panel, index)]
        return np.concatenate(packed)

    def alleles(self, index: np.ndarray) -> np.ndarray:
        """uint8 (T, N)."""
        return np.unpackbits(self.packed_rows(index), axis=1, count=self.n_haplotypes)


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
        None if the panel's map is as good, or if there are too few sites or haplotypes to tell. The estimate
        is as long as the panel's map, unless that has next to no length.
    """
    index_T = spread_sites(panel.position, frequency_X, 0)
    n_left_out = min(parameters.MOST_LEFT_OUT, panel.n_haplotypes // 5)
    if not can_tune(panel, index_T) or n_left_out < parameters.LEAST_LEFT_OUT:
        return None
    order_N = fair_order(_alleles(panel, index_T))[: n_left_out + parameters.MOST_ESTIMATED_FROM]
    start_X = _with_length(panel.cM, panel.position, index_T)
    stay = _SomeHaplotypes(panel, np.sort(order_N[n_left_out:]), start_X)
    cM_X = _as_long_as(start_X, tuned_map(stay, index_T, threads)).round(6)
    other_T = _stretches(spread_sites(panel.position, frequency_X, parameters.MAP_STEP // 2))
    alleles_TN = _SomeHaplotypes(panel, order_N, start_X).alleles(other_T)

    def likelihood(map_X: np.ndarray) -> float:
        return copying_log_likelihood(alleles_TN, map_X[other_T], np.arange(n_left_out))

    with ThreadPoolExecutor(threads, "map") as pool:
        before, after = pool.map(likelihood, (panel.cM, cM_X))
    gain = (after - before) / -before if before < 0 else 0.0
    return MapEstimate(cM_X, len(index_T), gain) if gain >= parameters.LEAST_GAIN else None


def _with_length(cM_X: np.ndarray, position_X: np.ndarray, index_T: np.ndarray) -> np.ndarray:
    """The map, or one of a constant rate where the map has next to no length between the sites."""
    constant_X = position_X / BASES_PER_CM
    flat = np.ptp(cM_X[index_T]) < parameters.LEAST_MAP_RATE * np.ptp(constant_X[index_T])
    return constant_X if flat else cM_X


def _as_long_as(start_X: np.ndarray, tuned_X: np.ndarray) -> np.ndarray:
    """With the first and last position of the map to start from: what cM mean elsewhere stays."""
    return start_X[0] + (tuned_X - tuned_X[0]) * (np.ptp(start_X) / np.ptp(tuned_X))


def spread_sites(position_X: np.ndarray, frequency_X: np.ndarray, shift: int) -> np.ndarray:
    """The commonest site of every MAP_STEP base pairs, if it is common.

    Parameters
    ----------
    position_X : int64
        Positions of all sites.
    frequency_X : float64
        Frequency of ALT.
    shift : int
        Added to the positions: by half a step, other sites are found.

    Returns
    -------
    int64 (T,)
        Sites, increasing.
    """
    minor_X = np.minimum(frequency_X, 1 - frequency_X)
    common_T = np.flatnonzero(minor_X >= parameters.COMMON)
    stretch_T = (position_X[common_T] + shift) // parameters.MAP_STEP
    order_T = np.lexsort((common_T, -minor_X[common_T], stretch_T))
    first = np.unique(stretch_T[order_T], return_index=True)[1]
    return common_T[order_T][first]


def _stretches(index_T: np.ndarray) -> np.ndarray:
    """Stretches of sites, evenly over all: between two of them everybody changes."""
    n, length = parameters.JUDGED_STRETCHES, parameters.JUDGED_SITES
    if len(index_T) <= n * length:
        return index_T
    starts = np.linspace(0, len(index_T) - length, n).astype(np.int64)
    return np.concatenate([index_T[start : start + length] for start in starts])


def _alleles(panel: PhasedSites, index_T: np.ndarray) -> Iterator[np.ndarray]:
    """uint8 (T, N), some sites after the others, as all haplotypes of a large panel take much memory."""
    for start in range(0, len(index_T), SITES_AT_ONCE):
        packed = panel.packed_rows(index_T[start : start + SITES_AT_ONCE])
        yield np.unpackbits(packed, axis=1, count=panel.n_haplotypes)
