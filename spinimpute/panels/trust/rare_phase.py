"""Find rare alleles on the wrong haplotype of their carrier.

Statistical phasing places common alleles well and rare ones badly. But carriers of a rare allele descend from
one haplotype and share the sequence around it. If the carrier's other haplotype matches other carriers longer
than the haplotype with the allele does, the phase may be wrong. The *gain* is the log of the ratio of their
longest matches, summed over both sides. A match includes one difference on each side, and counts at most 2
cM.

A large gain alone proves nothing, because some mutations arose twice. The panel itself shows how often phase
is wrong. If it were never wrong, the largest gains (more than 6: about twenty times as long on either side)
would hardly ever occur. A wrong phase turns a loss (a negative gain) into a gain, so the share of gains among
gains and losses of that size estimates the share of wrong phases (`wrong_share`). An allele is switched if
gains of its size are so rare beside losses that at least half of them are wrong phases. Nothing is switched
in panels whose rare alleles are nearly all right, such as those of careful projects.

Axes: X sites, R rare sites, T common sites, C carriers, K classes by number of carriers, I sizes of gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.panels.panel import Panel

COMMON = 0.01  # minor allele frequency from which sites are compared; rarer ones may have the wrong phase
MAX_CARRIERS = (2, 5, 10, 20, 50, 100)  # of each class
SIZES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)  # of gains; smaller gains are ignored
MIN_LOSSES, MIN_GAINS = 100, 10  # of the largest size; fewer are not enough for an estimate
MIN_WRONG = 0.015  # least share of wrong phases for which alleles are switched
_BLOCK, _FLANK = 2_048, 1_024  # common sites of a window, and around it


class Moves(NamedTuple):
    """Minor alleles to switch from one haplotype of a sample to the other."""

    site_M: np.ndarray  # panel sites, int64, never decreasing
    from_M: np.ndarray  # haplotypes
    to_M: np.ndarray
    wrong_share: dict[str, float]  # estimated share on the wrong haplotype by carriers ("2", "3-5", ...)


def find_moves(panel: Panel) -> Moves:
    """Find rare alleles on the wrong haplotype; none if phase is good or too few rare alleles are known."""
    n = panel.n_haplotypes
    count_X = panel.allele_count.astype(np.int64)
    minor_X = np.minimum(count_X, n - count_X)
    common = np.flatnonzero(minor_X >= COMMON * n)
    rare_X = (minor_X >= 2) & (minor_X < COMMON * n) & (minor_X <= MAX_CARRIERS[-1])
    # a haplotype must not get two ALT alleles of one record
    same_position = np.flatnonzero(np.diff(panel.position) == 0)
    rare_X[same_position] = rare_X[same_position + 1] = False
    sibling_N = sibling_haplotypes(panel.haplotype_sample)
    counted_2KI = np.zeros((2, len(MAX_CARRIERS), len(SIZES)), np.int64)  # losses, gains
    candidates: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.int32),) * 2 + (np.empty(0, np.int8),) * 2]
    for first in range(0, len(common), _BLOCK):
        low = common[first] if first else 0
        high = common[first + _BLOCK] if first + _BLOCK < len(common) else panel.n_sites
        rare = low + np.flatnonzero(rare_X[low:high])
        if not len(rare):
            continue
        around = common[max(0, first - _FLANK) : first + _BLOCK + _FLANK]
        carrier_C, gain_C = _compute_gains(panel, rare, minor_X[rare], around, sibling_N)
        site_C = np.repeat(rare, minor_X[rare])
        class_C = np.searchsorted(MAX_CARRIERS, minor_X[site_C])
        size_C = (
            np.searchsorted(SIZES, np.abs(gain_C)) - 1
        )  # NaN has the last size, and is not selected below
        for sign, chosen_C in enumerate((gain_C < -SIZES[0], gain_C > SIZES[0])):
            np.add.at(counted_2KI[sign], (class_C[chosen_C], size_C[chosen_C]), 1)
        kept_C = gain_C > SIZES[0]
        site_and_carrier = site_C.astype(np.int32), carrier_C.astype(np.int32)
        class_and_size = class_C.astype(np.int8), size_C.astype(np.int8)
        candidates.append(tuple(array[kept_C] for array in (*site_and_carrier, *class_and_size)))
    wrong_K, moved_KI = _estimate_wrong_phases(*counted_2KI)
    site_C, carrier_C, class_C, size_C = (np.concatenate(array) for array in zip(*candidates, strict=True))
    moved = moved_KI[class_C, size_C]
    # if both of two carriers gain, one phase is wrong, but not known which
    moved &= ~((minor_X[site_C] == 2) & (np.bincount(site_C[moved], minlength=len(minor_X))[site_C] == 2))
    min_carriers_K = [2, *(most + 1 for most in MAX_CARRIERS)]
    names = [f"{a}-{b}" if a < b else str(a) for a, b in zip(min_carriers_K, MAX_CARRIERS, strict=False)]
    return Moves(
        site_C[moved].astype(np.int64),
        carrier_C[moved].astype(np.int64),
        sibling_N[carrier_C[moved]],
        {name: round(float(w), 4) for name, w in zip(names, wrong_K, strict=True) if not np.isnan(w)},
    )


def _compute_gains(
    panel: Panel, rare: np.ndarray, n_carriers_R: np.ndarray, common: np.ndarray, sibling_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Carriers of rare alleles, site by site, and the gain of switching each (`fill_gains`)."""
    # numba loads slowly: commands that only read panels do without
    from spinimpute.genotypes.bit_rows import rows_of_packed
    from spinimpute.panels.trust.carrier_matches import fill_gains

    rows = panel.stored_rows(int(rare[0]), int(rare[-1]) + 1)
    assert rows.listed_X[rare - rare[0]].all(), (
        "lists are shorter than bits where less than a hundredth are carriers"
    )
    start_R = rows.start_X1[rare - rare[0]]
    start_R1 = np.concatenate([[0], np.cumsum(n_carriers_R)])
    place_C = np.arange(start_R1[-1]) - np.repeat(start_R1[:-1], n_carriers_R)
    byte_C = np.repeat(start_R, n_carriers_R) + place_C * rows.number_bytes
    bytes_CB = rows.stored[byte_C[:, None] + np.arange(rows.number_bytes)]
    carrier_C = bytes_CB.view(f"<u{rows.number_bytes}")[:, 0].astype(np.int64)
    gain_C = np.empty(len(carrier_C))
    bits_NW = rows_of_packed(panel.packed_rows(common), panel.n_haplotypes)
    place_R = np.searchsorted(common, rare)
    fill_gains(bits_NW, panel.cM[common], place_R, panel.cM[rare], start_R1, carrier_C, sibling_N, gain_C)
    return carrier_C, gain_C


def _estimate_wrong_phases(losses_KI: np.ndarray, gains_KI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share of wrong phases in each class, NaN if unknown, and the sizes of gains that are switched."""
    known_K = losses_KI[:, -1] >= MIN_LOSSES
    ratio_K = np.where(known_K, gains_KI[:, -1], np.nan) / np.maximum(losses_KI[:, -1], 1)
    wrong_K = ratio_K / (1 + ratio_K)
    # If a share w of phases is wrong and right phases have r gains for each loss of a size, there are
    # (r + q) / (1 + q r) gains for each loss, q = w / (1 - w). Half of these are wrong phases if r = q.
    max_ratio_K = 2 * ratio_K / (1 + ratio_K**2)
    moved_KI = gains_KI <= max_ratio_K[:, None] * losses_KI
    moved_KI[~((wrong_K >= MIN_WRONG) & (gains_KI[:, -1] >= MIN_GAINS))] = False
    return wrong_K, moved_KI
