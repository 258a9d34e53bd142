"""A chromosome in regions that can be imputed apart, on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spinimpute.genotypes.sites import Region
from spinimpute.genotypes.windows import cut_windows

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
        It begins where the one before ends.
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
) -> list[Chunk]:
    """Cut a chromosome into regions of about equal genetic length.

    Each site of the panel is in exactly one region. No region spans two parts of chromosome X.

    Parameters
    ----------
    panels : sequence of PanelPositions
        The parts of the panel, in order.
    length_cM : float
        The largest genetic length of a region.
    most_sites : int
        The largest number of sites of a region.

    Returns
    -------
    list of Chunk
        In order of position.

    Raises
    ------
    InputError
        As `cut_windows`.
    """
    starts, sites, lengths = [], [], []
    for panel in panels:
        for window in cut_windows(panel.cM, panel.position, length_cM, 0.0, most_sites):
            starts.append(int(panel.position[window.start]))
            sites.append(window.stop - window.start)
            lengths.append(float(panel.cM[window.stop - 1] - panel.cM[window.start]))
    last = int(panels[-1].position[-1])
    ends = [start - 1 for start in starts[1:]] + [last]
    chrom = panels[0].chrom
    return [
        Chunk(Region(chrom, start, end), n_sites, length)
        for start, end, n_sites, length in zip(starts, ends, sites, lengths, strict=True)
    ]
