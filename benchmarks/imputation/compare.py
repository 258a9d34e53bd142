"""Allele frequency, 10 nearest haplotypes, Beagle, Minimac4 and spinimpute side by side on one data set.

usage: python benchmarks/imputation/compare.py chr20_eur [--data FOLDER] [--model NAME=checkpoint ...]

Installs nothing: beagle, minimac4 and bcftools must be on the PATH. Each program runs as a whole process
with the same number of threads and the same genetic map; wall seconds and peak memory are those that the
operating system tells. Accuracy is counted by the scorer given with --scorer, and again by
`spinimpute evaluate`; both must agree.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

import spinimpute
from spinimpute.genotypes.sites import match_sites
from spinimpute.genotypes.vcf_reader import read_haplotypes
from spinimpute.genotypes.vcf_writer import GenotypeWriter

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared"))
DATA_SETS = {
    "chr20_eur": ("plink.chr20.GRCh37.map", "0,0.002,0.005,0.01,0.05,0.5"),
    "chr22_1kg": ("plink.chr22.GRCh37.map", "0,0.0005,0.001,0.002,0.005,0.01,0.05,0.5"),
}
NEAREST, CORE, FLANK = 10, 8, 12  # haplotypes copied; typed sites of a window and on each of its sides
AGREEMENT = 1e-4


@dataclass(frozen=True)
class Stage:
    """One process that was run."""

    imputer: str
    stage: str
    seconds: float
    peak_mb: float
    command: list[str]


def run(imputer: str, stage: str, command: list[str], log: Path) -> Stage:
    """Run a command to its end; SystemExit with its log if it fails."""
    start = time.perf_counter()
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')[-2000:]}")
    print(f"{imputer:<24}{stage:<16}{seconds:8.1f} s {usage.ru_maxrss / 1024:8.0f} MB", flush=True)
    return Stage(imputer, stage, seconds, usage.ru_maxrss / 1024, command)


def nearest_haplotypes(panel: spinimpute.Panel, target_path: Path, out: Path) -> None:
    """Copy the mean of the panel haplotypes nearest in Hamming distance over short windows of typed sites.

    Ties at the tenth distance go to the haplotypes that come first in the panel.
    """
    target = read_haplotypes(target_path)
    match = match_sites(panel.sites, target.sites)
    alleles_XN = panel.alleles(0, panel.n_sites)
    typed_TN = alleles_XN[match.panel_index].astype(np.float32)
    typed_TQ = np.maximum(target.alleles[match.target_index], 0).astype(np.float32)  # missing: REF
    bounds = [0, *match.panel_index[CORE::CORE], panel.n_sites]
    p_XQ = np.empty((panel.n_sites, typed_TQ.shape[1]), dtype=np.float32)
    for w, (start, stop) in enumerate(itertools.pairwise(bounds)):
        near = slice(max(w * CORE - FLANK, 0), (w + 1) * CORE + FLANK)
        context, query = typed_TN[near], typed_TQ[near]
        distance_QN = query.T @ (1 - context) + (1 - query).T @ context
        nearest_QK = np.argsort(distance_QN, axis=1, kind="stable")[:, :NEAREST]
        weight_QN = np.zeros_like(distance_QN)
        np.put_along_axis(weight_QN, nearest_QK, 1 / NEAREST, axis=1)
        p_XQ[start:stop] = alleles_XN[start:stop].astype(np.float32) @ weight_QN.T
    typed = np.zeros(panel.n_sites, dtype=bool)
    typed[match.panel_index] = True
    with GenotypeWriter(out, target.samples, target.ploidy, [panel.contig_line]) as writer:
        writer.write_block(panel.chrom, panel.sites, p_XQ, {}, None, typed)


def compare(
    name: str, data: Path, models: dict[str, str], threads: int, work: Path
) -> tuple[list[Stage], dict]:
    """Run everything; returns the processes and the imputed file of each imputer."""
    folder, genetic_map = data / name, data / "maps" / DATA_SETS[name][0]
    panel, target, log = folder / "panel.bcf", folder / "target.phased.bcf", work / "log.txt"
    stages, imputed = [], {}
    mine = str(Path(sys.executable).with_name("spinimpute"))

    def step(imputer: str, stage: str, *command: object) -> None:
        stages.append(run(imputer, stage, [str(part) for part in command], log))

    panel_vcf, target_vcf = work / "panel.vcf.gz", work / "target.vcf.gz"
    # Beagle reads VCF only; the conversion is not its cost
    for source, copy in ((panel, panel_vcf), (target, target_vcf)):
        subprocess.run(["bcftools", "view", "-Oz", "-o", copy, source], check=True)
        subprocess.run(["bcftools", "index", "-f", "-t", copy], check=True)
    beagle = work / "beagle"
    step("Beagle", "impute", "beagle", f"gt={target_vcf}", f"ref={panel_vcf}", f"map={genetic_map}",
         f"nthreads={threads}", f"out={beagle}")  # fmt: skip
    imputed["Beagle"] = Path(f"{beagle}.vcf.gz")

    msav, minimac = work / "panel.msav", work / "minimac4.vcf.gz"
    step("Minimac4", "compress panel", "minimac4", "--compress-reference", panel_vcf, "-o", msav)
    step("Minimac4", "impute", "minimac4", msav, target_vcf, "-o", minimac, "-f", "GT,DS", "-t", threads,
         "--map", genetic_map)  # fmt: skip
    imputed["Minimac4"] = minimac

    spin = work / "panel.spin"
    step(
        "spinimpute",
        "build panel",
        mine,
        "panel",
        "build",
        "--vcf",
        panel,
        "--map",
        genetic_map,
        "--out",
        spin,
    )
    for label, checkpoint in {"spinimpute": "", **models}.items():
        out = work / f"{label}.bcf"
        extra = ["--model", checkpoint] if checkpoint else []
        step(label, "impute", mine, "impute", "--vcf", target, "--panel", spin, "--out", out, "--threads",
             threads, *extra)  # fmt: skip
        imputed[label] = out
    imputed["10 nearest haplotypes"] = work / "nearest.bcf"
    with spinimpute.Panel.open(spin) as opened:
        nearest_haplotypes(opened, target, imputed["10 nearest haplotypes"])
    return stages, imputed


def score(name: str, data: Path, scorer: Path, imputed: dict[str, Path], tsv: Path) -> list[list[str]]:
    """Rows of the neutral scorer, checked against our own evaluation."""
    folder = data / name
    labels = {label.replace(" ", "_"): path for label, path in imputed.items()}
    command = [sys.executable, str(scorer), "--truth", folder / "truth.bcf", "--ref", folder / "panel.bcf"]
    command += ["--typed", folder / "target.phased.bcf", "--bins", DATA_SETS[name][1], "--tsv", tsv]
    command += ["--imputed", *(f"{label}={path}" for label, path in labels.items())]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    rows = [line.split("\t") for line in tsv.read_text().splitlines()]
    bins = tuple(float(bound) for bound in DATA_SETS[name][1].split(","))
    for label, path in labels.items():
        own = spinimpute.evaluate(
            folder / "truth.bcf", path, folder / "panel.bcf", folder / "target.phased.bcf", bins=bins
        ).by_frequency
        own = own[own["imputer"] == "imputed"]
        theirs = [row for row in rows if row[0] == label]
        for column, at in (("pooled_r2", 3), ("mean_r2", 4), ("nrc", 5)):
            scored = np.array([float(row[at]) for row in theirs])
            if not np.allclose(own[column].to_numpy(float), scored, rtol=0, atol=AGREEMENT, equal_nan=True):
                sys.exit(f"{label}: {column} of the scorer and of spinimpute differ by more than {AGREEMENT}")
    return rows


def markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def accuracy_table(rows: list[list[str]]) -> str:
    """Pooled r2 by bin, one line an imputer."""
    bins = list(dict.fromkeys(row[1] for row in rows[1:]))
    table = [["pooled r²", *bins, "mean per-variant r²"]]
    for label in dict.fromkeys(row[0] for row in rows[1:]):
        mine = {row[1]: row for row in rows if row[0] == label}
        table.append([label.replace("_", " "), *(mine[b][3] for b in bins), mine["all"][4]])
    return markdown(table)


def timing_table(stages: list[Stage]) -> str:
    """Seconds and memory of each process; the total of Beagle is the unit."""
    unit = sum(s.seconds for s in stages if s.imputer == "Beagle")
    table = [["program", "stage", "wall s", "ratio to Beagle", "peak MB"]]
    table += [
        [s.imputer, s.stage, f"{s.seconds:.1f}", f"{s.seconds / unit:.2f}", f"{s.peak_mb:.0f}"]
        for s in stages
    ]
    return markdown(table)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=DATA_SETS)
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "genotypes")
    parser.add_argument("--scorer", type=Path, default=SHARED / "tools" / "score_imputation.py")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=FILE", help="further checkpoints"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    for program in ("beagle", "minimac4", "bcftools"):
        if shutil.which(program) is None:
            parser.error(f"{program} is not on the PATH (Debian: apt-get install beagle minimac4 bcftools)")
    models = dict(entry.split("=", 1) for entry in args.model)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    out = args.results / f"{today}-{args.name}"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        stages, imputed = compare(args.name, args.data, models, args.threads, Path(work))
        rows = score(args.name, args.data, args.scorer, imputed, out / "accuracy.tsv")
        places = {work: "WORK", str(args.data): "DATA", str(Path(sys.executable).parent): "BIN"}
    commands = []
    for stage in stages:
        line = " ".join(stage.command)
        for path, symbol in places.items():
            line = line.replace(path, symbol)
        commands.append(line if stage.imputer not in models else line.replace(models[stage.imputer], "MODEL"))
    configuration = {
        "date": today,
        "data": args.name,
        "threads": args.threads,
        "processor": processor(),
        "versions": {n: version(n) for n in ("spinimpute", "torch", "numpy", "cyvcf2")},
        "models": {label: spinimpute.load_predictor(path or None).fingerprint
                   for label, path in {"spinimpute": "", **models}.items()},
        "commands": commands,
    }  # fmt: skip
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    report = f"# {args.name}, {today}\n\n{accuracy_table(rows)}\n\n{timing_table(stages)}\n\n"
    report += f"{args.threads} threads, {configuration['processor']}.\n"
    (out / "report.md").write_text(report)
    print(report)


if __name__ == "__main__":
    main()
