"""The README's tables: log-likelihoods of all models, by the number of context points and of steps."""

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

FOLDER = re.compile(  # what `run_name` gives, without other kernels and floors
    r"\d{4}-\d\d-\d\d-context-(?P<low>\d+)-(?P<high>\d+)(?:-steps-(?P<steps>\d+)|"
    r"-after-(?P<low_before>\d+)-(?P<high_before>\d+)(?:-steps-(?P<before>\d+))?-steps-(?P<further>\d+))?"
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
            return f"{low:,}–{high:,}; {self.steps:,} steps after {trained}{low_before}–{high_before}"
        return f"{low:,}–{high:,}" + ("" if self.steps == STEPS else f"; {self.steps:,} steps")


def _read(results: Path) -> dict[Run, list[dict[str, Any]]]:
    """Of runs that were made twice, the latest."""
    found = {}
    for folder in sorted(results.iterdir()):
        named = FOLDER.fullmatch(folder.name)
        if named:
            number = {name: int(text) for name, text in named.groupdict().items() if text is not None}
            context = (number["low"], number["high"])
            if "further" in number:
                before = (number["low_before"], number["high_before"], number.get("before", STEPS))
                run = Run(context, before, number["further"])
            else:
                run = Run(context, None, number.get("steps", STEPS))
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
