"""Methods of the comparison, each trained on one part and validated on another within a time budget.

A method is a function (Problem) -> Fitted. The budget is in processor seconds. Networks spend it on one run
with the estimator's defaults (batches of 64 rows below 2,000 rows, otherwise 256). They keep the weights with
the lowest validation loss. The number of validation rows is limited, so that validation takes less than
LOOKING of the budget. The budget includes measuring their speed, and they make at least 20 steps. All other
methods try their defaults, then random settings, until the budget is spent, and keep the best in validation.
`*_refitted` are trained once more, on training and validation rows, with the settings and the number of trees
that a search found. RealMLP and TabM are those of pytabkit with its defaults,
and with as many epochs as the budget allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier as SklearnMLPClassifier
from sklearn.neural_network import MLPRegressor as SklearnMLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

LOOKS = 25  # at the validation part, of a network, at most
LOOKING = 0.15  # of the budget, at most
TIMED_LOOKS = 5
TIMED_ROWS = 8_000  # of the training part, more than any step or look reads
MEASURED = 0.02  # of the budget: what steps must take, at least, for their speed to be known
MOST_LOOKED_AT = 4_000  # rows
TIMED_EPOCH_ROWS = 2_048  # of the training part, with which an epoch of pytabkit's networks is timed
TREES = 3_000  # at most; early stopping ends most
PATIENCE = 50  # trees
MOST_CATEGORIES = 255  # that scikit-learn's trees take; rarer ones are one
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "xgboost": {
        "learning_rate": (0.01, 0.3), "max_depth": (3, 11), "min_child_weight": (1.0, 30.0),
        "subsample": (0.5, 1.0), "colsample_bytree": (0.4, 1.0), "reg_lambda": (0.1, 10.0),
    },
    "lightgbm": {
        "learning_rate": (0.01, 0.3), "num_leaves": (7, 256), "min_child_samples": (2, 60),
        "subsample": (0.5, 1.0), "colsample_bytree": (0.4, 1.0), "reg_lambda": (0.001, 10.0),
    },
    "catboost": {
        "learning_rate": (0.01, 0.3), "depth": (3, 11), "l2_leaf_reg": (1.0, 10.0),
        "bagging_temperature": (0.01, 1.0), "random_strength": (0.1, 10.0),
    },
    "sklearn boosting": {
        "learning_rate": (0.01, 0.3), "max_leaf_nodes": (7, 256), "min_samples_leaf": (2, 60),
        "l2_regularization": (0.001, 10.0), "max_iter": (50, 1_000),
    },
    "k-NN": {"n_neighbors": (2, 100)},
    "sklearn MLP": {
        "layers": (1, 4), "width": (25, 500), "alpha": (1e-6, 1.0), "learning_rate_init": (1e-4, 1e-1),
    },
}  # fmt: skip
EVEN = {"subsample", "colsample_bytree"}  # drawn evenly; all other settings evenly in their logarithm


@dataclass(frozen=True)
class Problem:
    """Training and validation rows, the budget in processor seconds, and a seed.

    `found` holds the settings and the number of trees that a search has found; only `*_refitted` read it.
    `device` ("cpu" or "cuda") trains networks.
    """

    train: pd.DataFrame
    train_target: np.ndarray
    validation: pd.DataFrame
    validation_target: np.ndarray
    regression: bool
    seconds: float
    seed: int
    found: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def with_validation_rows(self) -> Problem:
        """Return the problem with its validation rows among the training rows."""
        train = pd.concat([self.train, self.validation])
        target = np.concatenate([self.train_target, self.validation_target])
        return replace(self, train=train, train_target=target)

    def loss(self, predicted: np.ndarray) -> float:
        return loss(self.validation_target, predicted, self.regression)


@dataclass
class Fitted:
    """A prediction function and a description; classifiers also have their classes and probabilities."""

    predict: Callable[[pd.DataFrame], np.ndarray]
    settings: dict[str, Any]
    told: dict[str, Any] = field(default_factory=dict)
    classes: np.ndarray | None = None
    probabilities: Callable[[pd.DataFrame], np.ndarray] | None = None


def loss(target: np.ndarray, predicted: np.ndarray, regression: bool) -> float:
    """Return the root of the mean squared error, or the share of wrong classes."""
    if regression:
        return float(np.sqrt(np.mean((target - predicted) ** 2)))
    return float(np.mean(target != predicted))


def network(kind: str, module: str = "spinimpute.tabular") -> Callable[[Problem], Fitted]:
    """Return one of our estimators, or one of another module, which is loaded when it is used."""

    def fit(problem: Problem) -> Fitted:
        estimator = getattr(
            import_module(module), kind + ("Regressor" if problem.regression else "Classifier")
        )
        looked_at = min(len(problem.validation), MOST_LOOKED_AT)
        # the estimator draws a validation part of the same size
        spread = np.linspace(0, len(problem.validation) - 1, looked_at).astype(int)
        features = pd.concat([problem.train, problem.validation.iloc[spread]])
        target = np.concatenate([problem.train_target, problem.validation_target[spread]])
        settings: dict[str, Any] = {
            "batch_size": 64 if len(features) < 2_000 else 256,
            "validation_fraction": looked_at / len(features),
            "random_state": problem.seed,
            "device": problem.device,
        }
        spent = time.process_time()
        step, look, rest = _speed(estimator, settings, features, target, problem.seconds)
        left = problem.seconds - rest - (time.process_time() - spent)
        looks = int(np.clip(LOOKING * left / look, 2, LOOKS))
        steps = max(20, int((left - looks * look) / step))
        model = estimator(**settings, steps=steps, evaluate_every=max(1, steps // looks), patience=10**9)
        model.fit(features, target)
        told = {"steps": steps, "best_step": model.n_steps_, "parameters": model.n_parameters_}
        return Fitted(model.predict, settings, told, *_probabilities(model, problem))

    return fit


def _speed(
    estimator: Any, settings: dict[str, Any], features: pd.DataFrame, target: np.ndarray, budget: float
) -> tuple[float, float, float]:
    """Seconds of a step, of a validation, and of the rest of a fit.

    A step and a validation do not depend on the number of rows, so that some rows suffice to time them.
    """
    looked_at = int(settings["validation_fraction"] * len(features))
    some = np.sort(np.random.default_rng(0).permutation(len(features))[: TIMED_ROWS + looked_at])
    of_some = settings | {"validation_fraction": looked_at / len(some)}

    def seconds(steps: int, every: int, rows: np.ndarray | slice = some) -> float:
        started = time.process_time()
        chosen = of_some if rows is some else settings
        estimator(**chosen, steps=steps, evaluate_every=every).fit(features.iloc[rows], target[rows])
        return time.process_time() - started

    seconds(2, 2)  # what is loaded and compiled at first
    few, further, taken = seconds(2, 2), 1, 0.0
    while taken < max(few, MEASURED * budget):  # else it is lost in what all fits take
        further *= 4
        taken = seconds(2 + further, 2 + further) - few
    step = taken / further
    looking = seconds(1 + TIMED_LOOKS, 1) - few - (TIMED_LOOKS - 1) * step
    look = max(1e-3, looking / TIMED_LOOKS)
    whole = few if len(some) == len(features) else seconds(2, 2, slice(None))
    return step, look, max(0.0, whole - 2 * step - look)


def searched(name: str, build: Callable[..., Fitted]) -> Callable[[Problem], Fitted]:
    """Return the best of the settings that are tried until the budget is spent."""

    def fit(problem: Problem) -> Fitted:
        started, best, lowest, tried = time.process_time(), None, np.inf, 0
        longest = 0.0
        for settings in _settings(RANGES[name], problem.seed):
            before = time.process_time()
            if tried and before - started + longest > problem.seconds:
                break
            fitted = build(problem, settings)
            found = problem.loss(fitted.predict(problem.validation))
            if best is None or found < lowest:
                best, lowest = fitted, found
            tried += 1
            longest = max(longest, time.process_time() - before)
        assert best is not None
        best.told["tried"] = tried
        return best

    return fit


def refitted(build: Callable[..., Fitted]) -> Callable[[Problem], Fitted]:
    """Return the fit to training and validation rows with the settings and trees that a search has found."""

    def fit(problem: Problem) -> Fitted:
        return build(problem.with_validation_rows(), problem.found["settings"], problem.found["trees"])

    return fit


def _settings(ranges: dict[str, tuple[float, float]], seed: int) -> Iterator[dict[str, Any]]:
    """Settings to try; None, for the defaults, comes first."""
    yield {}
    rng = np.random.default_rng(seed)
    while True:
        drawn: dict[str, Any] = {}
        for name, (low, high) in ranges.items():
            value = (
                rng.uniform(low, high) if name in EVEN else float(np.exp(rng.uniform(*np.log((low, high)))))
            )
            drawn[name] = int(value) if isinstance(low, int) else value
        yield drawn


def xgboost(problem: Problem, settings: dict[str, Any], trees: int | None = None) -> Fitted:
    """Fit with early stopping; with `trees`, fit this number of trees without it."""
    from xgboost import XGBClassifier, XGBRegressor

    kind = XGBRegressor if problem.regression else XGBClassifier
    model = kind(
        n_estimators=trees or TREES, early_stopping_rounds=None if trees else PATIENCE,
        enable_categorical=True, tree_method="hist", n_jobs=1, random_state=problem.seed, **settings,
    )  # fmt: skip
    classes, code = _coded(problem)
    stopping = {} if trees else {"eval_set": [_evaluated(problem, classes)]}
    model.fit(problem.train, code, verbose=False, **stopping)
    told = {"trees": trees or int(model.best_iteration) + 1}
    return Fitted(
        _named(model.predict, classes), settings, told, classes, getattr(model, "predict_proba", None)
    )


def lightgbm(problem: Problem, settings: dict[str, Any], trees: int | None = None) -> Fitted:
    """Fit with early stopping; with `trees`, fit this number of trees without it."""
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    kind = LGBMRegressor if problem.regression else LGBMClassifier
    model = kind(
        n_estimators=trees or TREES, n_jobs=1, random_state=problem.seed, verbose=-1, subsample_freq=1,
        **settings,
    )  # fmt: skip
    classes, code = _coded(problem)
    stopping = {} if trees else {
        "eval_set": [_evaluated(problem, classes)],
        "callbacks": [early_stopping(PATIENCE, verbose=False)],
    }  # fmt: skip
    model.fit(problem.train, code, **stopping)
    told = {"trees": trees or int(model.best_iteration_ or 0)}
    return Fitted(
        _named(model.predict, classes), settings, told, classes, getattr(model, "predict_proba", None)
    )


def catboost(problem: Problem, settings: dict[str, Any], trees: int | None = None) -> Fitted:
    """Fit with early stopping; with `trees`, fit this number of trees without it."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostRegressor if problem.regression else CatBoostClassifier
    categories = list(problem.train.select_dtypes(exclude="number").columns)
    model = kind(
        iterations=trees or TREES, early_stopping_rounds=None if trees else PATIENCE,
        cat_features=categories, thread_count=1, random_seed=problem.seed, verbose=False,
        allow_writing_files=False, **settings,
    )  # fmt: skip

    def named(rows: pd.DataFrame) -> pd.DataFrame:
        """Missing categories become a category."""
        known = {column: rows[column].astype(object) for column in categories}
        return rows.assign(**{name: of.where(of.notna(), "missing").map(str) for name, of in known.items()})

    classes, code = _coded(problem)
    stopping = {}
    if not trees:
        validation, target = _evaluated(problem, classes)
        stopping["eval_set"] = (named(validation), target)
    model.fit(named(problem.train), code, **stopping)
    predict = _named(lambda rows: np.ravel(model.predict(rows)), classes)
    told = {"trees": int(model.tree_count_)}
    return Fitted(
        lambda rows: predict(named(rows)), settings, told, classes,
        None if problem.regression else lambda rows: model.predict_proba(named(rows)),
    )  # fmt: skip


def sklearn_boosting(problem: Problem, settings: dict[str, Any]) -> Fitted:
    kind = HistGradientBoostingRegressor if problem.regression else HistGradientBoostingClassifier
    categories = list(problem.train.select_dtypes(exclude="number").columns)
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan,
        max_categories=MOST_CATEGORIES,
    )  # fmt: skip
    trees = kind(
        categorical_features=range(len(categories)),
        random_state=problem.seed,
        early_stopping=False,
        **settings,
    )
    coded = make_column_transformer((codes, categories), remainder="passthrough")
    model = make_pipeline(coded, trees)
    model.fit(problem.train, problem.train_target)
    return Fitted(model.predict, settings, {}, *_probabilities(model, problem))


def neighbours(problem: Problem, settings: dict[str, Any]) -> Fitted:
    kind = KNeighborsRegressor if problem.regression else KNeighborsClassifier
    model = make_pipeline(_flat(problem.train), kind(weights="distance", n_jobs=1, **settings))
    model.fit(problem.train, problem.train_target)
    return Fitted(model.predict, settings, {}, *_probabilities(model, problem))


def sklearn_mlp(problem: Problem, settings: dict[str, Any]) -> Fitted:
    kind = SklearnMLPRegressor if problem.regression else SklearnMLPClassifier
    chosen = dict(settings)
    if chosen:
        chosen["hidden_layer_sizes"] = (chosen.pop("width"),) * chosen.pop("layers")
    model = make_pipeline(
        _flat(problem.train), kind(early_stopping=True, random_state=problem.seed, max_iter=300, **chosen)
    )
    target = problem.train_target
    centre, spread = (target.mean(), target.std() or 1.0) if problem.regression else (0, 1)
    model.fit(problem.train, (target - centre) / spread if problem.regression else target)
    if not problem.regression:
        return Fitted(model.predict, settings, {}, *_probabilities(model, problem))
    return Fitted(lambda rows: model.predict(rows) * spread + centre, settings)


def _probabilities(
    model: Any, problem: Problem
) -> tuple[np.ndarray, Callable[[pd.DataFrame], np.ndarray]] | tuple[None, None]:
    """Classes and their probabilities, of a scikit-learn classifier."""
    return (None, None) if problem.regression else (model.classes_, model.predict_proba)


def _flat(features: pd.DataFrame) -> Any:
    """Scaled numbers and one-hot categories."""
    categories = list(features.select_dtypes(exclude="number").columns)
    numbers = [column for column in features.columns if column not in categories]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20), categories),
        sparse_threshold=0,
    )


def _coded(problem: Problem) -> tuple[np.ndarray | None, np.ndarray]:
    if problem.regression:
        return None, problem.train_target
    classes = np.unique(problem.train_target)
    return classes, classes.searchsorted(problem.train_target)


def _evaluated(problem: Problem, classes: np.ndarray | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Encoded rows for early stopping, of the classes that the training rows have."""
    if classes is None:
        return problem.validation, problem.validation_target
    known = np.isin(problem.validation_target, classes)
    return problem.validation[known], classes.searchsorted(problem.validation_target[known])


def _named(predict: Callable[[Any], np.ndarray], classes: np.ndarray | None) -> Callable[[Any], np.ndarray]:
    return predict if classes is None else lambda rows: classes[np.asarray(predict(rows)).astype(int)]


def pytabkit(kind: str, most_epochs: int) -> Callable[[Problem], Fitted]:
    """Return an estimator of pytabkit with its defaults, but with no more epochs than the budget allows.

    It keeps the weights of the epoch with the lowest validation loss. If the budget is too short for one
    epoch, it is trained on as many training rows, drawn at random, as one epoch can read.
    """

    def fit(problem: Problem) -> Fitted:
        started = time.process_time()
        module = import_module("pytabkit")
        estimator = getattr(module, f"{kind}_{'Regressor' if problem.regression else 'Classifier'}")
        validation, code = problem.validation, problem.validation_target
        if not problem.regression:
            known = np.isin(code, problem.train_target)
            validation, code = validation[known], code[known]
        order = np.random.default_rng(problem.seed).permutation(len(problem.train))

        def train(rows: int, epochs: int) -> Any:
            """Train on this number of rows; in proportion, fewer rows than there are for validation."""
            index = np.sort(order[:rows])
            looked_at = np.linspace(0, len(code) - 1, max(1, len(code) * rows // len(order))).astype(int)
            model = estimator(device=problem.device, n_threads=1, random_state=problem.seed, n_epochs=epochs)
            return model.fit(
                problem.train.iloc[index], problem.train_target[index],
                X_val=validation.iloc[looked_at], y_val=code[looked_at],
            )  # fmt: skip

        def seconds(epochs: int) -> float:
            before = time.process_time()
            train(timed, epochs)
            return time.process_time() - before

        timed = min(len(order), TIMED_EPOCH_ROWS)
        seconds(1)  # what is loaded and compiled at first
        few, further, taken = seconds(1), 1, 0.0
        while taken < MEASURED * problem.seconds:
            further *= 4
            taken = seconds(1 + further) - few
        epoch = taken / further * len(order) / timed
        left = problem.seconds - few - (time.process_time() - started)
        rows = len(order) if left > epoch else max(timed, int(len(order) * left / epoch))
        epochs = int(np.clip(left / epoch, 1, most_epochs))
        model = train(rows, epochs)
        told = {"epochs": epochs, "rows_of_an_epoch": rows}
        return Fitted(model.predict, {"device": problem.device}, told, *_probabilities(model, problem))

    return fit


ATTENTION = ("SPIN", "NPT", "SetTransformer", "FTTransformer")
# of the FT-Transformer paper
ROW_BASELINES, TREE_BASELINES = ("SNN", "DCN2", "AutoInt"), ("NODE", "TabNet", "GrowNet")
PYTABKIT = ("RealMLP", "TabM")
REFITTED = "_refitted"  # end of the name of a method that is fitted again with its validation rows
METHODS: dict[str, Callable[[Problem], Fitted]] = {
    **{kind: network(kind) for kind in (*ATTENTION, "ResNet", "MLP")},
    **{kind: network(kind, "benchmarks.tabular.row_baselines") for kind in ROW_BASELINES},
    **{kind: network(kind, "benchmarks.tabular.tree_baselines") for kind in TREE_BASELINES},
    "RealMLP": pytabkit("RealMLP_TD", most_epochs=256),
    "TabM": pytabkit("TabM_D", most_epochs=10_000),
    "catboost": searched("catboost", catboost),
    f"catboost{REFITTED}": refitted(catboost),
    "sklearn boosting": searched("sklearn boosting", sklearn_boosting),
    "lightgbm": searched("lightgbm", lightgbm),
    f"lightgbm{REFITTED}": refitted(lightgbm),
    "xgboost": searched("xgboost", xgboost),
    f"xgboost{REFITTED}": refitted(xgboost),
    "k-NN": searched("k-NN", neighbours),
    "sklearn MLP": searched("sklearn MLP", sklearn_mlp),
}
