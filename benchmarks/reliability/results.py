"""Result folders: their names, and the configuration of the run."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.imputation.results import commit, processor

PACKAGES = ("spinimpute", "numpy", "numba", "torch", "cyvcf2", "pandas", "click")


def configuration_of(command: str, **more: Any) -> dict[str, Any]:
    """Return what was run, with which settings and on which machine."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "command": f"python -m benchmarks.reliability {command}",
        "commit": commit(),
        **more,
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def begin_results(arguments: argparse.Namespace, command: str, **more: Any) -> Path:
    """Make the folder of a run's results, from the arguments `name` and `results`."""
    configuration = configuration_of(command, **more)
    folder: Path = arguments.results / f"{configuration['date']}-{arguments.name}"
    if folder.exists():
        raise SystemExit(f"there are results in {folder}: give another --name")
    folder.mkdir(parents=True)
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    return folder
