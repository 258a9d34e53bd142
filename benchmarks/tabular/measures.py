"""Measures of class probabilities: negative log-likelihood, and area under the ROC curve."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

LEAST = 1e-15  # a probability of 0 that comes true would cost without end


def class_measures(target: np.ndarray, classes: np.ndarray, probability_NK: np.ndarray) -> dict[str, float]:
    """Return `log_loss`, in nats per row, and "auroc" for two classes.

    `classes` are sorted and belong to the columns. A class that is absent from training has probability 0.
    """
    column = np.minimum(classes.searchsorted(target), len(classes) - 1)
    given = probability_NK.astype(float)[np.arange(len(target)), column]
    given = np.where(classes[column] == target, given, 0.0).clip(LEAST, 1)
    found = {"log_loss": float(-np.log(given).mean())}
    if len(classes) == 2:
        found["auroc"] = float(roc_auc_score(target == classes[1], probability_NK[:, 1]))
    return found
