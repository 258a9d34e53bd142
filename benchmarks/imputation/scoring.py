"""Accuracy by minor allele frequency: counted by the neutral scorer, and again by `spinimpute evaluate`."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spinimpute
from benchmarks.imputation.cases import Case

AGREEMENT = 1e-4  # the scorer prints four decimals
ALL = "all"


@dataclass(frozen=True)
class Accuracy:
    """A row of the scorer: an imputer in a bin of minor allele frequency."""

    imputer: str
    bin: str  # "all" or "(low,high]"
    sites: int
    pooled_r2: float
    mean_r2: float
    nrc: float
    missing_sites: int


def read_accuracy(tsv: Path) -> list[Accuracy]:
    """The rows of a table that the scorer wrote."""
    with tsv.open() as file:
        return [
            Accuracy(
                row["imputer"],
                row["bin"],
                int(row["sites"]),
                float(row["pooled_r2"]),
                float(row["mean_r2"]),
                float(row["nrc"]),
                int(row["missing_sites"]),
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


def score(case: Case, scorer: Path, imputed: Mapping[str, Path], tsv: Path) -> list[Accuracy]:
    """Score imputed files by label, write the scorer's table to `tsv`, check it against our own evaluation.

    Raises:
        SystemExit: the two differ.
    """
    command = [sys.executable, scorer, "--truth", case.truth, "--ref", case.panel]
    command += ["--typed", case.scored_without, "--bins", ",".join(f"{edge:g}" for edge in case.bins)]
    command += ["--tsv", tsv, "--imputed", *(f"{label}={path}" for label, path in imputed.items())]
    # stderr is htslib's: it warns of every Minimac4 file, whose header lacks lines
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    rows = read_accuracy(tsv)
    for label, path in imputed.items():
        own = spinimpute.evaluate(case.truth, path, case.panel, case.scored_without, bins=case.bins)
        table = own.by_frequency[own.by_frequency["imputer"] == "imputed"]
        theirs = [row for row in rows if row.imputer == label]
        for column in ("pooled_r2", "mean_r2", "nrc"):
            scored = np.array([getattr(row, column) for row in theirs])
            counted = table[column].to_numpy(float)
            if scored.shape != counted.shape or not np.allclose(
                counted, scored, rtol=0, atol=AGREEMENT, equal_nan=True
            ):
                raise SystemExit(
                    f"{case.name}, {label}: {column} of the scorer ({scored}) and of spinimpute ({counted}) "
                    f"differ by more than {AGREEMENT}"
                )
    return rows
