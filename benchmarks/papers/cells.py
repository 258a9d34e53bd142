"""Cells of tables: each cell has its own result file, and existing files are not made again.

    results/TABLE/NAME.json    {"command", "commit", "date", "machine", "seed", "configuration", "found", ...}

A cell is made in a separate process, so the peak memory is that of the cell alone. The file appears when the
cell is complete.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.imputation.results import PACKAGES, commit, processor, scrubbed
from benchmarks.tabular.tables import ONE_THREAD

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Cell:
    """Name of a result, and the arguments of `python -m benchmarks.papers` that make it."""

    table: str
    parts: tuple[object, ...]
    words: tuple[object, ...]

    def path(self, results: Path) -> Path:
        name = "-".join(re.sub(r"[^\w.+]+", "_", str(part)) for part in self.parts)
        return results / self.table / f"{name}.json"


def make_cells(cells: Iterable[Cell], results: Path, limit: float = math.inf) -> None:
    """Make the missing cells; no cell starts after `limit` seconds.

    Raises SystemExit if the time is over, or, after all cells have been tried, if cells failed.
    """
    began, failed = time.monotonic(), []
    for cell in cells:
        path = cell.path(results)
        if path.exists():
            continue
        if time.monotonic() - began > limit:
            raise SystemExit(f"{limit:.0f} seconds are over. Run the command again to continue.")
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [str(word) for word in cell.words]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.papers", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=ONE_THREAD,
        )
        if done.returncode:
            failed.append(path.stem)
            continue
        write_result(path, words, json.loads(done.stdout.splitlines()[-1]))
        print(f"{path.stem}: made", flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed: {', '.join(failed)}")


def write_result(path: Path, words: Sequence[str], found: dict[str, Any]) -> None:
    """Write a result with all that is needed to understand and to repeat it."""
    result = {
        "command": scrubbed(["python", "-m", "benchmarks.papers", *words], {}),
        "commit": commit(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": {"processor": processor(), "threads": 1, "cores": os.cpu_count()},
        "versions": {name: version(name) for name in PACKAGES},
        **found,
    }
    begun = path.with_suffix(".part")
    begun.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    begun.replace(path)


def read_results(table: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the results of a table by name."""
    return [json.loads(path.read_text()) for path in sorted((results / table).glob("*.json"))]
