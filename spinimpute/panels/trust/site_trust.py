"""How far predictions of a site from the haplotypes around it are trusted.

A panel file holds the discordance of each site, a byte: 0 where all is well, up to 1 and more where alleles
contradict the haplotypes around them; and a bit, whether people left out of the panel confirm that the
default predictor is too certain there. `spinimpute.pipeline.trust` finds both when a panel is built. Copying
by the model of Li and Stephens alone, in phasing and in chains of sequenced samples, trusts all discordant
sites less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

UNITS = 200  # of 1 in a file, one byte for each site
POORLY = 0.7  # trust below which a site is called poorly predictable
NEAR = 200  # bases: neighbouring records of one artefact lie this close, and predict each other well
# Fitted to predictions of people left out of two panels, see benchmarks/tried.md.
_STEEPNESS, _POWER = 1.3, 1.5


class SiteDoubts(NamedTuple):
    """Evidence against the sites of a panel.

    Attributes
    ----------
    discordance : uint8 (n_sites,)
        In units of 1 / UNITS.
    confirmed : bool (n_sites,)
        Whether predictions are too certain.
    """

    discordance: np.ndarray
    confirmed: np.ndarray

    @classmethod
    def none(cls, n_sites: int) -> SiteDoubts:
        """Return the doubts of sites that are all trusted."""
        return cls(np.zeros(n_sites, np.uint8), np.zeros(n_sites, bool))

    @property
    def confirmed_discordance(self) -> np.ndarray:
        """The discordance of sites whose predictions are too certain, 0 of others, uint8 (n_sites,)."""
        return np.where(self.confirmed, self.discordance, np.uint8(0))


def trust(discordance: np.ndarray) -> np.ndarray:
    """The share of a prediction that is kept.

    Parameters
    ----------
    discordance : floats (n,)
        Discordance of n sites.

    Returns
    -------
    float32 (n,)
        From 1 to 0: a prediction p of an allele of frequency f means f + trust (p - f).
    """
    return np.clip(1 - _STEEPNESS * discordance**_POWER, 0, 1).astype(np.float32)


def distance_to_typed(position_X: np.ndarray, typed_position_T: np.ndarray) -> np.ndarray:
    """Distance in bases to the nearest typed site, int64 (X,); some must be typed, in order."""
    right_X = np.searchsorted(typed_position_T, position_X).clip(max=len(typed_position_T) - 1)
    left_X = (right_X - 1).clip(min=0)
    distances_2X = abs(typed_position_T[np.stack([left_X, right_X])] - position_X)
    nearest_X: np.ndarray = distances_2X.min(axis=0)
    return nearest_X
