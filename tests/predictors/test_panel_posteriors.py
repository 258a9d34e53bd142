"""SPIN from a panel of haplotypes: the mean with the posteriors of Li and Stephens."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.predictors.haplotype_attention.engine import HaplotypeEngine
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin import panel_posteriors
from spinimpute.predictors.spin.engine import BlockEngine
from spinimpute.predictors.spin.panel_posteriors import PosteriorTiles
from spinimpute.predictors.spin.predictor import SPINPredictor
from tests.hmm.brute_force import forward_backward

BuildPanel = Callable[..., spinimpute.Panel]


def test_the_mean_of_both(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    typed = np.sort(rng.choice(example_panel.n_sites, example_panel.n_sites // 10, replace=False))
    alleles_TQ = example_panel.alleles(0, example_panel.n_sites)[typed][:, :7].astype(np.int8)
    alleles_TQ[rng.random(alleles_TQ.shape) < 0.1] = -1
    alleles_TQ[:, 6] = -1
    job = ImputationJob(example_panel, typed, 2, 7)
    sites = Interval(0, example_panel.n_sites // 2)

    def imputed(weight: float) -> np.ndarray:
        monkeypatch.setattr(panel_posteriors, "POSTERIOR_WEIGHT", weight)
        with BlockEngine(random_predictor, job) as engine:
            return np.concatenate(list(engine.predict_windows(engine.windows(sites), alleles_TQ)))

    alone, posteriors, mean = imputed(0), imputed(1), imputed(0.5)
    np.testing.assert_allclose(mean, (alone + posteriors) / 2, atol=1e-6)
    assert np.abs(alone - posteriors)[:, :6].max() > 0.1
    # without any call there are no posteriors
    np.testing.assert_array_equal(posteriors[:, 6], alone[:, 6])
    np.testing.assert_array_equal(mean[:, 6], alone[:, 6])
    with HaplotypeEngine(PosteriorTiles(), job) as engine:
        (expected,) = engine.predict_windows([sites], alleles_TQ)
    np.testing.assert_allclose(posteriors[:, :6], expected[:, :6], atol=1e-6)
    assert np.isnan(expected[:, 6]).all()


def test_posteriors_are_those_of_the_model(
    tmp_path: Path, mosaic: Callable[..., np.ndarray], panel_of: BuildPanel
) -> None:
    """All haplotypes of a small panel are candidates; those with small posteriors are dropped."""
    rng = np.random.default_rng(8)
    alleles_XN = mosaic(rng, 400, 24, founders=8, errors=0.02)
    typed = np.arange(2, 400, 4)
    alleles_TQ = alleles_XN[typed][:, rng.permutation(24)[:5]].astype(np.int8)
    alleles_TQ[50:, :] = alleles_TQ[50:, ::-1]
    alleles_TQ[rng.random(alleles_TQ.shape) < 0.05] = -1
    with panel_of(tmp_path / "panel.spin", alleles_XN) as panel:
        job = ImputationJob(panel, typed, 1, 5)
        scale = recombination_scale(panel, typed)
        with HaplotypeEngine(PosteriorTiles(), job) as engine:
            (p_UQ,) = engine.predict_windows([Interval(0, 400)], alleles_TQ)
        cM = panel.cM
    emission_QS2 = allele_emissions(alleles_TQ.T, MISMATCH)
    jump_S = jump_probabilities(cM[typed], 24, scale)
    right_U = np.searchsorted(typed, np.arange(400))
    left_U, right_U = (right_U - 1).clip(min=0), right_U.clip(max=len(typed) - 1)
    width_U = cM[typed[right_U]] - cM[typed[left_U]]
    t_U = np.divide(cM - cM[typed[left_U]], width_U, out=np.zeros(400), where=width_U > 0)[:, None]
    for q in range(5):
        posterior_SN, _ = forward_backward(alleles_XN[typed], emission_QS2[q], jump_S)
        posterior_UN = (1 - t_U) * posterior_SN[left_U] + t_U * posterior_SN[right_U]
        np.testing.assert_allclose(p_UQ[:, q], (posterior_UN * alleles_XN).sum(1), atol=0.05)
