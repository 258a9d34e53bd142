"""Cutting a chromosome into windows: cores that partition the sites, with overlaps on both sides."""

from dataclasses import dataclass

import numpy as np

from spinimpute.runtime.errors import InputError

MOST_PARTS = 2.0**40  # more than there are sites
DEFAULT_LENGTH_CM = 2.0
DEFAULT_OVERLAP_CM = 1.0
DEFAULT_MAX_SITES = 50_000


@dataclass(frozen=True)
class Window:
    """One task: some sites are read, the results of fewer are kept.

    Attributes
    ----------
    index : int
        The window's number.
    start, stop : int
        The results of the panel sites [start, stop) are kept.
    left, right : int
        The panel sites [left, right) are read; left <= start < stop <= right.
    """

    index: int
    start: int
    stop: int
    left: int
    right: int


def cut_windows(
    cM: np.ndarray,
    position: np.ndarray,
    length_cM: float = DEFAULT_LENGTH_CM,
    overlap_cM: float = DEFAULT_OVERLAP_CM,
    max_sites: int = DEFAULT_MAX_SITES,
) -> list[Window]:
    """Cut sites into windows whose cores contain every site exactly once.

    Cores have equal genetic lengths. Where the map is flat or the panel dense they are cut further, into
    equal numbers of sites. Records at the same position always stay in the same core and the same overlap,
    even where that exceeds `max_sites`. An interval without sites makes no window.

    Parameters
    ----------
    cM : floats (n,)
        Genetic positions, non-decreasing.
    position : integers (n,)
        Base pairs, non-decreasing.
    length_cM : float
        The largest genetic length of a core.
    overlap_cM : float
        The length of an overlap.
    max_sites : int
        The largest number of sites of a core, and of an overlap.

    Returns
    -------
    list of Window
        In order of position.

    Raises
    ------
    InputError
        A length or number of sites is not positive, or the overlap is negative.
    """
    if not length_cM > 0 or not overlap_cM >= 0 or max_sites < 1:
        raise InputError(
            "content",
            "a window must have a positive length and number of sites, and an overlap of at least 0 cM: "
            f"got {length_cM} cM, {max_sites} sites, overlap {overlap_cM} cM",
        )
    cM = np.asarray(cM, dtype=np.float64)
    position = np.asarray(position)
    n_sites = len(position)
    if n_sites == 0:
        return []
    bounds = _core_bounds(cM, position, length_cM, max_sites)
    starts, stops = bounds[:-1], bounds[1:]
    left = np.searchsorted(cM, cM[starts] - overlap_cM, side="left")
    right = np.searchsorted(cM, cM[stops - 1] + overlap_cM, side="right")
    left = np.maximum(left, starts - max_sites)
    right = np.minimum(right, stops + max_sites)
    # Widen to whole positions; the last site of an overlap is right - 1 >= 0.
    left = np.searchsorted(position, position[left], side="left")
    right = np.searchsorted(position, position[right - 1], side="right")
    return [
        Window(index, *bounds)
        for index, bounds in enumerate(
            zip(starts.tolist(), stops.tolist(), left.tolist(), right.tolist(), strict=True)
        )
    ]


def _core_bounds(cM: np.ndarray, position: np.ndarray, length_cM: float, max_sites: int) -> np.ndarray:
    """Bounds of the cores, int64 (n_windows + 1,), strictly increasing from 0 to n."""
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
