"""`phase`: switch errors and accuracy of several versions of spinimpute, on people left out of panels."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.imputation.cases import find_case, samples
from benchmarks.imputation.measure import Stage
from benchmarks.imputation.results import processor
from benchmarks.imputation.scoring import ALL
from benchmarks.imputation.tables import markdown
from benchmarks.sequencing.compare import impute, score, simulated_likelihoods, switch_errors, truth_of
from benchmarks.sequencing.results import INSTALLED, OURS, built_panel, result_folder, write_configuration

HEAD = ["set", "reads a site", "version", "switch errors", "pairs", "both call", "pairs", "pooled r²"]


def phase(arguments: argparse.Namespace) -> None:
    """Impute every set at every coverage with every version."""
    programs = {label: (path,) for label, _, path in (text.partition("=") for text in arguments.beside)}
    programs[OURS] = INSTALLED
    folder = result_folder(arguments, "phase-left-out")
    rows, stages, sets = [HEAD], list[Stage](), []
    for path in arguments.sets:
        case = find_case(path, Path(path))
        sets.append(json.loads((Path(path) / "set.json").read_text()))
        panels = {
            label: built_panel(case, arguments.work / f"{case.name}.{label}.spin", program)
            for label, program in programs.items()
        }
        arguments.people = len(samples(case.truth))
        for coverage in arguments.coverage.split(","):
            name = f"{case.name}-{coverage}x"
            likelihoods = simulated_likelihoods(case, coverage, arguments.work / f"{name}.vcf.gz", arguments)
            imputed = {label: arguments.work / f"{name}.{label}.bcf" for label in programs}
            stages += [
                impute(label, name, ["--gl", likelihoods], panels[label], imputed[label], arguments, program)
                for label, program in programs.items()
            ]
            truth = truth_of(case, likelihoods, arguments.work)
            accuracy = score(case, truth, imputed, folder / f"{name}.tsv", arguments.scorer)
            r2 = {row.imputer: f"{row.pooled_r2:.4f}" for row in accuracy if row.bin == ALL}
            errors = switch_errors(imputed, truth)
            rows += [[case.name, coverage, label, *errors[label], r2[label]] for label in programs]
    report = ["# Phase from likelihoods, of people left out of panels", markdown(rows)]
    report += [f"{arguments.threads} threads, {processor()}."]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    write_configuration(folder, arguments, stages, sets=sets)
