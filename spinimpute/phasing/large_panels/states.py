"""The states that a sample's chains copy: its most likely haplotypes in each window, and representatives.

Representatives are haplotypes that stand for all others of the panel. Without them the chains would know
nothing about allele frequencies where none of the chosen haplotypes fits, and would rely on the chosen ones
too much.

Axes: S sites, R sites at which the states may differ, B bytes of a site's packed bits, W windows, K states, C
chosen haplotypes of a window, N panel haplotypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.phasing.copied_panel import CopiedPanel, PanelSubset
from spinimpute.phasing.large_panels.haplotype_alleles import HaplotypeAlleles

MAX_REPRESENTATIVES = 1_000  # maximum number of haplotypes that represent the others


@dataclass(frozen=True, eq=False)
class States:
    """The states of one sample."""

    site_R: np.ndarray  # int64, sites at which the states may differ, increasing
    packed_RB: np.ndarray  # uint8, alleles of the states at site_R, as bits in the order of `numpy.packbits`
    weight_K: np.ndarray  # float, number of panel haplotypes that each state represents
    same_S: np.ndarray  # uint8, the allele of all states at each site that is not in site_R

    @classmethod
    def choose(
        cls,
        alleles: HaplotypeAlleles,
        n_haplotypes: int,
        windows: Sequence[Interval],
        chosen_W: Sequence[np.ndarray],
    ) -> Self:
        """Return the states for the haplotypes that were chosen in each window, without duplicates."""
        slot_WC = fill_slots(chosen_W)
        n_chosen = slot_WC.shape[1]
        windows_data = []
        for slot_C, window in zip(slot_WC, windows, strict=True):
            state_K = np.concatenate([slot_C, choose_representatives(slot_C, n_haplotypes)])
            # A representative's rare alleles are ignored: its weight would make them far too frequent.
            min_carriers_K = np.where(
                np.arange(len(state_K)) < n_chosen, 0, n_haplotypes / MAX_REPRESENTATIVES
            )
            site_R, alleles_RK, same_S = alleles.take(state_K, min_carriers_K, window)
            windows_data.append((site_R, np.packbits(alleles_RK, axis=1), same_S))
        site, packed, same = (np.concatenate(columns) for columns in zip(*windows_data, strict=True))
        n_others = len(state_K) - n_chosen
        weight_K = np.ones(len(state_K))
        weight_K[n_chosen:] = (n_haplotypes - n_chosen) / max(n_others, 1)
        return cls(site, packed, weight_K, same)

    def as_panel(self, panel: CopiedPanel) -> PanelSubset:
        """Return the states at site_R as a panel for chains and pairs; `panel` has all sites."""
        return PanelSubset.select(panel, self.site_R, self.packed_RB, len(self.weight_K))


def fill_slots(chosen_W: Sequence[np.ndarray]) -> np.ndarray:
    """Assign the chosen haplotypes of each window to slots, int64 (W, C); each slot becomes a state.

    A haplotype that is chosen in consecutive windows keeps its slot. There are as many slots as the largest
    window has haplotypes. In smaller windows, haplotypes chosen in other windows fill the remaining slots.
    """
    n = max(map(len, chosen_W))
    everywhere = np.unique(np.concatenate(chosen_W))
    slot_WC = np.empty((len(chosen_W), n), np.int64)
    for w, chosen in enumerate(chosen_W):
        unchosen = np.setdiff1d(everywhere, chosen)
        filled = np.concatenate([chosen, unchosen[: n - len(chosen)]])
        if w == 0:
            slot_WC[0] = filled
            continue
        slot_WC[w] = slot_WC[w - 1]
        slot_WC[w, ~np.isin(slot_WC[w - 1], filled)] = np.setdiff1d(filled, slot_WC[w - 1])
    return slot_WC


def choose_representatives(chosen_C: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Choose at most MAX_REPRESENTATIVES haplotypes, int64, about evenly spaced, none of them in chosen_C."""
    representatives = spread(min(MAX_REPRESENTATIVES, n_haplotypes - len(chosen_C)), n_haplotypes)
    is_chosen = np.isin(representatives, chosen_C)
    taken = {*chosen_C.tolist(), *representatives.tolist()}
    for number in np.flatnonzero(is_chosen).tolist():  # take the next free haplotype instead
        haplotype = int(representatives[number])
        while haplotype in taken:
            haplotype = (haplotype + 1) % n_haplotypes
        taken.add(haplotype)
        representatives[number] = haplotype
    return representatives


def spread(n: int, n_haplotypes: int) -> np.ndarray:
    """Return n evenly spaced haplotypes of a panel, int64; each population then has its share."""
    return np.arange(n, dtype=np.int64) * n_haplotypes // n
