"""Alleles of some haplotypes of a large panel, without reading all of it.

At most sites of a large panel few haplotypes have the minor allele. For these sites, each haplotype has a
list of the sites where it has the minor allele. At the other sites all alleles are kept as bits, haplotype
by haplotype.

Axes: S sites, D of them with bits, B bytes of those, C minor alleles at the others, N haplotypes, K chosen
ones, W words of bits, R sites where these differ.
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

    common_D: np.ndarray  # int64, sites with bits
    bits_NW: np.ndarray  # uint64, their ALT alleles (`pack_rows`)
    # int32, other sites where haplotypes have the minor allele: lists, increasing, haplotype by haplotype
    site_C: np.ndarray
    first_N1: np.ndarray  # int64, index of each haplotype's list, and the end of the last one
    alt_is_major_S: np.ndarray  # bool, sites where more than half of the panel has ALT
    minor_count_S: np.ndarray  # int64, number of haplotypes with the minor allele

    @classmethod
    def read(cls, panel: Panel, sites: Interval, common_D: np.ndarray, packed_DB: np.ndarray) -> Self:
        """Read a panel's alleles; sites common_D, counted from the first one, have these packed alleles."""
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
            row, byte = np.nonzero(packed_RB)  # few bytes, whose bits are all unpacked
            byte_of_carrier, bit = np.nonzero(np.unpackbits(packed_RB[row, byte][:, None], axis=1))
            carrier = 8 * byte[byte_of_carrier] + bit
            is_one = carrier < n  # not one of the bits that pad a row
            site.append(rows_R[row[byte_of_carrier[is_one]]].astype(np.int32))
            haplotype.append(carrier[is_one].astype(np.int32))
        haplotype_C = np.concatenate(haplotype)
        order_C = np.argsort(haplotype_C, kind="stable")
        first_N1 = np.searchsorted(haplotype_C[order_C], np.arange(n + 1))
        site_C = np.concatenate(site)[order_C]
        return cls(common_D, bits_NW, site_C, first_N1, alt_is_major_S, minor_count_S)

    def take(
        self, chosen_K: np.ndarray, min_carriers_K: np.ndarray, sites: Interval
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the alleles of some haplotypes.

        Returns three arrays: the sites where these haplotypes may differ, int64 (R,); their alleles there,
        uint8 (R, K); and for all sites, uint8, the allele that they share if they do not differ.
        min_carriers_K: a haplotype is assumed not to have a rare allele that fewer panel haplotypes have.
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
        """Return the rare sites where chosen haplotypes have the minor allele, and which of the chosen."""
        length_K = self.first_N1[chosen_K + 1] - self.first_N1[chosen_K]
        column_C = np.repeat(np.arange(len(chosen_K)), length_K)
        list_K = np.cumsum(length_K) - length_K  # index of each list
        at_C = np.arange(len(column_C)) + np.repeat(self.first_N1[chosen_K] - list_K, length_K)
        site_C = self.site_C[at_C].astype(np.int64)
        here_C = (site_C >= low) & (site_C < high) & (self.minor_count_S[site_C] >= min_carriers_K[column_C])
        return site_C[here_C], column_C[here_C]
