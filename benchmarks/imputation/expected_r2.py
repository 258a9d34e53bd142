"""`r2`: does a program's printed R2 match the true r2 of its dosages, and which sites does a cutoff keep?

Axes: X scored sites, S people.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.imputation.answers import read_answers, read_guess
from benchmarks.imputation.calibration import estimates, read_estimates, true_r2
from benchmarks.imputation.cases import Case
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.results import describe, models_used, write_configuration
from benchmarks.imputation.study import Imputed, impute_case
from benchmarks.imputation.tables import markdown, number, size_table, vcf_sizes, write_tsv
from spinimpute.quality.metrics import ALL_FREQUENCIES, frequency_bins

CUT = 0.3  # of the printed R2: what users of all three programs commonly keep
GOOD = (0.3, 0.8)  # true r2 from which a site is missed
BAD = 0.2  # true r2 below which a site should not be kept

ESTIMATE_HEAD = ["imputer", "bin", "sites", "without R2", "mean R2", "mean true r²", "correlation"]
CUT_HEAD = [
    "imputer",
    "bin",
    "kept",
    *(f"lost of true r² ≥ {good}" for good in GOOD),
    f"kept of true r² < {BAD}",
    "kept of constant",
]


@dataclass(frozen=True)
class Part:
    """Sites of a kind, and how many of them a cutoff treats wrongly."""

    sites: int
    wrong: int

    def text(self) -> str:
        """Both numbers and the share, as text."""
        return f"{self.wrong} of {self.sites} ({self.wrong / self.sites:.1%})" if self.sites else "–"


@dataclass(frozen=True)
class Cut:
    """Result of keeping only the sites of a bin with a printed R2 of at least CUT."""

    bin: str
    kept: Part  # of all sites
    lost_good: tuple[Part, ...]  # of the sites with a true r2 of at least GOOD, those that are not kept
    kept_bad: Part  # of the sites with a true r2 below BAD
    kept_constant: Part  # of the sites that do not vary in the truth, and so have no true r2


def cuts(
    true_r2_X: np.ndarray, printed_X: np.ndarray, minor_frequency_X: np.ndarray, edges: Sequence[float]
) -> list[Cut]:
    """Count sites lost and kept, over all sites and by bin (low, high] of minor allele frequency.

    Empty bins are omitted. printed_X: printed R2; NaN if nothing is printed: such a site is not kept.
    """
    kept_X = np.nan_to_num(printed_X, nan=-1.0) >= CUT
    rows = []
    for one in (ALL_FREQUENCIES, *frequency_bins(edges)):
        inside = one.contains(minor_frequency_X)
        if not inside.any():
            continue

        def part(of: np.ndarray, wrong: np.ndarray, inside: np.ndarray = inside) -> Part:
            return Part(int((inside & of).sum()), int((inside & of & wrong).sum()))

        rows.append(
            Cut(
                one.label,
                part(inside, kept_X),
                tuple(part(true_r2_X >= good, ~kept_X) for good in GOOD),
                part(true_r2_X < BAD, kept_X),
                part(np.isnan(true_r2_X), kept_X),
            )
        )
    return rows


def expected_r2(arguments: argparse.Namespace) -> None:
    """Analyse each case; its results go to a folder of its own."""
    with session(arguments) as run:
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            imputed = impute_case(case, run.imputers, work, run.threads)
            out = run.result_folder(f"{run.name or 'r2'}-{case.name}")
            report = _report(case, run, imputed, out)
            write_configuration(out, run, imputed.stages, {"models": models_used(imputed.files)})
            print(report)


def _report(case: Case, run: Session, imputed: Imputed, out: Path) -> str:
    answers = read_answers(case)
    by_bin: list[list[str]] = []
    by_cut: list[list[str]] = []
    for imputer in run.imputers:
        path = imputed.files[imputer.label]
        dosage_XS = read_guess(answers, path).dosage_XS
        printed_X = read_estimates(answers, path, imputer.estimate)
        for e in estimates(answers.true_XS, dosage_XS, printed_X, answers.minor_frequency, case.bins):
            means = (number(value) for value in (e.mean_estimated, e.mean_true, e.correlation))
            by_bin.append([imputer.label, e.bin, str(e.sites), str(e.without), *means])
        of_sites = true_r2(answers.true_XS, dosage_XS)
        for cut in cuts(of_sites, printed_X, answers.minor_frequency, case.bins):
            parts = (cut.kept, *cut.lost_good, cut.kept_bad, cut.kept_constant)
            by_cut.append([imputer.label, cut.bin, *(part.text() for part in parts)])
    sizes = vcf_sizes(imputed.files)
    write_tsv(out / "estimates.tsv", [ESTIMATE_HEAD, *by_bin])
    write_tsv(out / "cuts.tsv", [CUT_HEAD, *by_cut])
    write_tsv(out / "sizes.tsv", [["imputer", "bytes"], *sizes.items()])
    report = "\n\n".join(
        [
            f"# {case.name}: printed and true r²",
            describe(case),
            "## Printed R2 and true r² of the sites that vary in the truth",
            markdown([ESTIMATE_HEAD, *by_bin]),
            "R2 is what INFO says (Beagle: DR2); r² is the squared correlation of dosages with truth, both "
            "in copies of the panel's minor allele, at sites that were not typed. Only sites that vary among "
            "the people imputed have one.",
            f"## What is kept with R2 ≥ {CUT}",
            markdown([CUT_HEAD, *by_cut]),
            "A site that does not vary in the truth has no r²: it is in the last column and in `kept` alone.",
            "## Size of VCF.gz with GT:DS",
            size_table(sizes),
        ]
    )
    (out / "report.md").write_text(report + "\n")
    return report
