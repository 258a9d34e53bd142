"""SPIN predicts from its context: other labels, other predictions; rows that it never saw are looked up."""

from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import SPINClassifier, SPINRegressor

SMALL: dict[str, Any] = {"steps": 60, "row_width": 16, "members": 2, "heads": 4, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(400, 3))


def steps_of(x: np.ndarray) -> np.ndarray:
    """A label that neighbours share."""
    return np.sign(x[:, 0]) + 2 * np.sign(x[:, 1])


@pytest.mark.parametrize("inducing_points", [40, 1_000])
def test_shuffled_labels_spoil_predictions(inducing_points: int, rows: np.ndarray) -> None:
    train, test = rows[:300], rows[300:]
    number = SPINRegressor(**SMALL, inducing_points=inducing_points).fit(train, steps_of(train))
    classes = SPINClassifier(**SMALL, inducing_points=inducing_points).fit(train, steps_of(train) > 0)
    shuffled = np.random.default_rng(1).permutation(steps_of(train))

    def errors() -> tuple[float, float]:
        wrong = classes.predict(test) != (steps_of(test) > 0)
        return float(np.square(number.predict(test) - steps_of(test)).mean()), float(wrong.mean())

    true = errors()
    number.set_context(train, shuffled)
    classes.set_context(train, shuffled > 0)
    spoilt = errors()
    assert true[0] < 1.0  # the variance is 5
    assert true[1] < 0.1
    assert spoilt[0] > 3 * true[0]
    assert spoilt[1] > 3 * true[1]
    assert spoilt[1] > 0.05


@pytest.mark.parametrize("inducing_points", [40, 1_000])
def test_the_order_of_the_context_changes_nothing(inducing_points: int, rows: np.ndarray) -> None:
    train, label = rows[:300], steps_of(rows[:300])
    model = SPINRegressor(**SMALL | {"steps": 3}, inducing_points=inducing_points).fit(train, label)
    first = model.set_context(train, label).predict(rows)
    order = np.random.default_rng(2).permutation(300)
    second = model.set_context(train[order], label[order]).predict(rows)
    np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-4)


def test_labels_of_rows_that_it_never_saw_are_looked_up(rows: np.ndarray) -> None:
    """Trained where copies of queries are in the context, with labels that say nothing of other rows."""
    rng = np.random.default_rng(3)
    keys = rng.normal(size=(200, 3))
    x = np.repeat(keys, 2, axis=0)
    y = np.repeat(rng.normal(size=200), 2)
    model = SPINRegressor(**SMALL | {"steps": 100}, validation_fraction=0).fit(x, y)
    fresh, label = rng.normal(size=(100, 3)), rng.normal(size=100)
    said = model.set_context(fresh, label).predict(fresh)
    assert np.corrcoef(said, label)[0, 1] > 0.95


def test_a_single_row_is_what_is_read(rows: np.ndarray) -> None:
    model = SPINClassifier(**SMALL | {"steps": 2}).fit(rows, rows[:, 0] > 0)
    model.set_context(rows[:1], np.array([True]))
    assert model.inducing_points_.label_BHU.tolist() == [[[0.0, 1.0]]]
    assert model.predict(rows).shape == (400,)
