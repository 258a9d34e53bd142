"""The HTML report of `evaluate`: accuracy by allele frequency and by sample, and calibration."""

from typing import Any

from spinimpute.evaluation.result import BASELINE, IMPUTED, AccuracyCurves, Evaluation
from spinimpute.quality.metrics import GOOD_R2, percent
from spinimpute.reports.charts import Series, line_chart
from spinimpute.reports.page import Page, Row, Section, cards, linked_title, notes, number, paragraph, table
from spinimpute.reports.sections import R2_ANCHOR, describe_share, footer, frequency_cards, samples_table

# columns of the tables of an evaluation, and their titles on the page
_FREQUENCY_COLUMNS = {
    "sites": "sites",
    "pooled_r2": "pooled r²",
    "mean_r2": "mean r²",
    "nrc": "minor-allele concordance",
    "missing_sites": "sites not imputed",
    "genotypes": "genotypes",
}
_CALIBRATION_COLUMNS = {
    "bin": "probability",
    "predictions": "predictions",
    "mean_predicted": "mean probability",
    "observed": "observed share",
    "calibration_error": "calibration error",
}


def evaluation_report(evaluation: Evaluation, imputed: str, truth: str) -> Page:
    """Return the report page. `imputed` and `truth` are the names of the compared files."""
    rows = evaluation.by_frequency
    overall = next(row for row in rows if (row["imputer"], row["bin"]) == (IMPUTED, "all"))
    card_values = {
        "samples": number(len(evaluation.samples)),
        "sites scored": number(evaluation.scored_sites),
        "pooled r²": number(overall["pooled_r2"]),
        "mean r² per site": number(overall["mean_r2"]),
        "minor-allele concordance": number(overall["nrc"]),
    }
    warnings = []
    if evaluation.samples_in_panel:
        warnings.append(
            f"{len(evaluation.samples_in_panel)} samples have the same name as a panel sample. If they are "
            "the same people, their accuracy is too high to be meaningful"
        )
    if evaluation.missing_sites:
        warnings.append(
            f"{number(evaluation.missing_sites)} scored sites are not in the imputed file. They are scored "
            "with the panel's allele frequency as the dosage"
        )
    return Page(
        "Evaluation report",
        f"{imputed} against {truth}{evaluation.where()}",
        [
            cards(card_values),
            _good_sites(evaluation),
            notes(warnings),
            _by_frequency(evaluation.accuracy_curves(), rows),
            _calibration(evaluation),
            *_multiallelic(evaluation),
            _by_sample(evaluation),
            _not_scored(evaluation),
        ],
        footer(),
    )


def _good_sites(evaluation: Evaluation) -> str:
    if not evaluation.good_sites:
        return ""
    values = {row["bin"]: describe_share(row["good"], row["sites"]) for row in evaluation.good_sites}
    title = linked_title(f"Sites with r² ≥ {GOOD_R2}", "What is r²?", R2_ANCHOR)
    return title + frequency_cards(values)


def _by_frequency(curves: AccuracyCurves, rows: list[dict[Any, Any]]) -> Section:
    lines = [
        Series(name, curves.r2[measure][imputer])
        for imputer, measure, name in (
            (IMPUTED, "pooled_r2", "imputed: pooled r²"),
            (IMPUTED, "mean_r2", "imputed: mean r² per site"),
            (BASELINE, "pooled_r2", "the panel's frequencies alone: pooled r²"),
        )
    ]
    chart = line_chart(
        "accuracy-by-frequency",
        [percent(label) for label in curves.bins],
        lines,
        "minor allele frequency in the panel",
        "r²",
        "Accuracy by minor allele frequency.",
    )
    names = {IMPUTED: "imputed", BASELINE: "panel's frequencies"}
    body: list[Row] = [
        [names[imputer], percent(row["bin"]), *(row[name] for name in _FREQUENCY_COLUMNS)]
        for imputer in names
        for row in rows
        if row["imputer"] == imputer
    ]
    text = paragraph(
        "The r² of a site is the squared correlation of imputed dosages and true genotypes over the samples. "
        "It is undefined at sites whose true genotypes do not vary. "
        "Dosages count the allele that is rarer in the panel. Pooled r² is computed from all genotypes of a "
        "bin together. Mean r² is the average of the sites' r². Minor-allele concordance: among "
        "genotypes with a minor allele in the truth or in the best guess, the share that is correct.",
        anchor=R2_ANCHOR,
    )
    return Section(
        "Accuracy by allele frequency",
        [
            text,
            chart,
            table(["dosages", "frequency", *_FREQUENCY_COLUMNS.values()], body, "Accuracy by frequency"),
        ],
    )


def _calibration(evaluation: Evaluation) -> Section:
    if evaluation.calibration is None:
        return Section("Calibration", [paragraph("The imputed file has no genotype probabilities (GP).")])
    rows = [row for row in evaluation.calibration if row["minor_alleles"] == "any"]
    binned = [row for row in rows if row["bin"] != "all"]
    predicted = [row["mean_predicted"] for row in binned]
    chart = line_chart(
        "calibration",
        predicted,
        [Series("observed share", [row["observed"] for row in binned]), Series("expected share", predicted)],
        "genotype probability",
        "share of true genotypes",
        "Calibration of genotype probabilities.",
    )
    body: list[Row] = [[row[name] for name in _CALIBRATION_COLUMNS] for row in rows]
    text = (
        "What share of the genotypes with a given probability is correct? For calibrated probabilities the "
        "two lines coincide."
    )
    return Section(
        "Calibration",
        [
            paragraph(text),
            chart,
            table(list(_CALIBRATION_COLUMNS.values()), body, "Calibration, all genotypes"),
        ],
    )


def _multiallelic(evaluation: Evaluation) -> list[Section]:
    """Return a section on multi-allelic records, if there are any."""
    if evaluation.multiallelic is None:
        return []
    columns = {
        "records": "records",
        "genotypes": "genotypes",
        "concordance": "concordance",
        "nrc": "minor-allele concordance",
        "alleles": "ALT alleles",
        "pooled_r2": "pooled r²",
        "mean_r2": "mean r²",
    }
    body: list[Row] = [
        [percent(row["bin"]), *(row[name] for name in columns)] for row in evaluation.multiallelic
    ]
    parts = [
        paragraph(
            "Concordance: share of the whole genotypes that are right. Minor-allele concordance: the same "
            "among genotypes with another than the most frequent allele in the truth or in the best guess. A "
            "record is in the row of the frequency of all alleles but the most frequent one. r² compares the "
            "ALT alleles one by one, in the rows of their own frequencies."
        ),
        table(["frequency", *columns.values()], body, "Multi-allelic records"),
    ]
    if evaluation.multiallelic_calibration is not None:
        calibration: list[Row] = [
            [row[name] for name in _CALIBRATION_COLUMNS] for row in evaluation.multiallelic_calibration
        ]
        title = "Calibration of the most likely genotypes"
        parts.append(table(list(_CALIBRATION_COLUMNS.values()), calibration, title))
    return [Section("Multi-allelic records", parts)]


def _by_sample(evaluation: Evaluation) -> Section:
    rows = sorted(
        evaluation.by_sample, key=lambda row: (row["pooled_r2"] == row["pooled_r2"], row["pooled_r2"])
    )
    columns = {"sample": "sample"} | {
        name: _FREQUENCY_COLUMNS[name] for name in ("pooled_r2", "nrc", "genotypes")
    }
    r2 = [row["pooled_r2"] for row in rows]
    text = "Number of samples by pooled r²."
    return Section("Accuracy by sample", samples_table(rows, columns, r2, "pooled r²", text, "Samples"))


def _not_scored(evaluation: Evaluation) -> Section:
    body: list[Row] = [[reason, count] for reason, count in evaluation.left_out.items()]
    body += [
        ["genotypes unknown in the truth", evaluation.unknown_genotypes],
        [
            "genotypes missing in the imputed file: scored with the panel's frequency",
            evaluation.missing_genotypes,
        ],
        ["samples only in the truth", len(evaluation.truth_only_samples)],
        ["samples only in the imputed file", len(evaluation.imputed_only_samples)],
    ]
    return Section("What was not scored", [table(["", "number"], body, "Sites, genotypes, samples")])
