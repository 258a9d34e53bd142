"""Run whole processes, and measure their wall time, peak memory and processor time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.imputation.launch import KILLED_BY_LIMIT

LAUNCHER = Path(__file__).with_name("launch.py")
NO_LIMIT = 7 * 24 * 3_600.0


class ProgramFailed(Exception):
    """A program stopped with an error; the message has the end of its log."""


class OverTimeLimit(ProgramFailed):
    """A program was stopped because it took too long."""


@dataclass(frozen=True)
class Stage:
    """One process that has ended."""

    imputer: str
    stage: str
    run: int  # of a repeated command: 1, 2, ...
    seconds: float
    peak_mb: float
    command: list[str]
    cpu_seconds: float = float("nan")


def run(
    imputer: str, stage: str, command: Sequence[object], log: Path, number: int = 1, limit: float = NO_LIMIT
) -> Stage:
    """Run a command to its end.

    Raises:
        OverTimeLimit: it ran longer than `limit` seconds and was killed.
        ProgramFailed: it could not be started or ended with an error.
    """
    words = [str(part) for part in command]
    report = log.with_suffix(".measured")
    launcher = [sys.executable, "-S", "-E", str(LAUNCHER), str(report), str(log), str(limit)]
    subprocess.run([*launcher, *words], check=True)
    outcome, seconds, peak_mb, cpu_seconds = report.read_text().split("\t")
    if outcome == KILLED_BY_LIMIT:
        raise OverTimeLimit(f"{imputer}, {stage}: stopped after {limit:g} s")
    if outcome != "ok":
        raise ProgramFailed(f"{' '.join(words)}: {outcome}\n{log.read_text(errors='replace')[-2000:]}")
    done = Stage(imputer, stage, number, float(seconds), float(peak_mb), words, float(cpu_seconds))
    print(f"{imputer:<24}{stage:<16}{done.seconds:8.1f} s {done.peak_mb:8.0f} MB", flush=True)
    return done


@dataclass(frozen=True)
class Timing:
    """The runs of one command: median and extremes of the seconds, and the largest peak memory."""

    imputer: str
    stage: str
    runs: int
    seconds: float
    fastest: float
    slowest: float
    peak_mb: float


def summarise(stages: Sequence[Stage]) -> list[Timing]:
    """Return one line for each command, in the order of their first runs."""
    groups: dict[tuple[str, str], list[Stage]] = {}
    for stage in stages:
        groups.setdefault((stage.imputer, stage.stage), []).append(stage)
    timings = []
    for (imputer, name), runs in groups.items():
        seconds = [stage.seconds for stage in runs]
        peak = max(stage.peak_mb for stage in runs)
        timings.append(Timing(imputer, name, len(runs), median(seconds), min(seconds), max(seconds), peak))
    return timings
