"""The report of `impute` of sequenced samples: coverage by sample, quality by frequency and position."""

from __future__ import annotations

import numpy as np

from spinimpute.quality.details import RunDetails
from spinimpute.quality.imputed_sites import GOOD_R2, ImputedSites
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.sequenced_summary import SequencedSummary
from spinimpute.quality.summary import RELIABLE_SAMPLES
from spinimpute.reports.charts import Chart, histogram
from spinimpute.reports.page import Page, Row, Section, cards, notes, number, paragraph, table
from spinimpute.reports.report_files import SAMPLES
from spinimpute.reports.sections import (
    MOST_SAMPLES,
    course,
    how_made,
    made_by,
    quality_along,
    quality_by_chromosome,
    quality_by_frequency,
    r2_of_sites,
)


def sequenced_report(summary: SequencedSummary, details: RunDetails, target: str, panel: str) -> Page:
    """Make the report of an imputation of sequenced samples.

    Parameters
    ----------
    summary : SequencedSummary
        Counts, coverage and times.
    details : RunDetails
        What was collected of the run.
    target, panel : str
        What was imputed, and from which file.

    Returns
    -------
    Page
        It.
    """
    imputed = details.imputed
    frequency, reads = imputed.by_frequency(), summary.coverage.reads
    n_samples = len(summary.samples)
    shown = {
        "samples": number(n_samples),
        "sites with something known": f"{number(summary.coverage.known_sites)} of "
        f"{number(summary.panel_sites)}",
        "sites written": number(summary.written_sites),
    }
    if n_samples > 1:  # of one sample R2 is no estimate of anything
        n_good = sum(round(row["good"] * row["sites"]) for row in frequency)
        shown[f"sites with R2 ≥ {GOOD_R2}"] = number(n_good)
    if n_samples < RELIABLE_SAMPLES:
        shown["expected r², MAF ≥ 5 %"] = number(imputed.expected_r2(imputed.common), 3)
    if reads is not None:
        shown["reads a site, median of samples"] = number(float(np.median(reads.depth_X)), 2)
    return Page(
        "Imputation report",
        f"{target} imputed from {panel}",
        [
            cards(shown),
            notes([*summary.warnings, *summary.notes]),
            _coverage(summary, details.by_sample),
            quality_by_frequency(frequency, n_samples),
            r2_of_sites(imputed, n_samples),
            _along(imputed, n_samples),
            _not_used(summary),
            how_made(details.how_made),
            course(summary),
        ],
        made_by(),
    )


def _along(imputed: ImputedSites, n_samples: int) -> Section:
    if len(set(imputed.chroms)) > 1:
        return Section("Along the chromosomes", [quality_by_chromosome(imputed, n_samples)])
    return Section("Along the chromosome", [quality_along(imputed.along(), n_samples)])


def _coverage(summary: SequencedSummary, quality: SampleQuality) -> Section:
    coverage = summary.coverage
    expected = {row["sample"]: row["expected_r2"] for row in quality.by_sample()}
    rows = sorted(coverage.by_sample(), key=lambda row: (row["note"] != "low", row["depth"], -row["unknown"]))
    n_low = sum(row["note"] == "low" for row in rows)
    head, columns = ["sample", "nothing known"], ["sample", "unknown"]
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
    texts.append(
        "Expected r²: what the probabilities themselves let expect of the dosages at "
        f"{quality.sites:,} sites."
    )
    more = "" if len(rows) <= MOST_SAMPLES else f"; the {MOST_SAMPLES} lowest of {len(rows)}"
    drawn: list[str | Chart] = []
    if len(rows) > 1:
        drawn = [histogram(SAMPLES, measured, label, "samples", "How many samples have how much.")]
    body: list[Row] = [
        [*(row[column] for column in columns), expected[row["sample"]], row["note"]]
        for row in rows[:MOST_SAMPLES]
    ]
    caption = f"Shares of the panel's sites, by sample, the lowest first{more}"
    return Section(
        "Coverage by sample",
        [*map(paragraph, texts), *drawn, table([*head, "expected r²", "note"], body, caption, sortable=True)],
    )


def _not_used(summary: SequencedSummary) -> Section | None:
    rows: list[Row] = [[what, count] for what, count in summary.skipped.items() if count]
    return Section("What was not used", [table(["", "number"], rows, "By reason")]) if rows else None
