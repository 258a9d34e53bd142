"""Accuracy of leave-one-out predictions of typed calls: by site (ER2), sample, window and frequency.

Calls are counted in copies of the panel's minor allele; of a diploid sample both haplotypes are added, so
that nothing depends on its phase.

Axes: T typed sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.quality.metrics import (
    frequency_rows,
    minor_concordance,
    pooled_r2,
    site_statistics,
    turn_to_minor,
)
from spinimpute.quality.tables import write_table

WINDOW_TYPED = 50  # typed sites of a window
LOW_DEVIATIONS = 6.0  # a sample is low so many (robust) standard deviations below the median, and
LOW_DIFFERENCE = 0.05  # at least so much
TABLES = ("sites", "samples", "windows")


@dataclass(frozen=True)
class _Part:
    """Quality in one part of the chromosome, which has a panel of its own.

    Attributes
    ----------
    sites : Sites
        Typed sites.
    minor_T : float (T,)
        Minor allele frequency in the panel.
    of_site : SITE_STATISTICS (T,)
        Statistics of each site over samples.
    of_sample : SITE_STATISTICS (X,)
        Statistics of each sample over sites.
    """

    sites: Sites
    minor_T: np.ndarray
    of_site: np.ndarray
    of_sample: np.ndarray


@dataclass
class LeaveOneOutQuality:
    """Leave-one-out quality, collected from one part of the chromosome after the other.

    Attributes
    ----------
    samples : list of str
        Names of the samples.
    parts : list of _Part
        What was added.
    """

    samples: list[str]
    parts: list[_Part] = field(default_factory=list)

    def add(
        self,
        sites: Sites,
        frequency_T: np.ndarray,
        alleles_TQ: np.ndarray,
        probability_TQ: np.ndarray,
        ploidy: np.ndarray,
    ) -> np.ndarray:
        """Add the calls of a part of the chromosome.

        Parameters
        ----------
        sites : Sites
            The typed sites.
        frequency_T : float (T,)
            ALT frequency in the panel.
        alleles_TQ : int8 (T, Q)
            The calls: 0, 1, or -1 (missing).
        probability_TQ : float32 (T, Q)
            P(ALT), see `leave_one_out_probabilities`.
        ploidy : integers (X,)
            1 or 2 for each sample.

        Returns
        -------
        float64 (T,)
            ER2, the squared correlation of calls and predictions over samples; NaN where all calls are the
            same.
        """
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        missing_TX = np.logical_or.reduceat(alleles_TQ < 0, first, axis=1)
        true_TX = np.where(missing_TX, np.nan, np.add.reduceat(alleles_TQ, first, axis=1, dtype=np.float32))
        dosage_TX = np.add.reduceat(probability_TQ, first, axis=1)
        copies = ploidy.astype(np.float32)
        true_TX, minor_T = turn_to_minor(true_TX, frequency_T, copies)
        dosage_TX, _ = turn_to_minor(dosage_TX, frequency_T, copies)
        of_site = site_statistics(true_TX, dosage_TX)
        self.parts.append(_Part(sites, minor_T, of_site, site_statistics(true_TX.T, dosage_TX.T)))
        return _each_r2(of_site)

    def all(self) -> float:
        """Pooled r2 of all calls."""
        return pooled_r2(np.concatenate([part.of_site for part in self.parts]))

    def by_frequency(self) -> list[dict[str, Any]]:
        """Accuracy by minor allele frequency, rows as of `frequency_rows`."""
        statistics = np.concatenate([part.of_site for part in self.parts])
        minor = np.concatenate([part.minor_T for part in self.parts])
        return frequency_rows("leave-one-out", statistics, minor, np.zeros(len(minor), bool))

    def by_sample(self) -> list[dict[str, Any]]:
        """Accuracy by sample.

        Returns
        -------
        list of dict
            A row for each sample: sample, calls, r2 (pooled), minor_concordance, note ("low" if the sample is
            far below the others).
        """
        rows: list[dict[str, Any]] = []
        for x, name in enumerate(self.samples):
            statistics = np.stack([part.of_sample[x] for part in self.parts])
            rows.append(
                {
                    "sample": name,
                    "calls": int(statistics["genotypes"].sum()),
                    "r2": pooled_r2(statistics),
                    "minor_concordance": minor_concordance(statistics),
                    "note": "",
                }
            )
        r2 = np.array([row["r2"] for row in rows])
        if np.isfinite(r2).any():
            middle = float(np.nanmedian(r2))
            deviation = 1.4826 * float(np.nanmedian(np.abs(r2 - middle)))
            for row in rows:
                if row["r2"] < middle - max(LOW_DEVIATIONS * deviation, LOW_DIFFERENCE):
                    row["note"] = "low"
        return rows

    def by_window(self) -> list[dict[str, Any]]:
        """Accuracy in windows of WINDOW_TYPED typed sites.

        Returns
        -------
        list of dict
            A row for each window: chrom, start, end, typed, calls, r2 (pooled), minor_concordance. The last
            window of a part may have up to twice as many sites.
        """
        rows = []
        for part in self.parts:
            n_windows = max(1, len(part.sites) // WINDOW_TYPED)
            for i in range(n_windows):
                stop = len(part.sites) if i == n_windows - 1 else (i + 1) * WINDOW_TYPED
                here = slice(i * WINDOW_TYPED, stop)
                position = part.sites.position[here]
                rows.append(
                    {
                        "chrom": part.sites.chrom,
                        "start": int(position[0]),
                        "end": int(position[-1]),
                        "typed": len(position),
                        "calls": int(part.of_site[here]["genotypes"].sum()),
                        "r2": pooled_r2(part.of_site[here]),
                        "minor_concordance": minor_concordance(part.of_site[here]),
                    }
                )
        return rows

    def by_site(self) -> Iterable[dict[str, Any]]:
        """Accuracy by typed site.

        Yields
        ------
        dict
            A row for each site: chrom, position, id, ref, alt, panel_maf, calls, er2, minor_concordance.
        """
        for part in self.parts:
            sites = part.sites
            for i, er2 in enumerate(_each_r2(part.of_site)):
                yield {
                    "chrom": sites.chrom,
                    "position": int(sites.position[i]),
                    "id": sites.id[i],
                    "ref": sites.ref[i],
                    "alt": sites.alt[i],
                    "panel_maf": float(part.minor_T[i]),
                    "calls": int(part.of_site["genotypes"][i]),
                    "er2": float(er2),
                    "minor_concordance": minor_concordance(part.of_site[i : i + 1]),
                }

    def write(self, table: str, path: Path) -> None:
        """Write a table separated by tabs; undefined values are NA.

        Parameters
        ----------
        table : str
            One of TABLES.
        path : Path
            The file to write.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        rows = {"sites": self.by_site, "samples": self.by_sample, "windows": self.by_window}[table]()
        write_table(path, rows)


def _each_r2(statistics: np.ndarray) -> np.ndarray:
    """Squared correlation within each row; NaN where the truth does not vary, 0 where the dosage does not."""
    squares = statistics["square_true"] * statistics["square_dosage"]
    r2 = statistics["product"] ** 2 / np.maximum(squares, 1e-12)
    return np.where(statistics["square_true"] > 1e-9, r2, np.nan)
