"""`growth`: processor time and memory by numbers of samples and of panel haplotypes, simulated."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from itertools import product

from cyvcf2 import VCF

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import OverTimeLimit, Stage, run
from benchmarks.imputation.results import processor
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.simulated_set import History, Sizes
from benchmarks.imputation.tables import markdown, write_tsv
from benchmarks.sequencing.results import INSTALLED, OURS, built_panel, result_folder, write_configuration

TYPED = 10  # sites of an array, which nothing reads
HEAD = ("haplotypes", "sites", "samples", "processor_seconds", "of_a_sample", "seconds", "peak_mb")


def growth(arguments: argparse.Namespace) -> None:
    """Run all numbers of samples with every panel, ascending; a run over a limit is the last of its panel."""
    pairs = list(product(sorted(arguments.haplotypes), sorted(arguments.samples)))
    sizes = {(n, x): Sizes(n, 2 * x, TYPED) for n, x in pairs}
    people = max(one.people() for one in sizes.values())
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed)
    cases = simulated_sets(history, list(sizes.values()), arguments.cache)
    rows: list[list[object]] = []
    stages: list[Stage] = []
    stopped = set()
    for n, x in pairs:
        if n in stopped:
            continue
        case = cases[sizes[n, x]]
        try:
            stages.append(_measure(case, f"{n}-{x}", arguments))
        except OverTimeLimit as error:
            print(error, flush=True)
            stopped.add(n)
            continue
        done, n_sites = stages[-1], sum(1 for _ in VCF(str(case.panel)))
        cpu = done.cpu_seconds
        rows.append(
            [n, n_sites, x, f"{cpu:.2f}", f"{cpu / x:.3f}", f"{done.seconds:.2f}", f"{done.peak_mb:.0f}"]
        )
    folder = result_folder(arguments, "growth")
    write_tsv(folder / "growth.tsv", [HEAD, *rows])
    title = f"# Time and memory of sequenced samples: {arguments.length:,} bases at {arguments.coverage:g}x"
    table = markdown(
        [[name.replace("_", " ") for name in HEAD], *([str(cell) for cell in row] for row in rows)]
    )
    notes = f"{arguments.threads} threads, {processor()}."
    if stopped:
        notes += f" Stopped after {arguments.limit:g} s: panels of {', '.join(map(str, sorted(stopped)))}."
    (folder / "report.md").write_text("\n\n".join([title, table, notes]) + "\n")
    write_configuration(folder, arguments, stages, history=dataclasses.asdict(history))


def _measure(case: Case, name: str, arguments: argparse.Namespace) -> Stage:
    """Impute reads of the targets of a set."""
    likelihoods, out = (arguments.work / f"{name}.{kind}" for kind in ("gl.vcf.gz", "imputed.bcf"))
    words = ["--truth", case.truth, "--sites", case.panel, "--coverage", arguments.coverage, "--reads"]
    words += ["--seed", arguments.seed, "--out", likelihoods]
    subprocess.run([sys.executable, arguments.simulator, *map(str, words)], check=True)
    panel = built_panel(case, arguments.work / f"{name}.spin")
    command = [*INSTALLED, "impute", "--gl", likelihoods, "--panel", panel]
    command += ["--out", out, "--threads", arguments.threads, "-q"]
    return run(OURS, name, command, arguments.work / "log.txt", limit=arguments.limit)
