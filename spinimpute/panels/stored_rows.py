"""The haplotypes of sites (*rows*) in the format in which kernels read them.

A row has the shorter of two formats: bits, in the order of `numpy.packbits`, or a list of the haplotypes that
carry the minor allele. (If both are equally long, bits are used.) A list has the increasing indexes of the
haplotypes as little-endian uint16, or as uint32 in panels of more than 65,536 haplotypes. The minor allele is
ALT, or REF if more than half of the haplotypes carry ALT. The format and the length of a row therefore follow
from the site's allele count and the number of haplotypes. Panel files store rows in fewer bytes
(`haplotype_runs`).

Axes: X sites, I selected sites, N haplotypes, B bytes of a site's packed bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_FOR_UINT16 = 65_536  # maximum number of haplotypes whose indexes fit into uint16


class StoredRows(NamedTuple):
    """Rows of consecutive sites, for kernels. See `RowLayout` for the fields."""

    stored: np.ndarray  # the rows, one after another, uint8
    start_X1: np.ndarray
    listed_X: np.ndarray
    ref_is_minor_X: np.ndarray
    number_bytes: int

    def part(self, start: int, stop: int) -> StoredRows:
        """Return the rows of the sites [start, stop) as a view."""
        return StoredRows(
            self.stored,
            self.start_X1[start : stop + 1],
            self.listed_X[start:stop],
            self.ref_is_minor_X[start:stop],
            self.number_bytes,
        )

    def expand(self, index_I: np.ndarray, n_haplotypes: int) -> np.ndarray:
        """Return selected rows as packed bits, uint8 (I, B)."""
        # numba loads slowly, and commands that read no haplotypes do not need it
        from spinimpute.genotypes.bit_rows import expand_rows

        packed_IB = np.empty((len(index_I), -(-n_haplotypes // 8)), dtype=np.uint8)
        expand_rows(*self[:4], index_I, n_haplotypes, self.number_bytes, packed_IB)
        return packed_IB


def join_rows(parts: Sequence[StoredRows]) -> StoredRows:
    """Return the rows of consecutive parts. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    stored = np.concatenate([part.stored[part.start_X1[0] : part.start_X1[-1]] for part in parts])
    stored.flags.writeable = False
    start_X1 = np.zeros(1 + sum(len(part.listed_X) for part in parts), dtype=np.int64)
    np.cumsum(np.concatenate([np.diff(part.start_X1) for part in parts]), out=start_X1[1:])
    return StoredRows(
        stored,
        start_X1,
        np.concatenate([part.listed_X for part in parts]),
        np.concatenate([part.ref_is_minor_X for part in parts]),
        parts[0].number_bytes,
    )


@dataclass(frozen=True, eq=False)
class RowLayout:
    """The locations and formats of the rows of consecutive sites."""

    n_haplotypes: int
    number_bytes: int  # bytes of a haplotype's index in a list, 2 or 4
    minor_X: np.ndarray  # haplotypes with the minor allele, int64 (X,)
    listed_X: np.ndarray  # whether a row is a list, bool (X,)
    ref_is_minor_X: np.ndarray  # whether the minor allele is REF, bool (X,)
    start_X1: np.ndarray  # first byte of each row, and the end of the last, int64 (X + 1,)

    @classmethod
    def of(cls, allele_count_X: np.ndarray, n_haplotypes: int) -> RowLayout:
        """Return the layout for sites with these allele counts, the numbers of haplotypes with ALT."""
        count_X = allele_count_X.astype(np.int64, copy=False)
        ref_is_minor_X = count_X > n_haplotypes // 2
        minor_X = np.minimum(count_X, n_haplotypes - count_X)
        number_bytes = 2 if n_haplotypes <= MAX_FOR_UINT16 else 4
        n_bytes = -(-n_haplotypes // 8)
        listed_X = minor_X * number_bytes < n_bytes
        start_X1 = np.zeros(len(count_X) + 1, dtype=np.int64)
        np.cumsum(np.where(listed_X, minor_X * number_bytes, n_bytes), out=start_X1[1:])
        return cls(n_haplotypes, number_bytes, minor_X, listed_X, ref_is_minor_X, start_X1)

    def rows(self, stored: np.ndarray) -> StoredRows:
        """Return the rows, for kernels. `stored` are their bytes, uint8."""
        return StoredRows(stored, self.start_X1, self.listed_X, self.ref_is_minor_X, self.number_bytes)


def allele_counts(packed_XB: np.ndarray) -> np.ndarray:
    """Return the number of haplotypes with ALT at each site, uint32 (X,), from packed bits, uint8 (X, B)."""
    return np.bitwise_count(packed_XB).sum(axis=1, dtype=np.uint32)


def store_rows(packed_XB: np.ndarray, n_haplotypes: int) -> bytes:
    """Return the rows of packed bits, uint8 (X, B). Bits after the last haplotype are 0.

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
