"""Sections that the reports of typed and of sequenced targets have in common."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from spinimpute.quality.imputed_sites import GOOD_R2, ImputedSites
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.metrics import curve
from spinimpute.quality.summary import RunSummary
from spinimpute.reports.charts import Series, histogram, lines_by_category, lines_by_position
from spinimpute.reports.page import Row, paragraph, section, table

MOST_SAMPLES = 1_000  # in a table; of more, the lowest


def quality_by_frequency(
    frequency: Sequence[dict[str, Any]], leave_one_out: LeaveOneOutQuality | None = None
) -> str:
    """Quality of imputed sites by the frequency of their rarer allele.

    Parameters
    ----------
    frequency : sequence of dict
        Rows of `ImputedSites.by_frequency`.
    leave_one_out : LeaveOneOutQuality or None
        Accuracy at typed sites, to be shown beside it.

    Returns
    -------
    str
        A section of a page.
    """
    names = [row["bin"] for row in frequency]
    lines = [Series("imputed sites: mean estimated R2", [row["r2"] for row in frequency])]
    head = ["frequency", "imputed sites", "mean R2", f"share with R2 ≥ {GOOD_R2}"]
    rows: list[Row] = [[row["bin"], row["sites"], row["r2"], row["good"]] for row in frequency]
    texts = [
        paragraph(
            "R2 is estimated from the imputed dosages themselves: their variance over what it would be "
            "without any doubt. It knows nothing of the truth."
        )
    ]
    if leave_one_out is not None:
        typed = leave_one_out.by_frequency()
        n_typed = {row["bin"]: row["sites"] for row in typed}
        pooled, each = (curve(typed, names, measure) for measure in ("pooled_r2", "mean_r2"))
        lines += [Series("typed sites left out: pooled r²", pooled), Series("the same: mean ER2", each)]
        head += ["typed sites", "left out: pooled r²", "mean ER2"]
        for row, name, r2, er2 in zip(rows, names, pooled, each, strict=True):
            row += [n_typed.get(name), r2, er2]
        texts.append(
            paragraph(
                "The other numbers are measured: each typed call is predicted from the other typed calls of "
                "its haplotype, then compared. Typed sites lie closer to other typed sites and are more "
                "common than most imputed ones, so this is what good imputation looks like here, not a "
                "promise for every site."
            )
        )
    chart = lines_by_category(
        names, lines, "minor allele frequency in the panel", "r²", "Quality by minor allele frequency."
    )
    return section("Quality by allele frequency", *texts, chart, table(head, rows, "Quality by frequency"))


def r2_of_sites(imputed: ImputedSites) -> str:
    """How many imputed sites have which R2: a section of a page; empty where all sites are typed."""
    _, _, r2, typed = imputed.all()
    if typed.all():
        return ""
    description = "How many imputed sites have which estimated R2; 0 where dosages do not vary."
    return section("R2 of imputed sites", histogram(r2[~typed].tolist(), "R2", "imputed sites", description))


def quality_along(along: Sequence[dict[str, Any]]) -> str:
    """Quality of common sites along the chromosome, of rows of `ImputedSites.along`: a chart."""
    return lines_by_position(
        [float(row["Mb"]) for row in along],
        [Series("mean R2 of common imputed sites (frequency of 5 % and more)", [row["r2"] for row in along])],
        "position, Mb",
        "R2",
        "Estimated quality along the chromosome.",
        unit_interval=True,
    )


def quality_by_chromosome(imputed: ImputedSites) -> str:
    """Density and quality of each of several chromosomes: a table."""
    return table(
        ["chromosome", "panel sites", "typed sites", "mean R2, MAF ≥ 5 %"],
        [[row["chrom"], row["sites"], row["typed"], row["r2"]] for row in imputed.by_chromosome()],
        "Chromosomes in the order of the output",
    )


def course(summary: RunSummary, *tables: str) -> str:
    """Time and memory of a run, with tables of it: a section of a page."""
    seconds: list[Row] = [[name, round(value, 2)] for name, value in summary.seconds.items()]
    return section(
        "Course of the run",
        table(["stage", "seconds"], seconds, "Time"),
        *tables,
        paragraph(f"Peak memory: {summary.peak_memory_mb:,.0f} MB.", soft=True),
    )


def made_by() -> str:
    """What made a page, and when: for its bottom."""
    return f"spinimpute {version('spinimpute')}, {datetime.datetime.now().date().isoformat()}"
