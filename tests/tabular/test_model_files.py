"""Files of fitted estimators: identical predictions, and one line of error for damaged files."""

import json
import operator
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors
from spinimpute.tabular import (
    MLPClassifier,
    MLPRegressor,
    NPTClassifier,
    PublishedSPINRegressor,
    SPINClassifier,
    SPINRegressor,
)
from spinimpute.tabular.model_files import (
    ESTIMATORS,
    FORMAT,
    _checksum,
    load_estimator,
    load_with_description,
    save_estimator,
)

SMALL = {"steps": 4, "batch_size": 16, "width": 8, "heads": 2, "blocks": 1, "layers": 1, "random_state": 0}
SMALL |= {"row_width": 8, "inducing_points": 16}
Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def small(kind: type, **others: Any) -> Any:
    return kind(**{name: value for name, value in SMALL.items() if name in kind().get_params()} | others)


def table(n: int = 70, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"x": rng.normal(size=n), "town": rng.choice(["A", "Ü", "c c"], n)})
    found["z"] = rng.exponential(size=n)
    found.loc[::9, "x"] = np.nan
    found.loc[::7, "town"] = None
    return found


def label_for(name: str, n: int = 70) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(5, 9, n) if name.endswith("Regressor") else rng.choice(["ill", "well", "?"], n)


def outputs(model: Any, rows: Any) -> np.ndarray:
    found: np.ndarray = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    return found


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_predictions_bit_for_bit(name: str, scaling: str, tmp_path: Path) -> None:
    model = small(ESTIMATORS[name], scaling=scaling, evaluate_every=2).fit(table(), label_for(name))
    save_estimator(model, tmp_path / "m", {"target": "y"})
    state = torch.get_rng_state()
    loaded, description = load_with_description(tmp_path / "m", "cpu")
    assert torch.equal(torch.get_rng_state(), state)  # loading draws nothing from the caller's generator
    np.testing.assert_array_equal(outputs(loaded, table(40, 5)), outputs(model, table(40, 5)))
    np.testing.assert_array_equal(loaded.predict(table(40, 5)), model.predict(table(40, 5)))
    assert description["metadata"] == {"target": "y"}
    assert loaded.get_params() == model.get_params() | {"device": "cpu"}
    public = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")}
    assert public <= vars(loaded).keys()
    for key in ("n_steps_", "validation_losses_", "peak_memory_", "n_parameters_", "n_features_in_"):
        assert getattr(loaded, key) == getattr(model, key)
    assert not hasattr(loaded, "_encoded_rows_")
    save_estimator(loaded.set_params(device="auto"), tmp_path / "again", {"target": "y"})
    first, second = (load_tensors(tmp_path / name, FORMAT, "tabular model") for name in ("m", "again"))
    assert second[1] == first[1]
    np.testing.assert_equal(second[0], first[0])


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["b", "a"]),
        np.array(["b", "a"], object),
        np.array([7, -3]),
        np.array([7, 3], np.uint8),
        np.array([1.0, 3.0], np.float32),
        np.array([True, False]),
        np.array(["only"]),
    ],
)
def test_classes_of_every_type(classes: np.ndarray, tmp_path: Path) -> None:
    label = np.resize(classes, 30)
    model = small(MLPClassifier).fit(np.random.default_rng(0).normal(size=(30, 2)), label)
    save_estimator(model, tmp_path / "m")
    loaded: Any = load_estimator(tmp_path / "m", "cpu")
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.predict(np.zeros((1, 2))).tolist() == model.predict(np.zeros((1, 2))).tolist()
    assert not hasattr(loaded, "feature_names_in_")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=5), min_size=12, max_size=12))
def test_categories_of_any_text(tmp_path: Path, names: list[str]) -> None:
    rows = pd.DataFrame({"a": pd.Series(names, dtype=object), "b": np.arange(12.0)})
    model = small(MLPRegressor, steps=1, categorical_features=("a",)).fit(rows, np.arange(12.0))
    save_estimator(model, tmp_path / "m")
    np.testing.assert_array_equal(load_estimator(tmp_path / "m", "cpu").predict(rows), model.predict(rows))  # type: ignore[attr-defined]


def test_unsaved_kinds(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(NotFittedError):
        save_estimator(MLPClassifier(), tmp_path / "m")
    with pytest.raises(InputError, match="LinearRegression cannot be saved"):
        save_estimator(LinearRegression(), tmp_path / "m")
    model = small(MLPRegressor, random_state=np.random.RandomState(0)).fit(rows, rows[:, 0])
    with pytest.raises(InputError, match="RandomState"):
        save_estimator(model, tmp_path / "m")
    model.set_params(random_state=np.int64(3), width=16)
    with pytest.raises(InputError, match="weights belong to another network"):
        save_estimator(model, tmp_path / "m")
    model.set_params(width=8)
    huge: Any = small(MLPRegressor).fit(rows, rows[:, 0])
    huge.label_sd_ = np.inf
    with pytest.raises(InputError, match="deviation finite and positive"):
        save_estimator(huge, tmp_path / "m")
    save_estimator(model, tmp_path / "m")
    assert load_estimator(tmp_path / "m").random_state == 3
    with pytest.raises(InputError, match="not JSON serializable"):
        save_estimator(model, tmp_path / "n", {"a": object()})
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, found = tmp_path_factory.mktemp("models"), {}
    for kind in (MLPRegressor, NPTClassifier, SPINClassifier, SPINRegressor, PublishedSPINRegressor):
        found[kind.__name__] = folder / kind.__name__
        label = label_for(kind.__name__)
        save_estimator(small(kind, scaling="quantile").fit(table(), label), found[kind.__name__])
    return found


def changed(source: Path, path: Path, change: Change) -> Path:
    """A file with valid checksums and changed content."""
    arrays, held = load_tensors(source, FORMAT, "tabular model")
    change(held["description"], arrays)
    held["checksum"] = _checksum(held["description"])
    save_tensors(path, arrays, held, FORMAT)
    return path


def setting(*keys: Any) -> Change:
    """setting(*keys, value) changes the description."""
    *path, last, value = keys
    return lambda description, _: operator.setitem(reduce(operator.getitem, path, description), last, value)


def array(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda _, arrays: arrays.update({name: edit(arrays[name])})


def without(name: str) -> Change:
    return lambda _, arrays: arrays.pop(name)


CHANGES: list[tuple[str, Change, str]] = [
    ("MLPRegressor", setting("estimator", "os.system"), "no estimator 'os.system'"),
    ("MLPRegressor", setting("estimator", "MLPClassifier"), "description"),
    ("MLPRegressor", setting("estimator", ["MLPClassifier"]), "description"),
    ("MLPRegressor", setting("parameters", "width", 10**12), "weights belong to another network"),
    ("MLPRegressor", setting("parameters", "width", 10**30), "description"),
    ("MLPRegressor", setting("parameters", "layers", 10**12), "larger network"),
    ("SPINRegressor", setting("parameters", "predictor_layers", 10**12), "larger network"),
    ("SPINRegressor", setting("parameters", "head_width", 9), "weights belong to another network"),
    ("SPINRegressor", setting("parameters", "inducing_points", 15), "inducing points must be 1 to 15"),
    ("SPINRegressor", setting("parameters", "blocks", 1), "no parameter 'blocks'"),
    ("MLPRegressor", setting("parameters", "width", 8.0), "width must be a whole number"),
    ("MLPRegressor", setting("parameters", "width", "8"), "width must be a whole number"),
    ("MLPRegressor", setting("parameters", "width", -1), "width must be at least 1"),
    ("MLPRegressor", setting("parameters", "dropout", float("nan")), "dropout must be finite"),
    ("MLPRegressor", setting("parameters", "colour", 1), "no parameter 'colour'"),
    ("MLPRegressor", setting("parameters", 3), "description"),
    ("MLPRegressor", setting("fitted", "predict", 1), "unknown attribute, 'predict'"),
    ("MLPRegressor", setting("fitted", "__class__", 1), "unknown attribute, '__class__'"),
    ("MLPRegressor", setting("fitted", "label_mean_", "x"), "description"),
    ("MLPRegressor", setting("fitted", "label_sd_", 0.0), "deviation finite and positive"),
    ("MLPRegressor", setting("fitted", "n_steps_", "many"), "counts"),
    ("MLPRegressor", setting("fitted", "n_features_in_", 4), "differs from the number of encoded columns"),
    (
        "MLPRegressor",
        setting("fitted", "feature_names_in_", {"objects": ["x"]}),
        "names of columns must be unique",
    ),
    ("MLPRegressor", setting("fitted", "feature_names_in_", {"objects": [1, 2, 3]}), "must be text"),
    ("MLPRegressor", setting("fitted", "feature_names_in_", None), "must be text"),
    ("MLPRegressor", setting("fitted", "time_columns_", "abc"), "must be indices of columns"),
    ("MLPRegressor", setting("fitted", "time_columns_", 5), "must be indices of columns"),
    ("MLPRegressor", setting("fitted", "time_columns_", [True]), "must be indices of columns"),
    ("MLPRegressor", setting("fitted", "time_columns_", [3]), "must be indices of columns"),
    ("MLPRegressor", setting("fitted", "validation_losses_", {"array": "encoder/mean_"}), "losses"),
    ("NPTClassifier", setting("fitted", "classes_", {"tensor": "encoder/mean_"}), "invalid classes"),
    ("NPTClassifier", setting("fitted", "classes_", {"objects": ["a", "b", None]}), "invalid classes"),
    ("MLPRegressor", array("encoder/quantiles_/quantiles_", lambda q: q > 0), "description"),
    ("MLPRegressor", setting("encoder", "mean_", {"tensor": "encoder/mean_"}), "description"),
    ("MLPRegressor", setting("fitted", "x_", {"pickle": "x"}), "an unknown kind of value, 'pickle'"),
    ("MLPRegressor", setting("encoder", "categories_", 1, {"text": ["b", "a", "c"]}), "not sorted"),
    (
        "MLPRegressor",
        setting("encoder", "categories_", 1, {"text": ["a"]}),
        "in the schema and in the lists of categories differ",
    ),
    ("MLPRegressor", setting("encoder", "categories_", 1, {"text": [1, 2, 3]}), "must contain text only"),
    ("MLPRegressor", setting("encoder", "schema_", {"schema": {}}), "description"),
    ("MLPRegressor", setting("metadata", [1]), "metadata"),
    ("MLPRegressor", lambda description, _: description.pop("spinimpute"), "version is missing"),
    ("MLPRegressor", array("encoder/sd_", lambda sd: sd * 0), "finite and positive"),
    ("MLPRegressor", array("encoder/quantiles_/quantiles_", lambda q: q[:, :1]), "there must be quantiles"),
    ("MLPRegressor", array("encoder/quantiles_/references_", lambda r: r[:1]), "quantiles without"),
    ("MLPRegressor", without("network/layers.0.weight"), "layers.0.weight"),
    ("NPTClassifier", setting("fitted", "classes_", {"text": ["a", "a", "b"]}), "classes must be unique"),
    ("NPTClassifier", setting("fitted", "classes_", {"text": ["a", "b"]}), "must be codes of the classes"),
    ("SPINClassifier", setting("fitted", "classes_", {"text": [*"abcd"]}), "belong to another network"),
    ("NPTClassifier", without("context_/0"), "context_/0"),
    ("NPTClassifier", array("context_/1", lambda part: part[:5]), "the context must have rows"),
    ("NPTClassifier", array("context_/0", lambda part: part[:, :2]), "description"),
    ("NPTClassifier", array("context_/0", lambda part: part + 99), "codes"),
    ("SPINClassifier", array("inducing_points_/0", lambda h: h[:, :1]), "have the wrong shape"),
    ("SPINClassifier", array("inducing_points_/0", lambda h: h[..., :1]), "have the wrong shape"),
    ("SPINClassifier", array("inducing_points_/1", lambda label: label[..., :1]), "have the wrong shape"),
    ("SPINClassifier", array("inducing_points_/0", lambda h: h * np.nan), "points must be finite"),
    ("SPINClassifier", array("inducing_points_/1", lambda label: label.astype(int)), "must be float32"),
    ("SPINClassifier", array("inducing_points_/2", lambda mass: -mass), "must not be negative"),
    ("SPINClassifier", setting("fitted", "inducing_points_", 1), "invalid inducing points"),
    ("PublishedSPINRegressor", array("inducing_points_", lambda h: h[:, :1]), "have the wrong shape"),
    ("PublishedSPINRegressor", array("inducing_points_", lambda h: h * np.nan), "points must be finite"),
    ("PublishedSPINRegressor", array("inducing_points_", lambda h: h.astype(int)), "must be float32"),
    ("PublishedSPINRegressor", setting("fitted", "inducing_points_", 1), "invalid inducing points"),
]


@pytest.mark.parametrize(("kind", "change", "message"), CHANGES)
def test_files_that_contradict_themselves(kind, change, message, files, tmp_path) -> None:
    with pytest.raises(InputError, match=message) as found:
        load_estimator(changed(files[kind], tmp_path / "m", change), "cpu")
    assert len(str(found.value).splitlines()) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes(files: dict[str, Path], tmp_path: Path, data: st.DataObject) -> None:
    whole = files["SPINClassifier"].read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    place = data.draw(st.integers(0, header - 1) | st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "m"
    path.write_bytes(damaged)
    said = "one line"
    try:
        loaded: Any = load_estimator(path, "cpu")
    except InputError as error:
        said = str(error)
    else:  # one kind of white space for another
        same: Any = load_estimator(files["SPINClassifier"], "cpu")
        np.testing.assert_array_equal(loaded.predict_proba(table(9)), same.predict_proba(table(9)))
    assert len(said.splitlines()) == 1


def test_files_of_something_else(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "m"
    with pytest.raises(InputError, match="it is a folder"):
        load_estimator(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_estimator(path)
    whole = files["MLPRegressor"].read_bytes()
    for content in (b"", b"x,y\n1,2\n", whole[:-1], whole[: len(whole) // 2], whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="m"):
            load_estimator(path)
    save_tensors(path, {"a": np.zeros(2)}, {}, "another-format")
    with pytest.raises(InputError, match="another-format"):
        load_estimator(path)
    save_tensors(path, {"a": np.zeros(2)}, {}, FORMAT.removesuffix("4") + "3")
    said = r"of another version of spinimpute .* Make it again with this version"
    with pytest.raises(InputError, match=said):
        load_estimator(path)
    for metadata in ({}, [], {"description": {}, "checksum": _checksum({})}, None):
        save_tensors(path, {"a": np.zeros(2)}, metadata, FORMAT)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="description"):
            load_estimator(path)


def test_a_file_holds_no_training_rows_of_spin(files: dict[str, Path]) -> None:
    with safe_open(str(files["SPINClassifier"]), "numpy") as file:
        sizes = {name: file.get_tensor(name).shape for name in file.keys()}  # noqa: SIM118
        described = json.loads(file.metadata()["metadata"])["description"]
    assert not [name for name, shape in sizes.items() if len(table()) in shape]
    assert "inducing_points_" in described["fitted"]
