"""Backward values to the right of every place, for all panel haplotypes and LANES queries.

A forward pass combines them with its own values to decide on the phase at a place, or to predict a call from
all other calls. `steps` explains the values and the patterns of spans.

Axes: S typed places, N panel haplotypes, I spans, P places of a span, D patterns of all spans, L lanes, 2
alleles of a state.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns
from spinimpute.hmm.steps import (
    cross_span_and_sum,
    n_patterns,
    span_values,
    start_span,
    step_back,
    sum_patterns,
)
from spinimpute.runtime.kernels import kernel


class BackwardValues(NamedTuple):
    """Backward values of consecutive spans, float32.

    In the i-th of these spans, to the right of place p, the value of haplotype n with pattern d is

        stay_PDL[p, d] * after_INL[i, n] + switch_PDL[p, d]
    """

    after_INL: np.ndarray  # values to the right of each span
    # stay_PDL belongs to queries that stay on their haplotype up to the span's end, switch_PDL to those that
    # switch before. Both are indexed by the patterns of all spans, and undefined for other spans than these.
    stay_PDL: np.ndarray
    switch_PDL: np.ndarray


class Workspace:
    """Memory that is reused for the backward values of one group of queries after the other.

    Allocating it anew for each group would take a tenth of the time of phasing.
    """

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.float32)

    def allocate(self, patterns: SpanPatterns, n_spans: int) -> BackwardValues:
        """Return uninitialized values for n_spans spans. They overwrite the values of the last call."""
        n_values = SPAN * len(patterns.bits_D) * LANES
        shape_INL = n_spans, patterns.pattern_IN.shape[1], LANES
        ends = np.cumsum([prod(shape_INL), n_values, n_values])
        if len(self._numbers) < ends[-1]:
            self._numbers = np.empty(0, np.float32)  # frees the old memory first
            # leaves room for a next group with more patterns
            self._numbers = np.empty(ends[-1] + n_values // 4, np.float32)
        after_INL, stay_PDL, switch_PDL = np.split(self._numbers[: ends[-1]], ends[:-1])
        shape_PDL = SPAN, len(patterns.bits_D), LANES
        return BackwardValues(
            after_INL.reshape(shape_INL), stay_PDL.reshape(shape_PDL), switch_PDL.reshape(shape_PDL)
        )


def backward_values(
    patterns: SpanPatterns,
    emission_S2L: np.ndarray,
    jump_S: np.ndarray,
    places: Interval | None = None,
    workspace: Workspace | None = None,
) -> BackwardValues:
    """Compute the backward values of the spans that contain `places`; None for all places."""
    first, stop = places or (0, len(jump_S))
    first_span, stop_span = first // SPAN, -(-stop // SPAN)
    values = (workspace or Workspace()).allocate(patterns, stop_span - first_span)
    values.after_INL[-1] = 1
    fill_backwards(patterns, emission_S2L, jump_S, first_span, values)
    return values


@kernel(fast=True)
def fill_backwards(patterns, emission_S2L, jump_S, first_span, right):  # type: ignore[no-untyped-def]
    """Fill `BackwardValues` of consecutive spans, beginning with first_span, in a pass from the last place.

    At the start, the last row of right.after_INL must hold the values to the right of the last place. Returns
    the `SpanValues` after the last step in first_span: `cross_span` needs them to get the values to its left.
    """
    n_spans, n_places = len(patterns.pattern_IN), len(jump_S)
    after_INL, stay_PDL, switch_PDL = right
    stop_span = first_span + len(after_INL)
    values = span_values(patterns)
    after_DL = np.empty_like(values.stay_DL)
    row = len(after_INL) - 1  # row of after_INL with the values to the right of span i
    sum_patterns(patterns, n_spans - 1, after_INL[row], after_DL)
    for i in range(n_spans - 1, first_span - 1, -1):
        first, d = patterns.first_I1[i], n_patterns(patterns, i)
        start_span(patterns, i, values)
        for place in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
            p = place - i * SPAN
            if i < stop_span:
                stay_PDL[p, first : first + d] = values.stay_DL[:d]
                switch_PDL[p, first : first + d] = values.switch_DL[:d]
            step_back(patterns, place, emission_S2L, jump_S[place], after_DL, values)
        if i > first_span:
            from_row, row = row, row - (i < stop_span)
            cross_span_and_sum(patterns, i, i - 1, values, after_INL[from_row], after_INL[row], after_DL)
    return values
