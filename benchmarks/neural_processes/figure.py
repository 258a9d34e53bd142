"""Log-likelihood, memory and time against the number of context points: Figure 4 of the SPIN paper."""

from __future__ import annotations

import argparse
import json

import numpy as np
from matplotlib.figure import Figure

from benchmarks.neural_processes.results import RESULTS, folder_of
from spinimpute.neural_processes.models import KINDS


def figure(_: argparse.Namespace) -> None:
    """From the results of `train` (600 steps, floor 0.1, ranges that double) and `cost`."""
    picture = Figure(figsize=(13, 4), layout="constrained")
    likelihood, memory, time = picture.subplots(1, 3)
    for kind in KINDS:
        points = []
        for folder in RESULTS.glob("????-??-??-context-*-*"):
            low, _, high = folder.name[len("2026-11-21-context-") :].partition("-")
            found = [json.loads(path.read_text()) for path in folder.glob(f"{kind}-*.json")]
            if high.isdigit() and int(high) == 2 * int(low) and found:
                values = [row["log_likelihood"] for row in found]
                points.append(((int(low) + int(high)) / 2, np.mean(values), np.std(values)))
        if points:
            x, mean, sd = zip(*sorted(points), strict=True)
            likelihood.errorbar(x, mean, yerr=sd, marker="o", markersize=3, capsize=2, label=kind)
    rows = [row.split("\t") for row in (folder_of("cost") / "cost.tsv").read_text().splitlines()[1:]]
    for kind in KINDS:
        costs = [(int(n), float(seconds), float(mb)) for name, n, seconds, mb in rows if name == kind]
        if costs:
            context, seconds, mb = zip(*costs, strict=True)
            time.plot(context, seconds, marker="o", markersize=3, label=kind)
            memory.plot(context, mb, marker="o", markersize=3, label=kind)
    for axes, what in (
        (likelihood, "log-likelihood per target"),
        (memory, "kept for backward, MB"),
        (time, "seconds of a training step"),
    ):
        axes.set(xlabel="context points", ylabel=what, xscale="log")
        axes.legend(fontsize=8)
    for axes in (memory, time):
        axes.set_yscale("log")
    path = folder_of("cost") / "against-context.png"
    picture.savefig(path, dpi=130)
    print(path)
