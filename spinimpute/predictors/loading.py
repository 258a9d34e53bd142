"""Functions that load a predictor from a checkpoint, and list the versions on which results depend.

A checkpoint is a safetensors file with the weights, settings and provenance of a trained model. Its entry
`kind` selects the predictor's row in `registry`, and the row names the function that builds the predictor.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors import registry
from spinimpute.predictors.interface import Checkpoint, Predictor, WeightsMismatch
from spinimpute.predictors.registry import (
    PREDICTORS,
    PredictorRow,
    default_row,
    import_attribute,
    row_by_kind,
    row_by_name,
)
from spinimpute.runtime.devices import choose_device, choose_threads, name_gpu
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.packages import OPTIONAL, explain_missing_packages
from spinimpute.runtime.tensor_files import fingerprint, load_tensors

FORMAT = "spinimpute-checkpoint-1"  # format of checkpoint files


def load_predictor(
    path: str | Path | None = None,
    device: str = "auto",
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Predictor:
    """Load the predictor of a checkpoint.

    Parameters
    ----------
    path : str or Path, optional
        The checkpoint, by default the shipped one.
    device : str
        Where to compute: "auto", "cpu" or "cuda".
    name : str, optional
        Name of the predictor. Without `path` it selects a shipped checkpoint. With `path` the checkpoint must
        be for this predictor.
    options : mapping, optional
        Options of loading, such as `inducing_points`.

    Returns
    -------
    Predictor
        The predictor, ready to impute.

    Raises
    ------
    InputError
        The file is not a checkpoint, is damaged or has an unknown kind; or the predictor does not have the
        options.
    """
    user_options = {option: value for option, value in (options or {}).items() if value is not None}
    predictor, row, _ = _load(path, name, None, user_options, device)
    for option in row.options:
        if option.name in user_options and not option.at_loading:
            raise InputError("arguments", f"{option.name} is an option of imputing, not of loading")
    return predictor


def predictor_for(
    panel: ReferencePanel,
    model: str | Path | Predictor | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> tuple[Predictor, dict[str, Any]]:
    """Return the predictor for a panel, and the values of all its options, defaults included.

    `model` is a checkpoint or a loaded predictor; `device` has no effect on a loaded predictor. Without
    `model`, the shipped checkpoint of the named predictor is used. Without a name either, it is the
    checkpoint of the first predictor in the registry that can read the panel. A value of None in `options`
    means the default.

    Raise InputError if the predictor cannot be loaded (see `load_predictor`) or cannot read the panel.
    """
    user_options = {option: value for option, value in (options or {}).items() if value is not None}
    if model is None or isinstance(model, str | Path):
        predictor, _, option_values = _load(model, name, panel, user_options, device)
    else:
        row, predictor = row_by_kind(model.kind), model
        if row is None:
            raise InputError(
                "argument", f"the predictor is of the kind {model.kind!r}, which has no row in the registry"
            )
        _check_fit(row, name, "the loaded predictor", panel)
        option_values = row.choose_options(user_options)
        for option in row.options:
            if option.name in user_options and option.at_loading:
                raise InputError(
                    "arguments",
                    f"{option.name} is an option of loading. Give it to spinimpute.load_predictor(...).",
                )
    predictor.check_panel(panel, user_options)
    return predictor, option_values


def _load(
    path: str | Path | None,
    name: str | None,
    panel: ReferencePanel | None,
    user_options: Mapping[str, Any],
    device: str,
) -> tuple[Predictor, PredictorRow, dict[str, Any]]:
    """Load a predictor, by default from a shipped checkpoint. Return it with its row and option values."""
    weights: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if path is None:
        row = (
            default_row(None if panel is None else panel.holds, user_options)
            if name is None
            else row_by_name(name)
        )
        _check_fit(row, None, "", panel)
        if row.has_weights:
            weights, metadata = load_tensors(row.shipped_checkpoint, FORMAT, "model")
    else:
        if name is not None and not row_by_name(name).has_weights:
            raise InputError(
                "arguments", f"the predictor {name!r} has no weights. Leave out the model {path}."
            )
        weights, metadata = load_tensors(path, FORMAT, "model")
        known_row = row_by_kind(metadata.get("kind"))
        if known_row is None:
            raise InputError(
                "content",
                f"{path}: models of the kind {metadata.get('kind')!r} are unknown to this version. "
                "Update spinimpute, or train the model again.",
            )
        row = known_row
        _check_fit(row, name, f"model {path}", panel, path)
    try:
        option_values = row.choose_options(user_options)
    except InputError as error:
        if path is None:
            raise
        raise InputError("arguments", f"model {path}: {error}") from error
    if row.auto_device is None and device == "cuda":
        raise InputError(
            "arguments",
            f"the predictor {row.name!r} only computes on the processor. Leave out {argument('device')}.",
        )
    torch_device = choose_device((row.auto_device or "cpu") if device == "auto" else device)
    checkpoint = Checkpoint(weights, metadata.get("model"), fingerprint(weights), torch_device, option_values)
    with explain_missing_packages(f"the predictor {row.name!r}"):
        load: Callable[[Checkpoint], Predictor] = import_attribute(row.load)
    try:
        return load(checkpoint), row, option_values
    except WeightsMismatch as error:
        raise InputError(
            "damaged",
            f"{path or row.shipped}: the weights do not fit the settings of the model ({error}). "
            "Copy the file again.",
        ) from error


def _check_fit(
    row: PredictorRow,
    name: str | None,
    description: str,
    panel: ReferencePanel | None,
    model: str | Path | None = None,
) -> None:
    """Raise InputError if the row has another name than `name`, or if its predictor cannot read the panel.

    A name or panel of None is not checked. `description` and `model` are for the error messages.
    """
    if name is not None and row_by_name(name) != row:
        raise InputError(
            "mismatch", f"{description} is of the kind {row.kind!r} and does not fit the predictor {name!r}"
        )
    if panel is not None and panel.holds not in row.reads:
        of = "" if model is None else f" of the model {model}"
        others = " or ".join(repr(other.name) for other in PREDICTORS if panel.holds in other.reads)
        raise InputError(
            "arguments",
            f"{panel.path}: the panel holds {panel.holds} and no {' or '.join(row.reads)}. The predictor "
            f"{row.name!r}{of} cannot read it, {others} can. Give a panel of {' or '.join(row.reads)}, or "
            f"leave out {'the predictor' if model is None else 'the model'}.",
        )


def environment() -> dict[str, str]:
    """Return the versions on which results depend, by name.

    These are the versions of spinimpute, its shipped models, Python, each required or optional library, the
    operating system, the number of processors, and the GPU.
    """
    versions = {"spinimpute": version("spinimpute")}
    for row in sorted(registry.PREDICTORS, key=lambda row: row.name):
        if row.shipped is not None:
            weights, _ = load_tensors(row.shipped_checkpoint, FORMAT, "model")
            versions[f"model {row.name}"] = fingerprint(weights)
    versions["python"] = platform.python_version()
    required = [line for line in requires("spinimpute") or [] if "extra ==" not in line]
    optional = [package for package, _ in OPTIONAL.values()]
    for name in sorted([*(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required), *optional]):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed" if name in optional else "missing"
    versions["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    versions["processors"] = str(choose_threads(None))
    versions["gpu"] = name_gpu() or "none that PyTorch can use"
    return versions
