"""Studies of the training of SPIN on genotypes, with equal budgets, on simulated segments alone.

    python -m benchmarks.spin ablation --seeds 1 2 3
    python -m benchmarks.spin masking --seeds 1 2 3
    python -m benchmarks.spin segments --seeds 1 2 3
    python -m benchmarks.spin paper --seeds 1 2 3

Every run is written to results/DATE-COMMAND when it is complete, and is not repeated: an interrupted command
continues. Needs msprime. Run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

import torch

from benchmarks.device_option import add_device
from benchmarks.spin import rows
from benchmarks.spin.budget import BUDGET
from benchmarks.spin.runs import run_table

RESULTS = Path(__file__).parent / "results"
TABLES = {
    "ablation": (rows.ablation, "What each idea brings: SPIN, and SPIN without one of them."),
    "masking": (
        rows.masking,
        "Training hides all labels of a query (chunk masking) or a random share of them (token masking); "
        "tests hide all. Steps and tasks are the same.",
    ),
    "segments": (rows.segments, "SPIN trained on tasks of one, a few and many segments, with as many steps."),
    "paper": (
        rows.paper,
        "The paper's form, meta-trained on the same tasks, beside SPIN. It is trained with LAMB and "
        "Lookahead unless it says otherwise. SPIN as shipped had a longer training on larger segments, and "
        "sees its own flanks and inducing points.",
    ),
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spin",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (make_rows, about) in TABLES.items():
        sub = commands.add_parser(name, help=about, description=about)
        sub.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
        sub.add_argument("--results", type=Path, default=RESULTS)
        add_device(sub)
        text = "begin no run after so many seconds"
        sub.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help=text)
        sub.set_defaults(function=partial(run_table, name, about, make_rows()), budget=BUDGET)
    return parser


def main() -> None:
    torch.set_num_threads(1)
    arguments = make_parser().parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
