"""Log-likelihood, memory and time against the number of context points: Figure 4 of the SPIN paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.neural_processes import results
from benchmarks.neural_processes.contexts import read_runs
from benchmarks.neural_processes.results import folder_of
from spinimpute.neural_processes.settings import KINDS


def figure(_: argparse.Namespace) -> None:
    """Draw the results of `cost` and of `train` (600 steps with 64 to 128 points, tested with any number)."""
    picture = Figure(figsize=(13, 4), layout="constrained")
    likelihood, memory, time = picture.subplots(1, 3)
    for kind, points in likelihoods(results.RESULTS).items():
        x, mean, sd = zip(*points, strict=True)
        likelihood.errorbar(x, mean, yerr=sd, capsize=2, **style(kind))
    rows = [row.split("\t") for row in (folder_of("cost") / "cost.tsv").read_text().splitlines()[1:]]
    for kind in KINDS:
        costs = [(int(n), float(seconds), float(mb)) for name, n, seconds, mb in rows if name == kind]
        if costs:
            context, seconds, mb = zip(*costs, strict=True)
            time.plot(context, seconds, **style(kind))
            memory.plot(context, mb, **style(kind))
    for axes, what in (
        (likelihood, "log-likelihood per target"),
        (memory, "kept for backward, MB"),
        (time, "seconds of a training step"),
    ):
        axes.set(xlabel="context points", ylabel=what, xscale="log")
    for axes in (memory, time):
        axes.set_yscale("log")
    picture.legend(*memory.get_legend_handles_labels(), loc="outside right center")
    path = folder_of("cost") / "against-context.png"
    picture.savefig(path, dpi=130)
    print(path)


def style(kind: str) -> dict[str, Any]:
    """Return the style of a kind, which is the same in all panels."""
    number = KINDS.index(kind)
    line = "-" if number < 10 else "--"  # there are ten colors
    return {"marker": "o", "markersize": 3, "label": kind, "color": f"C{number}", "linestyle": line}


def likelihoods(folder: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Return log-likelihoods by kind and test range: middle of the range, mean and standard deviation over
    seeds.
    """
    of_kind: dict[str, list[tuple[float, float, float]]] = {}
    runs = [(np.mean(run.context), rows) for run, rows in read_runs(folder).items() if run.as_they_are]
    for kind in KINDS:
        for middle, rows in sorted(runs):
            values = [row["log_likelihood"] for row in rows if row["kind"] == kind]
            if values:
                sd = np.std(values, ddof=1) if len(values) > 1 else 0.0
                of_kind.setdefault(kind, []).append((float(middle), float(np.mean(values)), float(sd)))
    return of_kind
