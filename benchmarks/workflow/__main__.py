"""The Snakemake workflow with killed runs. Needs `pip install '.[workflow]'`.

python -m benchmarks.workflow kills --kills 8 --seed 1

Results are written to results/DATE-kills.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.workflow.kills import kills

RESULTS = Path(__file__).parent / "results"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workflow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    help = "Kill the workflow at random moments and go on: are the results those of an undisturbed run?"
    sub = commands.add_parser("kills", help=help, description=help)
    sub.add_argument("--kills", type=int, default=10, help="in all (default: 10)")
    sub.add_argument("--seed", type=int, default=1, help="of the moments")
    sub.add_argument("--results", type=Path, default=RESULTS)
    sub.set_defaults(function=kills)
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
