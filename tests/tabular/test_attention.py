"""Which rows and inducing points predictions read."""

from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import NPTRegressor, SPINClassifier, SPINRegressor

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "steps": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(70, 3))
    return x, x[:, 0] + x[:, 1]


@pytest.mark.parametrize("inducing_points", [5, 69, 70, 1_000])
def test_predictions_trace_to_training_rows_through_inducing_points(
    inducing_points: int, table: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = table
    model = SPINRegressor(**SMALL, inducing_points=inducing_points, row_width=8).fit(x, y)
    read, kept = model.inducing_attention(x[:9]), model.training_row_attention()
    points = min(inducing_points, 70)
    assert read.shape == (9, points)
    assert kept.shape == (points, 70)  # rows of early stopping are read, too
    np.testing.assert_allclose(read.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(kept.sum(1), 1, rtol=1e-5)
    assert (read >= 0).all()
    assert (kept >= 0).all()
    # of one row as of many, and after other predictions
    np.testing.assert_allclose(model.inducing_attention(x[4:5]), read[4:5], rtol=1e-4)


@pytest.mark.parametrize("inducing_points", [5, 1_000])
def test_what_was_read_is_the_mean_of_the_rows_that_are_named(
    inducing_points: int, table: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = table
    model = SPINRegressor(**SMALL, inducing_points=inducing_points, validation_fraction=0).fit(x, y)
    come_from = model.inducing_attention(x) @ model.training_row_attention()
    with torch.no_grad():
        _, read_AQ1 = model.network_.predict(model._rows(x), model.inducing_points_)
    read = read_AQ1.mean(0)[:, 0].numpy() * model.label_sd_ + model.label_mean_
    np.testing.assert_allclose(come_from @ y, read, rtol=1e-4, atol=1e-4)
    nearest = come_from.argmax(1)
    assert np.abs(x[nearest] - x).sum(1).mean() < 0.75 * np.abs(x[::-1] - x).sum(1).mean()


def test_rows_that_are_inducing_points_are_read_themselves(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = table
    model = SPINClassifier(**SMALL, validation_fraction=0).fit(x, y > 0)
    np.testing.assert_array_equal(model.training_row_attention(), np.eye(70))
    np.testing.assert_array_equal(model.inducing_points_.label_BHU[0].argmax(1), y > 0)


def test_forgotten_rows_cannot_be_traced(table: tuple[np.ndarray, np.ndarray]) -> None:
    model = SPINRegressor(**SMALL, inducing_points=16).fit(*table).forget_training_data()
    with pytest.raises(ValueError, match="were dropped"):
        model.training_row_attention()
    assert model.inducing_attention(table[0]).shape == (70, 16)


def test_npt_attends_to_its_context(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = table
    model = NPTRegressor(**SMALL, blocks=2, context_size=50).fit(x, y)
    found = model.row_attention(x[:6])
    assert found.shape == (2, 6, 50)
    np.testing.assert_allclose(found.sum(2), 1, rtol=1e-5)
    np.testing.assert_allclose(model.row_attention(x[3:4]), found[:, 3:4], rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_apart_are_of_all_kinds(seed: int) -> None:
    """One class in fifty, and the largest labels, are among the rows for early stopping as among all."""
    model = SPINClassifier(validation_fraction=0.2)
    label = np.r_[np.zeros(480, int), np.ones(20, int)][np.random.default_rng(seed).permutation(500)]
    kept, apart = model._split(label, seed)
    assert len(apart) == 100
    assert label[apart].sum() == 4
    assert sorted([*kept, *apart]) == list(range(500))
    number = np.random.default_rng(seed).normal(size=500)
    kept, apart = model._split(number, seed)
    assert (number[apart] > np.quantile(number, 0.9)).sum() == 10
    assert len(set(apart.tolist())) == 100
    for size in (308, 1_001):  # not a multiple
        apart = SPINClassifier(validation_fraction=0.222)._split(np.arange(size) % 7, seed)[1]
        assert len(set(apart.tolist())) == int(0.222 * size)
    apart = model._split(number, seed)[1]
    other = model._split(number, seed + 1)[1]
    assert 0 < len(set(apart) - set(other)) < 100
