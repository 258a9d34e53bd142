"""Estimation of a genetic map from the panel alone, for `panel build`.

Published maps describe other populations, and many species have none. The genetic distances between common
sites are tuned to most of the panel's haplotypes (`tuning`). The other haplotypes are held out to test the
result: if they are more likely under the tuned map than under the panel's present map, the tuned map is used.
In simulated panels, whose present map is exact, the tuned map fails this test.

Axes: T sites, N haplotypes, Q held-out haplotypes, X all sites of the panel.
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

BATCH_SITES = 128  # sites whose alleles are read at a time
BASES_PER_CM = 1e6  # constant rate that replaces a map without length


class MapEstimate(NamedTuple):
    """An estimated map."""

    cM_X: np.ndarray  # float64, genetic positions of all sites
    n_sites: int  # number of sites between which lengths were estimated
    gain: float  # relative reduction of the negative log-likelihood of the held-out haplotypes


@dataclass(frozen=True)
class _SomeHaplotypes:
    """Some haplotypes of a panel, with another genetic map."""

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
        chosen = [
            np.packbits(rows_TN[:, self.chosen_N], axis=1) for rows_TN in _read_alleles(self.panel, index)
        ]
        return np.concatenate(chosen)

    def alleles(self, index: np.ndarray) -> np.ndarray:
        """Return the alleles at some sites, uint8 (T, N)."""
        return np.unpackbits(self.packed_rows(index), axis=1, count=self.n_haplotypes)


def estimated_map(panel: PhasedSites, frequency_X: np.ndarray, threads: int) -> MapEstimate | None:
    """Estimate a panel's genetic map from its haplotypes, starting from its present map.

    Returns None if the estimate is not better than the present map, or if there are too few sites or
    haplotypes. The estimate is scaled to the length of the present map, or to 1 cM/Mb if the present
    map has almost no length. frequency_X: ALT frequencies. The result depends neither on threads nor on the
    order of the haplotypes.
    """
    index_T = spread_sites(panel.position, frequency_X, 0)
    n_held_out = min(parameters.MAX_HELD_OUT, panel.n_haplotypes // 5)
    if not can_tune(panel, index_T) or n_held_out < parameters.MIN_HELD_OUT:
        return None
    order_N = fair_order(_read_alleles(panel, index_T))[: n_held_out + parameters.MAX_HAPLOTYPES_FOR_MAP]
    start_X = _with_length(panel.cM, panel.position, index_T)
    copied = _SomeHaplotypes(panel, np.sort(order_N[n_held_out:]), start_X)
    cM_X = _rescale(tuned_map(copied, index_T, threads), start_X).round(6)
    test_T = _test_sites(spread_sites(panel.position, frequency_X, parameters.MAP_STEP // 2))
    alleles_TN = _SomeHaplotypes(panel, order_N, start_X).alleles(test_T)

    def likelihood(map_X: np.ndarray) -> float:
        return copying_log_likelihood(alleles_TN, map_X[test_T], np.arange(n_held_out))

    with ThreadPoolExecutor(threads, "map") as pool:
        before, after = pool.map(likelihood, (panel.cM, cM_X))
    gain = (after - before) / -before if before < 0 else 0.0
    return MapEstimate(cM_X, len(index_T), gain) if gain >= parameters.MIN_GAIN else None


def _with_length(cM_X: np.ndarray, position_X: np.ndarray, index_T: np.ndarray) -> np.ndarray:
    """Return the map, or a constant 1 cM/Mb if the map has almost no length between the sites index_T."""
    constant_X = position_X / BASES_PER_CM
    flat = np.ptp(cM_X[index_T]) < parameters.MIN_MAP_RATE * np.ptp(constant_X[index_T])
    return constant_X if flat else cM_X


def _rescale(tuned_X: np.ndarray, start_X: np.ndarray) -> np.ndarray:
    """Scale a tuned map to the first and last genetic position of the starting map."""
    return start_X[0] + (tuned_X - tuned_X[0]) * (np.ptp(start_X) / np.ptp(tuned_X))


def spread_sites(position_X: np.ndarray, frequency_X: np.ndarray, shift: int) -> np.ndarray:
    """Choose the most common site of each step of MAP_STEP base pairs, int64 (T,), increasing.

    Steps without a common site are skipped. shift: base pairs that are added to positions. A shift of half a
    step chooses mostly other sites, on which the map can be tested.
    """
    minor_X = np.minimum(frequency_X, 1 - frequency_X)
    common_T = np.flatnonzero(minor_X >= parameters.MIN_MAP_FREQUENCY)
    step_T = (position_X[common_T] + shift) // parameters.MAP_STEP
    order_T = np.lexsort((common_T, -minor_X[common_T], step_T))
    first = np.unique(step_T[order_T], return_index=True)[1]
    return common_T[order_T][first]


def _test_sites(index_T: np.ndarray) -> np.ndarray:
    """Choose the sites of TEST_INTERVALS evenly spaced intervals.

    Two intervals are so far apart that every haplotype switches between them.
    """
    n, length = parameters.TEST_INTERVALS, parameters.TEST_SITES
    if len(index_T) <= n * length:
        return index_T
    starts = np.linspace(0, len(index_T) - length, n).astype(np.int64)
    return np.concatenate([index_T[start : start + length] for start in starts])


def _read_alleles(panel: PhasedSites, index_T: np.ndarray) -> Iterator[np.ndarray]:
    """Read alleles, uint8 (T, N), BATCH_SITES sites at a time, to limit the memory for large panels."""
    for start in range(0, len(index_T), BATCH_SITES):
        packed = panel.packed_rows(index_T[start : start + BATCH_SITES])
        yield np.unpackbits(packed, axis=1, count=panel.n_haplotypes)
