"""Trust in predictions of a site from the haplotypes around it.

A panel file has the discordance of each site, a byte: 0 if all is well, up to 1 and more if alleles
contradict the haplotypes around them. It also has a bit that says whether held-out samples of the panel
confirm that the default predictor is too certain there. `spinimpute.pipeline.trust` computes both when a
panel is built. Plain Li and Stephens copying, in phasing and in chains of sequenced samples, trusts all
discordant sites less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DISCORDANCE_UNITS = 200  # a discordance of 1 as a byte in a file
LOW_TRUST = 0.7  # sites with less trust are poorly predictable
NEAR = 200  # bases between neighbouring records of one artefact, which predict each other well
# Fitted to predictions of held-out samples of two panels, see benchmarks/tried.md.
_STEEPNESS, _POWER = 1.3, 1.5


class SiteDoubts(NamedTuple):
    """Evidence against the sites of a panel."""

    discordance: np.ndarray  # in units of 1 / UNITS, uint8 (n_sites,)
    confirmed: np.ndarray  # whether predictions are too certain, bool (n_sites,)

    @classmethod
    def none(cls, n_sites: int) -> SiteDoubts:
        """The doubts of sites that are all trusted."""
        return cls(np.zeros(n_sites, np.uint8), np.zeros(n_sites, bool))

    @property
    def confirmed_discordance(self) -> np.ndarray:
        """The discordance of sites with too certain predictions, 0 at other sites, uint8 (n_sites,)."""
        return np.where(self.confirmed, self.discordance, np.uint8(0))


def trust(discordance: np.ndarray) -> np.ndarray:
    """The share of a prediction to keep, float32 (n,), from 1 to 0, for the discordance of n sites.

    With allele frequency f, a prediction p becomes f + trust (p - f).
    """
    return np.clip(1 - _STEEPNESS * discordance**_POWER, 0, 1).astype(np.float32)


def distance_to_typed(position_X: np.ndarray, typed_position_T: np.ndarray) -> np.ndarray:
    """Distance in bases to the nearest of the typed sites, at least one and in order, int64 (X,)."""
    right_X = np.searchsorted(typed_position_T, position_X).clip(max=len(typed_position_T) - 1)
    left_X = (right_X - 1).clip(min=0)
    distances_2X = abs(typed_position_T[np.stack([left_X, right_X])] - position_X)
    nearest_X: np.ndarray = distances_2X.min(axis=0)
    return nearest_X
