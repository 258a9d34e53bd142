"""The states of a sample: its likeliest haplotypes of each window, and some that stand for all others.

Without the others nothing would be known of how frequent alleles are where no haplotype is likely, and what
was chosen would be trusted too much.

Axes: S sites, R of them where states may differ, B bytes of bits, W windows, K states, C chosen ones of them,
N haplotypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spinimpute.phasing.copied_panel import CopiedPanel, PanelPart
from spinimpute.phasing.large_panels.haplotype_alleles import HaplotypeAlleles

OTHERS = 1_000  # haplotypes that stand for all that were not chosen


@dataclass(frozen=True, eq=False)
class States:
    """The states of one sample.

    Attributes
    ----------
    site_R : int64
        Sites, increasing.
    packed_RB : uint8
        Alleles of the states there, as bits in the order of `numpy.packbits`.
    share_K : float
        How many haplotypes of the panel each one stands for.
    same_S : uint8
        What all of them have at other sites.
    """

    site_R: np.ndarray
    packed_RB: np.ndarray
    share_K: np.ndarray
    same_S: np.ndarray

    @classmethod
    def of(
        cls,
        alleles: HaplotypeAlleles,
        n_haplotypes: int,
        bounds_W1: Sequence[int],
        chosen_W: Sequence[np.ndarray],
    ) -> States:
        """Those of chosen haplotypes.

        Parameters
        ----------
        alleles : HaplotypeAlleles
            Of the panel.
        n_haplotypes : int
            N.
        bounds_W1 : sequence of int
            The first site of each window, and the end of the last.
        chosen_W : sequence of int64 arrays
            Of each window, each haplotype once.
        """
        slot_WC = in_slots(chosen_W)
        n_chosen = slot_WC.shape[1]
        parts = []
        for slot_C, low, high in zip(slot_WC, bounds_W1[:-1], bounds_W1[1:], strict=True):
            state_K = np.concatenate([slot_C, stand_ins(slot_C, n_haplotypes)])
            # one that stands for many would lend its weight to alleles that few of these have
            least_K = np.where(np.arange(len(state_K)) < n_chosen, 0, n_haplotypes / OTHERS)
            site_R, alleles_RK, same_S = alleles.of_states(state_K, least_K, low, high)
            parts.append((site_R, np.packbits(alleles_RK, axis=1), same_S))
        site, packed, same = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        n_others = len(state_K) - n_chosen
        share_K = np.ones(len(state_K))
        share_K[n_chosen:] = (n_haplotypes - n_chosen) / max(n_others, 1)
        return cls(site, packed, share_K, same)

    def as_panel(self, panel: CopiedPanel) -> PanelPart:
        """The sites and states, as chains and pairs see them; panel: of all sites."""
        return PanelPart.of(panel, self.site_R, self.packed_RB, len(self.share_K))


def in_slots(chosen_W: Sequence[np.ndarray]) -> np.ndarray:
    """Haplotypes that are chosen in several windows, one behind the other, keep their place.

    Parameters
    ----------
    chosen_W : sequence of int64 arrays
        Of each window, each haplotype once.

    Returns
    -------
    int64 (W, C)
        As many as in the window with the most; where there are fewer, haplotypes of other windows fill up.
    """
    n = max(map(len, chosen_W))
    everywhere = np.unique(np.concatenate(chosen_W))
    slot_WC = np.empty((len(chosen_W), n), np.int64)
    for w, chosen in enumerate(chosen_W):
        of_others = np.setdiff1d(everywhere, chosen)
        filled = np.concatenate([chosen, of_others[: n - len(chosen)]])
        if w == 0:
            slot_WC[0] = filled
            continue
        slot_WC[w] = slot_WC[w - 1]
        slot_WC[w, ~np.isin(slot_WC[w - 1], filled)] = np.setdiff1d(filled, slot_WC[w - 1])
    return slot_WC


def stand_ins(chosen_C: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Haplotypes that stand for all that are not chosen, about evenly spread over the panel.

    Parameters
    ----------
    chosen_C : int64
        Chosen ones.
    n_haplotypes : int
        N.

    Returns
    -------
    int64 (n,)
        None of the chosen, each once; OTHERS, or fewer if fewer are left.
    """
    other = spread(min(OTHERS, n_haplotypes - len(chosen_C)), n_haplotypes)
    is_chosen = np.isin(other, chosen_C)
    taken = {*chosen_C.tolist(), *other.tolist()}
    for number in np.flatnonzero(is_chosen).tolist():  # the next one that is free
        haplotype = int(other[number])
        while haplotype in taken:
            haplotype = (haplotype + 1) % n_haplotypes
        taken.add(haplotype)
        other[number] = haplotype
    return other


def spread(n: int, n_haplotypes: int) -> np.ndarray:
    """So many haplotypes, int64, evenly spread over a panel: each population as it is there."""
    return np.arange(n, dtype=np.int64) * n_haplotypes // n
