"""What a context is worth: errors with other contexts, paired by test row."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.tabular.contexts import context_table, errors_by_context
from benchmarks.tabular.methods import Problem


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
