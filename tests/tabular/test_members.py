"""SPIN's ensemble: what is predicted is the mean over members."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import SPINClassifier, SPINRegressor
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.model_files import load_estimator, save_estimator
from spinimpute.tabular.table import Schema

SMALL: dict[str, Any] = {"width": 8, "row_width": 8, "steps": 5, "members": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def of_members(model: Any, x: np.ndarray) -> torch.Tensor:
    """(3, N, O)."""
    with torch.no_grad():
        outputs_AQO, _ = model.network_.predict(model._rows(x), model.inducing_points_)
    assert len(outputs_AQO) == 3
    return outputs_AQO


def test_classes_have_the_mean_probability_of_all_members() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = SPINClassifier(**SMALL).fit(x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 1))
    probabilities = of_members(model, x).softmax(-1)
    assert (probabilities[0] - probabilities[1]).abs().max() > 1e-3
    np.testing.assert_allclose(model.predict_proba(x), probabilities.mean(0).numpy(), atol=1e-6)


def test_numbers_are_the_mean_of_all_members() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = SPINRegressor(**SMALL).fit(x, 3 + 2 * x[:, 0])
    mean = of_members(model, x).mean(0)[:, 0].numpy() * model.label_sd_ + model.label_mean_
    np.testing.assert_allclose(model.predict(x), mean, rtol=1e-5)


@pytest.mark.parametrize("members", [1, 3])
def test_as_many_as_are_asked_for(members: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = SPINRegressor(**{**SMALL, "members": members, "validation_fraction": 0}).fit(x, x[:, 0])
    assert model.network_.members == members
    save_estimator(model, tmp_path / "m.safetensors")
    loaded = load_estimator(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_large_tables_have_as_many_as_small_ones() -> None:
    x = np.random.default_rng(0).normal(size=(6_000, 1))
    assert SPINRegressor(steps=1, random_state=0).fit(x, x[:, 0]).network_.members == 8


def test_scalings_start_by_the_kind_of_column() -> None:
    torch.manual_seed(0)
    schema = Schema((3, 0, 2, 0), (False,) * 4)
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "head_width": 4, "inducing_points": 6, "rounds": 1}
    sizes |= {"predictor_layers": 1, "row_width": 8, "members": 5, "dropout": 0.0, "pieces": 4}
    scaling = CarryingNetwork(schema, 0, **sizes).predictor.fold.scaling
    assert scaling is not None
    scaling_MDE = scaling.detach().unflatten(-1, (4, 8))[:, 0]
    are_signs_D = (scaling_MDE.abs() == 1).all(-1).all(0)
    assert are_signs_D.tolist() == [True, False, True, False]


def test_without_members_nothing_is_fitted() -> None:
    with pytest.raises(ValueError, match="members must be at least 1"):
        SPINRegressor(members=0).fit(np.eye(5), np.arange(5.0))


@pytest.mark.parametrize("name", ["steps", "batch_size", "patience", "members", "context_size"])
@pytest.mark.parametrize("value", [2.5, None, "two", np.float64(2)])
def test_counts_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number, got "):
        SPINRegressor(**{name: value}).fit(np.eye(5), np.arange(5.0))
    SPINRegressor(**SMALL | {name: np.int64(2)}).fit(np.eye(5), np.arange(5.0))
