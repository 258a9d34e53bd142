"""Encode the haplotypes of a block of sites as runs of equal alleles, and decode them.

Haplotypes with the same alleles at the sites before a site mostly have the same allele there. The positional
Burrows-Wheeler transform (PBWT) sorts the haplotypes by these alleles, from the nearest site backwards. In
this order, the haplotypes with the minor allele form few runs. A site is stored as lengths: the number of
haplotypes before the first run, the length of this run, the number of haplotypes before the next run, and so
on. The allele count shows which run is the last. Each byte of a length has 7 of its bits, the lowest bits
first. The highest bit of a byte is set if another byte follows.

The first site of a block has the haplotypes in the order of the file. Sites with fewer than MIN_SORTED minor
alleles do not change the order.

Axes: X sites of a block, N haplotypes, W 64-bit words, R ends of runs.

References
----------
Durbin 2014, Bioinformatics 30:1266: the PBWT.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, bit_at_or_after, trailing_zeros
from spinimpute.panels.stored_rows import RowLayout
from spinimpute.runtime.kernels import kernel

U = np.uint64  # unsigned indexes, which the compiler need not check for negative values, make loops fast
MIN_SORTED = 10  # minor alleles of a site that changes the order; rarer alleles take time and save nothing


def encode_runs(stored: bytes, layout: RowLayout) -> bytes:
    """Return the encoded rows of a block. `stored` are the rows as `store_rows` returns them."""
    n = layout.n_haplotypes
    # a length below 128 has one byte, any other at most 1 + length / 128 bytes
    max_bytes = int((2 * layout.minor_X + n // 128).sum())
    encoded = np.empty(max_bytes, dtype=np.uint8)
    rows = layout.rows(np.frombuffer(stored, dtype=np.uint8))
    return encoded[: _encode(rows, layout.minor_X, n, encoded)].tobytes()


def decode_runs(content: bytes, layout: RowLayout) -> np.ndarray:
    """Return the rows of a block as `store_rows` returns them, uint8, read-only.

    Raises ValueError if the content does not fit the layout.
    """
    stored = np.zeros(layout.start_X1[-1], dtype=np.uint8)
    encoded = np.frombuffer(content, dtype=np.uint8)
    if _decode(encoded, layout.rows(stored), layout.minor_X, layout.n_haplotypes) != len(encoded):
        raise ValueError("the runs of alleles do not fit the allele counts")
    stored.flags.writeable = False
    return stored


@kernel()
def _write_runs(end_R, n_runs, encoded, at):  # type: ignore[no-untyped-def]
    """Write the lengths of runs from byte `at`, and return the byte behind them.

    A run with the minor allele is [end_R[2 r], end_R[2 r + 1]): each value ends what comes before it.
    """
    before = U(0)
    for r in range(U(2 * n_runs)):
        length = end_R[r] - before
        before = end_R[r]
        while length >= U(128):
            encoded[at] = (length & U(127)) | U(128)
            length >>= U(7)
            at += 1
        encoded[at] = length
        at += 1
    return at


@kernel()
def _read_runs(encoded, at, minor, n, end_R):  # type: ignore[no-untyped-def]
    """Fill end_R with the runs from byte `at`, see `_write_runs`. Return their number and the byte behind.

    The number is -1 if the bytes are invalid.
    """
    n_runs, n_minor, end = 0, 0, 0
    while n_minor < minor:
        for side in range(2):
            length, shift, byte = 0, 0, 128
            while byte >= 128:
                if at >= len(encoded) or shift > 28:
                    return -1, at
                byte = int(encoded[at])
                length |= (byte & 127) << shift
                shift += 7
                at += 1
            end += length
            end_R[2 * n_runs + side] = end
        n_runs += 1
        n_minor += length
        if length == 0 or n_minor > minor or end > n:
            return -1, at
    return n_runs, at


@kernel()
def _find_runs(bits_W, minor, n, end_R):  # type: ignore[no-untyped-def]
    """Fill end_R with the runs of set bits, see `_write_runs`. Return their number. `minor` bits are set."""
    n_runs, n_minor, place = 0, 0, 0
    while n_minor < minor:
        first = bit_at_or_after(bits_W, place, n)
        word = first >> 6
        zeros = ~bits_W[word] & (ALL_ONES << np.uint64(first & 63))
        while zeros == np.uint64(0) and word + 1 < len(bits_W):
            word += 1
            zeros = ~bits_W[word]
        place = n if zeros == np.uint64(0) else min((word << 6) + trailing_zeros(zeros), n)
        end_R[2 * n_runs], end_R[2 * n_runs + 1] = first, place
        n_minor += place - first
        n_runs += 1
    return n_runs


@kernel()
def _sort_by_allele(order_N, end_R, n_runs, minor, next_order_N):  # type: ignore[no-untyped-def]
    """Fill next_order_N: the haplotypes of the runs, `minor` of them, come after the others."""
    n = U(len(order_N))
    place, to_major, to_minor = U(0), U(0), n - U(minor)
    for r in range(U(n_runs)):
        first, last = end_R[U(2) * r], end_R[U(2) * r + U(1)]
        for i in range(first - place):
            next_order_N[to_major + i] = order_N[place + i]
        for i in range(last - first):
            next_order_N[to_minor + i] = order_N[first + i]
        to_major += first - place
        to_minor += last - first
        place = last
    for i in range(n - place):
        next_order_N[to_major + i] = order_N[place + i]


@kernel()
def _mark_minor(rows, x, order_N, rank_N, bits_W):  # type: ignore[no-untyped-def]
    """Set the bits of the haplotypes with the minor allele. Bit i belongs to order_N[i]."""
    stored, first, number_bytes = rows.stored, rows.start_X1[x], rows.number_bytes
    if rows.listed_X[x]:
        for at in range(first, rows.start_X1[x + 1], number_bytes):
            carrier = 0
            for byte in range(number_bytes):
                carrier |= int(stored[at + byte]) << (8 * byte)
            place = rank_N[carrier]
            bits_W[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
        return
    flip = U(1 if rows.ref_is_minor_X[x] else 0)
    n, start = U(len(order_N)), U(first)
    for word in range(U(len(bits_W))):
        bits = U(0)
        for i in range(U(64) * word, min(U(64) * word + U(64), n)):
            haplotype = U(order_N[i])
            is_alt = U(stored[start + (haplotype >> U(3))] >> (U(7) - (haplotype & U(7)))) & U(1)
            bits |= (is_alt ^ flip) << (i & U(63))
        bits_W[word] = bits


@kernel()
def _encode(rows, minor_X, n, encoded):  # type: ignore[no-untyped-def]
    """Fill `encoded`, and return the number of bytes."""
    order_N, next_order_N = np.arange(n).astype(np.uint32), np.empty(n, np.uint32)
    rank_N = np.arange(n).astype(np.int32)  # the place of each haplotype in the order
    rank_is_current = True
    bits_W = np.zeros((n + 63) >> 6, np.uint64)
    end_R = np.empty(n + 2, np.uint64)
    at = 0
    for x in range(len(minor_X)):
        minor = minor_X[x]
        if minor == 0:
            continue
        if rows.listed_X[x] and not rank_is_current:
            for i in range(n):
                rank_N[order_N[i]] = i
            rank_is_current = True
        _mark_minor(rows, x, order_N, rank_N, bits_W)
        n_runs = _find_runs(bits_W, minor, n, end_R)
        at = _write_runs(end_R, n_runs, encoded, at)
        bits_W[:] = 0
        if minor >= MIN_SORTED:
            _sort_by_allele(order_N, end_R, n_runs, minor, next_order_N)
            order_N, next_order_N = next_order_N, order_N
            rank_is_current = False
    return at


@kernel()
def _flip_bits(stored, start, order_N, end_R, n_runs):  # type: ignore[no-untyped-def]
    """Invert the bits of the haplotypes of runs in the row that starts at byte `start`."""
    for r in range(U(n_runs)):
        for i in range(end_R[U(2) * r], end_R[U(2) * r + U(1)]):
            haplotype = U(order_N[i])
            stored[U(start) + (haplotype >> U(3))] ^= np.uint8(U(128) >> (haplotype & U(7)))


@kernel()
def _write_list(stored, start, number_bytes, order_N, end_R, n_runs, bits_W):  # type: ignore[no-untyped-def]
    """Write the haplotypes of runs as an increasing list from byte `start`. bits_W must be 0, and stays 0."""
    for r in range(U(n_runs)):
        for i in range(end_R[U(2) * r], end_R[U(2) * r + U(1)]):
            haplotype = U(order_N[i])
            bits_W[haplotype >> U(6)] |= U(1) << (haplotype & U(63))
    at = U(start)
    for word in range(U(len(bits_W))):
        bits = bits_W[word]
        if bits != U(0):
            bits_W[word] = U(0)
            while bits != U(0):
                haplotype = (word << U(6)) + U(trailing_zeros(bits))
                for byte in range(U(number_bytes)):
                    stored[at] = np.uint8((haplotype >> (U(8) * byte)) & U(255))
                    at += U(1)
                bits &= bits - U(1)


@kernel()
def _decode(encoded, rows, minor_X, n):  # type: ignore[no-untyped-def]
    """Fill rows.stored, which must be 0. Return the number of bytes that were read; -1 for invalid runs."""
    stored = rows.stored
    order_N, next_order_N = np.arange(n).astype(np.uint32), np.empty(n, np.uint32)
    bits_W = np.zeros((n + 63) >> 6, np.uint64)
    end_R = np.empty(n + 2, np.uint64)
    beyond = -n & 7  # padding bits of the last byte of a row
    at = 0
    for x in range(len(minor_X)):
        minor, start, stop = minor_X[x], rows.start_X1[x], rows.start_X1[x + 1]
        n_runs, at = _read_runs(encoded, at, minor, n, end_R)
        if n_runs < 0:
            return -1
        if rows.listed_X[x]:
            _write_list(stored, start, rows.number_bytes, order_N, end_R, n_runs, bits_W)
        else:
            if rows.ref_is_minor_X[x]:
                stored[start:stop] = 255
                stored[stop - 1] = (255 << beyond) & 255
            _flip_bits(stored, start, order_N, end_R, n_runs)
        if minor >= MIN_SORTED:
            _sort_by_allele(order_N, end_R, n_runs, minor, next_order_N)
            order_N, next_order_N = next_order_N, order_N
    return at
