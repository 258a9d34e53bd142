"""Find which haplotypes of a panel probably carry an allele at a site that only another panel has.

Each haplotype of the panel that lacks the site is compared with the haplotypes of the other panel, at the
sites that both panels have. Its longest match with a carrier of the site's rarer allele is compared with its
longest match with a non-carrier. The length of a match is counted in sites, to the left of the site plus to
the right. If the match with a carrier is longer, the haplotype probably carries the allele.

Matches are found with the positional Burrows-Wheeler transform, which sorts haplotypes by their alleles
before a site, so that similar haplotypes are neighbours (Durbin 2014, Bioinformatics 30:1266).

Axes: T sites in both panels, U sites in one panel, N haplotypes of both, P bytes of packed bits.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import advance, allele_of
from spinimpute.runtime.kernels import kernel

FLANK = 1_000  # maximum length of a match on one side, in sites that both panels have


@kernel()
def _add_lengths(  # type: ignore[no-untyped-def]
    order_N, start_N, place, carriers_P, second_has, n_first, previous_N2, length_N2
):
    """Add to length_N2 each haplotype's longest matches that end before `place`, with carriers and others.

    order_N are the haplotypes in sorted order, and start_N the start of each one's match with its
    predecessor. Haplotypes from number n_first on belong to the second panel. second_has is true if the
    second panel has the site; only haplotypes of the panel without the site get lengths. previous_N2 is
    scratch memory: the match starts found in the first direction.
    """
    n = len(order_N)
    for side in range(2):
        start_carrier = start_other = place  # starts of the matches with the last carrier and non-carrier
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
            carrier_start = min(previous_N2[haplotype, 0], start_carrier)
            other_start = min(previous_N2[haplotype, 1], start_other)
            length_N2[haplotype, 0] += min(place - carrier_start, FLANK)
            length_N2[haplotype, 1] += min(place - other_start, FLANK)


@kernel()
def _walk(packed_TP, haplotypes_N, place_U, carriers_UP, second_has_U, n_first, first, step, length_UN2):  # type: ignore[no-untyped-def]
    """Walk over the T sites, and add at each of the U sites the lengths of the matches that end there.

    haplotypes_N are the indexes of the haplotypes' bits in a row. place_U is the number of T sites before
    each U site. The walk meets the U sites `first`, `first + step`, and so on.
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
    """Find the haplotypes that match a carrier longer than any non-carrier, bool (U, 8 P).

    packed_TP (uint8) are the haplotypes at the T sites, which should include FLANK sites on both sides of the
    U sites. haplotypes_N (int32) are the indexes of bits that are haplotypes; those below `n_first` belong to
    the first panel. place_U (int64, non-decreasing) is the number of T sites before each U site. carriers_UP
    (uint8) are the carriers in the panel that has the site, which is the second one where second_has_U.

    With `below_mutation`, a haplotype must also have branched off after the mutation. The length of a match
    is inversely proportional to the time to the common ancestor. With n carriers, the mutation is expected at
    n / (n + 1) of the time back to the ancestor that carriers share with non-carriers. The match with a
    carrier must therefore be longer by the factor (n + 1) / n.
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
