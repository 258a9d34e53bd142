"""Find haplotypes of one panel that match carriers of an allele that only the other panel has.

A haplotype of the panel that lacks a site is compared at the sites in both panels: with carriers of the
site's rarer allele, and with other haplotypes of the other panel. It seems to carry the allele if it matches
carriers longer, on both sides together. There are enough sites around to find common alleles nearly without
error.

The walks use the positional Burrows-Wheeler transform (Durbin 2014, Bioinformatics 30:1266).

Axes: T sites in both panels, U sites in one, N haplotypes of both, P bytes of packed bits.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import advance, allele_of
from spinimpute.runtime.kernels import kernel

FLANK = 1_000  # sites in both panels up to which a match counts; longer matches are equal


@kernel()
def _add_lengths(order_N, start_N, place, carriers_P, second_has, n_first, previous_N2, length_N2):  # type: ignore[no-untyped-def]
    """Add the longest match that ends before `place`, with carriers and with others, of each haplotype.

    previous_N2: scratch of the same type as length_N2. Haplotypes of the panel that has the site, the second one
    if second_has, get nothing.
    """
    n = len(order_N)
    for side in range(2):
        start_carrier = start_other = place  # of the match with the previous carriers and others
        for step in range(n):
            i = step if side == 0 else n - 1 - step
            start = place if step == 0 else start_N[i + side]
            start_carrier, start_other = max(start_carrier, start), max(start_other, start)
            haplotype = order_N[i]
            if (haplotype >= n_first) == second_has:
                if allele_of(carriers_P, haplotype):
                    start_carrier = 0
                else:
                    start_other = 0
                continue
            if side == 0:
                previous_N2[haplotype, 0], previous_N2[haplotype, 1] = start_carrier, start_other
                continue
            carrier = min(previous_N2[haplotype, 0], start_carrier)
            other = min(previous_N2[haplotype, 1], start_other)
            length_N2[haplotype, 0] += min(place - carrier, FLANK)
            length_N2[haplotype, 1] += min(place - other, FLANK)


@kernel()
def _walk(packed_TP, haplotypes_N, place_U, carriers_UP, second_has_U, n_first, first, step, length_UN2):  # type: ignore[no-untyped-def]
    """Walk over the sites in both panels; at each site in one, add the lengths of the matches that end there.

    place_U: number of rows before a site. first, step: the order of the sites in one panel along the walk.
    haplotypes_N: their bits in the rows.
    """
    n = len(haplotypes_N)
    order_N, start_N = haplotypes_N.copy(), np.zeros(n, np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1 = np.empty(n + 1, np.int32)
    previous_N2 = np.empty((length_UN2.shape[1], 2), np.int32)
    u, n_left = first, len(place_U)
    for t in range(len(packed_TP) + 1):
        while n_left and place_U[u] == t:
            _add_lengths(
                order_N, start_N, t, carriers_UP[u], second_has_U[u], n_first, previous_N2, length_UN2[u]
            )
            u += step
            n_left -= 1
        if n_left == 0:
            return
        advance(packed_TP[t], order_N, start_N, t, zeros_N1, ones_N, one_start_N, next_order_N, next_start_N)
        order_N, next_order_N = next_order_N, order_N
        start_N, next_start_N = next_start_N, start_N


def match_carriers_longer(
    packed_TP: np.ndarray,
    haplotypes_N: np.ndarray,
    n_first: int,
    place_U: np.ndarray,
    carriers_UP: np.ndarray,
    second_has_U: np.ndarray,
    below_mutation: bool = False,
) -> np.ndarray:
    """Haplotypes of the panel that lacks a site that match carriers longer than all others, bool (U, 8 P).

    Rows packed_TP (uint8) cover FLANK sites beyond the sites of one panel on each side, if there are so many.
    haplotypes_N (int32): the bits that are haplotypes; those before `n_first` are of the first panel. place_U
    (int64, never decreasing): the number of T sites before a site. carriers_UP (uint8): the carriers in the
    panel that has the site. With `below_mutation`, only haplotypes that likely branched off below the
    mutation: the length of a match is inverse to the time to the common ancestor, and the mutation of n
    carriers is n / (n + 1) of the way up from the present to where others branch off.
    """
    length_UN2 = np.zeros((len(place_U), 8 * packed_TP.shape[1], 2), np.int16)
    backwards_TP, n_places = np.ascontiguousarray(packed_TP[::-1]), len(packed_TP)
    shared_args = carriers_UP, second_has_U, n_first
    _walk(packed_TP, haplotypes_N, place_U, *shared_args, 0, 1, length_UN2)
    _walk(backwards_TP, haplotypes_N, n_places - place_U, *shared_args, len(place_U) - 1, -1, length_UN2)
    carrier_UN, other_UN = length_UN2[:, :, 0].astype(np.int32), length_UN2[:, :, 1]
    if not below_mutation:
        return carrier_UN > other_UN
    n_carriers_U1 = np.bitwise_count(carriers_UP).sum(axis=1, dtype=np.int32)[:, None]
    return n_carriers_U1 * carrier_UN > (n_carriers_U1 + 1) * other_UN.astype(np.int32)
