"""Tables of the SPIN and NPT papers: our estimators, gradient boosting, k-NN and scikit-learn's MLP.

    python -m benchmarks.tabular tables --data FOLDER --seconds 60 --folds 3 --sets yacht concrete boston
    python -m benchmarks.tabular report
    python -m benchmarks.tabular poker --data FOLDER
    python -m benchmarks.tabular california --data FOLDER
    python -m benchmarks.tabular cost
    python -m benchmarks.tabular memory --data FOLDER
    python -m benchmarks.tabular probes --data FOLDER

Each fit has the same budget of processor seconds on one thread, including the search of settings.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.device_option import add_device
from benchmarks.tabular.california import MODELS, california
from benchmarks.tabular.cost import KINDS, cost, one_cost
from benchmarks.tabular.datasets import NAMES
from benchmarks.tabular.memory import memory, one_memory
from benchmarks.tabular.methods import METHODS
from benchmarks.tabular.poker import poker
from benchmarks.tabular.probes import NAMES as PROBES
from benchmarks.tabular.probes import probes
from benchmarks.tabular.report import RESULTS, report
from benchmarks.tabular.tables import one, tables

SETS = [
    "yacht", "concrete", "boston", "breast_cancer", "protein", "california", "adult", "income", "poker",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=__doc__)
    commands = parser.add_subparsers(required=True)
    sub = commands.add_parser("tables")
    sub.set_defaults(function=tables)
    add_device(sub)
    sub.add_argument("--data", type=Path, required=True, help="folder of the tables (yacht.txt, ...)")
    sub.add_argument("--results", type=Path, default=RESULTS / "tables")
    sub.add_argument("--sets", nargs="+", choices=NAMES, default=SETS)
    sub.add_argument("--folds", type=int, default=3, help="largest number of folds of each set")
    sub.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    sub.add_argument("--seconds", type=float, default=60, help="processor seconds of each fit")
    sub = commands.add_parser("one", help="one fit, for `tables`")
    sub.set_defaults(function=one)
    add_device(sub)
    sub.add_argument("name", choices=NAMES)
    sub.add_argument("fold", type=int)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--results", type=Path, default=RESULTS / "tables")
    sub.add_argument("--seconds", type=float, default=60)
    sub = commands.add_parser("report")
    sub.set_defaults(function=report)
    sub.add_argument("--results", type=Path, default=RESULTS / "tables")
    sub = commands.add_parser("poker", help="contexts of many sizes at test time")
    sub.set_defaults(function=poker)
    add_device(sub)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--results", type=Path, default=RESULTS / "poker")
    sub.add_argument("--models", nargs="+", default=["SPIN", "NPT"])
    sub.add_argument("--seconds", type=float, default=900, help="seconds of training for each model")
    sub.add_argument("--seed", type=int, default=1)
    sub = commands.add_parser("california", help="published defaults, importances")
    sub.set_defaults(function=california)
    add_device(sub)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--results", type=Path, default=RESULTS / "california")
    sub.add_argument("--models", nargs="+", choices=MODELS, default=["ResNet", "MLP", "FTTransformer"])
    sub.add_argument("--epochs", type=int, default=200, help="largest number of epochs")
    sub.add_argument("--seeds", type=int, nargs="+", default=[1])
    sub.add_argument("--threads", type=int, default=1)
    sub = commands.add_parser("cost", help="time and memory against rows and columns")
    sub.set_defaults(function=cost)
    sub.add_argument("--results", type=Path, default=RESULTS / "cost")
    sub.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds to measure")
    sub = commands.add_parser("one-cost", help="one point, for `cost`")
    sub.set_defaults(function=one_cost)
    sub.add_argument("kind")
    sub.add_argument("rows", type=int)
    sub.add_argument("columns", type=int)
    sub = commands.add_parser("memory", help="peak memory beside NPT's")
    sub.set_defaults(function=memory)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--results", type=Path, default=RESULTS / "memory")
    sub.add_argument("--sets", nargs="+", choices=NAMES, default=SETS)
    sub = commands.add_parser("one-memory", help="one process, for `memory`")
    sub.set_defaults(function=one_memory)
    sub.add_argument("name", choices=NAMES)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("--data", type=Path, required=True)
    sub = commands.add_parser("probes", help="how predictions use other rows")
    sub.set_defaults(function=probes)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--results", type=Path, default=RESULTS / "probes")
    sub.add_argument("--only", nargs="+", choices=PROBES, default=list(PROBES))
    sub.add_argument("--seeds", type=int, nargs="+", default=[1])
    sub.add_argument("--models", nargs="+", help="only these models, for example NPT")
    sub.add_argument("--seconds", type=float, default=30, help="seconds of training on real tables")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
