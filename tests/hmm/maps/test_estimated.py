"""Maps estimated from a panel alone: taken where recombination is uneven and the map does not know it."""

from collections.abc import Callable

import numpy as np
import pytest

from spinimpute.hmm import parameters
from spinimpute.hmm.maps.estimated import MapEstimate, estimated_map
from spinimpute.hmm.parameters import MIN_GAIN, MIN_MAP_FREQUENCY
from spinimpute.hmm.recombination_scale import copying_log_likelihood
from tests.array_panel import ArrayPanel

HOT = slice(240, 270)  # of 500 sites


@pytest.fixture
def panel(hot_panel: Callable[..., ArrayPanel]) -> ArrayPanel:
    return hot_panel(160, 500, HOT)


def estimate_of(panel: ArrayPanel, threads: int = 1) -> MapEstimate | None:
    return estimated_map(panel, panel.frequency, threads)


def found_in(panel: ArrayPanel, threads: int = 1) -> MapEstimate:
    found = estimate_of(panel, threads)
    assert found is not None
    return found


def test_a_hot_spot_is_found_whatever_the_order_of_haplotypes_and_the_threads(panel: ArrayPanel) -> None:
    found = found_in(panel)
    assert found.gain >= MIN_GAIN
    assert 200 < found.n_sites <= 251  # the commonest of two
    assert (np.diff(found.cM_X) >= 0).all()
    assert found.cM_X[[0, -1]] == pytest.approx(panel.cM[[0, -1]], abs=1e-6)
    assert np.ptp(found.cM_X[HOT]) / np.ptp(found.cM_X) > 0.25  # by the map that it came with .06
    order = np.random.default_rng(1).permutation(160)
    again = found_in(ArrayPanel(panel.alleles_XN[:, order], panel.cM), threads=2)
    np.testing.assert_array_equal(again.cM_X, found.cM_X)
    assert again.gain == found.gain


def test_haplotypes_that_are_alike_in_the_middle_may_come_in_any_order(panel: ArrayPanel) -> None:
    panel.alleles_XN[200:, 80:] = panel.alleles_XN[200:, :80]
    found = found_in(panel)
    order = np.random.default_rng(2).permutation(160)
    again = found_in(ArrayPanel(panel.alleles_XN[:, order], panel.cM))
    np.testing.assert_array_equal(again.cM_X, found.cM_X)


@pytest.mark.parametrize("length", [0.0, 1e-7, 1e-4])
def test_a_map_without_length_is_replaced(panel: ArrayPanel, length: float) -> None:
    panel.cM = np.linspace(0, length, 500)
    found = found_in(panel)
    assert np.ptp(found.cM_X) == pytest.approx(0.499, abs=1e-5)  # that of 1 cM/Mb
    assert np.ptp(found.cM_X[HOT]) / np.ptp(found.cM_X) > 0.25


def test_a_map_that_knows_is_kept(panel: ArrayPanel) -> None:
    rate_X = np.full(500, 1e-5)
    rate_X[HOT] = 0.16
    panel.cM = np.cumsum(rate_X)
    assert estimate_of(panel) is None


def test_a_fifth_of_the_haplotypes_judge_and_no_gain_is_refused(
    panel: ArrayPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[np.ndarray] = []

    def judge(alleles_TN: np.ndarray, cM_T: np.ndarray, chosen_Q: np.ndarray) -> float:
        shown.append(alleles_TN)
        assert chosen_Q.tolist() == list(range(32))  # a fifth
        return -100.0

    monkeypatch.setattr("spinimpute.hmm.maps.estimated.copying_log_likelihood", judge)
    assert estimate_of(panel) is None
    assert len(shown) == 2
    assert shown[0].shape[1] == 160


@pytest.mark.parametrize("case", ["few haplotypes", "few sites", "rare alleles"])
def test_too_little_to_estimate_from(panel: ArrayPanel, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case == "few haplotypes":
        panel.alleles_XN = panel.alleles_XN[:, : 5 * parameters.MIN_HELD_OUT - 1]
    elif case == "few sites":
        panel = ArrayPanel(panel.alleles_XN[:30], panel.cM[:30])
    else:
        panel.alleles_XN[:, int(MIN_MAP_FREQUENCY * 160) - 1 :] = 0

    def tune(*_: object) -> None:
        raise AssertionError("nothing is estimated")

    monkeypatch.setattr("spinimpute.hmm.maps.estimated.tuned_map", tune)
    assert estimate_of(panel) is None


def test_more_haplotypes_and_sites_than_are_needed(
    hot_panel: Callable[..., ArrayPanel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "MAX_HAPLOTYPES_FOR_MAP", 100)
    monkeypatch.setattr(parameters, "MAX_HELD_OUT", 20)
    monkeypatch.setattr(parameters, "TEST_INTERVALS", 3)
    monkeypatch.setattr(parameters, "TEST_SITES", 50)
    shown: list[tuple[int, ...]] = []

    def judge(alleles_TN: np.ndarray, cM_T: np.ndarray, chosen_Q: np.ndarray) -> float:
        shown.append((*alleles_TN.shape, len(cM_T), len(chosen_Q)))
        return copying_log_likelihood(alleles_TN, cM_T, chosen_Q)

    monkeypatch.setattr("spinimpute.hmm.maps.estimated.copying_log_likelihood", judge)
    found = found_in(hot_panel(200, 500, HOT))
    assert shown == 2 * [(150, 120, 150, 20)]
    assert np.ptp(found.cM_X[HOT]) / np.ptp(found.cM_X) > 0.25
