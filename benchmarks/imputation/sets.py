"""`sets`: accuracy on all sets, phased and unphased, compared with both peers."""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.imputation.compare import one_of_several, write_summary
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import Beagle
from benchmarks.imputation.unphased import without_phase


def sets(arguments: argparse.Namespace) -> None:
    """Write a summary of phased targets and one of unphased targets."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "sets")
        # Minimac4 needs phased targets
        for kind, imputers in (("phased", run.imputers), ("unphased", (Beagle(), *run.ours))):
            outcomes = []
            for name in arguments.cases:
                case = run.case(name)
                work = run.work_folder(f"{case.name}-{kind}")
                if kind == "unphased":
                    case = replace(without_phase(case, run.seed, work), name=case.name)
                folder = out / kind
                folder.mkdir(exist_ok=True)
                outcomes.append(one_of_several(case, run, work, folder, work, imputers, strata=False))
            write_summary(outcomes, out / kind, run)
