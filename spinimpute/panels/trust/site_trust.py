"""Compute how much to trust the predictions at a site, from the site's discordance.

Wrong calls, for example in repeats, contradict the haplotypes around them. The *discordance* of a site
measures this: it is about 0 if the alleles agree with the haplotypes around them, and about 1 if they are
unrelated to them. A site's discordance is *confirmed* if predictions of held-out samples of the panel are too
certain there. `spinimpute.pipeline.trust` computes both values when a panel is built.

The default predictor reduces its trust only at sites with a confirmed discordance. Plain Li and Stephens
copying (in phasing, and in chains of sequenced samples) reduces the trust at all discordant sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DISCORDANCE_UNITS = 200  # value of the byte in a file that means a discordance of 1
LOW_TRUST = 0.7  # sites with less trust are reported as poorly predictable
NEAR = 200  # bases; records within this distance may belong to one artefact and predict each other too well
# fitted to predictions of held-out samples of two panels, see benchmarks/tried.md
_STEEPNESS, _POWER = 1.3, 1.5


class SiteDoubts(NamedTuple):
    """Evidence against the sites of a panel."""

    discordance: np.ndarray  # in units of 1 / DISCORDANCE_UNITS, uint8 (n_sites,)
    confirmed: np.ndarray  # whether predictions of held-out samples are too certain, bool (n_sites,)

    @classmethod
    def none(cls, n_sites: int) -> SiteDoubts:
        """Return doubts that make all sites trusted."""
        return cls(np.zeros(n_sites, np.uint8), np.zeros(n_sites, bool))

    @property
    def confirmed_discordance(self) -> np.ndarray:
        """The discordance where it is confirmed, and 0 at other sites, uint8 (n_sites,)."""
        return np.where(self.confirmed, self.discordance, np.uint8(0))


def trust(discordance: np.ndarray) -> np.ndarray:
    """Return the trust, float32 (n,), from 1 to 0, for the discordance of n sites.

    A prediction p at a site with allele frequency f becomes f + trust (p - f).
    """
    return np.clip(1 - _STEEPNESS * discordance**_POWER, 0, 1).astype(np.float32)


def distance_to_typed(position_X: np.ndarray, typed_position_T: np.ndarray) -> np.ndarray:
    """Return the distance in bases to the nearest typed site, int64 (X,).

    There must be at least one typed site, and the typed positions must be sorted.
    """
    right_X = np.searchsorted(typed_position_T, position_X).clip(max=len(typed_position_T) - 1)
    left_X = (right_X - 1).clip(min=0)
    distances_2X = abs(typed_position_T[np.stack([left_X, right_X])] - position_X)
    nearest_X: np.ndarray = distances_2X.min(axis=0)
    return nearest_X
