"""Patterns of the panel with further haplotypes, beside patterns of all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.backward_values import Workspace, backward_values
from spinimpute.hmm.parameters import LANES, SPAN
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
        found, expected = patterns.add(rows_MW), span_patterns(np.concatenate([panel_NW, rows_MW]), n_places)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_backward_values_in_memory_that_is_used_again(rng: np.random.Generator) -> None:
    workspace = Workspace()
    for n_places, n, first, stop in ((40, 30, 0, 40), (70, 90, 10, 60), (20, 3, 0, 20), (70, 60, 40, 41)):
        panel_NW = pack_rows(rng.integers(0, 2, (n_places, n)).astype(np.uint8))
        patterns = span_patterns(panel_NW, n_places)
        emission_S2L = rng.uniform(0.01, 1, (n_places, 2, LANES)).astype(np.float32)
        jump_S = rng.uniform(0, 0.3, n_places).astype(np.float32)
        places = Interval(first, stop)
        expected = backward_values(patterns, emission_S2L, jump_S, places)
        found = backward_values(patterns, emission_S2L, jump_S, places, workspace)
        wanted = slice(*patterns.first_I1[[first // SPAN, -(-stop // SPAN)]])
        np.testing.assert_array_equal(found.behind_INL, expected.behind_INL)
        n_last = n_places - (len(patterns.pattern_IN) - 1) * SPAN  # places of the last span
        for one, other in ((found.stay_PDL, expected.stay_PDL), (found.come_PDL, expected.come_PDL)):
            last = patterns.first_I1[-2]
            whole = slice(wanted.start, min(wanted.stop, last))
            np.testing.assert_array_equal(one[:, whole], other[:, whole])
            if wanted.stop > last:
                np.testing.assert_array_equal(one[:n_last, last:], other[:n_last, last:])
