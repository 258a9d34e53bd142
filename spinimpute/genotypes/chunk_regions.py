"""A chromosome in regions that can be imputed apart, on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spinimpute.genotypes.intervals import Interval, cut_windows
from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError

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
