"""The command `full-disk`: commands on a disk that fills up at random points."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.imputation.tables import markdown
from benchmarks.reliability.examples import COMMANDS, prepare, words_of
from benchmarks.reliability.forks import Limits, run_forked
from benchmarks.reliability.fuzzer import run_here
from benchmarks.reliability.results import begin_results
from benchmarks.reliability.verdict import COMPLETE, judge

PAGE = 4096
LIMITS = Limits(seconds=60)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of a given size in an empty folder. Raises RuntimeError without permission to
    mount.
    """
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def full_disk(arguments: argparse.Namespace) -> None:
    """Run the command `full-disk`."""
    folder = begin_results(arguments, f"full-disk --points {arguments.points} --seed {arguments.seed}")
    draw = random.Random(arguments.seed)
    rows = [["command", "bytes of its outputs", "points", "one message, nothing left", "else"]]
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        work = Path(name)
        for part in ("made", "disk", "said", "tmp"):
            (work / part).mkdir()
        tempfile.tempdir = str(work / "tmp")
        prepare(work / "made")
        for command in COMMANDS:
            size, found = _fill(command, work, draw, arguments.points)
            good = found.pop(COMPLETE, 0)
            others = "; ".join(f"{count} × {what}" for what, count in found.items())
            rows.append([command, f"{size:,}", str(arguments.points), str(good), others or "nothing"])
            print(rows[-1], flush=True)
        tempfile.tempdir = None
    parts = [
        "# Full disks",
        "Outputs go to a file system that has room for a random part of them.",
        markdown(rows),
    ]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")


def _fill(command: str, work: Path, draw: random.Random, points: int) -> tuple[int, Counter[str]]:
    """Run a command on disks of random sizes; the bytes that it needs, and how the runs ended."""
    disk = work / "disk"
    with small_disk(disk, 2**28):
        run_here(words_of(command, work / "made", disk))
        size = sum(-(-path.stat().st_size // PAGE) * PAGE for path in disk.rglob("*") if path.is_file())
    found: Counter[str] = Counter()
    for _ in range(points):
        with small_disk(disk, PAGE * draw.randint(1, size // PAGE - 1)):
            ended = run_forked(lambda: _main(command, work), work / "said", LIMITS)
            left = [str(path.relative_to(disk)) for path in disk.rglob("*")]
            left += [f"TMPDIR/{name}" for name in os.listdir(work / "tmp")]
        verdict = judge(ended, left, LIMITS)
        if verdict.group or ended.status == 0:
            found[verdict.group or "exit 0"] += 1
        elif "No space left on device" not in ended.err:
            found["a message that does not name the cause"] += 1
        else:
            found[COMPLETE] += 1
    return size, found


def _main(command: str, work: Path) -> None:
    from spinimpute.cli.main import main

    main([*words_of(command, work / "made", work / "disk")])
