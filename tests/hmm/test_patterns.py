"""Patterns of the panel with further haplotypes, beside patterns of all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm.patterns import PatternsWithRows, span_patterns


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 70), st.integers(1, 40))
def test_further_haplotypes_are_numbered_as_if_they_were_the_panels_last(
    seed: int, n_places: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    frequency_S1 = rng.uniform(0, 1, (n_places, 1))
    panel_NW = pack_rows((rng.random((n_places, n)) < frequency_S1).astype(np.uint8))
    patterns = PatternsWithRows(span_patterns(panel_NW, n_places))
    for n_rows in (3, 3, 5, 0):
        rows_MW = pack_rows((rng.random((n_places, n_rows)) < frequency_S1).astype(np.uint8))
        found, expected = patterns.of(rows_MW), span_patterns(np.concatenate([panel_NW, rows_MW]), n_places)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
