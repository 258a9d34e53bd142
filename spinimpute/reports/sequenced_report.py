"""The HTML report of `impute` for sequenced samples: coverage by sample, and quality by site."""

import numpy as np

from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.report_data import ReportData
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.summary import RELIABLE_SAMPLES, SequencedSummary
from spinimpute.reports.page import Page, Row, Section, cards, notes, number, paragraph, table
from spinimpute.reports.sections import (
    footer,
    good_sites,
    provenance_section,
    quality_by_chromosome,
    quality_by_frequency,
    quality_by_position,
    r2_of_sites,
    run_section,
    samples_table,
)


def sequenced_report(summary: SequencedSummary, data: ReportData, target: str, panel: str) -> Page:
    """Return the report page. `target` and `panel` are file names."""
    imputed = data.imputed
    frequency, reads = imputed.by_frequency(), summary.coverage.reads
    n_samples = len(summary.samples)
    card_values: dict[str, str | tuple[str, str]] = {
        "samples": number(n_samples),
        "sites with data": (number(summary.coverage.known_sites), f"of {number(summary.panel_sites)}"),
        "sites written": number(summary.written_sites),
    }
    if summary.left_out_sites:
        card_values["sites left out by the filters"] = number(summary.left_out_sites)
    if 1 < n_samples < RELIABLE_SAMPLES:
        card_values["expected r², MAF ≥ 5 %"] = number(imputed.expected_r2(imputed.common), 3)
    if reads is not None:
        card_values["reads per site, median of samples"] = number(float(np.median(reads.depth_X)), 2)
    return Page(
        "Imputation report",
        f"{target} imputed from {panel}",
        [
            cards(card_values),
            good_sites(imputed, n_samples),
            notes([*summary.warnings, *summary.notes]),
            _coverage(summary, data.by_sample),
            quality_by_frequency(frequency, n_samples),
            r2_of_sites(imputed, n_samples),
            _by_position(imputed, n_samples),
            _not_used(summary),
            provenance_section(data.provenance),
            run_section(summary),
        ],
        footer(),
    )


def _by_position(imputed: ImputedSites, n_samples: int) -> Section:
    if len(set(imputed.chroms)) > 1:
        return Section("Along the chromosomes", [quality_by_chromosome(imputed, n_samples)])
    return Section("Along the chromosome", [quality_by_position(imputed.by_segment(), n_samples)])


def _coverage(summary: SequencedSummary, quality: SampleQuality) -> Section:
    coverage = summary.coverage
    expected = {row["sample"]: {"expected_r2": row["expected_r2"]} for row in quality.by_sample()}
    rows = [row | expected[row["sample"]] for row in coverage.by_sample()]
    rows.sort(key=lambda row: (row["note"] != "low", row["depth"], -row["unknown"]))
    n_low = sum(row["note"] == "low" for row in rows)
    columns = {"sample": "sample"}
    texts = [
        f"{n_low:,} of {len(rows):,} samples are far below the others" + (": check them." if n_low else ".")
    ]
    measured, label = [1 - row["unknown"] for row in rows], "share of the sites with data"
    if coverage.reads is not None:
        columns |= {
            "depth": "reads per site",
            "without_reads": "sites without reads",
            "expected": "expected by chance",
        }
        measured, label = coverage.reads.depth_X.tolist(), "reads per site"
        texts.append(
            "If reads lay at random, a share exp(-depth) of the sites would have no reads (Poisson). If many "
            "more sites have none, reads are clustered, as with unmarked duplicates or captured DNA, and "
            "carry less information than their number suggests."
        )
    if summary.haploid:
        texts.append(f"{summary.haploid:,} of {len(rows):,} samples have one copy.")
    texts.append(
        f"Expected r²: the accuracy of the dosages at {quality.sites:,} sites if the probabilities are "
        "calibrated."
    )
    columns |= {"unknown": "sites without data", "expected_r2": "expected r²", "note": "note"}
    text, caption = "Coverage of the samples.", "Shares of the panel's sites, by sample"
    return Section(
        "Coverage by sample",
        [*map(paragraph, texts), *samples_table(rows, columns, measured, label, text, caption)],
    )


def _not_used(summary: SequencedSummary) -> Section | None:
    rows: list[Row] = [[what, count] for what, count in summary.skipped.items() if count]
    return Section("What was not used", [table(["", "number"], rows, "By reason")]) if rows else None
