"""Fits to tables, and the command line."""

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from spinimpute.cli.np import KINDS as OFFERED
from spinimpute.cli.np import np as np_commands

from spinimpute.neural_processes.fitting import fit
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
from spinimpute.neural_processes.settings import KINDS, ModelSettings
from spinimpute.neural_processes.training import MODEL_FORMAT, TrainingSettings, gaussian_trainer, load_model
from spinimpute.nn.model_weights import arrays_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import fingerprint, load_tensors, save_tensors

pytestmark = pytest.mark.slow


def waves(rng: np.random.Generator, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sines of different amplitude and phase, in arbitrary units."""
    tables = []
    for _ in range(n):
        x = rng.uniform(100, 104, rng.integers(25, 40))
        wave = rng.uniform(0.5, 2) * np.sin(x + rng.uniform(0, 2 * np.pi))
        y = 1_000 + 50 * wave + rng.normal(0, 1, len(x))
        tables.append((x, y))
    return tables


@pytest.mark.parametrize("kind", ["CIPNP+", "IPNP+"])
def test_sine_waves(kind: str) -> None:
    rng = np.random.default_rng(1)
    fitted = fit(waves(rng, 300), kind, steps=250, learning_rate=4e-3, width=32, heads=2, seed=2)
    errors, spread, inside = [], [], []
    for x, y in waves(rng, 40):
        mean, sd = fitted.predict(x[:20], y[:20], x[20:])
        assert mean.shape == sd.shape == y[20:].shape
        errors.append((mean - y[20:]) ** 2)
        spread.append((y[20:] - 1_000) ** 2)
        inside.append(np.abs(mean - y[20:]) < 2 * sd)
    assert np.concatenate(errors).mean() < 0.4 * np.concatenate(spread).mean()
    assert 0.7 < np.concatenate(inside).mean() <= 1
    nothing, unsure = fitted.predict(np.empty(0), np.empty(0), np.array([105.0]))
    assert nothing.shape == unsure.shape == (1,)
    settings = {"steps": 3, "width": 32, "heads": 2, "seed": 2}
    again, twice = (fit(waves(np.random.default_rng(1), 300), kind, **settings) for _ in range(2))
    for a, b in zip(again.model.parameters(), twice.model.parameters(), strict=True):
        assert (a == b).all()


def test_several_columns() -> None:
    rng = np.random.default_rng(0)
    tables = [(rng.normal(size=(9, 3)), rng.normal(size=(9, 2))) for _ in range(5)]
    fitted = fit(tables, "ANP", steps=2, width=16, heads=2)
    mean, sd = fitted.predict(*tables[0], rng.normal(size=(4, 3)))
    assert mean.shape == sd.shape == (4, 2)
    assert (sd > 0).all()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "no tables"),
        ([(np.ones(2), np.ones(2))], "needs at least 3 points, got 2"),
        ([(np.ones(5), np.ones(4))], "table 0: x and y must have a row for each point, got the shapes"),
        ([(np.ones(5), np.array([1, 2, 3, 4, np.nan]))], "table 0: it holds NaN"),
        ([(np.ones(5), np.ones(5)), (np.ones((5, 2)), np.ones(5))], "same numbers of columns"),
        ([(["a"] * 5, np.ones(5))], "table 0: not a pair of numeric arrays"),
    ],
)
def test_unusable_tables(tables: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(tables, steps=1)


def test_columns_of_any_scale() -> None:
    """A constant column has no influence, and an offset costs no precision."""
    rng = np.random.default_rng(0)
    tables = [
        (np.stack([rng.normal(size=9), np.full(9, 0.1)], axis=1), 1e9 + rng.normal(size=9)) for _ in range(5)
    ]
    fitted = fit(tables, "CANP", steps=2, width=16, heads=2)
    mean, sd = fitted.predict(*tables[0], tables[1][0])
    assert (np.abs(mean - 1e9) < 5).all()
    assert len(np.unique(mean)) > 1
    assert (sd < 10).all()


def test_unusable_settings() -> None:
    with pytest.raises(ValueError, match="tasks must be a whole number"):
        fit(waves(np.random.default_rng(0), 3), tasks=2.5)
    with pytest.raises(InputError, match="leaves no target"):
        fit([(np.ones(5), np.ones(5))], context=(3, 5), steps=1)
    with pytest.raises(InputError, match="has 2 inputs and 1 outputs, the tasks have 1 and 1"):
        gaussian_trainer(ModelSettings("CANP", x_size=2), TrainingSettings(2), ProcessSettings())


def test_train_evaluate_plot(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    common = ("np", "train", "--context", 4, 8, "--steps", 6, "--device", "cpu", "--out", model)
    code, _, err = run(*common)
    assert code == 0
    assert "CIPNP, 6 steps, seed 1" in err
    assert {p.name for p in tmp_path.iterdir()} == {"m.safetensors"}
    code, _, err = run(*common)
    assert (code, "already exists" in err) == (2, True)
    code, out, _ = run("np", "evaluate", model, "--batches", 2, "--device", "cpu")
    assert code == 0
    head, row = (line.split("\t") for line in out.splitlines())
    assert len(head) == 9
    found = dict(zip(head, row, strict=True))
    lacking = Decimal(found["floored_oracle"]) - Decimal(found["log_likelihood"])
    assert Decimal(found["gap"]) == lacking  # as printed, too
    assert Decimal(found["oracle"]) > Decimal(found["floored_oracle"])
    code, out, _ = run("np", "evaluate", model, "--batches", 2, "--device", "cpu", "--context", 1, 2)
    assert code == 0
    other = out.splitlines()[1].split("\t")
    assert other[1:6] != row[1:6]
    assert other[6:] == row[6:]  # calibration is at 4, 8 and 16
    code, out, err = run("np", "evaluate", model, "--context", 3, 2)
    assert (code, out, "--context 3 2: " in err) == (2, "", True)
    for what in ("predictions", "calibration"):
        picture = tmp_path / f"{what}.png"
        assert run("np", "plot", model, "--what", what, "--batches", 2, "--out", picture)[0] == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    code, _, err = run("np", "train", "--context", 8, 4, "--out", tmp_path / "x")
    assert (code, "context must be 0 <= minimum <= maximum" in err) == (2, True)
    common = ("np", "train", "--context", 4, 8, "--steps", 2, "-q", "--out", tmp_path / "x")
    for wrong in (("--learning-rate", "inf"), ("--inducing-points", 10**10), ("--seed", 10**22)):
        assert run(*common, *wrong).code == 2
        assert not list(tmp_path.glob("x*"))
    (tmp_path / "x.state").write_text("mine")
    code, _, err = run(*common)
    assert (code, "--resume" in err) == (2, True)
    assert (tmp_path / "x.state").read_text() == "mine"
    code, _, err = run("np", "plot", model, "--out", tmp_path / "p.pdf")
    assert (code, ".png" in err) == (2, True)
    code, _, err = run("np", "evaluate", tmp_path / "predictions.png")
    assert (code, "predictions.png" in err) == (2, True)


def refused(*words: object) -> str:
    """Return the message, of one line, with which a command is refused."""
    failed = CliRunner().invoke(np_commands, [str(word) for word in words])
    assert isinstance(failed.exception, InputError), (words, failed.exception)
    assert failed.output == ""
    assert "\n" not in str(failed.exception)
    return str(failed.exception)


def test_training_starts_from_another_model(tmp_path: Path) -> None:
    first, further, other = (tmp_path / name for name in ("first", "further", "other"))
    common = ["train", "--context", "4", "8", "--steps", "2", "--device", "cpu", "-q", "--out"]
    run = CliRunner().invoke
    assert run(np_commands, [*common, str(first), "--model", "CANP", "--floor", "0.2"]).exit_code == 0
    almost_still = ["--init", str(first), "--learning-rate", "1e-9", "--seed", "2"]
    assert run(np_commands, [*common, str(further), *almost_still]).exit_code == 0
    (one, _), (two, metadata) = load_model(first), load_model(further)
    assert metadata["model"] == asdict(one.settings)
    assert metadata["start"] == fingerprint(arrays_of(one.state_dict()))
    for before, after in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=1e-7)
    said = f"--init {first}: the initial weights are of another model: kind CANP instead of CIPNP"
    assert said in refused(*common, other, "--init", first, "--model", "CIPNP")
    assert not list(tmp_path.glob("other*"))
    state = tmp_path / "other.state"
    state.write_text("of a longer run")
    refused(*common, other, "--force", "--init", first, "--model", "ANP")
    assert state.read_text() == "of a longer run"
    assert "also read from" in refused(*common, first, "--force", "--init", first)
    load_model(first)


def test_a_context_too_large_to_evaluate(tmp_path: Path) -> None:
    run = CliRunner().invoke
    trained = ["train", "--context", "4", "8", "--steps", "1", "--device", "cpu", "-q"]
    assert run(np_commands, [*trained, "--out", str(tmp_path / "m")]).exit_code == 0
    for most, said in ((2**63 - 1, "context must be at most"), (10**5, "fewer points with --context")):
        assert said in refused("evaluate", tmp_path / "m", "--context", 4, most)


def test_damaged_models(tmp_path: Path) -> None:
    trainer = gaussian_trainer(
        ModelSettings("RCIPNP", width=16, heads=2), TrainingSettings(1), ProcessSettings()
    )
    trainer.save(tmp_path / "m")
    arrays, metadata = load_tensors(tmp_path / "m", MODEL_FORMAT, "neural process")
    plot = ("plot", "--out", tmp_path / "p.png")
    for name, changed in (
        ("no tasks", {k: v for k, v in metadata.items() if k != "tasks"}),
        ("null tasks", metadata | {"tasks": None}),
        ("fewer readings", metadata | {"model": metadata["model"] | {"readings": 2}}),
        ("endless readings", metadata | {"model": metadata["model"] | {"readings": 10**9}}),
        ("enormous", metadata | {"model": metadata["model"] | {"width": 10**9}}),
        ("many points", metadata | {"model": metadata["model"] | {"inducing_points": 10**7}}),
    ):
        save_tensors(tmp_path / name, arrays, changed, MODEL_FORMAT)
        for command in (["evaluate"], plot):
            said = refused(*command, tmp_path / name)
            assert "weights and description do not agree" in said
            assert name != "many points" or "inducing_points must be at most 1,000,000" in said
    tasks = metadata["tasks"]["gaussian"]
    for setting, value in (
        ("kernel", "none"), ("context", [8, 4]), ("context", 5), ("context", "ab"), ("target", [1.5, 2]),
        ("tasks", 10**20), ("tasks", "x"), ("x_size", 2), ("inputs", [1]), ("inputs", [-1e308, 1e308]),
        ("scale", [0, 1]), ("length_scale", None), ("noise", 0), ("noise", [1]),
        ("noise", 2**70), ("colour", 1),
    ):  # fmt: skip
        changed = metadata | {"tasks": {"gaussian": tasks | {setting: value}}}
        save_tensors(tmp_path / "tasks", arrays, changed, MODEL_FORMAT)
        assert "the description of its tasks is invalid" in refused("evaluate", tmp_path / "tasks")
    for value, said in ((np.nan, "weights that are not finite"), (1e30, "the figure cannot be made")):
        same = {name: np.full_like(array, value) for name, array in arrays.items()}
        save_tensors(tmp_path / "same", same, metadata, MODEL_FORMAT)
        assert said in refused(*plot, tmp_path / "same")
    assert not (tmp_path / "p.png").exists()


def test_all_models_are_offered() -> None:
    assert OFFERED == KINDS
