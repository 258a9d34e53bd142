"""Multi-allelic SNPs, structural variants and repeats beside Beagle: `python -m benchmarks.multiallelic`.

A panel and a target are simulated (see `simulation`). Beagle and spinimpute impute the target from the same
files. Each ALT allele is scored by the squared correlation of its dosages with the truth, pooled over the
alleles of a kind and a range of minor allele frequencies. Before, all dosages are turned to the allele that
is rarer in the panel. An allele that a file lacks has the panel's frequency.

The length of a repeat is scored as well: the sum of the lengths of a person's two alleles, computed from the
dosages. Its r² is the mean over the repeats of which the length varies in the truth.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.programs import Beagle, Ours, check_programs
from benchmarks.imputation.results import commit, package_versions, processor
from benchmarks.imputation.simulated_set import POPULATIONS, History
from benchmarks.imputation.tables import markdown, write_tsv
from benchmarks.multiallelic.simulation import (
    DELETION,
    INSERTION,
    MULTIALLELIC,
    REPEAT,
    SNP,
    Files,
    write_files,
)

RESULTS = Path(__file__).parent / "results"
LENGTH = "length of an STR"
KINDS = (SNP, MULTIALLELIC, DELETION, INSERTION, REPEAT)
BINS = (0, 0.002, 0.01, 0.05, 0.5)
PACKAGES = ("spinimpute", "numpy", "msprime")

Allele = tuple[int, str]  # position and ALT


def main() -> None:
    """Simulate, impute, score and write tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--panel-people", type=int, default=1_000)
    parser.add_argument("--target-people", type=int, default=200)
    parser.add_argument("--length", type=int, default=2_000_000, help="bp")
    parser.add_argument("--typed-sites", type=int, default=1_000)
    parser.add_argument("--history", choices=POPULATIONS, default=History.model)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="simulated")
    arguments = parser.parse_args()
    check_programs()
    out = RESULTS / f"{datetime.now(UTC).date().isoformat()}-{arguments.name}"
    out.mkdir(parents=True, exist_ok=True)
    stages: list[Stage] = []
    scores: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    sums = []
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as work:
            imputed, files = _impute(arguments, seed, Path(work), stages)
            truth = dosages(files.truth)
            for label, path in imputed.items():
                found = dosages(path)
                sums.append([label, str(seed), f"{largest_sum(found):.3f}"])
                r2, n = score_lengths(files, imputed=path)
                scores[label, LENGTH, 0].append(r2)
                numbers[LENGTH, 0].append(n)
                for (kind, number), (r2, n) in score(files, truth, found).items():
                    scores[label, kind, number].append(r2)
                    numbers[kind, number].append(n)
    labels = list(imputed)
    table = [["kind", "MAF", "alleles", *labels]]
    for kind in (*KINDS, LENGTH):
        for number in range(len(BINS)):
            if (kind, number) in numbers:
                means = [f"{np.mean(scores[label, kind, number]):.4f}" for label in labels]
                table.append([kind, _bin_text(number), f"{np.mean(numbers[kind, number]):.0f}", *means])
    largest = [["method", "seed", "largest sum of the dosages of a person's ALT alleles"], *sums]
    times = [["method", "stage", "seconds", "processor seconds", "peak MB"]]
    times += [
        [s.imputer, s.stage, f"{s.seconds:.1f}", f"{s.cpu_seconds:.1f}", f"{s.peak_mb:.0f}"] for s in stages
    ]
    report = ["# Multi-allelic SNPs, structural variants and repeats", "r², mean over seeds:"]
    report += [
        markdown(table),
        markdown(largest),
        markdown(times),
        f"{arguments.threads} threads, {processor()}.",
    ]
    (out / "report.md").write_text("\n\n".join(report) + "\n")
    write_tsv(out / "accuracy.tsv", table)
    configuration = {
        "command": f"python -m benchmarks.multiallelic {' '.join(sys.argv[1:])}",
        "commit": commit(),
        **{key: value for key, value in vars(arguments).items() if key != "name"},
        "processor": processor(),
        "versions": package_versions(PACKAGES),
    }
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    print("\n\n".join(report))


def _impute(
    arguments: argparse.Namespace, seed: int, work: Path, stages: list[Stage]
) -> tuple[dict[str, Path], Files]:
    """Simulate a set and impute it with all programs. Return the imputed files by program."""
    people = arguments.panel_people + arguments.target_people
    history = History(people, arguments.length, arguments.length * 1e-6, seed, arguments.history)
    files = write_files(history, arguments.panel_people, arguments.typed_sites, work)
    case = Case("simulated", files.panel, files.target, files.truth, files.genetic_map, files.target)
    imputed = {}
    for program in (Beagle(), Ours()):
        panel, out = work / program.panel_name, work / f"{program.label}.vcf.gz"
        stages.append(run(program.label, "panel", program.build(case, panel), work / "log"))
        command = program.impute(case, panel, files.target, out, ("GT", "DS"), arguments.threads)
        stages.append(run(program.label, "impute", command, work / "log"))
        imputed[program.label] = out
    return imputed, files


def dosages(path: Path) -> dict[Allele, np.ndarray]:
    """Return the dosages of all ALT alleles of a file, float32 (people,). Without DS, alleles are counted."""
    by_allele: dict[Allele, np.ndarray] = {}
    for record in VCF(str(path)):
        stored = record.format("DS") if "DS" in record.FORMAT else None
        number_N2 = record.genotype.array()[:, :2]
        for k, alt in enumerate(record.ALT):
            counted = (number_N2 == k + 1).sum(axis=1) if stored is None else stored[:, k]
            by_allele[record.POS, alt] = counted.astype(np.float32)
    return by_allele


def largest_sum(dosages: dict[Allele, np.ndarray]) -> float:
    total: dict[int, np.ndarray] = {}
    for (position, _), values in dosages.items():
        total[position] = total.get(position, 0) + values
    return max(float(values.max()) for values in total.values())


def score(
    files: Files, truth: dict[Allele, np.ndarray], imputed: dict[Allele, np.ndarray]
) -> dict[tuple[str, int], tuple[float, int]]:
    """Return pooled r² and the number of alleles, by kind and bin of minor allele frequency."""
    groups: dict[tuple[str, int], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for allele, kind in files.kinds.items():
        frequency = files.frequency[allele]
        if not 0 < frequency < 1:
            continue
        true = truth[allele]
        found = imputed.get(allele, np.full(len(true), 2 * frequency, np.float32))
        if frequency > 0.5:
            true, found = 2 - true, 2 - found
        number = int(np.searchsorted(BINS, min(frequency, 1 - frequency)))
        groups[kind, number].append((true, found))
    result = {}
    for key, pairs in groups.items():
        true, found = (np.concatenate(side) for side in zip(*pairs, strict=True))
        result[key] = float(np.corrcoef(true, found)[0, 1] ** 2), len(pairs)
    return result


def score_lengths(files: Files, imputed: Path) -> tuple[float, int]:
    """Return the mean r² of the lengths of repeats, and how many vary in the truth."""
    positions = {position for (position, _), kind in files.kinds.items() if kind == REPEAT}
    true, found = (_lengths(path, positions) for path in (files.truth, imputed))
    r2 = [
        np.corrcoef(true[at], found[at])[0, 1] ** 2 if at in found and found[at].std() > 0 else 0.0
        for at in sorted(positions)
        if true[at].std() > 0
    ]
    return float(np.mean(r2)), len(r2)


def _lengths(path: Path, positions: set[int]) -> dict[int, np.ndarray]:
    """Return the sum of the lengths of a person's alleles, minus twice that of REF, by position."""
    difference: dict[int, np.ndarray] = {}
    n_bases = {record.POS: len(record.REF) for record in VCF(str(path)) if record.POS in positions}
    for (position, alt), values in dosages(path).items():
        if position in positions:
            added = values * (len(alt) - n_bases[position])
            difference[position] = difference.get(position, 0) + added
    return difference


def _bin_text(number: int) -> str:
    if not number:
        return "all"
    return f"{BINS[number - 1]:g} to {BINS[number]:g}"


if __name__ == "__main__":
    main()
