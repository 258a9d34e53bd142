"""Chains (`chains`) whose states are all haplotypes of a panel, not a selection.

HALF samples are computed together, with two lanes each (one per chain; HALF = LANES / 2). A forward pass
needs the backward values to the right of every place. To save memory, a backward pass first keeps them only
at the ends of groups of spans. When the forward pass reaches a group, it computes those within it again.

Axes: S sites, H = HALF samples, L = LANES lanes, I spans of a group, G groups of spans, P places of a span,
D patterns, N panel haplotypes, 2 alleles of a state; G1: one more than G.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.backward_values import BackwardValues, fill_backwards
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, span_patterns
from spinimpute.hmm.steps import SpanValues, cross_span
from spinimpute.phasing.chains import Chains, Evidence, Sweep
from spinimpute.phasing.copied_panel import CopiedPanel, CopyingWindows
from spinimpute.phasing.likelihood_passes import sweep_forward
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.passes import HALF


def group_patterns(panel: CopiedPanel, sites: Interval) -> list[SpanPatterns]:
    """Return the patterns of each group of spans.

    A group has about sqrt(number of spans) spans. Then the values that are kept at the ends of groups and the
    values within one group take about equal memory.
    """
    n_spans = -(-sites.n_sites // SPAN)
    step = max(1, round(n_spans**0.5)) * SPAN
    groups = []
    for start in range(sites.start, sites.stop, step):
        rows = np.arange(start, min(start + step, sites.stop))
        alleles_SN = np.unpackbits(panel.packed_rows(rows), axis=1, count=panel.n_haplotypes)
        groups.append(span_patterns(pack_rows(alleles_SN), len(rows)))
    return groups


def last_places(patterns: list[SpanPatterns], n_sites: int) -> list[int]:
    """Return the last place of each group of spans."""
    return (np.cumsum([len(one.pattern_IN) * SPAN for one in patterns]).clip(max=n_sites) - 1).tolist()


def groups_of_samples(n_samples: int) -> list[np.ndarray]:
    """Return the sample indices in groups of HALF; the last sample is repeated to fill the last group."""
    return [np.arange(low, low + HALF).clip(max=n_samples - 1) for low in range(0, n_samples, HALF)]


class ChainsOverAll(Chains):
    """Chains of HALF samples whose states are all haplotypes of a panel. patterns: see `group_patterns`."""

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
        first_G1 = np.cumsum([0, *(len(one.pattern_IN) * SPAN for one in patterns)]).tolist()
        self._places = list(map(slice, first_G1[:-1], first_G1[1:]))

    def _update_chains(self, sweep: Sweep, count_usage: bool) -> Iterator[np.ndarray | None]:
        after_GNL = self._values_after_groups(sweep)
        left_NL = np.full((self.n_haplotypes, LANES), np.float32(1) / self.n_haplotypes, np.float32)
        for group, patterns in enumerate(self.patterns):
            right, _ = self._backward(group, sweep, after_GNL[group])
            swept = self._swept_places(sweep, self._places[group])
            sweep_forward(patterns, swept, right, left_NL, self.fragments)
            if not count_usage:
                yield None
                continue
            copied_NL = left_NL * after_GNL[group]
            copied_NL /= copied_NL.sum(axis=0)
            yield copied_NL[:, :HALF] + copied_NL[:, HALF:]

    def _values_after_groups(self, sweep: Sweep) -> list[np.ndarray]:
        """Return the backward values to the right of each group of spans."""
        after = [np.ones((self.n_haplotypes, LANES), np.float32)]
        for group in range(len(self.patterns) - 1, 0, -1):
            right, values = self._backward(group, sweep, after[-1])
            values_NL = right.after_INL[0]
            cross_span(self.patterns[group], 0, values, values_NL)  # from its right to its left, in place
            after.append(values_NL.copy())
        return after[::-1]

    def _backward(self, group: int, sweep: Sweep, after_NL: np.ndarray) -> tuple[BackwardValues, SpanValues]:
        """Return the backward values of a group, and the result of `fill_backwards`.

        after_NL: backward values to the right of the group.
        """
        patterns, here = self.patterns[group], self._places[group]
        after_INL = np.empty((*patterns.pattern_IN.shape, LANES), np.float32)
        after_INL[-1] = after_NL
        stay_PDL, switch_PDL = (np.empty((SPAN, len(patterns.bits_D), LANES), np.float32) for _ in range(2))
        right = BackwardValues(after_INL, stay_PDL, switch_PDL)
        return right, fill_backwards(patterns, self.emission_S2L[here], sweep.jump_S[here], 0, right)
