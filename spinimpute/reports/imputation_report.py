"""The HTML report of `impute` for typed targets.

It shows how the target was matched and repaired, and the accuracy by frequency, position and sample. In its
tables, "left out" means leave-one-out: a typed call is predicted from the other typed calls.
"""

from spinimpute.genotypes.untyped_intervals import FAR_CM
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.report_data import ReportData
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.summary import RELIABLE_SAMPLES, ImputationSummary
from spinimpute.reports.charts import Chart, Series, line_chart
from spinimpute.reports.page import Page, Row, Section, cards, notes, number, paragraph, table
from spinimpute.reports.report_files import TYPED_SITES
from spinimpute.reports.sections import (
    allele_frequencies,
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

N_WEAKEST_WINDOWS = 10  # number of windows with the lowest accuracy in the table
MAX_LISTED_INTERVALS = 100  # intervals without typed sites in the table


def imputation_report(summary: ImputationSummary, data: ReportData, target: str, panel: str) -> Page:
    """Return the report page. `target` and `panel` are file names."""
    imputed, leave_one_out = data.imputed, summary.leave_one_out
    frequency = imputed.by_frequency()
    card_values: dict[str, str | tuple[str, str]] = {
        "samples": number(summary.samples),
        "typed sites used": (number(summary.matched_sites), f"of {number(summary.typed_sites)}"),
        "sites written": number(summary.written_sites),
    }
    if summary.left_out_sites:
        card_values["sites left out by the filters"] = number(summary.left_out_sites)
    if 1 < summary.samples < RELIABLE_SAMPLES:
        card_values["expected r², MAF ≥ 5 %"] = number(imputed.expected_r2(imputed.common), 3)
    if leave_one_out is not None:
        card_values["r² of typed calls left out"] = number(leave_one_out.overall_r2(), 3)
    return Page(
        "Imputation report",
        f"{target} imputed from {panel}",
        [
            cards(card_values),
            good_sites(imputed, summary.samples),
            notes([*summary.warnings, *summary.notes]),
            quality_by_frequency(frequency, summary.samples, leave_one_out),
            r2_of_sites(imputed, summary.samples),
            allele_frequencies(data.frequencies),
            _matching(summary),
            _by_position(imputed, summary.samples, leave_one_out),
            _untyped(summary),
            _samples(data.by_sample, leave_one_out),
            provenance_section(data.provenance),
            run_section(
                summary,
                table(
                    ["window", "sites", "typed sites"],
                    [[f"{w.chrom}:{w.start}-{w.end}", w.sites, w.typed] for w in summary.windows],
                    "Windows that were computed and written one after the other",
                ),
            ),
        ],
        footer(),
    )


def _matching(summary: ImputationSummary) -> Section:
    counts: list[tuple[str, int]] = [
        *((f"repaired: {what}", count) for what, count in summary.repaired.items()),
        *((f"not used: {why}", count) for why, count in summary.unmatched.items()),
        *((f"records skipped: {why}", count) for why, count in summary.skipped.items()),
        *((f"calls set missing: {what}", count) for what, count in summary.mended_calls.items()),
        ("missing typed calls, imputed", summary.missing_calls),
        ("heterozygotes phased", summary.phased_calls),
    ]
    rows: list[Row] = [
        ["typed sites in the target", summary.typed_sites],
        ["of these, sites of the panel", summary.matched_sites],
    ]
    rows += [[what, count] for what, count in counts if count]
    return Section(
        "What was matched and repaired",
        [
            table(["", "number"], rows, "Sites and calls of the target"),
            *(paragraph(line) for line in summary.haploid),
        ],
    )


def _by_position(imputed: ImputedSites, n_samples: int, leave_one_out: LeaveOneOutQuality | None) -> Section:
    many_chromosomes = len(set(imputed.chroms)) > 1
    parts: list[str | Chart] = (
        [quality_by_chromosome(imputed, n_samples)]
        if many_chromosomes
        else _charts_by_position(imputed, n_samples)
    )
    if leave_one_out is not None:
        windows = [row for row in leave_one_out.by_window() if row["r2"] == row["r2"]]
        weakest_windows = sorted(windows, key=lambda row: row["r2"])[:N_WEAKEST_WINDOWS]
        parts.append(
            table(
                ["window", "typed sites", "left out: r²", "minor-allele concordance"],
                [
                    [f"{w['chrom']}:{w['start']}-{w['end']}", w["typed"], w["r2"], w["minor_concordance"]]
                    for w in weakest_windows
                ],
                f"The {len(weakest_windows)} weakest of {len(windows)} windows",
            )
        )
    return Section("Along the chromosomes" if many_chromosomes else "Along the chromosome", parts)


def _charts_by_position(imputed: ImputedSites, n_samples: int) -> list[str | Chart]:
    segments = imputed.by_segment()
    middle = [float(row["Mb"]) for row in segments]
    density = line_chart(
        TYPED_SITES,
        middle,
        [Series("typed sites per Mb", [row["typed"] / row["length_Mb"] for row in segments])],
        "position, Mb",
        "typed sites per Mb",
        "Density of typed sites along the chromosome.",
        unit_interval=False,
    )
    return [density, quality_by_position(segments, n_samples)]


def _untyped(summary: ImputationSummary) -> Section | None:
    if not summary.untyped:
        return None
    rows: list[Row] = [
        [f"{interval.chrom}:{interval.start}-{interval.end}", interval.typed, interval.imputed]
        for interval in summary.untyped[:MAX_LISTED_INTERVALS]
    ]
    omitted = (
        "" if len(rows) == len(summary.untyped) else f"; the first {len(rows)} of {len(summary.untyped)}"
    )
    return Section(
        "Intervals with hardly a typed site",
        [
            paragraph(
                f"Genotypes imputed more than {FAR_CM} cM from any typed site are hardly more accurate than "
                "the panel's allele frequency. With a panel of haplotypes, these sites have the flag FAR."
            ),
            table(["interval", "typed sites", "imputed sites"], rows, f"The largest first{omitted}"),
        ],
    )


def _samples(quality: SampleQuality, leave_one_out: LeaveOneOutQuality | None) -> Section:
    measure = "expected_r2" if leave_one_out is None else "r2"
    rows = sorted(
        quality.by_sample(leave_one_out), key=lambda row: (row[measure] == row[measure], row[measure])
    )
    columns = {"sample": "sample", "typed": "typed sites", "call_rate": "call rate"}
    if leave_one_out is None:
        texts = ["Measuring accuracy by leaving typed calls out requires a panel of haplotypes."]
        columns |= {"expected_r2": "expected r²"}
    else:
        n_low = sum(row["note"] == "low" for row in rows)
        texts = [
            f"Left out: typed calls of each sample, predicted from its other typed calls. {n_low:,} of "
            f"{len(rows):,} samples are far below the others{': check them' if n_low else ''}. Low values "
            "come from poor arrays, contamination, or ancestry that the panel lacks."
        ]
        columns |= {
            "r2": "left out: r²",
            "minor_concordance": "minor-allele concordance",
            "expected_r2": "expected r²",
            "note": "note",
        }
    texts.append(
        f"Expected r²: the accuracy of the dosages at {quality.sites:,} imputed sites if the probabilities "
        "are calibrated. It cannot be compared with the accuracy at typed sites."
    )
    values, label = [row[measure] for row in rows], columns[measure]
    text = "Number of samples by quality."
    return Section(
        "Quality by sample",
        [*map(paragraph, texts), *samples_table(rows, columns, values, label, text, "Samples")],
    )
