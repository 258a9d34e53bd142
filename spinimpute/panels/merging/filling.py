"""Alleles of a panel's haplotypes at sites that it lacks, piece by piece of a chromosome.

Axes: S sites of both panels together, T sites that both have, U sites that one has, N bits of both panels,
P bytes of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spinimpute.panels.merging.lost_sites import fewest_copies, lost_sites
from spinimpute.panels.merging.nearest_carriers import FLANK, nearer_to_carriers
from spinimpute.panels.merging.site_union import ABSENT, SiteUnion
from spinimpute.panels.panel import Panel


@dataclass(frozen=True, eq=False)
class Filling:
    """Two panels, each of which fills in what the other lacks.

    Attributes
    ----------
    panels : (Panel, Panel)
        Open.
    union : SiteUnion
        Their sites.
    """

    panels: tuple[Panel, Panel]
    union: SiteUnion

    @cached_property
    def widths(self) -> tuple[int, int]:
        """Bytes of a site's packed bits in each panel."""
        first, second = self.panels
        return -(-first.n_haplotypes // 8), -(-second.n_haplotypes // 8)

    @cached_property
    def minor_is_ref_S(self) -> np.ndarray:
        """bool: whether REF is the rarer allele in the panel that has the site; of both, in the second."""
        return self._count_S > self._haplotypes_S // 2

    def seeming_carriers(self, start: int, stop: int) -> np.ndarray:
        """How many haplotypes of the panel that lacks a site seem to carry the rarer allele.

        Parameters
        ----------
        start, stop : int
            Sites.

        Returns
        -------
        int64 (stop - start,)
            0 for sites of both.
        """
        found = np.zeros(stop - start, np.int64)
        only_U = self._only(start, stop)
        found[only_U - start] = self._nearer(only_U, below_mutation=False).sum(axis=1)
        return found

    def lost(self, seeming_S: np.ndarray) -> np.ndarray:
        """Where the panel that lacks a site has its rarer allele all the same, bool (S,).

        Parameters
        ----------
        seeming_S : int64 (S,)
            `seeming_carriers` of all sites.

        Returns
        -------
        bool (S,)
            See `lost_sites`.
        """
        lost_S = np.zeros(len(seeming_S), bool)
        shared_T = self.union.shared_T
        counts = [self._counts(number, shared_T) for number in (0, 1)]
        for lacks, has in ((0, 1), (1, 0)):
            chosen = np.flatnonzero(self.union.index_S[lacks] == ABSENT)
            turn_U = self.minor_is_ref_S[chosen]
            size, own = self.panels[has].n_haplotypes, self.panels[lacks].n_haplotypes
            turn_T = counts[has] > size // 2
            lost_S[chosen] = lost_sites(
                seeming_S[chosen],
                np.where(turn_U, size - self._count_S[chosen], self._count_S[chosen]),
                np.where(turn_T, own - counts[lacks], counts[lacks]),
                np.where(turn_T, size - counts[has], counts[has]),
                own,
                size,
                fewest_copies(self.panels[lacks].allele_count, own),
            )
        return lost_S

    def alleles(self, rows: np.ndarray, lost_S: np.ndarray) -> list[np.ndarray]:
        """Alleles of both panels at all sites of a piece.

        Parameters
        ----------
        rows : int64 (n,)
            Consecutive sites.
        lost_S : bool (S,)
            See `lost`.

        Returns
        -------
        list of uint8 (n, n_haplotypes)
            Of each panel; 1 for ALT.
        """
        made = []
        filled = self._only(int(rows[0]), int(rows[-1]) + 1)
        filled = filled[lost_S[filled]]
        nearer_UN = self._nearer(filled, below_mutation=True)
        for number, panel in enumerate(self.panels):
            lacks = self.union.index_S[number][rows] == ABSENT
            alleles = np.zeros((len(rows), panel.n_haplotypes), np.uint8)
            has = self.union.rows(self.panels, number, rows[~lacks])
            alleles[~lacks] = np.unpackbits(has, axis=1, count=panel.n_haplotypes)
            mine = self.union.index_S[number][filled] == ABSENT
            first = 8 * self.widths[0] * number
            alleles[filled[mine] - rows[0]] = nearer_UN[mine, first : first + panel.n_haplotypes]
            alleles[lacks] ^= self.minor_is_ref_S[rows[lacks], None]
            made.append(alleles)
        return made

    @cached_property
    def _count_S(self) -> np.ndarray:
        """Haplotypes with ALT, of the second panel where it has the site."""
        second_has = self.union.index_S[1] != ABSENT
        count_S = np.empty(len(second_has), np.int64)
        for number, chosen in enumerate((~second_has, second_has)):
            at = np.flatnonzero(chosen)
            count_S[at] = self._counts(number, at)
        return count_S

    @cached_property
    def _haplotypes_S(self) -> np.ndarray:
        """Haplotypes of the panel that `_count_S` counts."""
        first, second = self.panels
        return np.where(self.union.index_S[1] != ABSENT, second.n_haplotypes, first.n_haplotypes)

    def _counts(self, number: int, chosen: np.ndarray) -> np.ndarray:
        """Haplotypes of a panel with ALT at sites that it has."""
        panel = self.panels[number]
        count = panel.allele_count[self.union.index_S[number][chosen]]
        turned = self.union.turned_S[chosen] & bool(number)
        return np.where(turned, panel.n_haplotypes - count, count)

    def _only(self, start: int, stop: int) -> np.ndarray:
        """Those of the sites [start, stop) that one panel lacks."""
        lacking = [index[start:stop] == ABSENT for index in self.union.index_S]
        return start + np.flatnonzero(lacking[0] | lacking[1])

    def _nearer(self, only_U: np.ndarray, below_mutation: bool) -> np.ndarray:
        """Who seems to carry the rarer allele, bool (U, N), at some sites that one panel lacks."""
        n_bits = 8 * sum(self.widths)
        if not len(only_U):
            return np.zeros((0, n_bits), bool)
        before = self.union.shared_before_S1[only_U]
        low, high = max(int(before[0]) - FLANK, 0), int(before[-1]) + FLANK
        around_T = self.union.shared_T[low:high]
        packed_TP = np.hstack([self.union.rows(self.panels, number, around_T) for number in (0, 1)])
        second_has_U = self.union.index_S[0][only_U] == ABSENT
        carriers_UP = np.zeros((len(only_U), sum(self.widths)), np.uint8)
        n_first, bits = 8 * self.widths[0], []
        for number, panel in enumerate(self.panels):
            mine = second_has_U == bool(number)
            ones = np.packbits(np.ones(panel.n_haplotypes, np.uint8))
            rows = self.union.rows(self.panels, number, only_U[mine])
            rows[self.minor_is_ref_S[only_U[mine]]] ^= ones
            at = number * self.widths[0]
            carriers_UP[mine, at : at + self.widths[number]] = rows
            bits.append(number * n_first + np.arange(panel.n_haplotypes, dtype=np.int32))
        haplotypes_N = np.concatenate(bits).astype(np.int32)
        return nearer_to_carriers(
            packed_TP, haplotypes_N, n_first, before - low, carriers_UP, second_has_U, below_mutation
        )
