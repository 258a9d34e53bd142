"""The compiled part of `stored_rows`, apart from it as loading numba takes as long as describing a panel."""

from __future__ import annotations

from spinimpute.runtime.kernels import kernel


@kernel()
def expand_rows(  # type: ignore[no-untyped-def]
    stored, start_X1, listed_X, ref_is_minor_X, index_I, n_haplotypes, number_bytes, packed_IB
):
    """Fill packed_IB with the bits of the chosen rows; see `stored_rows.RowLayout`.

    stored: uint8, all rows; number_bytes: of a haplotype's number in a list. A number that is no haplotype's
    is passed over.
    """
    n_bytes = packed_IB.shape[1]
    beyond = n_bytes * 8 - n_haplotypes  # bits of the last byte that are no haplotype's
    for i in range(len(index_I)):
        x = index_I[i]
        start, stop = start_X1[x], start_X1[x + 1]
        if not listed_X[x]:
            packed_IB[i] = stored[start:stop]
            continue
        if ref_is_minor_X[x]:
            packed_IB[i] = 255
            packed_IB[i, n_bytes - 1] = (255 << beyond) & 255
        else:
            packed_IB[i] = 0
        for at in range(start, stop, number_bytes):
            haplotype = 0
            for byte in range(number_bytes):
                haplotype |= int(stored[at + byte]) << (8 * byte)
            if haplotype < n_haplotypes:
                packed_IB[i, haplotype >> 3] ^= 128 >> (haplotype & 7)
