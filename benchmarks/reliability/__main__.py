"""Behaviour of the commands with damaged inputs, kills and full disks.

python -m benchmarks.reliability fuzz --mutations 100000 --seed 1

Results are written to results/DATE-NAME.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.reliability.forms import FORMS
from benchmarks.reliability.full_disk import full_disk
from benchmarks.reliability.fuzz import again, fuzz
from benchmarks.reliability.kills import kills
from benchmarks.reliability.unpacking import unpacking

# torch without threads, for which children would wait; large pages, of which forking copies fewer entries
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
RESULTS = Path(__file__).parent / "results"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    help = "Damaged inputs of all forms: is each one refused with one message, or read to a whole result?"
    sub = commands.add_parser("fuzz", help=help, description=help)
    sub.add_argument("--mutations", type=int, default=100_000, help="of all forms together")
    sub.add_argument("--seed", type=int, default=1)
    sub.add_argument("--forms", metavar="A,B,...", help=f"of {', '.join(FORMS)} (default: all)")
    sub.add_argument("--processes", type=int, default=os.cpu_count(), help="forms at the same time")
    _add_folder(sub, "fuzz")
    sub.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with these results")
    sub.add_argument("--anew", action="store_true", help="with --resume: forget the results of --forms first")
    sub.set_defaults(function=fuzz)
    help = "Run one case of `fuzz` again, and show what it says."
    sub = commands.add_parser("again", help=help, description=help)
    sub.add_argument("form", choices=FORMS)
    sub.add_argument("number", type=int)
    sub.add_argument("--seed", type=int, default=1)
    sub.add_argument("--keep", type=Path, metavar="FOLDER", help="copy its files there")
    sub.set_defaults(function=again)
    help = "Kill commands at random moments: is what they leave whole, and does the next run clean up?"
    sub = commands.add_parser("kills", help=help, description=help)
    sub.add_argument("--kills", type=int, default=90, help="of single commands, together")
    sub.add_argument("--workflow", type=int, default=10, help="of the Snakemake workflow")
    sub.add_argument("--seed", type=int, default=1)
    _add_folder(sub, "kills")
    sub.set_defaults(function=kills)
    help = "Disks that are full at random points: one message, and nothing left? Mounts small file systems."
    sub = commands.add_parser("full-disk", help=help, description=help)
    sub.add_argument("--points", type=int, default=20, help="of each command")
    sub.add_argument("--seed", type=int, default=1)
    _add_folder(sub, "full-disk")
    sub.set_defaults(function=full_disk)
    help = "Files that unpack to a gigabyte, in all forms: time and memory until they are refused or read."
    sub = commands.add_parser("unpacking", help=help, description=help)
    _add_folder(sub, "unpacking")
    sub.set_defaults(function=unpacking)
    return parser


def _add_folder(sub: argparse.ArgumentParser, name: str) -> None:
    sub.add_argument("--name", default=name, help="of the folder of results, after the date")
    sub.add_argument("--results", type=Path, default=RESULTS)


def main() -> None:
    arguments = make_parser().parse_args()
    if not ENVIRONMENT.items() <= os.environ.items():
        words = [sys.executable, "-m", "benchmarks.reliability", *sys.argv[1:]]
        os.execve(sys.executable, words, os.environ | ENVIRONMENT)
    arguments.function(arguments)


if __name__ == "__main__":
    main()
