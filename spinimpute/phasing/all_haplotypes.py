"""Chains that may copy all haplotypes of a panel; HALF samples go through side by side.

A sweep needs backward values right of every place. They are kept at the ends of groups of spans only, and
computed again within a group when the forward pass comes to it.

Axes: S sites, H = HALF samples, L lanes, I spans, G groups of them, N haplotypes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm.backward_values import fill_backwards
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, span_patterns
from spinimpute.hmm.steps import go_through_alone
from spinimpute.phasing.chains import MISMATCH, Chains, Evidence
from spinimpute.phasing.copied_panel import CopiedPanel
from spinimpute.phasing.copying_windows import CopyingWindows
from spinimpute.phasing.likelihood_passes import sweep_forward
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.passes import HALF


def group_patterns(panel: CopiedPanel, sites: slice) -> list[SpanPatterns]:
    """Patterns of groups of spans, each with about as many spans as there are groups.

    Parameters
    ----------
    panel : CopiedPanel
        Whose haplotypes may be copied.
    sites : slice
        Consecutive ones.

    Returns
    -------
    list of SpanPatterns
        Of all groups.
    """
    n_spans = -(-(sites.stop - sites.start) // SPAN)
    step = max(1, round(n_spans**0.5)) * SPAN
    groups = []
    for low in range(sites.start, sites.stop, step):
        rows = np.arange(low, min(low + step, sites.stop))
        alleles_SN = np.unpackbits(panel.packed_rows(rows), axis=1, count=panel.n_haplotypes)
        groups.append(span_patterns(pack_rows(alleles_SN), len(rows)))
    return groups


def last_places(patterns: list[SpanPatterns], n_sites: int) -> list[int]:
    """The last place of each group."""
    return (np.cumsum([len(one.pattern_IN) * SPAN for one in patterns]).clip(max=n_sites) - 1).tolist()


def side_by_side(n_samples: int) -> list[np.ndarray]:
    """The samples in groups of HALF; the last one fills up the last group."""
    return [np.arange(low, low + HALF).clip(max=n_samples - 1) for low in range(0, n_samples, HALF)]


class ChainsOverAll(Chains):
    """Chains of HALF samples that may copy all haplotypes of a panel.

    Parameters
    ----------
    patterns : list of SpanPatterns
        Of groups of spans, `group_patterns`.
    evidence, windows, pairs
        As of `Chains`.
    """

    def __init__(
        self,
        patterns: list[SpanPatterns],
        evidence: Evidence,
        windows: CopyingWindows,
        pairs: LikelyPairs | None,
    ) -> None:
        assert len(evidence.haploid_H) == HALF
        super().__init__(evidence, patterns[0].pattern_IN.shape[1], windows, pairs)
        self.patterns = patterns
        self._first_G = np.cumsum([0, *(len(one.pattern_IN) * SPAN for one in patterns)]).tolist()

    def _go(
        self, jump_S: np.ndarray, starting: bool, exchanged_HS: np.ndarray, counted: bool
    ) -> Iterator[np.ndarray | None]:
        n = self.n_haplotypes
        behind_GNL = self._behind_groups(jump_S)
        left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
        for group, patterns in enumerate(self.patterns):
            here = self._places(group, len(jump_S))
            right = self._backward(group, jump_S, behind_GNL[group])[:3]
            exchanged = np.zeros((HALF, here.stop - here.start), np.uint8)
            sweep_forward(
                *patterns, self.likelihood_S3H[here], self.haploid_H, jump_S[here], *right, left_NL,
                np.float32(MISMATCH), starting, self.fragments, here.start, self.emission_S2L[here],
                exchanged, self.probability_SL[here], self.factor_S2H[here],
            )  # fmt: skip
            exchanged_HS[:, here] = exchanged
            if not counted:
                yield None
                continue
            copied_NL = left_NL * behind_GNL[group]
            copied_NL /= copied_NL.sum(axis=0)
            yield copied_NL[:, :HALF] + copied_NL[:, HALF:]

    def _behind_groups(self, jump_S: np.ndarray) -> list[np.ndarray]:
        """Backward values behind each group of spans."""
        behind = [np.ones((self.n_haplotypes, LANES), np.float32)]
        for group in range(len(self.patterns) - 1, 0, -1):
            behind_INL, _, _, stay_DL, come_DL = self._backward(group, jump_S, behind[-1])
            before_NL = behind_INL[0]
            go_through_alone(self.patterns[group].pattern_IN[0], stay_DL, come_DL, before_NL)
            behind.append(before_NL.copy())
        return behind[::-1]

    def _backward(self, group: int, jump_S: np.ndarray, behind_NL: np.ndarray) -> tuple[np.ndarray, ...]:
        patterns, here = self.patterns[group], self._places(group, len(jump_S))
        behind_INL = np.empty((*patterns.pattern_IN.shape, LANES), np.float32)
        behind_INL[-1] = behind_NL
        stay_PDL, come_PDL = (np.empty((SPAN, len(patterns.bits_D), LANES), np.float32) for _ in range(2))
        first = fill_backwards(
            *patterns, self.emission_S2L[here], jump_S[here], 0, len(behind_INL), behind_INL, stay_PDL,
            come_PDL,
        )  # fmt: skip
        return behind_INL, stay_PDL, come_PDL, *first

    def _places(self, group: int, n_sites: int) -> slice:
        return slice(self._first_G[group], min(self._first_G[group + 1], n_sites))
