"""Fitted estimators as safetensors files: weights, scales, categories, and what predictions read.

A file names one of the twelve estimators and nothing else that could be run. Training rows enter only as far
as predictions read them: the context of NPT and the Set Transformer; the inducing points of SPIN, which are
means of rows as its network compares them, and of their labels.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from spinimpute.nn.carrying import CarriedPoints
from spinimpute.nn.model_weights import arrays_of, check_weights, network_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors
from spinimpute.tabular import estimators
from spinimpute.tabular.base import TableEstimator
from spinimpute.tabular.context_estimators import RowsAsContext, SPINEstimator
from spinimpute.tabular.fitted_values import SCALARS, require, restored_value, stored_value
from spinimpute.tabular.table import TableEncoder

FORMAT = "spinimpute-table-model-3"
KINDS = ("SPIN", "NPT", "SetTransformer", "FTTransformer", "ResNet", "MLP")
ESTIMATORS: dict[str, type[TableEstimator]] = {
    name: getattr(estimators, name) for kind in KINDS for name in (f"{kind}Classifier", f"{kind}Regressor")
}
WEIGHTS = "network/"


def save_estimator(
    estimator: TableEstimator, path: str | Path, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a fitted estimator.

    Parameters
    ----------
    estimator : TableEstimator
        A fitted one.
    path : str or Path
        The file to write.
    metadata : mapping, optional
        Further description to keep, of JSON's types.

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    InputError
        Something cannot be kept or the file cannot be written.
    """
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise InputError("content", f"{name} cannot be saved: it is none of {', '.join(ESTIMATORS)}")
    check_is_fitted(estimator, "n_parameters_")
    tensors = arrays_of({WEIGHTS + key: value for key, value in estimator.network_.state_dict().items()})
    try:
        parameters = {key: _plain(value) for key, value in estimator.get_params(deep=False).items()}
        check_parameters(estimator, parameters)
        _check_fitted(estimator)
        check_weights(estimator._make, _weights(tensors))  # parameters may have been set since
        description = {
            "estimator": name,
            "parameters": parameters,
            "fitted": {
                key: stored_value(value, key, tensors)
                for key, value in _fitted(estimator).items()
                if key not in ("network_", "encoder_")
            },
            "encoder": {
                key: stored_value(value, f"encoder/{key}", tensors)
                for key, value in _fitted(estimator.encoder_).items()
            },
            "metadata": dict(metadata or {}),
            "spinimpute": version("spinimpute"),
        }
        checked = {"description": description, "checksum": _checksum(description)}
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("content", f"{name} cannot be saved: {error}") from error
    save_tensors(path, tensors, checked, FORMAT)


def load_estimator(path: str | Path, device: str = "auto") -> TableEstimator:
    """Read an estimator that `save_estimator` wrote, which predicts as it did.

    Parameters
    ----------
    path : str or Path
        The file.
    device : {"auto", "cpu", "cuda"}
        Where it is to compute.

    Returns
    -------
    TableEstimator
        The fitted estimator.

    Raises
    ------
    InputError
        The file is missing, damaged, of something else, or contradicts itself.
    """
    return load_with_description(path, device)[0]


def load_with_description(path: str | Path, device: str = "auto") -> tuple[TableEstimator, dict[str, Any]]:
    """Read an estimator as `load_estimator` does, with the file's description of it.

    Parameters
    ----------
    path : str or Path
        The file.
    device : {"auto", "cpu", "cuda"}
        Where it is to compute.

    Returns
    -------
    TableEstimator
        The fitted estimator.
    dict
        "metadata", and "spinimpute", the version, among others.
    """
    try:
        arrays, checked = load_tensors(path, FORMAT, "tabular model")
        description = checked["description"]
        require(_checksum(description) == checked["checksum"], "its description is damaged; copy it again")
        estimator = _rebuilt(description, arrays)
        require(isinstance(description["metadata"], dict), "its metadata are none")
        require("spinimpute" in description, "it does not say which version wrote it")
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
    ) as error:  # fmt: skip
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            "content", f"tabular model {path}: it does not fit its own description ({said})"
        ) from error
    return estimator.set_params(device=device), description


def check_parameters(estimator: TableEstimator, parameters: Mapping[str, Any]) -> None:
    """Check that an estimator can take these parameters: their names, types and ranges.

    Parameters
    ----------
    estimator : TableEstimator
        The estimator, which stays as it is.
    parameters : mapping of str to object
        Parameters by name.

    Raises
    ------
    ValueError
        It cannot.
    """
    defaults = type(estimator)().get_params(deep=False)
    for name, value in parameters.items():
        if name not in defaults:
            raise ValueError(
                f"{type(estimator).__name__} has no parameter {name!r}; it has {_listed(defaults)}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, however: {value}")
        default = defaults[name]
        if isinstance(default, bool):
            fits, wanted = isinstance(value, int), "true or false"
        elif isinstance(default, int):
            fits, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        elif isinstance(default, float):
            fits, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        else:
            fits, wanted = default is None or isinstance(value, type(default)), "text"
        if not fits:
            raise ValueError(f"{name} must be {wanted}, however: {value!r}")
    type(estimator)(**parameters)._check_parameters()


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))


def _fitted(fitted: object) -> dict[str, Any]:
    """What `fit` has set, by scikit-learn's convention."""
    return {key: value for key, value in vars(fitted).items() if _is_fitted_name(key)}


def _is_fitted_name(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, SCALARS):
        return value
    raise TypeError(f"a parameter is a {type(value).__name__}, which no file holds; change it by set_params")


def _checksum(description: Any) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


def _rebuilt(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> TableEstimator:
    kind = ESTIMATORS.get(description["estimator"])
    require(kind is not None, f"there is no estimator {description['estimator']!r}")
    assert kind is not None
    parameters = description["parameters"]
    check_parameters(kind(), parameters)
    estimator = kind(**parameters)
    encoder = TableEncoder(estimator.scaling, estimator.categorical_features)
    for fitted, stored in ((estimator, description["fitted"]), (encoder, description["encoder"])):
        for key, value in stored.items():
            require(_is_fitted_name(key) and not hasattr(type(fitted), key), f"it sets {key!r}")
            setattr(fitted, key, restored_value(value, arrays))
    estimator.encoder_, estimator._is_training = encoder, False
    _check_kinds(estimator)
    _check_fitted(estimator)
    estimator.network_ = network_of(estimator._make, _weights(arrays)).eval()
    _check_prediction(estimator)
    return estimator


def _check_kinds(estimator: TableEstimator) -> None:
    """Of what a file says was fitted: anything but what `fit` sets would fail only later."""
    names = getattr(estimator, "feature_names_in_", np.array([]))
    require(isinstance(names, np.ndarray), "names that are no text")
    times, columns = getattr(estimator, "time_columns_", []), len(estimator.encoder_.categories_)
    require(
        isinstance(times, list) and all(type(column) is int and 0 <= column < columns for column in times),
        "times in columns that are none",
    )
    require(isinstance(estimator.validation_losses_, list), "losses that are none")
    classes = getattr(estimator, "classes_", np.array([]))
    require(isinstance(classes, np.ndarray) and classes.ndim == 1, "classes that are none")
    require(all(isinstance(name, SCALARS) for name in classes.tolist()), "classes that are none")


def _check_fitted(estimator: TableEstimator) -> None:
    """Categories, scales and labels against each other."""
    encoder = estimator.encoder_
    columns, known = len(encoder.categories_), [c for c in encoder.categories_ if c is not None]
    require(all(c.dtype.kind == "U" and (c[1:] > c[:-1]).all() for c in known), "categories are not sorted")
    cardinality = tuple(0 if c is None else max(1, len(c)) for c in encoder.categories_)
    require(encoder.schema_.cardinality == cardinality, "its schema has other categories")
    require([*map(type, encoder.schema_.may_miss)] == [bool] * columns, "its schema has other columns")
    numbers = (columns - len(known),)
    require([encoder.mean_.dtype, encoder.sd_.dtype] == [np.dtype(np.float64)] * 2, "scales of another type")
    require(encoder.mean_.shape == encoder.sd_.shape == numbers, "scales of other columns")
    require(
        bool((encoder.sd_ > 0).all() and np.isfinite([encoder.mean_, encoder.sd_]).all()),
        "scales that are none",
    )
    if encoder.quantiles_ is not None:
        require(encoder.quantiles_.quantiles_.shape[1:] == numbers, "quantiles of other columns")
    require(estimator.n_features_in_ == columns > 0, "another number of columns")
    names = getattr(estimator, "feature_names_in_", None)
    require(names is None or len({*names}) == len(names) == columns, "names of other columns")
    require(names is None or all(isinstance(name, str) for name in names), "names that are no text")
    whole = (estimator.n_steps_, estimator.n_parameters_, estimator.peak_memory_)
    require(all(isinstance(number, int) for number in whole), "counts that are none")
    require(all(isinstance(loss, float) for loss in estimator.validation_losses_), "losses that are none")
    if hasattr(estimator, "predict_proba"):
        require(len(set(estimator.classes_.tolist())) == len(estimator.classes_) > 0, "classes twice")
    else:
        scale = (estimator.label_mean_, estimator.label_sd_)
        require(all(map(math.isfinite, scale)) and scale[1] > 0, "labels without a scale")


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of the network, among all that a file holds."""
    return {key.removeprefix(WEIGHTS): part for key, part in arrays.items() if key.startswith(WEIGHTS)}


def _check_prediction(estimator: TableEstimator) -> None:
    """Whether a row of zeros can be predicted from what the file holds."""
    columns = len(estimator.encoder_.categories_)
    row = estimator.encoder_.transform(np.zeros((1, columns)))
    with torch.no_grad():
        if isinstance(estimator, SPINEstimator):
            _check_points(estimator)
        if isinstance(estimator, RowsAsContext):
            label_N, known = estimator.context_label_, estimator._classes
            shape = (len(label_N), columns)
            require(estimator.context_.missing_ND.shape == shape and len(label_N) > 0, "another context")
            inside = (label_N >= 0) & (label_N < known)
            require(known == 0 or bool(inside.all()), "a context of other classes")
        require(estimator._outputs(row).shape == (1, estimator._n_outputs), "outputs of another label")


def _check_points(estimator: SPINEstimator) -> None:
    """Inducing points of the network's sizes, with labels of the estimator's kind."""
    points = estimator.inducing_points_
    require(isinstance(points, CarriedPoints), "inducing points that are none")
    count = points.mass_BH.shape[-1]
    features = estimator.heads * estimator.head_width
    shapes = ((1, count, features), (1, count, estimator._n_outputs), (1, count))
    require(0 < count <= estimator.inducing_points, "other inducing points")
    require(tuple(part.shape for part in points) == shapes, "other inducing points")
    require(all(part.dtype == torch.float32 for part in points), "inducing points of another type")
    require(all(bool(part.isfinite().all()) for part in points), "inducing points that are no numbers")
    require(bool((points.mass_BH >= 0).all()), "inducing points with masses below 0")
