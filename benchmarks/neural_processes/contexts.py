"""The README's table: log-likelihoods of all models, by the number of context points."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import RESULTS
from spinimpute.neural_processes.models import KINDS

FOLDER = re.compile(r"\d{4}-\d\d-\d\d-context-(\d+)-(\d+)")
WANTED = 3  # seeds


def contexts(_: argparse.Namespace) -> None:
    print(table(RESULTS))


def table(results: Path) -> str:
    """Mean and standard deviation over seeds (how many, if not three), floor 0.1; then what knows the
    process has, with that floor."""
    by_range = {}
    for folder in results.iterdir():
        named = FOLDER.fullmatch(folder.name)
        if named:
            found = [json.loads(path.read_text()) for path in folder.glob("*NP-*.json")]
            by_range[int(named[1]), int(named[2])] = found
    ranges = sorted(by_range)
    rows = [["context points", *(f"{low:,}–{high:,}" for low, high in ranges)]]
    for kind in KINDS:
        of_kind = [[row for row in by_range[where] if row["kind"] == kind] for where in ranges]
        rows.append([kind, *(_cell([row["log_likelihood"] for row in found]) for found in of_kind)])
    oracle = [{round(row["floored"], 3) for row in by_range[where]} for where in ranges]
    rows.append(["who knows the process", *(" ".join(_short(x) for x in sorted(one)) for one in oracle)])
    return markdown(rows)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {_short(np.std(values, ddof=1))}" if len(values) > 1 else ""
    return _short(float(np.mean(values))) + spread + (f" ({len(values)})" if len(values) != WANTED else "")


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value >= 0 else f"{value:.3f}"
