"""Baselines of the FT-Transformer paper on tables with numbers, categories and missing values."""

from importlib import import_module
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.tabular import row_baselines, tables
from benchmarks.tabular.methods import ROW_BASELINES, TREE_BASELINES, Problem, catboost, loss
from benchmarks.tabular.report import FEW_SETS, read_results
from benchmarks.tabular.report import RESULTS as FITS

pytestmark = pytest.mark.slow


def make(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A label that needs numbers, a category, and their product."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    table["c"] = rng.choice(["x", "y", None], n)
    sign = np.where(table["c"] == "x", 1.0, -1.0)
    target = table["a"].to_numpy() * sign + 0.5 * table["b"].to_numpy()
    table.loc[rng.random(n) < 0.05, "b"] = np.nan
    return table, target


def module_of(kind: str) -> ModuleType:
    if kind in TREE_BASELINES:
        for package in ("entmax", "pytorch_tabnet"):
            pytest.importorskip(package, reason=f"{package} is not installed (extra: bench)")
    return import_module(f"benchmarks.tabular.{'tree' if kind in TREE_BASELINES else 'row'}_baselines")


@pytest.mark.parametrize("kind", [*ROW_BASELINES, *TREE_BASELINES])
def test_networks_learn_what_no_linear_model_can(kind: str) -> None:
    (train, target), (test, truth) = make(600, 1), make(300, 2)
    module = module_of(kind)
    settings = {"steps": 300, "learning_rate": 3e-3, "batch_size": 128, "random_state": 1, "patience": 10**9}
    settings |= {"trees": 32, "learning_rate": 1e-2} if kind == "NODE" else {}
    model = getattr(module, f"{kind}Regressor")(**settings).fit(train, target)
    assert loss(truth, model.predict(test), True) < 0.6 * truth.std()
    classes = np.where(target > 0, "up", "down")
    model = getattr(module, f"{kind}Classifier")(**settings).fit(train, classes)
    assert loss(np.where(truth > 0, "up", "down"), model.predict(test), False) < 0.25


def test_a_tree_is_its_leaf_where_thresholds_are_far() -> None:
    """With sharp choices and narrow thresholds, each row gets the response of one leaf."""
    trees = module_of("NODE").ObliviousTrees(3, trees=2, depth=2, outputs=1)
    with torch.no_grad():
        trees.choice_XTD.copy_(torch.full((3, 2, 2), -50.0))
        trees.choice_XTD[0, :, 0] = trees.choice_XTD[2, :, 1] = 50.0
        trees.started.fill_(True)
        trees.log_width_TD.fill_(-10.0)
        x_NX = torch.tensor([[1.0, 9, 1], [1, 9, -1], [-1, 9, 1], [-1, 9, -1]])
        # the first side is that above the threshold; the second level is the higher bit
        leaf_N = torch.tensor([0, 2, 1, 3])
        torch.testing.assert_close(trees(x_NX), trees.response_TLO[:, leaf_N].transpose(0, 1))


def test_entmax_of_two_is_that_of_the_package() -> None:
    module = module_of("NODE")
    x_N = torch.linspace(-3, 3, 61)
    both_N2 = module.entmax15(torch.stack((x_N, torch.zeros(61)), -1), dim=-1)
    torch.testing.assert_close(module.entmax15_of_two(x_N), both_N2[:, 0], atol=1e-5, rtol=1e-5)


def test_learners_are_added_one_by_one() -> None:
    """A learner has no gradient before its round; earlier ones have a gradient only at the end of a round."""
    train, target = make(60, 1)
    model = module_of("GrowNet").GrowNetRegressor(steps=30, learners=3, width=4).fit(train, target)
    network, rows = model.network_, model._encode_input(train)
    for step, learn in ((0, [0]), (11, [1]), (18, [0, 1]), (20, [2]), (29, [0, 1, 2]), (99, [0, 1, 2])):
        network.train()
        network.step.fill_(step)
        network.zero_grad()
        network(rows).square().sum().backward()
        weights = [learner.head.weight.grad for learner in network.learners]
        assert [k for k, grad in enumerate(weights) if grad is not None and grad.abs().sum() > 0] == learn


def test_cross_layers_multiply_columns() -> None:
    """With the deep part's weights at 0, one cross layer is x0 * (W x0 + b) + x0."""
    train, target = make(50, 1)
    model = row_baselines.DCN2Regressor(steps=1, cross_layers=1, layers=1, width=4).fit(train, target)
    network, rows = model.network_, model._encode_input(train)
    with torch.no_grad():
        for parameter in (*network.deep.parameters(), network.head.bias):
            parameter.zero_()
        network.eval()
        x = network.input(rows)
        crossed = x * (x @ network.cross[0].weight.T + network.cross[0].bias) + x
        torch.testing.assert_close(network(rows), crossed @ network.head.weight[:, : x.shape[1]].T)


@pytest.mark.parametrize("regression", [True, False])
def test_catboost_reads_categories_that_miss(regression: bool) -> None:
    pytest.importorskip("catboost", reason="catboost is not installed (extra: bench)")
    (train, target), (test, truth) = make(600, 1), make(300, 2)
    if not regression:
        target, truth = (np.where(of > 0, "up", "down") for of in (target, truth))
    problem = Problem(train[:500], target[:500], train[500:], target[500:], regression, 1.0, 1)
    fitted = catboost(problem, {"learning_rate": 0.2, "depth": 3})
    assert loss(truth, fitted.predict(test), regression) < (0.5 if regression else 0.2)
    assert fitted.told["trees"] > 1


@pytest.mark.parametrize("method", ["SNN", "xgboost", "lightgbm", "catboost"])
def test_a_fit_tells_the_versions_of_its_libraries(method: str) -> None:
    """The distribution may have another name: xgboost-cpu also provides xgboost."""
    if method in tables.TREES:
        pytest.importorskip(method, reason=f"{method} is not installed (extra: bench)")
    found = tables._versions(method)
    assert found["torch"] == torch.__version__
    assert set(found) == {"torch", "scikit-learn"} | ({method} & set(tables.TREES))


def test_fits_of_few_sets_do_not_take_ranks_of_all() -> None:
    found = read_results(FITS / "tables")
    assert {name for name, fits in found.items() if set(FEW_SETS) & fits.keys()} <= {"california", "adult"}
