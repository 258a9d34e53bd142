"""`calibration`: are genotype probabilities calibrated? Is the estimated r2 correct?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.imputation.answers import Answers, Guess, read_answers, read_guess
from benchmarks.imputation.cases import Case
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import PROBABILITY_FORMATS, Imputer
from benchmarks.imputation.results import describe, models_used, write_configuration
from benchmarks.imputation.study import impute_case
from benchmarks.imputation.tables import markdown, number, write_tsv
from spinimpute.evaluation.genotype_file import GenotypeFile
from spinimpute.quality.metrics import ALL_FREQUENCIES, frequency_bins, mean_variant_r2, site_statistics

# of the probability of the best guess, [low, high)
RANGES = {
    "below 0.5": (0, 0.5),
    "0.5 to 0.9": (0.5, 0.9),
    "0.9 and more": (0.9, 2),
    "0.99 and more": (0.99, 2),
}
ROUNDING = 1e-6  # a float32 of 0.9 is meant to be 0.9
ALL_GENOTYPES, CARRIERS = "all", "said to carry the minor allele"


@dataclass(frozen=True)
class Trust:
    """Genotypes whose best guess has a probability within a range."""

    genotypes: str  # ALL_GENOTYPES or CARRIERS
    range: str  # one of RANGES
    count: int
    share: float  # of all genotypes of the group
    mean_probability: float
    right: float


@dataclass(frozen=True)
class Estimate:
    """Estimated and true r2 of the sites of a bin that vary in the truth."""

    bin: str
    sites: int
    without: int  # sites that have no estimate; they are in no other number
    mean_estimated: float
    mean_true: float
    correlation: float


def trust(true_XS: np.ndarray, probability_XSG: np.ndarray) -> list[Trust]:
    """Return how often best guesses are correct, by their probability; an empty range has no row.

    true_XS: minor alleles, NaN where unknown. probability_XSG: probabilities of 0, 1 and 2 minor alleles, NaN
    where unknown.
    """
    highest = np.nan_to_num(probability_XSG, nan=-1.0).max(2)
    known = ~np.isnan(true_XS) & (highest >= 0)
    best = np.nan_to_num(probability_XSG, nan=-1.0).argmax(2)[known]
    probability, right = highest[known], best == true_XS[known]
    rows = []
    for genotypes, of_group in ((ALL_GENOTYPES, np.ones(len(best), dtype=bool)), (CARRIERS, best > 0)):
        for label, (low, high) in RANGES.items():
            chosen = of_group & (probability >= low - ROUNDING) & (probability < high - ROUNDING)
            if chosen.any():
                of_range = probability[chosen].mean(dtype=np.float64), right[chosen].mean()
                count = int(chosen.sum())
                rows.append(Trust(genotypes, label, count, count / of_group.sum(), *map(float, of_range)))
    return rows


def true_r2(true_XS: np.ndarray, dosage_XS: np.ndarray) -> np.ndarray:
    """Return the squared correlation of each site, (X,): 0 if the dosage, NaN if the truth is constant."""
    sums = site_statistics(true_XS, dosage_XS)
    return np.array([mean_variant_r2(sums[i : i + 1]) for i in range(len(sums))])


def estimates(
    true_XS: np.ndarray,
    dosage_XS: np.ndarray,
    estimated: np.ndarray,
    minor_frequency: np.ndarray,
    edges: Sequence[float],
) -> list[Estimate]:
    """Return estimated and true r2 over all sites and by bin (low, high] of minor allele frequency.

    estimated: estimate of each site (X,), NaN if there is none. Only sites that vary in the truth have a true
    r2; it is 0 if the dosage is constant.
    """
    true = true_r2(true_XS, dosage_XS)
    has_true, has_both = ~np.isnan(true), ~np.isnan(true) & ~np.isnan(estimated)
    rows = []
    for one in (ALL_FREQUENCIES, *frequency_bins(edges)):
        inside = one.contains(minor_frequency)
        chosen = inside & has_both
        if not chosen.any():
            continue
        x, y = estimated[chosen], true[chosen]
        varies = len(x) > 1 and x.std() > 0 and y.std() > 0
        correlation = float(np.corrcoef(x, y)[0, 1]) if varies else float("nan")
        without = int((inside & has_true).sum() - chosen.sum())
        rows.append(Estimate(one.label, len(x), without, float(x.mean()), float(y.mean()), correlation))
    return rows


def read_estimates(answers: Answers, imputed: Path, key: str) -> np.ndarray:
    """Return the INFO value `key` of each scored site, float64 (X,), NaN where it is missing."""
    row_of = {site: row for row, site in enumerate(answers.truth.keys)}
    estimated = np.full(answers.n_sites, np.nan)
    file = GenotypeFile(imputed, "imputed")
    for record in file.records():
        if len(record.ALT) == 1 and (row := row_of.get(file.site_keys(record)[0])) is not None:
            value = record.INFO.get(key)
            estimated[row] = np.nan if value is None else value
    return estimated


def calibration(arguments: argparse.Namespace) -> None:
    """Analyse each case; its results go to a folder of its own."""
    with session(arguments) as run:
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            imputed = impute_case(case, run.imputers, work, run.threads, formats=PROBABILITY_FORMATS)
            out = run.result_folder(f"{run.name or 'calibration'}-{case.name}")
            report = _report(case, run, imputed.files, out)
            write_configuration(out, run, imputed.stages, {"models": models_used(imputed.files)})
            print(report)


def _report(case: Case, run: Session, files: dict[str, Path], out: Path) -> str:
    answers = read_answers(case)
    trusts: list[list[str]] = []
    by_bin: list[list[str]] = []
    for imputer in run.imputers:
        guess = read_guess(answers, files[imputer.label])
        trusts += _trust_rows(imputer, answers, guess)
        estimated = read_estimates(answers, files[imputer.label], imputer.estimate)
        found = estimates(answers.true_XS, guess.dosage_XS, estimated, answers.minor_frequency, case.bins)
        by_bin += [
            [imputer.label, e.bin, str(e.sites), str(e.without)]
            + [number(value) for value in (e.mean_estimated, e.mean_true, e.correlation)]
            for e in found
        ]
    trust_table = [
        ["imputer", "genotypes", "GP of best guess", "count", "share", "mean GP", "right"],
        *trusts,
    ]
    head = ["imputer", "bin", "sites", "without", "mean estimated r²", "mean true r²", "correlation"]
    write_tsv(out / "probabilities.tsv", trust_table)
    write_tsv(out / "estimates.tsv", [head, *by_bin])
    report = "\n\n".join(
        [
            f"# {case.name}",
            describe(case),
            "## Best guesses that are right, by their probability",
            markdown(trust_table),
            "## Estimated and true r² of the sites that vary in the truth",
            markdown([head, *by_bin]),
            "Only sites that vary among the people imputed have a true r²: an estimate that is right over "
            "all rare sites is below the true r² of these. Beagle prints probabilities and estimates to two "
            "decimals, Minimac4 probabilities to three.",
        ]
    )
    (out / "report.md").write_text(report + "\n")
    return report


def _trust_rows(imputer: Imputer, answers: Answers, guess: Guess) -> list[list[str]]:
    if guess.probability_XSG is None:
        raise SystemExit(f"{imputer.label} wrote no GP")
    return [
        [imputer.label, t.genotypes, t.range, str(t.count)]
        + [number(value, 5) for value in (t.share, t.mean_probability, t.right)]
        for t in trust(answers.true_XS, guess.probability_XSG)
    ]
