"""Quality of imputed sites for a report, collected window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.metrics import DEFAULT_BINS, frequency_bins

GOOD_R2 = 0.8
COMMON = 0.05  # minor allele frequency; rarer sites are imputed less well, wherever they are


@dataclass
class ImputedSites:
    """Estimated quality of every panel site, a list entry for each window.

    Attributes
    ----------
    chroms : list of str
        Chromosomes.
    positions : list of integers (n_sites,)
        Positions in base pairs.
    minor : list of float32 (n_sites,)
        Minor allele frequency in the panel.
    r2 : list of float32 (n_sites,)
        Estimated R2, see `site_quality`.
    typed : list of bool (n_sites,)
        Whether the site is typed.
    spread : list of float32 (n_sites, 2)
        As `dosage_spread` gives it.
    """

    chroms: list[str] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    minor: list[np.ndarray] = field(default_factory=list)
    r2: list[np.ndarray] = field(default_factory=list)
    typed: list[np.ndarray] = field(default_factory=list)
    spread: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        chrom: str,
        position: np.ndarray,
        frequency: np.ndarray,
        r2: np.ndarray,
        typed: np.ndarray,
        spread: np.ndarray,
    ) -> None:
        """Add the sites of a window.

        Parameters
        ----------
        chrom : str
            Their chromosome.
        position : integers (n_sites,)
            Positions in base pairs.
        frequency : float (n_sites,)
            ALT frequency in the panel.
        r2 : float (n_sites,)
            Estimated R2, see `site_quality`.
        typed : bool (n_sites,)
            Whether the site is typed.
        spread : float (n_sites, 2)
            Explained and open squares, see `dosage_spread`.
        """
        self.chroms.append(chrom)
        self.positions.append(position)
        self.minor.append(np.minimum(frequency, 1 - frequency).astype(np.float32))
        self.r2.append(r2.astype(np.float32))
        self.typed.append(typed)
        self.spread.append(spread.astype(np.float32))

    def all(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Position, minor allele frequency, R2 and whether typed, of the sites of all windows."""
        position, minor, r2, typed = map(np.concatenate, (self.positions, self.minor, self.r2, self.typed))
        return position, minor, r2, typed

    def expected_r2(self, chosen: np.ndarray) -> float:
        """The r2 of the dosages of some sites that their probabilities let expect.

        Parameters
        ----------
        chosen : bool (n_sites,)
            Which sites, of all windows.

        Returns
        -------
        float
            Pooled over sites and samples, about the panel's frequencies; NaN where nothing varies.
        """
        explained, left_open = np.concatenate(self.spread)[chosen].sum(axis=0, dtype=np.float64).tolist()
        return explained / (explained + left_open) if explained + left_open else float("nan")

    @property
    def common(self) -> np.ndarray:
        """Imputed sites with a minor allele frequency of COMMON and more, bool (n_sites,)."""
        _, minor, _, typed = self.all()
        return np.asarray(~typed & (minor >= COMMON))

    def by_frequency(self, bins: Sequence[float] = DEFAULT_BINS) -> list[dict[str, Any]]:
        """Mean estimated R2 of imputed sites by minor allele frequency.

        Parameters
        ----------
        bins : sequence of float
            Increasing edges between 0 and 0.5.

        Returns
        -------
        list of dict
            A row for each bin (low, high] that holds imputed sites: bin, sites, r2 (the mean), good (share of
            sites with an R2 of at least GOOD_R2), expected_r2.
        """
        _, minor, r2, typed = self.all()
        rows = []
        for one in frequency_bins(bins):
            chosen = ~typed & one.holds(minor)
            if not chosen.any():
                continue
            rows.append(
                {
                    "bin": one.label,
                    "sites": int(chosen.sum()),
                    "r2": float(r2[chosen].mean()),
                    "good": float((r2[chosen] >= GOOD_R2).mean()),
                    "expected_r2": self.expected_r2(chosen),
                }
            )
        return rows

    def by_chromosome(self) -> list[dict[str, Any]]:
        """Density and quality of each chromosome.

        Returns
        -------
        list of dict
            A row for each chromosome, in the order in which they were added: chrom, sites (of the panel),
            typed, r2 (mean of the `common` sites) and expected_r2 (of the same).
        """
        _, _, r2, typed = self.all()
        chrom = np.repeat(self.chroms, [len(position) for position in self.positions])
        common = self.common
        rows = []
        for name in dict.fromkeys(self.chroms):
            here = chrom == name
            chosen = here & common
            rows.append(
                {
                    "chrom": name,
                    "sites": int(here.sum()),
                    "typed": int((here & typed).sum()),
                    "r2": float(r2[chosen].mean()) if chosen.any() else float("nan"),
                    "expected_r2": self.expected_r2(chosen),
                }
            )
        return rows

    def along(self, n_places: int = 60) -> list[dict[str, Any]]:
        """Density and quality along the chromosome, in equally long segments; for sites of a single one.

        Parameters
        ----------
        n_places : int
            Number of segments.

        Returns
        -------
        list of dict
            A row for each segment: Mb (its middle), length_Mb, sites (of the panel), typed, r2 (mean of the
            `common` sites) and expected_r2 (of the same).
        """
        position, _, r2, typed = self.all()
        edge = np.linspace(position[0], position[-1] + 1, n_places + 1)
        place = np.clip(np.searchsorted(edge, position, side="right") - 1, 0, n_places - 1)
        common = self.common
        rows = []
        for i in range(n_places):
            here = place == i
            chosen = here & common
            rows.append(
                {
                    "Mb": float(edge[i] + edge[i + 1]) / 2e6,
                    "length_Mb": float(edge[i + 1] - edge[i]) / 1e6,
                    "sites": int(here.sum()),
                    "typed": int((here & typed).sum()),
                    "r2": float(r2[chosen].mean()) if chosen.any() else float("nan"),
                    "expected_r2": self.expected_r2(chosen),
                }
            )
        return rows
