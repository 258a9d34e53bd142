"""How a panel file stores the haplotypes of a site: one bit each, or a list of those with the minor allele.

A site's row takes the shorter of the two forms, bits if both are equally long. Bits are those of
`numpy.packbits`. A list holds the numbers of the haplotypes, increasing, as little-endian uint16 if there are
at most 65,536 haplotypes, else uint32. The minor allele is ALT, or REF where more than half of the haplotypes
carry ALT. So a row's form and length follow from the site's allele count and the number of haplotypes.

The module's compiled part is `expand_rows`.

Axes: X sites, I chosen sites, N haplotypes, B bytes of a site's packed bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MOST_FOR_UINT16 = 65_536  # haplotypes


def number_type(n_haplotypes: int) -> np.dtype:
    """The type of the haplotypes' numbers in lists."""
    return np.dtype("<u2" if n_haplotypes <= MOST_FOR_UINT16 else "<u4")


class StoredRows(NamedTuple):
    """Rows as they are stored, for kernels that need no more of a list than its haplotypes.

    Attributes
    ----------
    stored : uint8
        All rows of a panel.
    start_X1 : int64 (X + 1,)
        The first byte of each of some consecutive rows, and the end of the last.
    listed_X, ref_is_minor_X : bool (X,)
        See `RowLayout`; ref_is_minor_X is known of rows of bits, too.
    number_bytes : int
        Of a haplotype's number in a list.
    """

    stored: np.ndarray
    start_X1: np.ndarray
    listed_X: np.ndarray
    ref_is_minor_X: np.ndarray
    number_bytes: int


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Where the rows of some consecutive sites lie, one behind the other.

    Attributes
    ----------
    n_haplotypes : int
        N.
    listed_X : bool (X,)
        Whether a row is a list.
    ref_is_minor_X : bool (X,)
        Whether a list has the haplotypes with REF.
    start_X1 : int64 (X + 1,)
        The first byte of each row, and the end of the last.
    """

    n_haplotypes: int
    listed_X: np.ndarray
    ref_is_minor_X: np.ndarray
    start_X1: np.ndarray

    @classmethod
    def of(cls, allele_count_X: np.ndarray, n_haplotypes: int, lists: bool = True) -> RowLayout:
        """The layout that follows from allele counts.

        Parameters
        ----------
        allele_count_X : integers (X,)
            Haplotypes with ALT, from 0 to n_haplotypes.
        n_haplotypes : int
            N.
        lists : bool
            False where all rows are bits, as in the first version of panel files.

        Returns
        -------
        RowLayout
            Of these sites.
        """
        count_X = allele_count_X.astype(np.int64, copy=False)
        ref_is_minor_X = count_X > n_haplotypes // 2
        list_bytes_X = np.minimum(count_X, n_haplotypes - count_X) * number_type(n_haplotypes).itemsize
        n_bytes = packed_bytes(n_haplotypes)
        listed_X = (list_bytes_X < n_bytes) & lists
        start_X1 = np.zeros(len(count_X) + 1, dtype=np.int64)
        np.cumsum(np.where(listed_X, list_bytes_X, n_bytes), out=start_X1[1:])
        return cls(n_haplotypes, listed_X, ref_is_minor_X, start_X1)

    @property
    def n_bytes(self) -> int:
        """The length of all rows."""
        return int(self.start_X1[-1])

    def expand(self, stored: np.ndarray, index_I: np.ndarray) -> np.ndarray:
        """Some rows as packed bits. A list that is damaged gives wrong bits of its site, and nothing worse.

        Parameters
        ----------
        stored : uint8 (n_bytes,)
            All rows.
        index_I : int64 (I,)
            The rows wanted.

        Returns
        -------
        uint8 (I, B)
            Of the rows wanted, in that order.
        """
        # numba takes as long to load as all else: what reads no haplotypes need not wait for it
        from spinimpute.genotypes.bit_rows import expand_rows

        packed_IB = np.empty((len(index_I), packed_bytes(self.n_haplotypes)), dtype=np.uint8)
        expand_rows(
            stored,
            self.start_X1,
            self.listed_X,
            self.ref_is_minor_X,
            index_I,
            self.n_haplotypes,
            number_type(self.n_haplotypes).itemsize,
            packed_IB,
        )
        return packed_IB

    def rows(self, stored: np.ndarray, start: int, stop: int) -> StoredRows:
        """The rows [start, stop) as they are stored in `stored`, uint8 (n_bytes,)."""
        return StoredRows(
            stored,
            self.start_X1[start : stop + 1],
            self.listed_X[start:stop],
            self.ref_is_minor_X[start:stop],
            number_type(self.n_haplotypes).itemsize,
        )


def packed_bytes(n_haplotypes: int) -> int:
    """B: the bytes of a site's packed bits."""
    return -(-n_haplotypes // 8)


def allele_counts(packed_XB: np.ndarray) -> np.ndarray:
    """Haplotypes with ALT at each site, uint32 (X,), of packed bits, uint8 (X, B)."""
    return np.bitwise_count(packed_XB).sum(axis=1, dtype=np.uint32)


def store_rows(packed_XB: np.ndarray, n_haplotypes: int) -> bytes:
    """Rows in the form in which a panel file stores them.

    Parameters
    ----------
    packed_XB : uint8 (X, B)
        Packed bits, 0 beyond the last haplotype.
    n_haplotypes : int
        N.

    Returns
    -------
    bytes
        The rows one behind the other, in the layout `RowLayout.of` their allele counts.
    """
    layout = RowLayout.of(allele_counts(packed_XB), n_haplotypes)
    listed_X = layout.listed_X
    turn_X = np.where(layout.ref_is_minor_X, 255, 0).astype(np.uint8)
    minor_XB = packed_XB[listed_X] ^ turn_X[listed_X, None]
    row, byte = np.nonzero(minor_XB)
    place, bit = np.nonzero(np.unpackbits(minor_XB[row, byte][:, None], axis=1))
    carriers = byte[place] * 8 + bit
    carriers = carriers[carriers < n_haplotypes]  # bits beyond the last haplotype were turned, too
    stored = np.empty(layout.n_bytes, dtype=np.uint8)
    is_list = np.repeat(listed_X, np.diff(layout.start_X1))
    stored[is_list] = carriers.astype(number_type(n_haplotypes)).view(np.uint8)
    stored[~is_list] = packed_XB[~listed_X].ravel()
    return stored.tobytes()
