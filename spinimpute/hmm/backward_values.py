"""Backward values right of every place, of all haplotypes and LANES queries.

They serve passes from the left that decide on phase at a place, or predict its call without the call itself.

Axes: S typed places, N panel haplotypes, I spans, P places of a span, D patterns of all spans, L lanes, 2
alleles of a state.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, most_patterns
from spinimpute.hmm.steps import go_through, step_back, sum_patterns
from spinimpute.runtime.kernels import kernel


class BackwardValues(NamedTuple):
    """Backward values in parts.

    That of haplotype n in pattern d of wanted span i, right of place p of the span, is
    stay_PDL[p, d] * behind_INL[i, n] + come_PDL[p, d].

    Attributes
    ----------
    behind_INL : float32 (I, N, L)
        Backward values behind each of the spans that are wanted.
    stay_PDL, come_PDL : float32 (P, D, L)
        Of the queries that do not leave their haplotype up to the span's end, and of those that leave it;
        anything where no span is wanted.
    """

    behind_INL: np.ndarray
    stay_PDL: np.ndarray
    come_PDL: np.ndarray


class Room:
    """Memory for the backward values of one group of queries after the other: the last ones are overwritten.

    Memory that is new each time costs a tenth of the time of phasing.
    """

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.float32)

    def of(self, patterns: SpanPatterns, n_spans: int) -> BackwardValues:
        """Backward values of any content, of so many spans."""
        of_patterns = SPAN * len(patterns.bits_D) * LANES
        shape_INL = n_spans, patterns.pattern_IN.shape[1], LANES
        ends = np.cumsum([prod(shape_INL), of_patterns, of_patterns])
        if len(self._numbers) < ends[-1]:
            self._numbers = np.empty(0, np.float32)  # not both at once
            # the next group may have more patterns
            self._numbers = np.empty(ends[-1] + of_patterns // 4, np.float32)
        behind_INL, stay_PDL, come_PDL = np.split(self._numbers[: ends[-1]], ends[:-1])
        shape_PDL = SPAN, len(patterns.bits_D), LANES
        return BackwardValues(
            behind_INL.reshape(shape_INL), stay_PDL.reshape(shape_PDL), come_PDL.reshape(shape_PDL)
        )


def backward_values(
    patterns: SpanPatterns,
    emission_S2L: np.ndarray,
    jump_S: np.ndarray,
    first: int = 0,
    stop: int | None = None,
    room: Room | None = None,
) -> BackwardValues:
    """Compute the backward values from the last place to the first that is wanted.

    Parameters
    ----------
    patterns : SpanPatterns
        Patterns of the panel.
    emission_S2L : float32 (S, 2, L)
        Emissions of one group of queries, see `side_by_side`.
    jump_S : float32 (S,)
        See `jump_probabilities`.
    first, stop : int
        The spans of the places [first, stop) are wanted; None for all places.
    room : Room or None
        Where values lie; None for new memory.

    Returns
    -------
    BackwardValues
        Values of the spans that are wanted.
    """
    first_span, last_span = first // SPAN, len(patterns.pattern_IN) if stop is None else -(-stop // SPAN)
    values = (room or Room()).of(patterns, last_span - first_span)
    values.behind_INL[-1] = 1
    fill_backwards(*patterns, emission_S2L, jump_S, first_span, last_span, *values)
    return values


@kernel(fast=True)
def fill_backwards(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, emission_S2L, jump_S, first_span, last_span, behind_INL, stay_PDL,
    come_PDL,
):  # fmt: skip
    """Fill in `BackwardValues` of the spans [first_span, last_span).

    Returns stay_DL and come_DL of the first of them. The last of behind_INL holds the values behind the
    panel's last span.
    """
    n_spans, n = pattern_IN.shape
    n_places = len(jump_S)
    most = most_patterns(first_I1)
    behind_DL, divisor_L = np.empty((most, LANES), np.float32), np.empty(LANES, np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    last = first_I1[n_spans] - first_I1[n_spans - 1]
    row = last_span - first_span - 1  # where values behind a span lie
    sum_patterns(pattern_IN[n_spans - 1], behind_INL[row], behind_DL[:last])
    for i in range(n_spans - 1, first_span - 1, -1):
        first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
        bits_here_D, count_here_D = bits_D[first : first + d], count_D[first : first + d]
        stay_DL[:d] = 1
        come_DL[:d] = 0
        for place in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
            at = place - i * SPAN
            if i < last_span:
                stay_PDL[at, first : first + d] = stay_DL[:d]
                come_PDL[at, first : first + d] = come_DL[:d]
            step_back(
                bits_here_D, count_here_D, at, emission_S2L[place], jump_S[place], n, behind_DL, stay_DL,
                come_DL, divisor_L,
            )  # fmt: skip
        if i > first_span:
            from_row, row = row, row - (i < last_span)
            go_through(
                pattern_IN[i], stay_DL, come_DL, behind_INL[from_row], behind_INL[row], pattern_IN[i - 1],
                behind_DL[: first - first_I1[i - 1]],
            )  # fmt: skip
    return stay_DL, come_DL
