"""Training on large contexts after small ones, calibration, the figure."""

import json
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from torch import Tensor

from benchmarks.neural_processes import results, sunspots
from benchmarks.neural_processes import train as training
from benchmarks.neural_processes.__main__ import main
from benchmarks.neural_processes.figure import likelihoods
from spinimpute.neural_processes.training import NeuralProcessTrainer, load_model
from spinimpute.nn.model_weights import arrays_of
from spinimpute.runtime.tensor_files import fingerprint

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(results, "RESULTS", folder)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["neural_processes", *map(str, words)])
    main()


def train(monkeypatch: pytest.MonkeyPatch, models: Path, *arguments: object) -> None:
    call(monkeypatch, "train", "--tasks", 2, "--batches", 2, "--seeds", 3, "--models", "CANP",
         "--models-folder", models, *arguments)  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1])
def test_training_goes_on_with_more_points(folder, tmp_path, monkeypatch, steps) -> None:
    models = tmp_path / "models"
    train(monkeypatch, models, "--context", 4, 6, "--steps", 2)
    go_on = ("--context", 8, 9, "--after", 4, 6, "--after-steps", 2, "--steps", steps)
    train(monkeypatch, models, *go_on)
    (first,) = folder.glob("*-context-4-6-steps-2/CANP-3.json")
    (further,) = folder.glob(f"*-context-8-9-after-4-6-steps-2-steps-{steps}/CANP-3.json")
    row = json.loads(further.read_text())
    start, _ = load_model(models / f"{first.parent.name}-CANP-3.safetensors")
    assert row["start"] == fingerprint(arrays_of(start.state_dict()))
    assert (row["steps_before"], row["steps"], len(row["log"])) == (2, steps, steps)
    assert json.loads(first.read_text())["start"] is None
    # what is there already asks for no weights, what is not does
    shutil.rmtree(models)
    train(monkeypatch, models, *go_on)
    with pytest.raises(SystemExit, match=r"CANP-4\.safetensors is missing"):
        train(monkeypatch, models, *go_on, "--seeds", 3, 4)
    shutil.rmtree(first.parent)
    train(monkeypatch, models, *go_on)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--context", 8, 9, "--after", 4, 6, "--steps", 0], "there are no results of context-4-6"),
        (["--context", 8, 9, "--steps", 0], "--steps must be at least 1"),
        (["--context", 8, 9, "--after", 4, 6, "--steps", -1], "--steps must be at least 1"),
        (["--context", 8, 9, "--after-steps", 5], "--after-steps needs --after"),
        (["--context", 8, 9, "--after", 4, 6, "--after-steps", -4], "--after-steps must be at least 1"),
    ],
)
def test_nothing_is_made_of_mistakes(folder, tmp_path, monkeypatch, arguments, said) -> None:
    with pytest.raises(SystemExit, match=said):
        train(monkeypatch, tmp_path, *arguments)
    assert not list(folder.iterdir())


def test_a_track_begins_with_its_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for floor in (0.1, 0.001):
        train(monkeypatch, tmp_path, "--context", 4, 6, "--floor", floor, "--steps", 2)
    go_on = ("--after", 4, 6, "--after-steps", 2, "--steps", 0)
    train(monkeypatch, tmp_path, "--context", 8, 9, "--floor", 0.001, *go_on)
    (first,) = tmp_path.glob("*-context-4-6-floor-0.001-steps-2-CANP-3.safetensors")
    (further,) = folder.glob("*-context-8-9-floor-0.001-after-4-6-floor-0.001-steps-2-steps-0/CANP-3.json")
    start, _ = load_model(first)
    assert json.loads(further.read_text())["start"] == fingerprint(arrays_of(start.state_dict()))


def test_weights_that_are_gone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "2026-01-01-context-4-6").mkdir()
    with pytest.raises(SystemExit, match=r"context-4-6-CANP-3.safetensors is missing"):
        train(monkeypatch, tmp_path, "--context", 8, 9, "--after", 4, 6, "--steps", 0)
    assert len(list(folder.iterdir())) == 1


def test_calibration(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = tmp_path / "models"
    calibrate = (
        "calibration", "--steps", 2, "--batches", 1, "--samples", 2, "--models-folder", models, "--context"
    )  # fmt: skip
    with pytest.raises(SystemExit, match=r"no model in .*--context 4 6"):
        call(monkeypatch, *calibrate, 4, 6)
    for context in ((4, 6), (64, 128)):
        train(monkeypatch, models, "--context", *context, "--steps", 2, "--seeds", 3, 4)
    (new,) = models.glob("*-context-4-6-steps-2-CANP-3.safetensors")
    (models / "2026-01-01-context-4-6-steps-2-CANP-3.safetensors").write_bytes(new.read_bytes())
    for context in ((4, 6), (64, 128)):
        call(monkeypatch, *calibrate, *context)
    (few,) = folder.glob("*-calibration-context-4-6-steps-2")
    (many,) = folder.glob("*-calibration-steps-2")
    curves = json.loads((few / "curves.json").read_text())
    assert list(curves) == [new.stem, new.stem.replace("CANP-3", "CANP-4")]  # the latest of each seed
    assert [len(of_context) for of_context in curves[new.stem]] == [11] * 3
    found = [sum((p - i / 10) ** 2 for i, p in enumerate(c[2])) / 11 for c in curves.values()]
    row = (few / "report.md").read_text().splitlines()[-1].strip("| ").split(" | ")
    assert (row[0], row[4:]) == ("CANP", ["2"])
    assert row[3].startswith(f"{sum(found) / 2:.4f} ± ")
    assert (many / "report.md").read_text().rstrip().endswith("| 2 | 0.065 | 0.025 | 0.006 |")
    for made in ("calibration.png", "predictions.png"):
        assert (few / made).read_bytes().startswith(b"\x89PNG")


def test_long_training_is_resumed_with_its_log(folder, tmp_path, monkeypatch) -> None:
    """An interrupted run gives the weights and the log of an uninterrupted one."""
    monkeypatch.setattr(training, "LOOKS", 4)  # from 400 steps on, with a look every 100
    monkeypatch.setattr(training, "VALIDATION_BATCHES", 1)
    small = ("train", "--context", 2, 3, "--steps", 400, "--tasks", 1, "--batches", 2, "--seeds", 3)
    small += ("--models", "CIPNP", "--models-folder")
    call(monkeypatch, *small, tmp_path / "whole")
    (result,) = folder.glob("*-context-2-3-steps-400/CIPNP-3.json")
    whole = json.loads(result.read_text())
    result.unlink()
    steps, plain = [], NeuralProcessTrainer.loss

    def interrupted(self: NeuralProcessTrainer, number: int) -> Tensor:
        steps.append(self.step)
        if len(steps) == 250:
            raise KeyboardInterrupt
        return plain(self, number)

    monkeypatch.setattr(NeuralProcessTrainer, "loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(monkeypatch, *small, tmp_path / "half")
    call(monkeypatch, *small, tmp_path / "half")
    assert steps == [*range(250), *range(200, 400)]
    row = json.loads(result.read_text())
    assert [entry["step"] for entry in row["log"]] == [100, 200, 300, 400]
    assert row["log"] == whole["log"]
    assert row["log_likelihood"] == whole["log_likelihood"]
    assert {path.suffix for path in (tmp_path / "half").iterdir()} == {".safetensors"}


def test_the_best_look_may_be_the_last() -> None:
    looks = [{"step": 100 * i, "validation": value} for i, value in enumerate((3.0, 1.0, 2.0), 1)]
    assert training.best_look(looks) == "200"
    assert training.best_look(looks[:2]) == "200 (last)"
    assert training.best_look([{"step": 100}]) == "–"


def test_figure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (
        ("context-64-128", (1.0, 1.2)),
        ("context-256-512-after-64-128-steps-0", (1.5,)),
        ("context-256-512", (9.0,)),
        ("context-4-128", (9.0,)),
    ):
        (folder / f"2026-01-01-{name}").mkdir()
        for seed, value in enumerate(values, 1):
            row = {"kind": "CANP", "log_likelihood": value}
            (folder / f"2026-01-01-{name}" / f"CANP-{seed}.json").write_text(json.dumps(row))
    found = likelihoods(folder)["CANP"]
    assert [point[:2] for point in found] == [(96, 1.1), (384, 1.5)]
    assert found[0][2] == pytest.approx(0.2 / 2**0.5)
    (folder / "2026-01-01-cost").mkdir()
    (folder / "2026-01-01-cost" / "cost.tsv").write_text("kind\tcontext\tseconds\tMB\nCANP\t64\t0.1\t2\n")
    call(monkeypatch, "figure")
    assert (folder / "2026-01-01-cost" / "against-context.png").read_bytes().startswith(b"\x89PNG")


def test_sunspots(folder, tmp_path, monkeypatch) -> None:
    """Two steps suffice to see that everything is written and that the picture is the same again."""
    picture = tmp_path / "sunspots.svg"
    call(monkeypatch, "sunspots", "--steps", 2, "--seeds", 1, 2, "--picture", picture)
    (path,) = folder.glob("*-sunspots/scores.json")
    found = json.loads(path.read_text())
    assert len(found["scores"]["CIPNP+"]) == len(found["CPU seconds of fits"]) == 2
    assert "CIPNP+" in sunspots.table(folder)
    first = picture.read_text()
    sunspots.draw(found, picture)
    assert picture.read_text() == first
    ET.fromstring(first)


def test_scores_of_a_gap_with_known_answers() -> None:
    gaps = sunspots.hide(np.zeros((2, sunspots.WINDOW)))
    assert gaps.x_context.tolist() == [*range(15), *range(25, 40)]
    found = sunspots.score(gaps, np.full((2, 10), [0.0, 1.0, 2.0, 3.0, 4.0] * 2), np.ones((2, 10)))
    assert found["log-likelihood"] == pytest.approx(norm.logpdf([0, 1, 2, 3, 4]).mean())
    assert found["RMSE"] == pytest.approx(6**0.5)
    assert (found["50 %"], found["90 %"]) == pytest.approx((0.2, 0.4))


def test_linear_interpolation_of_a_gap() -> None:
    y = np.sin(np.arange(100) / 2) + 2
    gaps = sunspots.hide(np.arange(40.0)[None])
    mean, sd = sunspots.interpolation(y)(gaps)
    np.testing.assert_allclose(mean, gaps.y_gap)
    errors = [np.linspace(y[i + 14], y[i + 25], 12)[1:-1] - y[i + 15 : i + 25] for i in range(61)]
    np.testing.assert_allclose(sd[0], np.sqrt(np.mean(np.square(errors), axis=0)))


def test_a_gaussian_process_fills_a_periodic_gap() -> None:
    y = np.sin(np.arange(100) / 2) + 2 + np.random.default_rng(1).normal(0, 0.02, 100)
    gaps = sunspots.hide(sunspots.windows(y)[7:9])
    mean, sd = sunspots.gaussian_process(y, sunspots.PERIODIC)(gaps)
    np.testing.assert_allclose(mean, gaps.y_gap, atol=0.1)
    assert mean.shape == sd.shape
