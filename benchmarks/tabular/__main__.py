"""Tables of the SPIN and NPT papers: our estimators beside gradient boosting, k-NN and scikit-learn's MLP.

    python -m benchmarks.tabular tables --data FOLDER --seconds 60 --folds 3 --sets yacht concrete boston
    python -m benchmarks.tabular report

Each fit has the same budget of processor seconds on one thread, search of settings included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.tabular.methods import METHODS
from benchmarks.tabular.report import report
from benchmarks.tabular.tables import one, tables
from spinimpute.tabular.datasets import NAMES

RESULTS = Path(__file__).parent / "results"
SETS = [
    "yacht", "concrete", "boston", "breast_cancer", "protein", "california", "adult", "income", "poker",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=__doc__)
    commands = parser.add_subparsers(required=True)
    sub = commands.add_parser("tables")
    sub.set_defaults(function=tables)
    sub.add_argument(
        "--data", type=Path, required=True, help="the folder that holds yacht.txt and the others"
    )
    sub.add_argument("--results", type=Path, default=RESULTS / "tables")
    sub.add_argument("--sets", nargs="+", choices=NAMES, default=SETS)
    sub.add_argument("--folds", type=int, default=3, help="at most, of each set")
    sub.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    sub.add_argument("--seconds", type=float, default=60, help="of the processor, for each fit")
    sub = commands.add_parser("one", help="one fit, for `tables`")
    sub.set_defaults(function=one)
    sub.add_argument("name", choices=NAMES)
    sub.add_argument("fold", type=int)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("--data", type=Path, required=True)
    sub.add_argument("--seconds", type=float, default=60)
    sub = commands.add_parser("report")
    sub.set_defaults(function=report)
    sub.add_argument("--results", type=Path, default=RESULTS / "tables")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
