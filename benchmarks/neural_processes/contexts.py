"""The README's table: log-likelihoods of all models, by the number of context points."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import RESULTS
from spinimpute.neural_processes.models import KINDS

FOLDER = re.compile(r"\d{4}-\d\d-\d\d-context-(\d+)-(\d+)(?:-after-(\d+)-(\d+)-steps-(\d+))?")
WANTED = 3  # seeds


def contexts(_: argparse.Namespace) -> None:
    print(f"{table(RESULTS)}\n\n{table_after(RESULTS)}")


def table(results: Path) -> str:
    """Models trained with the contexts that they are asked with."""
    return _table({name[:2]: found for name, found in _read(results).items() if len(name) == 2}, "")


def table_after(results: Path) -> str:
    """Models trained with small contexts, asked with larger ones: at once, and after further steps there."""
    return _table(
        {name: found for name, found in _read(results).items() if len(name) > 2}, "; {} steps after {}–{}"
    )


def _read(results: Path) -> dict[tuple[int, ...], list[dict[str, Any]]]:
    """By context; of models that began elsewhere, by context, where they began, and the steps since."""
    found = {}
    for folder in results.iterdir():
        named = FOLDER.fullmatch(folder.name)
        if named:
            key = tuple(int(number) for number in named.groups() if number is not None)
            found[key] = [json.loads(path.read_text()) for path in folder.glob("*NP-*.json")]
    return found


def _table(of_range: dict[tuple[int, ...], list[dict[str, Any]]], further: str) -> str:
    """Mean and standard deviation over seeds (how many, if not three), floor 0.1; then what knows the
    process has, with that floor."""
    ranges = sorted(of_range)
    heads = [f"{name[0]:,}–{name[1]:,}{further.format(name[-1], *name[2:4])}" for name in ranges]
    rows = [["context points", *heads]]
    for kind in KINDS:
        of_kind = [[row for row in of_range[where] if row["kind"] == kind] for where in ranges]
        rows.append([kind, *(_cell([row["log_likelihood"] for row in found]) for found in of_kind)])
    oracle = [{round(row["floored"], 3) for row in of_range[where]} for where in ranges]
    rows.append(["who knows the process", *(" ".join(_short(x) for x in sorted(one)) for one in oracle)])
    return markdown(rows)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {_short(np.std(values, ddof=1))}" if len(values) > 1 else ""
    return _short(float(np.mean(values))) + spread + (f" ({len(values)})" if len(values) != WANTED else "")


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value >= 0 else f"{value:.3f}"
