"""Alleles of a panel and of queries at the typed places of a chunk.

Axes: S typed places, N panel haplotypes, X queries, W 64-bit words, P bytes of packed bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.bit_rows import order_packed, pack_rows, rows_of_packed

MISSING = 2


@dataclass(frozen=True)
class PanelAlleles:
    """A panel's alleles at typed places, none missing.

    Attributes
    ----------
    packed_SP : uint8
        Packed bits of each place (`numpy.packbits`).
    bits_NW : uint64
        Bit s is set if the allele at place s is 1 (`pack_rows`).
    """

    packed_SP: np.ndarray
    bits_NW: np.ndarray

    @classmethod
    def of(cls, alleles_SN: np.ndarray) -> PanelAlleles:
        """Pack alleles, uint8, 0 or 1."""
        return cls._of_packed(np.packbits(alleles_SN, axis=1), alleles_SN.shape[1])

    @classmethod
    def ordered(cls, packed_SP: np.ndarray, order_N: np.ndarray) -> PanelAlleles:
        """Put the haplotypes of packed bits into an order."""
        return cls._of_packed(order_packed(packed_SP, order_N), len(order_N))

    def backwards(self) -> PanelAlleles:
        """Return the alleles in reverse order of places."""
        return self._of_packed(np.ascontiguousarray(self.packed_SP[::-1]), len(self.bits_NW))

    @classmethod
    def _of_packed(cls, packed_SP: np.ndarray, n_haplotypes: int) -> PanelAlleles:
        return cls(packed_SP, rows_of_packed(packed_SP, n_haplotypes))


@dataclass(frozen=True)
class TypedAlleles:
    """Alleles of queries at typed places.

    Attributes
    ----------
    alleles_SX : uint8
        0, 1 or MISSING.
    bits_XW : uint64
        Bit s is set if the allele at place s is 1 (`pack_rows`).
    known_XW : uint64
        Bit s is set if the call at place s is not missing.
    """

    alleles_SX: np.ndarray
    bits_XW: np.ndarray
    known_XW: np.ndarray

    @classmethod
    def of(cls, alleles_SX: np.ndarray) -> TypedAlleles:
        """Pack alleles of any integer type; all but 0 and 1 are missing."""
        known_SX = (alleles_SX == 0) | (alleles_SX == 1)
        return cls(
            np.ascontiguousarray(np.where(known_SX, alleles_SX, MISSING).astype(np.uint8)),
            pack_rows((alleles_SX == 1).astype(np.uint8)),
            pack_rows(known_SX.astype(np.uint8)),
        )

    def backwards(self) -> TypedAlleles:
        """Return the alleles in reverse order of places."""
        return TypedAlleles.of(self.alleles_SX[::-1])
