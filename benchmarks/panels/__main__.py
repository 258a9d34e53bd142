"""`python -m benchmarks.panels`: seconds, memory and bytes of panel files with very many haplotypes.

    python -m benchmarks.panels --haplotypes 20000 --length 200000

A panel is simulated and written as BCF. `spinimpute panel build` and readers of the panel file are measured
as separate processes. Results go to `results/DATE-HAPLOTYPES-LENGTH/`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.imputation.cases import REPOSITORY
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.results import commit, processor, scrubbed
from benchmarks.imputation.tables import markdown
from benchmarks.panels.expand import TYPED_SITES, WINDOW_SITES
from benchmarks.panels.simulate import GROWTH, GROWTH_TIME, write_panel
from spinimpute.panels.panel import Panel

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("spinimpute", "numpy", "numba", "cyvcf2", "msprime")
MB = 1e6


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panels", description=__doc__)
    parser.add_argument("--haplotypes", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=200_000, help="bp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", default="1", help="of the build, perhaps several: 1,2,4")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="simulate there, once")
    parser.add_argument("--note", default="", help="for the report, such as what else the machine did")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="panels-") as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        _measure(arguments, folder, Path(temporary))


def _measure(arguments: argparse.Namespace, folder: Path, temporary: Path) -> None:
    source = folder / f"{arguments.haplotypes}-{arguments.length}-{arguments.seed}.bcf"
    simulated = source.with_suffix(".json")
    if not simulated.exists():
        start = time.perf_counter()
        n_sites, n_rare = write_panel(source, arguments.haplotypes, arguments.length, arguments.seed)
        seconds = time.perf_counter() - start
        simulated.write_text(json.dumps({"sites": n_sites, "rare": n_rare, "seconds": round(seconds, 1)}))
    made = json.loads(simulated.read_text())
    print(f"{made['sites']} sites, simulated and written in {made['seconds']} s", flush=True)
    program = shutil.which("spinimpute", path=str(Path(sys.executable).parent)) or "spinimpute"
    stages: list[Stage] = []
    panel = temporary / "panel.spin"
    for threads in arguments.threads.split(","):
        command = [
            program,
            "panel",
            "build",
            "--vcf",
            source,
            "--out",
            panel,
            "--threads",
            threads,
            "--force",
        ]
        stages.append(run("spinimpute", f"build, {threads} threads", command, temporary / f"{threads}.log"))
    reading = subprocess.run(
        [sys.executable, "-m", "benchmarks.panels.expand", str(panel)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    bits = made["sites"] * -(-arguments.haplotypes // 8)
    with Panel.open(panel) as opened:
        rows_bytes = opened.container.bytes_of_blocks
    result = {
        "sites": made["sites"],
        "sites with fewer than 1 copy in 1,000": made["rare"],
        "bytes": {
            "source (BCF)": source.stat().st_size,
            "panel file": panel.stat().st_size,
            "its haplotypes": rows_bytes,
            "they as bits": bits,
        },
        "build": [
            {"threads": int(threads), "seconds": round(stage.seconds, 2), "peak_mb": round(stage.peak_mb, 1)}
            for threads, stage in zip(arguments.threads.split(","), stages, strict=True)
        ],
        "seconds of reading": json.loads(reading.stdout),
    }
    _write(arguments, folder, temporary, stages, result)


def _write(
    arguments: argparse.Namespace, folder: Path, temporary: Path, stages: list[Stage], result: dict
) -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    out = arguments.results / f"{today}-{arguments.haplotypes}-{arguments.length}"
    out.mkdir(parents=True, exist_ok=True)
    places = {folder.absolute(): "$SIMULATED", temporary.absolute(): "$TEMPORARY"}
    configuration = {
        "date": today,
        "haplotypes": arguments.haplotypes,
        "length": arguments.length,
        "seed": arguments.seed,
        "growth": GROWTH,
        "growth_generations": GROWTH_TIME,
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in PACKAGES},
        "commands": [scrubbed(stage.command, places) for stage in stages],
    }
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "report.md").write_text(_report(arguments, result))
    print((out / "report.md").read_text())


def _report(arguments: argparse.Namespace, result: dict) -> str:
    bits = result["bytes"]["they as bits"]
    sizes = [["", "MB", "of the bits"]]
    sizes += [[name, f"{n / MB:.1f}", f"{n / bits:.3f}"] for name, n in result["bytes"].items()]
    builds = [["threads", "seconds", "peak MB"]]
    builds += [[str(b["threads"]), f"{b['seconds']:.1f}", f"{b['peak_mb']:.0f}"] for b in result["build"]]
    reading = [["", "ms"], *([name, f"{1e3 * s:.1f}"] for name, s in result["seconds of reading"].items())]
    rare = result["sites with fewer than 1 copy in 1,000"]
    parts = [
        f"# A panel of {arguments.haplotypes:,} haplotypes, {arguments.length:,} bp",
        f"{result['sites']:,} sites, {rare:,} of them with fewer than 1 copy in 1,000; simulated, seed "
        f"{arguments.seed}.",
        "## Size",
        markdown(sizes),
        "## `spinimpute panel build`",
        markdown(builds),
        "Peak memory is the largest resident set of one process.",
        "## Reading",
        markdown(reading),
        f"A window of {WINDOW_SITES:,} sites, and {TYPED_SITES} sites evenly spread over the panel, as "
        "packed bits; the first time their blocks are checked, too.",
        " ".join([f"{processor()}, {os.cpu_count()} cores.", arguments.note]).strip(),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
