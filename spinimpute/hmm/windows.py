"""Windows of typed sites: a pass over the panel decides a core of sites and sees flanks on either side.

Axes: S typed sites of a window, N panel haplotypes, W 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters


class PhasedSites(Protocol):
    """The attributes of a panel that the model needs."""

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions of all sites, float64."""

    @property
    def position(self) -> np.ndarray:
        """Positions in base pairs, int64."""

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Return the alleles at some sites as bits, one row per site (`np.packbits`)."""


@dataclass(frozen=True)
class PassWindow:
    """A window of typed sites."""

    sites: Interval  # the typed sites of the window
    decided: Interval  # the core that the window decides, counted within the window
    panel_NW: np.ndarray  # uint64, typed alleles of the panel (`pack_rows`); rows are sorted by their content
    cM_S: np.ndarray  # float64, genetic positions

    @property
    def decided_sites(self) -> Interval:
        """The core, counted among all typed sites."""
        return Interval(self.sites.start + self.decided.start, self.sites.start + self.decided.stop)


def cut_pass_windows(panel: PhasedSites, typed_index: np.ndarray, shift: int = 0) -> list[PassWindow]:
    """Cut typed panel sites into windows whose cores cover all; the first core is `shift` sites shorter."""
    starts = range(-shift, len(typed_index), parameters.CORE)
    return [_window_around(panel, typed_index, start) for start in starts]


def _window_around(panel: PhasedSites, typed_index: np.ndarray, core: int) -> PassWindow:
    """Return the window whose core starts at a typed site, or before the first one if `core` is negative."""
    n_typed = len(typed_index)
    start, stop = max(0, core), min(n_typed, core + parameters.CORE)
    sites = Interval(max(0, start - parameters.FLANK), min(n_typed, stop + parameters.FLANK))
    rows = typed_index[sites.slice]
    packed_SB = panel.packed_rows(rows)
    panel_NW = pack_rows(np.unpackbits(packed_SB, axis=1, count=panel.n_haplotypes))
    panel_NW = np.ascontiguousarray(panel_NW[np.lexsort(panel_NW.T)])
    return PassWindow(sites, Interval(start - sites.start, stop - sites.start), panel_NW, panel.cM[rows])
