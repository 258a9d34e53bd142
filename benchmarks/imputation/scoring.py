"""Accuracy by minor allele frequency, measured by an independent scorer and again by `spinimpute evaluate`.

The scorer keeps the genotypes of the whole panel in memory. For panels that are too large for the scorer,
only `spinimpute evaluate` measures accuracy, and the report says so.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from cyvcf2 import VCF

import spinimpute
from benchmarks.imputation.cases import Case

AGREEMENT = 1e-4  # the scorer prints four decimals
ALL = "all"
COLUMNS = ("imputer", "bin", "sites", "pooled_r2", "mean_r2", "nrc", "missing_sites")
LARGEST_GB = 4.0  # of a panel that the scorer reads: it takes several times as much


@dataclass(frozen=True)
class Accuracy:
    """A row of the scorer's table: an imputer in a bin of minor allele frequency."""

    imputer: str
    bin: str  # "all" or "(low,high]"
    sites: int
    pooled_r2: float
    mean_r2: float
    nrc: float
    missing_sites: int


def read_accuracy(tsv: Path) -> list[Accuracy]:
    """Read the rows of a table that the scorer wrote."""
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


def scorer_gb(case: Case) -> float:
    """Return the memory of the scorer for a case's panel: two bytes for each person and site; as much for the
    truth.
    """
    with closing(VCF(str(case.truth))) as records:
        return sum(1 for _ in records) * case.panel_haplotypes / 1e9


def score(case: Case, scorer: Path, imputed: Mapping[str, Path], tsv: Path) -> list[Accuracy]:
    """Score imputed files by label, and write the table to `tsv`.

    Raises:
        SystemExit: the scorer and our own evaluation differ.
    """
    if scorer_gb(case) > LARGEST_GB:
        return _counted_alone(case, imputed, tsv)
    command = [sys.executable, scorer, "--truth", case.truth, "--ref", case.panel]
    command += ["--typed", case.scored_without, "--bins", ",".join(f"{edge:g}" for edge in case.bins)]
    command += ["--tsv", tsv, "--imputed", *(f"{label}={path}" for label, path in imputed.items())]
    # stderr is htslib's: it warns of every Minimac4 file, whose header lacks lines
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    rows = read_accuracy(tsv)
    for label, path in imputed.items():
        table = _our_count(case, path).query("imputer == 'imputed'")
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


def _our_count(case: Case, imputed: Path) -> pd.DataFrame:
    """Of panel frequencies alone and of an imputed file, bin by bin."""
    result = spinimpute.evaluate(case.truth, imputed, case.panel, case.scored_without, bins=case.bins)
    return pd.DataFrame(result.by_frequency)


def _counted_alone(case: Case, imputed: Mapping[str, Path], tsv: Path) -> list[Accuracy]:
    """The scorer's table as `spinimpute evaluate` counts it."""
    tables: list[pd.DataFrame] = []
    for label, path in imputed.items():
        table = _our_count(case, path)
        ours = table["imputer"] == "imputed"
        if not tables:
            tables.append(table[~ours])
        tables.append(table[ours].assign(imputer=label))
    pd.concat(tables)[list(COLUMNS)].to_csv(
        tsv, sep="\t", index=False, float_format="%.4f", na_rep="nan", lineterminator="\n"
    )
    return read_accuracy(tsv)
