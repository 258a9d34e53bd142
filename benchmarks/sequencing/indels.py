"""`indels`: insertions and deletions in reads, with `--indels`.

Axes: S sites, X samples.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import find_case
from benchmarks.imputation.results import processor
from benchmarks.imputation.tables import accuracy_table, markdown
from benchmarks.sequencing.aligned import aligned_again
from benchmarks.sequencing.compare import calibration, impute, leave_out, score
from benchmarks.sequencing.fragments import people_of
from benchmarks.sequencing.results import built_panel, result_folder, write_configuration
from benchmarks.sequencing.simulated_reads import SHORT
from spinimpute.panels.panel import Panel
from spinimpute.sequencing.pileup import PileupSettings, read_alignments

WITHOUT, WITH = "SNPs alone", "with --indels"
KINDS = ("indels", "snps")  # as bcftools names them
QUALITIES = (0, 10, 15, 20, 30, 41)


def indels(arguments: argparse.Namespace) -> None:
    """Impute read pairs at all depths, with and without the option."""
    case = leave_out(find_case(arguments.case, arguments.data), arguments.people, arguments.work)
    folder = result_folder(arguments, f"indels-{case.name}")
    panel = built_panel(case, arguments.work / "panel.spin")
    people = people_of(case, panel, with_indels=True)
    truths = {kind: _only(case.truth, kind) for kind in KINDS}
    by = "aligned by bwa mem" if arguments.aligner else "aligned where they are from"
    report = [f"# Insertions and deletions from reads: {arguments.people} people of {case.name}, reads {by}"]
    stages, costs = [], [["depth", "", "seconds of processors", "MB at most"]]
    for depth in arguments.coverage.split(","):
        paths = people.write_bams(arguments.work, SHORT, float(depth), arguments.seed)
        if arguments.aligner:
            paths = aligned_again(people, paths, arguments.seed, arguments.aligner)
        report += [f"## {depth}x", *_shown(paths, panel, case.truth)]
        reads = [word for path in paths for word in ("--bam", path)]
        imputed = {label: arguments.work / f"{label.replace(' ', '')}.bcf" for label in (WITHOUT, WITH)}
        for label, out in imputed.items():
            given = [*reads, "--indels"] if label == WITH else reads
            stage = impute(label, f"{depth}x", given, panel, out, arguments)
            stages.append(stage)
            costs.append([f"{depth}x", label, f"{stage.cpu_seconds:.1f}", f"{stage.peak_mb:.0f}"])
        for kind, truth in truths.items():
            of_kind = replace(case, truth=truth)
            rows = score(of_kind, truth, imputed, folder / f"{kind}-{depth}x.tsv", arguments.scorer)
            report += [f"### {kind}", *(accuracy_table(rows, m) for m in ("pooled_r2", "mean_r2"))]
            for label, path in imputed.items():
                report += [f"Genotypes by the probability stated, and how many are right, {label}:"]
                report += [calibration(truth, path, case.panel)]
    report += ["## Time and memory", markdown(costs)]
    report += [f"Reading of files included. {arguments.threads} threads, {processor()}."]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, arguments, stages)


def _only(path: Path, kind: str) -> Path:
    """The records of a kind."""
    out = path.with_suffix(f".{kind}.bcf")
    subprocess.run(["bcftools", "view", "-v", kind, path, "-Ob", "-o", out], check=True)
    subprocess.run(["bcftools", "index", "-f", out], check=True)
    return out


def _shown(paths: Sequence[Path], panel: Path, truth: Path) -> list[str]:
    """What reads show at insertions and deletions of homozygotes, by quality, beside what that says."""
    alleles = {
        (r.POS, r.REF, r.ALT[0]): r.genotype.array()[:, :2].sum(axis=1) for r in VCF(str(truth)) if r.is_indel
    }
    n_right, n_all = np.zeros((2, len(QUALITIES) - 1))
    stated = np.zeros(len(QUALITIES) - 1)
    with Panel.open(panel) as opened:
        found = read_alignments(paths, opened, settings=PileupSettings(indels=True))
        keys = opened.sites.keys()
        copies_SX = np.array([alleles.get(key, np.ones(len(paths), int)) for key in keys])
    order = [VCF(str(truth)).samples.index(sample) for sample in found.samples]
    for x, bases in zip(order, found.bases_X, strict=True):
        copies = copies_SX[bases.panel_index, x]
        homozygous = copies != 1
        quality = bases.quality[homozygous]
        of_class = np.searchsorted(QUALITIES, quality, side="right") - 1
        np.add.at(n_all, of_class, 1)
        np.add.at(n_right, of_class, 2 * bases.allele[homozygous] == copies[homozygous])
        np.add.at(stated, of_class, 10 ** (quality / -10))
    rows = [["quality", "alleles counted", "wrong", "as stated"]]
    for k, (low, high) in enumerate(pairwise(QUALITIES)):
        if n_all[k]:
            wrong = 1 - n_right[k] / n_all[k]
            rows.append(
                [f"{low} to {high - 1}", f"{n_all[k]:.0f}", f"{wrong:.4f}", f"{stated[k] / n_all[k]:.4f}"]
            )
    return ["Reads at insertions and deletions of homozygotes:", markdown(rows)]
