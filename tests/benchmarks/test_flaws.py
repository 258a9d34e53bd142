"""Flaws of panels and targets come as often as they are said to, and go where they are said to."""

import numpy as np
import pytest

from benchmarks.imputation.flaws import MISSED, WRONG_CALL, WRONG_PHASE, flawed_calls, flawed_panel


@pytest.mark.parametrize(
    ("carriers", "size"), [(1, 0), (2, 1), (10, 1), (11, 2), (100, 2), (101, 3), (900, 3)]
)
@pytest.mark.parametrize("flip", [False, True])
def test_rates(carriers: int, size: int, flip: bool) -> None:
    rng = np.random.default_rng(carriers)
    site = np.zeros(4_000, np.int8)
    site[2 * np.arange(carriers)] = 1  # nobody has it twice
    moved = missed = 0
    rounds = max(20_000 // carriers, 200)
    for _ in range(rounds):
        found = flawed_panel(site ^ flip, rng) ^ flip
        moved += int(found[1::2].sum())
        missed += carriers - int(found.sum())
        assert not found[2 * carriers :].any()
    n = rounds * carriers
    for count, rate in ((moved, WRONG_PHASE[size]), (missed, (1 - WRONG_PHASE[size]) * MISSED[size])):
        assert abs(count - n * rate) < 5 * np.sqrt(n * rate) + 1


def test_homozygotes_have_no_phase() -> None:
    site = np.zeros(100, np.int8)
    site[:2] = 1
    rng = np.random.default_rng(1)
    assert all(flawed_panel(site, rng)[:2].sum() >= 1 for _ in range(200))
    assert not any(flawed_panel(site, rng)[2:].any() for _ in range(200))


def test_calls() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(int(flawed_calls(np.zeros(10_000, np.int8), rng).sum()) for _ in range(100))
    assert abs(wrong - 1e6 * WRONG_CALL) < 5 * np.sqrt(1e6 * WRONG_CALL)
