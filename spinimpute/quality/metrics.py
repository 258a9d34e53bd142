"""Metrics that compare imputed dosages and genotype probabilities with true genotypes.

`evaluate` and the leave-one-out tables use them.

Dosages are first counted in copies of the panel's minor allele (`minor_allele_dosage`). If copies of
ALT were counted, a frequency bin would mix sites with a rare ALT and sites with a common ALT. Allele
frequencies alone would then explain most of the variance in the bin, and every method would seem accurate.

Each site is reduced to a few sums (`site_statistics`), from which all tables are computed, to save memory.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

DEFAULT_BINS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.5)
FREQUENCY_CLASSES = (0.0, 0.01, 0.05, 0.5)  # bounds of rare, low-frequency and common sites
GOOD_R2 = 0.8  # sites with this r2 or a higher one count as well imputed
DEFAULT_PROBABILITY_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

SITE_STATISTICS = np.dtype(
    [
        ("genotypes", "i8"),  # number of known true genotypes
        ("mean_true", "f8"),
        ("mean_dosage", "f8"),
        ("square_true", "f8"),  # sum of squared deviations of the truth from its mean at the site
        ("square_dosage", "f8"),  # sum of squared deviations of the dosage from its mean at the site
        ("product", "f8"),  # sum of products of the two deviations
        ("compared", "i8"),  # number of genotypes with a minor allele in the truth or in the rounded dosage
        ("concordant", "i8"),  # number of these genotypes whose rounded dosage equals the truth
    ]
)

# Tolerance for frequencies that equal the edge of a bin except for rounding errors.
EDGE_TOLERANCE = 1e-9
CONSTANT_DEVIATION = 1e-7  # genotypes or dosages with a smaller standard deviation count as constant


def minor_allele_dosage(
    dosage: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Return dosages of the panel's minor allele (n_sites, n_samples), and its frequency (n_sites,).

    `dosage` counts ALT alleles, and `frequency` is the ALT frequency in the panel. At frequency 0.5, ALT is
    the minor allele. `ploidy` is a number, or an array that broadcasts to (n_sites, n_samples). NaN stays
    NaN.
    """
    alt_is_major = frequency > 0.5
    minor = np.where(alt_is_major[:, None], np.asarray(ploidy, dtype=dosage.dtype) - dosage, dosage)
    return minor, np.minimum(frequency, 1 - frequency)


def minor_allele_probabilities(
    probability: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> np.ndarray:
    """Return the probabilities of 0, 1 and 2 copies of the panel's minor allele (n_sites, n_samples, 3).

    `probability` (n_sites, n_samples, 3) is the probability of 0, 1 and 2 copies of ALT. For haploid
    genotypes its third value is ignored, and the third value of the result is NaN. Other parameters are those
    of `minor_allele_dosage`.
    """
    haploid = np.broadcast_to(np.asarray(ploidy) == 1, probability.shape[:2])
    out = probability.copy()
    alt_is_major = frequency > 0.5
    out[alt_is_major] = out[alt_is_major][:, :, ::-1]
    one_copy = np.where(alt_is_major[:, None, None], probability[:, :, 1::-1], probability[:, :, :2])
    out[haploid, :2] = one_copy[haploid]
    out[haploid, 2] = np.nan
    return out


def site_statistics(true: np.ndarray, dosage: np.ndarray) -> np.ndarray:
    """Return the sums of each site from which all metrics are computed, SITE_STATISTICS (n_sites,).

    `true` (n_sites, n_samples) counts minor alleles; NaN marks unknown genotypes, which are skipped. `dosage`
    must not be NaN where `true` is known.
    """
    known = ~np.isnan(true)
    n = known.sum(1)
    t = np.where(known, true, 0).astype(np.float64)
    d = np.where(known, dosage, 0).astype(np.float64)
    best = np.rint(d)
    compared = known & ((t > 0) | (best > 0))

    out = np.zeros(len(true), dtype=SITE_STATISTICS)
    at_least_one = np.maximum(n, 1)
    out["genotypes"] = n
    out["mean_true"] = t.sum(1) / at_least_one
    out["mean_dosage"] = d.sum(1) / at_least_one
    out["compared"] = compared.sum(1)
    out["concordant"] = (compared & (best == t)).sum(1)
    t = np.where(known, t - out["mean_true"][:, None], 0)
    d = np.where(known, d - out["mean_dosage"][:, None], 0)
    out["square_true"] = np.einsum("ij,ij->i", t, t)
    out["square_dosage"] = np.einsum("ij,ij->i", d, d)
    out["product"] = np.einsum("ij,ij->i", t, d)
    return out


def pooled_r2(statistics: np.ndarray) -> float:
    """Return the squared correlation over all genotypes of all sites; NaN if truth or dosage is constant."""
    n = statistics["genotypes"]
    total = n.sum()
    if total == 0:
        return float("nan")
    true_offset = statistics["mean_true"] - (n * statistics["mean_true"]).sum() / total
    dosage_offset = statistics["mean_dosage"] - (n * statistics["mean_dosage"]).sum() / total
    square_true = statistics["square_true"].sum() + (n * true_offset**2).sum()
    square_dosage = statistics["square_dosage"].sum() + (n * dosage_offset**2).sum()
    product = statistics["product"].sum() + (n * true_offset * dosage_offset).sum()
    if min(square_true, square_dosage) < total * CONSTANT_DEVIATION**2:
        return float("nan")
    return float(product**2 / (square_true * square_dosage))


def variant_r2(statistics: np.ndarray) -> np.ndarray:
    """Return the squared correlation within each site whose true genotypes vary, float64 (n_varying,).

    It is 0 if the dosage is constant.
    """
    varies = statistics[statistics["square_true"] > 1e-9]
    squares = varies["square_true"] * varies["square_dosage"]
    return np.asarray(varies["product"] ** 2 / np.maximum(squares, 1e-12))


def mean_variant_r2(statistics: np.ndarray) -> float:
    """Return the mean of `variant_r2`; NaN if no site varies."""
    r2 = variant_r2(statistics)
    return float(r2.mean()) if len(r2) else float("nan")


def minor_concordance(statistics: np.ndarray) -> float:
    """Return the share of compared genotypes whose rounded dosage is right; NaN without any.

    Genotypes with a minor allele in the truth or in the rounded dosage are compared. The others do not count,
    because nearly all of them are right at rare sites, whatever the method.
    """
    compared = statistics["compared"].sum()
    return float(statistics["concordant"].sum() / compared) if compared else float("nan")


class FrequencyBin(NamedTuple):
    """A bin of minor allele frequencies (low, high], with the label that it has in tables."""

    low: float
    high: float
    label: str

    def contains(self, minor_frequency: np.ndarray) -> np.ndarray:
        """Return whether each minor allele frequency is in the bin, bool, in the shape of the argument."""
        return (minor_frequency > self.low + EDGE_TOLERANCE) & (minor_frequency <= self.high + EDGE_TOLERANCE)


ALL_FREQUENCIES = FrequencyBin(0.0, 0.5, "all")


def frequency_bins(edges: Sequence[float] = DEFAULT_BINS) -> list[FrequencyBin]:
    """Return the bins between neighbouring edges. The edges increase and lie in 0 to 0.5."""
    return [FrequencyBin(low, high, f"({low:g},{high:g}]") for low, high in pairwise(edges)]


def percent(label: str) -> str:
    """Convert the label of a frequency bin to percent: "(0.001,0.002]" becomes "0.1–0.2 %", "all" stays."""
    if label == ALL_FREQUENCIES.label:
        return label
    low, high = (100 * float(edge) for edge in label.strip("(]").split(","))
    return f"{low:g}–{high:g} %" if low else f"≤ {high:g} %"


def frequency_rows(
    imputer: str,
    statistics: np.ndarray,
    minor_frequency: np.ndarray,
    missing: np.ndarray,
    bins: Sequence[float] = DEFAULT_BINS,
) -> list[dict[str, Any]]:
    """Return the accuracy of an imputer: a row for all sites, and one for each bin that contains sites.

    `minor_frequency` is the minor allele frequency of each site in the panel; sites with 0 are in no row.
    `missing` (bool) marks the sites that were not imputed. Columns: imputer, bin, sites, pooled_r2, mean_r2,
    nrc (minor-allele concordance), missing_sites, genotypes.
    """
    rows: list[dict[str, Any]] = []
    for one in (ALL_FREQUENCIES, *frequency_bins(bins)):
        chosen = one.contains(minor_frequency)
        if not chosen.any():
            continue
        in_bin = statistics[chosen]
        rows.append(
            {
                "imputer": imputer,
                "bin": one.label,
                "sites": int(chosen.sum()),
                "pooled_r2": pooled_r2(in_bin),
                "mean_r2": mean_variant_r2(in_bin),
                "nrc": minor_concordance(in_bin),
                "missing_sites": int(missing[chosen].sum()),
                "genotypes": int(in_bin["genotypes"].sum()),
            }
        )
    return rows


def count_good_sites(statistics: np.ndarray, minor_frequency: np.ndarray) -> list[dict[str, Any]]:
    """Return the number of sites with an r2 of at least GOOD_R2, a row for each class of frequency.

    Classes without a site whose true genotypes vary are left out. Columns: bin, sites (number of sites whose
    true genotypes vary), good. `minor_frequency` is the minor allele frequency of each site in the panel.
    """
    rows = []
    for one in frequency_bins(FREQUENCY_CLASSES):
        r2 = variant_r2(statistics[one.contains(minor_frequency)])
        if len(r2):
            rows.append({"bin": one.label, "sites": len(r2), "good": int((r2 >= GOOD_R2).sum())})
    return rows


def bin_labels(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Return the labels of the bins in rows of `frequency_rows`, in order, without the row of all sites."""
    return [label for label in dict.fromkeys(row["bin"] for row in rows) if label != ALL_FREQUENCIES.label]


def curve(rows: Sequence[Mapping[Any, Any]], labels: Sequence[str], measure: str) -> list[float]:
    """Return the value of column `measure` for each bin label; NaN if no row has the label.

    `rows` are the `frequency_rows` of one imputer.
    """
    value_of = {row["bin"]: row[measure] for row in rows}
    return [value_of.get(label, float("nan")) for label in labels]


class ProbabilityBins:
    """Calibration of probabilities: how often does a prediction with probability p come true?

    Predictions are grouped into bins of probability [low, high), with increasing `edges`. The last bin
    includes its upper edge, 1.
    """

    def __init__(self, edges: Sequence[float] = DEFAULT_PROBABILITY_EDGES) -> None:
        self.edges = np.asarray(edges, dtype=np.float64)
        n_bins = len(self.edges) - 1
        self.count = np.zeros(n_bins, dtype=np.int64)
        self.sum_predicted = np.zeros(n_bins)
        self.sum_observed = np.zeros(n_bins)

    def add(self, probability: np.ndarray, observed: np.ndarray) -> None:
        """Add predictions (n,), and whether they came true, bool (n,)."""
        n_bins = len(self.count)
        predicted = np.asarray(probability, dtype=np.float64)
        # float32 probabilities such as 0.01 may be just below the edge of a bin: 1e-7 lifts them over it
        bin_index = np.searchsorted(self.edges[1:-1], predicted + 1e-7, side="right")
        self.count += np.bincount(bin_index, minlength=n_bins)
        self.sum_predicted += np.bincount(bin_index, weights=predicted, minlength=n_bins)
        self.sum_observed += np.bincount(bin_index, weights=observed, minlength=n_bins)

    def merge(self, other: "ProbabilityBins") -> None:
        """Add the predictions of other bins with the same edges."""
        self.count += other.count
        self.sum_predicted += other.sum_predicted
        self.sum_observed += other.sum_observed

    def rows(self) -> list[dict[str, Any]]:
        """Return the calibration table: a row for all predictions ("all"), and one for each bin with any.

        Columns: bin, predictions, mean_predicted, observed, calibration_error. The calibration_error is
        |mean_predicted - observed|. For "all", it is the mean of the bins' errors, weighted by their
        predictions.
        """
        filled = np.flatnonzero(self.count)
        if not len(filled):
            return []
        error = np.abs(self.sum_predicted - self.sum_observed)
        last = len(self.count) - 1
        rows = [
            _calibration_row(
                "all", self.count.sum(), self.sum_predicted.sum(), self.sum_observed.sum(), error.sum()
            )
        ]
        for i in filled:
            label = f"[{self.edges[i]:g},{self.edges[i + 1]:g}{']' if i == last else ')'}"
            rows.append(
                _calibration_row(label, self.count[i], self.sum_predicted[i], self.sum_observed[i], error[i])
            )
        return rows


def _calibration_row(
    label: str, count: int, predicted: float, observed: float, error: float
) -> dict[str, Any]:
    return {
        "bin": label,
        "predictions": int(count),
        "mean_predicted": float(predicted / count),
        "observed": float(observed / count),
        "calibration_error": float(error / count),
    }


class GenotypeCalibration:
    """Calibration of genotype probabilities: how often is a genotype with probability p the true one?

    The probabilities of 0, 1 and 2 copies of the minor allele are three separate predictions, each of which
    is true or false. See `ProbabilityBins` for `edges`.
    """

    GENOTYPES = ("0", "1", "2")

    def __init__(self, edges: Sequence[float] = DEFAULT_PROBABILITY_EDGES) -> None:
        self._edges = edges
        self._bins = [ProbabilityBins(edges) for _ in self.GENOTYPES]

    def add(self, true: np.ndarray, probability: np.ndarray) -> None:
        """Add genotypes: minor allele counts (n_sites, n_samples), and probabilities of 0, 1 and 2 copies.

        `probability` is (n_sites, n_samples, 3). Values that are NaN in either are skipped.
        """
        for copies, bins in enumerate(self._bins):
            p = probability[:, :, copies]
            usable = ~np.isnan(true) & ~np.isnan(p)
            bins.add(p[usable], true[usable] == copies)

    def rows(self) -> list[dict[str, Any]]:
        """Return the calibration table.

        There is a group of rows for each number of minor alleles ("0", "1", "2") and for all together
        ("any"), in the column minor_alleles. `ProbabilityBins.rows` explains the other columns.
        """
        together = ProbabilityBins(self._edges)
        for bins in self._bins:
            together.merge(bins)
        groups = zip(("any", *self.GENOTYPES), (together, *self._bins), strict=True)
        return [{"minor_alleles": name} | row for name, bins in groups for row in bins.rows()]
