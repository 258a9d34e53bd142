"""Windows in which it is counted how much a sample's chains copy each haplotype.

Axes: S sites, W windows, G places at which it is known what chains copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Window:
    """The places [low, high) that it is for, and those that are seen for it, [first, last)."""

    low: int
    high: int
    first: int
    last: int


class CopyingWindows:
    """Windows of equal genetic length, each of which sees half of that on either side, too.

    Parameters
    ----------
    cM_S : float (S,)
        Genetic positions.
    known_G : list of int
        Places at which it will be known what chains copy; there are no more windows than these.
    length_cM : float
        Of a window, about.

    Attributes
    ----------
    windows : list of Window
        In order.
    counted_G : list of list of int
        The windows for which it counts what is copied at each place.
    """

    def __init__(self, cM_S: np.ndarray, known_G: Sequence[int], length_cM: float) -> None:
        self.windows = _windows(cM_S, len(known_G), length_cM)
        self.counted_G: list[list[int]] = [[] for _ in known_G]
        for w, window in enumerate(self.windows):
            away_G = [max(window.first - place, place - window.last + 1, 0) for place in known_G]
            nearest = min(away_G)
            for g, away in enumerate(away_G):
                if away == nearest:  # 0, of all places seen, or that of the nearest one
                    self.counted_G[g].append(w)


def _windows(cM_S: np.ndarray, most: int, length_cM: float) -> list[Window]:
    length = cM_S[-1] - cM_S[0]
    n_windows = min(max(1, round(length / length_cM)), most)
    flank = max(length_cM, length / n_windows) / 2
    edge_W1 = np.linspace(cM_S[0], cM_S[-1], n_windows + 1)
    bound_W1 = np.searchsorted(cM_S, edge_W1)
    bound_W1[0], bound_W1[-1] = 0, len(cM_S)
    first_W = np.searchsorted(cM_S, edge_W1[:-1] - flank)
    last_W = np.searchsorted(cM_S, edge_W1[1:] + flank, side="right")
    columns = (bound_W1[:-1], bound_W1[1:], first_W, last_W)
    return [Window(*of) for of in zip(*(column.tolist() for column in columns), strict=True)]
