"""Run the fits one after the other, each in a separate process; existing results are kept.

A method that is refitted with its validation rows needs the result of its search in the same folder. Its
seconds are those of the search and of the last fit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.tabular.contexts import errors_by_context
from benchmarks.tabular.datasets import FOLDS, load_table, split
from benchmarks.tabular.measures import class_measures
from benchmarks.tabular.methods import METHODS, PYTABKIT, REFITTED, Problem, loss

# other libraries than torch have threads of their own
ONE_THREAD = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TREES = ("lightgbm", "xgboost", "catboost")  # methods that are libraries of their own
# distributions
OTHERS_PARTS = {
    "NODE": ("entmax",), "TabNet": ("pytorch-tabnet",), "RealMLP": ("pytabkit",), "TabM": ("pytabkit",),
}  # fmt: skip
MOST_TESTED = 100_000  # rows: of a test part that is larger, so many are drawn


def tables(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.results
    folder.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    methods = list(arguments.methods)
    for method in PYTABKIT if find_spec("pytabkit") is None else ():
        if method in methods:
            print(f"{method}: skipped, because pytabkit is not installed (pip install pytabkit)", flush=True)
            methods.remove(method)
    for name in arguments.sets:
        for fold in range(min(arguments.folds, FOLDS[name])):
            for method in methods:
                out = _result(folder, name, fold, method)
                if out.exists():
                    continue
                command = [sys.executable, "-m", "benchmarks.tabular", "one", name, str(fold), method]
                command += ["--seconds", str(arguments.seconds), "--data", str(arguments.data)]
                command += ["--results", str(folder), "--device", arguments.device]
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD)
                if done.returncode:
                    failed.append(f"{name} {fold} {method}")
                    print(f"{name} {fold} {method}: failed\n{done.stderr[-800:]}", flush=True)
                    continue
                row = json.loads(done.stdout.splitlines()[-1])
                out.write_text(json.dumps(row, indent=1) + "\n")
                print(f"{name} {fold} {method}: {row['loss']:.4f} {row['fit_seconds']:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} fits failed: {', '.join(failed)}")


def _result(folder: Path, name: str, fold: int, method: str) -> Path:
    return folder / f"{name}-{fold}-{method.replace(' ', '_')}.json"


def one(arguments: argparse.Namespace) -> None:
    """Run one fit, and print the result as a line of JSON."""
    torch.set_num_threads(1)
    table = load_table(arguments.name, arguments.data)
    parts = split(table, arguments.fold)
    test = parts.test
    if len(test) > MOST_TESTED:
        test = np.sort(np.random.default_rng(0).choice(test, MOST_TESTED, replace=False))
    regression = table.task == "regression"
    found: dict[str, Any] = {}
    if arguments.method.endswith(REFITTED):
        library = arguments.method.removesuffix(REFITTED)
        found = json.loads(_result(arguments.results, arguments.name, arguments.fold, library).read_text())
    problem = Problem(
        table.features.iloc[parts.train], table.target[parts.train],
        table.features.iloc[parts.validation], table.target[parts.validation],
        regression, arguments.seconds, arguments.fold + 1, found, arguments.device,
    )  # fmt: skip
    started = time.process_time()
    fitted = METHODS[arguments.method](problem)
    fit_seconds = found.get("fit_seconds", 0.0) + time.process_time() - started
    started = time.process_time()
    predicted = fitted.predict(table.features.iloc[test])
    row = {
        "set": arguments.name, "fold": arguments.fold, "method": arguments.method, "task": table.task,
        "rows": [len(parts.train), len(parts.validation), len(test)],
        "loss": loss(table.target[test], predicted, regression),
        "budget_seconds": arguments.seconds, "fit_seconds": round(fit_seconds, 1),
        "predict_seconds": round(time.process_time() - started, 2),
        "seed": arguments.fold + 1, "settings": fitted.settings, **fitted.told,
        "versions": _versions(arguments.method),
        "processor": platform.processor() or platform.machine(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    if fitted.probabilities is not None and fitted.classes is not None:
        probability_NK = fitted.probabilities(table.features.iloc[test])
        row |= class_measures(table.target[test], fitted.classes, probability_NK)
    if arguments.method == "SPIN":
        model = fitted.predict.__self__  # type: ignore[attr-defined]
        rows = table.features.iloc[test]
        row["contexts"] = errors_by_context(model, problem, rows, table.target[test])
    print(json.dumps(row))


def _versions(method: str) -> dict[str, str]:
    """Versions of the libraries that fit; those of the modules, because distributions have several names."""
    found = {name: version(name) for name in ("torch", "scikit-learn")}
    library = method.removesuffix(REFITTED)
    if library in TREES:
        found[library] = import_module(library).__version__
    return found | {name: version(name) for name in OTHERS_PARTS.get(method, ())}
