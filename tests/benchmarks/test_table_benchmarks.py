"""Benchmarks of tables: measures of probabilities, ensembles, probes of what networks read, and contexts."""

import argparse
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.tabular import lookups
from benchmarks.tabular.california import PREDICTIONS, TARGET, FTTransformerWithoutBiases, _keep, ensembles
from benchmarks.tabular.contexts import context_table, errors_by_context
from benchmarks.tabular.lookups import Protein, cluster_tables, random_labels, random_tables
from benchmarks.tabular.measures import LEAST, class_measures
from benchmarks.tabular.methods import METHODS, PYTABKIT, REFITTED, Problem
from benchmarks.tabular.probes import _Context, _permuted, compare_distances, deletion
from benchmarks.tabular.tables import TREES, one, tables
from spinimpute import tabular

pytestmark = pytest.mark.slow

PROBABILISTIC = (
    "NPT", "RealMLP", "TabM", "catboost", "catboost_refitted", "sklearn boosting", "lightgbm",
    "lightgbm_refitted", "xgboost", "xgboost_refitted", "k-NN", "sklearn MLP",
)  # fmt: skip


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
    package = "pytabkit" if method in PYTABKIT else method.removesuffix(REFITTED)
    if package in ("pytabkit", *TREES):
        pytest.importorskip(package, reason=f"{package} is not installed (extra: bench)")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=300), "b": pd.Categorical(rng.choice(["x", "y"], 300))})
    target = np.where(table["a"] + rng.normal(0, 0.2, 300) > 0, "up", "down")
    parts = (table[:200], target[:200], table[200:250], target[200:250])
    given: dict[str, Any] = {"seconds": 0.2, "seed": 1, "found": {"settings": {}, "trees": 5}}
    fitted = METHODS[method](Problem(*parts, regression=False, **given))
    probability = fitted.probabilities(table[250:])
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-5)
    likeliest = fitted.classes[probability.argmax(1)]
    assert (likeliest == fitted.predict(table[250:])).all()
    a = table["a"].to_numpy()
    numbers = (table[:200], a[:200], table[200:250], a[200:250])
    assert METHODS[method](Problem(*numbers, regression=True, **given)).probabilities is None


@pytest.mark.parametrize("library", TREES)
def test_a_refit_is_the_library_without_early_stopping(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed (extra: bench)")
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    target = table["a"].to_numpy() + rng.normal(0, 0.5, 300)
    problem = Problem(table[:200], target[:200], table[200:], target[200:], True, seconds=0.1, seed=3)
    found = METHODS[library](problem)
    trees = found.told["trees"]
    fitted = METHODS[library + REFITTED](replace(problem, found={"settings": found.settings, "trees": trees}))
    module = import_module(library)
    if library == "lightgbm":
        model = module.LGBMRegressor(
            n_estimators=trees, n_jobs=1, random_state=3, verbose=-1, subsample_freq=1, **fitted.settings
        )
    elif library == "xgboost":
        model = module.XGBRegressor(
            n_estimators=trees, n_jobs=1, random_state=3, tree_method="hist", **fitted.settings
        )
    else:
        model = module.CatBoostRegressor(
            iterations=trees, thread_count=1, random_seed=3, verbose=False, allow_writing_files=False,
            **fitted.settings,
        )  # fmt: skip
    np.testing.assert_allclose(fitted.predict(table), model.fit(table, target).predict(table), rtol=1e-5)


def test_a_refit_takes_the_settings_of_the_stored_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed (extra: bench)")
    search = {"settings": {"num_leaves": 5}, "trees": 7, "fit_seconds": 20.5}
    (tmp_path / "breast_cancer-1-lightgbm.json").write_text(json.dumps(search))
    given = {"name": "breast_cancer", "fold": 1, "method": "lightgbm_refitted", "seconds": 30.0}
    one(argparse.Namespace(**given, results=tmp_path, data=tmp_path))
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row["settings"] == search["settings"]
    assert row["trees"] == 7
    assert 20.5 <= row["fit_seconds"] < 25
    assert row["loss"] < 0.2
    assert "lightgbm" in row["versions"]


def test_a_network_of_pytabkit_has_as_many_epochs_as_the_budget_allows() -> None:
    pytest.importorskip("pytabkit", reason="pytabkit is not installed (extra: bench)")
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(700, 2)), columns=["a", "b"])
    target = table["a"].to_numpy()
    parts = (table[:600], target[:600], table[600:], target[600:], True)
    short, long = (METHODS["RealMLP"](Problem(*parts, seconds=s, seed=1)).told for s in (0.5, 3.0))
    assert short["rows_of_an_epoch"] <= long["rows_of_an_epoch"] == 600
    assert short["epochs"] < long["epochs"] <= 256


def test_methods_whose_package_is_absent_are_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.tabular.tables.find_spec", lambda name: None)
    given = {"results": tmp_path, "sets": ["yacht"], "folds": 1, "methods": ["RealMLP", "TabM"]}
    tables(argparse.Namespace(**given, seconds=1, data=tmp_path))
    said = capsys.readouterr().out.splitlines()
    reason = "skipped, because pytabkit is not installed (pip install pytabkit)"
    assert said == [f"RealMLP: {reason}", f"TabM: {reason}"]
    assert not list(tmp_path.iterdir())


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


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_random_tables_have_distinct_keys_and_differ() -> None:
    task = random_tables(20, 16, 5, 4, seeded())
    keys = task.query[..., :5] @ (2 ** torch.arange(5))
    assert all(len(row.unique()) == 16 for row in keys)
    assert len({tuple(table.flatten().tolist()) for table in task.query}) == 20
    assert 0.45 < float(task.true_BNL.float().mean()) < 0.55


def test_clusters_are_noisy_copies() -> None:
    centroid = torch.stack((torch.zeros(120), torch.ones(120))).long()
    task, cluster = cluster_tables(2, 50, centroid, None, seeded())
    assert torch.equal((task.query[..., :120].float().mean(-1) > 0.5).long(), cluster)
    assert float((task.query[..., :120] != cluster[..., None]).float().mean()) == pytest.approx(0.1, abs=0.02)


def protein() -> Protein:
    made = object.__new__(Protein)
    made.rows = {"train": torch.randn(200, 7, generator=seeded())}
    return made


@pytest.mark.parametrize("variant", lookups.VARIANTS)
def test_lookup_tables(variant: str) -> None:
    task = protein().draw("train", variant, 2, 20, seeded(1))
    noisy, plus_one = lookups.VARIANTS[variant]
    same = 3 if noisy else 6  # features that tell which row is whose copy
    distance = torch.cdist(task.query[..., :same], task.context[..., :same])
    copy = distance.argmin(-1)
    assert distance.amin(-1).max() < 1e-3
    found = task.context[..., -1].gather(1, copy)
    assert torch.allclose(found, task.true_BNL[..., 0] + plus_one)
    assert not task.query[..., -1].any()
    copied = task.context[..., 3:6].gather(1, copy[..., None].expand(-1, -1, 3))
    assert torch.allclose(copied, task.query[..., 3:6]) != noisy


def test_npt_looks_up_random_labels_and_blind_spin_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"rows": 4, "key_bits": 4, "label_bits": 3}
    assert random_labels("NPT", 1, **small)["found"]["accuracy of bits"] > 0.99
    monkeypatch.setattr(lookups, "BLIND_STEPS", 20)
    blind = random_labels("SPIN without XABD", 1, inducing_points=8, **small)
    assert 0.45 < blind["found"]["accuracy of bits"] < 0.55


def test_permuted_columns_keep_their_values() -> None:
    table = torch.arange(30.0).reshape(10, 3)
    permuted = _permuted(table, seeded())
    assert torch.equal(permuted.sort(0).values, table)
    assert not torch.equal(permuted - permuted[:, :1], table - table[:, :1])


@pytest.mark.parametrize("kind", ["SPIN", "NPT"])
def test_predictions_from_a_whole_context_are_those_of_the_estimator(kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = getattr(tabular, kind + "Regressor")(width=8, steps=3, random_state=0).fit(x, x[:, 0] + x[:, 1])
    context, query = _Context(model), model._encode_input(x[:9]).value_ND
    found = context.all_predictions(query, context.table_ND)
    np.testing.assert_allclose(found, model.predict(x[:9]), rtol=1e-4)
    everything = torch.ones(9, context.size, dtype=torch.bool)
    np.testing.assert_allclose(context.predictions(query, everything), model.predict(x[:9]), rtol=1e-4)
    little = everything.clone()
    little[:, 5:] = False
    assert np.abs(context.predictions(query, little) - model.predict(x[:9])).max() > 1e-5


class Neighbours:
    """Predicts the mean label of near rows."""

    def __init__(self) -> None:
        self.table_ND = torch.cat((torch.randn(100, 2, generator=seeded()), torch.rand(100, 1) + 1), 1)
        self.size = 100

    def predictions(self, query: Tensor, kept_TN: Tensor) -> np.ndarray:
        weight = kept_TN * torch.exp(-8 * torch.cdist(query, self.table_ND[:, :2]) ** 2) + 1e-9
        return ((weight @ self.table_ND[:, 2]) / weight.sum(1)).double().numpy()


def test_deletion_keeps_near_rows_of_a_model_that_needs_them() -> None:
    query = torch.randn(12, 2, generator=seeded(1))
    distances = deletion(Neighbours(), query, seeded(2))  # type: ignore[arg-type]
    assert len(distances["kept"]) == 12
    found = compare_distances(distances)
    assert found["test rows"] == 12
    assert found["distance, kept"] < found["distance, random"] < found["distance, deleted"] * 1.1
    assert found["p, kept < random"] < 0.01


class Nearest:
    """Predicts the label of the nearest row of its context."""

    def set_context(self, features: pd.DataFrame, label: np.ndarray) -> "Nearest":
        self.features, self.label = features.to_numpy(), label
        return self

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        away = np.abs(rows.to_numpy()[:, None] - self.features[None]).sum(-1)
        found: np.ndarray = self.label[away.argmin(1)]
        return found


@pytest.mark.parametrize("regression", [True, False])
def test_a_model_that_reads_its_context(regression: bool) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.uniform(-1, 1, 300)})
    y = np.sign(x["x"].to_numpy()) if regression else np.where(x["x"] > 0, "a", "b")
    problem = Problem(x[:200], y[:200], x[:0], y[:0], regression, 1.0, 1)
    model = Nearest()
    found = errors_by_context(model, problem, x[200:], y[200:])
    assert found["rows"] == 100
    assert found["true context"]["loss"] < 0.3
    assert found["half of the rows"]["loss"] < 0.4
    for name in ("shuffled labels", "one row"):
        assert found[name]["loss"] > 0.3
        assert found[name]["difference"] > 0.2
    assert (model.label == y[:200]).all()  # the true context again
    task = "regression" if regression else "classification"
    row: dict[str, Any] = {"task": task, "contexts": found}
    (_, _, line) = context_table({"made": {"SPIN": [row, row]}}).splitlines()
    *_, shuffled, one, tested = [cell.strip() for cell in line.strip("|").split("|")]
    assert float(shuffled) < 1e-6
    assert float(one) < 1e-6
    assert tested == "200"
