"""Time and memory of a training step and of predictions, by numbers of context rows and of columns.

Each point is measured in a separate process: peak memory is the growth of this process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.imputation.tables import markdown
from spinimpute import tabular

KINDS = ("SPIN", "NPT", "SetTransformer", "FTTransformer")
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
COLUMNS = (10, 25, 50, 100, 200)
QUERIES = 256  # of a step, and of the predictions
FEW_ROWS, FEW_COLUMNS = 1_000, 10
STEPS = 3
SLOWEST = 120.0  # seconds of a step: larger ones are left out
LARGEST = 16e9  # bytes


def cost(arguments: argparse.Namespace) -> None:
    out: Path = arguments.results
    out.mkdir(parents=True, exist_ok=True)
    known = out / "cost.json"
    results = json.loads(known.read_text()) if known.exists() else []
    results = [row for row in results if row["kind"] not in arguments.kinds]
    for kind in arguments.kinds:
        for axis, sizes in (("rows", ROWS), ("columns", COLUMNS)):
            for size in sizes:
                n_rows, n_columns = (size, FEW_COLUMNS) if axis == "rows" else (FEW_ROWS, size)
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.tabular",
                    "one-cost",
                    kind,
                    str(n_rows),
                    str(n_columns),
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"{kind} {axis} {size}: failed\n{done.stderr[-500:]}", flush=True)
                    break
                found = json.loads(done.stdout.splitlines()[-1]) | {"axis": axis, "size": size}
                results.append(found)
                print(found, flush=True)
                if found["step_seconds"] > SLOWEST / 9 or found["peak_bytes"] > LARGEST / 9:
                    break  # the next is three times as large
    results.sort(key=lambda row: (KINDS.index(row["kind"]), row["axis"] == "columns", row["size"]))
    known.write_text(json.dumps(results, indent=1) + "\n")
    _report(results, out)


def one_cost(arguments: argparse.Namespace) -> None:
    """Print one point as a line of JSON."""
    torch.set_num_threads(1)
    kind, n_rows, n_columns = arguments.kind, arguments.rows, arguments.columns
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows + QUERIES, n_columns)).astype(np.float32)
    y = x[:, 0] + rng.normal(size=len(x))
    estimator = getattr(tabular, f"{kind}Regressor")
    settings: dict[str, Any] = {
        "batch_size": QUERIES, "validation_fraction": 0, "random_state": 0, "scaling": "standard"
    }  # fmt: skip
    if "context_size" in estimator().get_params():
        settings["context_size"] = n_rows
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def fit(steps: int) -> tuple[Any, float]:
        started = time.process_time()
        model = estimator(**settings, steps=steps).fit(x, y)
        return model, time.process_time() - started

    fit(1)  # what is loaded at first
    _, first = fit(1)
    model, second = fit(1 + STEPS)
    peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if hasattr(model, "forget_training_data"):
        model.forget_training_data()
    started = time.process_time()
    model.predict(x[:QUERIES])
    row = {
        "kind": kind, "rows": n_rows, "columns": n_columns,
        "step_seconds": max(1e-4, (second - first) / STEPS),
        "predict_seconds": time.process_time() - started, "peak_bytes": peak,
        "parameters": model.n_parameters_, "torch": torch.__version__,
    }  # fmt: skip
    print(json.dumps(row))


def _report(results: list[dict[str, Any]], out: Path) -> None:
    lines = [["", "against", "size", "s a step", f"s for {QUERIES} predictions", "peak, MB", "weights"]]
    lines += [
        [
            row["kind"], row["axis"], f"{row['size']:,}", f"{row['step_seconds']:.3f}",
            f"{row['predict_seconds']:.3f}", f"{row['peak_bytes'] / 1e6:.0f}", f"{row['parameters']:,}",
        ]
        for row in results
    ]  # fmt: skip
    growth = [["", "against", "power of the time of a step", "of predictions", "of the memory"]]
    for kind in KINDS:
        for axis in ("rows", "columns"):
            powers = [power(results, kind, axis, name) for name in MEASURED]
            if None not in powers:
                growth.append([kind, axis, *(f"{one:.2f}" for one in powers)])
    text = f"{markdown(lines)}\n\nGrowth, from the largest three sizes:\n\n{markdown(growth)}"
    (out / "report.md").write_text(f"# Cost\n\n{text}\n")
    print(text)
    _plot(results, out / "cost.png")


MEASURED = ("step_seconds", "predict_seconds", "peak_bytes")


def power(results: list[dict[str, Any]], kind: str, axis: str, measure: str) -> float | None:
    """Return the exponent with which a cost grows with size, from the three largest sizes; None for one."""
    rows = [row for row in results if (row["kind"], row["axis"]) == (kind, axis)][-3:]
    if len(rows) < 2:
        return None
    costs = [row[measure] for row in rows]
    return float(np.polyfit(np.log([row["size"] for row in rows]), np.log(costs), 1)[0])


def _plot(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for panels, axis in zip(axes, ("rows", "columns"), strict=True):
        for panel, (name, label) in zip(
            panels,
            (
                ("step_seconds", "s a training step"),
                ("predict_seconds", f"s for {QUERIES} predictions"),
                ("peak_bytes", "peak memory, bytes"),
            ),
            strict=True,
        ):
            for kind in KINDS:
                rows = [row for row in results if (row["kind"], row["axis"]) == (kind, axis)]
                panel.loglog([row["size"] for row in rows], [row[name] for row in rows], "o-", label=kind)
            panel.set_xlabel(f"{axis} of the context" if axis == "rows" else axis)
            panel.set_ylabel(label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(KINDS))
    figure.savefig(path, dpi=120)
