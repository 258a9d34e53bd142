"""The report of `impute` of sequenced samples: coverage by sample, quality by frequency and position."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spinimpute.quality.imputed_sites import GOOD_R2, ImputedSites
from spinimpute.quality.sequenced_summary import SequencedSummary
from spinimpute.reports.charts import histogram
from spinimpute.reports.page import Row, cards, notes, number, page, paragraph, section, table
from spinimpute.reports.sections import (
    MOST_SAMPLES,
    course,
    made_by,
    quality_along,
    quality_by_chromosome,
    quality_by_frequency,
    r2_of_sites,
)


def sequenced_report(summary: SequencedSummary, imputed: ImputedSites, target: str, panel: str) -> str:
    """Make the report of an imputation of sequenced samples.

    Parameters
    ----------
    summary : SequencedSummary
        Counts, coverage and times.
    imputed : ImputedSites
        Estimated quality of the sites.
    target, panel : str
        What was imputed, and from which file.

    Returns
    -------
    str
        A page of HTML.
    """
    frequency, reads = imputed.by_frequency(), summary.coverage.reads
    shown = {
        "samples": number(len(summary.samples)),
        "sites with something known": f"{number(summary.coverage.known_sites)} of "
        f"{number(summary.panel_sites)}",
        "sites written": number(summary.written_sites),
    }
    if len(summary.samples) > 1:  # of one sample R2 is no estimate of anything
        n_good = sum(round(row["good"] * row["sites"]) for row in frequency)
        shown[f"sites with R2 ≥ {GOOD_R2}"] = number(n_good)
    if reads is not None:
        shown["reads a site, median of samples"] = number(float(np.median(reads.depth_X)), 2)
    return page(
        "Imputation report",
        f"{target} imputed from {panel}",
        cards(shown),
        notes([*summary.warnings, *summary.notes]),
        _coverage(summary),
        quality_by_frequency(frequency),
        r2_of_sites(imputed),
        section("Along the chromosomes", quality_by_chromosome(imputed))
        if len(set(imputed.chroms)) > 1
        else section("Along the chromosome", quality_along(imputed.along())),
        _not_used(summary),
        course(summary),
        footer=made_by(),
    )


def _coverage(summary: SequencedSummary) -> str:
    coverage = summary.coverage
    rows = sorted(coverage.by_sample(), key=lambda row: (row["note"] != "low", row["depth"], -row["unknown"]))
    n_low = sum(row["note"] == "low" for row in rows)
    head, columns = ["sample", "nothing known", "note"], ["sample", "unknown", "note"]
    texts = [
        f"{n_low} of {len(rows)} samples are far below the others" + (": look at them." if n_low else ".")
    ]
    measured, label = [1 - row["unknown"] for row in rows], "share of the sites of which something is known"
    if coverage.reads is not None:
        head[1:1] = ["reads a site", "sites without reads", "the same by chance"]
        columns[1:1] = ["depth", "without_reads", "expected"]
        measured, label = coverage.reads.depth_X.tolist(), "reads a site"
        texts.append(
            "Reads that lie by chance leave exp(-depth) of the sites without any (Poisson). Where many more "
            "are, reads lie in heaps, as of unmarked duplicates or of captured DNA, and say less than "
            "their number."
        )
    if summary.haploid:
        texts.append(f"{summary.haploid} of {len(rows)} samples have one copy.")
    more = "" if len(rows) <= MOST_SAMPLES else f"; the {MOST_SAMPLES} lowest of {len(rows)}"
    return section(
        "Coverage by sample",
        *(paragraph(text) for text in texts),
        histogram(measured, label, "samples", "How many samples have how much.") if len(rows) > 1 else "",
        table(
            head,
            [[row[column] for column in columns] for row in rows[:MOST_SAMPLES]],
            f"Shares of the panel's sites, by sample, the lowest first{more}",
            sortable=True,
        ),
    )


def _not_used(summary: SequencedSummary) -> str:
    rows: list[Row] = [[what, count] for what, count in summary.skipped.items() if count]
    return section("What was not used", table(["", "number"], rows, "By reason")) if rows else ""


def write_sequenced_report(
    summary: SequencedSummary, imputed: ImputedSites, target: str, panel: str | Path, out: Path
) -> None:
    """Write the report of an imputation of sequenced samples.

    Parameters
    ----------
    summary : SequencedSummary
        Counts, coverage and times.
    imputed : ImputedSites
        Estimated quality of the sites.
    target : str
        What was imputed.
    panel : path
        The panel's file; the report shows its name.
    out : Path
        The file to write.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    text = sequenced_report(summary, imputed, target, Path(panel).name)
    out.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
