"""`cost`: processor time of a genome, from a law that is fitted to measured processor seconds.

Processor seconds of imputing one region with a panel of N haplotypes and Q target haplotypes:

    a + b N + Q c N^e

a is the time to start, b N the time to read the panel, and c N^e the time of one more target haplotype. c and
e are estimated from pairs of measurements that differ only in Q, then a and b from the remaining time. Every
chunk of a genome costs a once; the other terms are proportional to the length.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.imputation.scale_report import growth
from benchmarks.imputation.tables import markdown, write_tsv

GENOME_MB = 2_900.0  # autosomes and X
SAMPLES = (1_000, 10_000, 100_000, 500_000)
PANELS = (5_000, 50_000, 200_000, 1_000_000)
PUBLISHED = (
    "Browning, Zhou and Browning (2018, Am J Hum Genet 103:338) put imputation from 10 million reference "
    "samples with Beagle 5.0 at less than one US cent for a genome, on rented processors and from phased "
    "targets."
)


@dataclass(frozen=True)
class Measured:
    """Processor seconds of one command."""

    panel: int
    targets: int
    seconds: float


@dataclass(frozen=True)
class Law:
    """Time: start + panel * N + Q * target * N ** power; worst: the largest ratio of a measurement to the
    law.
    """

    start: float
    panel: float
    target: float
    power: float
    worst: float

    def seconds(self, panel: int, targets: int) -> float:
        return self.start + self.panel * panel + targets * self.target * panel**self.power

    def genome_hours(self, panel: int, samples: int, length_mb: float, chunk_mb: float) -> float:
        """Return the core-hours for a number of samples; length_mb: length of the measured region."""
        by_length = self.seconds(panel, 2 * samples) - self.start
        return (by_length * GENOME_MB / length_mb + self.start * GENOME_MB / chunk_mb) / 3_600


def fit(points: Sequence[Measured]) -> Law:
    """Fit the law of one imputer. Raises ValueError without two numbers of targets at two or more panels."""
    panels, slopes, rests = [], [], []
    for panel in sorted({p.panel for p in points}):
        here = sorted((p for p in points if p.panel == panel), key=lambda p: p.targets)
        if len(here) < 2:
            continue
        few, many = here[0], here[-1]
        slope = (many.seconds - few.seconds) / (many.targets - few.targets)
        panels.append(panel)
        slopes.append(max(slope, 1e-9))
        rests.append(few.seconds - few.targets * slope)
    if len(panels) < 2:
        raise ValueError("two or more panels must be measured with two numbers of targets each")
    power = growth(panels, slopes)
    target = math.exp(
        sum(math.log(s) - power * math.log(n) for n, s in zip(panels, slopes, strict=True)) / len(panels)
    )
    mean_n, mean_rest = sum(panels) / len(panels), sum(rests) / len(rests)
    along = sum((n - mean_n) * (r - mean_rest) for n, r in zip(panels, rests, strict=True))
    panel_slope = max(0.0, along / sum((n - mean_n) ** 2 for n in panels))
    law = Law(max(0.0, mean_rest - panel_slope * mean_n), panel_slope, target, power, 1.0)
    ratios = [p.seconds / law.seconds(p.panel, p.targets) for p in points]
    return Law(law.start, law.panel, target, power, max(max(r, 1 / r) for r in ratios))


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "folders that 'scale' made, with two or more numbers of targets at two or more panels"
    parser.add_argument("folders", type=Path, nargs="+", help=text)
    parser.add_argument("--price", type=float, default=0.04, help="US $ of a core-hour (default: 0.04)")
    parser.add_argument("--chunk-mb", type=float, default=20.0, help="Mb of a chunk (default: 20)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.set_defaults(function=cost)


def cost(arguments: argparse.Namespace) -> None:
    configurations = [json.loads((folder / "configuration.json").read_text()) for folder in arguments.folders]
    lengths = {configuration["history"]["length"] / 1e6 for configuration in configurations}
    if len(lengths) != 1:
        raise SystemExit(f"regions of different lengths were measured: {sorted(lengths)} Mb")
    (length_mb,) = lengths
    points: dict[str, set[Measured]] = {}
    for folder in arguments.folders:
        with (folder / "scale.tsv").open() as file:
            for row in csv.DictReader(file, delimiter="\t"):
                if row["status"] == "ok" and row["axis"] != "typed sites":
                    sizes = int(row["panel haplotypes"]), int(row["target haplotypes"])
                    points.setdefault(row["imputer"], set()).add(Measured(*sizes, float(row["cpu_seconds"])))
    laws = {imputer: fit(sorted(of, key=lambda p: (p.panel, p.targets))) for imputer, of in points.items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    largest = max(p.panel for of in points.values() for p in of)
    hours = _hours(laws, length_mb, largest, arguments.chunk_mb)
    write_tsv(arguments.out / "hours.tsv", hours)
    report = _report(laws, hours, length_mb, largest, arguments)
    (arguments.out / "report.md").write_text(report)
    rows = [[name, law.start, law.panel, law.target, law.power, law.worst] for name, law in laws.items()]
    head = ["imputer", "start", "panel", "target", "power", "worst"]
    write_tsv(arguments.out / "laws.tsv", [head, *rows])
    configuration = {
        "price": arguments.price, "chunk_mb": arguments.chunk_mb, "genome_mb": GENOME_MB,
        "measured": [folder.name for folder in arguments.folders],
    }  # fmt: skip
    (arguments.out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    print(report)


def _hours(
    laws: dict[str, Law], length_mb: float, largest: int, chunk_mb: float
) -> list[list[str | int | float]]:
    """Core-hours of genomes, a column for each imputer; "panel measured" is 0 beyond the largest panel."""
    table: list[list[str | int | float]] = [["samples", "panel haplotypes", "panel measured", *laws]]
    for samples in SAMPLES:
        for panel in PANELS:
            hours = [law.genome_hours(panel, samples, length_mb, chunk_mb) for law in laws.values()]
            table.append([samples, panel, int(panel <= largest), *hours])
    return table


def hours_table(folder: Path, samples: int) -> list[list[str]]:
    """Return core-hours of a genome for numbers of samples, from a folder that `cost` wrote."""
    with (folder / "hours.tsv").open() as file:
        head, *rows = csv.reader(file, delimiter="\t")
    found = [
        [_panel(int(panel), measured == "1"), *(f"{float(h):,.0f}" for h in hours)]
        for of, panel, measured, *hours in rows
        if int(of) == samples
    ]
    return [["panel haplotypes", *head[3:]], *found]


def _panel(haplotypes: int, measured: bool) -> str:
    return f"{haplotypes:,}{'' if measured else ' (larger than the largest measured panel)'}"


def _report(
    laws: dict[str, Law],
    hours: list[list[str | int | float]],
    length_mb: float,
    largest: int,
    arguments: argparse.Namespace,
) -> str:
    lines = [
        ["imputer", "start, s", "panel haplotype, s per Mb", "target haplotype, s per Mb", "worst ratio"]
    ]
    for name, law in laws.items():
        of_target = f"{law.target / length_mb:.2e} N^{law.power:.2f}"
        lines.append(
            [name, f"{law.start:.2f}", f"{law.panel / length_mb:.1e}", of_target, f"{law.worst:.2f}"]
        )
    table = [["samples", "panel haplotypes", *(f"{name}, core-hours" for name in laws), "$ a genome"]]
    for samples, panel, measured_panel, *found in hours[1:]:
        dollars = " / ".join(f"{float(h) * arguments.price / int(samples):.1g}" for h in found)
        told = _panel(int(panel), bool(measured_panel))
        table.append([f"{samples:,}", told, *(f"{h:,.0f}" for h in found), dollars])
    measured = (
        "Processor seconds = start + panel haplotypes N + target haplotypes × f(N), fitted to commands on "
        f"{length_mb:g} Mb of simulated data with panels of up to {largest:,} haplotypes; the last column is "
        "the largest ratio between a measurement and its law."
    )
    reckoned = (
        f"A genome of {GENOME_MB:,.0f} Mb in chunks of {arguments.chunk_mb:g} Mb, phased targets, the panel "
        f"compiled before; ${arguments.price:g} a core-hour; in the order of the columns:"
    )
    parts = ["# What a genome costs", measured, markdown(lines), reckoned, markdown(table), PUBLISHED]
    return "\n\n".join(parts) + "\n"
