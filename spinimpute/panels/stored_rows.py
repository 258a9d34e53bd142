"""Encode and decode the haplotypes of a site (a *row*) in a panel file.

A row is stored in the shorter of two formats: bits, in the order of `numpy.packbits`, or a list of the
haplotypes that carry the minor allele. (If both are equally long, bits are used.) A list has the increasing
indexes of the haplotypes as little-endian uint16, or as uint32 in panels of more than 65,536 haplotypes. The
minor allele is ALT, or REF if more than half of the haplotypes carry ALT. The format and the length of a row
therefore follow from the site's allele count and the number of haplotypes, and need not be stored.

Axes: X sites, I selected sites, N haplotypes, B bytes of a site's packed bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_FOR_UINT16 = 65_536  # maximum number of haplotypes whose indexes fit into uint16


class StoredRows(NamedTuple):
    """Rows of consecutive sites in the format of the file, for kernels. See `RowLayout` for the fields."""

    stored: np.ndarray  # all rows of the panel, uint8
    start_X1: np.ndarray
    listed_X: np.ndarray
    ref_is_minor_X: np.ndarray
    number_bytes: int


@dataclass(frozen=True, eq=False)
class RowLayout:
    """The locations and formats of the rows of consecutive sites."""

    n_haplotypes: int
    number_bytes: int  # bytes of a haplotype's index in a list, 2 or 4
    listed_X: np.ndarray  # whether a row is a list, bool (X,)
    ref_is_minor_X: np.ndarray  # whether a list would have the haplotypes with REF, bool (X,)
    start_X1: np.ndarray  # first byte of each row, and the end of the last, int64 (X + 1,)

    @classmethod
    def of(cls, allele_count_X: np.ndarray, n_haplotypes: int, lists: bool = True) -> RowLayout:
        """Return the layout for sites with these allele counts, the numbers of haplotypes with ALT.

        Without `lists`, all rows are bits, as in version 1 of panel files.
        """
        count_X = allele_count_X.astype(np.int64, copy=False)
        ref_is_minor_X = count_X > n_haplotypes // 2
        number_bytes = 2 if n_haplotypes <= MAX_FOR_UINT16 else 4
        list_bytes_X = np.minimum(count_X, n_haplotypes - count_X) * number_bytes
        n_bytes = -(-n_haplotypes // 8)
        listed_X = (list_bytes_X < n_bytes) & lists
        start_X1 = np.zeros(len(count_X) + 1, dtype=np.int64)
        np.cumsum(np.where(listed_X, list_bytes_X, n_bytes), out=start_X1[1:])
        return cls(n_haplotypes, number_bytes, listed_X, ref_is_minor_X, start_X1)

    def expand(self, stored: np.ndarray, index_I: np.ndarray) -> np.ndarray:
        """Return selected rows as packed bits, uint8 (I, B).

        If a list is damaged, the bits of its site are wrong, but nothing outside the array is written.
        """
        # numba loads slowly, and commands that read no haplotypes do not need it
        from spinimpute.genotypes.bit_rows import expand_rows

        n = self.n_haplotypes
        packed_IB = np.empty((len(index_I), -(-n // 8)), dtype=np.uint8)
        expand_rows(
            stored,
            self.start_X1,
            self.listed_X,
            self.ref_is_minor_X,
            index_I,
            n,
            self.number_bytes,
            packed_IB,
        )
        return packed_IB

    def rows(self, stored: np.ndarray, start: int, stop: int) -> StoredRows:
        """Return the rows [start, stop) as a view. `stored` are all rows."""
        return StoredRows(
            stored,
            self.start_X1[start : stop + 1],
            self.listed_X[start:stop],
            self.ref_is_minor_X[start:stop],
            self.number_bytes,
        )


def allele_counts(packed_XB: np.ndarray) -> np.ndarray:
    """Return the number of haplotypes with ALT at each site, uint32 (X,), from packed bits, uint8 (X, B)."""
    return np.bitwise_count(packed_XB).sum(axis=1, dtype=np.uint32)


def store_rows(packed_XB: np.ndarray, n_haplotypes: int) -> bytes:
    """Encode packed bits, uint8 (X, B), in the format of a panel file. Bits after the last haplotype are 0.

    The layout of the result is `RowLayout.of` the allele counts.
    """
    layout = RowLayout.of(allele_counts(packed_XB), n_haplotypes)
    listed_X = layout.listed_X
    mask_X = np.where(layout.ref_is_minor_X, 255, 0).astype(np.uint8)
    minor_XB = packed_XB[listed_X] ^ mask_X[listed_X, None]
    row, byte = np.nonzero(minor_XB)
    entry, bit = np.nonzero(np.unpackbits(minor_XB[row, byte][:, None], axis=1))
    carriers = byte[entry] * 8 + bit
    carriers = carriers[carriers < n_haplotypes]  # drop the inverted bits after the last haplotype
    stored = np.empty(layout.start_X1[-1], dtype=np.uint8)
    is_list = np.repeat(listed_X, np.diff(layout.start_X1))
    stored[is_list] = carriers.astype(f"<u{layout.number_bytes}").view(np.uint8)
    stored[~is_list] = packed_XB[~listed_X].ravel()
    return stored.tobytes()
