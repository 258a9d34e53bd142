"""Emissions, patterns of a panel, and backward values."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.backward_values import Workspace, backward_values
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import PatternsWithRows, span_patterns
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.steps import allele_emissions, group_lanes, jump_probabilities
from spinimpute.hmm.typed_alleles import MISSING
from tests.array_panel import candidates_from_mask


def test_alleles_are_likely_where_the_state_has_them() -> None:
    found = allele_emissions(np.array([[0, 1, -1, MISSING]], np.int8), 0.125)
    expected = [[[0.875, 0.125], [0.125, 0.875], [0.875, 0.875], [0.875, 0.875]]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert found.dtype == np.float32


def test_groups_of_lanes_are_filled_up_with_the_last_query() -> None:
    emission_QS2 = np.random.default_rng(1).random((LANES + 3, 5, 2)).astype(np.float32)
    found = group_lanes(emission_QS2)
    assert found.shape == (2, 5, 2, LANES)
    assert found.flags.c_contiguous
    for lane in range(LANES):
        np.testing.assert_array_equal(found[0, :, :, lane], emission_QS2[lane])
        np.testing.assert_array_equal(found[1, :, :, lane], emission_QS2[min(LANES + lane, LANES + 2)])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 40))
def test_a_factor_common_to_both_alleles_changes_no_posterior(seed: int, n_places: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    panel_SN = (rng.random((n_places, n)) < rng.uniform(0.05, 0.95, (n_places, 1))).astype(np.uint8)
    emission_QS2 = ((1 - rng.random((3, n_places, 2))) ** rng.choice([1, 4])).astype(np.float32)
    jump_S = jump_probabilities(rng.random(n_places).cumsum(), n, 3)
    panel_NW, everyone = pack_rows(panel_SN), candidates_from_mask(np.ones((1, 3, n), bool))
    patterns, block = span_patterns(panel_NW, n_places), (np.array([0]), np.array([n_places + 1]))
    factor_QS1 = rng.uniform(0.01, 100, (3, n_places, 1)).astype(np.float32)
    for most_states in (0, n):
        with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", most_states):
            one, other = (
                copying_posteriors(patterns, panel_NW, emission, jump_S, everyone, *block, 0)[0]
                for emission in (emission_QS2, emission_QS2 * factor_QS1)
            )
        np.testing.assert_allclose(one, other, atol=1e-5)


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
        np.testing.assert_array_equal(found.after_INL, expected.after_INL)
        n_last = n_places - (len(patterns.pattern_IN) - 1) * SPAN  # places of the last span
        for one, other in ((found.stay_PDL, expected.stay_PDL), (found.switch_PDL, expected.switch_PDL)):
            last = patterns.first_I1[-2]
            whole = slice(wanted.start, min(wanted.stop, last))
            np.testing.assert_array_equal(one[:, whole], other[:, whole])
            if wanted.stop > last:
                np.testing.assert_array_equal(one[:n_last, last:], other[:n_last, last:])
