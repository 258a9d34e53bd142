"""Chains of one sample that copy a list of states: haplotypes that change from window to window.

A state is one haplotype in a window and may be another one in the next, as if one haplotype were composed of
both (Browning et al. 2018, Am. J. Hum. Genet. 103:338). Some states stand for many haplotypes of the panel: a
chain that leaves its haplotype comes to them as often as to all of these.

Axes: S sites where states differ, B bytes of bits, K states, I words of 16 sites, G groups of sites, 2
chains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.chains import MISMATCH, Chains, Evidence
from spinimpute.phasing.copying_windows import CopyingWindows
from spinimpute.phasing.large_panels.state_passes import fill_states_backwards, sweep_states_forward
from spinimpute.phasing.likely_pairs import LikelyPairs

GROUP = 64  # sites; their backward values are kept at the same time
_WORD = 16  # sites
_WORDS_AT_ONCE = 256


def last_of_groups(n_sites: int) -> list[int]:
    """The last site of each group."""
    return [min(low + GROUP, n_sites) - 1 for low in range(0, n_sites, GROUP)]


class ChainsOverStates(Chains):
    """The chains of one sample.

    Parameters
    ----------
    packed_SB : uint8
        Alleles of the states, as bits in the order of `numpy.packbits`.
    share_K : float
        How many haplotypes of the panel each state stands for.
    evidence, windows, pairs
        As of `Chains`, of one sample.
    """

    def __init__(
        self,
        packed_SB: np.ndarray,
        share_K: np.ndarray,
        evidence: Evidence,
        windows: CopyingWindows,
        pairs: LikelyPairs | None,
    ) -> None:
        assert len(evidence.haploid_H) == 1
        n = len(share_K)
        super().__init__(evidence, n, windows, pairs)
        whole = -(-n // LANES) * LANES  # what fills up is never copied
        self._bits_IK = np.zeros((-(-len(packed_SB) // _WORD), whole), np.uint16)
        for bit in range(_WORD):
            for low in range(bit, len(packed_SB), _WORD * _WORDS_AT_ONCE):
                alleles_IK = np.unpackbits(
                    packed_SB[low : low + _WORD * _WORDS_AT_ONCE : _WORD], axis=1, count=n
                )
                first = low // _WORD
                self._bits_IK[first : first + len(alleles_IK), :n] |= alleles_IK.astype(
                    np.uint16
                ) << np.uint16(bit)
        self._share_K = np.zeros(whole, np.float32)
        self._share_K[:n] = share_K / share_K.sum()

    def _go(
        self, jump_S: np.ndarray, starting: bool, exchanged_HS: np.ndarray, counted: bool
    ) -> Iterator[np.ndarray | None]:
        n_sites, whole = len(jump_S), len(self._share_K)
        places = [slice(low, min(low + GROUP, n_sites)) for low in range(0, n_sites, GROUP)]
        behind_G2K = self._behind_groups(jump_S, places)
        right_P2K = np.empty((GROUP, 2, whole), np.float32)
        left_2K, sum_2 = np.stack([self._share_K, self._share_K]), np.ones(2, np.float32)
        for behind_2K, here in zip(behind_G2K, places, strict=True):
            self._backward(jump_S, here, behind_2K.copy(), right_P2K)
            exchanged = np.zeros((1, here.stop - here.start), np.uint8)
            sweep_states_forward(
                self._bits_IK, self._share_K, self.likelihood_S3H[here], self.haploid_H, jump_S[here],
                right_P2K, left_2K, sum_2, np.float32(MISMATCH), starting, self.fragments, here.start,
                self.emission_S2L[here], exchanged, self.probability_SL[here], self.factor_S2H[here],
            )  # fmt: skip
            exchanged_HS[:, here] = exchanged
            if not counted:
                yield None
                continue
            copied_2K = left_2K * behind_2K
            copied_2K /= copied_2K.sum(axis=1, keepdims=True)
            yield copied_2K[:, : self.n_haplotypes].sum(axis=0)[:, None]

    def _behind_groups(self, jump_S: np.ndarray, places: list[slice]) -> list[np.ndarray]:
        """Backward values behind each group of sites."""
        not_kept_P2K = np.empty((0, 2, len(self._share_K)), np.float32)
        behind = [np.ones((2, len(self._share_K)), np.float32)]
        for here in places[:0:-1]:
            before_2K = behind[-1].copy()
            self._backward(jump_S, here, before_2K, not_kept_P2K)
            behind.append(before_2K)
        return behind[::-1]

    def _backward(
        self, jump_S: np.ndarray, here: slice, behind_2K: np.ndarray, right_P2K: np.ndarray
    ) -> None:
        fill_states_backwards(
            self._bits_IK, self._share_K, self.emission_S2L[here], jump_S[here], here.start, behind_2K,
            right_P2K,
        )  # fmt: skip
