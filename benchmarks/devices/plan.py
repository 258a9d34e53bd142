"""Rows to measure, the most informative rows first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

IMPUTE, TRAIN, TABULAR = "impute", "train", "tabular"
PREDICTORS = ("haplotype", "spin")
OK = "ok"
OUT_OF_TIME = "not run: out of time"
OVER_LIMIT = "over the limit"
STOPPED = "stopped: out of time"
EXPECTED_OVER_LIMIT = "not run: expected to take longer than the limit"
FEW_THREADS = 2  # with a GPU


@dataclass(frozen=True)
class Row:
    """One run of one command.

    found: what the command reported, such as the seconds of its stages.
    """

    task: str  # IMPUTE, TRAIN or TABULAR
    name: str  # of a set
    kind: str  # of a predictor
    device: str
    threads: int
    run: int = 1
    status: str = ""
    seconds: float = float("nan")  # of the whole process
    peak_mb: float = float("nan")
    found: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """The key that all runs of a command share."""
        return self.task, self.name, self.kind, self.device, self.threads

    def line(self) -> str:
        head = f"{self.task:<8}{self.name:<12}{self.kind:<10}{self.device:<5}{self.threads:3d} threads"
        return f"{head}, run {self.run}: {self.seconds:.2f} s, {self.status}"


def planned(sets: Sequence[str], devices: Sequence[str], threads: Sequence[int], repeat: int) -> list[Row]:
    """Return all rows, in order.

    First come two sets with all threads on each device, then training and tables. Haplotype attention with
    other numbers of threads, the other sets and repetitions follow. SPIN with fewer threads, which takes
    long, is last.
    """
    most, fewer = max(threads), sorted((n for n in threads if n < max(threads)), reverse=True)
    with_gpu = [n for n in fewer if n <= FEW_THREADS][:1]

    def all_threads(names: Sequence[str], run: int = 1) -> list[Row]:
        return [
            Row(IMPUTE, name, kind, device, most, run)
            for name in names
            for kind in PREDICTORS
            for device in devices
        ]

    def fewer_threads(kind: str) -> list[Row]:
        return [
            Row(IMPUTE, name, kind, device, n)
            for name in sets[:2]
            for device in devices
            for n in (fewer if device == "cpu" else with_gpu)
        ]

    trained = [Row(TRAIN, sets[0], kind, device, most) for kind in PREDICTORS for device in devices]
    tables = [Row(TABULAR, "generated", "spin", device, most) for device in devices]
    again = [row for run in range(2, repeat + 1) for row in all_threads(sets, run)]
    fast = [row for row in again if row.kind == PREDICTORS[0]]
    slow = [row for row in again if row.kind == PREDICTORS[1]]
    first, others = all_threads(sets[:2]), all_threads(sets[2:])
    rows = [first, trained, tables, fewer_threads(PREDICTORS[0]), others, fast]
    return [row for some in (*rows, fewer_threads(PREDICTORS[1]), slow) for row in some]


def expected_seconds(row: Row, done: Sequence[Row]) -> float:
    """Return an upper bound of a command's seconds, from its runs with other numbers of threads; 0 without
    runs.

    On CPUs, half of the threads take twice as long.
    """
    same = [
        other
        for other in done
        if other.key[:4] == row.key[:4] and (other.status == OK or other.status == OVER_LIMIT)
    ]
    if not same:
        return 0.0
    nearest = min(same, key=lambda other: abs(other.threads - row.threads))
    slower = max(nearest.threads / row.threads, 1.0) if row.device == "cpu" else 1.0
    return nearest.seconds * slower
