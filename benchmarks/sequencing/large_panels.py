"""`large`: chains that copy the most likely haplotypes of a large panel, or all of its haplotypes."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.results import processor
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.simulated_set import History, Sizes
from benchmarks.imputation.tables import accuracy_table, markdown
from benchmarks.sequencing.compare import calibration, score
from benchmarks.sequencing.growth import TYPED
from benchmarks.sequencing.results import INSTALLED, built_panel, result_folder, write_configuration

LIKELIEST, ALL = "likeliest", "all"
COPY_ALL = (
    "import spinimpute.hmm.parameters as p; p.MAX_COPIED = 10**9; "
    "from spinimpute.cli.main import main; main()"
)


def large_panels(arguments: argparse.Namespace) -> None:
    """Impute every panel at every coverage."""
    sizes = {n: Sizes(n, 2 * arguments.people, TYPED) for n in sorted(arguments.haplotypes)}
    people = max(one.people() for one in sizes.values())
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed)
    cases = simulated_sets(history, list(sizes.values()), arguments.cache)
    folder = result_folder(arguments, "large-panels")
    report = [f"# Sequenced samples and large panels: {arguments.people} simulated people"]
    stages: list[Stage] = []
    costs = [["haplotypes", "reads a site", "copied", "processor seconds of a sample", "MB at most"]]
    for n, one in sizes.items():
        panel = built_panel(cases[one], arguments.work / f"{n}.spin")
        for coverage in arguments.coverage.split(","):
            likelihoods = _likelihoods(cases[one], coverage, arguments)
            imputed = {}
            for copied in (LIKELIEST, ALL) if n <= arguments.all_up_to else (LIKELIEST,):
                name = f"{n}-{coverage}x-{copied}"
                imputed[copied] = arguments.work / f"{name}.bcf"
                program = INSTALLED if copied == LIKELIEST else (sys.executable, "-P", "-c", COPY_ALL)
                words = ["impute", "--gl", likelihoods, "--panel", panel, "--out", imputed[copied]]
                words += ["--format", "GT,DS,GP", "--threads", arguments.threads, "-q", "--decimals", "5"]
                stage = run(copied, name, [*program, *words], arguments.work / "log.txt")
                stages.append(stage)
                of_sample = f"{stage.cpu_seconds / arguments.people:.2f}"
                costs.append([f"{n:,}", coverage, copied, of_sample, f"{stage.peak_mb:.0f}"])
            table = folder / f"{n}-{coverage}x.tsv"
            rows = score(cases[one], cases[one].truth, imputed, table, arguments.scorer)
            report += [f"## {n:,} haplotypes, {coverage} reads a site"]
            report += [accuracy_table(rows, measure) for measure in ("pooled_r2", "mean_r2")]
            report += ["Genotypes by the probability stated, and how many are right:"]
            report += [calibration(cases[one].truth, imputed[LIKELIEST], cases[one].panel)]
    report += ["## Time and memory", markdown(costs), f"{arguments.threads} threads, {processor()}."]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, arguments, stages, history=dataclasses.asdict(history))


def _likelihoods(case: Case, coverage: str, arguments: argparse.Namespace) -> Path:
    """Of simulated reads of 150 bases."""
    out: Path = arguments.work / f"{case.name}.{coverage}x.vcf.gz"
    words = ["--truth", case.truth, "--sites", case.panel, "--coverage", coverage, "--reads", "--out", out]
    words += ["--people", arguments.people, "--seed", arguments.seed]
    subprocess.run([sys.executable, arguments.simulator, *map(str, words)], check=True)
    return out
