"""Loads the predictor of a checkpoint, as its row of the registry says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors.interface import Predictor, UnfitWeights
from spinimpute.predictors.registry import (
    PREDICTORS,
    RETIRED_KINDS,
    PredictorRow,
    default_row,
    imported,
    row_named,
    row_of_kind,
)
from spinimpute.runtime.devices import choose_device
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.tensor_files import fingerprint, load_tensors

FORMAT = "spinimpute-checkpoint-1"  # of safetensors files with all that rebuilds and traces a model


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
        By default the shipped one.
    device : str
        "auto", "cpu" or "cuda".
    name : str, optional
        Name of the predictor: chooses a shipped checkpoint; a given checkpoint must be of this predictor.
    options : mapping, optional
        Options that belong to the loaded predictor, such as `inducing_points`.

    Returns
    -------
    Predictor
        Ready to impute.

    Raises
    ------
    InputError
        The file is no checkpoint, of an unknown kind, or damaged; the predictor does not take the options.
    """
    given = _given(options)
    row, weights, settings = _checkpoint(path, name, None, given)
    chosen = row.chosen(given)
    for option in row.options:
        if option.name in given and not option.loading:
            raise InputError("content", f"{option.name} is an option of imputing, not of a loaded predictor")
    return _load(row, path, weights, settings, device, chosen)


def predictor_for(
    panel: ReferencePanel,
    model: str | Path | Predictor | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> tuple[Predictor, dict[str, Any]]:
    """The predictor for a panel, and all of its options.

    Parameters
    ----------
    panel : ReferencePanel
        The panel that it will read.
    model : str, Path or Predictor, optional
        A checkpoint or a loaded predictor; by default the shipped checkpoint.
    name : str, optional
        Name of the predictor; by default that of the model, or the first of the registry that reads the
        panel.
    options : mapping, optional
        Options of the predictor; None stands for a default.
    device : str
        "auto", "cpu" or "cuda"; a loaded predictor keeps its own.

    Returns
    -------
    Predictor
        Ready to impute.
    dict
        All of its options, with defaults.

    Raises
    ------
    InputError
        As `load_predictor`, and if the predictor cannot read the panel.
    """
    given = _given(options)
    if model is None or isinstance(model, str | Path):
        row, weights, settings = _checkpoint(model, name, panel, given)
        _check_reads(row, panel, model)
        chosen = row.chosen(given)
        found = _load(row, model, weights, settings, device, chosen)
    else:
        known = row_of_kind(model.kind)
        if known is None:
            raise InputError(
                "content", f"the predictor is of the kind {model.kind!r}, which has no row in the registry"
            )
        row, found = known, model
        _check_name(row, name, "the loaded predictor")
        _check_reads(row, panel)
        chosen = row.chosen(given)
        for option in row.options:
            if option.name in given and option.loading:
                raise InputError(
                    "content", f"{option.name} goes with a checkpoint: give it to load_predictor"
                )
    found.check_panel(panel, given)
    return found, chosen


def _given(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if value is not None}


def _checkpoint(
    path: str | Path | None, name: str | None, panel: ReferencePanel | None, given: Mapping[str, Any]
) -> tuple[PredictorRow, dict[str, Any], Any]:
    """The predictor's row, its weights and its settings (JSON that may be wrong)."""
    shipped = path is None
    if path is None:
        row = default_row(None if panel is None else panel.holds, given) if name is None else row_named(name)
        if panel is not None:
            _check_reads(row, panel)
        if not row.has_weights:
            return row, {}, {}
        path = row.shipped_checkpoint
    elif name is not None and not row_named(name).has_weights:
        raise InputError("arguments", f"the predictor {name!r} has no weights: leave out the model {path}")
    weights, metadata = load_tensors(path, FORMAT, "model")
    kind = metadata.get("kind")
    found = row_of_kind(kind)
    if kind in RETIRED_KINDS:
        raise InputError(
            "content", f"model {path} is of the kind {kind!r}, which earlier versions had: train it anew"
        )
    if found is None:
        raise InputError("content", f"model {path} is of the kind {kind!r}, unknown here: update spinimpute")
    _check_name(found, name, f"model {path}")
    try:
        found.chosen(given)
    except InputError as error:
        if shipped:
            raise
        raise InputError("content", f"model {path}: {error}") from error  # only the file says whose it is
    return found, weights, metadata.get("model")


def _check_name(row: PredictorRow, name: str | None, what: str) -> None:
    if name is not None and row_named(name) != row:
        raise InputError("content", f"{what} is of the kind {row.kind!r}, not one for the predictor {name!r}")


def _check_reads(row: PredictorRow, panel: ReferencePanel, model: str | Path | None = None) -> None:
    if panel.holds not in row.reads:
        of = "" if model is None else f" of the model {model}"
        others = " or ".join(repr(other.name) for other in PREDICTORS if panel.holds in other.reads)
        raise InputError(
            "arguments",
            f"{panel.path} holds {panel.holds} and no {' or '.join(row.reads)}: the predictor {row.name!r}"
            f"{of} cannot read it, {others} can; give a panel of {' or '.join(row.reads)}, or leave out "
            f"{'the predictor' if model is None else 'the model'}",
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
            f"the predictor {row.name!r} computes on the processor alone: leave out {argument('device')}",
        )
    where = choose_device((row.auto_device or "cpu") if device == "auto" else device)
    load = imported(row.load)
    try:
        predictor: Predictor = load(weights, settings, fingerprint(weights), where, chosen)
    except UnfitWeights as error:
        raise InputError(
            "damaged",
            f"model {path or row.shipped}: its weights do not fit its description ({error}); copy it again",
        ) from error
    return predictor
