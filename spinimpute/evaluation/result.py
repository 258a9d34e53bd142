"""The result of `evaluate`: tables and counts, and a summary table for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from spinimpute.quality.metrics import bin_labels, curve, percent
from spinimpute.runtime.errors import InputError, argument

BASELINE = "allele-frequency"
IMPUTED = "imputed"
MAX_LISTED_REGIONS = 3  # a title lists up to this many regions, or else their number


class AccuracyCurves(NamedTuple):
    """r2 by minor allele frequency, for the plot and the report. Bins without sites are omitted."""

    bins: list[str]  # labels of the bins, by increasing frequency
    sites: list[int]  # number of sites of each bin
    # "pooled_r2" or "mean_r2" -> imputer -> r2 of each bin, NaN where r2 is undefined
    r2: dict[str, dict[str, list[float]]]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `evaluate`. A table is a list of rows, which `pandas.DataFrame` accepts."""

    # A row for each imputer (BASELINE and IMPUTED) and each bin of minor allele frequency in the panel.
    # Columns: imputer, bin, sites, pooled_r2, mean_r2, nrc (minor-allele concordance), missing_sites,
    # genotypes.
    by_frequency: list[dict[str, Any]]
    # A row for each class of minor allele frequency, without sites whose true genotypes do not vary. Columns:
    # bin, sites, good (number of sites with an r2 of at least 0.8).
    good_sites: list[dict[str, Any]]
    # A row for each sample, over all scored sites. Columns: sample, pooled_r2, nrc, genotypes.
    by_sample: list[dict[str, Any]]
    # calibration of the genotype probabilities (minor_alleles, bin, predictions, mean_predicted, observed,
    # calibration_error); None if the imputed file has no GP
    calibration: list[dict[str, Any]] | None
    scored_sites: int
    # scored sites that the imputed file lacks; they are scored with the panel's frequency as the dosage
    missing_sites: int
    # missing genotypes at the other scored sites; they are scored with the panel's frequency, too
    missing_genotypes: int
    unknown_genotypes: int  # genotypes that are missing in the truth; they are not scored
    samples: list[str]  # compared samples, in the order of the truth
    truth_only_samples: list[str]  # samples only in the truth; empty if the caller selected samples
    imputed_only_samples: list[str]  # samples only in the imputed file; empty if the caller selected samples
    # compared samples that have the name of a panel sample; if it is the same person, the scores are too high
    samples_in_panel: list[str]
    left_out: dict[str, int] = field(default_factory=dict)  # reason -> number of sites that are not scored
    fields_used: tuple[str, ...] = ()  # those of DS, HDS, GP and GT from which dosages were read
    # Whole genotypes of multi-allelic records, a row for each bin of frequency, see
    # `whole_genotypes.WholeGenotypes.frequency_rows`; None if there are no such records.
    multiallelic: list[dict[str, Any]] | None = None
    # calibration of the probabilities of their most likely genotypes (bin, predictions, mean_predicted,
    # observed, calibration_error); None without GP
    multiallelic_calibration: list[dict[str, Any]] | None = None
    # the compared regions, such as "20:1-1000"; empty if everything was compared
    regions: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        text = StringIO()
        Console(file=text, width=100, force_terminal=False, no_color=True).print(summary_table(self))
        return text.getvalue().rstrip("\n")

    def where(self) -> str:
        """Return text about the compared regions, to append to a title; "" if everything was compared."""
        if len(self.regions) > MAX_LISTED_REGIONS:
            return f", {len(self.regions)} regions"
        return "".join(f", {region}" for region in self.regions)

    def accuracy_curves(self) -> AccuracyCurves:
        """Return the r2 columns of `by_frequency` as curves."""
        rows = self.by_frequency
        bins = bin_labels(rows)
        rows_of = {
            str(imputer): [row for row in rows if row["imputer"] == imputer]
            for imputer in dict.fromkeys(row["imputer"] for row in rows)
        }
        sites = {row["bin"]: int(row["sites"]) for row in rows}
        r2 = {
            measure: {
                imputer: curve(imputer_rows, bins, measure) for imputer, imputer_rows in rows_of.items()
            }
            for measure in ("pooled_r2", "mean_r2")
        }
        return AccuracyCurves(bins, [sites[label] for label in bins], r2)


def check_bins(bins: Sequence[float], highest: float = 0.5) -> None:
    """Raise InputError unless there are two or more increasing bounds between 0 and `highest`."""
    ordered = all(low < high for low, high in pairwise(bins))
    if len(bins) < 2 or not ordered or bins[0] < 0 or bins[-1] > highest:
        raise InputError(
            "argument",
            f"{argument('bins')}: give two or more increasing frequencies between 0 and {highest:g}, got "
            f"{', '.join(f'{edge:g}' for edge in bins) or 'none'}",
        )


def summary_table(evaluation: Evaluation) -> Table:
    """Return the table for the terminal: accuracy by frequency, with the pooled r² of the baseline."""
    baseline, imputed = (
        [row for row in evaluation.by_frequency if row["imputer"] == name] for name in (BASELINE, IMPUTED)
    )
    table = Table(
        title=f"{evaluation.scored_sites:,} sites, {len(evaluation.samples):,} samples{evaluation.where()}",
        caption=_caption(evaluation),
        caption_justify="left",
    )
    table.add_column("\nMAF", no_wrap=True)
    for name in ("\nsites", "baseline\nr²", "pooled\nr²", "mean\nr²", "\nconcordance", "missing\nsites"):
        table.add_column(name, justify="right", no_wrap=True)
    for baseline_row, row in zip(baseline, imputed, strict=True):
        table.add_row(
            percent(row["bin"]),
            f"{row['sites']:,}",
            _number(baseline_row["pooled_r2"]),
            *(_number(row[measure]) for measure in ("pooled_r2", "mean_r2", "nrc")),
            f"{row['missing_sites']:,}",
        )
    return table


def _number(number: float) -> str:
    return "–" if np.isnan(number) else f"{number:.4f}"


def _caption(evaluation: Evaluation) -> str:
    """Return lines about missing sites, genotypes and samples, and the calibration of the probabilities."""
    lines = []
    if evaluation.missing_sites:
        lines.append(f"{evaluation.missing_sites:,} sites not imputed: scored with the panel's frequency")
    if evaluation.missing_genotypes:
        lines.append(f"{evaluation.missing_genotypes:,} missing dosages: scored with the panel's frequency")
    if evaluation.unknown_genotypes:
        lines.append(f"{evaluation.unknown_genotypes:,} genotypes unknown in the truth: not scored")
    if evaluation.truth_only_samples:
        lines.append(f"{len(evaluation.truth_only_samples):,} samples of the truth are not imputed")
    if evaluation.samples_in_panel:
        n = len(evaluation.samples_in_panel)
        lines.append(f"{n:,} samples are also in the panel: do not trust these scores")
    if evaluation.calibration is not None:
        overall = next(
            row for row in evaluation.calibration if (row["minor_alleles"], row["bin"]) == ("any", "all")
        )
        lines.append(f"calibration error of GP: {overall['calibration_error']:.5f}")
    if evaluation.multiallelic is not None:
        row = evaluation.multiallelic[0]
        share = _number(row["concordance"])
        lines.append(f"{row['records']:,} multi-allelic records: {share} of the genotypes are right")
    return "\n".join(lines)
