"""Run `impute --gl`, score its output, and write the tables.

Axes: S sites, X samples, 3: copies of ALT.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case, find_case, samples
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.results import processor
from benchmarks.imputation.scoring import Accuracy, read_accuracy
from benchmarks.imputation.tables import accuracy_table, markdown
from benchmarks.phasing.left_out import switch_error
from benchmarks.sequencing.results import INSTALLED, OURS, built_panel, result_folder, write_configuration

FILES = ("0.1x.sites", "0.5x.sites", "0.5x.reads", "1x.reads", "2x.sites", "4x.sites")
EDGES = (0.0, 0.0005, 0.002, 0.01, 0.05, 0.5)
STATED = (0.5, 0.9, 0.99, 0.999, 1.0)  # of probabilities of the likeliest genotype
LEFT_OUT_SEED = 11
PEER = "GLIMPSE2"


def compare(arguments: argparse.Namespace) -> None:
    """Impute files of likelihoods of chr22_1kg, and compare with GLIMPSE2's results."""
    case = find_case("chr22_1kg", arguments.data)
    made = {}
    for name in arguments.files:
        stem = arguments.likelihoods / f"chr22_1kg.{name}"
        made[name] = (Path(f"{stem}.gl.vcf.gz"), {PEER: Path(f"{stem}.glimpse2.bcf")})
    _all(case, made, arguments, "compare")


def simulated(arguments: argparse.Namespace) -> None:
    """Impute simulated likelihoods of the targets of a set."""
    case, of = find_case(arguments.case, arguments.data), "simulated"
    if arguments.left_out:
        case, of = leave_out(case, arguments.people, arguments.work), "left-out"
    made: dict[str, tuple[Path, dict[str, Path]]] = {}
    for coverage in arguments.coverage.split(","):
        kind = "reads" if arguments.reads else "sites"
        out = arguments.work / f"{coverage}x.{kind}.vcf.gz"
        made[f"{coverage}x.{kind}"] = (simulated_likelihoods(case, coverage, out, arguments), {})
    _all(case, made, arguments, f"{of}-{arguments.case}")


def simulated_likelihoods(case: Case, coverage: str, out: Path, arguments: argparse.Namespace) -> Path:
    """Simulate the likelihoods of a case's truth at this coverage."""
    words = ["--truth", case.truth, "--sites", case.panel, "--coverage", coverage, "--out", out]
    words += ["--people", arguments.people, "--seed", arguments.seed]
    words += ["--reads"] if arguments.reads else []
    subprocess.run([sys.executable, arguments.simulator, *map(str, words)], check=True)
    return out


def leave_out(case: Case, people: int, work: Path) -> Case:
    """Return a case with some random people taken out of its panel; they are the truth."""
    drawn = np.random.default_rng(LEFT_OUT_SEED).choice(samples(case.panel), people, replace=False)
    names = work / "left-out.txt"
    names.write_text("".join(f"{name}\n" for name in sorted(drawn.tolist())))
    panel, truth = work / "panel.bcf", work / "left-out.bcf"
    for path, chosen in ((panel, f"^{names}"), (truth, str(names))):
        command = ["bcftools", "view", "-S", chosen, str(case.panel), "-Ob", "-o", str(path)]
        subprocess.run(command, check=True)
        subprocess.run(["bcftools", "index", "-f", str(path)], check=True)
    return replace(case, panel=panel, truth=truth)


def _all(
    case: Case, made: Mapping[str, tuple[Path, dict[str, Path]]], arguments: argparse.Namespace, name: str
) -> None:
    folder = result_folder(arguments, name)
    panel = built_panel(case, arguments.work / "panel.spin")
    report, stages, costs = [f"# Sequenced samples of {case.name}"], [], []
    for file, (likelihoods, peers) in made.items():
        stage, imputed = _impute(file, likelihoods, panel, arguments)
        stages.append(stage)
        truth = truth_of(case, likelihoods, arguments.work)
        table = folder / f"{file}.tsv"
        rows = score(case, truth, {OURS: imputed, **peers}, table, arguments.scorer)
        n = len(samples(likelihoods))
        costs.append([file, f"{stage.seconds:.1f}", f"{stage.cpu_seconds:.1f}", f"{stage.peak_mb:.0f}"])
        report += [f"## {file}: {n} people", *(accuracy_table(rows, m) for m in ("pooled_r2", "mean_r2"))]
        report += [f"Genotypes of {OURS} by the probability stated, and how many are right:"]
        report += [calibration(truth, imputed, case.panel)]
        report += [
            "Heterozygotes that are joined to the one before the other way, of those that are imputed as"
        ]
        report[-1] += " such, and of those that all programs impute as such:"
        errors = switch_errors({OURS: imputed, **peers}, truth)
        rows = [[label, *cells] for label, cells in errors.items()]
        report += [markdown([["switch errors", "its own", "pairs", "of all", "pairs"], *rows])]
    report += ["## Time and memory of spinimpute"]
    report += [markdown([["file", "seconds", "of processors", "MB at most"], *costs])]
    report += [f"{arguments.threads} threads, {processor()}."]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, arguments, stages)


def _impute(file: str, likelihoods: Path, panel: Path, arguments: argparse.Namespace) -> tuple[Stage, Path]:
    out = arguments.work / f"{file}.imputed.bcf"
    return impute(OURS, file, ["--gl", likelihoods], panel, out, arguments), out


def impute(
    imputer: str,
    stage: str,
    given: Sequence[object],
    panel: Path,
    out: Path,
    arguments: argparse.Namespace,
    program: Sequence[str] = INSTALLED,
) -> Stage:
    """Impute the samples with these options."""
    words = ["impute", *given, "--panel", panel, "--out", out, "--format", "GT,DS,GP"]
    words += ["--threads", arguments.threads, "-q", "-f", "--decimals", "5"]
    return run(imputer, stage, [*program, *words], arguments.work / "log.txt")


def truth_of(case: Case, likelihoods: Path, work: Path) -> Path:
    """Return the truth of these samples."""
    names = work / "samples.txt"
    names.write_text("\n".join(samples(likelihoods)) + "\n")
    truth = work / "truth.bcf"
    subprocess.run(["bcftools", "view", "-S", names, case.truth, "-Ob", "-o", truth], check=True)
    subprocess.run(["bcftools", "index", "-f", truth], check=True)
    return truth


def score(case: Case, truth: Path, imputed: Mapping[str, Path], table: Path, scorer: Path) -> list[Accuracy]:
    """Write and read the table of the independent scorer."""
    nothing = truth.with_name("nothing.vcf")  # is left out: no site is typed
    with nothing.open("wb") as file:
        subprocess.run(["bcftools", "view", "-h", truth], check=True, stdout=file)
    words: Sequence[object] = [
        *(sys.executable, scorer, "--truth", truth, "--ref", case.panel, "--typed", nothing),
        *("--tsv", table),
        *("--bins", ",".join(f"{edge:g}" for edge in EDGES)),
        *("--imputed", *(f"{label}={path}" for label, path in imputed.items())),
    ]
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    return read_accuracy(table)


def calibration(truth: Path, imputed: Path, panel: Path) -> str:
    """Return shares of correct genotypes by the highest genotype probability, and by frequency."""
    copies = {_key(r): r.genotype.array()[:, :2].sum(axis=1) for r in VCF(str(truth))}
    frequency = {_key(r): np.mean(r.genotype.array()[:, :2]) for r in VCF(str(panel))}
    n_right = np.zeros((len(EDGES) - 1, len(STATED) - 1))
    n_all = np.zeros_like(n_right)
    for record in VCF(str(imputed), samples=samples(truth)):
        key = _key(record)
        if key not in copies:
            continue
        rare = min(frequency[key], 1 - frequency[key])
        if rare == 0:  # as the scorer: such alleles only those have who were taken out of the panel
            continue
        row = int(np.searchsorted(EDGES[1:-1], rare))
        probability_X3 = record.format("GP")
        # small numbers are written as 0 and 1, so that 1 is of the last class
        of_X = np.searchsorted(STATED[1:-1], probability_X3.max(axis=1), side="right")
        right_X = probability_X3.argmax(axis=1) == copies[key]
        np.add.at(n_all[row], of_X, 1)
        np.add.at(n_right[row], of_X, right_X)
    head = ["stated", *(f"≤{edge:g}" for edge in EDGES[1:])]
    rows = [head]
    for k, (low, high) in enumerate(pairwise(STATED)):
        shares = [f"{r[k] / a[k]:.4f}" if a[k] else "–" for r, a in zip(n_right, n_all, strict=True)]
        rows.append([f"{low:g} to {high:g}", *shares])
    return markdown(rows)


def switch_errors(imputed: Mapping[str, Path], truth: Path) -> dict[str, list[str]]:
    """Return switch error rates and pairs of each file, for its own heterozygotes and for shared ones."""
    names = samples(truth)
    calls = {
        label: {_key(r): r.genotype.array()[:, :2] for r in VCF(str(path), samples=names)}
        for label, path in {"": truth, **imputed}.items()
    }
    keys = [key for key in calls[""] if all(key in of_one for of_one in calls.values())]
    truth_SX2, *found = (np.array([of_one[key] for key in keys]) for of_one in calls.values())
    one_SX = truth_SX2.sum(axis=2) == 1
    open_SX = [one_SX & (phased_SX2.sum(axis=2) == 1) for phased_SX2 in found]
    rows: dict[str, list[str]] = {}
    for label, phased_SX2, own_SX in zip(imputed, found, open_SX, strict=True):
        rows[label] = []
        for chosen_SX in (own_SX, np.logical_and.reduce(open_SX)):
            errors, n_pairs = switch_error(phased_SX2, truth_SX2, chosen_SX)
            rows[label] += [f"{errors / n_pairs:.4f}" if n_pairs else "–", str(n_pairs)]
    return rows


def _key(record: object) -> tuple[int, str, str]:
    return record.POS, record.REF, record.ALT[0]  # type: ignore[attr-defined]
