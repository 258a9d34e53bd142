"""Patterns: the distinct haplotypes of a panel within each span of SPAN typed places.

Haplotypes with the same pattern are computed together within a span (`steps`), as in Minimac (Das et al.
2016, Nat. Genet. 48:1284). In 16 places even a large panel has few patterns.

Axes: N panel haplotypes, M added haplotypes, I spans, I1: one more than I, D patterns of all spans, K
possible patterns of a span (2^SPAN), W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import SPAN
from spinimpute.runtime.kernels import kernel


class SpanPatterns(NamedTuple):
    """The patterns of a panel in all spans."""

    pattern_IN: np.ndarray  # int32, the pattern of each haplotype, numbered within the span
    first_I1: np.ndarray  # int64, index in bits_D and count_D of each span's first pattern
    bits_D: np.ndarray  # uint64, alleles of a pattern; the lowest bit is the span's first place
    count_D: np.ndarray  # float32, number of haplotypes with the pattern


def span_patterns(panel_NW: np.ndarray, n_places: int) -> SpanPatterns:
    """Find the patterns of a panel's rows (`pack_rows`).

    They are numbered in the order of first occurrence.
    """
    pattern_IN = np.empty((-(-n_places // SPAN), len(panel_NW)), np.int32)
    return SpanPatterns(pattern_IN, *_number_patterns(panel_NW, pattern_IN))


class PatternsWithRows:
    """Patterns of a panel and of further haplotypes, which differ from call to call."""

    def __init__(self, patterns: SpanPatterns) -> None:
        self._panel = patterns
        self._pattern_IN = patterns.pattern_IN

    def add(self, rows_MW: np.ndarray) -> SpanPatterns:
        """Return the patterns of the panel and these rows. The next call overwrites the result."""
        n_spans, n = self._panel.pattern_IN.shape
        if self._pattern_IN.shape[1] != n + len(rows_MW):
            self._pattern_IN = np.empty((n_spans, n + len(rows_MW)), np.int32)
            self._pattern_IN[:, :n] = self._panel.pattern_IN
        return SpanPatterns(self._pattern_IN, *_add_rows(self._panel, rows_MW, self._pattern_IN))


@kernel()
def _add_rows(panel, rows_MW, pattern_IN):  # type: ignore[no-untyped-def]
    """Fill pattern_IN for the added haplotypes, and return the other fields of `SpanPatterns`."""
    n_spans, n = panel.pattern_IN.shape
    n_rows = len(rows_MW)
    number_K = np.full(1 << SPAN, np.int32(-1))
    first_I1 = np.zeros(n_spans + 1, np.int64)
    size = len(panel.bits_D) + n_spans * n_rows
    bits_D, count_D = np.empty(size, np.uint64), np.zeros(size, np.float32)
    low = np.uint64((1 << SPAN) - 1)
    total = 0
    for i in range(n_spans):
        first_I1[i] = first = total
        for d in range(panel.first_I1[i], panel.first_I1[i + 1]):
            number_K[panel.bits_D[d]] = total - first
            bits_D[total], count_D[total] = panel.bits_D[d], panel.count_D[d]
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
def _number_patterns(panel_NW, pattern_IN):  # type: ignore[no-untyped-def]
    """Fill pattern_IN, and return the other fields of `SpanPatterns`."""
    n_spans, n = pattern_IN.shape
    number_K = np.empty(1 << SPAN, np.int32)
    first_I1 = np.zeros(n_spans + 1, np.int64)
    size = n_spans * min(n, 1 << SPAN)
    bits_D, count_D = np.empty(size, np.uint64), np.zeros(size, np.float32)
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
def max_patterns(first_I1):  # type: ignore[no-untyped-def]
    """Return the largest number of patterns of a span."""
    largest = 1
    for i in range(len(first_I1) - 1):
        largest = max(largest, first_I1[i + 1] - first_I1[i])
    return largest
