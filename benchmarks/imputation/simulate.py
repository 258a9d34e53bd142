"""`simulate` and `relate`: make data sets that all other commands accept as cases."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.imputation.cases import DATA, REAL, find_case
from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.related_set import relate
from benchmarks.imputation.simulated_set import POPULATIONS, History, Sizes, simulate, write_set

RELATIVES = "share of targets of whom a parent, child, sib or cousin is in the panel"
FLAWS = "wrong phase, missed alleles and wrong calls as real panels and targets have them"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--panel-haplotypes", type=int, default=Sizes.panel_haplotypes)
    parser.add_argument("--target-haplotypes", type=int, default=Sizes.target_haplotypes)
    parser.add_argument("--typed-sites", type=int, default=Sizes.typed_sites)
    parser.add_argument("--length", type=int, default=History.length, help="bp")
    parser.add_argument("--centimorgans", type=float, default=History.centimorgans)
    parser.add_argument("--flaws", action="store_true", help=FLAWS)
    parser.add_argument("--relatives", type=float, default=0.0, help=RELATIVES)
    parser.add_argument("--seed", type=int, default=History.seed)
    parser.add_argument("--history", choices=POPULATIONS, default=History.model)
    parser.set_defaults(function=make_set)


def make_set(arguments: argparse.Namespace) -> None:
    sizes = Sizes(arguments.panel_haplotypes, arguments.target_haplotypes, arguments.typed_sites)
    conditions = Conditions(arguments.flaws, arguments.relatives)
    people = sizes.people(conditions)
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed, arguments.history)
    write_set(simulate(history), history, sizes, arguments.out, conditions)
    print((arguments.out / "set.json").read_text())


def add_relate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", help=f"{', '.join(REAL)}, or the folder of a set")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real data sets")
    parser.add_argument("--people", type=int, default=50, help="targets (default: 50)")
    parser.add_argument("--relatives", type=float, default=0.5, help=f"{RELATIVES} (default: 0.5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(function=make_related)


def make_related(arguments: argparse.Namespace) -> None:
    case = find_case(arguments.case, arguments.data)
    relate(case, arguments.out, arguments.people, Conditions(relatives=arguments.relatives), arguments.seed)
    print((arguments.out / "set.json").read_text())
