"""Intervals of consecutive sites, and how a chromosome is cut into windows that are computed at once."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spinimpute.runtime.errors import InputError

MOST_PARTS = 2.0**40  # more than there are sites
DEFAULT_LENGTH_CM = 2.0
DEFAULT_MAX_SITES = 50_000


class Interval(NamedTuple):
    """Consecutive sites [start, stop), counted from 0 among the sites of a panel or among the typed sites."""

    start: int
    stop: int

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The interval as an index of arrays with one entry per site."""
        return slice(self.start, self.stop)

    def positions(self, position: np.ndarray) -> tuple[int, int]:
        """Positions in base pairs of the first and the last site."""
        return int(position[self.start]), int(position[self.stop - 1])

    def length_cM(self, cM: np.ndarray) -> float:
        """Genetic length in cM, from the first site to the last."""
        return float(cM[self.stop - 1] - cM[self.start])


def cut_windows(
    cM: np.ndarray,
    position: np.ndarray,
    length_cM: float = DEFAULT_LENGTH_CM,
    max_sites: int = DEFAULT_MAX_SITES,
) -> list[Interval]:
    """Cut sites into windows of equal genetic length that contain every site exactly once.

    Where the map is flat or the panel dense, windows are cut further, into equal numbers of sites. Records at
    the same position stay in the same window, even where that exceeds `max_sites`. cM and position are those
    of the sites, in order. Raises InputError unless the lengths are positive.
    """
    if not length_cM > 0 or max_sites < 1:
        raise InputError(
            "argument",
            f"a window must have a positive length and number of sites, got {length_cM} cM and {max_sites} "
            "sites",
        )
    if len(position) == 0:
        return []
    cM = np.asarray(cM, dtype=np.float64)
    bounds = _window_bounds(cM, np.asarray(position), length_cM, max_sites)
    return [Interval(start, stop) for start, stop in pairwise(bounds.tolist())]


def _window_bounds(cM: np.ndarray, position: np.ndarray, length_cM: float, max_sites: int) -> np.ndarray:
    """Bounds of the windows, int64 (n_windows + 1,), strictly increasing from 0 to n."""
    n_sites = len(position)
    span = cM[-1] - cM[0]
    n_parts = max(1, int(np.ceil(span / max(length_cM, span / MOST_PARTS))))
    # A gap in the map may hold far more parts than there are sites; only cuts between sites matter.
    part = np.floor((cM - cM[0]) / ((cM[-1] - cM[0]) or 1.0) * n_parts).clip(max=n_parts - 1)
    by_length = _whole_positions(np.flatnonzero(np.diff(part)) + 1, position)
    bounds = [0]
    for stop in [*np.unique(by_length).tolist(), n_sites]:
        while (start := bounds[-1]) < stop:
            n_pieces = -(-(stop - start) // max_sites)
            cut = start - (start - stop) // n_pieces  # pieces of equal size, rounded up
            if cut < stop:
                before = int(np.searchsorted(position, position[cut], side="left"))
                after = int(np.searchsorted(position, position[cut - 1], side="right"))
                cut = before if before > start else after
            bounds.append(cut)
    return np.array(bounds, dtype=np.int64)


def _whole_positions(cuts: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Move cuts down to the first record of their position."""
    return np.searchsorted(position, position[cuts], side="left")
