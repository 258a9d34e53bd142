"""Predictions and files of fitted processes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from spinimpute.neural_processes.fitted import PROCESS_FORMAT, FittedProcess
from spinimpute.neural_processes.fitting import fit
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
from spinimpute.neural_processes.settings import ModelSettings
from spinimpute.neural_processes.training import NeuralProcessTrainer, TrainingSettings, gaussian_trainer
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors

SMALL = {"steps": 3, "width": 16, "heads": 2, "inducing_points": 4}


def tables(x_size: int = 2, y_size: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [(rng.normal(7, 5, (9, x_size)), rng.normal(1e6, 2, (9, y_size))) for _ in range(5)]


def small_fit(kind: str = "CIPNP+") -> FittedProcess:
    return fit(tables(), kind, **SMALL)


def prediction(process: FittedProcess, n: int = 5, **options: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = tables()[0]
    return process.predict(x[:n], y[:n], x[n:], **options)


@pytest.mark.parametrize("kind", ["CIPNP+", "ANP", "BANP+", "LBANP+", "RIPNP"])
def test_a_loaded_process_predicts_exactly_as_the_saved_one(kind: str, tmp_path: Path) -> None:
    process = small_fit(kind)
    process.save(tmp_path / "process")
    loaded = FittedProcess.load(tmp_path / "process")
    for n in (0, 5):
        for before, after in zip(prediction(process, n), prediction(loaded, n), strict=True):
            assert np.array_equal(before, after)
    assert loaded.model.settings == process.model.settings


def test_predictions_depend_on_the_seed_alone() -> None:
    process = small_fit("IPNP+")
    state = torch.get_rng_state()
    (first, _), (second, _), (other, _) = (prediction(process, seed=seed) for seed in (4, 4, 5))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "process"
    small_fit().save(path)
    whole = path.read_bytes()
    arrays, metadata = load_tensors(path, PROCESS_FORMAT, "process")

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            FittedProcess.load(path)
        assert "\n" not in str(caught.value)

    for content in (b"", whole[:-1], whole[: len(whole) // 2], b"not safetensors at all"):
        path.write_bytes(content)
        refused("fitted neural process .*process: not a readable safetensors file")
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    refused("do not match their checksum")
    for name in ("x_mean", "y_sd", next(iter(arrays))):
        save_tensors(path, {k: v for k, v in arrays.items() if k != name}, metadata, PROCESS_FORMAT)
        refused("weights and description do not agree")
    for name, value in (
        ("x_mean", np.zeros(3)),
        ("y_mean", np.array([0, np.nan, 0])),
        ("y_sd", np.array([1.0, 0, 1])),
        ("x_sd", np.ones(2, dtype=np.float32)),
    ):
        save_tensors(path, arrays | {name: value}, metadata, PROCESS_FORMAT)
        refused("weights and description do not agree")
    for changed in ({}, [], {"model": None}, {"model": metadata["model"] | {"width": 32}}):
        save_tensors(path, arrays, changed, PROCESS_FORMAT)
        refused("weights and description do not agree")
    NeuralProcessTrainer(
        ModelSettings("CANP", width=16, heads=2), TrainingSettings(1), lambda step: None, {}
    ).save(path)
    refused("is not a fitted neural process of spinimpute")
    path.unlink()
    refused("fitted neural process .*process")


def test_unusable_points_are_refused() -> None:
    process = small_fit()
    x, y = tables()[0]
    for arguments, message in (
        ((x[:5, :1], y[:5], x), r"x_context must have the shape \(points, 2\), got \(5, 1\)"),
        ((x[:5], y[:5], x[:, 0]), r"x_target must have the shape \(points, 2\), got \(9,\)"),
        ((x[:5], y[:5, 0], x), r"y_context must have the shape \(points, 3\), got \(5,\)"),
        ((x[:5], y[:4], x), r"must have the same points, .* got the shapes \(5, 2\), \(4, 3\)"),
        ((x[:5], np.full((5, 3), np.nan), x), "y_context holds NaN"),
        ((x[:5], y[:5], [["a", "b"]]), "x_target is not a numeric array"),
    ):
        with pytest.raises(InputError, match=message):
            process.predict(*arguments)


@pytest.mark.parametrize("kind", ["CIPNP+", "ANP", "BANP+", "LBANP+", "RCANP"])
def test_tables_of_one_call_are_predicted_as_in_calls_of_their_own(kind: str) -> None:
    process = small_fit(kind)
    x, y = (np.stack(arrays) for arrays in zip(*tables(), strict=True))
    for n in (0, 5):
        together = process.predict(x[:, :n], y[:, :n], x[:, n:])
        assert together[0].shape == (5, 9 - n, 3)
        for number in range(len(x)):
            alone = process.predict(x[number, :n], y[number, :n], x[number, n:])
            for all_values, values in zip(together, alone, strict=True):
                assert np.array_equal(all_values[number], values)


def test_shapes_of_several_tables() -> None:
    process = fit(tables(y_size=1), "CIPNP+", **SMALL)
    x, y = (np.stack(arrays) for arrays in zip(*tables(y_size=1), strict=True))
    with_column, without = process.predict(x, y, x[:, :2]), process.predict(x, y[..., 0], x[:, :2])
    assert with_column[0].shape == (5, 2, 1)
    assert np.array_equal(with_column[0][..., 0], without[0])
    for wrong in ((x, y[:4], x), (x, y[:, :4], x), (x, y, x[:4])):
        with pytest.raises(InputError, match="x_target the same tables, got the shapes"):
            process.predict(*wrong)
    with pytest.raises(InputError, match=r"x_target must have the shape \(tables, points, 2\), got \(9, 2\)"):
        process.predict(x, y, x[0])


def thresholds(rng: np.random.Generator, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Step functions: y is 1 above a threshold of each table."""
    x = rng.uniform(0, 1, (n, 30))
    return list(zip(x, (x > rng.uniform(0.2, 0.8, (n, 1))).astype(float), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CIPNP+", "RIPNP", "LBANP+", "ANP"])
def test_binary_outputs_are_learned(kind: str, tmp_path: Path) -> None:
    options = {"steps": 150, "learning_rate": 3e-3, "width": 32, "heads": 2, "inducing_points": 8}
    process = fit(thresholds(np.random.default_rng(1), 200), kind, outputs="binary", **options)
    process.save(tmp_path / "process")
    x, y = (np.stack(a) for a in zip(*thresholds(np.random.default_rng(2), 40), strict=True))
    points = x[:, :15, None], y[:, :15], x[:, 15:, None]
    p, sd = FittedProcess.load(tmp_path / "process").predict(*points)
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_allclose(sd, np.sqrt(p * (1 - p)), atol=1e-3)
    truth, base = y[:, 15:], y[:, :15].mean()
    assert ((p - truth) ** 2).mean() < 0.5 * ((base - truth) ** 2).mean()


def test_unusable_binary_outputs() -> None:
    for kind in ("BANP", "BANP+"):
        with pytest.raises(ValueError, match="adds residuals to outputs, which must be continuous"):
            fit(thresholds(np.random.default_rng(1), 3), kind, outputs="binary")
    with pytest.raises(InputError, match="table 0: binary outputs must be 0 or 1"):
        fit(tables(), outputs="binary")
    with pytest.raises(InputError, match="Gaussian processes have continuous outputs"):
        gaussian_trainer(ModelSettings("CANP", outputs="binary"), TrainingSettings(1), ProcessSettings())
    with pytest.raises(ValueError, match="outputs must be"):
        fit(tables(), outputs="ordinal")
