"""The result folder: runs.tsv, report.md and configuration.json, which are rewritten after each row."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cyvcf2 import VCF

import spinimpute
from benchmarks.devices.plan import IMPUTE, OK, TABULAR, TRAIN, Row
from benchmarks.devices.rows import Agreement
from benchmarks.imputation.results import commit, package_versions, processor
from benchmarks.imputation.tables import markdown, number, write_tsv

PACKAGES = ("spinimpute", "torch", "numpy", "numba", "cyvcf2", "deflate", "scikit-learn")
STAGE = "impute"  # of a run's stages, the one that computes
NOTE = (
    "The seconds include the start of the process and the imports, which take most of the time of a small "
    "set on a GPU. `impute` is the stage of this name. With several runs, the table shows the median. "
    "Memory is the largest resident set. GPU memory is what PyTorch allocated."
)


@dataclass(frozen=True)
class Machine:
    """The machine of the measurements."""

    processor: str
    cores: int
    gpu: str
    python: str
    commit: str
    versions: dict[str, str]

    @classmethod
    def here(cls, devices: Sequence[str], given_commit: str | None) -> Machine:
        """Describe this machine. The GPU is included only on request."""
        gpu = "none"
        if "cuda" in devices:
            import torch

            if torch.cuda.is_available():
                gpu = torch.cuda.get_device_name()
        return cls(
            processor(), os.cpu_count() or 1, gpu, platform.python_version(), given_commit or commit(),
            package_versions(PACKAGES),
        )  # fmt: skip


@dataclass(frozen=True)
class Set:
    """Sizes of a data set."""

    name: str
    panel_haplotypes: int
    sites: int
    samples: int
    typed_sites: int


def describe_set(folder: Path, name: str) -> Set:
    """Count the samples and sites of a data set."""
    target = VCF(str(folder / f"{name}.t.vcf.gz"))
    typed = sum(1 for _ in target)
    with spinimpute.Panel.open(folder / f"{name}.spin") as panel:
        return Set(name, panel.n_haplotypes, len(panel.position), len(target.samples), typed)


def write_results(
    out: Path,
    machine: Machine,
    sets: Sequence[Set],
    rows: Sequence[Row],
    agreements: Sequence[Agreement],
    options: Mapping[str, Any],
) -> None:
    """Write all three files from the rows measured so far."""
    head = ["task", "set", "kind", "device", "threads", "run", "status", "seconds", "peak_mb", "found"]
    runs = [
        [*row.key, row.run, row.status, f"{row.seconds:.3f}", f"{row.peak_mb:.1f}", json.dumps(row.found)]
        for row in rows
    ]
    write_tsv(out / "runs.tsv", [head, *runs])
    given = {name: value for name, value in options.items() if name not in ("folder", "results", "commit")}
    configuration = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        **asdict(machine),
        "options": given,
        "sets": [asdict(one) for one in sets],
    }
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1, ensure_ascii=False) + "\n")
    (out / "report.md").write_text(report(machine, sets, rows, agreements))


def report(
    machine: Machine, sets: Sequence[Set], rows: Sequence[Row], agreements: Sequence[Agreement]
) -> str:
    """Return the report page."""
    packages = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    parts = [
        "# Processors and a GPU",
        f"GPU: {machine.gpu}. {machine.processor}, {machine.cores} cores. "
        f"Python {machine.python}, {packages}.",
        set_table(sets),
        "## Imputation",
        imputation_table(rows),
        NOTE,
    ]
    if agreements:
        parts += ["## Do dosages agree?", agreement_table(agreements)]
    parts += ["## Training", training_table(rows), "## A table", tabular_table(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def set_table(sets: Sequence[Set]) -> str:
    head = ["set", "panel haplotypes", "sites", "samples", "typed sites"]
    body = [
        [one.name, *(f"{n:,}" for n in (one.panel_haplotypes, one.sites, one.samples, one.typed_sites))]
        for one in sets
    ]
    return markdown([head, *body])


def imputation_table(rows: Sequence[Row]) -> str:
    """Return a table with samples per second of whole processes, and of the stage that computes."""
    head = ["set", "predictor", "device", "threads", "runs", "seconds", "impute, s", "samples/s"]
    table = [[*head, "samples/s of impute", "memory, MB", "GPU memory, MB"]]
    for runs in _commands(rows, IMPUTE):
        done = [row for row in runs if row.status == OK]
        start = _start(runs[0], IMPUTE)
        if not done:
            table.append([*start, "0", runs[-1].status, *["–"] * 5])
            continue
        seconds = median(row.seconds for row in done)
        computing = median(row.found[STAGE] for row in done)
        samples = done[0].found["samples"]
        memory = max(row.peak_mb for row in done)
        gpu = max(row.found.get("gpu_mb", math.nan) for row in done)
        table.append(
            [
                *start, str(len(done)), f"{seconds:.2f}", f"{computing:.2f}", f"{samples / seconds:.1f}",
                f"{samples / computing:.1f}", f"{memory:.0f}", number(gpu, 0),
            ]
        )  # fmt: skip
    return markdown(table)


def agreement_table(agreements: Sequence[Agreement]) -> str:
    head = ["set", "predictor", "device", "dosages", "largest difference", "mean difference"]
    body = [
        [a.name, a.kind, a.device, f"{a.values:,}", f"{a.largest:.4f}", f"{a.mean:.2e}"] for a in agreements
    ]
    return markdown([head, *body]) + "\n\nDosages are written with three decimals."


def training_table(rows: Sequence[Row]) -> str:
    """Return a table with training steps per second, including the drawing of tasks."""
    table = [["panel", "model", "device", "threads", "steps/s", "GPU memory, MB"]]
    for runs in _commands(rows, TRAIN):
        row = runs[-1]
        rate = [row.status, "–"]
        if row.status == OK:
            rate = [
                f"{row.found['steps'] / row.found['step_seconds']:.2f}",
                number(row.found.get("gpu_mb", math.nan), 0),
            ]
        table.append([*_start(row, TRAIN), *rate])
    return markdown(table) if len(table) > 1 else ""


def tabular_table(rows: Sequence[Row]) -> str:
    """Return a table with fitting steps per second, and predicted rows per second."""
    table = [["table", "model", "device", "threads", "steps/s", "rows predicted/s", "GPU memory, MB"]]
    for runs in _commands(rows, TABULAR):
        row = runs[-1]
        rates = [row.status, "–", "–"]
        if row.status == OK:
            found = row.found
            rates = [
                f"{found['steps'] / found['step_seconds']:.2f}",
                f"{found['predicted'] / found['predict_seconds']:.0f}",
                number(found.get("gpu_mb", math.nan), 0),
            ]
        table.append([*_start(row, TABULAR), *rates])
    return markdown(table) if len(table) > 1 else ""


def _commands(rows: Sequence[Row], task: str) -> list[list[Row]]:
    """The runs of each command, in an order that can be read."""
    groups: dict[tuple[str, str, str, str, int], list[Row]] = {}
    for row in rows:
        if row.task == task:
            groups.setdefault(row.key, []).append(row)
    sets = list(dict.fromkeys(key[1] for key in groups))
    return [groups[key] for key in sorted(groups, key=lambda key: (sets.index(key[1]), *key[2:]))]


def _start(row: Row, task: str) -> list[str]:
    kind = "SPIN" if row.kind == "spin" else row.kind
    return [row.name, kind, row.device, str(row.threads)]
