"""The result folders: tables, a report, and their configuration without local paths."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cyvcf2 import VCF

from benchmarks.imputation.cases import REPOSITORY, Case
from benchmarks.imputation.measure import Stage, summarise
from benchmarks.imputation.options import Session
from benchmarks.imputation.scoring import LARGEST_GB, Accuracy, scorer_gb
from benchmarks.imputation.strata import Cell
from benchmarks.imputation.tables import (
    MEASURES,
    accuracy_table,
    ahead_table,
    below_list,
    error_lines,
    markdown,
    our_labels,
    size_table,
    strata_rows,
    timing_table,
    write_tsv,
)

PACKAGES = ("spinimpute", "torch", "numpy", "cyvcf2", "msprime")
MODEL_LINE = "##spinimpute_model="


@dataclass(frozen=True)
class Outcome:
    """All results of a case."""

    case: Case
    rows: list[Accuracy]
    stages: list[Stage]
    cells: list[Cell]
    models: dict[str, str]
    sizes: dict[str, int]  # bytes of VCF.gz, by label


def models_used(imputed: dict[str, Path]) -> dict[str, str]:
    """Return what spinimpute's output files record about their model."""
    models = {}
    for label, path in imputed.items():
        for line in str(VCF(str(path)).raw_header).splitlines():
            if line.startswith(MODEL_LINE):
                models[label] = line.removeprefix(MODEL_LINE)
    return models


def write_outcome(outcome: Outcome, folder: Path, session: Session) -> None:
    """Write timings, strata and the report of a case; the accuracy table exists already."""
    timings = summarise(outcome.stages)
    head = ["imputer", "stage", "run", "seconds", "peak_mb"]
    runs = [[s.imputer, s.stage, s.run, f"{s.seconds:.3f}", f"{s.peak_mb:.1f}"] for s in outcome.stages]
    write_tsv(folder / "timing.tsv", [head, *runs])
    report = [f"# {outcome.case.name}", f"{describe(outcome.case)} {counted_by(outcome.case)}"]
    report += [accuracy_table(outcome.rows, measure) for measure in MEASURES]
    report += [ahead_table(outcome.rows), error_lines(outcome.rows)]
    report += ["## Time and memory", timing_table(timings), TIMING_NOTE]
    if outcome.sizes:
        report += ["## Size of VCF.gz with GT:DS", size_table(outcome.sizes)]
    if outcome.cells:
        table = strata_rows(outcome.cells)
        write_tsv(folder / "strata.tsv", table)
        report += ["## Pooled r² by place and people", markdown(table)]
        report += [below_list(outcome.cells, our_labels(outcome.rows))]
    report.append(f"{session.threads} threads, {processor()}.")
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, session, outcome.stages, {"models": outcome.models})


TIMING_NOTE = (
    "Wall seconds of whole commands, panels built before (bref3, msav, spin), all programs reading and "
    "writing VCF.gz; programs take turns. Peak memory is the largest resident set of one process."
)


def describe(case: Case) -> str:
    panel, target = case.panel_haplotypes, case.target_haplotypes
    return f"{panel:,} panel haplotypes, {target:,} target haplotypes, {case.typed_sites:,} typed sites."


def counted_by(case: Case) -> str:
    """Return which programs measured a case's accuracy."""
    gigabytes = scorer_gb(case)
    if gigabytes > LARGEST_GB:
        return (
            f"Counted by `spinimpute evaluate` alone: the scorer takes {gigabytes:.0f} GB for such a panel."
        )
    return "Counted by the neutral scorer and by `spinimpute evaluate`, which agree."


def write_configuration(
    folder: Path, session: Session, stages: Iterable[Stage], more: dict[str, Any]
) -> None:
    """Write configuration.json: all that is needed to understand and to repeat the run."""
    commands = dict.fromkeys(scrubbed(stage.command, session.places) for stage in stages)
    configuration = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "command": scrubbed(["python", "-m", "benchmarks.imputation", *sys.argv[1:]], session.places),
        "commit": commit(),
        "threads": session.threads,
        "repeat": session.repeat,
        "seed": session.seed,
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": versions(),
        **more,
        "commands": list(commands),
    }
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1, ensure_ascii=False) + "\n")


def scrubbed(command: Sequence[str], places: dict[Path, str]) -> str:
    """Return a command as text. Known folders are replaced by symbols; other files lose their folder."""
    words = []
    # the longest path first: one may lie in another
    known = sorted(((str(path), symbol) for path, symbol in places.items()), key=lambda p: -len(p[0]))
    for word in command:
        if word == sys.executable:
            words.append("python")
            continue
        for path, symbol in known:
            word = re.sub(rf"{re.escape(path)}(?=/|$)", symbol, word)
        words.append(re.sub(r"(?<![\w.\-])/(?:[^\s/=']+/)+", "", word))
    return shlex.join(words)


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among these Python packages."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def versions() -> dict[str, str]:
    """Return the versions of the programs and of the Python packages."""
    found = package_versions(PACKAGES)
    for label, command in (
        ("Beagle", ["beagle"]),
        ("Minimac4", ["minimac4", "--version"]),
        ("bcftools", ["bcftools", "--version"]),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines()
        found[label] = lines[0] if lines else "unknown"
    return found


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def commit() -> str:
    """Return the commit of this repository, with "+" if files have changed since; "unknown" outside a
    repository.
    """
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"
