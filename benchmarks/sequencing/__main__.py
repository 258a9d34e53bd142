"""Imputation of sequenced samples from genotype likelihoods, compared with GLIMPSE2.

    python -m benchmarks.sequencing compare 1x.reads 4x.sites
    python -m benchmarks.sequencing simulated chr20_eur --coverage 0.5,1
    python -m benchmarks.sequencing simulated chr22_1kg --left-out --people 60 --seed 5

`compare` imputes likelihoods of 100 people of chr22_1kg. GLIMPSE2's results for these people exist already.
They were made on another machine, so its seconds are stated, but not measured. `simulated` first makes
likelihoods of a real set's targets, or of people taken out of its panel; only the latter are used to choose
settings. Both commands measure accuracy by the panel's minor allele frequency with the independent scorer,
and the calibration of genotype probabilities.

    python -m benchmarks.sequencing growth --cache FOLDER

`growth` imputes simulated reads of simulated people: processor time and peak memory of 10 to 1,000 samples
with 5,000 and 50,000 haplotypes.

    python -m benchmarks.sequencing large --cache FOLDER

`large` imputes such reads from panels of 20,000 and 200,000 haplotypes, of which chains copy the most likely.
For comparison, panels of up to `--all-up-to` haplotypes are also imputed with chains that copy all
haplotypes.

    python -m benchmarks.sequencing fragments

`fragments` imputes BAM files of simulated reads of people taken out of a panel, and the likelihoods that the
same reads give site by site. The difference shows the value of knowing that all alleles of a fragment are on
one haplotype.

    python -m benchmarks.sequencing indels
    python -m benchmarks.sequencing indels --aligner bwa --name indels-bwa

`indels` imputes BAM files of such people whose reads also contain insertions and deletions, with and without
`--indels`. With `--aligner`, bwa mem aligns the reads.

    python -m benchmarks.imputation relate chr22_1kg FOLDER --people 40 --relatives 0 --seed 3
    python -m benchmarks.sequencing phase FOLDER --beside before=OLD/.venv/bin/spinimpute

`phase` imputes simulated likelihoods of people left out of panels and counts switch errors, for several
versions of spinimpute.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.imputation.cases import DATA, REAL, SHARED
from benchmarks.sequencing.compare import FILES, compare, simulated
from benchmarks.sequencing.fragments import fragments
from benchmarks.sequencing.growth import growth
from benchmarks.sequencing.indels import indels
from benchmarks.sequencing.large_panels import large_panels
from benchmarks.sequencing.phase import phase

RESULTS = Path(__file__).parent / "results"


def numbers(text: str) -> list[int]:
    """Parse numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sequencing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--threads", type=int, default=2)
    shared.add_argument("--scorer", type=Path, default=SHARED / "tools" / "score_imputation.py")
    shared.add_argument("--name", help="of the folder of results, after the date")
    shared.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sub = commands.add_parser("compare", parents=[shared], help="Beside GLIMPSE2's results.")
    sub.add_argument("files", nargs="*", default=list(FILES), metavar="FILE", help=", ".join(FILES))
    sub.set_defaults(function=compare)
    sub = commands.add_parser("simulated", parents=[shared], help="Likelihoods made of a set's targets.")
    sub.add_argument("case", choices=REAL)
    sub.add_argument("--coverage", default="0.5,1")
    sub.add_argument("--people", type=int, default=51)
    sub.add_argument("--left-out", action="store_true", help="of people drawn from the panel, who leave it")
    sub.add_argument("--reads", action="store_true", help="reads of 150 bases; else sites are independent")
    sub.add_argument("--seed", type=int, default=1)
    sub.add_argument("--simulator", type=Path, default=SHARED / "tools" / "simulate_gl.py")
    sub.set_defaults(function=simulated)
    sub = commands.add_parser("growth", parents=[shared], help="Time and memory with samples and panel.")
    sub.add_argument("--cache", type=Path, required=True, help="folder where simulated sets are kept")
    sub.add_argument("--haplotypes", type=numbers, default=[5_000, 50_000], help="of the panels, with commas")
    sub.add_argument("--samples", type=numbers, default=[10, 100, 1_000], help="with commas")
    sub.add_argument("--length", type=int, default=200_000, help="bp of the simulated region")
    sub.add_argument("--centimorgans", type=float, default=0.2)
    sub.add_argument("--coverage", type=float, default=1.0)
    sub.add_argument("--limit", type=float, default=1_800, help="seconds for one command")
    sub.add_argument("--seed", type=int, default=1)
    sub.add_argument("--simulator", type=Path, default=SHARED / "tools" / "simulate_gl.py")
    sub.set_defaults(function=growth)
    sub = commands.add_parser("large", parents=[shared], help="The likeliest haplotypes, or all.")
    sub.add_argument("--cache", type=Path, required=True, help="folder where simulated sets are kept")
    sub.add_argument(
        "--haplotypes", type=numbers, default=[20_000, 200_000], help="of the panels, with commas"
    )
    sub.add_argument("--all-up-to", type=int, default=20_000, help="haplotypes that are all copied, too")
    sub.add_argument("--people", type=int, default=100)
    sub.add_argument("--coverage", default="0.1,0.5,2")
    sub.add_argument("--length", type=int, default=500_000, help="bp of the simulated region")
    sub.add_argument("--centimorgans", type=float, default=0.5)
    sub.add_argument("--seed", type=int, default=3)
    sub.add_argument("--simulator", type=Path, default=SHARED / "tools" / "simulate_gl.py")
    sub.set_defaults(function=large_panels)
    sub = commands.add_parser("fragments", parents=[shared], help="What is the phase of reads worth?")
    sub.add_argument("--case", choices=REAL, default="chr22_1kg")
    sub.add_argument("--people", type=int, default=30, help="drawn from the panel, who leave it")
    sub.add_argument("--coverage", default="0.1,0.5,1,2,4", help="of pairs of reads of 150 bases")
    sub.add_argument("--long-coverage", default="0.5,1,2", help="of reads of 5 kb")
    sub.add_argument("--seed", type=int, default=6)
    sub.set_defaults(function=fragments)
    sub = commands.add_parser("indels", parents=[shared], help="What do reads say of indels?")
    sub.add_argument("--case", choices=REAL, default="chr20_eur")
    sub.add_argument("--people", type=int, default=20, help="drawn from the panel, who leave it")
    sub.add_argument("--coverage", default="0.5,1,4", help="of pairs of reads of 150 bases")
    sub.add_argument("--aligner", help="name or path of bwa")
    sub.add_argument("--seed", type=int, default=6)
    sub.set_defaults(function=indels)
    sub = commands.add_parser("phase", parents=[shared], help="Switch errors, beside other versions.")
    sub.add_argument("sets", nargs="+", metavar="FOLDER", help="made by `benchmarks.imputation relate`")
    sub.add_argument("--beside", action="append", default=[], metavar="LABEL=SPINIMPUTE", help="repeatable")
    sub.add_argument("--coverage", default="0.5,2")
    sub.add_argument("--seed", type=int, default=3)
    sub.add_argument("--simulator", type=Path, default=SHARED / "tools" / "simulate_gl.py")
    sub.set_defaults(function=phase, reads=False)
    parser.set_defaults(data=DATA, likelihoods=SHARED / "data" / "sequencing")
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="sequencing-") as work:
        arguments.work = Path(work)
        arguments.function(arguments)


if __name__ == "__main__":
    main()
