"""Windows of typed sites: a pass over the panel decides on a core of sites, and sees flanks on either side.

Axes: S typed sites of a window, N panel haplotypes, W 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm import parameters


class PhasedSites(Protocol):
    """What the model asks of a panel."""

    @property
    def n_haplotypes(self) -> int:
        """N."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions of all sites, float64."""

    @property
    def position(self) -> np.ndarray:
        """Positions in base pairs, int64."""

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Alleles at some sites as bits, a row a site (`np.packbits`)."""


@dataclass(frozen=True)
class PassWindow:
    """A window of typed sites.

    Attributes
    ----------
    first, stop : int
        The typed sites [first, stop) are in the window.
    first_decided, stop_decided : int
        Those that the window decides on, counted within it.
    panel_NW : uint64 (N, W)
        Typed alleles of the panel, see `pack_rows`; rows are sorted by their content.
    cM_S : float64 (S,)
        Genetic positions.
    """

    first: int
    stop: int
    first_decided: int
    stop_decided: int
    panel_NW: np.ndarray
    cM_S: np.ndarray

    @classmethod
    def around(cls, panel: PhasedSites, typed_index: np.ndarray, core: int) -> PassWindow:
        """The window that decides on CORE typed sites from one on, as far as they exist.

        Parameters
        ----------
        panel : PhasedSites
            Phased haplotypes.
        typed_index : int64 (T,)
            The panel sites that are typed, increasing.
        core : int
            First typed site of the core; negative where the core is cut off at the chromosome's start.

        Returns
        -------
        PassWindow
            The core with its flanks.
        """
        n_typed = len(typed_index)
        begin, end = max(0, core), min(n_typed, core + parameters.CORE)
        first, stop = max(0, begin - parameters.FLANK), min(n_typed, end + parameters.FLANK)
        rows = typed_index[first:stop]
        packed_SB = panel.packed_rows(rows)
        panel_NW = pack_rows(np.unpackbits(packed_SB, axis=1, count=panel.n_haplotypes))
        panel_NW = np.ascontiguousarray(panel_NW[np.lexsort(panel_NW.T)])
        return cls(first, stop, begin - first, end - first, panel_NW, panel.cM[rows])


def windows_of(panel: PhasedSites, typed_index: np.ndarray, shift: int = 0) -> list[PassWindow]:
    """Windows that together decide on all typed sites.

    Parameters
    ----------
    panel : PhasedSites
        Phased haplotypes.
    typed_index : int64 (T,)
        The panel sites that are typed, increasing.
    shift : int
        By how many sites the first core is shorter than CORE.

    Returns
    -------
    list of PassWindow
        Windows in the order of their sites.
    """
    starts = range(-shift, len(typed_index), parameters.CORE)
    return [PassWindow.around(panel, typed_index, first) for first in starts]
