"""Intervals of consecutive sites, and how a chromosome is cut into windows and chunks.

A window is computed in one step and kept in memory. A chunk is a job with a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError

MAX_WINDOWS = 2.0**40  # more than any number of sites; keeps the quotient finite when length_cM is tiny
DEFAULT_LENGTH_CM = 2.0
DEFAULT_MAX_SITES = 50_000
DEFAULT_CHUNK_CM = 20.0
DEFAULT_CHUNK_SITES = 500_000


class Interval(NamedTuple):
    """Consecutive sites [start, stop), as indices of the panel sites or of the typed sites."""

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
        """Return the positions in base pairs of the first and the last site."""
        return int(position[self.start]), int(position[self.stop - 1])

    def length_cM(self, cM: np.ndarray) -> float:
        """Return the genetic length in cM, from the first site to the last."""
        return float(cM[self.stop - 1] - cM[self.start])


def cut_windows(
    cM: np.ndarray,
    position: np.ndarray,
    length_cM: float = DEFAULT_LENGTH_CM,
    max_sites: int = DEFAULT_MAX_SITES,
) -> list[Interval]:
    """Cut sites into windows of equal genetic length; each site is in exactly one window.

    A window of more than `max_sites` sites is cut further, into windows of equal numbers of sites. Sites at
    the same position stay in the same window, even if it then has more than `max_sites` sites. cM, position:
    genetic and base-pair positions of the sites, in order. Raises InputError unless length_cM and max_sites
    are positive.
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
    """Return the bounds of the windows, int64 (n_windows + 1,), strictly increasing from 0 to n_sites."""
    n_sites = len(position)
    total_cM = cM[-1] - cM[0]
    n_lengths = max(1, int(np.ceil(total_cM / max(length_cM, total_cM / MAX_WINDOWS))))
    # A long step in the map may span several windows. Empty windows are dropped: only changes of the window
    # number between neighbouring sites become cuts.
    number = np.floor((cM - cM[0]) / ((cM[-1] - cM[0]) or 1.0) * n_lengths).clip(max=n_lengths - 1)
    cuts = np.flatnonzero(np.diff(number)) + 1
    by_length = np.searchsorted(position, position[cuts], side="left")  # the first site at the position
    bounds = [0]
    for stop in [*np.unique(by_length).tolist(), n_sites]:
        while (start := bounds[-1]) < stop:
            n_cuts = -(-(stop - start) // max_sites)
            cut = start - (start - stop) // n_cuts  # windows of equal size, rounded up
            if cut < stop:
                before = int(np.searchsorted(position, position[cut], side="left"))
                after = int(np.searchsorted(position, position[cut - 1], side="right"))
                cut = before if before > start else after
            bounds.append(cut)
    return np.array(bounds, dtype=np.int64)


class PanelPositions(Protocol):
    """The attributes of a panel that `cut_chunks` uses."""

    @property
    def chrom(self) -> str:
        """Chromosome name in the panel."""

    @property
    def position(self) -> np.ndarray:
        """Positions in base pairs, int64 (n_sites,), 1-based, non-decreasing."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,)."""


@dataclass(frozen=True)
class Chunk:
    """A region to impute as a job of its own.

    It starts where the previous chunk ends, or before that if chunks overlap.
    """

    region: Region
    sites: int  # number of panel sites
    cM: float  # genetic length


def cut_chunks(
    panels: Sequence[PanelPositions],
    length_cM: float = DEFAULT_CHUNK_CM,
    most_sites: int = DEFAULT_CHUNK_SITES,
    overlap_cM: float = 0.0,
) -> list[Chunk]:
    """Cut a chromosome into chunks of at most length_cM and most_sites, not counting the overlap.

    panels: the panel of the chromosome. For X there may be three: PAR1, non-PAR and PAR2; a chunk is always
    within one of them. Without an overlap, each site is in exactly one chunk. With overlap_cM, a chunk also
    contains that much of the previous chunk, but at most its second half.
    """
    if not overlap_cM >= 0:
        raise InputError("argument", f"an overlap must be at least 0 cM, got {overlap_cM} cM")
    extended, first_positions = [], []
    for panel in panels:
        before: Interval | None = None
        for window in cut_windows(panel.cM, panel.position, length_cM, most_sites):
            start = window.start
            if before is not None and overlap_cM > 0:
                start = _extend_back(panel, before, window, overlap_cM)
            first_positions.append(int(panel.position[window.start]))
            chunk = Interval(start, window.stop)
            extended.append((int(panel.position[start]), chunk.n_sites, chunk.length_cM(panel.cM)))
            before = window
    ends = [position - 1 for position in first_positions[1:]] + [int(panels[-1].position[-1])]
    return [
        Chunk(Region(panels[0].chrom, start, end), n_sites, length)
        for (start, n_sites, length), end in zip(extended, ends, strict=True)
    ]


def _extend_back(panel: PanelPositions, before: Interval, window: Interval, overlap_cM: float) -> int:
    """Return the first site of a window after it has been extended into the previous window by overlap_cM.

    Sites at the same position stay together.
    """
    wanted = int(np.searchsorted(panel.cM, panel.cM[window.start] - overlap_cM))
    start = max(wanted, (before.start + before.stop + 1) // 2)
    start = int(np.searchsorted(panel.position, panel.position[start]))
    return start if panel.position[start] > panel.position[before.start] else window.start
