"""Folders of results: the day, the name, and the configuration that they were made with."""

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
    """What was run, with what and on what."""
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
    """Make the folder of a run's results; `name` and `results` of the arguments say where."""
    configuration = configuration_of(command, **more)
    folder: Path = arguments.results / f"{configuration['date']}-{arguments.name}"
    if folder.exists():
        raise SystemExit(f"there are results in {folder}: give another --name")
    folder.mkdir(parents=True)
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    return folder
