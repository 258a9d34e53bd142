"""Chains of one sample that copy a list of states instead of all panel haplotypes.

A state is one haplotype in a window and may be another one in the next window, as if it were a haplotype that
is composed of both (Browning et al. 2018, Am. J. Hum. Genet. 103:338). Some states represent many haplotypes
of the panel and have a correspondingly larger weight: a chain switches to a state with a probability that is
proportional to its weight. `states` chooses the states, `state_passes` computes a sweep.

Axes: S sites at which the states may differ (`states`), B bytes of a site's packed bits, K states, I words of
16 sites, G groups of sites, P places of a group, 2 chains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.chains import Chains, Evidence, Sweep
from spinimpute.phasing.copied_panel import CopyingWindows
from spinimpute.phasing.large_panels.state_passes import (
    CopiedStates,
    fill_states_backwards,
    sweep_states_forward,
)
from spinimpute.phasing.likely_pairs import LikelyPairs

GROUP = 64  # sites whose backward values are kept at the same time
_WORD = 16  # sites per word of bits
_BATCH_WORDS = 256  # words that are unpacked together; limits memory


def last_of_groups(n_sites: int) -> list[int]:
    """Return the last site of each group of GROUP sites."""
    return [min(low + GROUP, n_sites) - 1 for low in range(0, n_sites, GROUP)]


class ChainsOverStates(Chains):
    """The two chains of one sample, which copy a list of states.

    packed_SB: uint8, alleles of the states, as bits in the order of `numpy.packbits`. weight_K: number of
    panel haplotypes that each state represents.
    """

    def __init__(
        self,
        packed_SB: np.ndarray,
        weight_K: np.ndarray,
        evidence: Evidence,
        windows: CopyingWindows,
        pairs: LikelyPairs | None,
    ) -> None:
        assert len(evidence.haploid_H) == 1
        n = len(weight_K)
        super().__init__(evidence, n, windows, pairs)
        padded = -(-n // LANES) * LANES  # the added states have a share of 0 and are never copied
        bits_IK = np.zeros((-(-len(packed_SB) // _WORD), padded), np.uint16)
        for bit in range(_WORD):  # bit b of word i is the allele at site 16 i + b
            for low in range(bit, len(packed_SB), _WORD * _BATCH_WORDS):
                rows_IB = packed_SB[low : low + _WORD * _BATCH_WORDS : _WORD]
                alleles_IK = np.unpackbits(rows_IB, axis=1, count=n).astype(np.uint16)
                first = low // _WORD
                bits_IK[first : first + len(alleles_IK), :n] |= alleles_IK << np.uint16(bit)
        share_K = np.zeros(padded, np.float32)
        share_K[:n] = weight_K / weight_K.sum()
        self._states = CopiedStates(bits_IK, share_K)

    def _update_chains(self, sweep: Sweep, count_usage: bool) -> Iterator[np.ndarray | None]:
        n_sites, share_K = len(sweep.jump_S), self._states.share_K
        places = [slice(low, min(low + GROUP, n_sites)) for low in range(0, n_sites, GROUP)]
        after_G2K = self._values_after_groups(sweep, places)
        right_P2K = np.empty((GROUP, 2, len(share_K)), np.float32)
        left_2K, sum_2 = np.stack([share_K, share_K]), np.ones(2, np.float32)
        for after_2K, here in zip(after_G2K, places, strict=True):
            swept = self._swept_places(sweep, here)
            fill_states_backwards(self._states, swept, after_2K.copy(), right_P2K)
            sweep_states_forward(self._states, swept, right_P2K, left_2K, sum_2, self.fragments)
            if not count_usage:
                yield None
                continue
            copied_2K = left_2K * after_2K
            copied_2K /= copied_2K.sum(axis=1, keepdims=True)
            yield copied_2K[:, : self.n_haplotypes].sum(axis=0)[:, None]

    def _values_after_groups(self, sweep: Sweep, places: list[slice]) -> list[np.ndarray]:
        """Return the backward values to the right of each group of sites."""
        n_states = len(self._states.share_K)
        not_kept_P2K = np.empty((0, 2, n_states), np.float32)
        after = [np.ones((2, n_states), np.float32)]
        for here in places[:0:-1]:
            before_2K = after[-1].copy()
            fill_states_backwards(self._states, self._swept_places(sweep, here), before_2K, not_kept_P2K)
            after.append(before_2K)
        return after[::-1]
