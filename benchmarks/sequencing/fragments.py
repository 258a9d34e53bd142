"""`fragments`: reads as BAM files, compared with the likelihoods that they give site by site."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case, find_case
from benchmarks.imputation.results import processor
from benchmarks.imputation.tables import accuracy_table, markdown
from benchmarks.phasing.left_out import switch_error
from benchmarks.sequencing.compare import calibration, impute, leave_out, score
from benchmarks.sequencing.results import built_panel, result_folder, write_configuration
from benchmarks.sequencing.simulated_reads import LONG, MARGIN, SHORT, ReadKind, SequencedPeople
from spinimpute.genotypes.builds import contig_length
from spinimpute.panels.panel import Panel
from spinimpute.sequencing.pileup import read_alignments

WITH, WITHOUT = "fragments", "sites alone"
HEADER = """##fileformat=VCFv4.2
##contig=<ID={}>
##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled likelihoods">
"""


def fragments(arguments: argparse.Namespace) -> None:
    """Impute both kinds of reads at all depths."""
    case = leave_out(find_case(arguments.case, arguments.data), arguments.people, arguments.work)
    folder = result_folder(arguments, f"fragments-{case.name}")
    panel = built_panel(case, arguments.work / "panel.spin")
    people = people_of(case, panel)
    report, stages = [f"# Reads and their likelihoods by site: {arguments.people} people of {case.name}"], []
    costs = [["reads", "", "switch errors", "seconds of processors", "MB at most"]]
    for kind, depths in ((SHORT, arguments.coverage), (LONG, arguments.long_coverage)):
        for depth in filter(None, depths.split(",")):
            name = f"{kind.name}, {depth}x"
            given = _given(people, kind, float(depth), panel, arguments)
            imputed = {label: arguments.work / f"{label.replace(' ', '-')}.bcf" for label in given}
            for label, options in given.items():
                stage = impute(label, name, options, panel, imputed[label], arguments)
                stages.append(stage)
                errors = f"{_switch_error(imputed[label], case.truth):.4f}"
                costs.append([name, label, errors, f"{stage.cpu_seconds:.1f}", f"{stage.peak_mb:.0f}"])
            table = folder / f"{name.replace(', ', '-').replace(' ', '-')}.tsv"
            rows = score(case, case.truth, imputed, table, arguments.scorer)
            report += [f"## {name}", *(accuracy_table(rows, m) for m in ("pooled_r2", "mean_r2"))]
            for label, path in imputed.items():
                report += [f"Genotypes by the probability stated, and how many are right, {label}:"]
                report += [calibration(case.truth, path, case.panel)]
    report += ["## Phase, time and memory", markdown(costs)]
    report += [f"Reading of files included. {arguments.threads} threads, {processor()}."]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, arguments, stages)


def people_of(case: Case, panel: Path, *, with_indels: bool = False) -> SequencedPeople:
    """Return the people of the truth at its SNPs, and at its insertions and deletions."""
    truth = VCF(str(case.truth))
    records = [
        (r.POS, r.REF, r.ALT[0], r.genotype.array()[:, :2].ravel())
        for r in truth
        if r.is_snp or (with_indels and r.is_indel)
    ]
    position, ref, alt, alleles = (list(column) for column in zip(*records, strict=True))
    with Panel.open(panel) as opened:
        chrom, length = opened.chrom, contig_length(opened.contig_line) or position[-1] + MARGIN
    return SequencedPeople(chrom, length, position, ref, alt, truth.samples, np.array(alleles, np.uint8))


def _given(
    people: SequencedPeople, kind: ReadKind, depth: float, panel: Path, arguments: argparse.Namespace
) -> dict[str, list[object]]:
    """Options of `impute`: reads, or a file of their likelihoods."""
    paths = people.write_bams(arguments.work, kind, depth, arguments.seed)
    likelihoods = arguments.work / "likelihoods.vcf"
    with Panel.open(panel) as opened:
        found = read_alignments(paths, opened)
        chosen = opened.sites.take(found.panel_index).keys()
    head = HEADER.format(people.chrom)
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *found.samples]
    with likelihoods.open("w") as file:
        file.write(head + "\t".join(columns) + "\n")
        for (position, ref, alt), phred_X3 in zip(chosen, found.phred_SX3.tolist(), strict=True):
            fields = [",".join(map(str, phred_3)) for phred_3 in phred_X3]
            file.write("\t".join([people.chrom, str(position), ".", ref, alt, *"...", "PL", *fields]) + "\n")
    reads = [word for path in paths for word in ("--bam", path)]
    return {WITHOUT: ["--gl", likelihoods], WITH: reads}


def _switch_error(imputed: Path, truth: Path) -> float:
    """Of neighbouring heterozygotes that are imputed as such, how many are joined the other way."""
    calls = {(r.POS, r.REF, r.ALT[0]): r.genotype.array()[:, :2] for r in VCF(str(truth))}
    samples = VCF(str(truth)).samples
    pairs = [
        (r.genotype.array()[:, :2], calls[r.POS, r.REF, r.ALT[0]])
        for r in VCF(str(imputed), samples=samples)
        if (r.POS, r.REF, r.ALT[0]) in calls
    ]
    ours_SX2, truth_SX2 = (np.array(one) for one in zip(*pairs, strict=True))
    open_SX = (ours_SX2.sum(axis=2) == 1) & (truth_SX2.sum(axis=2) == 1)
    errors, n_pairs = switch_error(ours_SX2, truth_SX2, open_SX)
    return errors / n_pairs
