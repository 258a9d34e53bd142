"""`budgets`: the memory of runs with `--max-memory`, requested and measured, on simulated data."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import ProgramFailed, Stage
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import DEFAULT_FORMATS, Ours
from benchmarks.imputation.results import write_configuration
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.simulated_set import History, Sizes
from benchmarks.imputation.study import build_panel, impute_once, target_as_vcf
from benchmarks.imputation.tables import markdown, write_tsv
from spinimpute.runtime.memory import parse_size

NONE = "none"


@dataclass(frozen=True)
class Kept:
    """Result of one run. If the command refused: peak_mb and seconds are None, needed_mb is what it
    requested.
    """

    sizes: Sizes
    budget: str
    peak_mb: float | None
    seconds: float | None
    needed_mb: float | None

    @property
    def verdict(self) -> str:
        if self.peak_mb is None:
            return f"refused, needs {self.needed_mb:.0f} MB"
        if self.budget == NONE:
            return ""
        return "kept" if self.peak_mb <= parse_size(self.budget) / 2**20 else "exceeded"


def add_options(parser: argparse.ArgumentParser) -> None:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser.add_argument("--cache", type=Path, required=True, help="folder where simulated data are kept")
    sizes = "5000,50000", "200,4000"
    parser.add_argument("--panel", type=numbers, default=sizes[0], help=f"haplotypes (default: {sizes[0]})")
    parser.add_argument("--targets", type=numbers, default=sizes[1], help=f"haplotypes (default: {sizes[1]})")
    parser.add_argument("--typed", type=int, default=300, help="typed sites (default: 300)")
    parser.add_argument("--budgets", default="300M,500M,1G,2G", help="default: 300M,500M,1G,2G")
    parser.add_argument("--length", type=int, default=500_000, help="bp of the simulated region")
    parser.add_argument("--centimorgans", type=float, default=0.5)
    parser.set_defaults(function=budgets)


def budgets(arguments: argparse.Namespace) -> None:
    """Run every size without a budget and with each budget; the outputs must be equal."""
    wanted = [Sizes(n, q, arguments.typed) for n, q in itertools.product(arguments.panel, arguments.targets)]
    people = (max(arguments.panel) + max(arguments.targets)) // 2 + 8
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed)
    with session(arguments) as run:
        sets = simulated_sets(history, wanted, arguments.cache)
        kept: list[Kept] = []
        stages: list[Stage] = []
        for sizes in wanted:
            kept += _measure(sets[sizes], sizes, arguments.budgets.split(","), run, stages)
        out = run.result_folder(run.name or "budgets")
        write_configuration(out, run, stages, {"history": dataclasses.asdict(history)})
        print(write_report(kept, out))


def _measure(case: Case, sizes: Sizes, asked: Sequence[str], run: Session, stages: list[Stage]) -> list[Kept]:
    work = run.work_folder(case.name)
    target = target_as_vcf(case, work)
    plain = Ours(label=NONE)
    build_panel(case, plain, work)
    if not stages:  # loops are compiled in the first run
        impute_once(case, plain, work / plain.panel_name, target, work, DEFAULT_FORMATS, run.threads)
    found = []
    for budget in (NONE, *asked):
        ours = plain if budget == NONE else replace(plain, label=budget, arguments=("--max-memory", budget))
        try:
            stage = impute_once(
                case, ours, work / ours.panel_name, target, work, DEFAULT_FORMATS, run.threads
            )
        except ProgramFailed as error:
            needed = re.search(r"(\d+) MB are needed", str(error))
            if needed is None:
                raise
            found.append(Kept(sizes, budget, None, None, float(needed[1])))
            continue
        stages.append(stage)
        found.append(Kept(sizes, budget, stage.peak_mb, stage.seconds, None))
        if (work / f"{budget}.vcf.gz").read_bytes() != (work / f"{NONE}.vcf.gz").read_bytes():
            raise SystemExit(f"{case.name}: a budget of {budget} changed the output")
    return found


def write_report(kept: Sequence[Kept], out: Path) -> str:
    """Write budgets.tsv and report.md, and return the report."""
    rows = [["panel haplotypes", "target haplotypes", "--max-memory", "measured MB", "seconds", ""]]
    for one in kept:
        sizes = str(one.sizes.panel_haplotypes), str(one.sizes.target_haplotypes)
        measured = "–" if one.peak_mb is None else f"{one.peak_mb:.0f}"
        seconds = "–" if one.seconds is None else f"{one.seconds:.1f}"
        rows.append([*sizes, one.budget, measured, seconds, one.verdict])
    write_tsv(out / "budgets.tsv", rows)
    report = "\n\n".join(
        [
            "# Budgets of memory",
            "Peak resident memory and wall time of `spinimpute impute` with and without `--max-memory`, on "
            "simulated regions. The output was the same to the last byte in every row of a size.",
            markdown(rows),
        ]
    )
    (out / "report.md").write_text(report + "\n")
    return report
