"""Comparison of ALT allele frequencies in a target and in its panel.

A large difference at a site has a technical cause, such as exchanged alleles or a poor assay, or the target
is from another population than the panel. `check` and the report of `impute` list these sites as outliers.

Axis T: the typed sites that are panel sites (matched sites).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import SiteMatch, Sites, complement
from spinimpute.panels.reference import ReferencePanel

# A site is an outlier if its two frequencies differ by more than OUTLIER_MIN_ERRORS standard errors and by
# more than OUTLIER_MIN_DIFFERENCE. If target and panel are from different continents, a third of an array's
# sites are outliers. If they are from one population, hardly any site is an outlier.
OUTLIER_MIN_ERRORS = 8.0
OUTLIER_MIN_DIFFERENCE = 0.2
MIN_SITES_TO_CORRELATE = 100
BLOCK_SITES = 1_000  # sites whose alleles are read together; limits the memory
EXCHANGED = "as common as the panel's other allele: REF and ALT exchanged?"
OTHER_STRAND = "as common as the panel's other allele: on the other strand?"
OTHER_POPULATION = "neither as common as the panel's ALT nor REF: other population, or poor assay?"


@dataclass(frozen=True)
class Frequencies:
    """ALT frequencies of target and panel at the matched sites."""

    called_T: np.ndarray  # int64: number of known alleles in the target
    alt_T: np.ndarray  # int64: number of ALT alleles in the target
    panel_T: np.ndarray  # float64: ALT frequency in the panel
    panel_haplotypes: int

    @classmethod
    def count(cls, panel: ReferencePanel, target: Haplotypes, match: SiteMatch) -> Frequencies:
        """Count the alleles of a target whose alleles have been matched to the panel's (repaired)."""
        called_T, alt_T = np.zeros((2, len(match.target_index)), np.int64)
        for start in range(0, len(called_T), BLOCK_SITES):
            rows = slice(start, start + BLOCK_SITES)
            alleles = target.alleles[match.target_index[rows]]
            called_T[rows], alt_T[rows] = (alleles >= 0).sum(axis=1), (alleles == 1).sum(axis=1)
        return cls(called_T, alt_T, panel.frequency[match.panel_index], panel.n_haplotypes)

    @property
    def target_T(self) -> np.ndarray:
        """ALT frequency in the target, float64; 0 where no allele is known."""
        return self.alt_T / np.maximum(self.called_T, 1)

    @property
    def outlier_T(self) -> np.ndarray:
        """Whether each site is an outlier: its frequencies differ far beyond the sampling error, bool."""
        called_T, n = np.maximum(self.called_T, 1), self.panel_haplotypes
        pooled_T = (self.alt_T + self.panel_T * n) / (self.called_T + n)
        error_T = np.sqrt(pooled_T * (1 - pooled_T) * (1 / called_T + 1 / n))
        difference_T = np.abs(self.target_T - self.panel_T)
        return (
            (self.called_T > 0)
            & (difference_T > OUTLIER_MIN_ERRORS * error_T)
            & (difference_T > OUTLIER_MIN_DIFFERENCE)
        )

    @property
    def exchanged_T(self) -> np.ndarray:
        """Whether each site is an outlier that would fit better if REF and ALT were exchanged, bool."""
        target_T = self.target_T
        other_T, own_T = np.abs(target_T - (1 - self.panel_T)), np.abs(target_T - self.panel_T)
        return self.outlier_T & (other_T < own_T)

    def correlation(self) -> float:
        """Return the correlation of the two frequencies over sites; 0 if too few sites can be compared."""
        known_T = self.called_T > 0
        if np.count_nonzero(known_T) < MIN_SITES_TO_CORRELATE:
            return 0.0
        pair = np.stack([self.target_T[known_T], self.panel_T[known_T]])
        return float(np.corrcoef(pair)[0, 1]) if (np.ptp(pair, axis=1) > 0).all() else 0.0


@dataclass
class TypedFrequencies:
    """Frequencies at the typed sites of several targets, such as one for each chromosome."""

    targets: list[tuple[Sites, Frequencies]] = field(default_factory=list)

    def add(self, panel: ReferencePanel, target: Haplotypes, match: SiteMatch) -> None:
        """Add the matched sites of a target; see `Frequencies.count`."""
        self.targets.append((panel.sites.take(match.panel_index), Frequencies.count(panel, target, match)))

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three columns: ALT frequency in the target, in the panel, and whether it is an outlier.

        They contain the sites at which an allele of the target is known.
        """
        target, panel, outlier = [np.empty(0)], [np.empty(0)], [np.empty(0, bool)]
        for _, compared in self.targets:
            known_T = compared.called_T > 0
            target.append(compared.target_T[known_T])
            panel.append(compared.panel_T[known_T])
            outlier.append(compared.outlier_T[known_T])
        return np.concatenate(target), np.concatenate(panel), np.concatenate(outlier)

    @property
    def max_known_alleles(self) -> int:
        """Largest number of known alleles of the target at any site."""
        return max((int(compared.called_T.max(initial=0)) for _, compared in self.targets), default=0)

    def correlation(self) -> float:
        """Return the correlation of the two frequencies over sites; NaN if too few sites can be compared."""
        target, panel, _ = self.columns()
        if len(target) < MIN_SITES_TO_CORRELATE or np.ptp(target) == 0 or np.ptp(panel) == 0:
            return float("nan")
        return float(np.corrcoef(target, panel)[0, 1])

    def outliers(self) -> list[dict[str, Any]]:
        """Return a row for each outlier, the largest difference first.

        Columns: chrom, position, id, ref, alt, target and panel (ALT frequencies), alleles (number of known
        alleles in the target), what (likely cause).
        """
        rows = []
        for sites, compared in self.targets:
            target_T, exchanged_T = compared.target_T, compared.exchanged_T
            for t in np.flatnonzero(compared.outlier_T).tolist():
                ref, alt = sites.ref[t], sites.alt[t]
                swap = OTHER_STRAND if complement(ref.upper()) == alt.upper() else EXCHANGED
                rows.append(
                    {
                        "chrom": sites.chrom,
                        "position": int(sites.position[t]),
                        "id": sites.id[t],
                        "ref": ref,
                        "alt": alt,
                        "target": float(target_T[t]),
                        "panel": float(compared.panel_T[t]),
                        "alleles": int(compared.called_T[t]),
                        "what": swap if exchanged_T[t] else OTHER_POPULATION,
                    }
                )
        return sorted(rows, key=lambda row: -abs(row["target"] - row["panel"]))
