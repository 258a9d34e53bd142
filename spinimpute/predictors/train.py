"""The function `train`: it reads a configuration file, trains a predictor's network and writes a checkpoint.

The training data are simulated genomes or the haplotypes of a panel. A run writes three files: the
checkpoint of the model that validated best, the state from which an interrupted run can be resumed, and a
log. The loop itself is in `spinimpute.training.trainer`.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from spinimpute.nn.model_weights import arrays_of, load_weights
from spinimpute.panels.panel import Panel
from spinimpute.predictors import registry
from spinimpute.predictors.loading import FORMAT
from spinimpute.predictors.registry import PredictorRow, import_attribute, row_by_kind
from spinimpute.runtime.devices import choose_device
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import CannotWrite, check_output
from spinimpute.runtime.processes import all_processes, is_first, launch_id, local_device, restarted
from spinimpute.runtime.tensor_files import fingerprint, load_tensors, save_tensors
from spinimpute.training.episodes import EpisodeSettings
from spinimpute.training.simulation import SimulationSettings
from spinimpute.training.sources import PanelSource, SimulatedSource
from spinimpute.training.state import TrainingState
from spinimpute.training.trainer import STATE_FORMAT, Learner, Trainer, TrainingSettings, versions

DEFAULT_SEGMENTS = 300  # simulated segments for training
VALIDATION_SEGMENTS = 12
TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text"}
MAY_BE_ZERO = {"flank", "most_entries", "patience", "seed"}  # other whole numbers must be at least 1

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run."""

    path: Path  # checkpoint of the best model
    steps: int  # number of training steps in all
    validation_loss: float  # of the best model
    validation_r2: float  # of the best model


@dataclass(frozen=True)
class Configuration:
    """The contents of a configuration file, with defaults for the missing keys."""

    kind: str  # `PredictorRow.kind` of the model
    model: Any  # all settings of the model, an instance of `PredictorRow.training.settings`
    episodes: EpisodeSettings
    simulation: SimulationSettings
    segments: int  # number of simulated segments for training
    training: TrainingSettings
    explicit_model: dict[str, Any]  # only the settings that are in the file's table [model]

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-compatible values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        del plain["explicit_model"]  # contained in "model"
        return plain


def read_configuration(path: str | Path) -> Configuration:
    """Read a TOML file with the tables [model], [episodes], [simulation] and [training].

    The key model.kind is required; all other keys have defaults. Raise InputError if the file cannot be read,
    a key is unknown, or a value is not allowed.
    """
    path = Path(path)
    where = f"configuration {path}"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError("read", f"{where}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("content", f"{where}: not TOML: {error}") from error
    unknown = set(content) - {"model", "episodes", "simulation", "training"}
    if unknown:
        raise InputError("content", f"{where}: unknown table [{sorted(unknown)[0]}]")
    for table, values in content.items():
        if not isinstance(values, dict):
            raise InputError("content", f"{where}: {table} must be a table, got {values!r}")
    model = dict(content.get("model", {}))
    kind = model.pop("kind", None)
    trained = {row.kind: row.training.settings for row in registry.PREDICTORS if row.training is not None}
    if not isinstance(kind, str) or kind not in trained:
        raise InputError("content", f"{where}: model.kind must be one of {', '.join(trained)}, got {kind!r}")
    simulation = dict(content.get("simulation", {}))
    segments = simulation.pop("segments", DEFAULT_SEGMENTS)
    segments = _checked_value(f"{where}: simulation.segments", DEFAULT_SEGMENTS, segments)
    settings: Any = _settings(where, "model", import_attribute(trained[kind]), model)
    return Configuration(
        kind,
        settings,
        _settings(where, "episodes", EpisodeSettings, content.get("episodes", {})),
        _settings(where, "simulation", SimulationSettings, simulation),
        segments,
        _settings(where, "training", TrainingSettings, content.get("training", {})),
        {name: getattr(settings, name) for name in model},
    )


def _settings(file: str, table: str, kind: type[Settings], values: dict[str, Any]) -> Settings:
    """Return an instance of the settings dataclass `kind` with the values of a TOML table.

    Lists become tuples. Raise InputError if a key is unknown or a value is not allowed.
    """
    defaults = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    pairs = {f.name for f in fields(kind) if "..." not in str(f.type)}  # type: ignore[arg-type]
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in defaults:
            raise InputError(
                "content",
                f"{file}: unknown key {table}.{name}. Known keys are {', '.join(sorted(defaults))}.",
            )
        where = f"{file}: {table}.{name}"
        out[name] = _checked_value(where, defaults[name], value)
        if isinstance(out[name], tuple) and name in pairs:
            pair = out[name]
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] < math.inf:
                raise InputError(
                    "content",
                    f"{where} must be [minimum, maximum] with 0 < minimum <= maximum, got {list(pair)}",
                )
        smallest = 0 if name in MAY_BE_ZERO else 1
        if isinstance(out[name], int) and out[name] < smallest:
            raise InputError("content", f"{where} must be at least {smallest}, got {value}")
        if isinstance(out[name], float) and not 0 <= out[name] < math.inf:
            raise InputError("content", f"{where} must be a number of at least 0, got {value}")
    try:
        return kind(**out)
    except ValueError as error:
        raise InputError("content", f"{file}: {table}: {error}") from error


def _checked_value(where: str, default: Any, value: Any) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, list) or not value:
            raise InputError("content", f"{where} must be a list like {list(default)}, got {value!r}")
        return tuple(_checked_value(where, default[0], v) for v in value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise InputError(
            "content", f"{where} must be {TYPE_NAMES[type(default)]} like {default!r}, got {value!r}"
        )
    return value


def train(
    config: str | Path,
    out: str | Path,
    *,
    panel: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    threads: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    force: bool = False,
    log: str | Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    stepped: Callable[[int], None] | None = None,
) -> TrainingResult:
    """Meta-train a model and write the checkpoint with the lowest validation loss to `out`.

    Under torchrun, several processes share the tasks of each update (training.tasks in the configuration),
    and the first process writes the files. If torchrun restarts a run after a failure, training continues
    from the last saved state.

    Parameters
    ----------
    config : str or Path
        Configuration file (TOML); the folder `configs` has examples.
    out : str or Path
        The checkpoint to write. The state and the log are written to the same folder.
    panel : str or Path, optional
        A `.spin` panel to train on instead of simulated segments. Each task imputes some of its samples from
        the others.
    init : str or Path, optional
        A checkpoint to start from, or "shipped". Settings that the configuration's table [model] does not
        name are taken from the checkpoint.
    resume : bool
        Continue an interrupted run from `<out>.state`. On the CPU the result is bit for bit that of an
        uninterrupted run.
    device : str
        Where to compute: "auto", "cpu" or "cuda".
    threads : int, optional
        Number of torch threads, by default torch's own choice.
    seed, steps : int, optional
        Random seed and number of steps, in place of training.seed and training.steps of the configuration.
    force : bool
        Overwrite existing files.
    log : str or Path, optional
        Log file (JSON lines), by default `<out>.log.jsonl`.
    progress : callable, optional
        Called with each log entry.
    stepped : callable, optional
        Called after each step with the number of the step.

    Returns
    -------
    TrainingResult
        Path and validation of the checkpoint.

    Raises
    ------
    InputError
        The configuration, panel or checkpoint cannot be used, `out` exists and neither `force` nor `resume`
        is set, or no panel is given and msprime is not installed.
    """
    outputs = _name_outputs(Path(out), log)
    resume = resume or _is_restarted_from(outputs.state)
    if is_first():
        _check_outputs(outputs, [config, panel, init], overwrite=force or resume)
    if resume and not outputs.state.exists():
        raise InputError(
            "not-found", f"{argument('resume', True)}: there is no {outputs.state} to continue from"
        )
    torch_device = local_device(choose_device(device))
    if threads is not None:
        torch.set_num_threads(threads)
    configuration = read_configuration(config)
    overrides: dict[str, Any] = {"seed": seed, "steps": steps}
    given = {name: value for name, value in overrides.items() if value is not None}
    training = replace(configuration.training, **given)
    configuration = replace(configuration, training=training)
    learner, model, initial_weights = _make_learner(configuration, config, init, torch_device)
    with ExitStack() as stack:
        opened_panel = None if panel is None else stack.enter_context(Panel.open(panel))
        processes = stack.enter_context(all_processes(torch_device))
        source = (
            SimulatedSource(training.seed, configuration.segments, configuration.simulation)
            if opened_panel is None
            else PanelSource(opened_panel, training.seed)
        )
        provenance = {
            "configuration": configuration.as_dict(),
            "data": "simulated" if opened_panel is None else f"panel {opened_panel.checksum}",
            "init": initial_weights,
            "versions": versions(),
        }
        held_out = source.validation(VALIDATION_SEGMENTS)
        trainer = Trainer(learner, training, source, held_out, provenance, processes)
        if resume:
            trainer.restore_state(outputs.state)
        elif processes.first:
            trainer.save_state(outputs.state)  # a run can be resumed even if its first step fails
        description = {"kind": configuration.kind, "model": asdict(model), "provenance": provenance}
        return _run(trainer, outputs, description, resume, progress, stepped)


@dataclass(frozen=True)
class _Outputs:
    """The output files of a run."""

    checkpoint: Path
    state: Path
    log: Path


def _name_outputs(out: Path, log: str | Path | None) -> _Outputs:
    """Return the output files. Raise InputError if the log has the name of another output."""
    state = out.with_name(out.name + ".state")
    log = Path(log) if log is not None else out.with_name(out.name + ".log.jsonl")
    for output in (out, state):
        if log.resolve() == output.resolve():
            raise InputError(
                "arguments", f"{log}: the log would overwrite {output.name}. Give it another name."
            )
    return _Outputs(out, state, log)


def _is_restarted_from(state: Path) -> bool:
    """Return whether torchrun restarted this run after a failure, and the failed attempt saved its state."""
    return restarted() and state.exists() and TrainingState.load(state, STATE_FORMAT).launch == launch_id()


def _check_outputs(outputs: _Outputs, inputs: list[object], overwrite: bool) -> None:
    """Raise InputError if an output is an input, cannot be created, or exists and `overwrite` is false."""
    out, state = outputs.checkpoint, outputs.state
    check_output(out, overwrite, inputs, f" or {argument('resume', True)} to continue")
    check_output(outputs.log, overwrite, [*inputs, out, state])
    check_output(state, overwrite, [*inputs, out])


def _make_learner(
    configuration: Configuration, path: str | Path, init: str | Path | None, device: torch.device
) -> tuple[Learner, Any, dict[str, Any] | None]:
    """Return the learner, the settings of its model, and a description of the initial weights, if given.

    `path` is the path of the configuration file, for messages.
    """
    row = row_by_kind(configuration.kind)
    assert row is not None, "`read_configuration` has checked it"
    assert row.training is not None, "`read_configuration` has checked it"
    model, description, weights = configuration.model, None, None
    if init is not None:
        weights, metadata = _read_initial_weights(init, row)
        description = {"weights": fingerprint(weights), "provenance": metadata.get("provenance")}
        model = replace(model, **metadata["model"] | configuration.explicit_model)
    torch.manual_seed(configuration.training.seed)
    try:
        learner: Learner = import_attribute(row.training.learner)(model, configuration.episodes, device)
    except ValueError as error:
        raise InputError("content", f"configuration {path}: model: {error}") from error
    if weights is not None:
        try:
            load_weights(learner.model, weights)
        except RuntimeError as error:
            raise InputError(
                "mismatch",
                f"{argument('init', str(init))}: weights do not fit the table [model] of {path}: {error}",
            ) from error
    return learner, model, description


def _read_initial_weights(
    init: str | Path, row: PredictorRow
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights and metadata of a checkpoint. `init` is its path, or "shipped"."""
    weights, metadata = load_tensors(row.shipped_checkpoint if init == "shipped" else init, FORMAT, "model")
    if metadata.get("kind") != row.kind:
        raise InputError(
            "mismatch",
            f"{argument('init', str(init))} is of the kind {metadata.get('kind')!r}, but model.kind of the "
            f"configuration is {row.kind!r}",
        )
    return weights, metadata


def _run(
    trainer: Trainer,
    outputs: _Outputs,
    description: dict[str, Any],
    resume: bool,
    progress: Callable[[dict[str, Any]], None] | None,
    stepped: Callable[[int], None] | None,
) -> TrainingResult:
    """Train, and write the log, the best model and the states. `description`: metadata of the checkpoint."""
    provenance = description["provenance"]
    latest: dict[str, Any] | None = None  # log entry of the latest validation
    best: dict[str, Any] | None = None  # log entry of the best validation of this run
    first = trainer.processes.first
    with (outputs.log if first else Path(os.devnull)).open("a" if resume else "w") as lines:

        def report(entry: dict[str, Any]) -> None:
            nonlocal latest
            try:
                lines.write(json.dumps(entry) + "\n")
                lines.flush()
            except OSError as error:
                raise CannotWrite(outputs.log, error) from error
            if "validation_loss" in entry:
                latest = entry
            if first and progress is not None:
                progress(entry)

        def checkpoint(improved: bool) -> None:
            nonlocal best
            if improved:
                best = latest
            if first and improved:
                best_step = {"step": trainer.step, "validation": best}
                metadata = description | {"provenance": provenance | best_step}
                save_tensors(outputs.checkpoint, arrays_of(trainer.model.state_dict()), metadata, FORMAT)
            if first:
                trainer.save_state(outputs.state)

        report({"configuration": provenance, "weights": sum(p.numel() for p in trainer.model.parameters())})
        trainer.train(report, checkpoint, stepped if first else None)
    if best is None:  # a resumed run without improvement: the checkpoint holds the best model
        _, metadata = load_tensors(outputs.checkpoint, FORMAT, "model")
        best = metadata["provenance"]["validation"]
    return TrainingResult(outputs.checkpoint, trainer.step, best["validation_loss"], best["validation_r2"])
