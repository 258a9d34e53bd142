"""Rare alleles that stand on the wrong haplotype of their carrier.

Statistical phasing places common alleles well and rare ones badly. But carriers of a rare allele descend from
one haplotype and share what lies around it. Where the carrier's other haplotype matches the other carriers
for longer than the one that has the allele, the phase may be wrong: the *gain* is the log of how many times
as long its longest match is, on both sides, summed. A match goes on behind one difference on each side, and
has 2 cM, the most that counts, where it does not end.

A large gain alone proves nothing: alleles that arose twice have them. The panel itself tells how often phase
is wrong. Were it never wrong, the largest gains (more than 6: some twenty times as long on either side) would
next to never be seen. A wrong phase exchanges the roles, so that gains and losses (negative gains) of that
size are as frequent as wrong and right phases: the share of gains among both estimates how many phases are
wrong (`wrong_share`). An allele is moved where gains of its size are so rare beside losses that at least half
of them are wrong phases, and in no panel whose rare alleles are nearly all right, as those of careful
projects are.

Axes: X sites, R rare ones, T common ones, C carriers, K classes by carriers, I sizes of gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.panels.panel import Panel
from spinimpute.panels.stored_rows import number_type

COMMON = 0.01  # minor allele frequency from which sites are compared; rarer ones may have the wrong phase
MOST_CARRIERS = (2, 5, 10, 20, 50, 100)  # of each class
SIZES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)  # of gains; those below the first tell nothing
LEAST_LOSSES, LEAST_GAINS = 100, 10  # of the largest size: fewer tell too little
LEAST_WRONG = 0.015  # share of wrong phases from which alleles are moved
_BLOCK, _FLANK = 2_048, 1_024  # common sites whose surroundings are compared together, and around them


class Moves(NamedTuple):
    """Minor alleles to move from one haplotype of a sample to the other.

    Attributes
    ----------
    site_M, from_M, to_M : int64 (M,)
        Panel sites, never decreasing, and haplotypes.
    wrong_share : dict of str to float
        Of alleles with so many carriers ("2", "3-5", ...) those on the wrong haplotype, where that is known.
    """

    site_M: np.ndarray
    from_M: np.ndarray
    to_M: np.ndarray
    wrong_share: dict[str, float]


def find_moves(panel: Panel) -> Moves:
    """Find rare alleles on the wrong haplotype.

    Parameters
    ----------
    panel : Panel
        Open.

    Returns
    -------
    Moves
        Empty where the panel's rare alleles are phased well, or too few of them are known.
    """
    n = panel.n_haplotypes
    count_X = panel.allele_count.astype(np.int64)
    minor_X = np.minimum(count_X, n - count_X)
    common = np.flatnonzero(minor_X >= COMMON * n)
    rare_X = (minor_X >= 2) & (minor_X < COMMON * n) & (minor_X <= MOST_CARRIERS[-1])
    # several alternate alleles of one record: a haplotype must not come to have two of them
    together = np.flatnonzero(np.diff(panel.position) == 0)
    rare_X[together] = rare_X[together + 1] = False
    sibling_N = sibling_haplotypes(panel.haplotype_sample)
    counted_2KI = np.zeros((2, len(MOST_CARRIERS), len(SIZES)), np.int64)  # losses, gains
    found: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.int32),) * 2 + (np.empty(0, np.int8),) * 2]
    for first in range(0, len(common), _BLOCK):
        low = common[first] if first else 0
        high = common[first + _BLOCK] if first + _BLOCK < len(common) else panel.n_sites
        rare = low + np.flatnonzero(rare_X[low:high])
        if not len(rare):
            continue
        around = common[max(0, first - _FLANK) : first + _BLOCK + _FLANK]
        carrier_C, gain_C = _gains(panel, rare, minor_X[rare], around, sibling_N)
        site_C = np.repeat(rare, minor_X[rare])
        class_C = np.searchsorted(MOST_CARRIERS, minor_X[site_C])
        size_C = np.searchsorted(SIZES, np.abs(gain_C)) - 1  # not a number: the last size, and neither below
        for sign, chosen_C in enumerate((gain_C < -SIZES[0], gain_C > SIZES[0])):
            np.add.at(counted_2KI[sign], (class_C[chosen_C], size_C[chosen_C]), 1)
        kept_C = gain_C > SIZES[0]
        of_alleles = site_C.astype(np.int32), carrier_C.astype(np.int32)
        of_classes = class_C.astype(np.int8), size_C.astype(np.int8)
        found.append(tuple(each[kept_C] for each in (*of_alleles, *of_classes)))
    wrong_K, moved_KI = _wrong_phases(*counted_2KI)
    site_C, carrier_C, class_C, size_C = (np.concatenate(each) for each in zip(*found, strict=True))
    moved = moved_KI[class_C, size_C]
    # of two carriers one is to move, but not which
    moved &= ~((minor_X[site_C] == 2) & (np.bincount(site_C[moved], minlength=len(minor_X))[site_C] == 2))
    least_K = [2, *(most + 1 for most in MOST_CARRIERS)]
    names = [f"{a}-{b}" if a < b else str(a) for a, b in zip(least_K, MOST_CARRIERS, strict=False)]
    return Moves(
        site_C[moved].astype(np.int64),
        carrier_C[moved].astype(np.int64),
        sibling_N[carrier_C[moved]],
        {name: round(float(w), 4) for name, w in zip(names, wrong_K, strict=True) if not np.isnan(w)},
    )


def _gains(
    panel: Panel, rare: np.ndarray, n_carriers_R: np.ndarray, common: np.ndarray, sibling_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Carriers of rare alleles, site by site, and the gains of moving each (`fill_gains`)."""
    # numba takes long to load: what only reads panels need not wait for it
    from spinimpute.genotypes.bit_rows import rows_of_packed
    from spinimpute.panels.trust.carrier_matches import fill_gains

    rows = panel.stored_rows(int(rare[0]), int(rare[-1]) + 1)
    assert rows.listed_X[rare - rare[0]].all(), "shorter than bits, as less than a hundredth are carriers"
    start_R = rows.start_X1[rare - rare[0]]
    start_R1 = np.concatenate([[0], np.cumsum(n_carriers_R)])
    place_C = np.arange(start_R1[-1]) - np.repeat(start_R1[:-1], n_carriers_R)
    byte_C = np.repeat(start_R, n_carriers_R) + place_C * rows.number_bytes
    bytes_CB = rows.stored[byte_C[:, None] + np.arange(rows.number_bytes)]
    carrier_C = bytes_CB.view(number_type(panel.n_haplotypes))[:, 0].astype(np.int64)
    gain_C = np.empty(len(carrier_C))
    bits_NW = rows_of_packed(panel.packed_rows(common), panel.n_haplotypes)
    place_R = np.searchsorted(common, rare)
    fill_gains(bits_NW, panel.cM[common], place_R, panel.cM[rare], start_R1, carrier_C, sibling_N, gain_C)
    return carrier_C, gain_C


def _wrong_phases(losses_KI: np.ndarray, gains_KI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share of wrong phases in each class, not a number where unknown; sizes of gains that are moved."""
    known_K = losses_KI[:, -1] >= LEAST_LOSSES
    ratio_K = np.where(known_K, gains_KI[:, -1], np.nan) / np.maximum(losses_KI[:, -1], 1)
    wrong_K = ratio_K / (1 + ratio_K)
    # If w of the phases are wrong and right ones have r gains for each loss of a size, there are
    # (r + q) / (1 + q r) gains for each loss, q = w / (1 - w). Wrong ones are half of them where r = q.
    most_K = 2 * ratio_K / (1 + ratio_K**2)
    moved_KI = gains_KI <= most_K[:, None] * losses_KI
    moved_KI[~((wrong_K >= LEAST_WRONG) & (gains_KI[:, -1] >= LEAST_GAINS))] = False
    return wrong_K, moved_KI
