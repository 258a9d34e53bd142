"""Result folders of these benchmarks and the configuration in them."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.imputation.results import PACKAGES, commit, processor, scrubbed
from spinimpute.predictors.loading import load_predictor


def result_folder(results: Path, name: str) -> Path:
    """Create results/DATE-NAME. Files of an earlier run on the same day are replaced."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    folder = results / f"{today}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_configuration(
    folder: Path,
    arguments: argparse.Namespace,
    places: dict[Path, str],
    commands: Iterable[Sequence[str]] = (),
) -> None:
    """Write configuration.json: all that is needed to understand and to repeat the run."""
    options = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("function", "data", "results", "scorer")
    }
    configuration = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "command": scrubbed(["python", "-m", "benchmarks.inducing", *sys.argv[1:]], places),
        "options": options,
        "commit": commit(),
        "model": load_predictor(name="spin").fingerprint,
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in (*PACKAGES, "scikit-learn")},
        "commands": list(dict.fromkeys(scrubbed(command, places) for command in commands if command)),
    }
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1, ensure_ascii=False) + "\n")
