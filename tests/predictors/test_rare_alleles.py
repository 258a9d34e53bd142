"""The prior odds of rare alleles."""

from __future__ import annotations

import numpy as np
import pytest

from spinimpute.predictors.haplotype_attention.rare_alleles import (
    RATIO_VARIANCE,
    TRAINED_RATIOS,
    multiply_odds,
    rare_allele_odds,
)


def carriers(*sites: int) -> np.ndarray:
    """So many sites with 0, 1, 2, ... carriers."""
    return np.repeat(np.arange(len(sites)), sites)


def test_return_ratios_of_a_large_panel() -> None:
    million = 10**6
    ratios = (0.5, 1.0, 2.0, 1.0, 1.0)
    sites = [0, million]
    for c, ratio in enumerate(ratios, start=1):
        sites.append(round(sites[-1] * ratio * c / (c + 1)))
    odds_C = rare_allele_odds(carriers(*sites, 10, 20), 1_000)
    assert odds_C[0] == odds_C[-1] == 1
    assert odds_C[1:-1] == pytest.approx(np.array(ratios) / TRAINED_RATIOS, rel=1e-3)


def test_ratios_predict_how_often_alleles_return() -> None:
    """Draws from a population: carriers among further people, of alleles seen once, twice, ... before."""
    rng = np.random.default_rng(2)
    frequency_X = np.exp(rng.uniform(np.log(1e-5), np.log(0.5), 200_000))
    seen_X, later_X = rng.binomial(1_000, frequency_X), rng.binomial(1_000, frequency_X)
    odds_C = rare_allele_odds(seen_X[seen_X > 0], 1_000)
    for c, trained in enumerate(TRAINED_RATIOS, start=1):
        of_count = seen_X == c
        assert odds_C[c] * trained == pytest.approx(later_X[of_count].mean() / c, rel=0.05)


def test_few_sites_say_little() -> None:
    few, many = (rare_allele_odds(carriers(0, *sites), 100) for sites in ((1, 10), (1_000, 10_000)))
    assert 1 < few[1] < many[1] ** 0.2
    assert rare_allele_odds(carriers(5, 0, 3), 100).tolist() == [1] * (len(TRAINED_RATIOS) + 2)
    assert few[1] == pytest.approx((20 / TRAINED_RATIOS[0]) ** (RATIO_VARIANCE / (RATIO_VARIANCE + 1.1)))


@pytest.mark.parametrize("n", [4, 7, 12])
def test_small_panels_end_before_the_fold(n: int) -> None:
    """Minor alleles have at most half of all haplotypes as carriers, so that the spectrum ends there."""
    rng = np.random.default_rng(1)
    weight_C = 1 / np.arange(1, n)
    count_X = rng.choice(np.arange(1, n), p=weight_C / weight_C.sum(), size=100_000)
    odds_C = rare_allele_odds(np.minimum(count_X, n - count_X), n)
    assert (odds_C[(n - 1) // 2 :] == 1).all()


def test_odds_of_the_minor_allele_are_multiplied() -> None:
    p_UQ = np.array([[0.2, 0.0], [0.8, 1.0], [0.3, 0.4]], np.float32)
    multiply_odds(np.array([4, 4, 1], np.float32), np.array([False, True, True]), p_UQ)
    np.testing.assert_allclose(p_UQ, [[0.5, 0.0], [0.5, 1.0], [0.3, 0.4]], atol=1e-6)
