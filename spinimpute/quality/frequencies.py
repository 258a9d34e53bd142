"""Allele frequencies of a target beside those of its panel, at the sites that both have.

Axes: T matched sites.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.letters import complement
from spinimpute.genotypes.sites import SiteMatch, Sites
from spinimpute.panels.reference import ReferencePanel

# Frequencies of a site differ by so many standard errors, and by so much at least. Peoples of two continents
# differ so at a third of an array's sites, those of one at hardly any.
OUTLIER = 8.0
OUTLIER_DIFFERENCE = 0.2
COMPARABLE_SITES = 100  # for a correlation
BLOCK_SITES = 1_000  # of which alleles are counted at once; bounds the memory
EXCHANGED = "as common as the panel's other allele: REF and ALT exchanged?"
OTHER_STRAND = "as common as the panel's other allele: on the other strand?"
OTHER_PEOPLE = "between both: other people than the panel's, or a bad assay?"


@dataclass(frozen=True)
class Frequencies:
    """ALT frequencies of target and panel at the matched sites.

    Attributes
    ----------
    called_T, alt_T : int64 (T,)
        Alleles of the target that are known, and those that are ALT.
    expected_T : float64 (T,)
        The panel's frequencies.
    panel_haplotypes : int
        What these are counted from.
    """

    called_T: np.ndarray
    alt_T: np.ndarray
    expected_T: np.ndarray
    panel_haplotypes: int

    @classmethod
    def of(cls, panel: ReferencePanel, target: Haplotypes, match: SiteMatch) -> Frequencies:
        """Count the alleles of a repaired target."""
        called_T, alt_T = np.zeros((2, len(match.target_index)), np.int64)
        for start in range(0, len(called_T), BLOCK_SITES):
            some = slice(start, start + BLOCK_SITES)
            alleles = target.alleles[match.target_index[some]]
            called_T[some], alt_T[some] = (alleles >= 0).sum(axis=1), (alleles == 1).sum(axis=1)
        return cls(called_T, alt_T, panel.frequency[match.panel_index], panel.n_haplotypes)

    @property
    def found_T(self) -> np.ndarray:
        """float64 (T,): the target's frequencies, 0 where no allele is known."""
        return self.alt_T / np.maximum(self.called_T, 1)

    @property
    def odd_T(self) -> np.ndarray:
        """bool (T,): sites of which the frequencies differ far beyond sampling error."""
        called_T, n = np.maximum(self.called_T, 1), self.panel_haplotypes
        pooled_T = (self.alt_T + self.expected_T * n) / (self.called_T + n)
        error_T = np.sqrt(pooled_T * (1 - pooled_T) * (1 / called_T + 1 / n))
        difference_T = np.abs(self.found_T - self.expected_T)
        return (self.called_T > 0) & (difference_T > OUTLIER * error_T) & (difference_T > OUTLIER_DIFFERENCE)

    @property
    def exchanged_T(self) -> np.ndarray:
        """bool (T,): odd sites that fit the frequency of the panel's other allele better."""
        found_T = self.found_T
        other_T, own_T = np.abs(found_T - (1 - self.expected_T)), np.abs(found_T - self.expected_T)
        return self.odd_T & (other_T < own_T)

    def correlation(self) -> float:
        """Of the frequencies of target and panel; 0 where too few sites can be compared."""
        known_T = self.called_T > 0
        if np.count_nonzero(known_T) < COMPARABLE_SITES:
            return 0.0
        pair = np.stack([self.found_T[known_T], self.expected_T[known_T]])
        return float(np.corrcoef(pair)[0, 1]) if (np.ptp(pair, axis=1) > 0).all() else 0.0


@dataclass
class TypedFrequencies:
    """Frequencies at typed sites, collected from one part of a chromosome after the other.

    Attributes
    ----------
    parts : list of (Sites, Frequencies)
        The sites as the panel has them.
    """

    parts: list[tuple[Sites, Frequencies]] = field(default_factory=list)

    def add(self, panel: ReferencePanel, target: Haplotypes, match: SiteMatch) -> None:
        """Add the matched sites of a repaired target."""
        self.parts.append((panel.sites.take(match.panel_index), Frequencies.of(panel, target, match)))

    def all(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of sites with calls: the target's ALT frequency, the panel's, and whether they are far apart."""
        found, expected, odd = [np.empty(0)], [np.empty(0)], [np.empty(0, bool)]
        for _, one in self.parts:
            known_T = one.called_T > 0
            found.append(one.found_T[known_T])
            expected.append(one.expected_T[known_T])
            odd.append(one.odd_T[known_T])
        return np.concatenate(found), np.concatenate(expected), np.concatenate(odd)

    @property
    def most_alleles(self) -> int:
        """Of the target, known at a site."""
        return max((int(one.called_T.max(initial=0)) for _, one in self.parts), default=0)

    def correlation(self) -> float:
        """Of the frequencies of target and panel; NaN where too few sites can be compared."""
        found, expected, _ = self.all()
        if len(found) < COMPARABLE_SITES or np.ptp(found) == 0 or np.ptp(expected) == 0:
            return float("nan")
        return float(np.corrcoef(found, expected)[0, 1])

    def far_off(self) -> list[dict[str, Any]]:
        """Sites of which the frequencies differ far beyond sampling error, the furthest first.

        Returns
        -------
        list of dict
            A row for each: chrom, position, id, ref, alt, target and panel (ALT frequencies), alleles (of the
            target, known), what (it looks like).
        """
        rows = []
        for sites, one in self.parts:
            found_T, exchanged_T = one.found_T, one.exchanged_T
            for t in np.flatnonzero(one.odd_T).tolist():
                ref, alt = sites.ref[t], sites.alt[t]
                turned = OTHER_STRAND if complement(ref.upper()) == alt.upper() else EXCHANGED
                rows.append(
                    {
                        "chrom": sites.chrom,
                        "position": int(sites.position[t]),
                        "id": sites.id[t],
                        "ref": ref,
                        "alt": alt,
                        "target": float(found_T[t]),
                        "panel": float(one.expected_T[t]),
                        "alleles": int(one.called_T[t]),
                        "what": turned if exchanged_T[t] else OTHER_PEOPLE,
                    }
                )
        return sorted(rows, key=lambda row: -abs(row["target"] - row["panel"]))
