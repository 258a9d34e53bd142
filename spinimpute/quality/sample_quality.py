"""Quality by sample, for the report: call rate at typed sites, and the expected accuracy of the dosages.

Axes: T typed sites, U imputed sites, X samples, Q haplotypes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.metrics import minor_allele_dosage


@dataclass
class SampleQuality:
    """Typed calls and dosages of each sample, collected window by window.

    The expected r2 of a sample is the pooled r2 that `evaluate` would find if the imputed probabilities were
    calibrated. It is v / (v + w). v is the variance over sites of the sample's dosages, counted in copies of
    the panel's minor allele. w is the mean over sites of the variance of the genotype under its imputed
    probabilities.
    """

    samples: list[str]
    typed_sites: int = 0  # number of typed sites
    called_X: np.ndarray = field(init=False)  # int64: number of typed sites with a call of the sample
    sites: int = 0  # number of imputed sites
    sum_X: np.ndarray = field(init=False)  # float64: sum of the dosages over imputed sites
    square_X: np.ndarray = field(init=False)  # float64: sum of the squared dosages
    residual_X: np.ndarray = field(init=False)  # float64: sum of the genotypes' variances

    def __post_init__(self) -> None:
        self.called_X = np.zeros(len(self.samples), np.int64)
        self.sum_X, self.square_X, self.residual_X = np.zeros((3, len(self.samples)))

    def add_calls(self, alleles_TQ: np.ndarray, ploidy: np.ndarray) -> None:
        """Add calls at typed sites: 0, 1, or -1 (missing). `ploidy` has one value for each sample."""
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        self.typed_sites += len(alleles_TQ)
        self.called_X += (np.minimum.reduceat(alleles_TQ, first, axis=1) >= 0).sum(axis=0)

    def add_dosages(self, p_UQ: np.ndarray, frequency_U: np.ndarray, ploidy: np.ndarray) -> None:
        """Add P(ALT) at the imputed sites of a window. `frequency_U` is the ALT frequency in the panel."""
        if not len(p_UQ):
            return
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        dosage_UX = np.add.reduceat(p_UQ, first, axis=1)
        dosage_UX, _ = minor_allele_dosage(dosage_UX, frequency_U, ploidy.astype(np.float32))
        self.sites += len(p_UQ)
        self.sum_X += dosage_UX.sum(axis=0, dtype=np.float64)
        self.square_X += np.einsum("ux,ux->x", dosage_UX, dosage_UX, dtype=np.float64)
        residual_Q = np.einsum("uq,uq->q", p_UQ, 1 - p_UQ, dtype=np.float64)
        self.residual_X += np.add.reduceat(residual_Q, first)

    @property
    def call_rate_X(self) -> np.ndarray:
        """Share of the typed sites at which the sample has a call, float64; NaN without typed sites."""
        return self.called_X / self.typed_sites if self.typed_sites else np.full(len(self.samples), np.nan)

    @property
    def expected_r2_X(self) -> np.ndarray:
        """Expected r2, float64; NaN if the dosages do not vary."""
        n = max(self.sites, 1)
        explained_X = np.maximum(self.square_X / n - (self.sum_X / n) ** 2, 0)
        total_X = explained_X + self.residual_X / n
        return np.divide(explained_X, total_X, out=np.full(len(total_X), np.nan), where=total_X > 0)

    def by_sample(self, leave_one_out: LeaveOneOutQuality | None = None) -> list[dict[str, Any]]:
        """Return a row for each sample.

        Columns: sample, typed (number of sites with a call), call_rate, expected_r2, r2, minor_concordance,
        note. The last three are taken from `leave_one_out`; without it they are NaN, NaN and "".
        """
        no_leave_one_out = {"r2": float("nan"), "minor_concordance": float("nan"), "note": ""}
        loo_rows = (
            [no_leave_one_out] * len(self.samples) if leave_one_out is None else leave_one_out.by_sample()
        )
        return [
            {
                "sample": name,
                "typed": int(self.called_X[x]),
                "call_rate": float(self.call_rate_X[x]),
                "expected_r2": float(self.expected_r2_X[x]),
                **{key: loo_rows[x][key] for key in no_leave_one_out},
            }
            for x, name in enumerate(self.samples)
        ]
