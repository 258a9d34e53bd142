"""`unphased`: the same targets without phase, imputed by the programs that phase targets themselves."""

from __future__ import annotations

import argparse
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case
from benchmarks.imputation.compare import judged
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import Beagle, Imputer
from benchmarks.imputation.results import write_outcome
from benchmarks.imputation.study import impute_case
from benchmarks.imputation.tables import accuracy_table, markdown, write_tsv

MISSING = 0.01  # of the calls of a target that is made


def unphased(arguments: argparse.Namespace) -> None:
    """Analyse each case; its results go to a folder of its own."""
    with session(arguments) as run:
        imputers: tuple[Imputer, ...] = (Beagle(), *run.ours)  # Minimac4 wants phased targets
        for name in arguments.cases:
            full = run.case(name)
            work = run.work_folder(full.name)
            case = without_phase(full, run.seed, work)
            imputed = impute_case(case, imputers, work, run.threads, run.repeat)
            out = run.result_folder(f"{run.name}-{case.name}" if run.name else case.name)
            outcome = judged(case, imputed, run, out, strata=False)
            write_outcome(outcome, out, run)
            table = _switch_table(full, imputed.files, out, run)
            print(f"{accuracy_table(outcome.rows, 'pooled_r2')}\n{table}\n{out / 'report.md'}")


def without_phase(case: Case, seed: int, folder: Path) -> Case:
    """Return the case with the unphased target next to the phased one.

    If there is none, it is made: alleles are sorted, and 1 % of the calls are set missing.
    """
    target = case.target.with_name("target.unphased.vcf.gz")
    if not target.is_file():
        target = folder / "unphased.vcf.gz"
        _write_without_phase(case.target, target, np.random.default_rng(seed))
    return replace(case, name=f"{case.name}-unphased", target=target)


def _write_without_phase(source: Path, out: Path, rng: np.random.Generator) -> None:
    file = VCF(str(source))
    contigs = "".join(f"##contig=<ID={name}>\n" for name in file.seqnames)
    with gzip.open(out, "wt") as text:
        text.write(f"##fileformat=VCFv4.2\n{contigs}")
        text.write('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n')
        fixed = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
        text.write("\t".join([*fixed, *file.samples]) + "\n")
        for record in file:
            alleles = np.sort(record.genotype.array()[:, :2], axis=1)
            missing = rng.random(len(alleles)) < MISSING
            calls = ["./." if gone else f"{a}/{b}" for gone, (a, b) in zip(missing, alleles, strict=True)]
            site = [record.CHROM, str(record.POS), ".", record.REF, record.ALT[0], ".", ".", ".", "GT"]
            text.write("\t".join([*site, *calls]) + "\n")


def _switch_table(case: Case, files: dict[str, Path], out: Path, run: Session) -> str:
    """Also added to the report."""
    rows = [["program", "switch errors", "pairs of heterozygotes", "part"]]
    for label, path in files.items():
        errors, pairs = switch_errors(case.target, path)
        rows.append([label.replace("_", " "), str(errors), str(pairs), f"{errors / pairs:.5f}"])
    write_tsv(out / "switches.tsv", rows)
    table = markdown(rows)
    report = out / "report.md"
    report.write_text(
        f"{report.read_text()}\n## Phase\n\n{table}\n\nBetween neighbouring typed heterozygotes of a person, "
        "beside the phased target.\n"
    )
    return table


def switch_errors(phased: Path, imputed: Path) -> tuple[int, int]:
    """Return the number of switch errors and of pairs of neighbouring heterozygotes.

    phased: the truth at typed sites. Only heterozygotes in both files count.
    """
    truth = {
        (record.POS, record.REF, tuple(record.ALT)): record.genotype.array()[:, :2]
        for record in VCF(str(phased))
    }
    pairs = []
    for record in VCF(str(imputed)):
        true_X2 = truth.get((record.POS, record.REF, tuple(record.ALT)))
        if true_X2 is not None:
            pairs.append((true_X2, record.genotype.array()[:, :2]))
    true_SX2, found_SX2 = (np.stack([pair[i] for pair in pairs]) for i in range(2))
    het_SX = (true_SX2[:, :, 0] != true_SX2[:, :, 1]) & (found_SX2[:, :, 0] != found_SX2[:, :, 1])
    errors = n_pairs = 0
    for x in range(het_SX.shape[1]):
        same = (true_SX2[:, x, 0] == found_SX2[:, x, 0])[het_SX[:, x]]
        errors += int((same[1:] != same[:-1]).sum())
        n_pairs += max(0, len(same) - 1)
    return errors, n_pairs
