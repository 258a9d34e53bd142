"""Quality by sample: typed calls, and the expected accuracy of the dosages.

Axes: T typed sites, U sites, X samples, Q haplotypes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.metrics import minor_allele_dosage


@dataclass
class SampleQuality:
    """Typed calls and dosages of each sample, collected window by window.

    The expected r2 is the pooled r2 of a sample in `evaluate` if the probabilities are right: the variance
    over sites of its dosages, counted in copies of the panel's minor allele, over this variance plus the mean
    variance of the genotypes given the probabilities.
    """

    samples: list[str]
    typed_sites: int = 0  # sites with target calls of any sample
    called_X: np.ndarray = field(init=False)  # int64: typed sites with a call of the sample
    sites: int = 0  # sites with added dosages
    # float64: sums over these sites of dosages, of their squares, and of variances of the genotypes
    sum_X: np.ndarray = field(init=False)
    square_X: np.ndarray = field(init=False)
    residual_X: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.called_X = np.zeros(len(self.samples), np.int64)
        self.sum_X, self.square_X, self.residual_X = np.zeros((3, len(self.samples)))

    def add_calls(self, alleles_TQ: np.ndarray, ploidy: np.ndarray) -> None:
        """Add calls: 0, 1, or -1 (missing); `ploidy` is that of each sample."""
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        self.typed_sites += len(alleles_TQ)
        self.called_X += (np.minimum.reduceat(alleles_TQ, first, axis=1) >= 0).sum(axis=0)

    def add_dosages(self, p_UQ: np.ndarray, frequency_U: np.ndarray, ploidy: np.ndarray) -> None:
        """Add P(ALT) of the imputed sites of a window, with their ALT frequency in the panel."""
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
        """Share of the typed sites with a call of the sample, float64; NaN without typed sites."""
        return self.called_X / self.typed_sites if self.typed_sites else np.full(len(self.samples), np.nan)

    @property
    def expected_r2_X(self) -> np.ndarray:
        """Expected r2, float64; NaN if the dosages do not vary."""
        n = max(self.sites, 1)
        explained_X = np.maximum(self.square_X / n - (self.sum_X / n) ** 2, 0)
        total_X = explained_X + self.residual_X / n
        return np.divide(explained_X, total_X, out=np.full(len(total_X), np.nan), where=total_X > 0)

    def by_sample(self, leave_one_out: LeaveOneOutQuality | None = None) -> list[dict[str, Any]]:
        """Rows of sample, typed (sites with a call), call_rate, expected_r2, r2, minor_concordance and note.

        The last three are those of `leave_one_out` for the same samples; NaN and "" without it.
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
