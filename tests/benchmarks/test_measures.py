"""What probabilities are worth; ensembles; FT-Transformer without the biases of features."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.tabular.california import PREDICTIONS, TARGET, FTTransformerWithoutBiases, _keep, ensembles
from benchmarks.tabular.measures import LEAST, class_measures
from benchmarks.tabular.methods import METHODS, Problem

PROBABILISTIC = ("NPT", "catboost", "sklearn boosting", "lightgbm", "xgboost", "k-NN", "sklearn MLP")


def test_they_are_scikit_learns_measures() -> None:
    for load, names in ((load_breast_cancer, {"log_loss", "auroc"}), (load_iris, {"log_loss"})):
        x, code = load(return_X_y=True)
        target = np.array(["a", "b", "c"])[code]
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(x[::2], target[::2])
        probability = model.predict_proba(x[1::2])
        found = class_measures(target[1::2], model.classes_, probability)
        assert found.keys() == names
        assert found["log_loss"] == pytest.approx(log_loss(target[1::2], probability))
        if "auroc" in found:
            assert found["auroc"] == pytest.approx(roc_auc_score(target[1::2], probability[:, 1]))


def test_classes_that_training_did_not_have_cost_most_but_not_without_end() -> None:
    probability = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    for unknown in ("A", "bb", "z"):  # before, between and after those of training
        found = class_measures(np.array(["a", "b", unknown]), np.array(["a", "b", "c"]), probability)
        assert found == {"log_loss": pytest.approx((np.log(2) - np.log(LEAST)) / 3)}


@pytest.mark.parametrize("method", PROBABILISTIC)
def test_methods_give_probabilities_of_their_classes(method: str) -> None:
    for package in {"catboost", "lightgbm", "xgboost"} & {method}:
        pytest.importorskip(package, reason=f"{package} is not installed (extra: bench)")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=300), "b": pd.Categorical(rng.choice(["x", "y"], 300))})
    target = np.where(table["a"] + rng.normal(0, 0.2, 300) > 0, "up", "down")
    parts = (table[:200], target[:200], table[200:250], target[200:250])
    fitted = METHODS[method](Problem(*parts, regression=False, seconds=0.2, seed=1))
    probability = fitted.probabilities(table[250:])
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-5)
    likeliest = fitted.classes[probability.argmax(1)]
    assert (likeliest == fitted.predict(table[250:])).all()
    a = table["a"].to_numpy()
    numbers = (table[:200], a[:200], table[200:250], a[200:250])
    assert METHODS[method](Problem(*numbers, regression=True, seconds=0.2, seed=1)).probabilities is None


def test_an_ensemble_is_scored_by_its_mean(tmp_path: Path) -> None:
    assert ensembles(tmp_path) == {}
    target = np.array([1.0, 2.0, 3.0])
    for name, error in (("ResNet-1", 0.3), ("ResNet-2", -0.1), ("MLP-1", 0.2)):
        _keep(target + error, target, tmp_path / PREDICTIONS, f"{name}.json")
    found = ensembles(tmp_path)
    assert found == {"ResNet": (pytest.approx([0.3, 0.1]), pytest.approx(0.1))}
    assert json.loads((tmp_path / PREDICTIONS / f"{TARGET}.json").read_text()) == target.tolist()


def test_without_biases_tokens_of_zero_are_zero() -> None:
    x = np.random.default_rng(1).normal(size=(80, 3))
    settings = {"steps": 5, "width": 16, "blocks": 1, "batch_size": 16, "random_state": 1}
    network = FTTransformerWithoutBiases(**settings).fit(x, x[:, 0]).network_
    with torch.no_grad():
        zeros = torch.zeros(1, 4, 3)
        assert not network.tokens(zeros, zeros.bool()).any()
        assert network.tokens(zeros + 1, zeros.bool()).any()
