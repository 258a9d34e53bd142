"""What a run tells of each sample: its typed calls, and the accuracy to be expected of its dosages.

Axes: T typed sites, U sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.metrics import turn_to_minor


@dataclass
class SampleQuality:
    """Typed calls and dosages of each sample, collected from one window after the other.

    The expected r2 of a sample is what `evaluate` finds as its pooled r2 if probabilities are right: the
    variance of its dosages over sites, which count the panel's minor allele, over that plus the mean variance
    of the genotypes that the probabilities leave open.

    Attributes
    ----------
    samples : list of str
        Names.
    typed_sites : int
        Sites at which the target has calls of some sample.
    called_X : int64 (X,)
        Those of them at which the sample has a call.
    sites : int
        Sites whose dosages were added.
    sum_X, square_X, open_X : float64 (X,)
        Over these sites: dosages, their squares, variances of the genotypes.
    """

    samples: list[str]
    typed_sites: int = 0
    called_X: np.ndarray = field(init=False)
    sites: int = 0
    sum_X: np.ndarray = field(init=False)
    square_X: np.ndarray = field(init=False)
    open_X: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.called_X = np.zeros(len(self.samples), np.int64)
        self.sum_X, self.square_X, self.open_X = np.zeros((3, len(self.samples)))

    def add_calls(self, alleles_TQ: np.ndarray, ploidy: np.ndarray) -> None:
        """Add the calls of a part of the chromosome.

        Parameters
        ----------
        alleles_TQ : int8 (T, Q)
            0, 1, or -1 (missing).
        ploidy : integers (X,)
            1 or 2 for each sample.
        """
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        self.typed_sites += len(alleles_TQ)
        self.called_X += (np.minimum.reduceat(alleles_TQ, first, axis=1) >= 0).sum(axis=0)

    def add_dosages(self, p_UQ: np.ndarray, frequency_U: np.ndarray, ploidy: np.ndarray) -> None:
        """Add imputed sites of a window.

        Parameters
        ----------
        p_UQ : float32 (U, Q)
            P(ALT).
        frequency_U : float (U,)
            ALT frequency in the panel.
        ploidy : integers (X,)
            1 or 2 for each sample.
        """
        if not len(p_UQ):
            return
        first = np.cumsum(ploidy.astype(np.int64)) - ploidy
        dosage_UX = np.add.reduceat(p_UQ, first, axis=1)
        dosage_UX, _ = turn_to_minor(dosage_UX, frequency_U, ploidy.astype(np.float32))
        self.sites += len(p_UQ)
        self.sum_X += dosage_UX.sum(axis=0, dtype=np.float64)
        self.square_X += np.einsum("ux,ux->x", dosage_UX, dosage_UX, dtype=np.float64)
        open_Q = np.einsum("uq,uq->q", p_UQ, 1 - p_UQ, dtype=np.float64)
        self.open_X += np.add.reduceat(open_Q, first)

    @property
    def call_rate_X(self) -> np.ndarray:
        """Share of the typed sites at which the sample has a call, float64 (X,); NaN without typed sites."""
        return self.called_X / self.typed_sites if self.typed_sites else np.full(len(self.samples), np.nan)

    @property
    def expected_r2_X(self) -> np.ndarray:
        """float64 (X,); NaN of dosages that do not vary."""
        n = max(self.sites, 1)
        told_X = np.maximum(self.square_X / n - (self.sum_X / n) ** 2, 0)
        whole_X = told_X + self.open_X / n
        return np.divide(told_X, whole_X, out=np.full(len(whole_X), np.nan), where=whole_X > 0)

    def by_sample(self, leave_one_out: LeaveOneOutQuality | None = None) -> list[dict[str, Any]]:
        """Typed calls and accuracy of each sample.

        Parameters
        ----------
        leave_one_out : LeaveOneOutQuality or None
            Of the same samples.

        Returns
        -------
        list of dict
            A row for each sample: sample, typed (sites at which it has a call), call_rate, expected_r2, and
            as of `LeaveOneOutQuality.by_sample` r2, minor_concordance and note; NaN and "" without it.
        """
        without = {"r2": float("nan"), "minor_concordance": float("nan"), "note": ""}
        left_out = [without] * len(self.samples) if leave_one_out is None else leave_one_out.by_sample()
        return [
            {
                "sample": name,
                "typed": int(self.called_X[x]),
                "call_rate": float(self.call_rate_X[x]),
                "expected_r2": float(self.expected_r2_X[x]),
                **{key: left_out[x][key] for key in without},
            }
            for x, name in enumerate(self.samples)
        ]
