"""Alleles of the panel and of the queries at typed places, packed as bits for fast comparison.

Axes: S typed places, N panel haplotypes, X queries, W 64-bit words, P bytes of a place's packed bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.bit_rows import order_packed, pack_rows, rows_of_packed

MISSING = 2


@dataclass(frozen=True)
class PanelAlleles:
    """A panel's alleles at typed places. No allele is missing."""

    packed_SP: np.ndarray  # uint8, alleles of each place as bits (`numpy.packbits`)
    bits_NW: np.ndarray  # uint64, bit s is set if the allele at place s is 1 (`pack_rows`)

    @classmethod
    def from_alleles(cls, alleles_SN: np.ndarray) -> PanelAlleles:
        """Pack alleles: uint8, 0 or 1."""
        packed_SP = np.packbits(alleles_SN, axis=1)
        return cls(packed_SP, rows_of_packed(packed_SP, alleles_SN.shape[1]))

    @classmethod
    def ordered(cls, packed_SP: np.ndarray, order_N: np.ndarray) -> PanelAlleles:
        """Select haplotypes from packed bits; haplotype i of the result is haplotype order_N[i]."""
        ordered_SP = order_packed(packed_SP, order_N)
        return cls(ordered_SP, rows_of_packed(ordered_SP, len(order_N)))

    def backwards(self) -> PanelAlleles:
        """Return the alleles with the order of places reversed."""
        packed_SP = np.ascontiguousarray(self.packed_SP[::-1])
        return PanelAlleles(packed_SP, rows_of_packed(packed_SP, len(self.bits_NW)))


@dataclass(frozen=True)
class TypedAlleles:
    """The queries' alleles at typed places."""

    alleles_SX: np.ndarray  # uint8, 0, 1 or MISSING
    bits_XW: np.ndarray  # uint64, bit s is set if the allele at place s is 1 (`pack_rows`)
    known_XW: np.ndarray  # uint64, bit s is set if the call at place s is not missing

    @classmethod
    def from_alleles(cls, alleles_SX: np.ndarray) -> TypedAlleles:
        """Pack alleles of any integer type. Values other than 0 and 1 are missing."""
        known_SX = (alleles_SX == 0) | (alleles_SX == 1)
        return cls(
            np.ascontiguousarray(np.where(known_SX, alleles_SX, MISSING).astype(np.uint8)),
            pack_rows((alleles_SX == 1).astype(np.uint8)),
            pack_rows(known_SX.astype(np.uint8)),
        )
