"""Run the rows, each in its own process, within the time budget."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.devices.plan import (
    EXPECTED_OVER_LIMIT,
    IMPUTE,
    OK,
    OUT_OF_TIME,
    OVER_LIMIT,
    STOPPED,
    TABULAR,
    TRAIN,
    Row,
    expected_seconds,
)
from benchmarks.imputation.cases import REPOSITORY
from benchmarks.imputation.measure import OverTimeLimit, ProgramFailed, run

EXAMPLE = REPOSITORY / "data" / "example"
LEAST_SECONDS = 3.0  # that must be left for a command to be started


@dataclass(frozen=True)
class Agreement:
    """Differences between the dosages of a GPU and of CPUs."""

    name: str
    kind: str
    device: str
    values: int
    largest: float
    mean: float


class Runner:
    """Runs commands one after the other.

    Parameters
    ----------
    folder, work : Path
        Folder of the data sets, and folder for outputs.
    steps : int
        Number of training steps.
    limit, budget : float
        Maximum seconds of one command, and of all commands.
    """

    def __init__(self, folder: Path, work: Path, steps: int, limit: float, budget: float) -> None:
        self._folder, self._work, self._steps, self._limit, self._budget = folder, work, steps, limit, budget
        self._start = time.perf_counter()
        self._done: list[Row] = []
        self.agreements: list[Agreement] = []

    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def warm_up(self, kind: str, device: str, threads: int) -> None:
        """Impute little data once, to compile kernels and to load libraries and the device."""
        files = EXAMPLE / "panel.vcf.gz", EXAMPLE / "target.vcf.gz", self._work / "example.vcf.gz"
        self._run(Row("warm-up", "example", kind, device, threads), [IMPUTE, *files])

    def measure(self, row: Row) -> Row:
        """Run a row, and return it with its status, times and memory."""
        expected = expected_seconds(row, self._done)
        if expected >= self._limit:  # what was stopped at the limit would be again
            done = replace(row, status=EXPECTED_OVER_LIMIT)
        elif expected > self._left() or self._left() < LEAST_SECONDS:
            done = replace(row, status=OUT_OF_TIME)
        else:
            done = self._run(row, self._command(row))
        self._done.append(done)
        if done.task == IMPUTE and done.status == OK and done.run == 1:
            self._compare(done)
        return done

    def _left(self) -> float:
        return self._budget - self.spent()

    def _command(self, row: Row) -> list[object]:
        panel = self._folder / f"{row.name}.spin"
        if row.task == IMPUTE:
            return [IMPUTE, panel, self._folder / f"{row.name}.t.vcf.gz", self._output(row)]
        if row.task == TRAIN:
            return [TRAIN, panel, self._steps]
        return [TABULAR, self._steps]

    def _output(self, row: Row) -> Path:
        return self._work / f"{row.name}.{row.kind}.{row.device}.vcf.gz"

    def _run(self, row: Row, words: list[object]) -> Row:
        report = self._work / "found.json"
        report.unlink(missing_ok=True)
        task, *given = words
        head = [sys.executable, "-m", "benchmarks.devices.work", task, report, row.kind, row.device]
        limit = min(self._limit, self._left())
        log = self._work / "log"
        log.unlink(missing_ok=True)
        try:
            stage = run(
                f"{row.kind} {row.device}",
                row.task,
                [*head, row.threads, *given],
                log,
                row.run,
                max(limit, 1.0),
            )
        except OverTimeLimit:
            if limit < self._limit:
                return replace(row, status=STOPPED)
            return replace(row, status=OVER_LIMIT, seconds=limit)
        except ProgramFailed as error:
            print(error, flush=True)
            return replace(row, status="failed: " + _last_line(str(error)))
        found = json.loads(report.read_text())
        return replace(row, status=OK, seconds=stage.seconds, peak_mb=stage.peak_mb, found=found)

    def _compare(self, row: Row) -> None:
        """Note how the dosages of a GPU differ from those of processors, once both are there."""
        one = next(
            (
                other
                for other in self._done
                if other.key[:3] == row.key[:3]
                and other.status == OK
                and (other.device == "cpu") != (row.device == "cpu")
            ),
            None,
        )
        if one is None or self._left() < LEAST_SECONDS:
            return
        here, there = (row, one) if row.device == "cpu" else (one, row)
        if any((a.name, a.kind, a.device) == (there.name, there.kind, there.device) for a in self.agreements):
            return
        self.agreements.append(
            Agreement(row.name, row.kind, there.device, *differences(self._output(here), self._output(there)))
        )


def differences(one: Path, other: Path) -> tuple[int, float, float]:
    """Return the number of dosages in two files, and their largest and mean absolute difference.

    Raises
    ------
    ValueError
        The files have different sites, or a dosage is missing.
    """
    count, largest, total = 0, 0.0, 0.0
    for a, b in zip(VCF(str(one)), VCF(str(other)), strict=True):
        if (a.POS, a.REF, a.ALT) != (b.POS, b.REF, b.ALT):
            raise ValueError(f"{one.name} and {other.name} differ at {a.POS} and {b.POS}")
        differing = np.abs(a.format("DS") - b.format("DS"))
        if np.isnan(differing).any():
            raise ValueError(f"{one.name} or {other.name} lacks dosages at {a.POS}")
        count += differing.size
        largest = max(largest, float(differing.max()))
        total += float(differing.sum())
    return count, largest, total / count


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200].replace("|", "/") if lines else "without a message"
