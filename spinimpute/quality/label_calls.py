"""The most likely labels of each sample, such as HLA types: the table of `impute --labels`.

A label has fields, separated by colons. The table has a row for each resolution: all fields, then fewer, and
last the first field only. At a lower resolution, the probabilities of labels that agree there are added.

Axes: K labels, Q haplotypes, X samples.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

COLUMNS = (
    "sample", "locus", "fields", "allele1", "allele2", "probability", "probability1", "probability2",
)  # fmt: skip
_BATCH_VALUES = 4_000_000  # pairs of labels that are compared at a time; bounds the memory


class PairsOfLabels(NamedTuple):
    """The most likely pair of labels of each sample. The second label of a haploid sample is -1."""

    label_X2: np.ndarray  # int64, the smaller number first
    probability_X: np.ndarray  # of the pair, float64
    carrier_X2: np.ndarray  # probability that the sample has each label on any haplotype, float64


def pairs_of_labels(p_KQ: np.ndarray, ploidy: np.ndarray) -> PairsOfLabels:
    """Return the most likely pairs. p_KQ: probability of each label; they add up to 1 on each haplotype."""
    first_X = np.cumsum(ploidy, dtype=np.int64) - ploidy
    label_X2 = np.full((len(ploidy), 2), -1)
    probability_X, carrier_X2 = np.zeros(len(ploidy)), np.zeros((len(ploidy), 2))
    haploid_X = np.flatnonzero(ploidy == 1)
    p_KX = p_KQ[:, first_X[haploid_X]]
    label_X2[haploid_X, 0] = p_KX.argmax(axis=0)
    probability_X[haploid_X] = carrier_X2[haploid_X, 0] = p_KX.max(axis=0)
    diploid_X = np.flatnonzero(ploidy == 2)
    n_labels = len(p_KQ)
    low_P, high_P = np.triu_indices(n_labels)
    step = max(1, _BATCH_VALUES // len(low_P))
    for start in range(0, len(diploid_X), step):
        some_X = diploid_X[start : start + step]
        p, q = (p_KQ[:, first_X[some_X] + copy].astype(np.float64) for copy in (0, 1))
        pair_PX = p[low_P] * q[high_P] + np.where(low_P < high_P, 1, 0)[:, None] * p[high_P] * q[low_P]
        best_X, here = pair_PX.argmax(axis=0), np.arange(len(some_X))
        probability_X[some_X] = pair_PX[best_X, here]
        for number, label_P in enumerate((low_P, high_P)):
            label_X = label_P[best_X]
            label_X2[some_X, number] = label_X
            carrier_X2[some_X, number] = 1 - (1 - p[label_X, here]) * (1 - q[label_X, here])
    return PairsOfLabels(label_X2, probability_X, carrier_X2)


@dataclass
class LabelCalls:
    """The labels of the samples of a run, collected locus by locus."""

    samples: Sequence[str]
    rows: list[tuple[str, ...]] = field(default_factory=list)  # of COLUMNS

    def add(self, locus: str, labels: Sequence[str], p_KQ: np.ndarray, ploidy: np.ndarray) -> None:
        """Add a locus. `labels` are the names of its alleles, and p_KQ their probabilities."""
        most = max(label.count(":") for label in labels) + 1
        for n_fields in range(most, 0, -1):
            names = [":".join(label.split(":")[:n_fields]) for label in labels]
            merged = list(dict.fromkeys(names))
            p_MQ = np.zeros((len(merged), p_KQ.shape[1]))
            np.add.at(p_MQ, [merged.index(name) for name in names], p_KQ)
            pairs = pairs_of_labels(p_MQ, ploidy)
            for sample, label_2, probability, carrier_2 in zip(self.samples, *pairs, strict=True):
                alleles = [merged[label] if label >= 0 else "" for label in label_2.tolist()]
                numbers = [probability, *carrier_2[: 2 if label_2[1] >= 0 else 1]]
                texts = [f"{number:.4f}" for number in numbers]
                self.rows.append((sample, locus, str(n_fields), *alleles, *texts, *[""] * (3 - len(texts))))

    def write(self, path: Path) -> None:
        """Write the table, tab-separated, with a header line."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(self.rows)
