"""`curve`: accuracy by number of inducing points and by file size."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.imputation.cases import Case, find_case
from benchmarks.imputation.derived import thinned
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.scoring import ALL, Accuracy, score
from benchmarks.imputation.tables import bins, markdown, number, write_tsv
from benchmarks.inducing.report import result_folder, write_configuration

WHOLE_FILE, OWN_FILE = "file of the whole array", "file of those sites"


@dataclass(frozen=True)
class File:
    """An inducing panel, and the file that was imputed from it."""

    label: str
    inducing_points: int
    bytes: int
    build: Stage
    impute: Stage


def curve(arguments: argparse.Namespace) -> None:
    """Build and impute with the command line, and score with the independent scorer."""
    case = find_case(arguments.case, arguments.data)
    out = result_folder(arguments.results, f"curve-{case.name}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        spin = work / "panel.spin"
        command(work, "panel", "build", "panel", "build", "--vcf", case.panel, *case.map_arguments,
                "--out", spin)  # fmt: skip
        sizes = {".spin": spin.stat().st_size, ".bcf": case.panel.stat().st_size}
        files, imputed = [], {}
        for h in arguments.points:
            label = f"h{h}"  # the scorer wants NAME=PATH
            made = work / f"{h}.spip"
            imputed[label] = work / f"{h}.bcf"
            found = make(case, case.target, case.target, h, label, made, imputed[label], arguments.threads)
            files.append(found)
        rows = score(case, arguments.scorer, imputed, out / "accuracy.tsv")
        parts = parts_table(case, arguments, work, out) if arguments.parts else ""
        places = {work: "WORK", arguments.data: "DATA"}
    write_tsv(
        out / "files.tsv",
        [
            ["label", "inducing_points", "bytes", "build_seconds", "impute_seconds", "impute_peak_mb"],
            *(
                [f.label, f.inducing_points, f.bytes, f"{f.build.seconds:.2f}", f"{f.impute.seconds:.2f}",
                 f"{f.impute.peak_mb:.0f}"]
                for f in files
            ),
            *([name, "", size, "", "", ""] for name, size in sizes.items()),
        ],
    )  # fmt: skip
    draw(rows, files, sizes, case, out / "curve.png")
    report = [f"# {case.name}: accuracy against size", describe(case), table(rows, files, sizes)]
    threads = "one thread" if arguments.threads == 1 else f"{arguments.threads} threads"
    report += [f"Pooled r² by the panel's minor allele frequency. Seconds of whole commands, {threads}."]
    report += ["![curve](curve.png)", parts]
    (out / "report.md").write_text("\n\n".join(part for part in report if part) + "\n")
    stages = [stage for f in files for stage in (f.build, f.impute)]
    write_configuration(out, arguments, places, [stage.command for stage in stages])
    print((out / "report.md").read_text())


def command(work: Path, label: str, stage: str, *words: object) -> Stage:
    return run(label, stage, [sys.executable, "-m", "spinimpute.cli.main", *words], work / "log.txt")


def make(
    case: Case, array: Path, target: Path, h: int, label: str, made: Path, out: Path, threads: int
) -> File:
    """Build an inducing panel for an array, unless it exists, and impute a target from it."""
    build = Stage(label, "build", 1, 0.0, 0.0, [])
    if not made.exists():
        build = command(made.parent, label, "build", "panel", "build", "--vcf", case.panel,
                        *case.map_arguments, "--inducing", h, "--array", array, "--out", made, "--threads",
                        threads)  # fmt: skip
    impute = command(made.parent, label, "impute", "impute", "--vcf", target, "--panel", made, "--out", out,
                     "--threads", threads)  # fmt: skip
    return File(label, h, made.stat().st_size, build, impute)


def parts_table(case: Case, arguments: argparse.Namespace, work: Path, out: Path) -> str:
    """Compare the array's file with a file for the typed sites, for targets that lack sites of the array."""
    if shutil.which("bcftools") is None:
        raise SystemExit("bcftools is not on the PATH (needed for --parts)")
    h, imputed = arguments.parts_points, {}
    whole = work / f"whole.{h}.spip"
    lines: list[tuple[str, str, str]] = []
    for part in (1, *arguments.parts):
        folder = work / f"part-{part}"
        folder.mkdir()
        thin = thinned(case, part, arguments.seed, folder) if part > 1 else case
        for name in (WHOLE_FILE, OWN_FILE)[: 1 if part == 1 else 2]:
            label = f"1/{part}, {name}".replace(" ", "_")
            array, made = (case.target, whole) if name == WHOLE_FILE else (thin.target, folder / "own.spip")
            imputed[label] = folder / f"{name[-5:]}.bcf"
            make(case, array, thin.target, h, label, made, imputed[label], arguments.threads)
            lines.append((label, f"1/{part}", name))
    rows = score(case, arguments.scorer, imputed, out / "parts.tsv")
    value = {(row.imputer, row.bin): row.pooled_r2 for row in rows}
    columns = bins(rows)
    found = [
        [typed, name, *(number(value[label, column]) for column in columns)] for label, typed, name in lines
    ]
    head = f"## Targets that have typed some of the array's sites (h = {h})\n\n"
    return head + markdown([["typed", "", *columns], *found])


def describe(case: Case) -> str:
    return (
        f"{case.panel_haplotypes:,} panel haplotypes, {case.target_haplotypes:,} target haplotypes, "
        f"{case.typed_sites:,} typed sites."
    )


def table(rows: Sequence[Accuracy], files: Sequence[File], sizes: dict[str, int]) -> str:
    value = {(row.imputer, row.bin): row.pooled_r2 for row in rows}
    columns = bins(rows)
    lines = [["h", "kB", "build s", "impute s", *columns, "mean per-variant r²"]]
    mean = {row.imputer: row.mean_r2 for row in rows if row.bin == ALL}
    for f in files:
        values = [number(value[f.label, column]) for column in columns]
        lines.append(
            [
                str(f.inducing_points),
                f"{f.bytes / 1000:,.0f}",
                f"{f.build.seconds:.1f}",
                f"{f.impute.seconds:.1f}",
                *values,
                number(mean[f.label]),
            ]
        )
    lines += [
        [f"the panel's {name}", f"{size / 1000:,.0f}", *[""] * (len(columns) + 3)]
        for name, size in sizes.items()
    ]
    return markdown(lines)


def draw(
    rows: Sequence[Accuracy], files: Sequence[File], sizes: dict[str, int], case: Case, out: Path
) -> None:
    """Draw r2 against file size, with a curve for all sites and for each bin."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.6))
    value = {(row.imputer, row.bin): row.pooled_r2 for row in rows}
    megabytes = [f.bytes / 1e6 for f in files]
    for i, column in enumerate(bins(rows)):
        style = {"color": "black", "linewidth": 2.5} if column == ALL else {"color": f"C{i}"}
        axis.plot(megabytes, [value[f.label, column] for f in files], "o-", label=column, **style)
    for f, size in zip(files, megabytes, strict=True):
        axis.annotate(str(f.inducing_points), (size, 1.0), ha="center", va="bottom", fontsize=7)
    for name, size in sizes.items():
        axis.axvline(size / 1e6, linestyle="--", color="grey", linewidth=1)
        axis.annotate(f"panel's {name}", (size / 1e6, 0.02), rotation=90, ha="right", fontsize=8)
    axis.set(
        xscale="log", ylim=(0, 1.05), xlabel="size of the file, MB (numbers above: h)", ylabel="pooled r²"
    )
    axis.set_title(f"{case.name}: {case.panel_haplotypes:,} panel haplotypes", fontsize=10)
    axis.legend(title="minor allele frequency", fontsize=7, title_fontsize=7, loc="center left",
                bbox_to_anchor=(1, 0.5))  # fmt: skip
    figure.savefig(out, dpi=130, bbox_inches="tight")
    pyplot.close(figure)
