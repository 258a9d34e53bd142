"""SPIN on tables: attention, the influence of the context, long contexts and members of the ensemble."""

from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import NPTRegressor, SPINClassifier, SPINRegressor, carrying_network
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.table import Schema

pytestmark = pytest.mark.slow

TRACED: dict[str, Any] = {"width": 8, "heads": 2, "steps": 3, "random_state": 0}
LEARNING: dict[str, Any] = {"steps": 60, "row_width": 16, "members": 2, "heads": 4, "random_state": 0}
CHUNKED: dict[str, Any] = {
    "width": 8, "row_width": 8, "inducing_points": 4, "members": 2, "dropout": 0.0, "random_state": 0,
}  # fmt: skip
ENSEMBLE: dict[str, Any] = {"width": 8, "row_width": 8, "steps": 5, "members": 3, "random_state": 0}
LONG = np.random.default_rng(0).normal(size=(120, 3))


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(70, 3))
    return x, x[:, 0] + x[:, 1]


@pytest.mark.parametrize("inducing_points", [5, 69, 70, 1_000])
def test_predictions_trace_to_training_rows_through_inducing_points(inducing_points, table) -> None:
    x, y = table
    model = SPINRegressor(**TRACED, inducing_points=inducing_points, row_width=8).fit(x, y)
    read, kept = model.inducing_attention(x[:9]), model.training_row_attention()
    points = min(inducing_points, 70)
    for weight, shape in ((read, (9, points)), (kept, (points, 70))):  # 70 includes validation rows
        assert weight.shape == shape
        assert (weight >= 0).all()
        np.testing.assert_allclose(weight.sum(1), 1, rtol=1e-5)
    # independent of the other rows
    np.testing.assert_allclose(model.inducing_attention(x[4:5]), read[4:5], rtol=1e-4)


@pytest.mark.parametrize("inducing_points", [5, 1_000])
def test_uncorrected_predictions_are_means_of_traced_rows(inducing_points, table) -> None:
    x, y = table
    model = SPINRegressor(**TRACED, inducing_points=inducing_points, validation_fraction=0).fit(x, y)
    come_from = model.inducing_attention(x) @ model.training_row_attention()
    with torch.no_grad():
        _, read_AQ1 = model.network_.predict(model._encode_input(x), model.inducing_points_)
    read = read_AQ1.mean(0)[:, 0].numpy() * model.label_sd_ + model.label_mean_
    np.testing.assert_allclose(come_from @ y, read, rtol=1e-4, atol=1e-4)
    nearest = come_from.argmax(1)
    assert np.abs(x[nearest] - x).sum(1).mean() < 0.75 * np.abs(x[::-1] - x).sum(1).mean()


def test_rows_of_a_small_context_are_inducing_points(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = table
    model = SPINClassifier(**TRACED, validation_fraction=0).fit(x, y > 0)
    np.testing.assert_array_equal(model.training_row_attention(), np.eye(70))
    np.testing.assert_array_equal(model.inducing_points_.label_BHU[0].argmax(1), y > 0)


def test_dropped_rows_cannot_be_traced(table: tuple[np.ndarray, np.ndarray]) -> None:
    model = SPINRegressor(**TRACED, inducing_points=16).fit(*table).forget_training_data()
    with pytest.raises(ValueError, match="were dropped"):
        model.training_row_attention()
    assert model.inducing_attention(table[0]).shape == (70, 16)


def test_npt_attends_to_its_context(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = table
    model = NPTRegressor(**TRACED, blocks=2, context_size=50).fit(x, y)
    found = model.row_attention(x[:6])
    assert found.shape == (2, 6, 50)
    np.testing.assert_allclose(found.sum(2), 1, rtol=1e-5)
    np.testing.assert_allclose(model.row_attention(x[3:4]), found[:, 3:4], rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_validation_rows_are_stratified(seed: int) -> None:
    """A rare class and the largest labels have the same share among validation rows as among all rows."""
    model = SPINClassifier(validation_fraction=0.2)
    label = np.r_[np.zeros(480, int), np.ones(20, int)][np.random.default_rng(seed).permutation(500)]
    training, validation = model._split(label, seed)
    assert len(validation) == 100
    assert label[validation].sum() == 4
    assert sorted([*training, *validation]) == list(range(500))
    number = np.random.default_rng(seed).normal(size=500)
    training, validation = model._split(number, seed)
    assert (number[validation] > np.quantile(number, 0.9)).sum() == 10
    assert len(set(validation.tolist())) == 100
    for size in (308, 1_001):  # not a multiple
        validation = SPINClassifier(validation_fraction=0.222)._split(np.arange(size) % 7, seed)[1]
        assert len(set(validation.tolist())) == int(0.222 * size)
    validation = model._split(number, seed)[1]
    other = model._split(number, seed + 1)[1]
    assert 0 < len(set(validation) - set(other)) < 100


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(400, 3))


def steps_of(x: np.ndarray) -> np.ndarray:
    """A label that is constant in each quadrant."""
    return np.sign(x[:, 0]) + 2 * np.sign(x[:, 1])


@pytest.mark.parametrize("inducing_points", [40, 1_000])
def test_shuffled_labels_spoil_predictions(inducing_points: int, rows: np.ndarray) -> None:
    train, test = rows[:300], rows[300:]
    number = SPINRegressor(**LEARNING, inducing_points=inducing_points).fit(train, steps_of(train))
    classes = SPINClassifier(**LEARNING, inducing_points=inducing_points).fit(train, steps_of(train) > 0)
    shuffled = np.random.default_rng(1).permutation(steps_of(train))

    def errors() -> tuple[float, float]:
        wrong = classes.predict(test) != (steps_of(test) > 0)
        return float(np.square(number.predict(test) - steps_of(test)).mean()), float(wrong.mean())

    of_number, of_class = errors()
    assert of_number < 1.0  # the variance is 5
    assert of_class < 0.1
    number.set_context(train, shuffled)
    classes.set_context(train, shuffled > 0)
    spoilt_number, spoilt_class = errors()
    assert spoilt_number > 3 * of_number
    assert spoilt_class > max(3 * of_class, 0.05)


@pytest.mark.parametrize("inducing_points", [40, 1_000])
def test_the_order_of_the_context_changes_nothing(inducing_points: int, rows: np.ndarray) -> None:
    train, label = rows[:300], steps_of(rows[:300])
    model = SPINRegressor(**LEARNING | {"steps": 3}, inducing_points=inducing_points).fit(train, label)
    first = model.set_context(train, label).predict(rows)
    order = np.random.default_rng(2).permutation(300)
    second = model.set_context(train[order], label[order]).predict(rows)
    np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("copies", [2, 30])
def test_copies_of_the_context_change_nothing(copies: int, rows: np.ndarray) -> None:
    """Steps have smaller contexts than predictions, so a reading may not grow with the number of rows."""
    model = SPINClassifier(**LEARNING, inducing_points=20_000).fit(rows, rows[:, 0] > 0)
    x, y = rows[:300], rows[:300, 0] > 0
    once = model.set_context(x, y).predict_proba(rows)
    again = model.set_context(np.repeat(x, copies, axis=0), np.repeat(y, copies)).predict_proba(rows)
    np.testing.assert_allclose(again, once, rtol=1e-3, atol=1e-5)


def test_labels_of_new_rows_are_looked_up(rows: np.ndarray) -> None:
    """In training, queries have copies in the context, and labels carry no information about other rows."""
    rng = np.random.default_rng(3)
    keys = rng.normal(size=(200, 3))
    x = np.repeat(keys, 2, axis=0)
    y = np.repeat(rng.normal(size=200), 2)
    model = SPINRegressor(**LEARNING | {"steps": 100}, validation_fraction=0).fit(x, y)
    fresh, label = rng.normal(size=(100, 3)), rng.normal(size=100)
    predicted = model.set_context(fresh, label).predict(fresh)
    assert np.corrcoef(predicted, label)[0, 1] > 0.95


def test_a_context_of_one_row(rows: np.ndarray) -> None:
    model = SPINClassifier(**LEARNING | {"steps": 2}).fit(rows, rows[:, 0] > 0)
    model.set_context(rows[:1], np.array([True]))
    assert model.inducing_points_.label_BHU.tolist() == [[[0.0, 1.0]]]
    assert model.predict(rows).shape == (400,)


def gradients(model: SPINRegressor, rows: int) -> dict[str, torch.Tensor]:
    network, label_N = model.network_, torch.linspace(-1, 1, rows)
    context, query = model._encode_input(LONG[:rows]), model._encode_input(LONG[rows:])
    network.train().zero_grad()
    outputs, read = network(context, label_N, query)
    (outputs.square().sum() + read.square().sum()).backward()
    return {name: w.grad.clone() for name, w in network.named_parameters() if w.grad is not None}


@pytest.mark.parametrize("rows", [30, 31, 100])
@pytest.mark.parametrize("rounds", [1, 2])
def test_gradients_are_those_of_the_whole_context(rows, rounds, monkeypatch) -> None:
    model = SPINRegressor(**CHUNKED, rounds=rounds, steps=2).fit(LONG, LONG[:, 0])
    whole = gradients(model, rows)
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    torch.testing.assert_close(gradients(model, rows), whole, rtol=1e-4, atol=1e-5)


def test_no_more_rows_than_a_chunk_are_embedded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    model = SPINRegressor(**CHUNKED, steps=2, context_size=100).fit(LONG, LONG[:, 0])
    seen: list[int] = []
    model.network_.embedding.register_forward_hook(lambda module, inputs, out: seen.append(out.shape[1]))
    gradients(model, 100)
    assert max(seen) == 30
    assert seen.count(10) == 2  # the last chunk, forward and backward


def test_predictions_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SPINRegressor(**CHUNKED, steps=2).fit(LONG, LONG[:, 0])
    whole = model.set_context(LONG, LONG[:, 0]).predict(LONG)
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    np.testing.assert_allclose(model.set_context(LONG, LONG[:, 0]).predict(LONG), whole, rtol=1e-4)


def member_outputs(model: Any, x: np.ndarray) -> torch.Tensor:
    """Outputs (3, N, O)."""
    with torch.no_grad():
        outputs_AQO, _ = model.network_.predict(model._encode_input(x), model.inducing_points_)
    assert len(outputs_AQO) == 3
    return outputs_AQO


def test_predictions_are_means_of_all_members(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = table
    classes = SPINClassifier(**ENSEMBLE).fit(x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 1))
    probabilities = member_outputs(classes, x).softmax(-1)
    assert (probabilities[0] - probabilities[1]).abs().max() > 1e-3
    np.testing.assert_allclose(classes.predict_proba(x), probabilities.mean(0).numpy(), atol=1e-6)
    number = SPINRegressor(**ENSEMBLE).fit(x, 3 + 2 * x[:, 0])
    mean = member_outputs(number, x).mean(0)[:, 0].numpy() * number.label_sd_ + number.label_mean_
    np.testing.assert_allclose(number.predict(x), mean, rtol=1e-5)


def test_scalings_start_by_the_kind_of_column() -> None:
    torch.manual_seed(0)
    schema = Schema((3, 0, 2, 0), (False,) * 4)
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "head_width": 4, "inducing_points": 6, "rounds": 1}
    sizes |= {"predictor_layers": 1, "row_width": 8, "members": 5, "dropout": 0.0, "pieces": 4}
    scaling = CarryingNetwork(schema, 0, **sizes).predictor.fold.scaling
    scaling_MDE = scaling.detach().unflatten(-1, (4, 8))[:, 0]
    are_signs_D = (scaling_MDE.abs() == 1).all(-1).all(0)
    assert are_signs_D.tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", ["steps", "batch_size", "patience", "members", "context_size"])
@pytest.mark.parametrize("value", [2.5, None, "two", np.float64(2)])
def test_counts_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number, got "):
        SPINRegressor(**{name: value}).fit(np.eye(5), np.arange(5.0))
    SPINRegressor(**ENSEMBLE | {name: np.int64(2)}).fit(np.eye(5), np.arange(5.0))
