"""Leave-one-out accuracy: how well typed calls are predicted from the other typed calls.

It shows how accurate a run is if true genotypes are unknown. Each typed call is predicted as if it were
untyped, and compared with the call itself. Tables by site (ER2), sample, window and allele frequency go to
the report and to files.

Calls and predictions are counted in copies of the panel's minor allele. The two haplotypes of a diploid
sample are summed first, because their order (the phase) may be wrong.

Axes: T typed sites, X samples, Q haplotypes, K sums of a site.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.quality.metrics import (
    frequency_rows,
    minor_allele_dosage,
    minor_concordance,
    pooled_r2,
    site_statistics,
)
from spinimpute.quality.site_quality import ONE
from spinimpute.runtime.errors import printable

WINDOW_TYPED = 50  # typed sites per window
# A sample or window is "low" if its r2 is below the median of all by more than LOW_DEVIATIONS robust standard
# deviations (from the median absolute deviation) and by more than LOW_DIFFERENCE.
LOW_DEVIATIONS = 6.0
LOW_DIFFERENCE = 0.05
TABLES = ("sites", "samples", "windows")
N_CALL_SUMS = 6
_BLOCK_CALLS = 2**20  # calls of one step of `call_sums`; limits the memory


class _IntervalStatistics(NamedTuple):
    """Statistics of the typed sites of one interval."""

    sites: Sites
    minor_T: np.ndarray  # minor allele frequency in the panel
    site_T: np.ndarray  # SITE_STATISTICS of each site, over samples
    sample_X: np.ndarray  # SITE_STATISTICS of each sample, over sites


@dataclass
class LeaveOneOutQuality:
    """Leave-one-out accuracy, collected interval by interval."""

    samples: list[str]
    intervals: list[_IntervalStatistics] = field(default_factory=list)

    def add(
        self,
        sites: Sites,
        frequency_T: np.ndarray,
        alleles_TQ: np.ndarray,
        probability_TQ: np.ndarray,
        ploidy: np.ndarray,
    ) -> np.ndarray:
        """Add an interval, and return the `call_sums` of its sites, int64 (K, T).

        `alleles_TQ` are the calls (0, 1, or -1 for missing) and `probability_TQ` is their predicted P(ALT).
        `frequency_T` is the ALT frequency in the panel.
        """
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        missing_TX = np.logical_or.reduceat(alleles_TQ < 0, first, axis=1)
        sums_KT = call_sums(alleles_TQ, probability_TQ, missing_TX, ploidy, frequency_T > 0.5)
        true_TX = np.where(missing_TX, np.nan, np.add.reduceat(alleles_TQ, first, axis=1, dtype=np.float32))
        dosage_TX = np.add.reduceat(probability_TQ, first, axis=1)
        copies = ploidy.astype(np.float32)
        true_TX, minor_T = minor_allele_dosage(true_TX, frequency_T, copies)
        dosage_TX, _ = minor_allele_dosage(dosage_TX, frequency_T, copies)
        site_T = site_statistics(true_TX, dosage_TX)
        sample_X = site_statistics(true_TX.T, dosage_TX.T)
        self.intervals.append(_IntervalStatistics(sites, minor_T, site_T, sample_X))
        return sums_KT

    def overall_r2(self) -> float:
        """Return the pooled r2 of all calls and their predictions."""
        return pooled_r2(np.concatenate([interval.site_T for interval in self.intervals]))

    def by_frequency(self) -> list[dict[str, Any]]:
        """Return the rows of `metrics.frequency_rows` for the typed sites."""
        statistics = np.concatenate([interval.site_T for interval in self.intervals])
        minor = np.concatenate([interval.minor_T for interval in self.intervals])
        return frequency_rows("leave-one-out", statistics, minor, np.zeros(len(minor), bool))

    def by_sample(self) -> list[dict[str, Any]]:
        """Return a row for each sample: sample, calls, r2 (pooled), minor_concordance, note ("low" or "")."""
        rows: list[dict[str, Any]] = []
        for x, name in enumerate(self.samples):
            statistics = np.stack([interval.sample_X[x] for interval in self.intervals])
            rows.append(
                {
                    "sample": name,
                    "calls": int(statistics["genotypes"].sum()),
                    "r2": pooled_r2(statistics),
                    "minor_concordance": minor_concordance(statistics),
                    "note": "",
                }
            )
        _mark_low(rows)
        return rows

    def by_window(self) -> list[dict[str, Any]]:
        """Return a row for each window.

        Columns: chrom, start, end, typed, calls, r2 (pooled), minor_concordance, note ("low" or ""). A window
        has WINDOW_TYPED typed sites. The last window of an interval also contains the remaining sites, so it
        may be almost twice as large.
        """
        rows: list[dict[str, Any]] = []
        for interval in self.intervals:
            n_windows = max(1, len(interval.sites) // WINDOW_TYPED)
            for i in range(n_windows):
                stop = len(interval.sites) if i == n_windows - 1 else (i + 1) * WINDOW_TYPED
                rows_of_window = slice(i * WINDOW_TYPED, stop)
                position = interval.sites.position[rows_of_window]
                rows.append(
                    {
                        "chrom": interval.sites.chrom,
                        "start": int(position[0]),
                        "end": int(position[-1]),
                        "typed": len(position),
                        "calls": int(interval.site_T[rows_of_window]["genotypes"].sum()),
                        "r2": pooled_r2(interval.site_T[rows_of_window]),
                        "minor_concordance": minor_concordance(interval.site_T[rows_of_window]),
                        "note": "",
                    }
                )
        _mark_low(rows)
        return rows

    def by_site(self) -> Iterable[dict[str, Any]]:
        """Yield a row for each typed site.

        Columns: chrom, position, id, ref, alt, panel_maf, calls, er2, minor_concordance.
        """
        for interval in self.intervals:
            sites = interval.sites
            for i, er2 in enumerate(_r2_by_row(interval.site_T)):
                yield {
                    "chrom": sites.chrom,
                    "position": int(sites.position[i]),
                    "id": sites.id[i],
                    "ref": sites.ref[i],
                    "alt": sites.alt[i],
                    "panel_maf": float(interval.minor_T[i]),
                    "calls": int(interval.site_T["genotypes"][i]),
                    "er2": float(er2),
                    "minor_concordance": minor_concordance(interval.site_T[i : i + 1]),
                }

    def write(self, table: str, path: Path) -> None:
        """Write one of TABLES to a file, see `write_table`."""
        rows = {"sites": self.by_site, "samples": self.by_sample, "windows": self.by_window}[table]()
        write_table(path, rows)


def _mark_low(rows: Sequence[dict[str, Any]]) -> None:
    """Set the `note` of the rows whose r2 is far below the others."""
    r2 = np.array([row["r2"] for row in rows])
    if np.isfinite(r2).any():
        median = float(np.nanmedian(r2))
        deviation = 1.4826 * float(np.nanmedian(np.abs(r2 - median)))
        for row in rows:
            if row["r2"] < median - max(LOW_DEVIATIONS * deviation, LOW_DIFFERENCE):
                row["note"] = "low"


def call_sums(
    alleles_TQ: np.ndarray,
    probability_TQ: np.ndarray,
    missing_TX: np.ndarray,
    ploidy: np.ndarray,
    alt_is_major_T: np.ndarray,
) -> np.ndarray:
    """Return sums over the calls that are not missing, int64 (K, T): n and the sums of g, g², d, d² and g d.

    g is the number of minor alleles of a call, and d its prediction, in units of 1 / ONE. The sums of several
    files add up to those of a single run.
    """
    copies_X = ploidy.astype(np.int64)
    first_X = np.cumsum(copies_X) - copies_X
    sums_KT = np.empty((N_CALL_SUMS, len(alleles_TQ)), np.int64)
    step = max(1, _BLOCK_CALLS // alleles_TQ.shape[1])
    for start in range(0, len(alleles_TQ), step):
        rows = slice(start, start + step)
        units_TQ = np.rint(probability_TQ[rows] * np.float32(ONE)).astype(np.int64)
        genotype_TX = np.add.reduceat(alleles_TQ[rows], first_X, axis=1, dtype=np.int64)
        dosage_TX = np.add.reduceat(units_TQ, first_X, axis=1)
        flip_T1, known_TX = alt_is_major_T[rows, None], ~missing_TX[rows]
        genotype_TX = np.where(flip_T1, copies_X - genotype_TX, genotype_TX) * known_TX
        dosage_TX = np.where(flip_T1, copies_X * ONE - dosage_TX, dosage_TX) * known_TX
        terms = (known_TX, genotype_TX, genotype_TX**2, dosage_TX, dosage_TX**2, genotype_TX * dosage_TX)
        for k, term_TX in enumerate(terms):
            sums_KT[k, rows] = term_TX.sum(axis=1, dtype=np.int64)
    return sums_KT


def empirical_r2(sums_KT: np.ndarray) -> np.ndarray:
    """Return the ER2 of sites from their `call_sums`, float64 (T,).

    ER2 is the squared correlation, over samples, of the calls and their predictions. It is NaN if all calls
    are equal, and 0 if only the predictions are.
    """
    n, genotype, square_genotype, dosage, square_dosage, product = sums_KT
    variance_genotype = n * square_genotype - genotype**2
    at_least_one = np.maximum(n, 1)
    variance_dosage = square_dosage - dosage.astype(np.float64) ** 2 / at_least_one
    covariance = product - dosage.astype(np.float64) * genotype / at_least_one
    varies = (variance_genotype > 0) & (variance_dosage > 1e-12 * square_dosage)
    squares = np.where(varies, variance_genotype / at_least_one * variance_dosage, 1)
    return np.where(variance_genotype > 0, np.where(varies, covariance**2 / squares, 0), np.nan)


def _r2_by_row(statistics: np.ndarray) -> np.ndarray:
    """Return the r2 of each row. It is NaN if the truth is constant, and 0 if only the dosage is constant."""
    squares = statistics["square_true"] * statistics["square_dosage"]
    r2 = statistics["product"] ** 2 / np.maximum(squares, 1e-12)
    return np.where(statistics["square_true"] > 1e-9, r2, np.nan)


def write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as a tab-separated table with a header. None and NaN are written as NA.

    All rows must have the same keys. Raises OSError if the file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, list(row), delimiter="\t", lineterminator="\n")
                writer.writeheader()
            writer.writerow({name: _format_cell(value) for name, value in row.items()})


def _format_cell(value: object) -> object:
    if value is None:
        return "NA"
    if isinstance(value, float):
        return "NA" if math.isnan(value) else f"{value:.6g}"
    return printable(value) if isinstance(value, str) else value
