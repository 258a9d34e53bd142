"""The benchmark of SPIN's training: its commands, and that rows differ where they say so and nowhere else."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")

from benchmarks.spin import rows
from benchmarks.spin.__main__ import TABLES, make_parser
from benchmarks.spin.budget import BUDGET, Budget
from benchmarks.spin.paper_form import PaperLearner
from benchmarks.spin.scoring import SCORES, UNSEEN, held_out, score
from benchmarks.spin.token_masking import TokenMaskingLearner
from benchmarks.spin.variants import BlockEmbedding, ConstantStarts, NoCompetition, NoiseStart, SiteEmbedding
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import Episode, EpisodeSettings
from spinimpute.training.simulation import SimulationSettings
from spinimpute.training.sources import SimulatedSource

pytestmark = pytest.mark.slow

TINY = Budget(
    SPINSettings(core=2, flank=6, k=3, fewest_points=4, inducing_points=6, heads=4, pair_heads=2, hidden=4),
    EpisodeSettings(blocks=2, queries=4, sites_per_gap=4, context_samples=8, missing_rate=(0.1,)),
    SimulationSettings(length=(40_000, 60_000), samples=(20, 30), recombination_rate=(1e-8, 2e-8)),
    steps=2,
    held_out=2,
    episodes_each=2,
    sets=(),
)
# the shipped model has the real budget's blocks
REAL_BLOCKS = replace(TINY, spin=replace(BUDGET.spin, flank=16, inducing_points=8, fewest_points=4))


def call(name: str, results: Path, budget: Budget, *more: str) -> list[dict[str, str]]:
    arguments = make_parser().parse_args([name, "--results", str(results), *more])
    arguments.budget = budget
    arguments.function(arguments)
    (folder,) = results.iterdir()
    with (folder / "scores.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def episode() -> Episode:
    return held_out(TINY, TINY.spin.shape, TINY.spin.inducing_points)[UNSEEN][0]


def predicted(learner: SPINLearner, episode: Episode) -> np.ndarray:
    with torch.no_grad():
        return learner.outcome(episode, 1.0, np.random.default_rng(0)).predicted


def spin(budget: Budget = TINY) -> SPINLearner:
    torch.manual_seed(1)
    return rows.SPIN.learner(budget)


@pytest.mark.parametrize("name", TABLES)
def test_commands(name: str, tmp_path: Path) -> None:
    lines = call(name, tmp_path, REAL_BLOCKS, "--seeds", "1", "2")
    names = [row.name for row in TABLES[name][0]()]
    trained = [row.name for row in TABLES[name][0]() if row.steps]
    assert [line["row"] for line in lines] == [*names, *trained]
    assert {line["seed"] for line in lines if line["row"] in trained} == {"1", "2"}
    assert all(0 <= float(line[f"{UNSEEN}, all"]) <= 1 for line in lines)
    (folder,) = tmp_path.iterdir()
    report = (folder / "report.md").read_text()
    assert all(f"| {name} |" in report for name in names)
    assert json.loads((folder / "configuration.json").read_text())["budget"]["steps"] == 2


def test_an_interrupted_command_goes_on(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="call again"):
        call("segments", tmp_path, TINY, "--seeds", "1", "--limit", "0")
    first = call("segments", tmp_path, TINY, "--seeds", "1")
    assert len(first) == 4
    again = call("segments", tmp_path, TINY, "--seeds", "1", "2")
    assert again[:4] == first
    assert len(again) == 7
    with pytest.raises(SystemExit, match="another budget"):
        call("segments", tmp_path, replace(TINY, steps=3))


def test_what_is_asked_does_not_depend_on_flanks_and_points() -> None:
    one = held_out(TINY, TINY.spin.shape, 6)[UNSEEN]
    other = held_out(TINY, replace(TINY.spin, flank=12).shape, 9)[UNSEEN]
    for a, b in zip(one, other, strict=True):
        assert (a.truth_BGUQ == b.truth_BGUQ).all()
        assert (a.valid_BGU == b.valid_BGU).all()
        assert a.query_BQS.shape != b.query_BQS.shape


def test_frequencies_know_nothing_of_a_query(episode: Episode) -> None:
    learner = rows.frequencies(TINY)
    assert (predicted(learner, episode).reshape(-1, episode.truth_BGUQ.shape[-1]).std(1) < 1e-6).all()
    assert set(score(learner, TINY)) == set(SCORES)


def test_tasks_of_a_seed_are_the_same_in_all_rows() -> None:
    segment = SimulatedSource(1, 1, TINY.simulation)(np.random.default_rng(1))
    table = [*rows.ablation(), *rows.masking()]
    drawn = [row.learner(TINY).draw(segment, np.random.default_rng(2)) for row in table]
    for other in drawn[1:]:
        assert all((vars(other)[name] == value).all() for name, value in vars(drawn[0]).items())


def test_constants_do_not_look_at_where_they_would_start(episode: Episode) -> None:
    shifted = replace(episode, start_BHX=1 - episode.start_BHX)
    constant = rows.variant(ConstantStarts, TINY)
    assert (predicted(constant, episode) == predicted(constant, shifted)).all()
    assert not np.allclose(predicted(spin(), episode), predicted(spin(), shifted), atol=1e-4)


def test_noise_start_is_neither_alike_nor_steep() -> None:
    table = {row.name: row for row in rows.ablation()}
    torch.manual_seed(1)
    noise = table["similarity starts as noise"].learner(TINY).model.confusion.log_confusion
    start = GenotypeSPIN(TINY.spin).confusion.log_confusion
    assert (start.argmax(1) == torch.arange(8)).all()
    assert not (noise.argmax(1) == torch.arange(8)).all()


@pytest.mark.parametrize("row", rows.ablation()[-4:-2], ids=lambda row: row.name)
def test_embedded_labels_start_as_frequencies_and_are_learned(row: rows.Row, episode: Episode) -> None:
    learner = row.learner(TINY)
    assert isinstance(learner.model.decoder, SiteEmbedding | BlockEmbedding)
    assert np.allclose(predicted(learner, episode), predicted(rows.frequencies(TINY), episode), atol=1e-3)
    torch.nn.init.normal_(learner.model.decoder.last.weight)
    learner.outcome(episode, 0.0, np.random.default_rng(1)).loss.backward()
    assert all(p.grad is not None for p in learner.model.parameters())
    # labels of the context reach the prediction
    spoilt = replace(episode, context_BGUN=1 - episode.context_BGUN)
    assert not np.allclose(predicted(learner, episode), predicted(learner, spoilt), atol=1e-3)


def test_rows_change_what_they_say_and_nothing_else() -> None:
    def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
        return {name: p.shape for name, p in model.named_parameters() if name != "encoder.prior"}

    assert shapes(NoCompetition(TINY.spin)) == shapes(GenotypeSPIN(TINY.spin))
    last = rows.ablation()[-2].learner(TINY).model  # without all of it
    assert isinstance(last, NoiseStart)
    assert isinstance(last, ConstantStarts)
    assert last.encoder.axis == "datapoints"
    assert isinstance(last.decoder, BlockEmbedding)


def token_masking(share: float) -> TokenMaskingLearner:
    torch.manual_seed(1)
    return TokenMaskingLearner(TINY.spin, TINY.episodes, share)


def test_token_masking_is_spin_where_nothing_is_shown(episode: Episode) -> None:
    expected, learner, loss = spin(), token_masking(0.5), token_masking(1.0)
    for other in (learner, loss):
        other.model.load_state_dict(expected.model.state_dict(), strict=False)
    assert (predicted(learner, episode) == predicted(expected, episode)).all()
    rng = np.random.default_rng
    assert loss.outcome(episode, 0.0, rng(1)).loss == expected.outcome(episode, 0.0, rng(1)).loss


def test_token_masking_asks_for_hidden_labels_and_shows_the_others(episode: Episode) -> None:
    learner = token_masking(0.5)
    outcome = learner.outcome(episode, 0.0, np.random.default_rng(1))
    assert 0 < len(outcome.truth) < episode.valid_BGU.sum() * episode.truth_BGUQ.shape[-1]
    outcome.loss.backward()
    assert learner.model.shown_weight.grad is not None
    assert learner.model.shown is None  # nothing is left for the next task
    points_BHU = torch.tensor([[[0.0, 1.0, 0.3], [1.0, 1.0, 0.3]]])
    alleles, shown = torch.tensor([[[1.0, 1.0, 1.0]]]), torch.tensor([[1.0, 1.0, 0.0]])
    found = learner.model.log_likelihood(alleles, shown, points_BHU)
    error = torch.sigmoid(learner.model.shown_error)
    expected = torch.stack([error.log() + (1 - error).log(), 2 * (1 - error).log()])
    assert torch.allclose(found[0, 0], expected, atol=1e-5)


@pytest.mark.parametrize("head", ["flat", "CIPNP"])
def test_paper_form_sees_no_hidden_label(head: str, episode: Episode) -> None:
    torch.manual_seed(1)
    learner = PaperLearner(TINY.spin, TINY.episodes, head)
    flipped = replace(episode, truth_BGUQ=1 - episode.truth_BGUQ)
    assert (predicted(learner, episode) == predicted(learner, flipped)).all()
    spoilt = replace(episode, context_BGUN=1 - episode.context_BGUN)
    assert not np.allclose(predicted(learner, episode), predicted(learner, spoilt), atol=1e-5)
    shape = predicted(learner, episode).shape
    assert shape == (int(episode.valid_BGU.sum()) * episode.truth_BGUQ.shape[-1],)


def test_paper_form_learns_one_task_by_heart(episode: Episode) -> None:
    torch.manual_seed(1)
    learner = PaperLearner(TINY.spin, TINY.episodes)
    optimiser = torch.optim.Adam(learner.model.parameters(), lr=3e-3)
    truth = learner.outcome(episode, 1.0, np.random.default_rng(1)).truth
    for _ in range(60):
        optimiser.zero_grad()
        learner.outcome(episode, 1.0, np.random.default_rng(1)).loss.backward()
        optimiser.step()
    # each prediction stands beside the allele that it is of
    assert np.corrcoef(predicted(learner, episode), truth)[0, 1] > 0.9
