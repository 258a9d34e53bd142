"""The alleles of a large panel in a form from which the alleles of a few haplotypes are read quickly.

At most sites of a large panel, few haplotypes have the minor allele. For these rare sites, each haplotype has
a list of the sites at which it has the minor allele. For the common sites, all alleles are kept as bits, one
row per haplotype. `states` takes the haplotypes that were chosen for a sample.

Axes: S sites, D common sites, B bytes of a site's packed bits, C minor alleles at the rare sites, N
haplotypes, K chosen haplotypes, W 64-bit words, R sites at which the chosen haplotypes differ; N1: one more
than N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from spinimpute.genotypes.bit_rows import rows_of_packed, unpack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.panel import Panel

BATCH_BYTES = 2**24  # of packed alleles


@dataclass(frozen=True, eq=False)
class HaplotypeAlleles:
    """Alleles of a panel at consecutive sites."""

    common_D: np.ndarray  # int64, the common sites, counted from the first site, increasing
    bits_NW: np.ndarray  # uint64, alleles at the common sites (`pack_rows`)
    # int32, one list per haplotype: the rare sites where it has the minor allele, increasing
    site_C: np.ndarray
    first_N1: np.ndarray  # int64, start of each haplotype's list in site_C, and the end of the last list
    alt_is_major_S: np.ndarray  # bool, sites where more than half of the haplotypes have ALT
    minor_count_S: np.ndarray  # int64, number of haplotypes with the minor allele

    @classmethod
    def read(cls, panel: Panel, sites: Interval, common_D: np.ndarray, packed_DB: np.ndarray) -> Self:
        """Read the rare alleles of a panel at consecutive sites; packed_DB: its alleles at common_D."""
        n, count_S = panel.n_haplotypes, panel.allele_count[sites.slice]
        bits_NW = rows_of_packed(packed_DB, n)
        alt_is_major_S = count_S > n // 2
        minor_count_S = np.minimum(count_S, n - count_S)
        rare_R = np.setdiff1d(np.flatnonzero(minor_count_S), common_D)
        site, haplotype = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        step = max(1, BATCH_BYTES // -(-n // 8))
        for low in range(0, len(rare_R), step):
            rows_R = rare_R[low : low + step]
            packed_RB = panel.packed_rows(sites.start + rows_R)
            packed_RB[alt_is_major_S[rows_R]] ^= 255
            row, byte = np.nonzero(packed_RB)  # few bytes; only these are unpacked
            byte_of_carrier, bit = np.nonzero(np.unpackbits(packed_RB[row, byte][:, None], axis=1))
            carrier = 8 * byte[byte_of_carrier] + bit
            is_haplotype = carrier < n  # excludes the padding bits of a row, which ^= 255 has set
            site.append(rows_R[row[byte_of_carrier[is_haplotype]]].astype(np.int32))
            haplotype.append(carrier[is_haplotype].astype(np.int32))
        haplotype_C = np.concatenate(haplotype)
        order_C = np.argsort(haplotype_C, kind="stable")
        first_N1 = np.searchsorted(haplotype_C[order_C], np.arange(n + 1))
        site_C = np.concatenate(site)[order_C]
        return cls(common_D, bits_NW, site_C, first_N1, alt_is_major_S, minor_count_S)

    def take(
        self, chosen_K: np.ndarray, min_carriers_K: np.ndarray, sites: Interval
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the alleles of the haplotypes chosen_K at the interval `sites`.

        Returns three arrays: the sites at which these haplotypes may differ, int64 (R,); their alleles there,
        uint8 (R, K); and for all sites, uint8, the allele that they share if they do not differ.
        min_carriers_K: for each haplotype, rare alleles with fewer carriers in the panel are ignored.
        """
        low, high = sites
        first, last = np.searchsorted(self.common_D, [low, high])
        common_D = self.common_D[first:last]
        word = first >> 6
        bits_KW = self.bits_NW[chosen_K, word : (last + 63) >> 6]
        common_KD = unpack_rows(bits_KW, last - 64 * word)[:, first - 64 * word :]
        same_S = self.alt_is_major_S[low:high].astype(np.uint8)
        same_S[common_D - low] = common_KD[0]
        differs_D = (common_KD != common_KD[:1]).any(axis=0)
        site_C, column_C = self._rare_alleles(chosen_K, min_carriers_K, low, high)
        site_R = np.union1d(site_C, common_D[differs_D])
        alleles_RK = np.zeros((len(site_R), len(chosen_K)), np.uint8)
        alleles_RK[np.searchsorted(site_R, site_C), column_C] = 1
        alleles_RK ^= self.alt_is_major_S[site_R, None]
        alleles_RK[np.searchsorted(site_R, common_D[differs_D])] = common_KD[:, differs_D].T
        return site_R, alleles_RK, same_S

    def _rare_alleles(
        self, chosen_K: np.ndarray, min_carriers_K: np.ndarray, low: int, high: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the minor alleles at the rare sites [low, high): site and index in chosen_K of each."""
        length_K = self.first_N1[chosen_K + 1] - self.first_N1[chosen_K]
        column_C = np.repeat(np.arange(len(chosen_K)), length_K)
        list_K = np.cumsum(length_K) - length_K  # index of each list
        index_C = np.arange(len(column_C)) + np.repeat(self.first_N1[chosen_K] - list_K, length_K)
        site_C = self.site_C[index_C].astype(np.int64)
        kept_C = (site_C >= low) & (site_C < high) & (self.minor_count_S[site_C] >= min_carriers_K[column_C])
        return site_C[kept_C], column_C[kept_C]
