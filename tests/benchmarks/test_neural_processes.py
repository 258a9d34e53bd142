"""Training on large contexts after small ones."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.neural_processes import results
from benchmarks.neural_processes.__main__ import main
from spinimpute.model_weights import arrays_of
from spinimpute.neural_processes.training import load_model
from spinimpute.tensor_files import fingerprint


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(results, "RESULTS", folder)
    return folder


def train(monkeypatch: pytest.MonkeyPatch, models: Path, *arguments: object) -> None:
    small = [
        "--tasks",
        "2",
        "--batches",
        "2",
        "--seeds",
        "3",
        "--models",
        "CANP",
        "--models-folder",
        str(models),
    ]
    monkeypatch.setattr(sys, "argv", ["neural_processes", "train", *small, *map(str, arguments)])
    main()


@pytest.mark.parametrize("steps", [0, 1])
def test_training_goes_on_with_more_points(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
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
def test_nothing_is_made_of_mistakes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], said: str
) -> None:
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
