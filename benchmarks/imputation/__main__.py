"""spinimpute compared with allele frequencies, Beagle and Minimac4.

Installs nothing: beagle, bref3, minimac4 and bcftools must be on the PATH. Every program runs as a whole
process with the same number of threads and the same genetic map. Accuracy is measured by the scorer given
with --scorer and again by `spinimpute evaluate`; both must agree. Results are written to results/DATE-NAME.
"""

from __future__ import annotations

import argparse

from benchmarks.imputation.budgets import add_options as add_budgets_options
from benchmarks.imputation.calibration import calibration
from benchmarks.imputation.cases import REAL
from benchmarks.imputation.chromosome import add_options as add_chromosome_options
from benchmarks.imputation.chunks import add_options as add_chunks_options
from benchmarks.imputation.chunks import chunks
from benchmarks.imputation.compare import compare, fewer_sites, single_target, small_panels
from benchmarks.imputation.cost import add_options as add_cost_options
from benchmarks.imputation.expected_r2 import expected_r2
from benchmarks.imputation.figure import add_options as add_figure_options
from benchmarks.imputation.large_panels import add_options as add_large_options
from benchmarks.imputation.leave_one_out import leave_one_out
from benchmarks.imputation.left_out import add_options as add_left_out_options
from benchmarks.imputation.left_out import left_out
from benchmarks.imputation.maps import maps
from benchmarks.imputation.options import shared_options
from benchmarks.imputation.panel_files import add_options as add_panel_files_options
from benchmarks.imputation.panel_files import panel_files
from benchmarks.imputation.readme import add_options as add_readme_options
from benchmarks.imputation.scale import add_options as add_scale_options
from benchmarks.imputation.sets import sets
from benchmarks.imputation.simulate import add_options as add_simulate_options
from benchmarks.imputation.simulate import add_relate_options
from benchmarks.imputation.two_panels import add_options as add_two_panels_options
from benchmarks.imputation.two_panels import two_panels
from benchmarks.imputation.unphased import unphased


def numbers(text: str) -> list[int]:
    """Parse whole numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imputation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    known = f"{', '.join(REAL)}, or the folder of a simulated set"

    def command(name, function, help, cases=(), repeat=1):  # type: ignore[no-untyped-def]
        sub = commands.add_parser(name, help=help, description=help, parents=[shared_options(repeat)])
        sub.add_argument(
            "cases", nargs="*", default=list(cases), help=f"{known} (default: {' '.join(cases)})"
        )
        sub.set_defaults(function=function)
        return sub

    command("compare", compare, "Accuracy by frequency, place and people; time and memory.", REAL, repeat=3)
    command("sets", sets, "Accuracy on all sets, phased and unphased, in one table.", REAL)
    sub = command("fewer-sites", fewer_sites, "The same with thinned arrays.", REAL)
    sub.add_argument(
        "--parts", type=numbers, default=[2, 5, 10], help="one of so many sites (default: 2,5,10)"
    )
    sub = command("small-panels", small_panels, "The same with few people in the panel.", ["chr22_1kg"])
    sub.add_argument("--people", type=numbers, default=[25, 50, 100], help="default: 25,50,100")
    sub = command(
        "single-target", single_target, "People imputed one by one, scored together.", ["chr22_1kg"]
    )
    sub.add_argument("--people", type=int, default=5, help="how many (default: 5)")
    command("unphased", unphased, "Targets without phase: accuracy, time and switch errors.", REAL, repeat=3)
    sub = command("chunks", chunks, "Regions imputed in parts and joined, beside a single run.", REAL)
    add_chunks_options(sub)
    command("calibration", calibration, "Are probabilities and estimated r² right?", REAL)
    command("r2", expected_r2, "Printed R2 beside the true r², what a cut by it keeps; sizes of files.", REAL)
    text = "Typed calls left out beside the truth of imputed ones."
    command("leave-one-out", leave_one_out, text, REAL, repeat=5)
    text = "Panels with the given genetic map, with one estimated from the panel, and without any."
    command("maps", maps, text, REAL)
    text = "Sizes of panel files, and processor time to build them and to impute one person with them."
    add_panel_files_options(command("panel-files", panel_files, text, REAL))
    sub = command("two-panels", two_panels, "A panel cut into two, which are given together.", REAL)
    add_two_panels_options(sub)
    text = "Time and memory for growing panels, targets and arrays, on simulated data."
    add_scale_options(commands.add_parser("scale", help=text, description=text, parents=[shared_options()]))
    text = "Large simulated panels with the flaws of real ones, with relatives, with sparse and dense arrays."
    add_large_options(
        commands.add_parser("large-panels", help=text, description=text, parents=[shared_options()])
    )
    text = "Memory asked for (--max-memory) and measured, on simulated data."
    add_budgets_options(
        commands.add_parser("budgets", help=text, description=text, parents=[shared_options()])
    )
    text = "A simulated whole chromosome: phased, unphased, and one person alone."
    add_chromosome_options(
        commands.add_parser("chromosome", help=text, description=text, parents=[shared_options()])
    )
    sub = command("left-out", left_out, "Settings, compared on people who are left out of panels.", REAL)
    add_left_out_options(sub)
    text = "What a genome costs, by the law that measurements of 'scale' follow."
    add_cost_options(commands.add_parser("cost", help=text, description=text))
    text = "Makes a simulated set; by default a region of little recombination."
    add_simulate_options(commands.add_parser("simulate", help=text, description=text))
    text = "Makes a set of a case's panel: targets that have relatives in it."
    add_relate_options(commands.add_parser("relate", help=text, description=text))
    text = "Draws r² against allele frequency from results."
    add_figure_options(commands.add_parser("figure", help=text, description=text))
    text = "Rewrites the tables of README.md and docs/ from results."
    add_readme_options(commands.add_parser("readme", help=text, description=text))
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
