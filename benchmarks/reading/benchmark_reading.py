"""Time panel build, opening a panel with its sites, and reading haplotypes. Run it from the repository root.

    python benchmarks/reading/benchmark_reading.py
    python benchmarks/reading/benchmark_reading.py --data FOLDER --repeat 5 --out results.tsv

Each panel is `FOLDER/NAME/panel.bcf` with the PLINK map `FOLDER/maps/MAP`, as in `benchmarks/imputation`.
Every measurement is a separate process, timed after its imports. Only the file itself is cached, by the
operating system. The peak memory includes Python and the imports; the row "imports" shows them alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared"))
PANELS = {"chr20_eur": "plink.chr20.GRCh37.map", "chr22_1kg": "plink.chr22.GRCh37.map"}
ACTIONS = ("imports", "panel build", "open", "open and sites", "all alleles", "read_haplotypes")


def action(name: str, panel_vcf: str, genetic_map: str, spin: str) -> Callable[[], None]:
    """Return the function to time; its imports are done when it is returned."""
    from spinimpute.panels.panel import Panel
    from spinimpute.pipeline.maps.build import build_panel
    from spinimpute.vcf.reader import read_haplotypes

    def nothing() -> None:
        pass

    def build() -> None:
        build_panel(panel_vcf, f"{spin}.timed", genetic_map, force=True).close()

    def open_only() -> None:
        Panel.open(spin).close()

    def open_and_sites() -> None:
        with Panel.open(spin) as panel:
            _ = panel.sites

    def all_alleles() -> None:
        with Panel.open(spin) as panel:
            for start in range(0, panel.n_sites, 4_096):
                panel.alleles(start, min(start + 4_096, panel.n_sites))

    def read() -> None:
        read_haplotypes(panel_vcf, role="panel")

    return dict(zip(ACTIONS, (nothing, build, open_only, open_and_sites, all_alleles, read), strict=True))[
        name
    ]


def measure(arguments: list[str]) -> None:
    """Print seconds and peak memory in MB as JSON, inside the measured process."""
    run = action(*arguments)
    start = time.perf_counter()
    run()
    print(json.dumps([time.perf_counter() - start, peak_memory_mb()]))


def peak_memory_mb() -> float:
    """Return the peak resident memory of this program as reported by Linux; NaN on other systems.

    ru_maxrss is not used: a new program inherits the peak of the program that started it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), float("nan"))


def fastest(arguments: list[str], repeat: int) -> tuple[float, float]:
    """Return the seconds of the fastest of `repeat` processes, and the peak memory of this process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", *arguments]
    runs = []
    for _ in range(repeat):
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        runs.append(tuple(json.loads(output)))
    return min(runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "genotypes")
    parser.add_argument("--panels", default=",".join(PANELS), help="names, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts")
    parser.add_argument("--out", type=Path, help="also write the table here, tab-separated")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    names = arguments.panels.split(",")
    unknown = sorted(set(names) - set(PANELS))
    if unknown:
        parser.error(f"--panels: {', '.join(unknown)} not known; there are {', '.join(PANELS)}")
    missing = [str(arguments.data / name / "panel.bcf") for name in names]
    missing = [path for path in missing if not Path(path).is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}; give the folder with --data")

    rows = ["panel\tsites\thaplotypes\taction\tseconds\tpeak_mb"]
    print(f"{'panel':<11}{'sites':>8}{'haplotypes':>12}  {'action':<16}{'seconds':>9}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            vcf, genetic_map = arguments.data / name / "panel.bcf", arguments.data / "maps" / PANELS[name]
            spin = Path(folder) / f"{name}.spin"
            n_sites, n_haplotypes = built_size(vcf, genetic_map, spin)
            for what in ACTIONS:
                seconds, peak_mb = fastest([what, str(vcf), str(genetic_map), str(spin)], arguments.repeat)
                print(
                    f"{name:<11}{n_sites:>8}{n_haplotypes:>12}  {what:<16}{seconds:>9.4f}{peak_mb:>9.0f}",
                    flush=True,
                )
                rows.append(f"{name}\t{n_sites}\t{n_haplotypes}\t{what}\t{seconds:.4f}\t{peak_mb:.0f}")
    if arguments.out:
        arguments.out.write_text("\n".join(rows) + "\n")


def built_size(vcf: Path, genetic_map: Path, spin: Path) -> tuple[int, int]:
    """Build the panel that the other actions open. Return its numbers of sites and haplotypes."""
    from spinimpute.pipeline.maps.build import build_panel

    with build_panel(vcf, spin, genetic_map) as panel:
        return panel.n_sites, panel.n_haplotypes


if __name__ == "__main__":
    main()
