"""Estimators on tables: categories, missing values, weights, training rows that are stored, importances."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from spinimpute.tabular import (
    FTTransformerRegressor,
    MLPClassifier,
    MLPRegressor,
    NPTClassifier,
    PublishedSPINClassifier,
    SetTransformerClassifier,
    SPINClassifier,
    SPINRegressor,
)
from spinimpute.tabular.model_files import load_estimator, save_estimator
from spinimpute.tabular.table import TableEncoder, times_to_days

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "steps": 150, "batch_size": 32, "random_state": 0}


def people(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with `smokes` or a large x have the class "ill"."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.normal(size=n), "smokes": rng.random(n) < 0.3})
    table["town"] = pd.Categorical(rng.choice(["A", "B", "C"], n))
    table["note"] = rng.choice(["yes", "no"], n)
    ill = table["smokes"].to_numpy() | (table["x"].to_numpy() > 1)
    return table, np.where(ill, "ill", "well")


CONTEXT_CLASSIFIERS = [SPINClassifier, PublishedSPINClassifier, NPTClassifier, SetTransformerClassifier]


def with_holes(table: pd.DataFrame, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = table.astype({"smokes": object})
    for column in table:
        table.loc[rng.random(len(table)) < 0.1, column] = None
    return table


@pytest.mark.parametrize("kind", [MLPClassifier, *CONTEXT_CLASSIFIERS])
def test_data_frames_with_categories_and_missing_values(kind: type) -> None:
    table, label = people(300)
    held_out, truth = people(200, 5)
    parameters = {"steps": 300, "random_state": 0} if kind is MLPClassifier else SMALL | {"steps": 200}
    model = kind(**parameters).fit(with_holes(table), label)
    assert (model.predict(held_out) == truth).mean() > 0.9
    assert (model.predict(with_holes(held_out)) == truth).mean() > 0.8
    np.testing.assert_allclose(model.predict_proba(held_out).sum(1), 1, rtol=1e-5)
    assert list(model.classes_) == ["ill", "well"]
    assert list(model.feature_names_in_) == ["x", "smokes", "town", "note"]


def test_cells_of_every_type() -> None:
    cells = [1, True, "1", 1.0, None, float("nan"), pd.NA, "a", "b", 2.5]
    mixed = pd.DataFrame({"mixed": cells, "empty": [None] * 10}, dtype=object)
    mixed["number"] = np.arange(10.0)
    encoder = TableEncoder().fit(mixed, 0)
    assert encoder.categories_[0].tolist() == ["1", "2.5", "a", "b"]
    assert encoder.schema_.may_miss == (True, True, False)
    rows = encoder.transform(mixed)
    assert rows.missing_ND[:, 0].tolist() == [False] * 4 + [True] * 3 + [False] * 3
    assert rows.value_ND[:, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 2, 3, 1]
    assert rows.missing_ND[:, 1].all()
    later = pd.DataFrame({"mixed": ["b", "new"], "empty": ["x", None], "number": [None, 2.0]}, dtype=object)
    rows = encoder.transform(later)
    assert rows.missing_ND.tolist() == [[False, True, True], [True, True, False]]
    assert rows.value_ND[0, 0] == 3


def test_encoder_learns_from_training_rows_alone() -> None:
    table, _ = people(50)
    encoder = TableEncoder().fit(table, 0)
    assert encoder.schema_.cardinality == (0, 2, 3, 2)
    other = pd.DataFrame({"x": [10.0], "smokes": [True], "town": ["Z"], "note": ["no"]})
    value, missing = encoder.transform(other)
    assert missing.tolist() == [[False, False, True, False]]  # an unknown town
    expected = (10 - table["x"].mean()) / table["x"].std(ddof=0)
    np.testing.assert_allclose(value[0], [expected, 1, 0, 0], rtol=1e-5)
    numbered = TableEncoder(categorical=[1]).fit(np.array([[1.0, 5.0], [2.0, 7.0], [3.0, np.nan]]), 0)
    assert numbered.schema_.cardinality == (0, 2)
    assert numbered.schema_.may_miss == (False, True)
    with pytest.raises(ValueError, match="there is no column 'age'"):
        TableEncoder(categorical=["age"]).fit(table, 0)


def with_times(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Dates in four types; those after the 60th day are "late"."""
    rng = np.random.default_rng(seed)
    day, hours = rng.integers(0, 120, n), rng.integers(1, 100, n)
    moment = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    table = pd.DataFrame({"day": moment, "there": moment.tz_localize("Asia/Tokyo")})
    table["date"] = pd.Series([one.date() for one in moment], dtype=object)
    table["lasts"], table["number"] = pd.to_timedelta(hours, unit="h"), rng.normal(size=n)
    return table, np.where(day > 60, "late", "early")


@pytest.mark.parametrize("columns", [["day", "number"], ["there"], ["lasts", "date"]])
def test_dates_and_durations_are_numbers_of_days(columns: list[str], tmp_path: Path) -> None:
    table, label = with_times(200)
    new, truth = with_times(100, 1)
    table, new = table[columns].copy(), new[columns].copy()
    table.iloc[3, 0] = None
    model = MLPClassifier(steps=150, random_state=0).fit(table, label)
    assert (model.predict(new) == truth).mean() > 0.95
    save_estimator(model, tmp_path / "m")
    np.testing.assert_array_equal(load_estimator(tmp_path / "m").predict(new), model.predict(new))
    assert len(model.predict(pd.DataFrame({name: [None] for name in columns}))) == 1
    other = pd.DataFrame({name: new["number"] if name == "number" else np.arange(100) for name in columns})
    with pytest.raises(ValueError, match=f"column '{columns[0]}' held dates or durations in training"):
        model.predict(other)


def test_days_are_counted_from_1970_in_utc() -> None:
    table, _ = with_times(3)
    table.loc[0, "day"] = pd.Timestamp("2024-01-02 12:00")
    table.loc[0, "there"] = pd.Timestamp("2024-01-02 09:00+09:00")
    table.loc[0, "lasts"] = pd.Timedelta("6h")
    table.loc[1, "day"] = None
    found, times = times_to_days(table, None)
    assert times == [0, 1, 2, 3]
    first = 19_723  # days from 1970 to 2024
    days = found.loc[0, ["day", "there", "lasts"]].astype(float)
    np.testing.assert_allclose(days, [first + 1.5, first + 1, 0.25])
    assert np.isnan(found.loc[1, "day"])
    assert found["date"][2] == found["day"][2]
    with pytest.raises(ValueError, match="column 'day' held neither"):
        times_to_days(table, [1, 2, 3])
    with pytest.raises(ValueError, match="give dates and durations as numbers"):
        MLPRegressor(steps=1).fit(table[["number"]], table["day"])


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone() -> None:
    table, label = people(120)
    state = torch.get_rng_state()
    first, second, third = (
        SPINClassifier(**SMALL | {"steps": 20, "random_state": seed}).fit(table, label).predict_proba(table)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - third).max() > 1e-4
    assert torch.equal(torch.get_rng_state(), state)


def test_spin_predicts_from_inducing_points_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = x[:, 0] + 0.1 * rng.normal(size=200)
    model = SPINRegressor(**SMALL | {"steps": 60}).fit(x, y)
    before = model.predict(x[:20])
    size = len(pickle.dumps(model))
    model.forget_training_data()
    assert len(pickle.dumps(model)) < size - 200 * 3 * 4 * 0.8
    np.testing.assert_array_equal(model.predict(x[:20]), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x[:20]), before)
    feature_1HX, label_1H1, mass_1H = model.inducing_points_
    assert feature_1HX.shape == (1, 200, 32)
    assert label_1H1.shape == (1, 200, 1)
    assert mass_1H.tolist() == [[1.0] * 200]
    model.inducing_points_ = model.inducing_points_._replace(label_BHU=torch.zeros_like(label_1H1))
    assert np.abs(model.predict(x[:20]) - before).max() > 1e-3  # they are read


def test_early_stopping_keeps_the_best_weights() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(120, 5)), rng.normal(size=120)  # nothing to learn
    model = MLPRegressor(steps=2_000, evaluate_every=20, patience=3, random_state=0).fit(x, y)
    losses = model.validation_losses_
    assert len(losses) < 100
    assert model.n_steps_ == 20 * (int(np.argmin(losses)) + 1)
    assert len(losses) - int(np.argmin(losses)) == 4


@pytest.mark.parametrize("kind", [MLPClassifier, SPINClassifier])
def test_rows_of_weight_zero_are_ignored(kind: type) -> None:
    table, label = people(100)
    far = table.assign(x=1e6)
    both, labels = pd.concat([table, far]), np.concatenate([label, label[::-1]])
    weight = np.repeat([1.0, 0.0], 100)
    small = {"steps": 5, "random_state": 0}
    with_them = kind(**small).fit(both, labels, sample_weight=weight).predict_proba(table)
    np.testing.assert_array_equal(with_them, kind(**small).fit(table, label).predict_proba(table))


def test_a_category_is_the_same_in_any_type() -> None:
    table, label = people(200)
    table = table[["x", "smokes"]]
    model = MLPClassifier(steps=50, random_state=0).fit(table, label)
    known = model.predict_proba(table)
    for kind in (int, float, object):
        np.testing.assert_array_equal(model.predict_proba(table.astype({"smokes": kind})), known)
    mask = MLPClassifier(steps=5, categorical_features=[False, True]).fit(table.to_numpy(float), label)
    assert mask.encoder_.schema_.cardinality == (0, 2)


def test_a_failed_fit_leaves_an_unfitted_estimator() -> None:
    x, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50.0)
    model = MLPRegressor(steps=5, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        model.set_params(steps=0).fit(x, y)
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_attention_of_cls_points_to_the_column_that_matters() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(600, 6))
    y = np.sign(x[:, 4]) * 2
    model = FTTransformerRegressor(width=16, heads=2, steps=200, learning_rate=3e-3, random_state=0).fit(x, y)
    for by_norm in (False, True):
        attention = model.column_attention(x, by_norm)
        assert attention.sum() == pytest.approx(1)
        assert attention.argmax() == 4
    network, tokens = model.network_, torch.randn(5, 7, 16)
    block = network.blocks[1]
    with torch.no_grad():
        weight, v = block.attention(tokens)
        read = block.join((weight @ v).transpose(1, 2).flatten(-2))
        torch.testing.assert_close(block.cls_contributions(tokens).sum(1) + block.join.bias, read[:, 0])
        rows, norms = model._encode_input(x[:9]), []
        state = network._embed_tokens(rows)
        for block in network.blocks:
            norms.append(block.cls_contributions(state)[:, 1:].square().sum(-1).sqrt())
            state = block(state)
        expected = sum(norms).sum(0)
    found = model.column_attention(x[:9], by_norm=True)
    np.testing.assert_allclose(found, (expected / expected.sum()).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (MLPRegressor, {"validation_fraction": 1.5}, "validation_fraction must be in"),
        (MLPClassifier, {"scaling": "quantiles"}, "scaling must be"),
        (MLPClassifier, {"categorical_features": "x"}, "must be a list"),
        (MLPClassifier, {"learning_rate": None}, "learning_rate must be a finite number"),
        (NPTClassifier, {"width": 8, "heads": 3}, "heads must divide the width"),
        *((NPTClassifier, {"dropout": value}, r"must be in \[0, 1") for value in (None, "x", 1)),
        (NPTClassifier, {"attribute_loss": 1.01}, r"must be in \[0, 1"),
        *((SPINClassifier, {"read_loss": value}, r"read_loss must be in \[0, 1\]") for value in (1.01, None)),
        (SPINClassifier, {"pieces": 2.5}, "pieces must be 0 or a whole number"),
        (SPINRegressor, {"members": 0}, "members must be at least 1"),
    ],
)
def test_invalid_parameters(kind: type, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**parameters).fit(np.zeros((4, 2)), np.array([0.0, 1, 2, 3]))


def test_weights_of_zero() -> None:
    x, y = np.zeros((4, 2)), np.array([0.0, 1, 2, 3])
    with pytest.raises(ValueError, match="at least one non-zero"):
        MLPRegressor().fit(x, y, sample_weight=np.zeros(4))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([1, 2], r"a list: \[1, 2\]"),
        ((1, 2), r"a tuple: \(1, 2\)"),
        ({"a": 1}, r"a dict: {'a': 1}"),
        ({1}, r"a set: {1}"),
        (np.zeros(2), r"a ndarray: "),
        (1 + 2j, r"a complex: \(1\+2j\)"),
        (np.complex64(1), r"a complex64: "),
    ],
)
def test_invalid_cells(cell: object, message: str) -> None:
    table = pd.DataFrame({"x": np.arange(20.0), "odd": pd.Series([None, cell] * 10, dtype=object)})
    with pytest.raises(ValueError, match=f"column 'odd' holds {message}.*Each cell must hold one number"):
        MLPRegressor(steps=2).fit(table, np.arange(20.0))
    good = table.assign(odd=["a", "b"] * 10)
    fitted = MLPRegressor(steps=2, batch_size=4).fit(good, np.arange(20.0))
    with pytest.raises(ValueError, match=f"column 'odd' holds {message}"):
        fitted.predict(table)
    with pytest.raises(ValueError, match="column 'odd' holds a complex: 1j"):
        MLPRegressor(steps=2).fit(table.assign(odd=np.arange(20) + 1j), np.arange(20.0))


@pytest.mark.parametrize("largest", [1e300, -1e300, 1e160])
def test_labels_whose_variance_overflows(largest: float) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40.0)
    y[3] = largest
    with pytest.raises(ValueError, match=r"y holds -?1e\+\d+.* Divide y by a constant, or leave"):
        MLPRegressor(steps=2).fit(x, y)
    y[3] = largest / 1e150
    assert np.isfinite(MLPRegressor(steps=2, batch_size=4).fit(x, y).predict(x)).all()


def test_a_label_far_from_those_of_training() -> None:
    x, y = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100.0)
    model = SPINRegressor(steps=2, width=8, members=2, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match=r"y holds 1e\+40.* Divide y by a constant, or leave"):
        model.set_context(x, np.where(y == 3, 1e40, y))
    for row in range(0, 100, 7):  # some are validation rows
        with pytest.raises(ValueError, match=r"y holds 1e\+300"):
            MLPRegressor(steps=2, random_state=row).fit(x, np.where(y == row, 1e300, y))


@pytest.mark.parametrize("kind", CONTEXT_CLASSIFIERS)
def test_set_context_needs_no_training(kind: Any) -> None:
    table, label = people(150)
    model = kind(**SMALL | {"steps": 10}).fit(table, label)
    before, weights = model.predict_proba(table[:30]), copy.deepcopy(model.network_.state_dict())
    model.set_context(table[:50], label[:50])
    other = model.predict_proba(table[:30])
    assert np.abs(other - before).max() > 1e-6
    torch.testing.assert_close(model.network_.state_dict(), weights, rtol=0, atol=0)
    order = np.random.default_rng(0).permutation(50)
    model.set_context(table.iloc[order], label[order])
    np.testing.assert_allclose(model.predict_proba(table[:30]), other, atol=1e-5)
    with pytest.raises(ValueError, match="a class that is not among the training labels: 'dead'"):
        model.set_context(table[:2], ["well", "dead"])
    with pytest.raises(ValueError, match="3 and 2"):
        model.set_context(table[:3], label[:2])
    with pytest.raises(NotFittedError):
        kind().set_context(table, label)


def test_the_published_spin_keeps_inducing_points_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table, label = people(150)
    model = PublishedSPINClassifier(**SMALL | {"steps": 10, "inducing_points": 5}).fit(table, label)
    expected = model.predict_proba(table)
    assert model.inducing_points_.shape == (1, 5, model.latent_attributes, model.width)
    monkeypatch.setattr("spinimpute.tabular.context_networks.CHUNK", 7)
    np.testing.assert_allclose(model.set_context(table, label).predict_proba(table), expected, atol=1e-5)
    model.forget_training_data()
    np.testing.assert_allclose(model.predict_proba(table), expected, atol=1e-5)
    assert not {"context_", "context_label_", "_encoded_rows_", "_encoded_label_"} & vars(model).keys()


def test_a_validation_loss_that_is_not_finite_stops_training() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = MLPRegressor(steps=4, evaluate_every=2, random_state=0)
    model._losses = lambda outputs, label: (outputs[:, 0] - label).square() / (0 if len(label) < 50 else 1)
    with pytest.raises(ValueError, match=r"validation loss is (nan|inf) after step 2"):
        model.fit(x, x[:, 0])


def test_the_device_is_checked_when_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, found 'tpu'"):
        MLPRegressor(device="tpu").fit(x, x[:, 0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device is available here; use device='cpu' or device="):
        MLPRegressor(device="cuda").fit(x, x[:, 0])
