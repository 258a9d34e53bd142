"""Table and plot of time and memory by size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.imputation.figure import colours
from benchmarks.imputation.measure import Stage
from benchmarks.imputation.simulated_set import Sizes
from benchmarks.imputation.study import BUILD, IMPUTE
from benchmarks.imputation.tables import markdown, number, write_tsv

AXES = ("panel haplotypes", "target haplotypes", "typed sites")


@dataclass(frozen=True)
class Point:
    """Measurements of one imputer at one size."""

    imputer: str
    sizes: Sizes
    sites: int  # of the panel
    stages: tuple[Stage, ...]
    pooled_r2: float
    status: str  # "ok", "failed", "over the limit" or "not run"

    def seconds(self, stage: str) -> float:
        """Median of the runs; NaN if a run failed."""
        found = [s.seconds for s in self.stages if s.stage == stage]
        return median(found) if found and self.status == "ok" else float("nan")

    def cpu_seconds(self, stage: str) -> float:
        found = [s.cpu_seconds for s in self.stages if s.stage == stage]
        return median(found) if found and self.status == "ok" else float("nan")

    def peak_mb(self, stage: str) -> float:
        found = [s.peak_mb for s in self.stages if s.stage == stage]
        return max(found) if found and self.status == "ok" else float("nan")

    def size(self, axis: str) -> int:
        values = (self.sizes.panel_haplotypes, self.sizes.target_haplotypes, self.sizes.typed_sites)
        return dict(zip(AXES, values, strict=True))[axis]


def growth(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent with which values grow with size, a slope of logarithms; NaN for fewer than two
    values.
    """
    points = [(math.log(x), math.log(y)) for x, y in zip(sizes, values, strict=True) if not math.isnan(y)]
    if len({x for x, _ in points}) < 2:
        return float("nan")
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def write_scale_report(points: Mapping[str, Sequence[Point]], out: Path) -> str:
    """Write scale.tsv, scale.png and report.md, and return the report. Points: by axis, sizes ascending."""
    head = ["axis", *AXES, "sites", "imputer", "build_seconds", "seconds", "peak_mb", "pooled_r2", "status"]
    head.append("cpu_seconds")
    rows: list[list[object]] = [list(head)]
    sections = ["# Growth with the size"]
    for axis, along in points.items():
        table = [[*AXES, "sites", "imputer", "build s", "impute s", "impute MB", "pooled r²", "status"]]
        for p in along:
            sizes = [str(p.size(name)) for name in AXES]
            build, seconds, peak = p.seconds(BUILD), p.seconds(IMPUTE), p.peak_mb(IMPUTE)
            cells = [number(build, 1), number(seconds, 2), number(peak, 0), number(p.pooled_r2), p.status]
            rows.append([axis, *sizes, p.sites, p.imputer, *cells, number(p.cpu_seconds(IMPUTE), 2)])
            table.append([*sizes, str(p.sites), p.imputer, *cells])
        if len(table) == 1:
            continue
        lines = [f"## More {axis}", markdown(table), "", _growth_lines(axis, along)]
        sections += lines
    write_tsv(out / "scale.tsv", rows)
    draw(points, out / "scale.png")
    sections.append(
        "Medians of whole commands; the panel is built before, once. Larger panels have more sites. How much "
        "memory Java takes depends on how much the machine has."
    )
    report = "\n\n".join(section for section in sections if section) + "\n"
    (out / "report.md").write_text(report)
    return report


def _growth_lines(axis: str, along: Sequence[Point]) -> str:
    """For each imputer the powers with which time and memory grow."""
    lines = []
    for label in dict.fromkeys(p.imputer for p in along):
        own = [p for p in along if p.imputer == label]
        sizes = [p.size(axis) for p in own]
        of_time = growth(sizes, [p.seconds(IMPUTE) for p in own])
        of_memory = growth(sizes, [p.peak_mb(IMPUTE) for p in own])
        if not math.isnan(of_time):
            lines.append(f"- {label}: time grows as size^{of_time:.2f}, memory as size^{of_memory:.2f}")
    return "\n".join(lines)


def draw(points: Mapping[str, Sequence[Point]], out: Path) -> None:
    """Draw time (top) and memory (bottom) on logarithmic axes, with a column for each varied axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    varied = {axis: along for axis, along in points.items() if along}
    figure, axes = pyplot.subplots(
        2, len(varied), figsize=(4.2 * len(varied), 6.4), squeeze=False, sharex="col", sharey="row"
    )
    for column, (axis, along) in enumerate(varied.items()):
        found = list(dict.fromkeys(p.imputer for p in along))
        for label, colour in colours(found).items():
            own = [p for p in along if p.imputer == label]
            sizes = [p.size(axis) for p in own]
            text = label.replace("_", " ")
            times, peaks = [p.seconds(IMPUTE) for p in own], [p.peak_mb(IMPUTE) for p in own]
            axes[0, column].plot(sizes, times, "o-", color=colour, label=text)
            axes[1, column].plot(sizes, peaks, "o-", color=colour, label=text)
        for row in (0, 1):
            axes[row, column].set_xscale("log")
            axes[row, column].set_yscale("log")
            axes[row, column].grid(alpha=0.3)
        axes[1, column].set_xlabel(axis)
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("peak memory, MB")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)
