"""`large-panels`: accuracy on simulated panels of many sizes, with and without flaws and relatives."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.compare import one_of_several, write_summary
from benchmarks.imputation.options import session
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.simulate import RELATIVES
from benchmarks.imputation.simulated_set import History, Sizes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to the shared options."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    def shares(text: str) -> list[float]:
        return [float(part) for part in text.split(",")]

    parser.add_argument("--cache", type=Path, required=True, help="folder where simulated data are kept")
    parser.add_argument("--panel", type=numbers, default=[20_000], help="panel haplotypes (default: 20000)")
    parser.add_argument("--target-haplotypes", type=int, default=400)
    text = "typed sites per Mb (default: 100,240,600)"
    parser.add_argument("--density", type=numbers, default=[100, 240, 600], help=text)
    parser.add_argument("--relatives", type=shares, default=[0.0], help=f"{RELATIVES} (default: 0)")
    text = "panels and targets without the flaws of real ones"
    parser.add_argument("--textbook", action="store_true", help=text)
    parser.add_argument("--length", type=int, default=500_000, help="bp of the simulated region")
    parser.add_argument("--centimorgans", type=float, default=0.5)
    parser.set_defaults(function=large_panels)


def large_panels(arguments: argparse.Namespace) -> None:
    """Impute every size at every density and with every share of relatives; --seed is the seed of the
    history.
    """
    conditions = [Conditions(not arguments.textbook, share) for share in arguments.relatives]
    wanted = [
        Sizes(n, arguments.target_haplotypes, round(density * arguments.length / 1e6))
        for n, density in itertools.product(arguments.panel, arguments.density)
    ]
    people = max(sizes.people(these) for sizes in wanted for these in conditions)
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed)
    with session(arguments) as run:
        out = run.result_folder(run.name or "large-panels")
        outcomes = []
        for these in conditions:
            for case in simulated_sets(history, wanted, arguments.cache, these).values():
                work = run.work_folder(case.name)
                outcomes.append(one_of_several(case, run, work, out, work))
        write_summary(outcomes, out, run)
