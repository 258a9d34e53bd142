"""What chains need to know of the haplotypes that they copy.

Axes: S sites, B bytes of the packed bits of a site's alleles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class CopiedPanel(Protocol):
    """A `Panel`, or a part of one."""

    @property
    def n_haplotypes(self) -> int:
        """Those that may be copied."""

    @property
    def cM(self) -> np.ndarray:
        """float64 (S,): genetic positions."""

    @property
    def frequency(self) -> np.ndarray:
        """float64 (S,): of ALT, in the whole panel."""

    @property
    def trust(self) -> np.ndarray:
        """float32 (S,): as of `ReferencePanel`."""

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Alleles of some sites, uint8 (n, B), as bits in the order of `numpy.packbits`."""


@dataclass(frozen=True, eq=False)
class PanelPart:
    """Some sites and haplotypes of a panel.

    Attributes
    ----------
    n_haplotypes : int
        Those of the part.
    cM, frequency, trust : float (S,)
        As of `CopiedPanel`.
    packed_SB : uint8
        Alleles, as bits in the order of `numpy.packbits`.
    """

    n_haplotypes: int
    cM: np.ndarray
    frequency: np.ndarray
    trust: np.ndarray
    packed_SB: np.ndarray

    @classmethod
    def of(cls, panel: CopiedPanel, sites: np.ndarray, packed_SB: np.ndarray, n_haplotypes: int) -> PanelPart:
        """Some sites of a panel, with these alleles of these haplotypes."""
        columns = panel.cM[sites], panel.frequency[sites], panel.trust[sites]
        return cls(n_haplotypes, *columns, packed_SB)

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """As of `CopiedPanel`."""
        return self.packed_SB[index]
