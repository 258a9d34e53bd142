"""Windows of typed sites for phasing, leave-one-out prediction and map tuning.

A window has a core and a flank on each side. All typed sites of the window are computed, but only the results
of the core are used. Each typed site is in the core of exactly one window.

Axes: S typed sites of a window, N panel haplotypes, B bytes of a site's packed bits, W 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters


class PhasedSites(Protocol):
    """The attributes of a panel that windows, the recombination scale and map tuning use."""

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions of all sites, float64."""

    @property
    def position(self) -> np.ndarray:
        """Positions of all sites in base pairs, int64."""

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Return the alleles at the sites `index` as bits, one row per site (`numpy.packbits`)."""


@dataclass(frozen=True)
class PassWindow:
    """A window of typed sites and the panel's alleles there."""

    sites: Interval  # the window, flanks included, as an interval of all typed sites
    core: Interval  # the core, as an interval of the window's sites
    # uint64, the panel's alleles at the window's sites (`pack_rows`). The rows are sorted by their content,
    # so the result does not depend on the order of haplotypes in the panel.
    panel_NW: np.ndarray
    cM_S: np.ndarray  # float64, genetic positions of the window's sites

    @property
    def core_sites(self) -> Interval:
        """The core, as an interval of all typed sites."""
        return Interval(self.sites.start + self.core.start, self.sites.start + self.core.stop)


def cut_pass_windows(panel: PhasedSites, typed_index: np.ndarray, shift: int = 0) -> list[PassWindow]:
    """Cut typed panel sites into windows. The first core is `shift` sites shorter than the others."""
    starts = range(-shift, len(typed_index), parameters.CORE)
    return [_window_around(panel, typed_index, start) for start in starts]


def _window_around(panel: PhasedSites, typed_index: np.ndarray, core_start: int) -> PassWindow:
    """Return the window whose core starts at typed site `core_start`, which may be negative."""
    n_typed = len(typed_index)
    start, stop = max(0, core_start), min(n_typed, core_start + parameters.CORE)
    sites = Interval(max(0, start - parameters.FLANK), min(n_typed, stop + parameters.FLANK))
    rows = typed_index[sites.slice]
    packed_SB = panel.packed_rows(rows)
    panel_NW = pack_rows(np.unpackbits(packed_SB, axis=1, count=panel.n_haplotypes))
    panel_NW = np.ascontiguousarray(panel_NW[np.lexsort(panel_NW.T)])
    return PassWindow(sites, Interval(start - sites.start, stop - sites.start), panel_NW, panel.cM[rows])
