"""Impute the alleles of two panels at sites that one of them lacks, window by window.

`merge` first counts the apparent carriers at every such site. Then `lost_sites`, which explains this term,
decides whether the site was lost or the allele is absent. Finally `merge` asks for the alleles.

Axes: S sites of the union of both panels, T sites in both panels, U sites in one panel, N bits of a site in
both panels, P bytes of these bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.merging.lost_sites import estimate_min_copies, lost_sites
from spinimpute.panels.merging.nearest_carriers import FLANK, match_carriers_longer
from spinimpute.panels.merging.site_union import ABSENT, SiteUnion
from spinimpute.panels.panel import Panel


@dataclass(frozen=True, eq=False)
class Filling:
    """Two open panels and the union of their sites. Each is imputed at the sites that only the other has."""

    panels: tuple[Panel, Panel]
    union: SiteUnion

    @cached_property
    def widths(self) -> tuple[int, int]:
        """Bytes of one site in each panel, as packed bits."""
        first, second = self.panels
        return -(-first.n_haplotypes // 8), -(-second.n_haplotypes // 8)

    @cached_property
    def minor_is_ref_S(self) -> np.ndarray:
        """Whether REF is the rarer allele, in the second panel if that has the site, else in the first."""
        first, second = (panel.n_haplotypes for panel in self.panels)
        return self._count_S > np.where(self.union.index_S[1] != ABSENT, second, first) // 2

    def count_apparent_carriers(self, start: int, stop: int) -> np.ndarray:
        """Count the apparent carriers of the rarer allele in the panel that lacks a site.

        Return int64 (stop - start,). The count is 0 for sites in both panels.
        """
        counts = np.zeros(stop - start, np.int64)
        lacking_U = self._lacking_sites(start, stop)
        counts[lacking_U - start] = self._find_carriers(lacking_U, below_mutation=False).sum(axis=1)
        return counts

    def find_lost(self, apparent_S: np.ndarray) -> np.ndarray:
        """Return the sites, bool (S,), that were lost from the panel that lacks them (see `lost_sites`)."""
        lost_S = np.zeros(len(apparent_S), bool)
        shared_T = self.union.shared_T
        counts = [self._counts(number, shared_T) for number in (0, 1)]
        for lacks, has in ((0, 1), (1, 0)):
            chosen = np.flatnonzero(self.union.index_S[lacks] == ABSENT)
            ref_is_minor_U = self.minor_is_ref_S[chosen]
            n_has, n_lacks = self.panels[has].n_haplotypes, self.panels[lacks].n_haplotypes
            ref_is_minor_T = counts[has] > n_has // 2
            lost_S[chosen] = lost_sites(
                apparent_S[chosen],
                np.where(ref_is_minor_U, n_has - self._count_S[chosen], self._count_S[chosen]),
                np.where(ref_is_minor_T, n_lacks - counts[lacks], counts[lacks]),
                np.where(ref_is_minor_T, n_has - counts[has], counts[has]),
                n_lacks,
                n_has,
                estimate_min_copies(self.panels[lacks].allele_count, n_lacks),
            )
        return lost_S

    def alleles(self, rows: np.ndarray, lost_S: np.ndarray) -> list[np.ndarray]:
        """Return the alleles of both panels at consecutive sites `rows`, each uint8 (n, n_haplotypes).

        `lost_S` is the result of `find_lost`. At other lacking sites, all haplotypes get the major allele. A
        haplotype that has an ALT allele of a record in its panel gets no other one of this record.
        """
        alleles_by_panel = []
        records = self.union.records.multiallelic_within(Interval(int(rows[0]), int(rows[-1]) + 1))
        filled = self._lacking_sites(int(rows[0]), int(rows[-1]) + 1)
        filled = filled[lost_S[filled]]
        carries_UN = self._find_carriers(filled, below_mutation=True)
        for number, panel in enumerate(self.panels):
            lacks = self.union.index_S[number][rows] == ABSENT
            alleles = np.zeros((len(rows), panel.n_haplotypes), np.uint8)
            has = self.union.rows(self.panels, number, rows[~lacks])
            alleles[~lacks] = np.unpackbits(has, axis=1, count=panel.n_haplotypes)
            is_lacking = self.union.index_S[number][filled] == ABSENT
            first = 8 * self.widths[0] * number
            alleles[filled[is_lacking] - rows[0]] = carries_UN[is_lacking, first : first + panel.n_haplotypes]
            alleles[lacks] ^= self.minor_is_ref_S[rows[lacks], None]
            for record in records:
                of_record = slice(record.start - rows[0], record.stop - rows[0])
                _keep_one_alt(alleles[of_record], lacks[of_record])
            alleles_by_panel.append(alleles)
        return alleles_by_panel

    @cached_property
    def _count_S(self) -> np.ndarray:
        """Number of haplotypes with ALT, in the second panel if that has the site, else in the first."""
        second_has = self.union.index_S[1] != ABSENT
        count_S = np.empty(len(second_has), np.int64)
        for number, chosen in enumerate((~second_has, second_has)):
            rows = np.flatnonzero(chosen)
            count_S[rows] = self._counts(number, rows)
        return count_S

    def _counts(self, number: int, chosen: np.ndarray) -> np.ndarray:
        """Return the number of haplotypes with ALT at sites that panel `number` has."""
        panel = self.panels[number]
        count = panel.allele_count[self.union.index_S[number][chosen]]
        swapped = self.union.swapped_S[chosen] & bool(number)
        return np.where(swapped, panel.n_haplotypes - count, count)

    def _lacking_sites(self, start: int, stop: int) -> np.ndarray:
        """Return the sites in [start, stop) that one of the panels lacks."""
        lacking = [index[start:stop] == ABSENT for index in self.union.index_S]
        return start + np.flatnonzero(lacking[0] | lacking[1])

    def _find_carriers(self, lacking_U: np.ndarray, below_mutation: bool) -> np.ndarray:
        """Return the apparent carriers of the rarer allele at sites that one panel lacks, bool (U, N)."""
        n_bits = 8 * sum(self.widths)
        if not len(lacking_U):
            return np.zeros((0, n_bits), bool)
        before = self.union.shared_before_S1[lacking_U]
        low, high = max(int(before[0]) - FLANK, 0), int(before[-1]) + FLANK
        around_T = self.union.shared_T[low:high]
        packed_TP = np.hstack([self.union.rows(self.panels, number, around_T) for number in (0, 1)])
        second_has_U = self.union.index_S[0][lacking_U] == ABSENT
        carriers_UP = np.zeros((len(lacking_U), sum(self.widths)), np.uint8)
        n_first, bits = 8 * self.widths[0], []
        for number, panel in enumerate(self.panels):
            has = second_has_U == bool(number)
            ones = np.packbits(np.ones(panel.n_haplotypes, np.uint8))
            rows = self.union.rows(self.panels, number, lacking_U[has])
            rows[self.minor_is_ref_S[lacking_U[has]]] ^= ones
            first_byte = number * self.widths[0]
            carriers_UP[has, first_byte : first_byte + self.widths[number]] = rows
            bits.append(number * n_first + np.arange(panel.n_haplotypes, dtype=np.int32))
        haplotypes_N = np.concatenate(bits).astype(np.int32)
        return match_carriers_longer(
            packed_TP, haplotypes_N, n_first, before - low, carriers_UP, second_has_U, below_mutation
        )


def _keep_one_alt(alleles_KN: np.ndarray, filled_K: np.ndarray) -> None:
    """Remove filled ALT alleles of a record from haplotypes that have another one. Known alleles stay."""
    has_alt_N = alleles_KN[~filled_K].any(axis=0)
    for k in np.flatnonzero(filled_K):
        alleles_KN[k, has_alt_N] = 0
        has_alt_N |= alleles_KN[k] != 0
