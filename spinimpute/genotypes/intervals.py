"""Intervals of consecutive sites, and how a chromosome is cut into windows that are computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from spinimpute.genotypes.sites import Region
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


DEFAULT_CHUNK_CM = 20.0
DEFAULT_CHUNK_SITES = 500_000


class PanelPositions(Protocol):
    """A panel, or a part of one."""

    @property
    def chrom(self) -> str:
        """The chromosome, as the panel names it."""
        ...

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,): 1-based, never decreasing."""
        ...

    @property
    def cM(self) -> np.ndarray:
        """float64 (n_sites,): genetic positions."""
        ...


@dataclass(frozen=True)
class Chunk:
    """A region that is imputed apart from the others.

    Attributes
    ----------
    region : Region
        It begins where the one before ends, or before that, where chunks overlap.
    sites : int
        Panel sites in it.
    cM : float
        From its first site to its last.
    """

    region: Region
    sites: int
    cM: float


def cut_chunks(
    panels: Sequence[PanelPositions],
    length_cM: float = DEFAULT_CHUNK_CM,
    most_sites: int = DEFAULT_CHUNK_SITES,
    overlap_cM: float = 0.0,
) -> list[Chunk]:
    """Cut a chromosome into regions of about equal genetic length.

    Without an overlap each site of the panel is in exactly one region, else in one or two neighbours. No
    region spans two parts of chromosome X.

    Parameters
    ----------
    panels : sequence of PanelPositions
        The parts of the panel, in order.
    length_cM : float
        The largest genetic length of a region.
    most_sites : int
        The largest number of sites of a region.
    overlap_cM : float
        By how much a region reaches into the one before, but not into the first half of its sites. The
        limits above are without it.

    Returns
    -------
    list of Chunk
        In order of position.

    Raises
    ------
    InputError
        As `cut_windows`; or the overlap is no length.
    """
    if not overlap_cM >= 0:
        raise InputError("content", f"an overlap must have a length of at least 0 cM: got {overlap_cM} cM")
    cores, first_positions = [], []
    for panel in panels:
        before: Interval | None = None
        for window in cut_windows(panel.cM, panel.position, length_cM, most_sites):
            start = window.start
            if before is not None and overlap_cM > 0:
                start = _reaching_back(panel, before, window, overlap_cM)
            first_positions.append(int(panel.position[window.start]))
            length = float(panel.cM[window.stop - 1] - panel.cM[start])
            cores.append((int(panel.position[start]), window.stop - start, length))
            before = window
    ends = [position - 1 for position in first_positions[1:]] + [int(panels[-1].position[-1])]
    return [
        Chunk(Region(panels[0].chrom, start, end), n_sites, length)
        for (start, n_sites, length), end in zip(cores, ends, strict=True)
    ]


def _reaching_back(panel: PanelPositions, before: Interval, window: Interval, overlap_cM: float) -> int:
    """The first site of a window that reaches into the one before; records at a position stay together."""
    wanted = int(np.searchsorted(panel.cM, panel.cM[window.start] - overlap_cM))
    start = max(wanted, (before.start + before.stop + 1) // 2)
    start = int(np.searchsorted(panel.position, panel.position[start]))
    return start if panel.position[start] > panel.position[before.start] else window.start
