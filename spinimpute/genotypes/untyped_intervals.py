"""Stretches of a panel without a typed site nearby: what is imputed there is a guess by frequency.

They follow from the panel's genetic map and the typed sites, whatever the windows of a run.

Axes: T typed sites, U panel sites that are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

FAR_CM = 0.5  # to both sides: within 1 cM a haplotype is often a mosaic of several of the panel's
FEW_TYPED = 2  # typed sites do not part what is untyped on both sides of them
EQUAL_LENGTH_CM = 5.0  # long enough for any array to have typed some of its sites


@dataclass(frozen=True)
class IntervalCounts:
    """Neighbouring sites of a panel.

    Attributes
    ----------
    chrom : str
        As the panel names it.
    start, end : int
        Positions of the first and last site.
    typed, imputed : int
        Sites that are typed in the target, and all others.
    """

    chrom: str
    start: int
    end: int
    typed: int
    imputed: int

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start}-{self.end} ({self.typed} typed and {self.imputed} imputed sites)"


def far_from_typed(cM: np.ndarray, typed_index: np.ndarray, first: int, last: int) -> np.ndarray:
    """Which of the panel's sites [first, last) lie further than FAR_CM from any typed site.

    Parameters
    ----------
    cM : float64 (n_sites,)
        Genetic positions of all panel sites.
    typed_index : int64 (T,)
        The panel sites that are typed, increasing; those next to [first, last) must be among them.
    first, last : int
        Panel sites.

    Returns
    -------
    bool (U,)
        One for each of these sites.
    """
    beyond_T = np.concatenate([[-np.inf], cM[typed_index], [np.inf]])
    here_U = cM[first:last]
    behind_U = np.searchsorted(typed_index, np.arange(first, last))  # how many are typed before each site
    nearest_U = np.minimum(here_U - beyond_T[behind_U], beyond_T[behind_U + 1] - here_U)
    return nearest_U > FAR_CM


def untyped_intervals(
    chrom: str, position: np.ndarray, cM: np.ndarray, typed_index: np.ndarray, first: int, last: int
) -> list[IntervalCounts]:
    """Stretches of the panel's sites [first, last) that are far from typed sites, the largest first.

    Parameters
    ----------
    chrom : str
        The panel's chromosome.
    position : int64 (n_sites,)
        Of all panel sites.
    cM, typed_index, first, last
        As of `far_from_typed`.

    Returns
    -------
    list of IntervalCounts
        From the first far site to the last one; stretches with no more than FEW_TYPED typed sites between
        them are one.
    """
    far = first + np.flatnonzero(far_from_typed(cM, typed_index, first, last))
    if not len(far):
        return []
    before = np.searchsorted(typed_index, far)
    parted = np.flatnonzero(np.diff(before) > FEW_TYPED) + 1
    stretches = [
        count_sites(chrom, position, typed_index, int(sites[0]), int(sites[-1]) + 1)
        for sites in np.split(far, parted)
    ]
    return sorted(stretches, key=lambda stretch: (-stretch.imputed, stretch.start))


def count_sites(
    chrom: str, position: np.ndarray, typed_index: np.ndarray, first: int, last: int
) -> IntervalCounts:
    """The panel sites [first, last), at least one, as a stretch."""
    low, high = np.searchsorted(typed_index, [first, last]).tolist()
    start, end = int(position[first]), int(position[last - 1])
    return IntervalCounts(chrom, start, end, high - low, last - first - (high - low))


def cut_equal_lengths(cM: np.ndarray) -> list[tuple[int, int]]:
    """Cut a panel into stretches of equal genetic length, about EQUAL_LENGTH_CM.

    Parameters
    ----------
    cM : float64 (n_sites,)
        Genetic positions, of at least one site.

    Returns
    -------
    list of (int, int)
        Sites [first, last) of each; stretches without a site are left out.
    """
    n_stretches = max(1, round(float(cM[-1] - cM[0]) / EQUAL_LENGTH_CM))
    edges = np.linspace(cM[0], cM[-1], n_stretches + 1)[1:-1]
    starts = np.unique([0, *np.searchsorted(cM, edges).tolist(), len(cM)]).tolist()
    return list(pairwise(starts))
