"""Which haplotypes of one panel match carriers of an allele that only the other panel knows.

A haplotype of the panel that lacks a site is compared with those of the other at the sites that both have:
with those that carry the site's rarer allele, and with those that do not. It seems to carry that allele if it
matches carriers longer, on both sides together. So many sites lie around each one that this finds common
alleles all but without error.

Walks are those of the positional Burrows-Wheeler transform (Durbin 2014, Bioinformatics 30:1266).

Axes: T sites that both panels have, U sites that one has, N haplotypes of both, P bytes of packed bits.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import advance, allele_of
from spinimpute.runtime.kernels import kernel

FLANK = 1_000  # sites of both panels up to which a match counts; longer ones are alike


@kernel()
def _add_lengths(order_N, start_N, place, carriers_P, second_has, n_first, near_N, length_N2):  # type: ignore[no-untyped-def]
    """Add the longest match that ends before `place`, with carriers and with others, of each haplotype.

    near_N: for use here, of the same type as length_N2. Haplotypes of the panel that has the site get
    nothing. second_has: whether that is the second panel.
    """
    n = len(order_N)
    for side in range(2):
        start_carrier = start_other = place  # of the match with the last ones that were passed
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
                near_N[haplotype, 0], near_N[haplotype, 1] = start_carrier, start_other
                continue
            carrier = min(near_N[haplotype, 0], start_carrier)
            other = min(near_N[haplotype, 1], start_other)
            length_N2[haplotype, 0] += min(place - carrier, FLANK)
            length_N2[haplotype, 1] += min(place - other, FLANK)


@kernel()
def _walk(packed_TP, haplotypes_N, place_U, carriers_UP, second_has_U, n_first, first, step, length_UN2):  # type: ignore[no-untyped-def]
    """Walk over the sites of both; at each site of one, add the lengths of the matches that end there.

    place_U: how many of the rows are passed before a site. first, step: the order of the sites of one along
    the walk. haplotypes_N: their numbers as bits of the rows.
    """
    n = len(haplotypes_N)
    order_N, start_N = haplotypes_N.copy(), np.zeros(n, np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1 = np.empty(n + 1, np.int32)
    near_N2 = np.empty((length_UN2.shape[1], 2), np.int32)
    u, left = first, len(place_U)
    for t in range(len(packed_TP) + 1):
        while left and place_U[u] == t:
            _add_lengths(
                order_N, start_N, t, carriers_UP[u], second_has_U[u], n_first, near_N2, length_UN2[u]
            )
            u += step
            left -= 1
        if left == 0:
            return
        advance(packed_TP[t], order_N, start_N, t, zeros_N1, ones_N, one_start_N, next_order_N, next_start_N)
        order_N, next_order_N = next_order_N, order_N
        start_N, next_start_N = next_start_N, start_N


def nearer_to_carriers(
    packed_TP: np.ndarray,
    haplotypes_N: np.ndarray,
    n_first: int,
    place_U: np.ndarray,
    carriers_UP: np.ndarray,
    second_has_U: np.ndarray,
    below_mutation: bool = False,
) -> np.ndarray:
    """Which haplotypes match carriers of an allele longer than all that do not carry it.

    Parameters
    ----------
    packed_TP : uint8 (T, P)
        Alleles at the sites that both panels have; FLANK of them beyond the sites of one panel on each side,
        where there are so many.
    haplotypes_N : int32 (N,)
        The bits that are haplotypes.
    n_first : int
        Bits before this one are of the first panel.
    place_U : int64 (U,)
        How many of the T sites lie before each site of one panel, never decreasing.
    carriers_UP : uint8 (U, P)
        Who carries the minor allele, of the panel that has the site.
    second_has_U : bool (U,)
        Whether the second panel has it.
    below_mutation : bool
        Only haplotypes that likely branched off below the mutation: with matches as long as the time to
        the common ancestor is short, and the mutation of n carriers n / (n + 1) of the way up from the
        present to where others branch off.

    Returns
    -------
    bool (U, 8 P)
        Of the haplotypes of the panel that lacks the site; False of all others.
    """
    length_UN2 = np.zeros((len(place_U), 8 * packed_TP.shape[1], 2), np.int16)
    backwards_TP, n_places = np.ascontiguousarray(packed_TP[::-1]), len(packed_TP)
    fixed = carriers_UP, second_has_U, n_first
    _walk(packed_TP, haplotypes_N, place_U, *fixed, 0, 1, length_UN2)
    _walk(backwards_TP, haplotypes_N, n_places - place_U, *fixed, len(place_U) - 1, -1, length_UN2)
    carrier_UN, other_UN = length_UN2[:, :, 0].astype(np.int32), length_UN2[:, :, 1]
    if not below_mutation:
        return carrier_UN > other_UN
    n_carriers_U1 = np.bitwise_count(carriers_UP).sum(axis=1, dtype=np.int32)[:, None]
    return n_carriers_U1 * carrier_UN > (n_carriers_U1 + 1) * other_UN.astype(np.int32)
