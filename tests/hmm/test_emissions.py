"""Emissions of hard alleles, and of likelihoods: posteriors and likelihoods are those of brute force."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.backward_values import Workspace, backward_values
from spinimpute.hmm.leave_one_out import _predict
from spinimpute.hmm.parameters import LANES
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.pbwt import Candidates
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.recombination_scale import _log_likelihood
from spinimpute.hmm.steps import allele_emissions, jump_probabilities, pad_to_lanes, side_by_side
from spinimpute.hmm.typed_alleles import MISSING


def test_alleles_are_likely_where_the_state_has_them() -> None:
    found = allele_emissions(np.array([[0, 1, -1, MISSING]], np.int8), 0.125)
    expected = [[[0.875, 0.125], [0.125, 0.875], [0.875, 0.875], [0.875, 0.875]]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert found.dtype == np.float32


def test_groups_of_lanes_are_filled_up_with_the_last_query() -> None:
    emission_QS2 = np.random.default_rng(1).random((LANES + 3, 5, 2)).astype(np.float32)
    found = side_by_side(emission_QS2)
    assert found.shape == (2, 5, 2, LANES)
    assert found.flags.c_contiguous
    for lane in range(LANES):
        np.testing.assert_array_equal(found[0, :, :, lane], emission_QS2[lane])
        np.testing.assert_array_equal(found[1, :, :, lane], emission_QS2[min(LANES + lane, LANES + 2)])


def brute_force(
    panel_SN: np.ndarray, emission_S2: np.ndarray, jump_S: np.ndarray, possible_N: np.ndarray
) -> tuple[np.ndarray, float]:
    """Posteriors (S, N) of all paths by matrices of transitions, and the log-likelihood, in double precision.
    Nothing that is known comes from a haplotype that is not possible."""
    n_places, n = panel_SN.shape
    emission_SN = np.take_along_axis(emission_S2.astype(float), panel_SN.astype(int), axis=1) * possible_N
    move_S = [np.eye(n) * (1 - jump) + jump / n for jump in jump_S.astype(float)]
    forward, log_likelihood = [np.full(n, 1 / n)], 0.0
    for s in range(n_places):
        value = forward[-1] @ move_S[s] * emission_SN[s]
        log_likelihood += np.log(value.sum())
        forward.append(value / value.sum())
    backward = [np.ones(n)]
    for s in range(n_places - 1, 0, -1):
        value = move_S[s] @ (emission_SN[s] * backward[0])
        backward.insert(0, value / value.sum())
    posterior_SN = np.array(forward[1:]) * np.array(backward)
    return posterior_SN / posterior_SN.sum(axis=1, keepdims=True), log_likelihood


def random_model(
    rng: np.random.Generator, n_places: int, n: int, n_queries: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A panel, likelihoods in (0, 1], and jumps."""
    panel_SN = (rng.random((n_places, n)) < rng.uniform(0.05, 0.95, (n_places, 1))).astype(np.uint8)
    emission_QS2 = (1 - rng.random((n_queries, n_places, 2))) ** rng.choice([1, 4])
    return panel_SN, emission_QS2.astype(np.float32), jump_probabilities(rng.random(n_places).cumsum(), n, 3)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 40), st.integers(1, 20), st.booleans())
def test_posteriors_of_likelihoods_are_those_of_brute_force(
    seed: int, n_places: int, n: int, n_queries: int, large: bool
) -> None:
    """The states of a large panel are a query's candidates."""
    rng = np.random.default_rng(seed)
    panel_SN, emission_QS2, jump_S = random_model(rng, n_places, n, n_queries)
    chosen_QN = rng.random((n_queries, n)) < 0.5
    panel_NW, candidates = pack_rows(panel_SN), Candidates.of(chosen_QN[None])
    kept = mock.patch.object(parameters, "LEAST_MASS", 0)  # these candidates, however unlikely
    with mock.patch.object(parameters, "MOST_STATES", 0 if large else n), kept:
        posterior_CP, candidates = copying_posteriors(
            span_patterns(panel_NW, n_places), panel_NW, emission_QS2, jump_S, candidates, np.array([0]),
            np.array([n_places + 1]), 0,
        )  # fmt: skip
    for q, chosen_N in enumerate(chosen_QN):
        if not chosen_N.any():
            continue
        expected_SN, _ = brute_force(panel_SN, emission_QS2[q], jump_S, chosen_N if large else np.ones(n))
        found = posterior_CP[slice(*candidates.first_BQ1[0, q : q + 2]), 1 : n_places + 1]
        np.testing.assert_allclose(found, expected_SN[:, chosen_N].T, atol=2e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 40))
def test_a_factor_common_to_both_alleles_changes_no_posterior(seed: int, n_places: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    panel_SN, emission_QS2, jump_S = random_model(rng, n_places, n, 3)
    panel_NW, everyone = pack_rows(panel_SN), Candidates.of(np.ones((1, 3, n), bool))
    patterns, block = span_patterns(panel_NW, n_places), (np.array([0]), np.array([n_places + 1]))
    factor_QS1 = rng.uniform(0.01, 100, (3, n_places, 1)).astype(np.float32)
    for most_states in (0, n):
        with mock.patch.object(parameters, "MOST_STATES", most_states):
            one, other = (
                copying_posteriors(patterns, panel_NW, emission, jump_S, everyone, *block, 0)[0]
                for emission in (emission_QS2, emission_QS2 * factor_QS1)
            )
        np.testing.assert_allclose(one, other, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 40))
def test_leaving_likelihoods_out_is_as_by_brute_force(seed: int, n_places: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    panel_SN, emission_QS2, jump_S = random_model(rng, n_places, n, 3)
    patterns, emission_S2L = span_patterns(pack_rows(panel_SN), n_places), side_by_side(emission_QS2)[0]
    first = int(rng.integers(n_places))
    stop = int(rng.integers(first + 1, n_places + 1))
    workspace, decided = Workspace(), Interval(first, stop)
    backward_values(patterns, emission_S2L[::-1].copy(), jump_S, None, workspace)  # must have no effect
    right = backward_values(patterns, emission_S2L, jump_S, decided, workspace)
    found_SL = np.zeros((n_places, LANES), np.float32)
    _predict(patterns, emission_S2L, jump_S, right, decided, found_SL)
    for q, place in enumerate(rng.integers(first, stop, 3)):
        others_S2 = emission_QS2[q].copy()
        others_S2[place] = 1
        posterior_SN, _ = brute_force(panel_SN, others_S2, jump_S, np.ones(n))
        expected = posterior_SN[place, panel_SN[place] == 1].sum()
        assert found_SL[place, q] == pytest.approx(expected, abs=2e-5)


def test_log_likelihood_of_likelihoods_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(7)
    panel_SN, emission_QS2, jump_S = random_model(rng, 40, 21, 3)
    chosen_Q = np.array([0, 20, 7])
    expected = sum(
        brute_force(np.delete(panel_SN, chosen, axis=1), emission_QS2[q], jump_S, np.ones(20))[1]
        for q, chosen in enumerate(chosen_Q)
    )
    found = _log_likelihood(pad_to_lanes(panel_SN), 21, chosen_Q, emission_QS2, jump_S)
    assert found == pytest.approx(expected, rel=1e-5)
