"""Loads predictors from checkpoints, by the rows of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors.interface import Predictor, UnfitWeights
from spinimpute.predictors.registry import (
    PREDICTORS,
    PredictorRow,
    default_row,
    imported,
    row_named,
    row_of_kind,
)
from spinimpute.runtime.devices import choose_device
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.tensor_files import fingerprint, load_tensors

FORMAT = "spinimpute-checkpoint-1"  # safetensors files with the weights, settings and provenance of a model


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
        Name of the predictor. It chooses a shipped checkpoint; a given checkpoint must be of this predictor.
    options : mapping, optional
        Options of the loaded predictor, such as `inducing_points`.

    Returns
    -------
    Predictor
        Ready to impute.

    Raises
    ------
    InputError
        The file is not a checkpoint, of an unknown kind, or damaged; or the predictor does not take the
        options.
    """
    given = _without_none(options)
    row, weights, settings = _checkpoint(path, name, None, given)
    chosen = row.choose_options(given)
    for option in row.options:
        if option.name in given and not option.loading:
            raise InputError("arguments", f"{option.name} is an option of imputing, not of loading")
    return _load(row, path, weights, settings, device, chosen)


def predictor_for(
    panel: ReferencePanel,
    model: str | Path | Predictor | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> tuple[Predictor, dict[str, Any]]:
    """Find the predictor for a panel, and the values of all its options.

    The model is a checkpoint or a loaded predictor, which keeps its device; by default the shipped checkpoint
    of the named predictor, or of the first predictor in the registry that reads the panel. None stands for
    the default of an option. Raises InputError as `load_predictor` does, and if the predictor does not read
    the panel.
    """
    given = _without_none(options)
    if model is None or isinstance(model, str | Path):
        row, weights, settings = _checkpoint(model, name, panel, given)
        _check_reads(row, panel, model)
        chosen = row.choose_options(given)
        found = _load(row, model, weights, settings, device, chosen)
    else:
        own_row = row_of_kind(model.kind)
        if own_row is None:
            raise InputError(
                "argument", f"the predictor is of the kind {model.kind!r}, which has no row in the registry"
            )
        row, found = own_row, model
        _check_name(row, name, "the loaded predictor")
        _check_reads(row, panel)
        chosen = row.choose_options(given)
        for option in row.options:
            if option.name in given and option.loading:
                raise InputError(
                    "arguments",
                    f"{option.name} is an option of loading. Give it to spinimpute.load_predictor(...).",
                )
    found.check_panel(panel, given)
    return found, chosen


def _without_none(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if value is not None}


def _checkpoint(
    path: str | Path | None, name: str | None, panel: ReferencePanel | None, given: Mapping[str, Any]
) -> tuple[PredictorRow, dict[str, Any], Any]:
    """Read a checkpoint: the predictor's row, weights and settings (JSON, which may be wrong)."""
    shipped = path is None
    if path is None:
        row = default_row(None if panel is None else panel.holds, given) if name is None else row_named(name)
        if panel is not None:
            _check_reads(row, panel)
        if not row.has_weights:
            return row, {}, {}
        path = row.shipped_checkpoint
    elif name is not None and not row_named(name).has_weights:
        raise InputError("arguments", f"the predictor {name!r} has no weights. Leave out the model {path}.")
    weights, metadata = load_tensors(path, FORMAT, "model")
    found = row_of_kind(metadata.get("kind"))
    if found is None:
        raise InputError(
            "content",
            f"{path}: models of the kind {metadata.get('kind')!r} are unknown to this version. "
            "Update spinimpute, or train the model again.",
        )
    _check_name(found, name, f"model {path}")
    try:
        found.choose_options(given)
    except InputError as error:
        if shipped:
            raise
        raise InputError("arguments", f"model {path}: {error}") from error
    return found, weights, metadata.get("model")


def _check_name(row: PredictorRow, name: str | None, what: str) -> None:
    if name is not None and row_named(name) != row:
        raise InputError(
            "mismatch", f"{what} is of the kind {row.kind!r} and does not fit the predictor {name!r}"
        )


def _check_reads(row: PredictorRow, panel: ReferencePanel, model: str | Path | None = None) -> None:
    if panel.holds not in row.reads:
        of = "" if model is None else f" of the model {model}"
        others = " or ".join(repr(other.name) for other in PREDICTORS if panel.holds in other.reads)
        raise InputError(
            "arguments",
            f"{panel.path}: the panel holds {panel.holds} and no {' or '.join(row.reads)}. The predictor "
            f"{row.name!r}{of} cannot read it, {others} can. Give a panel of {' or '.join(row.reads)}, or "
            f"leave out {'the predictor' if model is None else 'the model'}.",
        )


def _load(
    row: PredictorRow,
    path: str | Path | None,
    weights: dict[str, Any],
    settings: Any,
    device: str,
    chosen: dict[str, Any],
) -> Predictor:
    if row.auto_device is None and device == "cuda":
        raise InputError(
            "arguments",
            f"the predictor {row.name!r} only computes on the processor. Leave out {argument('device')}.",
        )
    where = choose_device((row.auto_device or "cpu") if device == "auto" else device)
    load = imported(row.load)
    try:
        predictor: Predictor = load(weights, settings, fingerprint(weights), where, chosen)
    except UnfitWeights as error:
        raise InputError(
            "damaged",
            f"{path or row.shipped}: the weights do not fit the settings of the model ({error}). "
            "Copy the file again.",
        ) from error
    return predictor
