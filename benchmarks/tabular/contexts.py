"""Errors of a trained SPIN with contexts other than all training rows.

The network is not trained again. Differences are paired by test row: the same weights predict the same rows
with the true context and with another context.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.imputation.tables import markdown
from benchmarks.tabular.methods import Problem

SHUFFLES = 3
MOST_TESTED = 20_000  # rows
NAMES = ("shuffled labels", "one row", "half of the rows")


def errors_by_context(model: Any, problem: Problem, rows: pd.DataFrame, target: np.ndarray) -> dict[str, Any]:
    """Return losses of test rows with every context, and the paired differences from the true context.

    The loss of a row is its squared error, or whether its class is wrong. If a context is drawn several
    times, it is the mean loss.
    """
    rows, target = rows.iloc[:MOST_TESTED], target[:MOST_TESTED]
    rng = np.random.default_rng(problem.seed)

    def losses(features: pd.DataFrame, labels: np.ndarray) -> np.ndarray:
        predicted = model.set_context(features, labels).predict(rows)
        return np.square(target - predicted) if problem.regression else np.not_equal(target, predicted) * 1.0

    train, label = problem.train, problem.train_target
    true = losses(train, label)
    others: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for _ in range(SHUFFLES):
        others["shuffled labels"].append(losses(train, rng.permutation(label)))
        one = rng.integers(len(train), size=1)
        others["one row"].append(losses(train.iloc[one], label[one]))
        half = rng.permutation(len(train))[: len(train) // 2]
        others["half of the rows"].append(losses(train.iloc[half], label[half]))
    model.set_context(train, label)
    found: dict[str, Any] = {"rows": len(rows), "true context": {"loss": _summary(true, problem.regression)}}
    for name, each in others.items():
        other = np.mean(each, 0)
        found[name] = {
            "loss": _summary(other, problem.regression),
            "difference": float((other - true).mean()),
            "variance": float((other - true).var(ddof=1)),
        }
    return found


def _summary(loss_T: np.ndarray, regression: bool) -> float:
    """Root mean squared error, or share of wrong classes."""
    return float(np.sqrt(loss_T.mean()) if regression else loss_T.mean())


def context_table(found: dict[str, dict[str, list[dict]]]) -> str:
    """Return a row for each set: means over folds, and the significance of the difference to the other
    context.
    """
    lines = [["", "true context", *NAMES, *(f"p, {name} no worse" for name in NAMES[:2]), "test rows"]]
    for name, by_method in found.items():
        folds = [row["contexts"] for row in by_method.get("SPIN", []) if "contexts" in row]
        if not folds:
            continue
        percent = 1 if by_method["SPIN"][0]["task"] == "regression" else 100
        means = [
            percent * np.mean([fold[kind]["loss"] for fold in folds]) for kind in ("true context", *NAMES)
        ]
        lines.append(
            [
                name,
                *(f"{mean:.4g}" for mean in means),
                *(f"{_p_value(folds, kind):.1g}" for kind in NAMES[:2]),
                f"{sum(fold['rows'] for fold in folds):,}",
            ]
        )
    return markdown(lines)


def _p_value(folds: list[dict], kind: str) -> float:
    """One-sided p-value of the summed paired differences of all test rows of all folds."""
    difference = sum(fold["rows"] * fold[kind]["difference"] for fold in folds)
    variance = sum(fold["rows"] * fold[kind]["variance"] for fold in folds)
    return float(norm.sf(difference / np.sqrt(variance))) if variance else 1.0
