"""One step of the positional Burrows-Wheeler transform, for kernels that walk along a panel.

Axes: N haplotypes, P bytes of packed bits.

References
----------
Durbin 2014, Bioinformatics 30:1266.
"""

from __future__ import annotations

import numpy as np

from spinimpute.runtime.kernels import kernel


@kernel()
def allele_of(bits_P, haplotype):  # type: ignore[no-untyped-def]
    """A haplotype's allele at the place of these bits, in the order of `numpy.packbits`."""
    return np.int32((bits_P[haplotype >> 3] >> (7 - (haplotype & 7))) & 1)


@kernel()
def advance(bits_P, order_N, start_N, place, zeros_N1, ones_N, one_start_N, next_order_N, next_start_N):  # type: ignore[no-untyped-def]
    """One step of the PBWT: order and match starts after `place`, from those before it.

    order_N: haplotypes sorted by the reversed prefix; start_N[i]: where the match of order[i - 1] and
    order[i] starts; zeros_N1[i]: how many of the first i haplotypes in the order have allele 0. ones_N and
    one_start_N are for use here.
    """
    n = len(order_N)
    zeros = ones = np.int32(0)
    start_0 = start_1 = np.int32(place + 1)
    for i in range(n):  # without a branch: alleles cannot be foreseen
        zeros_N1[i] = zeros
        haplotype, start = order_N[i], start_N[i]
        one = allele_of(bits_P, haplotype)
        start_0, start_1 = max(start_0, start), max(start_1, start)
        next_order_N[zeros], next_start_N[zeros] = haplotype, start_0
        ones_N[ones], one_start_N[ones] = haplotype, start_1
        zeros += np.int32(1) - one
        ones += one
        start_0 *= one
        start_1 *= np.int32(1) - one
    zeros_N1[n] = zeros
    next_order_N[zeros:] = ones_N[:ones]
    next_start_N[zeros:] = one_start_N[:ones]
