"""Sections that several reports share: the reports of typed and of sequenced targets, and of `evaluate`."""

import datetime
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from spinimpute.quality.frequencies import OUTLIER_MIN_DIFFERENCE, OUTLIER_MIN_ERRORS, TypedFrequencies
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.metrics import FREQUENCY_CLASSES, GOOD_R2, curve, percent
from spinimpute.quality.report_data import Provenance
from spinimpute.quality.summary import RELIABLE_SAMPLES, RunSummary
from spinimpute.reports.charts import Chart, Series, density_plot, histogram, line_chart
from spinimpute.reports.page import Row, Section, cards, linked_title, number, paragraph, table
from spinimpute.reports.report_files import ALLELE_FREQUENCIES, BY_FREQUENCY, R2_ALONG, R2_OF_SITES, SAMPLES

MAX_LISTED_SAMPLES = 1_000  # a table lists up to this many samples, those with the lowest values
PRINTED_SAMPLES = 20  # rows of this table in print
MAX_LISTED_SITES = 200  # a table lists up to this many sites, those with the largest differences
FREQUENCY_NAMES = {  # of the bins of FREQUENCY_CLASSES
    "Common": "(0.05,0.5]",
    "Low-frequency": "(0.01,0.05]",
    "Rare": "(0,0.01]",
}
R2_ANCHOR, EXPECTED_R2_ANCHOR = "r2", "expected-r2"  # paragraphs that explain them
MAX_LISTED_TEXTS = 3  # about a subject in the first table of the provenance; if more, the first
MIN_RELIABLE_ALLELES = 40  # frequencies that are estimated from fewer alleles are called unreliable


def good_sites(imputed: ImputedSites, n_samples: int) -> str:
    """Return cards with the share of well imputed sites by frequency, and a link to what R2 is.

    For a single sample, which has no R2, the cards have the expected r².
    """
    rows = imputed.by_frequency(FREQUENCY_CLASSES)
    if n_samples == 1:
        title = linked_title("Expected r² of imputed sites", "What is the expected r²?", EXPECTED_R2_ANCHOR)
        values = {row["bin"]: (number(row["expected_r2"], 2), f"{row['sites']:,} sites") for row in rows}
    else:
        title = linked_title(f"Imputed sites with R2 ≥ {GOOD_R2}", "What is R2?", R2_ANCHOR)
        values = {row["bin"]: describe_share(round(row["good"] * row["sites"]), row["sites"]) for row in rows}
    return title + frequency_cards(values) if rows else ""


def describe_share(part: int, whole: int) -> tuple[str, str]:
    """Return a share in percent, and the two numbers of sites."""
    return f"{math.floor(100 * part / whole)} %" if whole else "–", f"{part:,} of {whole:,} sites"


def frequency_cards(values: Mapping[str, tuple[str, str]]) -> str:
    """Return cards of values by class of minor allele frequency, common sites first.

    `values` maps the labels of the bins of FREQUENCY_CLASSES.
    """
    return cards(
        {
            f"{name}: {_keep_together(f'MAF {percent(label)}')}": values[label]
            for name, label in FREQUENCY_NAMES.items()
            if label in values
        }
    )


def _keep_together(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def quality_by_frequency(
    frequency: Sequence[dict[str, Any]], n_samples: int, leave_one_out: LeaveOneOutQuality | None = None
) -> Section:
    """Return a section with the quality by minor allele frequency.

    `frequency` are the rows of `ImputedSites.by_frequency`. With few samples, the chart shows the expected r²
    instead of R2, which is then unreliable. `leave_one_out` adds the accuracy at typed sites.
    """
    bins = [row["bin"] for row in frequency]
    names = [percent(label) for label in bins]
    measure, name = choose_estimate(n_samples)
    lines = [Series(f"imputed sites: {name}", [row[measure] for row in frequency])]
    columns = {"bin": "frequency", "sites": "imputed sites"}
    texts = []
    if n_samples < RELIABLE_SAMPLES:
        columns |= {"expected_r2": "expected r²"}
        texts.append(
            paragraph(
                "Expected r²: the share of the genotypes' variance, about the panel's frequencies, that the "
                "probabilities of these samples explain. A few samples suffice to compute it. It is correct "
                "only if the probabilities are calibrated. For rare alleles it depends on the few copies "
                "that these samples seem to have.",
                anchor=EXPECTED_R2_ANCHOR,
            )
        )
    if n_samples > 1:
        columns |= {"r2": "mean R2", "good": f"share with R2 ≥ {GOOD_R2}"}
        texts.append(
            paragraph(
                "R2 estimates, without true genotypes, how well a site is imputed. It is the squared "
                "correlation of imputed and true dosages to expect if the probabilities are calibrated and "
                "at least one sample carries the minor allele. It is near 1 if the genotypes are certain, "
                "and 0 if the dosages do not vary. A usual limit for association tests is R2 ≥ 0.3. "
                + (
                    f"{n_samples} samples are too few for a reliable R2. "
                    if n_samples < RELIABLE_SAMPLES
                    else ""
                )
                + "The page 'Filter by R2' of the documentation (docs/without-truth.md) compares R2 with "
                "true accuracy.",
                anchor=R2_ANCHOR,
            )
        )
    header = list(columns.values())
    rows: list[Row] = [
        [name, *(row[column] for column in columns if column != "bin")]
        for name, row in zip(names, frequency, strict=True)
    ]
    if leave_one_out is not None:
        typed = leave_one_out.by_frequency()
        n_typed = {row["bin"]: row["sites"] for row in typed}
        pooled, mean_er2 = (curve(typed, bins, measure) for measure in ("pooled_r2", "mean_r2"))
        lines.append(Series("typed sites left out: pooled r²", pooled))
        header += ["typed sites", "left out: pooled r²"]
        for row, label, r2 in zip(rows, bins, pooled, strict=True):
            row += [n_typed.get(label), r2]
        if n_samples > 1:  # a correlation over the samples of a site
            lines.append(Series("typed sites left out: mean ER2", mean_er2))
            header.append("mean ER2")
            for row, er2 in zip(rows, mean_er2, strict=True):
                row.append(er2)
        texts.append(
            paragraph(
                "The accuracy at typed sites is measured: each typed call is left out, predicted from the "
                "other typed calls of its haplotype, and compared. Typed sites are closer to other typed "
                "sites and more common than most imputed sites, so most imputed sites are less accurate."
            )
        )
    chart = line_chart(
        BY_FREQUENCY,
        names,
        lines,
        "minor allele frequency in the panel",
        "r²",
        "Quality by minor allele frequency.",
    )
    return Section(
        "Quality by allele frequency", [*texts, chart, table(header, rows, "Quality by frequency")]
    )


def choose_estimate(n_samples: int) -> tuple[str, str]:
    """Return which estimate of accuracy to show: its column in the rows of `ImputedSites`, and its name.

    With few samples it is the expected r², because R2 is then unreliable.
    """
    return ("expected_r2", "expected r²") if n_samples < RELIABLE_SAMPLES else ("r2", "mean estimated R2")


def r2_of_sites(imputed: ImputedSites, n_samples: int) -> Section | None:
    """Return a section with a histogram of R2; None if there is only one sample or no imputed site."""
    _, _, r2, typed = imputed.columns()
    if n_samples == 1 or typed.all():
        return None
    description = "Number of imputed sites by estimated R2. R2 is 0 where dosages do not vary."
    chart = histogram(
        R2_OF_SITES, r2[~typed].tolist(), "R2", "imputed sites", description, unit_interval=True
    )
    return Section("R2 of imputed sites", [chart])


def quality_by_position(along: Sequence[dict[str, Any]], n_samples: int) -> Chart:
    """Return a chart of the quality of common sites along the chromosome.

    `along` are the rows of `ImputedSites.by_segment`.
    """
    measure, name = choose_estimate(n_samples)
    return line_chart(
        R2_ALONG,
        [float(row["Mb"]) for row in along],
        [
            Series(
                f"{name} of common imputed sites (frequency of 5 % and more)", [row[measure] for row in along]
            )
        ],
        "position, Mb",
        "r²",
        "Estimated quality along the chromosome.",
    )


def quality_by_chromosome(imputed: ImputedSites, n_samples: int) -> str:
    """Return a table with the numbers of sites and the quality of each chromosome."""
    measure, name = choose_estimate(n_samples)
    return table(
        ["chromosome", "panel sites", "typed sites", f"{name}, MAF ≥ 5 %"],
        [[row["chrom"], row["sites"], row["typed"], row[measure]] for row in imputed.by_chromosome()],
        "Chromosomes in the order of the output",
    )


def allele_frequencies(frequencies: TypedFrequencies) -> Section | None:
    """Return a section that compares ALT frequencies of target and panel; None without typed calls."""
    target, panel, outlier = frequencies.columns()
    if not len(target):
        return None
    correlation = frequencies.correlation()
    correlation_text = "" if math.isnan(correlation) else f"; their correlation is {correlation:.3f}"
    parts: list[str | Chart] = [
        paragraph(
            "The chart shows typed sites after repairs. A site is far off if its two frequencies differ by "
            f"more than {OUTLIER_MIN_DIFFERENCE} and more than {OUTLIER_MIN_ERRORS:g} standard errors. "
            "A few such sites have poor assays or alleles on the wrong strand. Many such sites mean that REF "
            "and ALT are exchanged, that genome builds differ, or that the panel is of another population."
        )
    ]
    if frequencies.max_known_alleles < MIN_RELIABLE_ALLELES:
        text = f"A frequency from fewer than {MIN_RELIABLE_ALLELES} alleles of the target says little."
        parts.append(paragraph(text, soft=True))
    parts.append(
        density_plot(
            ALLELE_FREQUENCIES,
            panel.tolist(),
            target.tolist(),
            outlier.tolist(),
            "ALT frequency in the panel",
            "ALT frequency in the target",
            ("typed sites: the darker, the more", "sites that are far off"),
            f"Allele frequencies of target and panel at {len(target):,} typed sites, of which "
            f"{int(outlier.sum()):,} are far off{correlation_text}.",
        )
    )
    rows: list[Row] = [
        [
            f"{row['chrom']}:{row['position']}", row["id"], f"{row['ref']}>{row['alt']}", row["target"],
            row["panel"], row["alleles"], row["what"],
        ]
        for row in frequencies.outliers()[:MAX_LISTED_SITES]
    ]  # fmt: skip
    if rows:
        n_outliers = int(outlier.sum())
        more = (
            ""
            if n_outliers <= MAX_LISTED_SITES
            else f"; {MAX_LISTED_SITES} of {n_outliers:,}, 'spinimpute check' lists all"
        )
        parts.append(
            table(
                ["site", "ID", "alleles", "in the target", "in the panel", "alleles known", "ALT is"],
                rows,
                f"ALT frequencies of sites that are far off, the furthest first{more}",
                sortable=True,
            )
        )
    return Section("Allele frequencies of target and panel", parts)


def samples_table(
    rows: Sequence[Mapping[Any, Any]],
    columns: Mapping[str, str],
    values: Sequence[float],
    label: str,
    description: str,
    caption: str,
) -> list[str | Chart]:
    """Return a histogram of one value per sample, and a table of the first rows.

    `values`, with the axis `label`, are for the histogram, which is omitted for a single sample. `rows` are
    sorted by increasing quality. `columns` maps keys of the rows to titles.
    """
    more = "" if len(rows) <= MAX_LISTED_SAMPLES else f"; the {MAX_LISTED_SAMPLES:,} lowest of {len(rows):,}"
    body: list[Row] = [[row[key] for key in columns] for row in rows[:MAX_LISTED_SAMPLES]]
    charts = [histogram(SAMPLES, values, label, "samples", description)] if len(rows) > 1 else []
    title = f"{caption}, the lowest first{more}"
    return [*charts, table(list(columns.values()), body, title, sortable=True, printed_rows=PRINTED_SAMPLES)]


def provenance_section(provenance: Provenance) -> Section:
    """Return a section about how the output was made."""
    rows: list[Row] = []
    further: list[Row] = []
    for subject, texts in provenance.texts.items():
        first, *others = texts
        if len(texts) > MAX_LISTED_TEXTS:
            further += [[subject, text] for text in others]
            first, others = f"{first}; {len(others):,} more in the next table", []
        rows.append([subject, first])
        rows += [["", text] for text in others]
    return Section(
        "How it was made",
        [
            table(["", ""], rows, "Program, command, model, panel and target", wrapped=True),
            *([table(["", ""], further, "Further files", wrapped=True)] if further else []),
            paragraph(
                "The command is the one in the output's header, without options that do not affect outputs.",
                soft=True,
            ),
        ],
    )


def run_section(summary: RunSummary, *tables: str) -> Section:
    """Return a section with time and memory of the run, and with further tables."""
    seconds: list[Row] = [[name, value] for name, value in summary.seconds.items()]
    return Section(
        "Course of the run",
        [
            table(["stage", "seconds"], seconds, "Time", decimals=2),
            *tables,
            paragraph(f"Peak memory: {summary.peak_memory_mb:,.0f} MB.", soft=True),
        ],
    )


def footer() -> str:
    """Return the footer of a page: program, version and date."""
    return f"spinimpute {version('spinimpute')}, {datetime.datetime.now().date().isoformat()}"
