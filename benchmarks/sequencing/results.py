"""Steps that all commands share: build a panel, make the result folder, write the configuration."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import Stage
from benchmarks.imputation.results import commit, processor, scrubbed, versions

OURS = "spinimpute"
INSTALLED = (sys.executable, "-P", "-m", "spinimpute")  # whatever the working folder holds


def built_panel(case: Case, out: Path, program: Sequence[str] = INSTALLED) -> Path:
    """Return the compiled panel of a case."""
    build = ["panel", "build", "--vcf", case.panel, *case.map_arguments, "--out", out, "-q"]
    subprocess.run([*program, *map(str, build)], check=True)
    return out


def result_folder(arguments: argparse.Namespace, name: str) -> Path:
    """Return a folder with the date and `--name`, or else this name."""
    folder: Path = arguments.results / f"{today()}-{arguments.name or name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def today() -> str:
    """Return the date in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def write_configuration(
    folder: Path, arguments: argparse.Namespace, stages: Sequence[Stage], **more: object
) -> None:
    """Write configuration.json: commit, seed, machine, versions and commands."""
    configuration = {
        "date": today(),
        "commit": commit(),
        "seed": getattr(arguments, "seed", None),
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": versions(),
        "commands": [scrubbed(stage.command, {arguments.work: "WORK"}) for stage in stages],
        **more,
    }
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
