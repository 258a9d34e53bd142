"""Agreement of dosages and genotype probabilities with true genotypes: numpy only, no files.

Every function takes dosages that were already turned to the panel's minor allele (`turn_to_minor`).
Without that, a bin mixes sites whose ALT is rare with sites whose ALT is common, and a predictor that knows
nothing but allele frequencies seems to explain most of the variance.

Each site is first reduced to a few sums (`site_statistics`), and tables are made from those: memory depends
on the number of sites, not on sites times samples.
"""

from __future__ import annotations

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

# Frequencies are ratios of counts: this keeps a site on its side of a bin's edge despite rounding.
EDGE_TOLERANCE = 1e-9
CONSTANT_DEVIATION = 1e-7


def turn_to_minor(
    dosage: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the panel's minor allele from counts of ALT.

    Parameters
    ----------
    dosage : (n_sites, n_samples)
        ALT count or dosage; NaN stays NaN.
    frequency : (n_sites,)
        ALT frequency in the panel; ALT is the minor allele at 0.5 exactly.
    ploidy : (n_sites, n_samples), (n_samples,) or int
        Alleles of each genotype or sample, or one number for all.

    Returns
    -------
    (n_sites, n_samples)
        The turned dosage, of the same type.
    (n_sites,)
        Minor allele frequency.
    """
    turned = frequency > 0.5
    minor = np.where(turned[:, None], np.asarray(ploidy, dtype=dosage.dtype) - dosage, dosage)
    return minor, np.minimum(frequency, 1 - frequency)


def turn_probabilities_to_minor(
    probability: np.ndarray, frequency: np.ndarray, ploidy: np.ndarray | int = 2
) -> np.ndarray:
    """Probabilities of 0, 1, 2 copies of the panel's minor allele from those of ALT.

    Parameters
    ----------
    probability : (n_sites, n_samples, 3)
        The third is ignored where there is one allele.
    frequency : (n_sites,)
        ALT frequency in the panel.
    ploidy : (n_sites, n_samples), (n_samples,) or int
        1 or 2 for each genotype or sample, or one number for all.

    Returns
    -------
    (n_sites, n_samples, 3)
        NaN as the third probability where there is one allele.
    """
    haploid = np.broadcast_to(np.asarray(ploidy) == 1, probability.shape[:2])
    out = probability.copy()
    turned = frequency > 0.5
    out[turned] = out[turned][:, :, ::-1]
    one_copy = np.where(turned[:, None, None], probability[:, :, 1::-1], probability[:, :, :2])
    out[haploid, :2] = one_copy[haploid]
    out[haploid, 2] = np.nan
    return out


def site_statistics(true: np.ndarray, dosage: np.ndarray) -> np.ndarray:
    """Reduce each site to the sums from which every accuracy follows.

    Parameters
    ----------
    true : (n_sites, n_samples)
        Minor allele counts; NaN where the truth is unknown: the genotype does not count.
    dosage : (n_sites, n_samples)
        Predicted minor allele dosages, no NaN where `true` is known.

    Returns
    -------
    SITE_STATISTICS (n_sites,)
        Sums of each site over its known genotypes.
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
    """Squared correlation over all genotypes of all given sites; NaN where truth or dosage is constant.

    Parameters
    ----------
    statistics : SITE_STATISTICS (n_sites,)
        Of each site, see `site_statistics`.
    """
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
    """Mean over sites of the squared correlation within the site; NaN where no site varies in the truth.

    Only sites that vary in the truth count; one of them whose dosage is constant counts as 0.

    Parameters
    ----------
    statistics : SITE_STATISTICS (n_sites,)
        Of each site, see `site_statistics`.
    """
    varies = statistics[statistics["square_true"] > 1e-9]
    if len(varies) == 0:
        return float("nan")
    squares = varies["square_true"] * varies["square_dosage"]
    return float((varies["product"] ** 2 / np.maximum(squares, 1e-12)).mean())


def minor_concordance(statistics: np.ndarray) -> float:
    """Part of the carriers whose best-guess genotype is right; NaN where there is no carrier.

    A carrier is a genotype with a minor allele in the truth or in the best guess, so that the mass of
    homozygotes of the major allele, right by default, does not count.

    Parameters
    ----------
    statistics : SITE_STATISTICS (n_sites,)
        Of each site, see `site_statistics`.
    """
    carriers = statistics["carriers"].sum()
    return float(statistics["concordant"].sum() / carriers) if carriers else float("nan")


class FrequencyBin(NamedTuple):
    """A bin of minor allele frequencies, (low, high].

    Attributes
    ----------
    low, high : float
        Its edges; `high` is in it.
    label : str
        Its name in tables.
    """

    low: float
    high: float
    label: str

    def holds(self, minor_frequency: np.ndarray) -> np.ndarray:
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
    """The accuracy of one imputer over all sites and per bin (low, high] of minor allele frequency.

    Parameters
    ----------
    imputer : str
        The name in the rows' first column.
    statistics : SITE_STATISTICS (n_sites,)
        Of each site, see `site_statistics`.
    minor_frequency : (n_sites,)
        Of each site in the panel.
    missing : bool (n_sites,)
        Sites that the imputer did not impute.
    bins : sequence of float
        Increasing edges between 0 and 0.5.

    Returns
    -------
    list of dict
        One for all sites and one for each bin that holds sites: imputer, bin, sites, pooled_r2, mean_r2, nrc
        (minor-allele concordance), missing_sites, genotypes.
    """
    rows: list[dict[str, Any]] = []
    for one in (ALL_FREQUENCIES, *frequency_bins(bins)):
        chosen = one.holds(minor_frequency)
        if not chosen.any():
            continue
        of_bin = statistics[chosen]
        rows.append(
            {
                "imputer": imputer,
                "bin": one.label,
                "sites": int(chosen.sum()),
                "pooled_r2": pooled_r2(of_bin),
                "mean_r2": mean_variant_r2(of_bin),
                "nrc": minor_concordance(of_bin),
                "missing_sites": int(missing[chosen].sum()),
                "genotypes": int(of_bin["genotypes"].sum()),
            }
        )
    return rows


def bin_labels(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Labels of the bins in rows of `frequency_rows`, in their order, without that of all sites."""
    return [label for label in dict.fromkeys(row["bin"] for row in rows) if label != ALL_FREQUENCIES.label]


def curve(rows: Sequence[Mapping[Any, Any]], labels: Sequence[str], measure: str) -> list[float]:
    """A measure along bins of minor allele frequency.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of `frequency_rows`, of one imputer.
    labels : sequence of str
        Labels of the bins, see `bin_labels`.
    measure : str
        Column of the rows.

    Returns
    -------
    list of float
        The value of each bin, NaN where it has no row.
    """
    of_bin = {row["bin"]: row[measure] for row in rows}
    return [of_bin.get(label, float("nan")) for label in labels]


class GenotypeCalibration:
    """Calibration of genotype probabilities: the share of true ones among those of probability p.

    Each of a genotype's probabilities (0, 1, 2 copies of the minor allele) is one prediction, true or false.
    Blocks are added with `add`; `rows` gives the table.

    Parameters
    ----------
    edges : sequence of float
        Increasing edges of bins of probability, [low, high), the last one [low, 1].
    """

    GENOTYPES = ("0", "1", "2")

    def __init__(self, edges: Sequence[float] = DEFAULT_PROBABILITY_EDGES) -> None:
        self.edges = np.asarray(edges, dtype=np.float64)
        shape = (len(self.GENOTYPES), len(self.edges) - 1)
        self.count = np.zeros(shape, dtype=np.int64)
        self.sum_predicted = np.zeros(shape)
        self.sum_observed = np.zeros(shape)

    def add(self, true: np.ndarray, probability: np.ndarray) -> None:
        """Count a block of genotypes.

        Parameters
        ----------
        true : (n_sites, n_samples)
            Minor allele counts; NaN does not count.
        probability : (n_sites, n_samples, 3)
            Of 0, 1, 2 minor alleles; NaN does not count.
        """
        n_bins = len(self.edges) - 1
        for copies in range(len(self.GENOTYPES)):
            of_copies = probability[:, :, copies]
            usable = ~np.isnan(true) & ~np.isnan(of_copies)
            predicted = of_copies[usable].astype(np.float64)
            observed = true[usable] == copies
            # float32 probabilities of 0.01 and the like are meant to sit on the edge, not just below it
            place = np.searchsorted(self.edges[1:-1], predicted + 1e-7, side="right")
            self.count[copies] += np.bincount(place, minlength=n_bins)
            self.sum_predicted[copies] += np.bincount(place, weights=predicted, minlength=n_bins)
            self.sum_observed[copies] += np.bincount(place, weights=observed, minlength=n_bins)

    def rows(self) -> list[dict[str, Any]]:
        """The reliability table: for each number of copies and for "any", a row per bin that is not empty.

        Returns
        -------
        list of dict
            minor_alleles, bin, predictions, mean_predicted, observed, calibration_error. The row of bin "all"
            holds the expected calibration error: the bins' |mean_predicted - observed| weighted by their
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
