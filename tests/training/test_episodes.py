"""Tasks: samples on one side of the split only, nothing hidden is shown, the same draw twice."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import spinimpute
from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.runtime.errors import InputError
from spinimpute.training.episodes import EpisodeSettings, draw_episode, draw_split
from spinimpute.training.simulation import Segment, SimulationSettings, simulate_segment
from spinimpute.training.sources import FIRST_VALIDATION_SEED, PanelSource, SimulatedSource

EPISODES = EpisodeSettings(blocks=2, queries=6, context_samples=8, array_density=(200.0, 800.0))
SMALL = SimulationSettings(length=(50_000, 60_000), samples=(20, 30))


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_context_and_query(segment: Segment, seed: int) -> None:
    split = draw_split(segment, np.random.default_rng(seed), EPISODES)
    context, query = split.context_N // 2, split.query_Q // 2
    assert not set(context) & set(query)
    for sample in (context, query):  # both haplotypes of each, or none
        assert (np.unique(sample, return_counts=True)[1] == 2).all()
    assert len(np.unique(query)) == EPISODES.queries


def test_the_same_draw_twice(segment: Segment) -> None:
    shape = BlockShape(3, 5)
    first, second, third = (
        draw_episode(segment, np.random.default_rng(seed), EPISODES, shape, 8) for seed in (3, 3, 4)
    )
    for field in dataclasses.fields(first):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))
    assert not np.array_equal(first.query_BQS, third.query_BQS)


def test_a_query_shows_its_typed_alleles_only(segment: Segment) -> None:
    clean = dataclasses.replace(EPISODES, genotype_error=(0.0,), missing_rate=(0.0,))
    rng = np.random.default_rng(8)
    split = draw_split(segment, rng, clean)
    alleles = segment.alleles(0, segment.n_sites)
    np.testing.assert_array_equal(split.typed_query_TQ, alleles[np.ix_(split.typed_T, split.query_Q)])
    episode = draw_episode(segment, np.random.default_rng(8), clean, BlockShape(3, 5), 8)
    settings = SPINSettings(core=3, flank=5, inducing_points=8)
    torch.manual_seed(0)
    learner = SPINLearner(settings, clean, torch.device("cpu"))
    _, logits = learner.logits(episode)
    _, other = learner.logits(dataclasses.replace(episode, truth_BGUQ=1 - episode.truth_BGUQ))
    assert torch.equal(logits, other)


def test_sites_asked_for_are_untyped_and_polymorphic(segment: Segment) -> None:
    for seed in range(5):
        episode = draw_episode(segment, np.random.default_rng(seed), EPISODES, BlockShape(3, 5), 8)
        asked = episode.valid_BGU > 0
        assert asked.any()
        f = episode.frequency_BGU[asked]
        assert ((f > 0) & (f < 1)).all()
        np.testing.assert_allclose(f, episode.context_BGUN[asked].mean(-1), rtol=1e-5)
        assert ((episode.fraction_BGU >= 0) & (episode.fraction_BGU <= 1)).all()


def test_validation_segments_are_never_trained_on() -> None:
    source = SimulatedSource(9_998, 100_000, SMALL)
    assert source.first + source.segments <= FIRST_VALIDATION_SEED
    segments = [source(np.random.default_rng(0)), *source.validation(2)]
    assert len({segment.description["seed"] for segment in segments}) == 3
    with pytest.raises(InputError, match="segments"):
        SimulatedSource(1, 0, SMALL)


def test_simulation_is_reproducible_and_sensible() -> None:
    first, second = simulate_segment(3, SMALL), simulate_segment(3, SMALL)
    np.testing.assert_array_equal(first.packed, second.packed)
    assert (np.diff(first.position) > 0).all()
    assert (np.diff(first.cM) >= 0).all()
    counts = first.alleles(0, first.n_sites).sum(1)
    assert ((counts > 0) & (counts < first.n_haplotypes)).all()
    assert 40 <= first.n_haplotypes <= 60


def test_held_out_samples_take_no_part_in_training(example_panel: spinimpute.Panel) -> None:
    source = PanelSource(example_panel, seed=1, length=200_000)
    assert len(source.held_out) >= 8
    assert not set(source.held_out) & set(source.samples)
    for seed in range(4):
        segment = source(np.random.default_rng(seed))
        assert set(np.asarray(segment.haplotype_sample)) == set(source.samples)
    for segment in source.validation(2):
        split = draw_split(segment, np.random.default_rng(0), EPISODES)
        sample = np.asarray(segment.haplotype_sample)
        assert set(sample[split.query_Q]) <= set(source.held_out)
        assert not set(sample[split.context_N]) & set(source.held_out)


def test_a_small_panel_is_no_training_set(example: Path, tmp_path: Path) -> None:
    names, genetic_map = [f"panel_AFR_{i:03d}" for i in range(1, 21)], example / "genetic.map"
    vcf, out = example / "panel.vcf.gz", tmp_path / "p.spin"
    with (
        spinimpute.build_panel(vcf, out, genetic_map, samples=names) as panel,
        pytest.raises(InputError, match="at least 40 samples, got 20"),
    ):
        PanelSource(panel, 1)


def test_a_panel_with_a_hole_can_be_trained_on(write_vcf: Callable[..., Path], tmp_path: Path) -> None:
    """Segments start at sites: a centromere, with one site in many megabases, is no task."""
    rng = np.random.default_rng(0)
    positions = [*range(1000, 61_000, 500), 20_000_000, *range(40_000_000, 40_060_000, 500)]
    calls = [[f"{a}|{b}" for a, b in rng.integers(0, 2, (45, 2))] for _ in positions]
    records = [(position, "A", "C", row) for position, row in zip(positions, calls, strict=True)]
    vcf = write_vcf(records, [f"s{i}" for i in range(45)])
    with spinimpute.build_panel(vcf, tmp_path / "p.spin", GeneticMap.constant()) as panel:
        source = PanelSource(panel, 1)
        for seed in range(60):
            draw_split(source(np.random.default_rng(seed)), np.random.default_rng(seed), EPISODES)
