"""The result of an evaluation: tables, counts, and r2 against allele frequency as curves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from spinimpute.quality.metrics import bin_labels, curve

BASELINE = "allele-frequency"
IMPUTED = "imputed"
MOST_REGIONS = 3  # that a title names


@dataclass(frozen=True)
class AccuracyCurves:
    """r2 by minor allele frequency, a curve for each imputer and measure; the one source of all drawings.

    Attributes
    ----------
    bins : list of str
        Labels of the bins that hold sites, by increasing frequency.
    sites : list of int
        Sites of each bin.
    r2 : dict
        "pooled_r2" or "mean_r2" -> imputer, in the order of the table -> r2 of each bin, NaN where it is
        undefined.
    """

    bins: list[str]
    sites: list[int]
    r2: dict[str, dict[str, list[float]]]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `evaluate`.

    Attributes
    ----------
    by_frequency : DataFrame
        A row for each imputer (BASELINE and IMPUTED) and bin of minor allele frequency in the panel: imputer,
        bin, sites, pooled_r2, mean_r2, nrc (minor-allele concordance), missing_sites, genotypes.
    by_sample : DataFrame
        A row for each sample: sample, pooled_r2, nrc and genotypes of the imputed file, all scored sites.
    calibration : DataFrame or None
        Reliability of the genotype probabilities (minor_alleles, bin, predictions, mean_predicted, observed,
        calibration_error); None where the imputed file has no GP.
    scored_sites : int
        Sites that are scored.
    missing_sites : int
        Scored sites that the imputed file lacks: they count as the panel's frequency.
    missing_genotypes : int
        Missing values within imputed sites: they too count as the panel's frequency.
    unknown_genotypes : int
        Genotypes missing in the truth at scored sites: they are not scored.
    samples : list of str
        Compared samples, in the order of the truth.
    truth_only_samples, imputed_only_samples : list of str
        Samples that only one of the two files has; none where samples were chosen.
    samples_in_panel : list of str
        Compared samples whose names are in the panel, too: their scores mean little.
    left_out : dict of str to int
        Reason -> sites that are not scored.
    fields_used : tuple of str
        The fields of DS, HDS, GP and GT that dosages were read from.
    regions : list of str
        Where sites were compared, such as "20:1-1000"; empty for everywhere.
    """

    by_frequency: pd.DataFrame
    by_sample: pd.DataFrame
    calibration: pd.DataFrame | None
    scored_sites: int
    missing_sites: int
    missing_genotypes: int
    unknown_genotypes: int
    samples: list[str]
    truth_only_samples: list[str]
    imputed_only_samples: list[str]
    samples_in_panel: list[str]
    left_out: dict[str, int] = field(default_factory=dict)
    fields_used: tuple[str, ...] = ()
    regions: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        said = f"{len(self.samples)} samples, {self.scored_sites:,} sites scored{self.where()}"
        return f"<Evaluation: {said}>\n{self.by_frequency.to_string(index=False)}"

    def where(self) -> str:
        """The regions to follow in a title; empty for everywhere."""
        if len(self.regions) > MOST_REGIONS:
            return f", {len(self.regions)} regions"
        return "".join(f", {region}" for region in self.regions)

    def accuracy_curves(self) -> AccuracyCurves:
        """The table by frequency as curves."""
        rows = self.by_frequency.to_dict("records")
        bins = bin_labels(rows)
        of_imputer = {
            str(imputer): [row for row in rows if row["imputer"] == imputer]
            for imputer in dict.fromkeys(row["imputer"] for row in rows)
        }
        sites = {row["bin"]: int(row["sites"]) for row in rows}
        r2 = {
            measure: {imputer: curve(own, bins, measure) for imputer, own in of_imputer.items()}
            for measure in ("pooled_r2", "mean_r2")
        }
        return AccuracyCurves(bins, [sites[label] for label in bins], r2)
