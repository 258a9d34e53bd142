"""Cross-validated scores on simulated tables whose right answer is known."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from spinimpute.tabular import MLPRegressor
from spinimpute.tabular.comparison import BOOSTING, MIN_PROBABILITY, NEIGHBOURS, compare, summary
from spinimpute.tabular.model_files import KINDS

FEW = {"steps": 5, "device": "cpu"}
MORE = {"steps": 60, "width": 32, "batch_size": 64, "device": "cpu"}


def table(n: int = 150, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers, of which some are missing, and a category; what is linear in them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    town = rng.choice(["Bern", "Biel", "Chur"], n).astype(object)
    y = 3 * x[:, 0] - x[:, 1] + 2 * (town == "Bern") + 10
    gaps = rng.permutation(n)[: n // 10]
    x[gaps, 1], town[gaps[:5]] = np.nan, None
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "town": town}), y


def test_all_beat_the_mean_of_a_linear_target() -> None:
    features, y = table()
    told: list[Any] = []
    scores = compare(features, y, "regression", ["MLP", "ResNet"], 3, parameters=MORE, report=told.append)
    assert " ".join(scores.columns) == "model fold rmse r2 fit_seconds predict_seconds weights"
    assert list(scores["fold"]) == [1, 2, 3] * 5
    assert [row["rmse"] for row in told] == list(scores["rmse"])
    found = summary(scores).set_index("model")
    assert list(found.index)[-1] == "mean"
    assert (found["rmse"].diff()[1:] >= 0).all()
    assert set(found.index) == {"MLP", "ResNet", BOOSTING, NEIGHBOURS, "mean"}
    assert (found["r2"][:-1] > 0.5).all()
    assert abs(found.loc["mean", "r2"]) < 0.1
    assert found["weights"].notna().tolist() == [name in ("MLP", "ResNet") for name in found.index]


def test_all_beat_the_most_frequent_class() -> None:
    features, y = table()
    label = np.where(y > 12, "high", np.where(y > 9, "middle", "low"))
    found = summary(compare(features, label, "classification", ["MLP"], 3, parameters=MORE))
    assert list(found["model"])[-1] == "most frequent class"
    share = pd.Series(label).value_counts(normalize=True)
    trivial = found.iloc[-1]
    assert trivial["accuracy"] == pytest.approx(share.max(), abs=0.01)
    assert trivial["log_loss"] == pytest.approx(-(share * np.log(share)).sum(), abs=0.02)
    assert (found["accuracy"].diff()[1:] <= 0).all()
    assert (found["log_loss"][:-1] < trivial["log_loss"]).sum() >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_network(kind: str) -> None:
    features, y = table(40)
    scores = compare(features, y, "regression", [kind, kind], 2, parameters={**FEW, "steps": 1})
    assert list(scores["model"].unique()) == [kind, BOOSTING, NEIGHBOURS, "mean"]
    assert np.isfinite(scores[["rmse", "r2"]]).all(axis=None)


def test_the_same_seed_the_same_scores() -> None:
    features, y = table(60)
    found = [
        compare(features, y, "regression", ["MLP"], 2, seed, parameters=FEW)["rmse"] for seed in (1, 1, 2)
    ]
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).all()


def test_scores_are_those_of_rows_that_training_lacks() -> None:
    """Neighbours at distance 0 know a row's number, which is noise: seen rows would be predicted exactly."""
    rng = np.random.default_rng(0)
    scores = compare(pd.DataFrame({"x": rng.normal(size=300)}), rng.normal(size=300), "regression", [], 3)
    found = summary(scores).set_index("model")
    assert (found["r2"] < 0.1).all()


def test_rows_without_weight_do_not_count() -> None:
    features, y = table(60)
    doubled, labels = pd.concat([features, features]), np.concatenate([y, y + 100])
    weight = np.repeat([1.0, 0.0], 60)
    columns = ["model", "fold", "rmse", "r2"]
    plain = compare(features, y, "regression", ["MLP"], 2, parameters=FEW)
    weighted = compare(doubled, labels, "regression", ["MLP"], 2, parameters=FEW, weight=weight)
    pd.testing.assert_frame_equal(plain[columns], weighted[columns], rtol=1e-5)


def test_weights_count_in_training_and_in_scores() -> None:
    """Half of the rows are 0, half are 1 with three times the weight: the weighted mean is 0.75."""
    y = np.repeat([0.0, 1.0], 500)
    weight = 1 + 2 * y
    scores = compare(pd.DataFrame({"x": np.ones(1_000)}), y, "regression", [], 2, weight=weight)
    found = summary(scores).set_index("model")
    for name in (BOOSTING, "mean"):
        assert found.loc[name, "rmse"] == pytest.approx(np.sqrt(0.75 * 0.25), abs=0.01)


def test_a_class_that_training_lacks() -> None:
    rng = np.random.default_rng(0)
    label = np.array(["a", "b"] * 20 + ["single"])
    features = pd.DataFrame({"x": rng.normal(size=41), "same": 1.0})
    with pytest.warns(UserWarning, match="least populated class"):
        scores = compare(features, label, "classification", ["MLP"], 2, parameters=FEW)
    assert np.isfinite(scores["log_loss"]).all()
    trivial = scores[scores["model"] == "most frequent class"]
    n = 21  # rows of the fold that holds it; training rows of the others are 10 of "a", 10 of "b"
    probability = np.array([[0.5, 0.5, MIN_PROBABILITY]] * n) / (1 + MIN_PROBABILITY)
    held = ["a"] * 10 + ["b"] * 10 + ["single"]
    assert trivial["log_loss"].max() == pytest.approx(log_loss(held, probability), rel=1e-6)


def test_columns_of_every_type() -> None:
    rng, n = np.random.default_rng(0), 600
    features = pd.DataFrame(
        {
            "empty": np.full(n, np.nan),
            "none": np.full(n, None, dtype=object),
            "key": np.array([f"k{i}" for i in range(n)], dtype=object),
            "flag": rng.random(n) < 0.5,
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
            "whole": pd.array([None, *range(n - 1)], dtype="Int64"),
            "yes": pd.array([None, *(rng.random(n - 1) < 0.5)], dtype="boolean"),
            "mixed": [True, "a", None, 1] * (n // 4),
            "text": pd.array(["u", None, "v"] * (n // 3), dtype="string"),
        }
    )
    y = features["flag"] + rng.normal(0, 0.1, n)
    scores = compare(features, y.to_numpy(), "regression", ["MLP"], 2, parameters={"steps": 3})
    found = summary(scores).set_index("model")
    assert (found.loc[[BOOSTING, NEIGHBOURS], "r2"] > 0.8).all()
    assert np.isfinite(found.loc["MLP", "rmse"])


@pytest.mark.parametrize(
    ("label", "task", "folds", "said"),
    [
        ([1.0, 2.0, 3.0], "regression", 2, "2 folds need at least 4 rows with weights above 0, got 3"),
        (["a"] * 9 + ["b"], "classification", 2, "at least two classes must have 2 or more rows"),
        (["a", "a", "b", "b", "c", "c"], "classification", 3, "n_splits=3"),
    ],
)
def test_too_few_rows(label: list[Any], task: str, folds: int, said: str) -> None:
    features = pd.DataFrame({"x": np.arange(len(label), dtype=float)})
    with pytest.raises(ValueError, match=said):
        compare(features, np.array(label), task, [], folds)


def test_an_unknown_model_and_one_that_fails() -> None:
    features, y = table(20)
    with pytest.raises(ValueError, match=r"models must be among SPIN, .*, got 'CNN'"):
        compare(features, y, "regression", ["CNN"], 2)
    with pytest.raises(RuntimeError, match="MLP, fold 1: batch_size must be at least 1"):
        compare(features, y, "regression", ["MLP"], 2, parameters={"batch_size": 0})


def test_parameters_reach_the_network() -> None:
    features, y = table(40)
    scores = compare(features, y, "regression", ["MLP"], 2, parameters={**FEW, "width": 4})
    expected = MLPRegressor(**FEW, width=4).fit(features, y).n_parameters_
    assert list(scores["weights"])[:2] == [expected] * 2
