"""Commands that compute tables of the papers by running other benchmarks.

The settings are those with which the recorded results were made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.device_option import add_device
from benchmarks.imputation.cases import SHARED

TABULAR, PROCESSES = "benchmarks.tabular", "benchmarks.neural_processes"
SMALL = ("yacht", "concrete", "boston", "breast_cancer")
LARGE = ("protein", "poker", "california", "adult", "income")
OF_ROWS = (
    (TABULAR, "tables", "--sets", *SMALL, "--folds", "3", "--seconds", "30"),
    (TABULAR, "tables", "--sets", *LARGE, "--folds", "1", "--seconds", "120"),
)
OF_POINTS = tuple(
    (PROCESSES, "train", "--context", *context, "--tasks", tasks, "--batches", batches, "--samples", "20")
    for *context, tasks, batches in (
        ("64", "128", "16", "50"), ("128", "256", "16", "50"), ("256", "512", "16", "50"),
        ("512", "1024", "8", "25"),
    )
)  # fmt: skip
LONG = (
    PROCESSES, "train", "--context", "64", "128", "--steps", "20000", "--batches", "3000", "--samples", "20",
    "--seeds", "1",
)  # fmt: skip
PUBLISHED_STEPS = "60000"
AS_PUBLISHED = (
    PROCESSES, "train", "--context", "64", "128", "--steps", PUBLISHED_STEPS, "--learning-rate", "5e-4",
    "--seeds", "1", "--batches", "300", "--models", "CANP", "ANP", "BANP", "CIPNP", "IPNP",
)  # fmt: skip
CALIBRATION = (PROCESSES, "calibration", "--context", "64", "128")
OF_CALIFORNIA = (
    (TABULAR, "california", "--models", "ResNet", "MLP", "--seeds", "1", "2", "3"),
    (TABULAR, "california", "--models", "FTTransformer", "FTTransformerWithoutBiases"),
)
PROBES = (
    (TABULAR, "probes", "--only", "random_labels", "clusters", "lookup"),
    (TABULAR, "probes", "--only", "spoilt_context", "--models", "SPIN"),
    (
        TABULAR,
        "probes",
        "--only",
        "spoilt_context",
        "--models",
        "NPT",
        "--seeds",
        "1",
        "2",
        "--seconds",
        "100",
    ),
)
COMMANDS: dict[str, tuple[str, Sequence[Sequence[str]]]] = {
    "table1": ("ranks and memory (SPIN 1, 14, 15)", (*OF_ROWS, (TABULAR, "memory"))),
    "table2": ("Poker: accuracy by context (SPIN 2)", ((TABULAR, "poker"),)),
    "table12": ("tables of rows (SPIN 11, 12; NPT 1, 6, 8 to 12)", OF_ROWS),
    "table18": ("calibration (SPIN 18)", (CALIBRATION, (*CALIBRATION, "--steps", PUBLISHED_STEPS))),
    "table21": ("how costs grow (SPIN 21)", ((TABULAR, "cost"),)),
    "figure4": ("neural processes (SPIN Figure 4)", (*OF_POINTS, LONG, AS_PUBLISHED, (PROCESSES, "cost"))),
    "npt2": ("probes (NPT 2, 3, B.3; SPIN A.7, A.8)", PROBES),
    "ft2": ("California and Adult (FT-Transformer 2, 4, 6)", (OF_ROWS[1], (TABULAR, "california"))),
    "ft3": ("ensembles, feature biases, times (FT-Transformer 3, 5, 10)", OF_CALIFORNIA),
}
TRAINS = {"tables", "poker", "california", "train"}
NEEDS_DATA = {"tables", "memory", "poker", "california", "probes"}


def add_commands(commands: Any) -> None:
    for name, (text, lines) in COMMANDS.items():
        sub = commands.add_parser(name, help=text)
        sub.set_defaults(function=run, lines=lines)
        sub.add_argument("--data", type=Path, default=SHARED / "data" / "tabular")
        add_device(sub)
        sub.add_argument("--show", action="store_true", help="show the commands without running them")


def run(arguments: argparse.Namespace) -> None:
    """Run the commands one after the other; raises SystemExit at the first failure."""
    for module, command, *rest in arguments.lines:
        words = ["-m", module, command, *rest]
        if command in NEEDS_DATA:
            words += ["--data", str(arguments.data)]
        if command in TRAINS:
            words += ["--device", arguments.device]
        print("python", *words, flush=True)
        if not arguments.show and (code := subprocess.run([sys.executable, *words]).returncode):
            raise SystemExit(code)
