"""Encode the haplotypes of a block of sites as runs of equal alleles, and decode them.

Haplotypes with the same alleles at the sites before a site mostly have the same allele there. The positional
Burrows-Wheeler transform (PBWT) sorts the haplotypes by these alleles, from the nearest site backwards. In
this order, the haplotypes with the minor allele form few runs. A site is stored as lengths: the number of
haplotypes before the first run, the length of this run, the number of haplotypes before the next run, and so
on. The allele count shows which run is the last. Each byte of a length has 7 of its bits, the lowest bits
first. The highest bit of a byte is set if another byte follows.

The first site of a block has the haplotypes in the order of the file. Sites with fewer than MIN_SORTED minor
alleles do not change the order.

Axes: X sites of a block, N haplotypes, W 64-bit words.

References
----------
Durbin 2014, Bioinformatics 30:1266: the PBWT.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import ALL_ONES, bit_at_or_after, trailing_zeros
from spinimpute.panels.stored_rows import RowLayout
from spinimpute.runtime.kernels import kernel

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
def _write_length(length, encoded, at):  # type: ignore[no-untyped-def]
    """Write a length from byte `at`, and return the byte behind it."""
    while length >= 128:
        encoded[at] = (length & 127) | 128
        length >>= 7
        at += 1
    encoded[at] = length
    return at + 1


@kernel()
def _run_end(bits_W, place, n):  # type: ignore[no-untyped-def]
    """Return the first place after `place` whose bit is not set, at most n."""
    word = place >> 6
    zeros = ~bits_W[word] & (ALL_ONES << np.uint64(place & 63))
    while zeros == np.uint64(0):
        word += 1
        if word >= len(bits_W):
            return n
        zeros = ~bits_W[word]
    return min((word << 6) + trailing_zeros(zeros), n)


@kernel()
def _copy(source_N, first, last, target_N, target):  # type: ignore[no-untyped-def]
    """Copy source_N[first:last] to target_N[target:]."""
    for i in range(last - first):
        target_N[target + i] = source_N[first + i]


@kernel()
def _mark_minor(rows, x, order_N, rank_N, bits_W):  # type: ignore[no-untyped-def]
    """Set the bits of the haplotypes with the minor allele. Bit i belongs to order_N[i]."""
    stored, first, number_bytes = rows.stored, rows.start_X1[x], rows.number_bytes
    if rows.listed_X[x]:
        for at in range(first, rows.start_X1[x + 1], number_bytes):
            haplotype = 0
            for byte in range(number_bytes):
                haplotype |= int(stored[at + byte]) << (8 * byte)
            place = rank_N[haplotype]
            bits_W[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
        return
    flip = np.uint64(1 if rows.ref_is_minor_X[x] else 0)
    n = len(order_N)
    for word in range(len(bits_W)):
        bits = np.uint64(0)
        for i in range(64 * word, min(64 * word + 64, n)):
            haplotype = order_N[i]
            is_alt = np.uint64(stored[first + (haplotype >> 3)] >> (7 - (haplotype & 7))) & np.uint64(1)
            bits |= (is_alt ^ flip) << np.uint64(i & 63)
        bits_W[word] = bits


@kernel()
def _encode(rows, minor_X, n, encoded):  # type: ignore[no-untyped-def]
    """Fill `encoded`, and return the number of bytes."""
    order_N, next_order_N = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    rank_N = np.arange(n).astype(np.int32)  # the place of each haplotype in the order
    rank_is_current = True
    bits_W = np.zeros((n + 63) >> 6, np.uint64)
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
        changes_order = minor >= MIN_SORTED
        n_minor = place = 0
        while n_minor < minor:
            first = bit_at_or_after(bits_W, place, n)
            last = _run_end(bits_W, first, n)
            at = _write_length(first - place, encoded, at)
            at = _write_length(last - first, encoded, at)
            if changes_order:
                _copy(order_N, place, first, next_order_N, place - n_minor)
                _copy(order_N, first, last, next_order_N, n - minor + n_minor)
            n_minor += last - first
            place = last
        bits_W[:] = 0
        if changes_order:
            _copy(order_N, place, n, next_order_N, place - n_minor)
            order_N, next_order_N = next_order_N, order_N
            rank_is_current = False
    return at


@kernel()
def _read_length(encoded, at):  # type: ignore[no-untyped-def]
    """Return the length that starts at byte `at`, and the byte behind it. At the end, the length is huge."""
    length = shift = 0
    while at < len(encoded) and shift <= 28:
        byte = int(encoded[at])
        length |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return length, at
        shift += 7
    return 1 << 40, at


@kernel()
def _write_list(bits_W, stored, at, number_bytes):  # type: ignore[no-untyped-def]
    """Write the haplotypes whose bits are set as a list from byte `at`, and clear the bits."""
    for word in range(len(bits_W)):
        bits = bits_W[word]
        if bits == np.uint64(0):
            continue
        bits_W[word] = 0
        while bits:
            haplotype = (word << 6) + trailing_zeros(bits)
            for byte in range(number_bytes):
                stored[at + byte] = (haplotype >> (8 * byte)) & 255
            at += number_bytes
            bits &= bits - np.uint64(1)


@kernel()
def _decode(encoded, rows, minor_X, n):  # type: ignore[no-untyped-def]
    """Fill rows.stored, which must be 0. Return the number of bytes that were read; -1 for invalid runs."""
    stored = rows.stored
    order_N, next_order_N = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    bits_W = np.zeros((n + 63) >> 6, np.uint64)
    beyond = -n & 7  # padding bits of the last byte of a row
    at = 0
    for x in range(len(minor_X)):
        minor, start, stop, is_list = minor_X[x], rows.start_X1[x], rows.start_X1[x + 1], rows.listed_X[x]
        if rows.ref_is_minor_X[x] and not is_list:
            stored[start:stop] = 255
            stored[stop - 1] = (255 << beyond) & 255
        changes_order = minor >= MIN_SORTED
        n_minor = place = 0
        while n_minor < minor:
            before, at = _read_length(encoded, at)
            length, at = _read_length(encoded, at)
            first, last = place + before, place + before + length
            if last > n or n_minor + length > minor:
                return -1
            if is_list:
                for i in range(first, last):
                    haplotype = order_N[i]
                    bits_W[haplotype >> 6] |= np.uint64(1) << np.uint64(haplotype & 63)
            else:
                for i in range(first, last):
                    haplotype = order_N[i]
                    stored[start + (haplotype >> 3)] ^= 128 >> (haplotype & 7)
            if changes_order:
                _copy(order_N, place, first, next_order_N, place - n_minor)
                _copy(order_N, first, last, next_order_N, n - minor + n_minor)
            n_minor += length
            place = last
        if is_list and minor:
            _write_list(bits_W, stored, start, rows.number_bytes)
        if changes_order:
            _copy(order_N, place, n, next_order_N, place - n_minor)
            order_N, next_order_N = next_order_N, order_N
    return at
