"""Commands are run, measured and stopped as said."""

import os
import select
import sys
from pathlib import Path

import pytest

from benchmarks.imputation.measure import OverTimeLimit, ProgramFailed, Stage, run, summarise


def test_memory_is_that_of_the_command_alone(tmp_path: Path) -> None:
    held = bytearray(150 * 2**20)  # of this process, which must not be counted
    stage = run("a", "b", ["sh", "-c", "true"], tmp_path / "log.txt")
    assert stage.peak_mb < 60
    grow = "held = b'1' * (200 * 2**20)"
    assert 200 < run("a", "b", [sys.executable, "-c", grow], tmp_path / "log.txt").peak_mb < 300
    del held


def test_failure_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="no such thing"):
        run("a", "b", ["sh", "-c", "echo no such thing; exit 3"], tmp_path / "log.txt")
    with pytest.raises(ProgramFailed, match="there-is-no-such-program"):
        run("a", "b", ["there-is-no-such-program"], tmp_path / "log.txt")


def test_limit_stops_the_whole_pipeline(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reading = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OverTimeLimit):
        run("a", "b", ["sh", "-c", f"(sleep 1000; true) 3> {held} | cat"], tmp_path / "log.txt", limit=0.5)
    ready, _, _ = select.select([reading], [], [], 300)  # when nobody has it open to write
    assert ready
    os.close(reading)


def test_median_and_extremes() -> None:
    stages = [Stage("a", "impute", i, s, m, []) for i, (s, m) in enumerate([(3, 10), (1, 30), (2, 20)])]
    (timing,) = summarise(stages)
    assert (timing.runs, timing.seconds, timing.fastest, timing.slowest, timing.peak_mb) == (3, 2, 1, 3, 30)
