"""The report of `impute`: what was matched and repaired, and accuracy by frequency, position and sample."""

from __future__ import annotations

from pathlib import Path

from spinimpute.genotypes.untyped_stretches import FAR_CM
from spinimpute.quality.imputed_sites import GOOD_R2, ImputedSites
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.summary import ImputationSummary
from spinimpute.reports.charts import Series, histogram, lines_by_position
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

WEAKEST = 10  # windows
MOST_STRETCHES = 100


def imputation_report(summary: ImputationSummary, imputed: ImputedSites, target: str, panel: str) -> str:
    """Make the report of an imputation.

    Parameters
    ----------
    summary : ImputationSummary
        Counts, times, and leave-one-out quality if there is any.
    imputed : ImputedSites
        Estimated quality of the imputed sites.
    target, panel : str
        Names of the files.

    Returns
    -------
    str
        A page of HTML.
    """
    leave_one_out = summary.leave_one_out
    frequency = imputed.by_frequency()
    n_good = sum(round(row["good"] * row["sites"]) for row in frequency)
    shown = {
        "samples": number(summary.samples),
        "typed sites used": f"{number(summary.matched_sites)} of {number(summary.typed_sites)}",
        "sites written": number(summary.written_sites),
    }
    if summary.samples > 1:  # of one sample R2 is no estimate of anything
        shown[f"imputed sites with R2 ≥ {GOOD_R2}"] = number(n_good)
    if leave_one_out is not None:
        shown["r² of typed calls left out"] = number(leave_one_out.all(), 3)
    return page(
        "Imputation report",
        f"{target} imputed from {panel}",
        cards(shown),
        notes([*summary.warnings, *summary.notes]),
        quality_by_frequency(frequency, leave_one_out),
        r2_of_sites(imputed),
        _matching(summary),
        _along(imputed, leave_one_out),
        _untyped(summary),
        _samples(leave_one_out),
        course(
            summary,
            table(
                ["window", "sites", "typed sites"],
                [[f"{w.chrom}:{w.start}-{w.end}", w.sites, w.typed] for w in summary.windows],
                "Windows that were computed and written one after the other",
            ),
        ),
        footer=made_by(),
    )


def _matching(summary: ImputationSummary) -> str:
    counted: list[tuple[str, int]] = [
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
    rows += [[what, count] for what, count in counted if count]
    return section(
        "What was matched and repaired",
        table(["", "number"], rows, "Sites and calls of the target"),
        *(paragraph(line) for line in summary.haploid),
    )


def _along(imputed: ImputedSites, leave_one_out: LeaveOneOutQuality | None) -> str:
    parts = [quality_by_chromosome(imputed)] if len(set(imputed.chroms)) > 1 else _along_one(imputed)
    if leave_one_out is not None:
        windows = [row for row in leave_one_out.by_window() if row["r2"] == row["r2"]]
        weakest = sorted(windows, key=lambda row: row["r2"])[:WEAKEST]
        parts.append(
            table(
                ["window", "typed sites", "left out: r²", "minor-allele concordance"],
                [
                    [f"{w['chrom']}:{w['start']}-{w['end']}", w["typed"], w["r2"], w["minor_concordance"]]
                    for w in weakest
                ],
                f"The {len(weakest)} weakest of {len(windows)} windows",
            )
        )
    return section(
        "Along the chromosomes" if len(set(imputed.chroms)) > 1 else "Along the chromosome", *parts
    )


def _along_one(imputed: ImputedSites) -> list[str]:
    along = imputed.along()
    middle = [float(row["Mb"]) for row in along]
    density = lines_by_position(
        middle,
        [Series("typed sites per Mb", [row["typed"] / row["length_Mb"] for row in along])],
        "position, Mb",
        "typed sites per Mb",
        "Coverage: how many typed sites there are along the chromosome.",
        unit_interval=False,
    )
    return [density, quality_along(along)]


def _untyped(summary: ImputationSummary) -> str:
    if not summary.untyped:
        return ""
    rows: list[Row] = [
        [f"{stretch.chrom}:{stretch.start}-{stretch.end}", stretch.typed, stretch.imputed]
        for stretch in summary.untyped[:MOST_STRETCHES]
    ]
    shown = "" if len(rows) == len(summary.untyped) else f"; the first {len(rows)} of {len(summary.untyped)}"
    return section(
        "Stretches with hardly a typed site",
        paragraph(
            f"What is imputed further than {FAR_CM} cM from any typed site is little more than a guess by "
            "frequency. With a panel of haplotypes such sites have the flag FAR."
        ),
        table(["stretch", "typed sites", "imputed sites"], rows, f"The largest first{shown}"),
    )


def _samples(leave_one_out: LeaveOneOutQuality | None) -> str:
    if leave_one_out is None:
        return section(
            "Quality by sample",
            paragraph("Told by leaving typed calls out, which needs a panel of haplotypes."),
        )
    rows = sorted(leave_one_out.by_sample(), key=lambda row: (row["r2"] == row["r2"], row["r2"]))
    n_low = sum(row["note"] == "low" for row in rows)
    said = f"{n_low} of {len(rows)} samples are far below the others" + (": look at them." if n_low else ".")
    more = "" if len(rows) <= MOST_SAMPLES else f"; the {MOST_SAMPLES} lowest of {len(rows)}"
    return section(
        "Quality by sample",
        paragraph(
            f"Typed calls of each sample, predicted by its others. {said} Low values come from poor arrays, "
            "contamination, or ancestors whom the panel lacks."
        ),
        histogram(
            [row["r2"] for row in rows], "left out: r²", "samples", "How many samples have which quality."
        )
        if len(rows) > 1
        else "",
        table(
            ["sample", "calls", "left out: r²", "minor-allele concordance", "note"],
            [
                [row["sample"], row["calls"], row["r2"], row["minor_concordance"], row["note"]]
                for row in rows[:MOST_SAMPLES]
            ],
            f"Samples, the lowest first{more}",
            sortable=True,
        ),
    )


def write_imputation_report(
    summary: ImputationSummary, imputed: ImputedSites, target: str | Path, panel: str | Path, out: Path
) -> None:
    """Write the report of an imputation.

    Parameters
    ----------
    summary : ImputationSummary
        Counts, times, and leave-one-out quality if there is any.
    imputed : ImputedSites
        Estimated quality of the imputed sites.
    target, panel : path
        The files that were read; the report shows their names.
    out : Path
        The file to write.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    text = imputation_report(summary, imputed, Path(target).name, Path(panel).name)
    out.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
