"""`panel-files`: the size of each program's panel file, and the processor time to build and to use it.

Imputing a single person takes little more than reading the panel. Processor time depends less on other
programs that run on the machine than wall time does. A first run of `panel build` compiles numeric kernels,
which is a part of the time that a new user waits; `--warm` leaves it out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.imputation.derived import draw_targets, only_targets
from benchmarks.imputation.measure import Stage
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import Imputer
from benchmarks.imputation.results import write_configuration
from benchmarks.imputation.study import BUILD, IMPUTE, impute_case
from benchmarks.imputation.tables import markdown


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to the shared options."""
    parser.add_argument("--warm", action="store_true", help="use the kernels in the user's cache")


def panel_files(arguments: argparse.Namespace) -> None:
    """Build the panel files of each case, and impute one person with each of them."""
    with session(arguments) as run:
        if not arguments.warm:
            os.environ["SPINIMPUTE_CACHE"] = str(run.work_folder("kernels"))
        out = run.result_folder(run.name or "panel-files")
        report, stages = ["# Panel files"], []
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            alone = only_targets(case, draw_targets(case, 1, run.seed), work)
            found = impute_case(alone, run.imputers, work, run.threads, run.repeat)
            stages += found.stages
            source = f"{case.panel.suffix[1:].upper()} of {case.panel.stat().st_size / 1e6:.1f} MB"
            report += [f"## {case.name}", f"{case.panel_haplotypes:,} haplotypes, {source}."]
            report.append(_table(run.imputers, work, found.stages))
        kernels = "compiled before" if arguments.warm else "compiled by the first command of each version"
        report.append(f"Numeric kernels were {kernels}. The processor times are medians of all runs.")
        (out / "report.md").write_text("\n\n".join(report) + "\n")
        write_configuration(out, run, stages, {"warm": arguments.warm})
        print((out / "report.md").read_text())


def _table(imputers: Sequence[Imputer], work: Path, stages: Sequence[Stage]) -> str:
    rows = [["program", "MB", "Minimac4 = 1", "processor s to build", "processor s to impute one person"]]
    bytes_of = {one.program: (work / one.panel_name).stat().st_size for one in imputers}
    for one in imputers:
        size = bytes_of[one.program]
        seconds = (
            _processor_seconds(stages, one.program, BUILD),
            _processor_seconds(stages, one.label, IMPUTE),
        )
        ratio = f"{size / bytes_of['Minimac4']:.2f}"
        rows.append([one.label, f"{size / 1e6:.1f}", ratio, *(f"{s:.1f}" for s in seconds)])
    return markdown(rows)


def _processor_seconds(stages: Sequence[Stage], label: str, stage: str) -> float:
    return median(s.cpu_seconds for s in stages if (s.imputer, s.stage) == (label, stage))
