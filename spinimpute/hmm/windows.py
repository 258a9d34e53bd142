"""Windows of typed sites: a pass over the panel decides on a core of sites, and sees flanks on either side.

Axes: S typed sites of a window, N panel haplotypes, W 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm import parameters
from spinimpute.panels.panel import Panel


@dataclass(frozen=True)
class PassWindow:
    """Places [first, stop) of the typed sites, of which [first_decided, stop_decided) are decided (within the
    window). panel_NW: rows of the panel, in an order that their content decides."""

    first: int
    stop: int
    first_decided: int
    stop_decided: int
    panel_NW: np.ndarray
    cM_S: np.ndarray

    @classmethod
    def around(cls, panel: Panel, typed_index: np.ndarray, core: int) -> PassWindow:
        """The window that decides on CORE typed sites from `core` on, as far as they exist."""
        n_typed = len(typed_index)
        begin, end = max(0, core), min(n_typed, core + parameters.CORE)
        first, stop = max(0, begin - parameters.FLANK), min(n_typed, end + parameters.FLANK)
        rows = typed_index[first:stop]
        packed_SB = panel.packed_rows(rows)
        panel_NW = pack_rows(np.unpackbits(packed_SB, axis=1, count=panel.n_haplotypes))
        panel_NW = np.ascontiguousarray(panel_NW[np.lexsort(panel_NW.T)])
        return cls(first, stop, begin - first, end - first, panel_NW, panel.cM[rows])


def windows_of(panel: Panel, typed_index: np.ndarray, shift: int = 0) -> list[PassWindow]:
    """Windows that decide on all typed sites; shift: by how many sites the first one is shorter than CORE."""
    starts = range(-shift, len(typed_index), parameters.CORE)
    return [PassWindow.around(panel, typed_index, first) for first in starts]
