"""Patterns of a panel in spans of typed places: haplotypes with the same alleles share their steps there.

As in Minimac (Das et al. 2016, Nat. Genet. 48:1284).

Axes: N panel haplotypes, M further ones, S typed places, I spans of SPAN places, D patterns of the spans, W
64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import SPAN
from spinimpute.runtime.kernels import kernel


class SpanPatterns(NamedTuple):
    """Patterns of the panel in spans of typed places.

    Attributes
    ----------
    pattern_IN : int32 (I, N)
        The pattern of each haplotype, numbered within its span.
    first_I1 : int64 (I + 1,)
        Where a span's patterns begin in bits_D and count_D.
    bits_D : uint64 (D,)
        Alleles of a pattern; the span's first place is the lowest bit.
    count_D : float32 (D,)
        Number of haplotypes with the pattern.
    """

    pattern_IN: np.ndarray
    first_I1: np.ndarray
    bits_D: np.ndarray
    count_D: np.ndarray


def span_patterns(panel_NW: np.ndarray, n_places: int) -> SpanPatterns:
    """Patterns of the panel, numbered in the order of the haplotypes that first have them.

    Parameters
    ----------
    panel_NW : uint64 (N, W)
        Typed alleles of the panel, see `pack_rows`.
    n_places : int
        S.

    Returns
    -------
    SpanPatterns
        Patterns of all spans.
    """
    pattern_IN = np.empty((-(-n_places // SPAN), len(panel_NW)), np.int32)
    return SpanPatterns(pattern_IN, *_span_patterns(panel_NW, pattern_IN))


class PatternsWithRows:
    """Patterns of the panel with further haplotypes, others each time.

    Parameters
    ----------
    patterns : SpanPatterns
        Of the panel.
    """

    def __init__(self, patterns: SpanPatterns) -> None:
        self._panel = patterns
        self._pattern_IN = patterns.pattern_IN

    def of(self, rows_MW: np.ndarray) -> SpanPatterns:
        """As `span_patterns` of the panel's N haplotypes and then these would number them.

        Parameters
        ----------
        rows_MW : uint64 (M, W)
            Typed alleles of the further haplotypes, see `pack_rows`.

        Returns
        -------
        SpanPatterns
            Of all N + M; the next call overwrites them.
        """
        n_spans, n = self._panel.pattern_IN.shape
        if self._pattern_IN.shape[1] != n + len(rows_MW):
            self._pattern_IN = np.empty((n_spans, n + len(rows_MW)), np.int32)
            self._pattern_IN[:, :n] = self._panel.pattern_IN
        return SpanPatterns(self._pattern_IN, *_add_rows(*self._panel, rows_MW, self._pattern_IN))


@kernel()
def _add_rows(panel_pattern_IN, panel_first_I1, panel_bits_D, panel_count_D, rows_MW, pattern_IN):  # type: ignore[no-untyped-def]
    """Fill pattern_IN from the panel's haplotypes on; returns the rest of `SpanPatterns`."""
    n_spans, n = panel_pattern_IN.shape
    n_rows = len(rows_MW)
    number_K = np.full(1 << SPAN, np.int32(-1))
    first_I1 = np.zeros(n_spans + 1, np.int64)
    most = len(panel_bits_D) + n_spans * n_rows
    bits_D, count_D = np.empty(most, np.uint64), np.zeros(most, np.float32)
    low = np.uint64((1 << SPAN) - 1)
    total = 0
    for i in range(n_spans):
        first_I1[i] = first = total
        for d in range(panel_first_I1[i], panel_first_I1[i + 1]):
            number_K[panel_bits_D[d]] = total - first
            bits_D[total], count_D[total] = panel_bits_D[d], panel_count_D[d]
            total += 1
        word, shift = (i * SPAN) >> 6, np.uint64((i * SPAN) & 63)
        for m in range(n_rows):
            key = (rows_MW[m, word] >> shift) & low
            if number_K[key] < 0:
                number_K[key] = total - first
                bits_D[total] = key
                total += 1
            pattern_IN[i, n + m] = number_K[key]
            count_D[first + number_K[key]] += 1
        for d in range(first, total):
            number_K[bits_D[d]] = -1
    first_I1[n_spans] = total
    return first_I1, bits_D[:total].copy(), count_D[:total].copy()


@kernel()
def _span_patterns(panel_NW, pattern_IN):  # type: ignore[no-untyped-def]
    n_spans, n = pattern_IN.shape
    number_K = np.empty(1 << SPAN, np.int32)
    first_I1 = np.zeros(n_spans + 1, np.int64)
    bits_D, count_D = (
        np.empty(n_spans * min(n, 1 << SPAN), np.uint64),
        np.zeros(n_spans * min(n, 1 << SPAN), np.float32),
    )
    low = np.uint64((1 << SPAN) - 1)
    total = 0
    for i in range(n_spans):
        number_K[:] = -1
        word, shift = (i * SPAN) >> 6, np.uint64((i * SPAN) & 63)
        first_I1[i] = total
        for h in range(n):
            key = (panel_NW[h, word] >> shift) & low
            number = number_K[key]
            if number < 0:
                number = total - first_I1[i]
                number_K[key] = number
                bits_D[total] = key
                total += 1
            pattern_IN[i, h] = number
            count_D[first_I1[i] + number] += 1
    first_I1[n_spans] = total
    return first_I1, bits_D[:total].copy(), count_D[:total].copy()


@kernel()
def most_patterns(first_I1):  # type: ignore[no-untyped-def]
    """The largest number of patterns of a span."""
    most = 1
    for i in range(len(first_I1) - 1):
        most = max(most, first_I1[i + 1] - first_I1[i])
    return most
