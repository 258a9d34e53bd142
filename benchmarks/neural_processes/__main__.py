"""Neural processes on Gaussian-process tasks: the settings of the SPIN paper's section 4.2.

    python -m benchmarks.neural_processes train --context 64 128 --steps 600 --seeds 1 2 3
    python -m benchmarks.neural_processes cost
    python -m benchmarks.neural_processes calibration

Every model sees the same tasks. Results go to results/DATE-NAME with configuration and log; a model that is
there already is not trained again, so that an interrupted command goes on where it was. Inducing models have
64 inducing points whatever the context, where the paper has half the smallest context.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from spinimpute.neural_processes.evaluation import calibration, saved_bytes, score, seconds_per_step
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, draw_tasks, settings_of
from spinimpute.neural_processes.models import KINDS, ModelSettings, make_model
from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer, load_model

RESULTS = Path(__file__).parent / "results"
INDUCING = 64
COST_CONTEXTS = (64, 128, 256, 512, 1_024, 2_048)
COSTS = (("Seconds of a training step", 3), ("Kept for the backward pass, MB", 0))  # with decimals
LARGE_CONTEXT = 100_000
# SPIN paper, Table 18: at 4, 8 and 16 context points
PUBLISHED = {
    "CANP": (0.065, 0.025, 0.006),
    "BANP": (0.062, 0.024, 0.005),
    "ANP": (0.065, 0.026, 0.005),
    "CIPNP": (0.006, 0.002, 0.011),
    "IPNP": (0.023, 0.004, 0.008),
}


def machine(device: str) -> dict[str, object]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"processor": platform.processor() or platform.machine(), "gpu": gpu, "torch": torch.__version__}


def folder_of(name: str) -> Path:
    """results/DATE-NAME: an existing one of any date, or a new one of today."""
    found = sorted(RESULTS.glob(f"????-??-??-{name}"))
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    folder = found[-1] if found else RESULTS / f"{today}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def train(arguments: argparse.Namespace) -> None:
    low, high = arguments.context
    tasks = ProcessSettings(kernel=arguments.kernel, context=(low, high))
    track = "" if arguments.floor == 0.1 else f"-floor-{arguments.floor:g}"
    kernel = "" if arguments.kernel == "rbf" else f"-{arguments.kernel}"
    out = folder_of(f"context-{low}-{high}{kernel}{track}")
    configuration = {
        "tasks": asdict(tasks), "steps": arguments.steps, "learning_rate": arguments.learning_rate,
        "floor": arguments.floor, "batches": arguments.batches, "samples": arguments.samples,
        "threads": arguments.threads, "machine": machine(arguments.device),
        "inducing_points": INDUCING,
    }  # fmt: skip
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    torch.set_num_threads(arguments.threads)
    for seed in arguments.seeds:
        for kind in arguments.models:
            train_one(kind, seed, tasks, arguments, out)
    print(table(out))


def train_one(kind: str, seed: int, tasks: ProcessSettings, arguments: argparse.Namespace, out: Path) -> None:
    """Train, score and log one model, unless its score is there."""
    result = out / f"{kind}-{seed}.json"
    if result.exists():
        return
    settings = ModelSettings(kind, floor=arguments.floor, inducing_points=INDUCING)
    training = TrainingSettings(arguments.steps, arguments.learning_rate, seed=seed)
    trainer = gaussian_trainer(settings, training, tasks, arguments.device)
    log: list[dict[str, float]] = []
    seconds = trainer.train(
        report=lambda step, loss: log.append({"step": step, "loss": round(loss, 5)}),
        every=max(1, arguments.steps // 20),
    )
    found = score(trainer.model, tasks, arguments.batches, arguments.samples, arguments.device)
    models = Path(arguments.models_folder)
    models.mkdir(parents=True, exist_ok=True)
    trainer.save(models / f"{out.name}-{kind}-{seed}.safetensors")
    row = {
        "kind": kind, "seed": seed, "steps": arguments.steps, "learning_rate": arguments.learning_rate,
        "samples": arguments.samples, "batches": arguments.batches, "train_seconds": round(seconds, 1),
        **asdict(found), "gap": found.gap, "log": log,
    }  # fmt: skip
    result.write_text(json.dumps(row, indent=1) + "\n")
    print(
        f"{out.name} {kind} seed {seed}: {found.log_likelihood:.4f} (gap {found.gap:.4f}), {seconds:.0f} s",
        flush=True,
    )


def table(out: Path) -> str:
    """Mean and standard deviation over seeds; also written to report.md."""
    rows = []
    for kind in KINDS:
        found = [json.loads(path.read_text()) for path in sorted(out.glob(f"{kind}-*.json"))]
        if not found:
            continue
        likelihood = np.array([row["log_likelihood"] for row in found])
        sd = f" ± {likelihood.std(ddof=1):.4f}" if len(found) > 1 else ""
        rows.append(
            [
                kind,
                f"{likelihood.mean():.4f}{sd}",
                f"{np.mean([row['gap'] for row in found]):.4f}",
                f"{np.mean([row['oracle'] for row in found]):.4f}",
                str(len(found)),
                str(found[0]["steps"]),
                f"{1000 * np.mean([row['train_seconds'] / row['steps'] for row in found]):.0f}",
            ]
        )
    head = [
        "model",
        "log-likelihood",
        "gap to the oracle",
        "oracle without a floor",
        "seeds",
        "steps",
        "ms a step",
    ]
    text = markdown(head, rows)
    (out / "report.md").write_text(f"# {out.name[11:]}\n\n{text}\n")
    return text


def cost(arguments: argparse.Namespace) -> None:
    """Time and memory of one training step for growing contexts; CIPNP alone with a very large one."""
    torch.set_num_threads(arguments.threads)
    out = folder_of("cost")
    rows = []
    for context in COST_CONTEXTS:
        tasks = ProcessSettings(context=(context, context), target=(34, 34))
        task, _ = draw_tasks(tasks, 1, 0, arguments.device)
        for kind in KINDS:
            model = make_model(ModelSettings(kind, inducing_points=INDUCING)).to(arguments.device)
            seconds = seconds_per_step(model, task, 2)
            rows.append((kind, context, seconds, saved_bytes(model, task) / 2**20))
            print(f"{kind} {context}: {seconds:.3f} s, {rows[-1][3]:.0f} MB", flush=True)
    lines = ["kind\tcontext\tseconds\tMB", *(f"{k}\t{c}\t{s:.4f}\t{m:.1f}" for k, c, s, m in rows)]
    (out / "cost.tsv").write_text("\n".join(lines) + "\n")
    by = {(k, c): (s, m) for k, c, s, m in rows}
    text = "\n\n".join(
        f"## {what}\n\n" + markdown(
            ["model", *map(str, COST_CONTEXTS), "grows with the power"],
            [
                [k, *(f"{by[k, c][i]:.{digits}f}" for c in COST_CONTEXTS), f"{power(k, by, i):.2f}"]
                for k in KINDS
            ],
        )
        for i, (what, digits) in enumerate(COSTS)
    )  # fmt: skip
    large = large_context()
    text += (
        f"\n\nThe power is fitted on the last three sizes. A CIPNP with {LARGE_CONTEXT:,} context points "
        f"predicts 64 targets in {large['seconds']:.1f} s, in {large['mb']:.0f} MB more than before "
        "(one task, one process, the peak resident memory).\n"
    )
    configuration = {"machine": machine(arguments.device), "threads": arguments.threads, "large": large}
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    (out / "report.md").write_text(f"# Cost\n\n16 tasks, 34 targets, 64 inducing points.\n\n{text}")
    print(text)


def power(kind: str, by: dict[tuple[str, int], tuple[float, float]], which: int) -> float:
    x = np.log(COST_CONTEXTS[-3:])
    y = np.log([by[kind, c][which] for c in COST_CONTEXTS[-3:]])
    return float(np.polyfit(x, y, 1)[0])


def large_context() -> dict[str, float]:
    """In a process of its own: seconds and megabytes."""
    command = [sys.executable, "-m", "benchmarks.neural_processes", "large"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def large(_: argparse.Namespace) -> None:
    torch.manual_seed(1)
    model = make_model(ModelSettings("CIPNP", inducing_points=INDUCING)).eval()
    x, y, at = torch.randn(1, LARGE_CONTEXT, 1), torch.randn(1, LARGE_CONTEXT, 1), torch.randn(1, 64, 1)
    with torch.no_grad():
        model(x[:, :100], y[:, :100], at)
        before = peak_mb()
        started = time.perf_counter()
        model(x, y, at)
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "mb": peak_mb() - before}))


def peak_mb() -> float:
    """Largest resident set so far. `getrusage` counts that of the process that started this one, too."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def calibrate(arguments: argparse.Namespace) -> None:
    """Models of the context 64-128 with 4, 8 and 16 context points, beside the paper's Table 18."""
    torch.set_num_threads(arguments.threads)
    out = folder_of("calibration")
    rows, curves = [], {}
    for kind in KINDS:
        paths = sorted(Path(arguments.models_folder).glob(f"*-context-64-128-{kind}-*.safetensors"))
        if not paths:
            continue
        errors = []
        for path in paths:
            model, metadata = load_model(path, arguments.device)
            tasks = settings_of(metadata["tasks"]["gaussian"])
            found = [
                calibration(model, tasks, n, arguments.batches, arguments.samples, arguments.device)
                for n in (4, 8, 16)
            ]
            errors.append([one.error for one in found])
            curves[path.name] = {n: one.inside for n, one in zip((4, 8, 16), found, strict=True)}
        published = PUBLISHED.get(kind)
        rows.append(
            [kind, *(f"{e:.4f}" for e in np.mean(errors, axis=0)), str(len(paths))]
            + ([f"{e:.3f}" for e in published] if published else ["", "", ""])
        )
    head = ["model", "4 points", "8", "16", "seeds", "paper: 4", "8", "16"]
    text = markdown(head, rows)
    (out / "curves.json").write_text(json.dumps(curves, indent=1) + "\n")
    (out / "report.md").write_text(
        f"# Calibration error (equation 1), {arguments.batches} batches\n\n{text}\n"
    )
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neural_processes", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, function in (("train", train), ("cost", cost), ("calibration", calibrate), ("large", large)):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        sub.add_argument("--device", default="cpu")
        sub.add_argument("--threads", type=int, default=1)
        sub.add_argument("--batches", type=int, default=100)
        sub.add_argument("--samples", type=int, default=50, help="of latent and bootstrapping models")
        sub.add_argument("--models-folder", default="/tmp/neural-processes", help="where weights are kept")
        if name == "train":
            sub.add_argument("--context", type=int, nargs=2, default=[64, 128])
            sub.add_argument("--steps", type=int, default=600)
            # twice the paper's, which is for 100,000 steps
            sub.add_argument("--learning-rate", type=float, default=1e-3)
            sub.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
            sub.add_argument("--models", nargs="+", default=list(KINDS), choices=KINDS)
            sub.add_argument("--floor", type=float, default=0.1)
            sub.add_argument("--kernel", default="rbf")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
