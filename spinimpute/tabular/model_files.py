"""Reader and writer of fitted estimators as safetensors files.

A file holds the name of one of the estimators, its parameters and weights, the scales and categories
of its columns, and the context of its predictions, but no code. The context of NPT and the Set Transformer
consists of training rows. The context of SPIN consists of inducing points, which are means of embedded rows
and of their labels; single rows are not stored (unless there are no more rows than inducing points). The
inducing points of the published SPIN are values of its network.

The JSON of a file stores the attributes that `fit` sets, whose names end in an underscore. Arrays are stored
as tensors, to which the JSON refers by name. `load_estimator` checks all content, since files may be shared.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spinimpute.nn.carrying import CarriedPoints
from spinimpute.nn.model_weights import arrays_of, check_weights, network_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors
from spinimpute.tabular import context_estimators, row_estimators
from spinimpute.tabular.base import TableEstimator
from spinimpute.tabular.context_estimators import PublishedSPINEstimator, RowContextEstimator, SPINEstimator
from spinimpute.tabular.table import Rows, Schema, TableEncoder

FORMAT = "spinimpute-table-model-4"
KINDS = ("SPIN", "PublishedSPIN", "NPT", "SetTransformer", "FTTransformer", "ResNet", "MLP")
ESTIMATORS: dict[str, type[TableEstimator]] = {
    name: getattr(context_estimators, name, None) or getattr(row_estimators, name)
    for kind in KINDS
    for name in (f"{kind}Classifier", f"{kind}Regressor")
}
SCALAR_TYPES = (str, bool, int, float)
TUPLES = {"rows": Rows, "points": CarriedPoints}  # named tuples of tensors, by their names in the JSON
PREFIX = "network/"  # start of the names of weights, which distinguishes them from other tensors


def save_estimator(
    estimator: TableEstimator, path: str | Path, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a fitted estimator to a file.

    Parameters
    ----------
    estimator : TableEstimator
        A fitted estimator.
    path : str or Path
        The file to write.
    metadata : mapping, optional
        Further information to store, which must be convertible to JSON.

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    InputError
        The estimator has an attribute that cannot be stored, or the file cannot be written.
    """
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise InputError("argument", f"{name} cannot be saved, only {', '.join(ESTIMATORS)}")
    check_is_fitted(estimator, "n_parameters_")
    tensors = arrays_of({PREFIX + key: value for key, value in estimator.network_.state_dict().items()})
    try:
        parameters = {key: _to_json(value) for key, value in estimator.get_params(deep=False).items()}
        check_parameters(estimator, parameters)
        _check_fitted(estimator)
        check_weights(estimator._make_network, _weights(tensors))  # set_params may have changed the sizes
        description = {
            "estimator": name,
            "parameters": parameters,
            "fitted": {
                key: _stored_value(value, key, tensors)
                for key, value in _fitted_attributes(estimator).items()
                if key not in ("network_", "encoder_")
            },
            "encoder": {
                key: _stored_value(value, f"encoder/{key}", tensors)
                for key, value in _fitted_attributes(estimator.encoder_).items()
            },
            "metadata": dict(metadata or {}),
            "spinimpute": version("spinimpute"),
        }
        checked = {"description": description, "checksum": _checksum(description)}
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("content", f"{name} cannot be saved: {error}") from error
    save_tensors(path, tensors, checked, FORMAT)


def load_estimator(path: str | Path, device: str = "auto") -> TableEstimator:
    """Read an estimator that `save_estimator` wrote. Its predictions are those of the saved estimator.

    Parameters
    ----------
    path : str or Path
        The file.
    device : {"auto", "cpu", "cuda"}
        Device to compute on.

    Returns
    -------
    TableEstimator
        The fitted estimator.

    Raises
    ------
    InputError
        The file is missing, damaged or of another format, or its parts do not fit together.
    """
    return load_with_description(path, device)[0]


def load_with_description(path: str | Path, device: str = "auto") -> tuple[TableEstimator, dict[str, Any]]:
    """Read an estimator (see `load_estimator`) and the JSON that describes it in the file."""
    try:
        arrays, checked = load_tensors(path, FORMAT, "tabular model")
        description = checked["description"]
        _require(
            _checksum(description) == checked["checksum"],
            "its checksum is wrong: the file is damaged. Copy it again",
        )
        estimator = _rebuild_estimator(description, arrays)
        _require(isinstance(description["metadata"], dict), "metadata are not an object")
        _require("spinimpute" in description, "the spinimpute version is missing from its description")
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
    ) as error:  # fmt: skip
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            "content", f"tabular model {path}: invalid description or content ({reason})"
        ) from error
    return estimator.set_params(device=device), description


def check_parameters(estimator: TableEstimator, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError if a parameter is unknown to the estimator, or has an invalid type or value."""
    defaults = type(estimator)().get_params(deep=False)
    for name, value in parameters.items():
        if name not in defaults:
            raise ValueError(
                f"{type(estimator).__name__} has no parameter {name!r}; it has {', '.join(sorted(defaults))}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
        default = defaults[name]
        if isinstance(default, bool):
            fits, expected = isinstance(value, int), "true or false"
        elif isinstance(default, int):
            fits, expected = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        elif isinstance(default, float):
            fits, expected = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        else:
            fits, expected = default is None or isinstance(value, type(default)), "text"
        if not fits:
            raise ValueError(f"{name} must be {expected}, got {value!r}")
    type(estimator)(**parameters)._check_parameters()


def _fitted_attributes(fitted: object) -> dict[str, Any]:
    """Return the attributes that `fit` has set: by scikit-learn's convention their names end with _."""
    return {key: value for key, value in vars(fitted).items() if _is_fitted_name(key)}


def _is_fitted_name(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _to_json(value: Any) -> Any:
    """Convert the value of a parameter to JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json(part) for part in value]
    if value is None or isinstance(value, SCALAR_TYPES):
        return value
    raise TypeError(
        f"a parameter of type {type(value).__name__} cannot be saved. Change it with set_params first"
    )


def _checksum(description: Any) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


def _rebuild_estimator(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> TableEstimator:
    """Make the fitted estimator that the JSON and arrays of a file describe."""
    kind = ESTIMATORS.get(description["estimator"])
    _require(kind is not None, f"there is no estimator {description['estimator']!r}")
    assert kind is not None
    parameters = description["parameters"]
    check_parameters(kind(), parameters)
    estimator = kind(**parameters)
    encoder = TableEncoder(estimator.scaling, estimator.categorical_features)
    for fitted, stored in ((estimator, description["fitted"]), (encoder, description["encoder"])):
        for key, value in stored.items():
            _require(
                _is_fitted_name(key) and not hasattr(type(fitted), key),
                f"the description contains an unknown attribute, {key!r}",
            )
            setattr(fitted, key, _restored_value(value, arrays))
    estimator.encoder_, estimator._is_training = encoder, False
    _check_types(estimator)
    _check_fitted(estimator)
    estimator.network_ = network_of(estimator._make_network, _weights(arrays)).eval()
    _check_prediction(estimator)
    return estimator


def _check_types(estimator: TableEstimator) -> None:
    """Check the types of the attributes that were read from a file."""
    names = getattr(estimator, "feature_names_in_", np.array([]))
    _require(isinstance(names, np.ndarray), "names of columns must be text")
    times, columns = estimator.time_columns_, len(estimator.encoder_.categories_)
    _require(
        isinstance(times, list) and all(type(column) is int and 0 <= column < columns for column in times),
        "time_columns_ must be indices of columns",
    )
    _require(isinstance(estimator.validation_losses_, list), "validation losses must be a list")
    classes = getattr(estimator, "classes_", np.array([]))
    _require(isinstance(classes, np.ndarray) and classes.ndim == 1, "invalid classes")
    _require(all(isinstance(name, SCALAR_TYPES) for name in classes.tolist()), "invalid classes")


def _check_fitted(estimator: TableEstimator) -> None:
    """Check that the attributes of a fitted estimator agree: categories, scales, names and labels."""
    encoder = estimator.encoder_
    columns, lists = len(encoder.categories_), [c for c in encoder.categories_ if c is not None]
    _require(all(c.dtype.kind == "U" and (c[1:] > c[:-1]).all() for c in lists), "categories are not sorted")
    cardinality = tuple(0 if c is None else max(1, len(c)) for c in encoder.categories_)
    _require(
        encoder.schema_.cardinality == cardinality,
        "the numbers of categories in the schema and in the lists of categories differ",
    )
    _require(
        [*map(type, encoder.schema_.may_miss)] == [bool] * columns,
        "may_miss of the schema must have a boolean for each column",
    )
    numbers = (columns - len(lists),)
    _require(
        [encoder.mean_.dtype, encoder.sd_.dtype] == [np.dtype(np.float64)] * 2,
        "means and standard deviations must be float64",
    )
    _require(
        encoder.mean_.shape == encoder.sd_.shape == numbers,
        "there must be one mean and standard deviation for each numeric column",
    )
    _require(
        bool((encoder.sd_ > 0).all() and np.isfinite([encoder.mean_, encoder.sd_]).all()),
        "means must be finite, and standard deviations finite and positive",
    )
    if encoder.quantiles_ is not None:
        _require(
            encoder.quantiles_.quantiles_.shape[1:] == numbers,
            "there must be quantiles for each numeric column",
        )
    _require(
        estimator.n_features_in_ == columns > 0, "n_features_in_ differs from the number of encoded columns"
    )
    names = getattr(estimator, "feature_names_in_", None)
    _require(
        names is None or len({*names}) == len(names) == columns,
        "names of columns must be unique, one for each column",
    )
    _require(names is None or all(isinstance(name, str) for name in names), "names of columns must be text")
    counts = (estimator.n_steps_, estimator.n_parameters_, estimator.peak_memory_)
    _require(all(isinstance(number, int) for number in counts), "counts must be whole numbers")
    _require(
        all(isinstance(loss, float) for loss in estimator.validation_losses_),
        "validation losses must be numbers",
    )
    if hasattr(estimator, "predict_proba"):
        _require(
            len(set(estimator.classes_.tolist())) == len(estimator.classes_) > 0,
            "classes must be unique, and at least one",
        )
    else:
        scale = (estimator.label_mean_, estimator.label_sd_)
        _require(
            all(map(math.isfinite, scale)) and scale[1] > 0,
            "the label's mean must be finite, and its standard deviation finite and positive",
        )


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Select the weights of the network among the arrays of a file."""
    return {key.removeprefix(PREFIX): part for key, part in arrays.items() if key.startswith(PREFIX)}


def _check_prediction(estimator: TableEstimator) -> None:
    """Check the context, and that the network predicts a row of zeros with outputs of the right shape."""
    columns = len(estimator.encoder_.categories_)
    row = estimator.encoder_.transform(np.zeros((1, columns)))
    with torch.no_grad():
        if isinstance(estimator, SPINEstimator):
            _check_points(estimator)
        elif isinstance(estimator, PublishedSPINEstimator):
            _check_latent_points(estimator)
        elif isinstance(estimator, RowContextEstimator):
            label_N, classes = estimator.context_label_, estimator._classes
            shape = (len(label_N), columns)
            _require(
                estimator.context_.missing_ND.shape == shape and len(label_N) > 0,
                "the context must have rows, and as many rows and columns as the labels and the table",
            )
            valid = (label_N >= 0) & (label_N < classes)
            _require(classes == 0 or bool(valid.all()), "the context's labels must be codes of the classes")
        _require(
            estimator._outputs(row).shape == (1, estimator._n_outputs),
            "the network's outputs do not fit the label",
        )


def _check_points(estimator: SPINEstimator) -> None:
    """Check the sizes and values of inducing points."""
    points = estimator.inducing_points_
    _require(isinstance(points, CarriedPoints), "invalid inducing points")
    count = points.mass_BH.shape[-1]
    features = estimator.heads * estimator.head_width
    shapes = ((1, count, features), (1, count, estimator._n_outputs), (1, count))
    _require(
        0 < count <= estimator.inducing_points, f"inducing points must be 1 to {estimator.inducing_points}"
    )
    _require(tuple(part.shape for part in points) == shapes, "inducing points have the wrong shape")
    _require(all(part.dtype == torch.float32 for part in points), "inducing points must be float32")
    _require(all(bool(part.isfinite().all()) for part in points), "inducing points must be finite")
    _require(bool((points.mass_BH >= 0).all()), "masses of inducing points must not be negative")


def _check_latent_points(estimator: PublishedSPINEstimator) -> None:
    """Check the sizes and values of the inducing points of the published SPIN."""
    points = estimator.inducing_points_
    _require(isinstance(points, Tensor), "invalid inducing points")
    shape = (1, estimator.inducing_points, estimator.latent_attributes, estimator.width)
    _require(tuple(points.shape) == shape, "inducing points have the wrong shape")
    _require(points.dtype == torch.float32, "inducing points must be float32")
    _require(bool(points.isfinite().all()), "inducing points must be finite")


def _require(condition: bool, problem: str) -> None:
    """Raise ValueError with this message unless the condition is true."""
    if not condition:
        raise ValueError(problem)


def _stored_value(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """Convert the value of an attribute to JSON, and add its arrays to `tensors`.

    The names of the arrays start with `name`. Raises TypeError for a type that cannot be saved.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().numpy()
        return {"tensor": name}
    if isinstance(value, list | tuple):
        parts = [_stored_value(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]
        kind = next((kind for kind, type_ in TUPLES.items() if isinstance(value, type_)), None)
        return parts if kind is None else {kind: parts}
    if isinstance(value, Schema):
        return {"schema": asdict(value)}
    if isinstance(value, QuantileTransformer):
        names = ("quantiles_", "references_")
        return {
            "quantiles": [_stored_value(getattr(value, part), f"{name}/{part}", tensors) for part in names]
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        tensors[name] = value
        return {"array": name}
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        values = [part.item() if isinstance(part, np.generic) else part for part in value.tolist()]
        if all(isinstance(part, SCALAR_TYPES) for part in values):
            return {"text" if value.dtype.kind == "U" else "objects": values}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, SCALAR_TYPES):
        return value
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"{name} has the type {kind}, which a file cannot hold; use numbers or text")


def _restored_value(stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Convert JSON and the arrays of the file back to a value: the inverse of `_stored_value`."""
    if isinstance(stored, list):
        return [_restored_value(part, arrays) for part in stored]
    if not isinstance(stored, dict):
        return stored
    ((kind, content),) = stored.items()
    if kind == "tensor":
        return torch.from_numpy(arrays[content].copy())
    if kind == "array":
        return arrays[content].copy()
    if kind in ("text", "objects"):
        _require(
            all(isinstance(part, str) or kind == "objects" for part in content),
            "a list of texts must contain text only",
        )
        return np.array(content, dtype=str if kind == "text" else object)
    if kind in TUPLES:
        return TUPLES[kind](*_restored_value(content, arrays))
    if kind == "schema":
        return Schema(**{key: tuple(values) for key, values in content.items()})
    _require(kind == "quantiles", f"an unknown kind of value, {kind!r}")
    quantiles, references = _restored_value(content, arrays)
    _require(references.shape == quantiles.shape[:1] != (0,), "quantiles without references")
    transformer = QuantileTransformer(n_quantiles=len(references), output_distribution="normal")
    transformer.quantiles_, transformer.references_ = quantiles, references
    transformer.n_quantiles_, transformer.n_features_in_ = quantiles.shape
    return transformer
