"""Corrections of the network: alleles pooled by posteriors, and the prior odds of rare alleles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.predictors.haplotype_attention import posterior_alleles as mixing
from spinimpute.predictors.haplotype_attention.copying import GapPatterns, GapSites
from spinimpute.predictors.haplotype_attention.ibs_classes import BlockCandidates
from spinimpute.predictors.haplotype_attention.posterior_alleles import (
    RATIO_VARIANCE,
    TRAINED_RATIOS,
    mix,
    mixing_weights,
    multiply_odds,
    posterior_alleles,
    posterior_weight,
    rare_allele_odds,
)
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.loading import predictor_for


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 90), st.integers(1, 4))
def test_posteriors_of_carriers_are_summed(
    patterns_of: Callable[[np.ndarray, np.ndarray], GapPatterns], seed: int, n_sites: int, n_gaps: int
) -> None:
    rng = np.random.default_rng(seed)
    n, n_queries, before = 24, 3, int(rng.integers(0, 3))  # gaps of the tile before the block
    ends = np.sort(rng.integers(0, n_sites + 1, n_gaps + before - 1))
    start_G1 = np.concatenate([[0], ends, [n_sites]])
    alleles_UN = (rng.random((n_sites, n)) < rng.random((n_sites, 1))).astype(np.uint8)
    patterns = patterns_of(alleles_UN, start_G1)
    count_Q = rng.integers(0, n, n_queries)
    first_Q1 = np.concatenate([[0], np.cumsum(count_Q)])
    haplotype_C = np.concatenate([np.sort(rng.choice(n, k, replace=False)) for k in count_Q]).astype(np.int32)
    posterior_CP = rng.random((len(haplotype_C), n_gaps + 1)).astype(np.float32)
    first = int(start_G1[before])
    t_U = rng.random(n_sites - first).astype(np.float32)
    sites = GapSites(before, start_G1[before:] - first, t_U, np.zeros(len(t_U), bool))
    candidates = BlockCandidates(haplotype_C, posterior_CP, first_Q1)
    found_UQ = posterior_alleles(candidates, patterns, sites)
    minor_UN = alleles_UN ^ (alleles_UN.sum(axis=1) > n // 2)[:, None]
    for q in range(n_queries):
        mine = slice(first_Q1[q], first_Q1[q + 1])
        share_CP = posterior_CP[mine]
        share_CP = share_CP / share_CP.sum(axis=0) if count_Q[q] else share_CP
        for g in range(n_gaps):
            for u in range(start_G1[before + g], start_G1[before + g + 1]):
                ends_2 = minor_UN[u, haplotype_C[mine]] @ share_CP[:, g : g + 2]
                t = t_U[u - first]
                assert found_UQ[u - first, q] == pytest.approx((1 - t) * ends_2[0] + t * ends_2[1], abs=1e-5)


def test_posteriors_weigh_more_in_large_panels() -> None:
    weights = [
        posterior_weight(n) for n in (2, 600, 4_508, mixing.SMALL_PANEL, 11_000, mixing.LARGE_PANEL, 10**6)
    ]
    assert weights[:4] == [mixing.SMALLEST_WEIGHT] * 4
    assert mixing.SMALLEST_WEIGHT < weights[4] < weights[5] == weights[6] == mixing.LARGEST_WEIGHT


def test_alleles_of_one_carrier_are_left_to_the_network() -> None:
    p_UQ = np.full((4, 2), 0.5, np.float32)
    minor_UQ = np.array([[0.1, 0.3]] * 4, np.float32)
    weight_U = mixing_weights(mixing.SMALL_PANEL, np.array([1, 1, 2, 2]), np.zeros(4, bool))
    weight_U *= 0.25 / mixing.SMALLEST_WEIGHT
    mix(p_UQ, minor_UQ, np.array([False, True, False, True]), weight_U, np.array([True, False]))
    # ALT is the major allele of the last one; of the second query there are no candidates
    expected = [[0.5, 0.5], [0.5, 0.5], [0.4, 0.5], [0.6, 0.5]]
    np.testing.assert_allclose(p_UQ, expected, atol=1e-6)


def test_labels_have_weights_of_their_own() -> None:
    for n_haplotypes, weight in ((600, mixing.LABEL_WEIGHT), (10**6, mixing.LARGEST_WEIGHT)):
        found = mixing_weights(n_haplotypes, np.array([1, 1, 9]), np.array([True, False, False]))
        np.testing.assert_allclose(found, [weight, 0, posterior_weight(n_haplotypes)])


def test_predictions_lie_between_network_and_posteriors(
    mosaic: Callable[..., np.ndarray],
    panel_of: Callable[..., spinimpute.Panel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panel_of(tmp_path / "p.spin", mosaic(np.random.default_rng(3), 600, 80, founders=12, errors=0.01))
    typed_index = np.arange(0, panel.n_sites, 5)
    typed_TQ = panel.alleles(0, panel.n_sites)[typed_index, :8].astype(np.int8)

    def predicted(weight: float) -> np.ndarray:
        monkeypatch.setattr(mixing, "SMALLEST_WEIGHT", weight)
        predictor, options = predictor_for(panel, None)
        with predictor.engine(ImputationJob(panel, typed_index, 1, 8, options)) as engine:
            windows = engine.windows(Interval(0, panel.n_sites))
            return np.concatenate([p.copy() for p in engine.predict_windows(windows, typed_TQ)])

    monkeypatch.setattr(mixing, "TRAINED_RATIOS", ())  # the odds of rare alleles stay as they are
    network_UQ, half_UQ, posterior_UQ = (predicted(weight) for weight in (0.0, 0.5, 1.0))
    np.testing.assert_allclose(half_UQ, (network_UQ + posterior_UQ) / 2, atol=1e-6)
    count_U = panel.allele_count.astype(int)
    single_U = np.minimum(count_U, 80 - count_U) < 2
    assert single_U.any()
    np.testing.assert_array_equal(posterior_UQ[single_U], network_UQ[single_U])
    changed_U = abs(posterior_UQ - network_UQ).max(axis=1) > 1e-3
    assert changed_U[~single_U].mean() > 0.2
    # Posteriors know the alleles, too: the queries themselves are in the panel.
    truth_UQ = panel.alleles(0, panel.n_sites)[:, :8]
    assert abs(posterior_UQ - truth_UQ)[~single_U].mean() < 0.05


def carriers(*sites: int) -> np.ndarray:
    """Numbers of carriers: sites[c] sites with c carriers."""
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
    """Two samples are drawn from a population."""
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
def test_the_spectrum_of_small_panels_ends_at_half_the_haplotypes(n: int) -> None:
    rng = np.random.default_rng(1)
    weight_C = 1 / np.arange(1, n)
    count_X = rng.choice(np.arange(1, n), p=weight_C / weight_C.sum(), size=100_000)
    odds_C = rare_allele_odds(np.minimum(count_X, n - count_X), n)
    assert (odds_C[(n - 1) // 2 :] == 1).all()


def test_odds_of_the_minor_allele_are_multiplied() -> None:
    p_UQ = np.array([[0.2, 0.0], [0.8, 1.0], [0.3, 0.4]], np.float32)
    multiply_odds(np.array([4, 4, 1], np.float32), np.array([False, True, True]), p_UQ)
    np.testing.assert_allclose(p_UQ, [[0.5, 0.0], [0.5, 1.0], [0.3, 0.4]], atol=1e-6)
