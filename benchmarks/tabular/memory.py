"""Peak memory of the attention models on the papers' sets, compared with NPT's.

Each model is measured in a separate process: the growth during a fit of 20 steps with the settings of
`tables`, after a fit to 20 rows (libraries alone take 100 MB). More steps need no more memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.imputation.tables import markdown
from benchmarks.process_memory import bytes_of, forget_peak
from benchmarks.tabular.datasets import load_table, split
from benchmarks.tabular.methods import ATTENTION, METHODS, Problem
from benchmarks.tabular.tables import ONE_THREAD

FEW = 20  # rows of the small fit
LEAST_SECONDS = 1e-3  # a fit has 20 steps at the least


def memory(arguments: argparse.Namespace) -> None:
    out: Path = arguments.results
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in arguments.sets:
        for method in ATTENTION:
            command = [sys.executable, "-m", "benchmarks.tabular", "one-memory", name, method]
            command += ["--data", str(arguments.data)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD)
            if done.returncode:
                raise SystemExit(f"{name} {method}: failed\n{done.stderr[-800:]}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    (out / "memory.json").write_text(json.dumps(rows, indent=1) + "\n")
    _report(rows, out)


def one_memory(arguments: argparse.Namespace) -> None:
    """Measure one model, and print the result as a line of JSON."""
    torch.set_num_threads(1)
    table = load_table(arguments.name, arguments.data)
    parts = split(table, 0)
    problem = Problem(
        table.features.iloc[parts.train], table.target[parts.train],
        table.features.iloc[parts.validation], table.target[parts.validation],
        table.task == "regression", LEAST_SECONDS, 1,
    )  # fmt: skip
    _, kept = np.unique(problem.train_target, return_index=True)  # a classifier needs two classes
    some = np.unique(np.concatenate([kept[:FEW], np.arange(FEW)]))
    few = np.arange(min(FEW, len(problem.validation)))
    small = replace(
        problem, train=problem.train.iloc[some], train_target=problem.train_target[some],
        validation=problem.validation.iloc[few], validation_target=problem.validation_target[few],
    )  # fmt: skip
    fit = METHODS[arguments.method]
    fit(small)
    forget_peak()
    before = bytes_of("VmRSS")
    fitted = fit(problem)
    peak = bytes_of("VmHWM") - before
    row = {
        "set": arguments.name, "method": arguments.method, "rows": len(problem.train),
        "columns": problem.train.shape[1], "peak_bytes": peak, "settings": fitted.settings, **fitted.told,
        "torch": torch.__version__,
    }  # fmt: skip
    print(json.dumps(row))


def _report(rows: list[dict], out: Path) -> None:
    by = {(row["set"], row["method"]): row for row in rows}
    sets = list(dict.fromkeys(row["set"] for row in rows))
    lines = [["MB", *sets, "mean of NPT's"]]
    for method in ATTENTION:
        peaks = [by[name, method]["peak_bytes"] for name in sets]
        share = np.mean([of / by[name, "NPT"]["peak_bytes"] for of, name in zip(peaks, sets, strict=True)])
        lines.append([method, *(f"{of / 1e6:.0f}" for of in peaks), f"{share:.2f}"])
    text = markdown(lines)
    (out / "report.md").write_text(f"# Peak memory of a fit\n\n{text}\n")
    print(text)
