"""The README's table: log-likelihoods of all models, by the number of context points."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import RESULTS, STEPS
from spinimpute.neural_processes.models import KINDS

FOLDER = re.compile(
    r"\d{4}-\d\d-\d\d-context-(\d+)-(\d+)(?:-steps-(\d+))?(?:-after-(\d+)-(\d+)(?:-steps-(\d+))?-steps-(\d+))?"
)
WANTED = 3  # seeds


def contexts(_: argparse.Namespace) -> None:
    print(f"{table(RESULTS)}\n\n{table_after(RESULTS)}")


def table(results: Path) -> str:
    """Models trained with the contexts that they are asked with."""
    return _table({run: found for run, found in _read(results).items() if run.after is None})


def table_after(results: Path) -> str:
    """Models trained with small contexts, asked with larger ones: at once, and after further steps there."""
    return _table({run: found for run, found in _read(results).items() if run.after is not None})


class Run(NamedTuple):
    """context: the range it was asked with; steps: there; after: the range and steps before, if any."""

    context: tuple[int, int]
    after: tuple[int, int, int] | None
    steps: int

    @property
    def head(self) -> str:
        low, high = self.context
        if self.after is not None:
            low_before, high_before, before = self.after
            trained = "" if before == STEPS else f"{before:,} at "
            return f"{low:,}–{high:,}; {self.steps} steps after {trained}{low_before}–{high_before}"
        return f"{low:,}–{high:,}" + ("" if self.steps == STEPS else f"; {self.steps:,} steps")


def _read(results: Path) -> dict[Run, list[dict[str, Any]]]:
    found = {}
    for folder in results.iterdir():
        named = FOLDER.fullmatch(folder.name)
        if named:
            low, high, steps, low_before, high_before, before, further = (
                int(number or 0) for number in named.groups()
            )
            if named[4] is None:
                run = Run((low, high), None, steps or STEPS)
            else:
                run = Run((low, high), (low_before, high_before, before or STEPS), further)
            found[run] = [json.loads(path.read_text()) for path in folder.glob("*NP-*.json")]
    return found


def _table(of_run: dict[Run, list[dict[str, Any]]]) -> str:
    """Mean and standard deviation over seeds (how many, if not three), floor 0.1; then what knows the
    process has, with that floor."""
    runs = sorted(of_run)
    rows = [["context points", *(run.head for run in runs)]]
    for kind in KINDS:
        of_kind = [[row for row in of_run[run] if row["kind"] == kind] for run in runs]
        rows.append([kind, *(_cell([row["log_likelihood"] for row in found]) for found in of_kind)])
    oracle = [{round(row["floored"], 3) for row in of_run[run]} for run in runs]
    rows.append(["who knows the process", *(" ".join(_short(x) for x in sorted(one)) for one in oracle)])
    return markdown(rows)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {_short(np.std(values, ddof=1))}" if len(values) > 1 else ""
    return _short(float(np.mean(values))) + spread + (f" ({len(values)})" if len(values) != WANTED else "")


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value >= 0 else f"{value:.3f}"
