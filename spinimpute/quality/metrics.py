"""Accuracy of dosages and calibration of genotype probabilities, compared with true genotypes.

Dosages are counted in copies of the panel's minor allele (`minor_allele_dosage`). Otherwise a bin would mix
sites
with a rare ALT and sites with a common ALT, and a predictor that knows only allele frequencies would seem to
explain most of the variance.

Each site is first reduced to a few sums (`site_statistics`), from which tables are made: memory depends on
the number of sites, not on sites times samples.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

DEFAULT_BINS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.5)
DEFAULT_PROBABILITY_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

SITE_STATISTICS = np.dtype(
    [
        ("genotypes", "i8"),  # known true genotypes
        ("mean_true", "f8"),
        ("mean_dosage", "f8"),
        ("square_true", "f8"),  # sum of squares about the site's own mean
        ("square_dosage", "f8"),
        ("product", "f8"),  # sum of products about the site's own means
        ("carriers", "i8"),  # genotypes with a minor allele in the truth or in the best guess
        ("concordant", "i8"),  # carriers whose best guess is right
    ]
)

# frequencies are ratios of counts: keeps a site on its side of a bin's edge despite rounding
EDGE_TOLERANCE = 1e-9
CONSTANT_DEVIATION = 1e-7


def minor_allele_dosage(
    dosage: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Turn dosages of ALT (n_sites, n_samples) to the panel's minor allele; also its frequency (n_sites,).

    `frequency` is that of ALT in the panel; ALT is the minor allele at 0.5. `ploidy` is a number, or of each
    sample or genotype. NaN stays NaN.
    """
    alt_is_major = frequency > 0.5
    minor = np.where(alt_is_major[:, None], np.asarray(ploidy, dtype=dosage.dtype) - dosage, dosage)
    return minor, np.minimum(frequency, 1 - frequency)


def minor_allele_probabilities(
    probability: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> np.ndarray:
    """Probabilities of 0, 1, 2 copies of the panel's minor allele from those of ALT, (n_sites, n_samples, 3).

    With one allele the third probability is ignored, and NaN in the result. Other arguments are those of
    `minor_allele_dosage`.
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
    """Reduce each site to the sums from which every accuracy is computed: SITE_STATISTICS (n_sites,).

    `true` are minor allele counts (n_sites, n_samples); genotypes with NaN do not count. `dosage` must not be
    NaN where `true` is known.
    """
    known = ~np.isnan(true)
    n = known.sum(1)
    t = np.where(known, true, 0).astype(np.float64)
    d = np.where(known, dosage, 0).astype(np.float64)
    best = np.rint(d)
    carrier = known & ((t > 0) | (best > 0))

    out = np.zeros(len(true), dtype=SITE_STATISTICS)
    at_least_one = np.maximum(n, 1)
    out["genotypes"] = n
    out["mean_true"] = t.sum(1) / at_least_one
    out["mean_dosage"] = d.sum(1) / at_least_one
    out["carriers"] = carrier.sum(1)
    out["concordant"] = (carrier & (best == t)).sum(1)
    t = np.where(known, t - out["mean_true"][:, None], 0)
    d = np.where(known, d - out["mean_dosage"][:, None], 0)
    out["square_true"] = np.einsum("ij,ij->i", t, t)
    out["square_dosage"] = np.einsum("ij,ij->i", d, d)
    out["product"] = np.einsum("ij,ij->i", t, d)
    return out


def pooled_r2(statistics: np.ndarray) -> float:
    """Squared correlation over all genotypes of all sites; NaN where truth or dosage is constant."""
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


def mean_variant_r2(statistics: np.ndarray) -> float:
    """Mean squared correlation within a site over the sites that vary in the truth; NaN without such a site.

    A site with a constant dosage counts as 0.
    """
    varies = statistics[statistics["square_true"] > 1e-9]
    if len(varies) == 0:
        return float("nan")
    squares = varies["square_true"] * varies["square_dosage"]
    return float((varies["product"] ** 2 / np.maximum(squares, 1e-12)).mean())


def minor_concordance(statistics: np.ndarray) -> float:
    """Share of carriers whose best-guess genotype is right; NaN without a carrier.

    A carrier is a genotype with a minor allele in the truth or in the best guess. Other homozygotes, most of
    which are trivially right, do not count.
    """
    carriers = statistics["carriers"].sum()
    return float(statistics["concordant"].sum() / carriers) if carriers else float("nan")


class FrequencyBin(NamedTuple):
    """A bin of minor allele frequencies (low, high], with its label in tables."""

    low: float
    high: float
    label: str

    def contains(self, minor_frequency: np.ndarray) -> np.ndarray:
        """Whether each minor allele frequency is in the bin: bool of the same shape."""
        return (minor_frequency > self.low + EDGE_TOLERANCE) & (minor_frequency <= self.high + EDGE_TOLERANCE)


ALL_FREQUENCIES = FrequencyBin(0.0, 0.5, "all")


def frequency_bins(edges: Sequence[float] = DEFAULT_BINS) -> list[FrequencyBin]:
    """The bins between increasing edges of minor allele frequency, from 0 to 0.5 at most."""
    return [FrequencyBin(low, high, f"({low:g},{high:g}]") for low, high in pairwise(edges)]


def frequency_rows(
    imputer: str,
    statistics: np.ndarray,
    minor_frequency: np.ndarray,
    missing: np.ndarray,
    bins: Sequence[float] = DEFAULT_BINS,
) -> list[dict[str, Any]]:
    """Rows of an imputer's accuracy over all sites and in each bin with sites.

    `minor_frequency` is that of each site in the panel, `missing` marks sites that were not imputed (bool).
    Columns: imputer, bin, sites, pooled_r2, mean_r2, nrc (minor-allele concordance), missing_sites,
    genotypes.
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


def bin_labels(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Labels of the bins in rows of `frequency_rows`, in order, without the one of all sites."""
    return [label for label in dict.fromkeys(row["bin"] for row in rows) if label != ALL_FREQUENCIES.label]


def curve(rows: Sequence[Mapping[Any, Any]], labels: Sequence[str], measure: str) -> list[float]:
    """Values of a column in rows of one imputer (`frequency_rows`), by label of bin; NaN without a row."""
    value_of = {row["bin"]: row[measure] for row in rows}
    return [value_of.get(label, float("nan")) for label in labels]


class GenotypeCalibration:
    """Calibration of genotype probabilities: the share of true genotypes among those of probability p.

    Each of a genotype's probabilities (0, 1, 2 copies of the minor allele) is one prediction, true or false.
    `edges` are the increasing edges of bins of probability, [low, high), the last one [low, 1].
    """

    GENOTYPES = ("0", "1", "2")

    def __init__(self, edges: Sequence[float] = DEFAULT_PROBABILITY_EDGES) -> None:
        self.edges = np.asarray(edges, dtype=np.float64)
        shape = (len(self.GENOTYPES), len(self.edges) - 1)
        self.count = np.zeros(shape, dtype=np.int64)
        self.sum_predicted = np.zeros(shape)
        self.sum_observed = np.zeros(shape)

    def add(self, true: np.ndarray, probability: np.ndarray) -> None:
        """Count genotypes, from minor allele counts and the probabilities of 0, 1, 2 copies (last axis).

        NaN does not count.
        """
        n_bins = len(self.edges) - 1
        for copies in range(len(self.GENOTYPES)):
            p = probability[:, :, copies]
            usable = ~np.isnan(true) & ~np.isnan(p)
            predicted = p[usable].astype(np.float64)
            observed = true[usable] == copies
            # keeps float32 probabilities such as 0.01 on the edge, not just below it
            bin_index = np.searchsorted(self.edges[1:-1], predicted + 1e-7, side="right")
            self.count[copies] += np.bincount(bin_index, minlength=n_bins)
            self.sum_predicted[copies] += np.bincount(bin_index, weights=predicted, minlength=n_bins)
            self.sum_observed[copies] += np.bincount(bin_index, weights=observed, minlength=n_bins)

    def rows(self) -> list[dict[str, Any]]:
        """The calibration table: for "any" and each number of copies, a row of all bins and of each used bin.

        Columns: minor_alleles, bin, predictions, mean_predicted, observed, calibration_error. In the row of
        bin "all" the last is the expected calibration error: |mean_predicted - observed| weighted by
        predictions.
        """
        groups = [("any", self.count.sum(0), self.sum_predicted.sum(0), self.sum_observed.sum(0))]
        groups += [
            (name, self.count[i], self.sum_predicted[i], self.sum_observed[i])
            for i, name in enumerate(self.GENOTYPES)
        ]
        rows: list[dict[str, Any]] = []
        for name, count, predicted, observed in groups:
            total = count.sum()
            if total == 0:
                continue
            error = float(np.abs(predicted - observed).sum() / total)
            rows.append(_calibration_row(name, "all", int(total), predicted.sum(), observed.sum(), error))
            for i in np.flatnonzero(count):
                last = i == len(count) - 1
                label = f"[{self.edges[i]:g},{self.edges[i + 1]:g}{']' if last else ')'}"
                error = float(abs(predicted[i] - observed[i]) / count[i])
                rows.append(_calibration_row(name, label, int(count[i]), predicted[i], observed[i], error))
        return rows


def _calibration_row(
    minor_alleles: str, label: str, count: int, predicted: float, observed: float, error: float
) -> dict[str, Any]:
    return {
        "minor_alleles": minor_alleles,
        "bin": label,
        "predictions": count,
        "mean_predicted": float(predicted / count),
        "observed": float(observed / count),
        "calibration_error": error,
    }
