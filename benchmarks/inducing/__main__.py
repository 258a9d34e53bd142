"""Inducing panels: accuracy by size, and membership inference (whose haplotypes were in the panel?).

Installs nothing: bcftools must be on the PATH for `curve --parts`, scikit-learn (extra: bench) for
`membership`. Results are written to results/DATE-NAME.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.imputation.cases import DATA, REAL, SHARED
from benchmarks.inducing.curve import curve
from benchmarks.inducing.membership import membership

RESULTS = Path(__file__).parent / "results"


def numbers(text: str) -> list[int]:
    """Parse whole numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.inducing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function, help):  # type: ignore[no-untyped-def]
        sub = commands.add_parser(name, help=help, description=help)
        sub.add_argument("case", help=f"{', '.join(REAL)}, or the folder of a simulated set")
        sub.add_argument("--data", type=Path, default=DATA, help="folder of the real data sets")
        sub.add_argument("--results", type=Path, default=RESULTS)
        sub.add_argument("--threads", type=int, default=1)
        sub.set_defaults(function=function)
        return sub

    sub = command("curve", curve, "Accuracy and size of the file for growing numbers of inducing points.")
    sub.add_argument("--scorer", type=Path, default=SHARED / "tools" / "score_imputation.py")
    sub.add_argument("--points", type=numbers, default=[8, 16, 32, 64, 128, 256, 512, 1024], metavar="H,...")
    text = "also with one of so many array sites typed, by files made for the whole array and for those sites"
    sub.add_argument("--parts", type=numbers, default=[2, 5], metavar="P,...", help=text)
    sub.add_argument("--parts-points", type=int, default=256, metavar="H", help="h of those (default: 256)")
    sub.add_argument("--seed", type=int, default=1, help="of the draw of typed sites")

    sub = command("membership", membership, "Whether a person's presence in the panel can be told.")
    sub.add_argument("--points", type=numbers, default=[16, 64, 256, 1024], metavar="H,...")
    sub.add_argument("--dosage-points", type=numbers, default=[16, 64, 256], metavar="H,...")
    sub.add_argument("--seeds", type=int, default=5, help="random halves of the panel (default: 5)")
    sub.add_argument("--dosage-seeds", type=int, default=3, help="halves whose people are imputed, too")
    sub.add_argument("--people", type=int, default=300, help="members and others tested, each, at most")
    sub.add_argument("--dosage-people", type=int, default=75, help="of them imputed, each, at most")
    sub.add_argument("--copies", type=int, default=5, help="also without sites of fewer copies")
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
