"""Alleles of one multi-allelic site, which are separate sites here: a haplotype carries at most one of them.

Axes: T typed sites, E pairs of an untyped and a typed site, Q haplotypes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.sites import Sites


@dataclass(frozen=True)
class ExclusiveAlleles:
    """Pairs of sites of a panel whose ALT alleles exclude each other; one of the two sites is typed.

    Attributes
    ----------
    site_E : int64 (E,)
        The panel sites that may be untyped, never decreasing.
    typed_E : int64 (E,)
        Rows of the typed sites.
    """

    site_E: np.ndarray
    typed_E: np.ndarray

    @classmethod
    def of(cls, sites: Sites, typed_index: np.ndarray) -> ExclusiveAlleles:
        """Find the pairs: sites of one position and REF; both ALT alleles have the length of REF, or neither.

        An insertion does not exclude a SNP at the base before it: panels have haplotypes with both.

        Parameters
        ----------
        sites : Sites
            Of the panel.
        typed_index : int64 (T,)
            The typed panel sites, increasing.

        Returns
        -------
        ExclusiveAlleles
            All pairs.
        """
        position = sites.position
        first_T, stop_T = (
            np.searchsorted(position, position[typed_index], side) for side in ("left", "right")
        )
        pairs = []
        for t in np.flatnonzero(stop_T - first_T > 1).tolist():
            typed = int(typed_index[t])
            kind = _kind(sites, typed)
            others = range(int(first_T[t]), int(stop_T[t]))
            pairs += [(site, t) for site in others if site != typed and _kind(sites, site) == kind]
        site_E, typed_E = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        return cls(site_E, typed_E)

    def exclude(self, start: int, p_UQ: np.ndarray, typed_TQ: np.ndarray) -> None:
        """Set P(ALT) to 0 on the haplotypes that carry a typed ALT allele of the same site.

        A typed REF excludes nothing: in a file of split multi-allelic records it may be any other allele of
        the site (`bcftools norm -m-` writes 1/2 as 1/0 and 0/1).

        Parameters
        ----------
        start : int
            The first panel site of p_UQ.
        p_UQ : float32 (U, Q)
            P(ALT), changed in place.
        typed_TQ : int8 (T, Q)
            Alleles at the typed sites, -1 where missing.
        """
        low, high = np.searchsorted(self.site_E, [start, start + len(p_UQ)])
        for site, t in zip(self.site_E[low:high].tolist(), self.typed_E[low:high].tolist(), strict=True):
            p_UQ[site - start, typed_TQ[t] == 1] = 0


def _kind(sites: Sites, site: int) -> tuple[str, bool]:
    """REF, and whether ALT has its length."""
    return sites.ref[site].upper(), len(sites.ref[site]) == len(sites.alt[site])
