"""The panel that chains copy, and the windows in which the use of each panel haplotype is summed.

The sums show which haplotypes a sample copies most in a window. `likely_pairs` and `large_panels` use them.

Axes: S sites, B bytes of the packed bits of a site's alleles, W windows, G counting places: the places at
which copying probabilities are read, for example the last place of each group of spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from spinimpute.genotypes.intervals import Interval


class CopiedPanel(Protocol):
    """The attributes of a panel that chains need."""

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes that may be copied."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (S,)."""

    @property
    def frequency(self) -> np.ndarray:
        """Frequency of ALT in the whole panel, float64 (S,)."""

    @property
    def trust(self) -> np.ndarray:
        """Trust in each site, 0 to 1, see `ReferencePanel`, float32 (S,)."""

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Return the alleles of some sites as bits in the order of `numpy.packbits`, uint8 (n, B)."""


@dataclass(frozen=True, eq=False)
class PanelSubset:
    """Some sites and haplotypes of a panel, as a `CopiedPanel`."""

    n_haplotypes: int
    cM: np.ndarray
    frequency: np.ndarray
    trust: np.ndarray
    packed_SB: np.ndarray

    @classmethod
    def select(cls, panel: CopiedPanel, sites: np.ndarray, packed_SB: np.ndarray, n_haplotypes: int) -> Self:
        """Return some sites of a panel with the packed alleles of some haplotypes."""
        columns = panel.cM[sites], panel.frequency[sites], panel.trust[sites]
        return cls(n_haplotypes, *columns, packed_SB)

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Return the packed alleles of some sites."""
        return self.packed_SB[index]


class CopyingWindow(NamedTuple):
    """A window of places."""

    places: Interval
    seen: Interval  # the window and half a window more on each side; copying is summed over this interval


class CopyingWindows:
    """Windows of equal genetic length; there are at most as many windows as counting places.

    count_places: the counting places. windows_G: the windows to which each counting place contributes.
    """

    def __init__(self, cM_S: np.ndarray, count_places: Sequence[int], length_cM: float) -> None:
        self.windows = _cut_windows(cM_S, len(count_places), length_cM)
        self.windows_G: list[list[int]] = [[] for _ in count_places]
        for w, window in enumerate(self.windows):
            start, stop = window.seen
            distance_G = [max(start - place, place - stop + 1, 0) for place in count_places]
            nearest = min(distance_G)
            for g, distance in enumerate(distance_G):
                if distance == nearest:  # all places in `seen`, or the nearest place if none is in it
                    self.windows_G[g].append(w)


def _cut_windows(cM_S: np.ndarray, max_windows: int, length_cM: float) -> list[CopyingWindow]:
    length = cM_S[-1] - cM_S[0]
    n_windows = min(max(1, round(length / length_cM)), max_windows)
    flank = max(length_cM, length / n_windows) / 2
    edge_W1 = np.linspace(cM_S[0], cM_S[-1], n_windows + 1)
    bound_W1 = np.searchsorted(cM_S, edge_W1)
    bound_W1[0], bound_W1[-1] = 0, len(cM_S)
    first_W = np.searchsorted(cM_S, edge_W1[:-1] - flank)
    last_W = np.searchsorted(cM_S, edge_W1[1:] + flank, side="right")
    columns = np.stack([bound_W1[:-1], bound_W1[1:], first_W, last_W], axis=1)
    return [CopyingWindow(Interval(*window[:2]), Interval(*window[2:])) for window in columns.tolist()]
