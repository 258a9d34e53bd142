"""`simulate`: makes a data set that all other commands take as a case."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.imputation.simulated_set import History, Sizes, simulate, write_set


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--panel-haplotypes", type=int, default=Sizes.panel_haplotypes)
    parser.add_argument("--target-haplotypes", type=int, default=Sizes.target_haplotypes)
    parser.add_argument("--typed-sites", type=int, default=Sizes.typed_sites)
    parser.add_argument("--length", type=int, default=History.length, help="bp")
    parser.add_argument("--centimorgans", type=float, default=History.centimorgans)
    parser.add_argument("--seed", type=int, default=History.seed)
    parser.set_defaults(function=make_set)


def make_set(arguments: argparse.Namespace) -> None:
    sizes = Sizes(arguments.panel_haplotypes, arguments.target_haplotypes, arguments.typed_sites)
    people = (
        sizes.panel_haplotypes + sizes.target_haplotypes
    ) // 2 + 8  # each population's share is rounded up
    history = History(people, arguments.length, arguments.centimorgans, arguments.seed)
    write_set(simulate(history), history, sizes, arguments.out)
    print((arguments.out / "set.json").read_text())
