"""Untyped intervals: intervals of panel sites that are far from every typed site.

There, imputation can only guess by allele frequency, so reports list these intervals. They depend on the
panel's genetic map and the typed sites, not on the windows of a run.

Axes: T typed sites, U sites of an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spinimpute.genotypes.intervals import Interval

# Minimum distance of an untyped interval's sites to the nearest typed site on each side. Within 1 cM a
# haplotype is often a mosaic of several panel haplotypes.
FAR_CM = 0.5
MAX_IGNORED_TYPED = 2  # up to this many typed sites do not split an untyped interval
EQUAL_LENGTH_CM = 5.0  # so long that any array has typed sites in an interval of this length


@dataclass(frozen=True)
class IntervalCounts:
    """The number of typed and of imputed panel sites from position `start` to `end`, both inclusive."""

    chrom: str
    start: int
    end: int
    typed: int
    imputed: int

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start}-{self.end} ({self.typed} typed and {self.imputed} imputed sites)"


def far_from_typed(cM: np.ndarray, typed_index: np.ndarray, interval: Interval) -> np.ndarray:
    """Return which sites of an interval are further than FAR_CM from every typed site, bool (U,).

    cM: genetic positions of all panel sites. typed_index: typed panel sites, increasing; they must include
    the nearest typed sites outside of the interval, on both sides.
    """
    padded_cM_T = np.concatenate([[-np.inf], cM[typed_index], [np.inf]])
    cM_U = cM[interval.slice]
    n_before_U = np.searchsorted(typed_index, np.arange(*interval))  # number of typed sites before each site
    nearest_U = np.minimum(cM_U - padded_cM_T[n_before_U], padded_cM_T[n_before_U + 1] - cM_U)
    return nearest_U > FAR_CM


def untyped_intervals(
    chrom: str, position: np.ndarray, cM: np.ndarray, typed_index: np.ndarray, interval: Interval
) -> list[IntervalCounts]:
    """Return the untyped intervals within an interval of panel sites, sorted by decreasing imputed sites.

    Each begins and ends with a site that is far from typed sites. The parameters are those of
    `far_from_typed`.
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
    return sorted(counts, key=lambda interval_counts: (-interval_counts.imputed, interval_counts.start))


def count_sites(
    chrom: str, position: np.ndarray, typed_index: np.ndarray, interval: Interval
) -> IntervalCounts:
    """Count the typed and imputed sites of an interval that is not empty."""
    low, high = np.searchsorted(typed_index, interval).tolist()
    n_typed = high - low
    return IntervalCounts(chrom, *interval.positions(position), n_typed, interval.n_sites - n_typed)


def cut_equal_lengths(cM: np.ndarray) -> list[Interval]:
    """Cut the sites of a panel into intervals of about EQUAL_LENGTH_CM. None is empty."""
    n_intervals = max(1, round(float(cM[-1] - cM[0]) / EQUAL_LENGTH_CM))
    edges = np.linspace(cM[0], cM[-1], n_intervals + 1)[1:-1]
    starts = np.unique([0, *np.searchsorted(cM, edges).tolist(), len(cM)]).tolist()
    return [Interval(start, stop) for start, stop in pairwise(starts)]
