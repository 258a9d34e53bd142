"""SPIN's ensemble: what is predicted is the mean over members."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import SPINClassifier, SPINRegressor
from spinimpute.tabular.model_files import load_estimator, save_estimator

SMALL: dict[str, Any] = {"width": 8, "row_width": 8, "steps": 5, "members": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def of_members(model: Any, x: np.ndarray) -> torch.Tensor:
    """(3, N, O)."""
    with torch.no_grad():
        outputs = model.network_.predict(model._rows(x), model.inducing_points_)
        return model.network_.label_outputs(outputs).unflatten(0, (3, -1))


def test_classes_have_the_mean_chance_of_all_members() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = SPINClassifier(**SMALL).fit(x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 1))
    chances = of_members(model, x).softmax(-1)
    assert (chances[0] - chances[1]).abs().max() > 1e-3
    np.testing.assert_allclose(model.predict_proba(x), chances.mean(0).numpy(), atol=1e-6)


def test_numbers_are_the_mean_of_all_members() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = SPINRegressor(**SMALL, attribute_loss=0.5).fit(x, 3 + 2 * x[:, 0])
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


def test_without_members_nothing_is_fitted() -> None:
    with pytest.raises(ValueError, match="members must be positive"):
        SPINRegressor(members=0).fit(np.eye(5), np.arange(5.0))
