"""Intervals of a panel without a typed site nearby, where imputation only guesses by allele frequency.

They depend on the panel's genetic map and the typed sites, not on the windows of a run.

Axes: T typed sites, U sites of an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spinimpute.genotypes.intervals import Interval

FAR_CM = 0.5  # to both sides: within 1 cM a haplotype is often a mosaic of several panel haplotypes
MAX_IGNORED_TYPED = 2  # so few typed sites do not split an untyped interval
EQUAL_LENGTH_CM = 5.0  # long enough for any array to have typed some of the sites


@dataclass(frozen=True)
class IntervalCounts:
    """Numbers of typed and imputed panel sites from position `start` to `end`, both inclusive."""

    chrom: str
    start: int
    end: int
    typed: int
    imputed: int

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start}-{self.end} ({self.typed} typed and {self.imputed} imputed sites)"


def far_from_typed(cM: np.ndarray, typed_index: np.ndarray, interval: Interval) -> np.ndarray:
    """Which sites of an interval are further than FAR_CM from every typed site, bool (U,).

    cM: genetic positions of all panel sites. typed_index: the typed panel sites, increasing; the nearest on
    both sides of the interval must be among them.
    """
    padded_cM_T = np.concatenate([[-np.inf], cM[typed_index], [np.inf]])
    here_U = cM[interval.slice]
    n_before_U = np.searchsorted(typed_index, np.arange(*interval))  # number of typed sites before each site
    nearest_U = np.minimum(here_U - padded_cM_T[n_before_U], padded_cM_T[n_before_U + 1] - here_U)
    return nearest_U > FAR_CM


def untyped_intervals(
    chrom: str, position: np.ndarray, cM: np.ndarray, typed_index: np.ndarray, interval: Interval
) -> list[IntervalCounts]:
    """The untyped intervals of an interval of panel sites, the largest first.

    Each reaches from a site far from typed sites to another one. Parameters are those of `far_from_typed`.
    """
    far = interval.start + np.flatnonzero(far_from_typed(cM, typed_index, interval))
    if not len(far):
        return []
    before = np.searchsorted(typed_index, far)
    cuts = np.flatnonzero(np.diff(before) > MAX_IGNORED_TYPED) + 1
    counts = [
        count_sites(chrom, position, typed_index, Interval(int(sites[0]), int(sites[-1]) + 1))
        for sites in np.split(far, cuts)
    ]
    return sorted(counts, key=lambda one: (-one.imputed, one.start))


def count_sites(
    chrom: str, position: np.ndarray, typed_index: np.ndarray, interval: Interval
) -> IntervalCounts:
    """Count the typed and imputed sites of an interval that is not empty."""
    low, high = np.searchsorted(typed_index, interval).tolist()
    n_typed = high - low
    return IntervalCounts(chrom, *interval.positions(position), n_typed, interval.n_sites - n_typed)


def cut_equal_lengths(cM: np.ndarray) -> list[Interval]:
    """Cut the sites of a panel into intervals of about EQUAL_LENGTH_CM; none is empty."""
    n_intervals = max(1, round(float(cM[-1] - cM[0]) / EQUAL_LENGTH_CM))
    edges = np.linspace(cM[0], cM[-1], n_intervals + 1)[1:-1]
    starts = np.unique([0, *np.searchsorted(cM, edges).tolist(), len(cM)]).tolist()
    return [Interval(start, stop) for start, stop in pairwise(starts)]
