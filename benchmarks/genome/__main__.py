"""`python -m benchmarks.genome`: one command that imputes a genome, compared with a command per chromosome.

    python -m benchmarks.genome --panel-people 2000 --targets 200

Chromosomes 1 to 22 and X are simulated, with one target file and a panel for each chromosome. Wall time,
processor time and peak memory are measured for one command with all panels, and for 23 commands with one
panel each. The records of both are compared. Results go to `results/DATE-PANEL-TARGETS/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.genome.simulate import Sizes, simulate
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.results import commit, processor, scrubbed
from benchmarks.imputation.tables import markdown, write_tsv

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("spinimpute", "numpy", "numba", "cyvcf2", "msprime")
ONE, SOME, EACH = "one command", "one command, a quarter of them", "one command for each"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.genome",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--panel-people", type=int, default=2_000)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--longest", type=int, default=300_000, help="chromosome 1, bp; 22 has a third of it")
    parser.add_argument("--chromosomes", type=int, default=23, help="with X")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="each, in turns; the median counts")
    parser.add_argument("--note", default="", help="for the report, such as what else the machine did")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    arguments = parser.parse_args(words)
    sizes = Sizes(
        arguments.panel_people, arguments.targets, arguments.longest, arguments.chromosomes, arguments.seed
    )
    print(f"seed {sizes.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="genome-") as folder:
        _measure(arguments, sizes, Path(folder))


def _measure(arguments: argparse.Namespace, sizes: Sizes, work: Path) -> None:
    program = shutil.which("spinimpute", path=str(Path(sys.executable).parent)) or "spinimpute"
    n_sites = simulate(sizes, work)
    panels = work / "panels"
    panels.mkdir()
    log = work / "log.txt"
    for chrom in n_sites:
        build = [program, "panel", "build", "--vcf", work / f"panel.{chrom}.vcf"]
        run("spinimpute", f"build {chrom}", [*build, "--out", panels / f"{chrom}.spin"], log)
    common = [program, "impute", "--vcf", work / "target.vcf.gz", "--threads", arguments.threads, "--force"]
    whole = work / "whole.vcf"
    parts = [work / f"part.{chrom}.vcf" for chrom in n_sites]
    stages: list[Stage] = []
    for number in range(1, arguments.repeat + 1):
        given = [*common, "--panel", panels, "--out", whole]
        stages.append(run(ONE, "all", given, log, number))
        some = list(n_sites)[: -(-len(n_sites) // 4)]  # the longest: memory must not grow with their number
        given = [word for chrom in some for word in ("--panel", panels / f"{chrom}.spin")]
        stages.append(run(SOME, "some", [*common, *given, "--out", work / "some.vcf"], log, number))
        for chrom, part in zip(n_sites, parts, strict=True):
            given = [*common, "--panel", panels / f"{chrom}.spin", "--out", part]
            stages.append(run(EACH, chrom, given, log, number))
    same = _records([whole]) == _records(parts)
    name = f"{datetime.date.today()}-{sizes.panel_people}-{sizes.target_people}"
    out = arguments.results / name
    out.mkdir(parents=True, exist_ok=True)
    _write_results(out, arguments, sizes, n_sites, stages, same, work)


def _records(paths: Iterable[Path]) -> str:
    """A checksum of all records, one file after the other."""
    checksum = hashlib.sha256()
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                if not line.startswith(b"#"):
                    checksum.update(line)
    return checksum.hexdigest()


def _write_results(
    out: Path,
    arguments: argparse.Namespace,
    sizes: Sizes,
    n_sites: dict[str, int],
    stages: Sequence[Stage],
    same: bool,
    work: Path,
) -> None:
    head = ["way", "chromosome", "run", "seconds", "cpu_seconds", "peak_mb"]
    runs = [
        [s.imputer, s.stage, s.run, f"{s.seconds:.2f}", f"{s.cpu_seconds:.2f}", f"{s.peak_mb:.0f}"]
        for s in stages
    ]
    write_tsv(out / "runs.tsv", [head, *runs])
    numbers = range(1, arguments.repeat + 1)
    rows = [["", "wall time, s", "processor time, s", "peak memory, MB"]]
    for way in (ONE, SOME, EACH):
        turns = [[s for s in stages if s.imputer == way and s.run == number] for number in numbers]
        wall, cpu = (
            median(sum(getattr(s, what) for s in turn) for turn in turns)
            for what in ("seconds", "cpu_seconds")
        )
        peaks = [max(s.peak_mb for s in turn) for turn in turns]
        rows.append([way, f"{wall:.1f}", f"{cpu:.1f}", f"{median(peaks):.0f}"])
    text = (
        f"{len(n_sites)} chromosomes of {min(sizes.lengths.values()):,} to {max(sizes.lengths.values()):,} "
        f"bp, {sum(n_sites.values()):,} sites; panels of {sizes.panel_people:,} people, "
        f"{sizes.target_people:,} target people with phase, {arguments.threads} threads. Medians of "
        f"{arguments.repeat} runs; of one command for each chromosome, sums of times and the largest memory; "
        "a quarter: the longest chromosomes. "
        f"The records are {'the same' if same else 'NOT the same'}. {arguments.note}"
    )
    report = "\n\n".join(["# A genome in one command", text.strip(), markdown(rows)])
    (out / "report.md").write_text(report + "\n")
    configuration = {
        "sizes": dataclasses.asdict(sizes),
        "threads": arguments.threads,
        "sites": n_sites,
        "records_same": same,
        "commit": commit(),
        "processor": processor(),
        "versions": {name: version(name) for name in PACKAGES},
        "impute": scrubbed(stages[0].command, {work: "WORK"}),
    }
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1, default=str) + "\n")
    print(report)


if __name__ == "__main__":
    main()
