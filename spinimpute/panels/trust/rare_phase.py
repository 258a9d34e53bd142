"""Find rare alleles that were phased onto the wrong haplotype of a sample.

Statistical phasing places common alleles well and rare ones badly. But the haplotypes with a rare allele
descend from one ancestor and share the sequence around the allele. If the *sibling* (the sample's other
haplotype) matches other carriers longer than the carrying haplotype does, the phase may be wrong.

The length of a match is log(cM to the left) + log(cM to the right). A match may contain one mismatch on each
side, and its length is capped at 2 cM per side. The *gain* is the sibling's longest match with another
carrier minus the carrying haplotype's longest match. A negative gain is a *loss*.

A large gain alone proves nothing: recurrent mutations also produce large gains. The phase error rate is
therefore estimated from the panel. If all phases were correct, gains above 6 (about 20 times as long on each
side) would almost never occur. A phase error exchanges the two haplotypes, so a loss becomes a gain. At this
size, gains / (gains + losses) estimates the share of wrong phases (`wrong_share`). An allele is moved only
if at least half of the gains of its size are expected to be phase errors. Nothing is moved if fewer than
1.5 % of phases are estimated to be wrong, as in carefully phased panels.

Axes: X sites, R rare sites, T common sites, C haplotypes that carry a rare allele, M alleles to move, K
classes by number of carriers, I sizes of gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.panels.panel import Panel

COMMON = 0.01  # matches are computed from sites with at least this MAF: rarer alleles may be misphased
MAX_CARRIERS = (2, 5, 10, 20, 50, 100)  # largest number of carriers of each class
SIZES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)  # lower limits of the sizes of gains; smaller gains are ignored
MIN_LOSSES, MIN_GAINS = 100, 10  # an estimate needs this many losses and gains of the largest size
MIN_WRONG = 0.015  # minimum estimated share of wrong phases at which alleles are moved
_BLOCK, _FLANK = 2_048, 1_024  # common sites processed at a time, and further ones read on each side


class Moves(NamedTuple):
    """Minor alleles to move from one haplotype of a sample to the other."""

    site_M: np.ndarray  # panel sites, int64, non-decreasing
    from_M: np.ndarray  # haplotypes that have the allele, int64
    to_M: np.ndarray  # haplotypes that get it, int64
    # number of carriers ("2", "3-5", ...) -> estimated share of misphased alleles, if it could be estimated
    wrong_share: dict[str, float]


def find_moves(panel: Panel) -> Moves:
    """Find rare alleles on the wrong haplotype.

    None are found if phase is good, or if there are too few rare alleles for an estimate.
    """
    n = panel.n_haplotypes
    count_X = panel.allele_count.astype(np.int64)
    minor_X = np.minimum(count_X, n - count_X)
    common = np.flatnonzero(minor_X >= COMMON * n)
    rare_X = (minor_X >= 2) & (minor_X < COMMON * n) & (minor_X <= MAX_CARRIERS[-1])
    # skip multi-allelic records: a move could put two ALT alleles on one haplotype
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
        # NaN gets the last size, but no selection below includes it
        size_C = np.searchsorted(SIZES, np.abs(gain_C)) - 1
        for sign, chosen_C in enumerate((gain_C < -SIZES[0], gain_C > SIZES[0])):
            np.add.at(counted_2KI[sign], (class_C[chosen_C], size_C[chosen_C]), 1)
        kept_C = gain_C > SIZES[0]
        site_and_carrier = site_C.astype(np.int32), carrier_C.astype(np.int32)
        class_and_size = class_C.astype(np.int8), size_C.astype(np.int8)
        candidates.append(tuple(array[kept_C] for array in (*site_and_carrier, *class_and_size)))
    wrong_K, moved_KI = _estimate_wrong_phases(*counted_2KI)
    site_C, carrier_C, class_C, size_C = (np.concatenate(array) for array in zip(*candidates, strict=True))
    moved = moved_KI[class_C, size_C]
    # if both carriers of a doubleton have a gain, it is unknown which phase is wrong: move neither
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
    """Return the carriers of rare alleles, site by site, and the gain of moving each (`fill_gains`)."""
    # numba loads slowly, and commands that only read panels do not need it
    from spinimpute.genotypes.bit_rows import rows_of_packed
    from spinimpute.panels.trust.carrier_matches import fill_gains

    rows = panel.stored_rows(int(rare[0]), int(rare[-1]) + 1)
    assert rows.listed_X[rare - rare[0]].all(), "a row with rare carriers must be stored as a list of them"
    start_R = rows.start_X1[rare - rare[0]]
    start_R1 = np.concatenate([[0], np.cumsum(n_carriers_R)])
    rank_C = np.arange(start_R1[-1]) - np.repeat(start_R1[:-1], n_carriers_R)
    byte_C = np.repeat(start_R, n_carriers_R) + rank_C * rows.number_bytes
    bytes_CB = rows.stored[byte_C[:, None] + np.arange(rows.number_bytes)]
    carrier_C = bytes_CB.view(f"<u{rows.number_bytes}")[:, 0].astype(np.int64)
    gain_C = np.empty(len(carrier_C))
    bits_NW = rows_of_packed(panel.packed_rows(common), panel.n_haplotypes)
    place_R = np.searchsorted(common, rare)
    fill_gains(bits_NW, panel.cM[common], place_R, panel.cM[rare], start_R1, carrier_C, sibling_N, gain_C)
    return carrier_C, gain_C


def _estimate_wrong_phases(losses_KI: np.ndarray, gains_KI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the share of wrong phases by class, NaN if unknown, and which sizes to move, bool (K, I)."""
    known_K = losses_KI[:, -1] >= MIN_LOSSES
    ratio_K = np.where(known_K, gains_KI[:, -1], np.nan) / np.maximum(losses_KI[:, -1], 1)
    wrong_K = ratio_K / (1 + ratio_K)
    # Consider the gains and losses of one size. Let r be gains / losses among correct phases. Among wrong
    # phases, gains and losses are exchanged, so the ratio is 1 / r. Let w be the share of wrong phases and
    # q = w / (1 - w). The ratio among all phases is (r + q) / (1 + q r). Half of the gains are phase errors
    # when r = q.
    max_ratio_K = 2 * ratio_K / (1 + ratio_K**2)
    moved_KI = gains_KI <= max_ratio_K[:, None] * losses_KI
    moved_KI[~((wrong_K >= MIN_WRONG) & (gains_KI[:, -1] >= MIN_GAINS))] = False
    return wrong_K, moved_KI
