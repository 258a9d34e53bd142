"""`leave-one-out`: leave-one-out accuracy at typed sites, the true accuracy of imputed sites, and time."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.answers import read_answers, read_guess
from benchmarks.imputation.measure import Stage
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import Minimac4, Ours
from benchmarks.imputation.results import describe, models_used, write_configuration
from benchmarks.imputation.study import IMPUTE, impute_case
from benchmarks.imputation.tables import markdown, number, write_tsv
from spinimpute.quality.metrics import pooled_r2, site_statistics

WITH = "spinimpute_loo"


def leave_one_out(arguments: argparse.Namespace) -> None:
    """Analyse each case; its results go to a folder of its own."""
    with session(arguments) as run:
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            prefix = work / "left_out"
            ours = (*run.ours, *(Ours(WITH, (*one.arguments, "--loo", str(prefix))) for one in run.ours[:1]))
            imputed = impute_case(case, (Minimac4(), *ours), work, run.threads, run.repeat)
            answers = read_answers(case)
            guess = read_guess(answers, imputed.files[WITH])
            of_samples = site_statistics(answers.true_XS.T, guess.dosage_XS.T)
            true_S = np.array([pooled_r2(of_samples[i : i + 1]) for i in range(len(of_samples))])
            left_out = _by_sample(prefix.with_name(f"{prefix.name}.samples.tsv"))
            left_out_S = np.array([left_out[sample] for sample in answers.people])
            rows = [
                ["", ""],
                ["samples", str(len(true_S))],
                ["typed calls left out, mean r² of a sample", number(float(left_out_S.mean()))],
                ["imputed genotypes, mean r² of a sample against the truth", number(float(true_S.mean()))],
                ["correlation of the two over samples", number(_correlation(left_out_S, true_S))],
                ["rank correlation", number(_correlation(_ranks(left_out_S), _ranks(true_S)))],
                ["mean ER2 of typed sites, spinimpute", number(_mean_er2(imputed.files[WITH]))],
                ["mean ER2 of typed sites, Minimac4", number(_mean_er2(imputed.files["Minimac4"]))],
                ["wall time with --loo to without", f"{_ratio(imputed.stages, run.ours[0].label):.2f}"],
            ]
            out = run.result_folder(f"{run.name or 'leave-one-out'}-{case.name}")
            write_tsv(out / "table.tsv", rows)
            report = f"# {case.name}\n\n{describe(case)}\n\n{markdown(rows)}\n"
            (out / "report.md").write_text(report)
            write_configuration(out, run, imputed.stages, {"models": models_used(imputed.files)})
            print(report)


def _by_sample(path: Path) -> dict[str, float]:
    with path.open() as file:
        return {row["sample"]: float(row["r2"]) for row in csv.DictReader(file, delimiter="\t")}


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(x: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(x)).astype(float)


def _mean_er2(path: Path) -> float:
    values = [record.INFO.get("ER2") for record in VCF(str(path))]
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known))


def _ratio(stages: list[Stage], without: str) -> float:
    """Of the medians."""
    seconds = {
        label: np.median([s.seconds for s in stages if s.imputer == label and s.stage == IMPUTE])
        for label in (without, WITH)
    }
    return float(seconds[WITH] / seconds[without])
