"""Training and imputing are the same computation, and padding has no effect in either."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from spinimpute.panels.panel_blocks import BlockReader
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import EpisodeSettings, draw_episode, draw_split
from spinimpute.training.simulation import Segment
from spinimpute.training.trainer import Trainer, TrainingSettings
from tests.array_panel import ArrayPanel
from tests.conftest import spin_predictor

EPISODES = EpisodeSettings(
    blocks=3, queries=5, context_samples=8, array_density=(300.0, 800.0), missing_rate=(0.1,)
)
SETTINGS = SPINSettings(core=3, flank=5, inducing_points=12)


@pytest.fixture
def learner() -> SPINLearner:
    torch.manual_seed(1)
    learner = SPINLearner(SETTINGS, EPISODES, torch.device("cpu"))
    for parameter in learner.model.decoder.last.parameters():
        torch.nn.init.normal_(parameter)
    return learner


@pytest.mark.parametrize("seed", range(4))
def test_an_episode_is_predicted_like_a_panel(learner: SPINLearner, segment: Segment, seed: int) -> None:
    rng = np.random.default_rng(seed)
    split = draw_split(segment, rng, EPISODES)
    blocks = rng.integers(0, len(split.typed_T) // SETTINGS.core + 1, size=EPISODES.blocks)
    episode = draw_episode(
        segment, np.random.default_rng(seed), EPISODES, SETTINGS.shape, SETTINGS.inducing_points
    )
    with torch.no_grad():
        trained = torch.sigmoid(learner.logits(episode)[1]).numpy()
    panel = ArrayPanel(segment.alleles(0, segment.n_sites)[:, split.context_N], segment.cM)
    predictor = spin_predictor(learner.model, "", SETTINGS.inducing_points)
    n_typed = len(split.typed_T)
    reader = BlockReader(panel, split.typed_T, SETTINGS.shape, 0, n_typed, 0, panel.n_sites)
    compared = 0
    for b, number in enumerate(blocks):
        block = reader.read(int(number))
        fill = block.places.fill
        p = predictor.predict(
            predictor.encode(block), fill(split.typed_query_TQ), fill(split.known_TQ).astype(np.uint8)
        )
        for g, u in np.argwhere(episode.valid_BGU[b] > 0):
            context = episode.context_BGUN[b, g, u]
            same = (block.sites.gap_U == g) & (block.alleles_UN == context).all(1)
            same &= np.isclose(block.sites.fraction_U, episode.fraction_BGU[b, g, u], atol=1e-6)
            same &= np.isclose(block.sites.distance_U, episode.distance_BGU[b, g, u], atol=1e-6)
            assert same.any()
            trained_Q = trained[b, :, g * EPISODES.sites_per_gap + u]
            np.testing.assert_allclose(p[np.flatnonzero(same)[0]], trained_Q, atol=1e-4)
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("block_number", [0, 2, -1])
def test_padded_places_have_no_effect(learner: SPINLearner, segment: Segment, block_number: int) -> None:
    panel = ArrayPanel(segment.alleles(0, segment.n_sites)[:, :60], segment.cM)
    typed = np.flatnonzero(np.minimum(panel.frequency, 1 - panel.frequency) > 0.05)[::3][:20]
    low, high = (5, 9) if block_number == 2 else (0, len(typed))
    reader = BlockReader(panel, typed, SETTINGS.shape, low, high, 0, panel.n_sites)
    block = reader.read(reader.blocks[block_number])
    padded = block.places.valid_S == 0
    assert 0 < padded.sum() < len(padded)
    rng = np.random.default_rng(0)
    queries = rng.integers(0, 2, (4, len(padded)), dtype=np.uint8)
    known = np.ones_like(queries)
    predictor = spin_predictor(learner.model, "", 8)
    encoded = predictor.encode(block)
    before = predictor.predict(encoded, queries, known)
    noisy = queries.copy()
    noisy[:, padded] = rng.integers(0, 2, (4, int(padded.sum())))
    unknown = known.copy()
    unknown[:, padded] = 0
    np.testing.assert_allclose(predictor.predict(encoded, noisy, unknown), before, atol=1e-5)
    frequency_S = block.frequency_S.copy()
    frequency_S[padded] = 0.3
    cM_S = np.where(padded, 77.0, block.places.cM_S)
    changed = dataclasses.replace(
        encoded, frequency_S=frequency_S, places=dataclasses.replace(block.places, cM_S=cM_S)
    )
    np.testing.assert_allclose(predictor.predict(changed, queries, known), before, atol=1e-5)


def test_padded_points_and_sites_have_no_effect(learner: SPINLearner, segment: Segment) -> None:
    episode = draw_episode(segment, np.random.default_rng(11), EPISODES, SETTINGS.shape, 12)
    asked = torch.from_numpy(episode.valid_BGU > 0)
    b, rng = len(episode.start_BHX), np.random.default_rng(0)

    def widened(name: str, axis: int, n: int) -> np.ndarray:
        array = getattr(episode, name)
        shape = (*array.shape[:axis], n, *array.shape[axis + 1 :])
        return np.concatenate([array, rng.integers(0, 2, shape).astype(array.dtype)], axis=axis)

    mass_BH = np.concatenate([episode.start_mass_BH, np.zeros((b, 9), np.float32)], axis=1)
    more = dataclasses.replace(episode, start_BHX=widened("start_BHX", 1, 9), start_mass_BH=mass_BH)
    compared_BNC = np.pad(episode.compared_BNC, [(0, 0), (0, 0), (0, 7)])
    wider = dataclasses.replace(episode, compared_BNC=compared_BNC, start_BHX=widened("start_BHX", 2, 7))
    hidden = episode.valid_BGU == 0
    assert hidden.any()
    filled = dataclasses.replace(
        episode,
        context_BGUN=np.where(hidden[..., None], 1 - episode.context_BGUN, episode.context_BGUN),
        truth_BGUQ=np.where(hidden[..., None], 1 - episode.truth_BGUQ, episode.truth_BGUQ),
    )
    with torch.no_grad():
        plain = learner.logits(episode)[1].transpose(1, 2)[asked.flatten(1)]
        padded = learner.logits(more)[1].transpose(1, 2)[asked.flatten(1)]
        padded_sites = learner.logits(wider)[1].transpose(1, 2)[asked.flatten(1)]
        losses = [float(learner.outcome(e, 0.0, rng).loss) for e in (episode, filled)]
    for one in (padded, padded_sites):
        torch.testing.assert_close(one, plain, atol=1e-3, rtol=1e-3)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_products_with_tokens_give_the_same_loss(learner: SPINLearner, segment: Segment) -> None:
    """GPUs compute with `DenseSimilarity`."""
    episode = learner.draw(segment, np.random.default_rng(1))
    losses, gradients = [], []
    for dense in (False, True):
        learner.dense = dense
        loss = learner.outcome(episode, 0.0, np.random.default_rng(2)).loss
        learner.model.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        gradients.append([p.grad for p in learner.model.parameters()])
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)


def test_tasks_drawn_ahead_are_the_same(learner: SPINLearner, segment: Segment) -> None:
    """On a GPU, threads draw the tasks of later steps."""
    settings = TrainingSettings(steps=4, tasks=2, validation_tasks=1)

    def losses(pool: ThreadPoolExecutor | None) -> list[float]:
        trainer = Trainer(learner, settings, lambda _: segment, [segment], {})
        trainer._pool = pool
        found = []
        for trainer.step in range(settings.steps):
            found += [float(trainer.loss(number).detach()) for number in range(settings.tasks)]
        return found

    with ThreadPoolExecutor(2) as pool:
        assert losses(pool) == losses(None)
