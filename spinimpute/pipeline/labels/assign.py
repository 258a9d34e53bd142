"""Assign the two labels of each person to the person's haplotypes, by expectation-maximization.

A haplotype probably has the label of the haplotypes that it resembles. In each round, the label of every
haplotype is predicted from the labels of the others, with `CopyingWeights`. If the labels A and B of a person
are known, they can be on the haplotypes in two ways, and the predictions say how likely each way is. Unknown
labels, and labels of low resolution, are shared among the alleles that are possible, as predicted.

Axes: X samples, N haplotypes, K alleles of the locus, M texts of the table, C pairs of haplotypes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.pipeline.labels.copying_weights import CopyingWeights
from spinimpute.pipeline.labels.types_table import Locus

MAX_ROUNDS = 30
CHANGE = 1e-3  # rounds end when no probability of an order of labels changes by more than this
BACKGROUND = 1e-3  # weight of the allele frequencies in a prediction
MIN_SHARE = 0.5  # a haplotype gets an unknown label if its probability is above this value
TIE = 1e-5  # orders of labels with a difference below this are equal: the order of the table is used
FEWEST = 1e-3  # added to the number of each allele
CERTAIN = 0.9  # probability from which on an assignment is called certain
_BATCH_VALUES = 20_000_000  # weights x alleles that are multiplied at a time; bounds the memory


class Assignment(NamedTuple):
    """The labels of a locus on the haplotypes of a panel."""

    share_NK: np.ndarray  # probability of each allele on each haplotype, float32; rows add up to 1
    label_N: np.ndarray  # int64, the allele of each haplotype; -1 if it stays unknown


def assign_labels(locus: Locus, weights: CopyingWeights, haplotype_X2: np.ndarray) -> Assignment:
    """Assign the labels of a locus.

    A known label is on exactly one haplotype of its person. A label that is unknown, or known at a low
    resolution, is filled in if it has a probability of more than MIN_SHARE. haplotype_X2: the two haplotypes
    of each sample, int64; those of a haploid sample are equal, and its second label is unknown.
    """
    diploid_X = haplotype_X2[:, 0] != haplotype_X2[:, 1]
    first_XK, second_XK = (locus.allowed_MK[text_X].astype(np.float32) for text_X in locus.text_X2.T)
    frequency_K = np.full(len(locus.alleles), FEWEST, np.float32)
    for allowed_XK, text_X in ((first_XK, locus.text_X2[:, 0]), (second_XK, locus.text_X2[:, 1])):
        frequency_K += _shares(allowed_XK)[text_X > 0].sum(axis=0)
    frequency_K /= frequency_K.sum()
    predicted_NK = np.tile(frequency_K, (len(weights.first_N1) - 1, 1))
    share_NK = np.empty_like(predicted_NK)
    order_X = np.full(len(first_XK), np.nan)
    for _ in range(MAX_ROUNDS):
        before_X = order_X
        a_XK, b_XK = predicted_NK[haplotype_X2[:, 0]], predicted_NK[haplotype_X2[:, 1]]
        as_written_X = (a_XK * first_XK).sum(axis=1) * (b_XK * second_XK).sum(axis=1)
        exchanged_X = (a_XK * second_XK).sum(axis=1) * (b_XK * first_XK).sum(axis=1)
        order_X = np.where(diploid_X, as_written_X / (as_written_X + exchanged_X), 1)
        order_X1 = order_X[:, None]
        share_NK[haplotype_X2[:, 1]] = order_X1 * _shares(b_XK * second_XK) + (1 - order_X1) * _shares(
            b_XK * first_XK
        )
        share_NK[haplotype_X2[:, 0]] = order_X1 * _shares(a_XK * first_XK) + (1 - order_X1) * _shares(
            a_XK * second_XK
        )
        if np.abs(order_X - before_X).max() < CHANGE:
            break
        predicted_NK = predict_labels(weights, share_NK, frequency_K)
    exchanged_X1 = (order_X < 0.5 - TIE)[:, None]
    label_N = np.empty(len(share_NK), np.int64)
    label_N[haplotype_X2[:, 1]] = _chosen(b_XK * np.where(exchanged_X1, first_XK, second_XK))
    label_N[haplotype_X2[:, 0]] = _chosen(a_XK * np.where(exchanged_X1, second_XK, first_XK))
    return Assignment(share_NK, label_N)


def predict_labels(weights: CopyingWeights, share_NK: np.ndarray, frequency_K: np.ndarray) -> np.ndarray:
    """Return each haplotype's label as the others predict it, float32 (N, K); each row adds up to 1."""
    n_haplotypes, n_alleles = share_NK.shape
    predicted_NK = np.tile((BACKGROUND * frequency_K).astype(np.float32), (n_haplotypes, 1))
    first_N1 = weights.first_N1
    start = 0
    while start < n_haplotypes:
        most = first_N1[start] + _BATCH_VALUES // n_alleles
        stop = max(start + 1, int(np.searchsorted(first_N1, most, side="right")) - 1)
        here = slice(int(first_N1[start]), int(first_N1[stop]))
        values_CK = weights.weight_C[here, None] * share_NK[weights.haplotype_C[here]]
        filled_N = start + np.flatnonzero(np.diff(first_N1[start : stop + 1]))
        if len(filled_N):
            predicted_NK[filled_N] += np.add.reduceat(values_CK, first_N1[filled_N] - here.start, axis=0)
        start = stop
    return _shares(predicted_NK)


def _shares(values_XK: np.ndarray) -> np.ndarray:
    """Divide each row by its sum."""
    return np.asarray(values_XK / values_XK.sum(axis=1, keepdims=True), np.float32)


def _chosen(values_XK: np.ndarray) -> np.ndarray:
    """Return the allele with a share of more than MIN_SHARE, int64 (X,), or -1 if there is none."""
    share_XK = _shares(values_XK)
    return np.where(share_XK.max(axis=1) > MIN_SHARE, share_XK.argmax(axis=1), -1)
