"""Samples, not haplotypes, are queries or context, also where ploidy is mixed."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import spinimpute
from spinimpute.genotypes.blocks import BlockShape
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import EpisodeSettings, draw_episode, draw_split
from spinimpute.training.simulation import Segment
from spinimpute.training.sources import PanelSource

EPISODES = EpisodeSettings(blocks=3, queries=6, context_samples=8, array_density=(200.0, 800.0))
SHOWN = ("typed_BNS", "query_BQS", "known_BQS", "cM_BS", "valid_BS", "compared_BNC", "start_BHX",
         "start_mass_BH", "context_BGUN", "frequency_BGU", "fraction_BGU", "distance_BGU",
         "valid_BGU")  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_untyped_alleles_of_queries_are_hidden(segment: Segment, seed: int) -> None:
    split = draw_split(segment, np.random.default_rng(seed), EPISODES)
    flip = np.zeros((segment.n_sites, segment.n_haplotypes), dtype=bool)
    untyped = np.setdiff1d(np.arange(segment.n_sites), split.typed_T)
    flip[np.ix_(untyped, split.query_Q)] = True
    shape, alleles_XA = BlockShape(3, 5), segment.alleles(0, segment.n_sites)
    other = dataclasses.replace(segment, packed=np.packbits(alleles_XA ^ flip, axis=1))
    plain, altered = (
        draw_episode(source, np.random.default_rng(seed), EPISODES, shape, 8) for source in (segment, other)
    )
    for name in SHOWN:
        np.testing.assert_array_equal(getattr(plain, name), getattr(altered, name), err_msg=name)
    asked = plain.valid_BGU > 0
    np.testing.assert_array_equal(plain.truth_BGUQ[asked], 1 - altered.truth_BGUQ[asked])
    torch.manual_seed(0)
    learner = SPINLearner(SPINSettings(core=3, flank=5), EPISODES, torch.device("cpu"))
    assert torch.equal(learner.logits(plain)[1], learner.logits(altered)[1])


def test_errors_and_missing_calls_come_at_their_rates(segment: Segment) -> None:
    often = EpisodeSettings(
        queries=15, array_density=(5000.0, 5000.1), genotype_error=(0.2,), missing_rate=(0.4,)
    )
    split = draw_split(segment, np.random.default_rng(0), often)
    alleles = segment.alleles(0, segment.n_sites)[np.ix_(split.typed_T, split.query_Q)]
    n = alleles.size
    assert n > 1000
    assert (split.typed_query_TQ != alleles).mean() == pytest.approx(0.2, abs=5 * (0.16 / n) ** 0.5)
    assert (split.known_TQ == 0).mean() == pytest.approx(0.4, abs=5 * (0.24 / n) ** 0.5)


@pytest.fixture
def mixed_panel(panel_of: Callable[..., spinimpute.Panel], tmp_path: Path) -> Iterator[spinimpute.Panel]:
    """20 haploid and 30 diploid samples, as on chromosome X; haploid samples come first."""
    alleles = np.random.default_rng(1).integers(0, 2, (750, 80))
    samples = [(i,) for i in range(20)] + [(i, i + 1) for i in range(20, 80, 2)]
    with panel_of(tmp_path / "mixed.spin", alleles, samples) as panel:
        yield panel


def test_haploid_samples_are_samples(mixed_panel: spinimpute.Panel) -> None:
    assert mixed_panel.n_haplotypes == 80
    source = PanelSource(mixed_panel, seed=2, length=100_000)
    seen = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        segment = source(rng)
        sample = np.asarray(segment.haplotype_sample)
        split = draw_split(segment, rng, EPISODES)
        context, queries = set(sample[split.context_N]), set(sample[split.query_Q])
        assert not context & queries
        assert not (context | queries) & set(source.held_out)
        assert len(queries) == EPISODES.queries
        expected = sum(int(mixed_panel.ploidy[p]) for p in queries)
        assert len(split.query_Q) == expected
        seen |= {int(mixed_panel.ploidy[p]) for p in queries}
    assert seen == {1, 2}
    for segment in source.validation(2):
        sample = np.asarray(segment.haplotype_sample)
        split = draw_split(segment, np.random.default_rng(0), EPISODES)
        assert set(sample[split.query_Q]) <= set(source.held_out)
        assert not set(sample[split.context_N]) & set(source.held_out)


def test_a_segment_has_the_panels_alleles(mixed_panel: spinimpute.Panel) -> None:
    segment = PanelSource(mixed_panel, seed=2, length=100_000)(np.random.default_rng(0))
    first = int(np.flatnonzero(mixed_panel.position == segment.position[0])[0])
    columns = np.flatnonzero(np.isin(mixed_panel.haplotype_sample, np.asarray(segment.haplotype_sample)))
    np.testing.assert_array_equal(
        segment.alleles(3, 9), mixed_panel.alleles(first + 3, first + 9)[:, columns]
    )
