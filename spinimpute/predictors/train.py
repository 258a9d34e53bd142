"""`train`: a configuration in, a checkpoint out."""

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
from spinimpute.predictors.registry import PredictorRow, imported, row_of_kind
from spinimpute.runtime.devices import choose_device
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import CannotWrite, check_output
from spinimpute.runtime.processes import all_processes, is_first, launch, local_device, restarted
from spinimpute.runtime.tensor_files import fingerprint, load_tensors, save_tensors
from spinimpute.training.episodes import EpisodeSettings
from spinimpute.training.simulation import SimulationSettings
from spinimpute.training.sources import PanelSource, SimulatedSource
from spinimpute.training.state import TrainingState
from spinimpute.training.trainer import STATE_FORMAT, Learner, Trainer, TrainingSettings, versions

DEFAULT_SEGMENTS = 300
VALIDATION_SEGMENTS = 12
NAMES: dict[type, str] = {int: "a whole number", float: "a number", str: "a text"}
MAY_BE_ZERO = {"flank", "most_entries", "patience", "seed"}

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class TrainingResult:
    """Where the checkpoint is, and the validation of its model: the best one."""

    path: Path
    steps: int
    validation_loss: float
    validation_r2: float


@dataclass(frozen=True)
class Configuration:
    """A configuration file.

    Attributes
    ----------
    kind : str
        Of the model, as in the registry.
    model : dataclass
        The settings of the predictor's row.
    episodes : EpisodeSettings
        The table [episodes].
    simulation : SimulationSettings
        The table [simulation].
    segments : int
        Number of simulated segments that training sees.
    training : TrainingSettings
        The table [training].
    chosen : dict
        The values that the file's [model] names.
    """

    kind: str
    model: Any
    episodes: EpisodeSettings
    simulation: SimulationSettings
    segments: int
    training: TrainingSettings
    chosen: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        del plain["chosen"]  # a part of "model"
        return plain


def read_configuration(path: str | Path) -> Configuration:
    """Read a TOML file with the tables [model], [episodes], [simulation] and [training].

    Parameters
    ----------
    path : str or Path
        The file. Every key but model.kind has a default.

    Returns
    -------
    Configuration
        With all defaults.

    Raises
    ------
    InputError
        The file cannot be read, or has an unknown key or a value that cannot be used.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError("read", f"configuration {path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("content", f"configuration {path}: not TOML: {error}") from error
    unknown = set(content) - {"model", "episodes", "simulation", "training"}
    if unknown:
        raise InputError("content", f"configuration {path}: unknown table [{sorted(unknown)[0]}]")
    for table, values in content.items():
        if not isinstance(values, dict):
            raise InputError("content", f"configuration {path}: {table} must be a table, found {values!r}")
    model = dict(content.get("model", {}))
    kind = model.pop("kind", None)
    trained = {row.kind: row.training.settings for row in registry.PREDICTORS if row.training is not None}
    if not isinstance(kind, str) or kind not in trained:
        raise InputError(
            "content", f"configuration {path}: model.kind must be one of {', '.join(trained)}, found {kind!r}"
        )
    simulation = dict(content.get("simulation", {}))
    where = f"configuration {path}: simulation.segments"
    segments = _value(where, DEFAULT_SEGMENTS, simulation.pop("segments", DEFAULT_SEGMENTS))
    settings: Any = _settings(path, "model", imported(trained[kind]), model)
    return Configuration(
        kind,
        settings,
        _settings(path, "episodes", EpisodeSettings, content.get("episodes", {})),
        _settings(path, "simulation", SimulationSettings, simulation),
        segments,
        _settings(path, "training", TrainingSettings, content.get("training", {})),
        {name: getattr(settings, name) for name in model},
    )


def _settings(path: Path, table: str, kind: type[Settings], values: dict[str, Any]) -> Settings:
    """A settings dataclass from a TOML table: numbers stay numbers, pairs become tuples."""
    defaults = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    pairs = {f.name for f in fields(kind) if "..." not in str(f.type)}  # type: ignore[arg-type]
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in defaults:
            raise InputError(
                "content",
                f"configuration {path}: unknown key {table}.{name}; known are {', '.join(sorted(defaults))}",
            )
        where = f"configuration {path}: {table}.{name}"
        out[name] = _value(where, defaults[name], value)
        if isinstance(out[name], tuple) and name in pairs:
            _check_range(where, out[name])
        smallest = 0 if name in MAY_BE_ZERO else 1
        if isinstance(out[name], int) and out[name] < smallest:
            raise InputError("content", f"{where} must be at least {smallest}, found {value}")
        if isinstance(out[name], float) and not 0 <= out[name] < math.inf:
            raise InputError("content", f"{where} must be a number of at least 0, found {value}")
    try:
        return kind(**out)
    except ValueError as error:
        raise InputError("content", f"configuration {path}: {table}: {error}") from error


def _check_range(where: str, value: tuple[Any, ...]) -> None:
    if len(value) != 2 or not 0 < value[0] <= value[1] < math.inf:
        raise InputError(
            "content", f"{where} must be [least, most] with 0 < least <= most, found {list(value)}"
        )


def _value(where: str, default: Any, value: Any) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, list) or not value:
            raise InputError("content", f"{where} must be a list like {list(default)}, found {value!r}")
        return tuple(_value(where, default[0], v) for v in value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise InputError(
            "content", f"{where} must be {NAMES[type(default)]} like {default!r}, found {value!r}"
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
    """Meta-train a model and write the one that validated best to `out`.

    Started by torchrun, processes share the tasks of each update (training.tasks in the configuration); the
    first one writes, and a run that torchrun restarts after a failure continues from its state.

    Parameters
    ----------
    config : str or Path
        TOML, see `read_configuration` and `configs/`.
    out : str or Path
        The checkpoint to write; state and log are written beside it.
    panel : str or Path, optional
        A `.spin` panel whose own samples take turns as queries, instead of simulated segments.
    init : str or Path, optional
        A checkpoint to start from, or "shipped"; settings that the configuration's [model] does not name are
        taken from it.
    resume : bool
        Continue from `<out>.state`, bit for bit on the CPU.
    device : str
        "auto", "cpu" or "cuda".
    threads : int, optional
        Of torch; by default its own choice.
    seed, steps : int, optional
        In place of those of the configuration.
    force : bool
        Replace existing files.
    log : str or Path, optional
        JSON lines, by default `<out>.log.jsonl`.
    progress : callable, optional
        Called with each log entry.
    stepped : callable, optional
        Called with the number of each step when it has been made.

    Returns
    -------
    TrainingResult
        The checkpoint and its validation.

    Raises
    ------
    InputError
        The configuration, panel or checkpoint is unusable, or `out` exists and neither `force` nor `resume`
        is set.
    ImportError
        msprime is absent and no panel is given.
    """
    out = Path(out)
    state = out.with_name(out.name + ".state")
    log = Path(log) if log is not None else out.with_name(out.name + ".log.jsonl")
    for own in (out, state):
        if log.resolve() == own.resolve():
            raise InputError(
                "write", f"the log cannot be written to {log}: {own.name} goes there; give another name"
            )
    resume = resume or _continues(state)
    if is_first():
        check_output(
            out, force or resume, [config, panel, init], f" or {argument('resume', True)} to continue"
        )
        check_output(log, force or resume, [config, panel, init, out, state])
        check_output(state, force or resume, [config, panel, init, out])
    if resume and not state.exists():
        raise InputError("content", f"{argument('resume', True)}: there is no {state} to continue from")
    where = local_device(choose_device(device))
    if threads is not None:
        torch.set_num_threads(threads)
    configuration = read_configuration(config)
    training = _replaced(configuration.training, seed=seed, steps=steps)
    model = configuration.model
    start = None if init is None else _start(init, configuration)
    if start is not None:
        model = replace(model, **start.settings | configuration.chosen)
    torch.manual_seed(training.seed)
    try:
        learner = _learner(configuration.kind, model, configuration.episodes, where)
    except ValueError as error:
        raise InputError("content", f"configuration {config}: no model has these sizes: {error}") from error
    if start is not None:
        try:
            load_weights(learner.model, start.weights)
        except RuntimeError as error:
            raise InputError(
                "content", f"--init {init}: its weights do not fit the sizes in [model] of {config}: {error}"
            ) from error
    with ExitStack() as stack:
        opened = None if panel is None else stack.enter_context(Panel.open(panel))
        processes = stack.enter_context(all_processes(where))
        source = (
            SimulatedSource(training.seed, configuration.segments, configuration.simulation)
            if opened is None
            else PanelSource(opened, training.seed)
        )
        provenance = {
            "configuration": configuration.as_dict() | {"training": asdict(training)},
            "data": "simulated" if opened is None else f"panel {opened.checksum}",
            "init": None if start is None else start.provenance,
            "versions": versions(),
        }
        validation = source.validation(VALIDATION_SEGMENTS)
        trainer = Trainer(learner, training, source, validation, provenance, processes)
        if resume:
            trainer.restore_state(state)
        elif processes.first:
            trainer.save_state(state)  # so that there is always a state to continue from
        settings = asdict(model)
        return _run(
            trainer,
            learner,
            out,
            state,
            log,
            configuration.kind,
            settings,
            provenance,
            resume,
            progress,
            stepped,
        )


def _continues(state: Path) -> bool:
    """Whether torchrun has started this process again, and the state is of its first start."""
    if not (restarted() and state.exists()):
        return False
    return TrainingState.load(state, STATE_FORMAT).launch == launch()


@dataclass(frozen=True)
class _Start:
    """A checkpoint to start from."""

    weights: dict[str, np.ndarray]
    settings: dict[str, Any]
    provenance: dict[str, Any]


def _start(init: str | Path, configuration: Configuration) -> _Start:
    path = _row(configuration.kind).shipped_checkpoint if init == "shipped" else init
    weights, metadata = load_tensors(path, FORMAT, "model")
    if metadata.get("kind") != configuration.kind:
        raise InputError(
            "content",
            f"--init {init} is of the kind {metadata.get('kind')!r}, the configuration's model.kind is "
            f"{configuration.kind!r}",
        )
    provenance = {"weights": fingerprint(weights), "provenance": metadata.get("provenance")}
    return _Start(weights, metadata["model"], provenance)


def _replaced(training: TrainingSettings, **values: int | None) -> TrainingSettings:
    return TrainingSettings(**asdict(training) | {k: v for k, v in values.items() if v is not None})


def _row(kind: str) -> PredictorRow:
    row = row_of_kind(kind)
    assert row is not None, "`read_configuration` has looked for it"
    return row


def _learner(kind: str, model: Any, episodes: EpisodeSettings, device: torch.device) -> Learner:
    training = _row(kind).training
    assert training is not None, "`read_configuration` has looked for it"
    learner: Learner = imported(training.learner)(model, episodes, device)
    return learner


def _run(
    trainer: Trainer,
    learner: Learner,
    out: Path,
    state: Path,
    log: Path,
    kind: str,
    settings: dict[str, Any],
    provenance: dict[str, Any],
    resume: bool,
    progress: Callable[[dict[str, Any]], None] | None,
    stepped: Callable[[int], None] | None,
) -> TrainingResult:
    best: dict[str, Any] = {}
    first = trainer.processes.first
    with (log if first else Path(os.devnull)).open("a" if resume else "w") as lines:

        def report(entry: dict[str, Any]) -> None:
            try:
                lines.write(json.dumps(entry) + "\n")
                lines.flush()
            except OSError as error:
                raise CannotWrite(log, error) from error
            if "validation_loss" in entry:
                best["latest"] = entry
            if first and progress is not None:
                progress(entry)

        def checkpoint(improved: bool) -> None:
            if improved:
                best["entry"] = best["latest"]
            if not first:
                return
            if improved:
                metadata = {
                    "kind": kind,
                    "model": settings,
                    "provenance": provenance | {"step": trainer.step, "validation": best["entry"]},
                }
                save_tensors(out, arrays_of(learner.model.state_dict()), metadata, FORMAT)
            trainer.save_state(state)

        report({"configuration": provenance, "weights": sum(p.numel() for p in learner.model.parameters())})
        trainer.train(report, checkpoint, stepped if first else None)
    if "entry" not in best:  # resumed, and no better than before the interruption
        _, metadata = load_tensors(out, FORMAT, "model")
        best["entry"] = metadata["provenance"]["validation"]
    entry = best["entry"]
    return TrainingResult(out, trainer.step, entry["validation_loss"], entry["validation_r2"])
