"""The tables of the papers on SPIN, NPT and FT-Transformer by the papers' protocols, and a page with all
tables.

    python -m benchmarks.papers table3 --seeds 1 2 3
    python -m benchmarks.papers page

A cell of a table (window, method, seed) has its own result file and is not made again, so an interrupted
command can be continued. Every cell uses one thread.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from benchmarks.device_option import add_device
from benchmarks.papers import elsewhere, genomics, images, many_windows, page, random_bits, small_tables
from benchmarks.papers.cells import RESULTS, make_cells


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    genomics.add_commands(commands)
    images.add_command(commands)
    many_windows.add_command(commands)
    small_tables.add_command(commands)
    random_bits.add_command(commands)
    elsewhere.add_commands(commands)
    page.add_command(commands)
    for sub in commands.choices.values():
        if sub.get_default("cells"):
            sub.set_defaults(function=_make)
            sub.add_argument("--results", type=Path, default=RESULTS)
            add_device(sub)
            text = "begin no cell after so many seconds"
            sub.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help=text)
    return parser


def _make(arguments: argparse.Namespace) -> None:
    cells = arguments.cells(arguments)
    on_device = (replace(cell, words=(*cell.words, "--device", arguments.device)) for cell in cells)
    make_cells(on_device, arguments.results, arguments.limit)


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
