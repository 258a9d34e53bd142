"""`sets`: accuracy on all sets, phased and unphased, beside both peers and an earlier version."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.imputation.compare import one_of_several, write_summary
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import PEERS, Beagle, Imputer, Ours
from benchmarks.imputation.unphased import without_phase


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beyond the shared ones."""
    text = "the Python of another version's environment, which is measured, too"
    parser.add_argument("--before", type=Path, metavar="PYTHON", help=text)


def sets(arguments: argparse.Namespace) -> None:
    """A summary of phased targets, and one of unphased targets."""
    with session(arguments) as run:
        ours: tuple[Imputer, ...] = run.ours
        if arguments.before is not None:
            ours = (Ours("before", panel_name="before.spin", python=str(arguments.before.absolute())), *ours)
        out = run.result_folder(run.name or "sets")
        # Minimac4 needs phased targets
        for kind, imputers in (("phased", (*PEERS, *ours)), ("unphased", (Beagle(), *ours))):
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
