"""Result rows of windows: grouping, selection for comparisons, and scores."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.genomics import METHODS, TRUE
from benchmarks.papers.training import has_ended
from benchmarks.papers.window_networks import WindowRecipe
from benchmarks.papers.window_scores import R2
from benchmarks.papers.windows import CASES, Cut

Row = dict[str, Any]
Place = tuple[str, int]  # case and window
CLOSE = 0.5  # points: what the paper calls significant


def place_of(row: Row) -> Place:
    return row["case"], row["window"]


def steps_of(row: Row) -> int:
    """Return the number of steps; 0 for methods without steps."""
    steps: int = row["configuration"].get("steps", 0)
    return steps


def by_method(rows: Iterable[Row]) -> dict[str, dict[Place, list[Row]]]:
    found: dict[str, dict[Place, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["method"]][place_of(row)].append(row)
    return found


def by_settings(rows: Iterable[Row]) -> list[tuple[str, str, list[Row]]]:
    """Return method, name (with steps, dropout, another learning rate) and rows, in the order of METHODS."""
    found: dict[tuple[int, int, float, float], list[Row]] = defaultdict(list)
    for row in rows:
        settings = row["configuration"]
        rate = settings.get("learning_rate", WindowRecipe.learning_rate)
        key = METHODS.index(row["method"]), steps_of(row), settings.get("dropout", 0.0), rate
        found[key].append(row)
    named = []
    for (i, steps, dropout, rate), of in sorted(found.items(), key=lambda pair: pair[0]):
        name = METHODS[i] + (f", {steps:,} steps, dropout {dropout:g}" if steps else "")
        name += f", rate {rate:g}" if rate != WindowRecipe.learning_rate else ""
        named.append((METHODS[i], name, of))
    return named


def shared_windows(rows: Iterable[Row], methods: Sequence[str]) -> list[Place]:
    """Return the windows for which all of the methods have results."""
    found = by_method(rows)
    return sorted(set.intersection(*(set(found[method]) for method in methods)))


def best_settings(rows: Iterable[Row]) -> list[Row]:
    """Select the lowest validation loss among runs that differ only in dropout or learning rate."""
    return _least_loss(rows, lambda row: (row["method"], place_of(row), row["seed"], steps_of(row)))


def preferred(rows: Iterable[Row]) -> list[Row]:
    """Select the run with the lowest validation loss for each method, window and seed."""
    return _least_loss(rows, lambda row: (row["method"], place_of(row), row["seed"]))


def deciding(rows: Iterable[Row], method: str) -> tuple[list[Row], bool]:
    """Select the `preferred` runs of a method in the windows that decide a claim.

    These are the windows in which the longest trainings have ended, so that more steps have been tried. If a
    data set has no such window, all of its windows are selected. Returns the runs, and whether all windows
    decide.
    """
    rows = [row for row in rows if row["method"] == method]
    of_place, ended = by_method(rows)[method], set()
    for place, mine in of_place.items():
        most = max(map(steps_of, mine))
        if all(has_ended(row) for row in mine if steps_of(row) == most):
            ended.add(place)
    decided_sets = {case for case, _ in ended}
    chosen = {place for place in of_place if place in ended or place[0] not in decided_sets}
    return [row for row in preferred(rows) if place_of(row) in chosen], chosen == ended


def _least_loss(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """Row of each group with the lowest loss; of equal rows the longest."""
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [min(group, key=lambda row: (_loss(row), -steps_of(row))) for group in groups.values()]


def _loss(row: Row) -> float:
    looks = row.get("training", {}).get("looks", [])
    return min((look["validation loss"] for look in looks), default=math.inf)


def at_equal_steps(rows: Iterable[Row], methods: Sequence[str]) -> tuple[list[Row], list[Place]]:
    """Return the rows of each window with the largest common number of steps of these networks, and the
    windows.
    """
    found, chosen, places = by_method(best_settings(rows)), [], []
    for place in shared_windows(rows, methods):
        steps = set.intersection(*({steps_of(row) for row in found[m][place]} for m in methods))
        if steps:
            places.append(place)
            chosen += [row for m in methods for row in found[m][place] if steps_of(row) == max(steps)]
    return chosen, places


def points(rows: Sequence[Row], score: str = R2, context: str = TRUE) -> float:
    """Return the mean over seeds, in points."""
    return 100 * float(np.mean([row["found"][context][score] for row in rows]))


def seeds_text(rows: Iterable[Row]) -> str:
    """Return the number of seeds of a window as text."""
    seeds: dict[Place, set[int]] = defaultdict(set)
    for row in rows:
        seeds[place_of(row)].add(row["seed"])
    numbers = sorted({len(of) for of in seeds.values()})
    return "–".join(map(str, numbers)) + (" seed" if numbers == [1] else " seeds")


def named(places: Sequence[Place]) -> str:
    of_all = f"{len(places)} of {Cut.windows * len(CASES)} windows"
    return f"{', '.join(f'{case} {number}' for case, number in places)}: {of_all}"


def longest_text(rows: Sequence[Row], places: Sequence[Place]) -> str:
    """Return the windows of each data set, with the number of steps of their longest training, as text."""
    told = []
    for case in dict.fromkeys(case for case, _ in places):
        windows = [
            f"{place[1]} ({max(steps_of(row) for row in rows if place_of(row) == place):,} steps)"
            for place in places
            if place[0] == case
        ]
        told.append(f"{case} {', '.join(windows)}")
    return "; ".join(told)


def of_sets(values: Sequence[float], places: Sequence[Place]) -> str:
    """Return the mean over each set's windows, and the smallest and largest value, as text."""
    told = []
    for case in dict.fromkeys(case for case, _ in places):
        mine = [value for value, place in zip(values, places, strict=True) if place[0] == case]
        spread = f" ({min(mine):+.2f} to {max(mine):+.2f}, {len(mine)} windows)" if len(mine) > 1 else ""
        told.append(f"{case} {np.mean(mine):+.2f}{spread or ' (1 window)'}")
    return ", ".join(told)
