"""Alleles as bits, in two layouts, and the numba kernels that work on them.

- *Rows* hold one haplotype each: bit s & 63 of 64-bit word s >> 6 is the allele at site s. Two haplotypes are
  compared 64 sites at a time.
- *Packed bits* hold one site each, in the layout of `numpy.packbits`. Panel files and the positional
  Burrows-Wheeler transform (PBWT) read them.

Axes: S sites, X rows, W words, B or P bytes of a site's packed bits, N haplotypes, I chosen sites.

References
----------
Durbin 2014, Bioinformatics 30:1266: the positional Burrows-Wheeler transform (PBWT).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from spinimpute.runtime.kernels import kernel

TILE_BYTES = 64  # bytes of packed bits per step of `rows_of_packed`
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def pack_rows(alleles_SX: np.ndarray) -> np.ndarray:
    """Return the rows, uint64 (X, W), of alleles 0 or 1, uint8 (S, X)."""
    packed = np.packbits(alleles_SX, axis=0, bitorder="little")  # (bytes, X)
    out = np.zeros((alleles_SX.shape[1], max(1, -(-len(alleles_SX) // 64)) * 8), dtype=np.uint8)
    out[:, : len(packed)] = packed.T
    return out.view("<u8").astype(np.uint64, copy=False)


def unpack_rows(bits_XW: np.ndarray, n_places: int) -> np.ndarray:
    """Return the alleles of rows, uint8 (X, S)."""
    return np.unpackbits(bits_XW.astype("<u8").view(np.uint8), axis=1, count=n_places, bitorder="little")


@kernel()
def order_packed(packed_SB, order_X):  # type: ignore[no-untyped-def]
    """Return packed bits, uint8 (S, ceil(X / 8)): haplotype i is haplotype order_X[i] of packed_SB."""
    n = len(order_X)
    out_SB = np.empty((len(packed_SB), (n + 7) >> 3), np.uint8)
    for s in range(len(packed_SB)):
        bits_B = packed_SB[s]
        for byte in range(out_SB.shape[1]):
            first = 8 * byte
            eight = 0
            for i in range(first, min(first + 8, n)):
                eight |= ((bits_B[order_X[i] >> 3] >> (7 - (order_X[i] & 7))) & 1) << (7 - (i - first))
            out_SB[s, byte] = eight
    return out_SB


@kernel()
def rows_of_packed(packed_SB, n_rows):  # type: ignore[no-untyped-def]
    """Return the rows, uint64 (X, W), of packed bits, uint8 (S, B)."""
    bits_XW = np.zeros((n_rows, max(1, (len(packed_SB) + 63) >> 6)), np.uint64)
    n_bytes = packed_SB.shape[1]
    for first in range(0, n_bytes, TILE_BYTES):  # the rows of this many bytes fit into the cache
        last = min(first + TILE_BYTES, n_bytes)
        for s in range(len(packed_SB)):
            word, bit = s >> 6, np.uint64(1) << np.uint64(s & 63)
            for byte in range(first, last):
                eight = packed_SB[s, byte]
                if eight == 0:
                    continue
                for i in range(8 * byte, min(8 * byte + 8, n_rows)):
                    if (eight >> (7 - (i & 7))) & 1:
                        bits_XW[i, word] |= bit
    return bits_XW


def _llvm_bits(name: str, extra: tuple[int, ...]) -> Any:
    """Make a numba intrinsic, uint64 -> int64, from one of LLVM's bit-counting instructions."""

    @intrinsic
    def count(typing_context, word):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            i64, i1 = ir.IntType(64), ir.IntType(1)
            function_type = ir.FunctionType(i64, [i64] + [i1] * len(extra))
            function = builder.module.declare_intrinsic(f"llvm.{name}", [i64], function_type)
            return builder.call(function, [arguments[0], *(ir.Constant(i1, bit) for bit in extra)])

        return types.int64(types.uint64), generate

    return count


leading_zeros = _llvm_bits("ctlz", (0,))
trailing_zeros = _llvm_bits("cttz", (0,))
bits_set = _llvm_bits("ctpop", ())


@kernel(inline=True)
def count_bits(bits_W, first, last):  # type: ignore[no-untyped-def]
    """Return the number of set bits among the sites [first, last)."""
    if first >= last:
        return 0
    total = 0
    for word in range(first >> 6, ((last - 1) >> 6) + 1):
        bits = bits_W[word]
        if word == first >> 6:
            bits &= ALL_ONES << np.uint64(first & 63)
        if word == (last - 1) >> 6:
            bits &= ALL_ONES >> np.uint64(63 - ((last - 1) & 63))
        total += bits_set(bits)
    return total


@kernel(inline=True)
def bit_at_or_before(bits_W, place):  # type: ignore[no-untyped-def]
    """Return the last site <= `place` whose bit is set; -1 if there is none."""
    if place < 0:
        return -1
    word = place >> 6
    bits = bits_W[word] & (ALL_ONES >> np.uint64(63 - (place & 63)))
    while bits == np.uint64(0):
        word -= 1
        if word < 0:
            return -1
        bits = bits_W[word]
    return (word << 6) + 63 - leading_zeros(bits)


@kernel(inline=True)
def bit_at_or_after(bits_W, place, n_places):  # type: ignore[no-untyped-def]
    """Return the first site >= `place` whose bit is set; n_places if there is none."""
    if place >= n_places:
        return n_places
    word = place >> 6
    bits = bits_W[word] & (ALL_ONES << np.uint64(place & 63))
    while bits == np.uint64(0):
        word += 1
        if word >= len(bits_W):
            return n_places
        bits = bits_W[word]
    return (word << 6) + trailing_zeros(bits)


@kernel(inline=True)
def mismatch_at_or_before(x_W, y_W, known_W, place):  # type: ignore[no-untyped-def]
    """Return the last site <= `place` where two rows differ and known_W is set; -1 if there is none."""
    if place < 0:
        return -1
    word = place >> 6
    differ = (x_W[word] ^ y_W[word]) & known_W[word] & (ALL_ONES >> np.uint64(63 - (place & 63)))
    while differ == np.uint64(0):
        word -= 1
        if word < 0:
            return -1
        differ = (x_W[word] ^ y_W[word]) & known_W[word]
    return (word << 6) + 63 - leading_zeros(differ)


@kernel(inline=True)
def allele_of(bits_P, haplotype):  # type: ignore[no-untyped-def]
    """Return a haplotype's allele at the site with these packed bits."""
    return np.int32((bits_P[haplotype >> 3] >> (7 - (haplotype & 7))) & 1)


@kernel()
def advance(bits_P, order_N, start_N, place, zeros_N1, ones_N, one_start_N, next_order_N, next_start_N):  # type: ignore[no-untyped-def]
    """Take one step of the PBWT: fill the next order and match starts from those before `place`.

    order_N: haplotypes sorted by their alleles from the previous site backwards (reversed prefix).
    start_N[i]: site at which the match of order_N[i - 1] and order_N[i] starts. zeros_N1[i], filled: number
    of haplotypes among the first i in the order that have allele 0. ones_N, one_start_N: workspaces.
    """
    n = len(order_N)
    zeros = ones = np.int32(0)
    start_0 = start_1 = np.int32(place + 1)
    for i in range(n):  # without branches, because the processor could not predict them
        zeros_N1[i] = zeros
        haplotype, start = order_N[i], start_N[i]
        allele = allele_of(bits_P, haplotype)
        start_0, start_1 = max(start_0, start), max(start_1, start)
        next_order_N[zeros], next_start_N[zeros] = haplotype, start_0
        ones_N[ones], one_start_N[ones] = haplotype, start_1
        zeros += np.int32(1) - allele
        ones += allele
        start_0 *= allele
        start_1 *= np.int32(1) - allele
    zeros_N1[n] = zeros
    next_order_N[zeros:] = ones_N[:ones]
    next_start_N[zeros:] = one_start_N[:ones]


@kernel()
def expand_rows(  # type: ignore[no-untyped-def]
    stored, start_X1, listed_X, ref_is_minor_X, index_I, n_haplotypes, number_bytes, packed_IB
):
    """Fill packed_IB with the packed bits of the sites index_I, from the rows of a panel file.

    A stored row is packed bits or a list of haplotypes. stored: uint8, all rows. number_bytes: bytes of
    an index in a list. Invalid indices are ignored. Other arguments: see `stored_rows.RowLayout`.
    """
    n_bytes = packed_IB.shape[1]
    beyond = n_bytes * 8 - n_haplotypes  # padding bits of the last byte
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
        for entry_start in range(start, stop, number_bytes):
            haplotype = 0
            for byte in range(number_bytes):
                haplotype |= int(stored[entry_start + byte]) << (8 * byte)
            if haplotype < n_haplotypes:
                packed_IB[i, haplotype >> 3] ^= 128 >> (haplotype & 7)
