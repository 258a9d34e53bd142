"""Train models on tasks of one range of context sizes: log-likelihood and its gap to the oracle."""

from __future__ import annotations

import argparse
import functools
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import (
    INDUCING,
    STEPS,
    find_folder,
    folder_of,
    machine,
    mean_and_spread,
    run_name,
)
from spinimpute.neural_processes.evaluation import score
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, draw_tasks
from spinimpute.neural_processes.settings import KINDS, PUBLISHED, ModelSettings, Source
from spinimpute.neural_processes.training import DrawBatch, NeuralProcessTrainer, TrainingSettings, load_model
from spinimpute.training.loop import Report

KEPT_TASKS = 2_000  # batches that are kept in memory, unless training is longer
LOOKS = 60  # validations of a long run
VALIDATION_SEED = 123_456_789  # differs from the seeds of training and of the final test
VALIDATION_BATCHES = 20


def train(arguments: argparse.Namespace) -> None:
    low, high = arguments.context
    tasks = ProcessSettings(kernel=arguments.kernel, context=(low, high), tasks=arguments.tasks)
    track = "" if arguments.kernel == "rbf" else f"-{arguments.kernel}"
    track += "" if arguments.floor == 0.1 else f"-floor-{arguments.floor:g}"
    track += "-released" if arguments.released else ""
    if arguments.inducing_points not in (None, INDUCING):
        track += f"-inducing-points-{arguments.inducing_points}"
    if arguments.steps < 0 or (not arguments.steps and not arguments.after):
        raise SystemExit("--steps must be at least 1, or 0 with --after")
    start = None
    if arguments.after:
        before = STEPS if arguments.after_steps is None else arguments.after_steps
        if before < 1:
            raise SystemExit(f"--after-steps must be at least 1, got {before}")
        start = run_name(arguments.after, before, track)
    elif arguments.after_steps is not None:
        raise SystemExit("--after-steps needs --after, the context of the initial models")
    name = run_name((low, high), arguments.steps, track, start)
    starts = {} if start is None else _starts(start, find_folder(name), arguments)
    out = folder_of(name)
    configuration = {
        "tasks": asdict(tasks), "steps": arguments.steps, "learning_rate": arguments.learning_rate,
        "floor": arguments.floor, "batches": arguments.batches, "samples": arguments.samples,
        "threads": arguments.threads, "machine": machine(arguments.device),
    }  # fmt: skip
    known = out / "configuration.json"
    text = json.dumps(configuration, indent=1) + "\n"
    if known.exists() and any(out.glob("*-*.json")) and _settings(known.read_text()) != _settings(text):
        raise SystemExit(f"{out} has results of other settings. Remove it, or use the same settings.")
    known.write_text(text)
    torch.set_num_threads(arguments.threads)
    for seed in arguments.seeds:
        # drawing tasks of a thousand points takes as long as a step, so all models of a seed share them
        draw = functools.lru_cache(KEPT_TASKS if arguments.steps <= KEPT_TASKS else 0)(
            lambda step, seed=seed: draw_tasks(tasks, seed, step, arguments.device)[0]
        )
        for kind in arguments.models:
            train_one(kind, seed, tasks, draw, arguments, out, starts.get((kind, seed)))
    print(table(out))


def _starts(name: str, done: Path | None, arguments: argparse.Namespace) -> dict[tuple[str, int], Path]:
    """Weights of another run, by kind and seed, for all models without results in `done`."""
    wanted = [
        (kind, seed)
        for kind in arguments.models
        for seed in arguments.seeds
        if done is None or not (done / f"{kind}-{seed}.json").exists()
    ]
    folder = find_folder(name)
    if wanted and folder is None:
        raise SystemExit(
            f"--after: there are no results of {name}; train it first, or name with --after-steps how long "
            "those were trained that are there"
        )
    starts = {
        (kind, seed): Path(arguments.models_folder) / f"{folder.name}-{kind}-{seed}.safetensors"
        for kind, seed in wanted
        if folder is not None
    }
    lacking = [str(path) for path in starts.values() if not path.exists()]
    if lacking:
        raise SystemExit(f"--after: {lacking[0]} is missing. Train it first, with the same --models-folder.")
    return starts


def _settings(configuration: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(configuration).items() if key != "machine"}


def train_one(
    kind: str,
    seed: int,
    tasks: ProcessSettings,
    draw: DrawBatch,
    arguments: argparse.Namespace,
    out: Path,
    start: Path | None,
) -> None:
    """Train, score and log one model, unless it has a score. `start` has the initial weights."""
    result = out / f"{kind}-{seed}.json"
    if result.exists():
        return
    settings = _model_settings(kind, arguments)
    training = TrainingSettings(max(1, arguments.steps), arguments.learning_rate, seed=seed)
    begun, steps_before = None, 0
    if start is not None:
        begun, description = load_model(start)
        steps_before = description["step"]
    is_long = arguments.steps >= LOOKS * 100
    held_out = [
        draw_tasks(tasks, VALIDATION_SEED, number, arguments.device)[0]
        for number in range(VALIDATION_BATCHES * is_long)
    ]
    trainer = NeuralProcessTrainer(
        settings, training, draw, {"gaussian": asdict(tasks)}, arguments.device, begun, held_out
    )
    models = Path(arguments.models_folder)
    models.mkdir(parents=True, exist_ok=True)
    name = f"{out.name}-{kind}-{seed}"
    log: list[dict[str, float]] = []
    if arguments.steps:
        looks = LOOKS if is_long else 20
        _train_resumably(trainer, models / name, log, max(1, arguments.steps // looks))
    seconds = log[-1].pop("seconds") if log else 0.0
    for entry in log[:-1]:
        del entry["seconds"]
    found = score(trainer.model, tasks, arguments.batches, arguments.samples, arguments.device)
    trainer.save(models / f"{name}.safetensors")
    row = {
        "kind": kind, "seed": seed, "steps": arguments.steps, "learning_rate": arguments.learning_rate,
        "samples": arguments.samples, "batches": arguments.batches, "train_seconds": round(seconds, 1),
        "inducing_points": settings.inducing_points if settings.has_inducing_points else None,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "readings": settings.readings if settings.reads_repeatedly else 1,
        "start": trainer.run["start"], "steps_before": steps_before,
        **asdict(found), "gap": found.gap, "log": log,
    }  # fmt: skip
    result.write_text(json.dumps(row, indent=1) + "\n")
    for kept in (models / f"{name}.state", models / f"{name}.log"):
        kept.unlink(missing_ok=True)
    print(
        f"{out.name} {kind} seed {seed}: {found.log_likelihood:.4f} (gap {found.gap:.4f}), {seconds:.0f} s",
        flush=True,
    )


def _model_settings(kind: str, arguments: argparse.Namespace) -> ModelSettings:
    """Published models have half as many inducing points as the smallest context of their first training."""
    is_published = kind in PUBLISHED
    by_default = max(1, (arguments.after or arguments.context)[0] // 2) if is_published else INDUCING
    source: Source = "released" if arguments.released and is_published else "paper"
    return ModelSettings(
        kind,
        floor=arguments.floor,
        inducing_points=arguments.inducing_points or by_default,
        architecture=source,
        objective=source,
    )


def _train_resumably(
    trainer: NeuralProcessTrainer, kept: Path, log: list[dict[str, float]], every: int
) -> None:
    """Train to the last step and fill the log; continue from the files kept.state and kept.log, if any.

    The state is written at every look. The entries of the log count seconds from the start of training.
    """
    state, log_file = (kept.with_name(f"{kept.name}.{suffix}") for suffix in ("state", "log"))
    if state.exists():
        trainer.restore_state(state)
        log += [entry for entry in json.loads(log_file.read_text()) if entry["step"] <= trainer.step]
    before = log[-1]["seconds"] if log else 0.0
    started = time.perf_counter()

    def look(progress: Report) -> None:
        seconds = before + time.perf_counter() - started
        entry = {"step": progress.step, "loss": round(progress.loss, 5), "seconds": round(seconds, 1)}
        if progress.validation is not None:
            entry["validation"] = round(progress.validation.loss, 5)
            print(f"{kept.name}: {json.dumps(entry)}", flush=True)
        log.append(entry)
        log_file.write_text(json.dumps(log))

    trainer.train(report=look, checkpoint=lambda: trainer.save_state(state), every=every)


def best_look(log: list[dict[str, float]]) -> str:
    """Return the step of the lowest validation loss, and whether it is the last step of training."""
    looks = [entry for entry in log if "validation" in entry]
    if not looks:
        return "–"
    best = min(looks, key=lambda entry: entry["validation"])
    return f"{best['step']}{' (last)' if best is looks[-1] else ''}"


def table(out: Path) -> str:
    """Return a table of means and standard deviations over seeds, and write it to report.md."""
    rows = [
        [
            "model",
            "log-likelihood",
            "gap to the oracle",
            "oracle without a floor",
            "seeds",
            "steps",
            "ms a step",
            "inducing points",
            "best look",
        ]
    ]
    for kind in KINDS:
        found = [json.loads(path.read_text()) for path in sorted(out.glob(f"{kind}-*.json"))]
        if not found:
            continue
        rows.append(
            [
                kind,
                mean_and_spread([row["log_likelihood"] for row in found]),
                f"{np.mean([row['gap'] for row in found]):.4f}",
                f"{np.mean([row['oracle'] for row in found]):.4f}",
                str(len(found)),
                str(found[0]["steps"]),
                f"{1000 * np.mean([row['train_seconds'] / max(1, row['steps']) for row in found]):.0f}",
                ", ".join(sorted({str(row["inducing_points"] or "–") for row in found})),
                ", ".join(best_look(row["log"]) for row in found),
            ]
        )
    text = markdown(rows)
    (out / "report.md").write_text(f"# {out.name[11:]}\n\n{text}\n")
    return text
