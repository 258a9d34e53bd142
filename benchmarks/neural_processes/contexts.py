"""Tables of log-likelihoods of all models, written between marks in docs/ and benchmarks/README.md."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes import sunspots
from benchmarks.neural_processes.results import RESULTS, STEPS, find_folder
from spinimpute.neural_processes.settings import KINDS

FOLDER = re.compile(  # what `run_name` gives, without other kernels
    r"\d{4}-\d\d-\d\d-context-(?P<low>\d+)-(?P<high>\d+)(?P<floor>-floor-0\.001)?"
    r"(?:-inducing-points-(?P<inducing>\d+))?(?:-steps-(?P<steps>\d+)|"
    r"-after-(?P<low_before>\d+)-(?P<high_before>\d+)(?:-floor-0\.001)?(?:-steps-(?P<before>\d+))?-steps-(?P<further>\d+))?"
)
MARKS = re.compile(r"(<!-- neural processes: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
REPOSITORY = Path(__file__).resolve().parents[2]
READMES = (REPOSITORY / "docs" / "neural-processes.md", REPOSITORY / "benchmarks" / "README.md")
WANTED = 3  # seeds
SMALL = (64, 128)  # context points, that models of the first table were trained with
COSTS_AT = "1024"  # context points
CARRIED_FROM = "2026-11-23"  # date of results: since then improved models compare by distance and carry y
BEFORE = " before"  # in the name of a kind: its results from before that
OTHER_POINTS = "{}, {} inducing points"  # a kind, where it has another number than usual


def contexts(_: argparse.Namespace) -> None:
    for readme in READMES:
        readme.write_text(with_tables(readme.read_text(), RESULTS))


def with_tables(text: str, results: Path) -> str:
    """Fill the tables in a text from the results; raises KeyError for an unknown table."""
    return MARKS.sub(lambda match: f"{match[1]}{TABLES[match[2]](results)}\n{match[3]}", text)


class Run(NamedTuple):
    """A training run and its test.

    It is identified by the range of context points in the test, the number of steps, and the range and steps
    of an earlier training, if any. `low_floor` is true if predicted standard deviations may be small.
    """

    context: tuple[int, int]
    after: tuple[int, int, int] | None
    steps: int
    low_floor: bool

    @property
    def points(self) -> str:
        return "{:,}–{:,}".format(*self.context)

    @property
    def head(self) -> str:
        floor = "; σ ≥ .001" if self.low_floor else ""
        if self.after is not None:
            low_before, high_before, before = self.after
            trained = "" if before == STEPS else f"{before:,} at "
            return f"{self.points}{floor}; {self.steps:,} steps after {trained}{low_before}–{high_before}"
        return self.points + floor + ("" if self.steps == STEPS else f"; {self.steps:,} steps")

    @property
    def as_they_are(self) -> bool:
        """Whether models trained with few points are tested without further training."""
        if self.low_floor:
            return False
        if self.after is None:
            return (self.context, self.steps) == (SMALL, STEPS)
        return self.after == (*SMALL, STEPS) and self.steps == 0


def asked(results: Path) -> str:
    """Return the table of models trained with few points and tested with any number of points.

    The table includes the cost of a training step.
    """
    of_run = {
        run: [row for row in found if not row["kind"].endswith(BEFORE)]
        for run, found in read_runs(results).items()
        if run.as_they_are
    }
    rows = _rows(of_run, [run.points for run in sorted(of_run, key=_order)])
    costs = _costs(results)
    rows[0] += ["s a step", "MB kept"]
    for row in rows[1:-1]:
        row += costs.get(row[0], ["–", "–"])
    rows[-1] += ["", ""]
    return markdown(rows)


def trained(results: Path) -> str:
    """Return the table of models trained with the context sizes of the test."""
    return _table(
        {run: found for run, found in read_runs(results).items() if run.after is None and not run.low_floor}
    )


def further(results: Path) -> str:
    """Return the table of models trained first with smaller contexts, except those of `asked`."""
    of_run = {run: found for run, found in read_runs(results).items() if run.after and not run.low_floor}
    return _table({run: found for run, found in of_run.items() if not run.as_they_are})


def floor(results: Path) -> str:
    """Return the table of runs whose predicted standard deviations may be small."""
    return _table({run: found for run, found in read_runs(results).items() if run.low_floor})


TABLES: dict[str, Callable[[Path], str]] = {
    "asked": asked,
    "trained": trained,
    "further": further,
    "floor": floor,
    "sunspots": sunspots.table,
}


def read_runs(results: Path) -> dict[Run, list[dict[str, Any]]]:
    """Read the rows of all models of every run. For models that were run twice, the latest row is used."""
    latest: dict[Run, dict[tuple[str, str], dict[str, Any]]] = {}
    for folder in sorted(results.iterdir()):
        named = FOLDER.fullmatch(folder.name)
        if named:
            number = {name: int(text) for name, text in named.groupdict().items() if text and text.isdigit()}
            context, low_floor = (number["low"], number["high"]), named["floor"] is not None
            if "further" in number:
                before = (number["low_before"], number["high_before"], number.get("before", STEPS))
                run = Run(context, before, number["further"], low_floor)
            else:
                run = Run(context, None, number.get("steps", STEPS), low_floor)
            of_model = latest.setdefault(run, {})
            for path in folder.glob("*NP*-*.json"):
                row = json.loads(path.read_text())
                if "IPNP" in row["kind"] and folder.name < CARRIED_FROM:
                    row["kind"] += BEFORE
                if "inducing" in number:
                    row["kind"] = OTHER_POINTS.format(row["kind"], number["inducing"])
                of_model[row["kind"], path.name] = row
    return {run: list(of_model.values()) for run, of_model in latest.items()}


def _costs(results: Path) -> dict[str, list[str]]:
    """Seconds and MB of a training step with many context points, by kind."""
    folder = find_folder("cost", results)
    if folder is None:
        return {}
    lines = [line.split() for line in (folder / "cost.tsv").read_text().splitlines()[1:]]
    return {
        kind: [f"{float(seconds):.1f}", f"{float(mb):,.0f}"]
        for kind, points, seconds, mb in lines
        if points == COSTS_AT
    }


def _table(of_run: dict[Run, list[dict[str, Any]]]) -> str:
    return markdown(_rows(of_run, [run.head for run in sorted(of_run, key=_order)]))


def _order(run: Run) -> Any:
    return run.context, run.after or (), run.steps, run.low_floor


def _rows(of_run: dict[Run, list[dict[str, Any]]], heads: Iterable[str]) -> list[list[str]]:
    """Mean and standard deviation over seeds (with their number, if not three), then the oracle with the same
    floor.
    """
    runs = sorted(of_run, key=_order)
    rows = [["context points", *heads]]
    for kind in [known + when for known in KINDS for when in ("", BEFORE)]:
        of_kind = [[row for row in of_run[run] if row["kind"] == kind] for run in runs]
        if any(of_kind):
            rows.append([kind, *(_cell([row["log_likelihood"] for row in found]) for found in of_kind)])
    oracle = [{round(row["floored"], 3) for row in of_run[run]} for run in runs]
    rows.append(["true process (upper bound)", *(" ".join(_short(x) for x in sorted(one)) for one in oracle)])
    return rows


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {_short(np.std(values, ddof=1))}" if len(values) > 1 else ""
    return _short(float(np.mean(values))) + spread + (f" ({len(values)})" if len(values) != WANTED else "")


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value >= 0 else f"{value:.3f}"
