"""Cross-validation of networks and of scikit-learn models on a table (`spinimpute tabular benchmark`).

Gradient-boosted trees, k nearest neighbours and a trivial baseline are always included. All models have their
default parameters and are fitted and scored on the same folds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils.validation import has_fit_parameter

from spinimpute.tabular.model_files import ESTIMATORS, KINDS

# the first metric sorts the summary
METRICS = {"regression": ("rmse", "r2"), "classification": ("accuracy", "log_loss")}
BASELINE = {"regression": "mean", "classification": "most frequent class"}
BOOSTING, NEIGHBOURS = "HistGradientBoosting", "k-NN"
MAX_CATEGORIES = 255  # of a column, for boosted trees (their limit); the rarest categories are merged
MAX_INDICATORS = 100  # one-hot columns of a category column, for k-NN; the rarest categories share one
NEIGHBOUR_COUNT = 10
MIN_PROBABILITY = 1e-7  # lower bound of probabilities in the log loss; about the resolution of float32

Report = Callable[[Mapping[str, Any]], None]


def compare(
    features: pd.DataFrame,
    target: np.ndarray,
    task: str,
    models: Sequence[str],
    folds: int = 5,
    seed: int = 1,
    *,
    weight: np.ndarray | None = None,
    parameters: Mapping[str, Any] | None = None,
    report: Report = lambda score: None,
) -> pd.DataFrame:
    """Score models by k-fold cross-validation.

    Columns of `features` are numbers or categories; NaN and None are missing. `task` is "regression" or
    "classification". `models` are names from `model_files.KINDS`. `parameters`, such as {"steps": 100}, are
    set in all networks. `weight` holds row weights, used in scores and in training (k-NN ignores them).
    `report` is called with each row of the result as soon as it is computed.

    The result has one row for each model and fold, with the columns model, fold (from 1), rmse and r2 or
    accuracy and log_loss, fit_seconds and predict_seconds (wall-clock time), and weights (the number of
    weights of a network, missing for other models).

    Raises ValueError if the rows cannot be split, and RuntimeError if a model fails.
    """
    unknown = sorted({*models} - {*KINDS})
    if unknown:
        raise ValueError(f"models must be among {', '.join(KINDS)}, got {unknown[0]!r}")
    if weight is not None:
        used = weight > 0
        features, target, weight = features[used], target[used], weight[used]
    features = _simplify_columns(features)
    classes = np.unique(target) if task == "classification" else None
    splits = [*_splits(target, task, folds, seed)]
    scores: list[dict[str, Any]] = []
    for name in [*dict.fromkeys(models), BOOSTING, NEIGHBOURS, BASELINE[task]]:
        for fold, (train, test) in enumerate(splits, 1):
            score: dict[str, Any] = {"model": name, "fold": fold}
            try:
                model = _make_model(name, task, features.iloc[train], seed, parameters or {})
                started = time.perf_counter()
                _fit(model, features.iloc[train], target[train], None if weight is None else weight[train])
                fitted = time.perf_counter()
                predicted = (model.predict if classes is None else model.predict_proba)(features.iloc[test])
                finished = time.perf_counter()
                test_weight = None if weight is None else weight[test]
                score |= (
                    _regression_scores(target[test], predicted, test_weight)
                    if classes is None
                    else _class_scores(target[test], predicted, test_weight, classes, model.classes_)
                )
            except (ValueError, RuntimeError, MemoryError) as error:
                raise RuntimeError(f"{name}, fold {fold}: {error or type(error).__name__}") from error
            score |= {"fit_seconds": fitted - started, "predict_seconds": finished - fitted}
            scores.append(score | {"weights": getattr(model, "n_parameters_", None)})
            report(scores[-1])
    return pd.DataFrame(scores).astype({"weights": "Int64"})


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """Summarise the result of `compare`: one row for each model, the best model first.

    Scores are means over folds, with standard deviations in the columns NAME_sd. Seconds and weights are
    medians, because the first fold includes the time to load libraries.
    """
    task = "regression" if "rmse" in scores else "classification"
    by_model = scores.drop(columns="fold").groupby("model", sort=False)
    result = by_model.median()
    for number, metric in enumerate(METRICS[task]):
        result[metric] = by_model[metric].mean()
        result.insert(2 * number + 1, f"{metric}_sd", by_model[metric].std())
    first = METRICS[task][0]
    return result.sort_values(first, ascending=first == "rmse", kind="stable").reset_index()


def _simplify_columns(features: pd.DataFrame) -> pd.DataFrame:
    """Convert numeric columns to float64, and all others to text with None for missing cells."""
    return pd.DataFrame(
        {
            name: column.to_numpy(dtype=np.float64, na_value=np.nan)
            if getattr(column.dtype, "kind", "O") in "iuf"
            else column.astype(object).map(str).where(column.notna(), None).astype(object)
            for name, column in features.items()
        },
        index=features.index,
    )


def _splits(target: np.ndarray, task: str, folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return the training rows and test rows of each fold."""
    if len(target) < 2 * folds:
        raise ValueError(
            f"{folds} folds need at least {2 * folds} rows with weights above 0, got {len(target)}"
        )
    if task == "regression":
        return KFold(folds, shuffle=True, random_state=seed).split(target)
    count = np.sort(np.unique(target, return_counts=True)[1])
    if len(count) < 2 or count[-2] < 2:  # the training rows of some fold would have only one class
        raise ValueError("at least two classes must have 2 or more rows with weights above 0")
    return StratifiedKFold(folds, shuffle=True, random_state=seed).split(target, target)


def _make_model(name: str, task: str, rows: pd.DataFrame, seed: int, parameters: Mapping[str, Any]) -> Any:
    """Make an unfitted model for the columns of these training rows."""
    regression = task == "regression"
    if name == BASELINE[task]:
        return DummyRegressor() if regression else DummyClassifier(strategy="prior")
    rows = rows.loc[:, rows.notna().any()]  # scikit-learn's trees fail on empty columns
    categories = list(rows.select_dtypes(exclude="number").columns)
    numbers = list(rows.select_dtypes("number").columns)
    if name == BOOSTING:
        boosting = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
        codes = OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=np.nan,
            encoded_missing_value=np.nan,
            max_categories=MAX_CATEGORIES,
        )
        coded = make_column_transformer((codes, categories), ("passthrough", numbers))
        # early stopping, the default for large tables, fails if a class has only one row
        trees = boosting(categorical_features=range(len(categories)), early_stopping=False, random_state=seed)
        return make_pipeline(coded, trees)
    if name == NEIGHBOURS:
        neighbours = KNeighborsRegressor if regression else KNeighborsClassifier
        scaled = make_pipeline(SimpleImputer(), StandardScaler())
        indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MAX_INDICATORS)
        flat = make_column_transformer((scaled, numbers), (indicators, categories), sparse_threshold=0)
        return make_pipeline(flat, neighbours(min(NEIGHBOUR_COUNT, len(rows)), weights="distance"))
    network = ESTIMATORS[name + ("Regressor" if regression else "Classifier")]()
    return network.set_params(random_state=seed, **parameters)


def _fit(model: Any, features: pd.DataFrame, target: np.ndarray, weight: np.ndarray | None) -> None:
    """Fit a model, with row weights if it accepts them."""
    step, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    argument = f"{step}__sample_weight" if step else "sample_weight"
    takes_weight = weight is not None and has_fit_parameter(last, "sample_weight")
    model.fit(features, target, **({argument: weight} if takes_weight else {}))


def _regression_scores(
    target: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None
) -> dict[str, float]:
    predicted = predicted.astype(np.float64)
    return {
        "rmse": float(root_mean_squared_error(target, predicted, sample_weight=weight)),
        "r2": float(r2_score(target, predicted, sample_weight=weight)),
    }


def _class_scores(
    target: np.ndarray,
    probability: np.ndarray,
    weight: np.ndarray | None,
    classes: np.ndarray,
    model_classes: np.ndarray,
) -> dict[str, float]:
    """Score predicted probabilities, whose columns are the classes of the training rows."""
    full = np.full((len(target), len(classes)), MIN_PROBABILITY)
    full[:, np.searchsorted(classes, model_classes)] = probability.clip(MIN_PROBABILITY)
    full /= full.sum(1, keepdims=True)
    return {
        "accuracy": float(accuracy_score(target, model_classes[probability.argmax(1)], sample_weight=weight)),
        "log_loss": float(log_loss(target, full, labels=classes, sample_weight=weight)),
    }
