"""From features to decisions: error rates of single features, and of what shadow files teach.

Axes: P people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Trial:
    """One random half of a panel: what the attacker measures, and who was in the half.

    features: float64 (P, features); member: bool (P,).
    """

    features: np.ndarray
    member: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """auc: mean over halves; auc_spread: its standard deviation; found: share of members told apart at 1 %
    false positives, all halves together."""

    auc: float
    auc_spread: float
    found: float


def area(score: np.ndarray, member: np.ndarray) -> float:
    """Probability that a member scores higher than another person; ties count half."""
    inside, outside = score[member], np.sort(score[~member])
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    return float(below.mean() / 2 / len(outside))


def found_at(score: np.ndarray, member: np.ndarray, rate: float = FALSE_POSITIVES) -> float:
    """Share of members above a threshold that at most this share of the others exceeds."""
    outside = np.sort(score[~member])[::-1]
    return float((score[member] > outside[int(rate * len(outside))]).mean())


def outcome(scores: Sequence[np.ndarray], trials: Sequence[Trial]) -> Outcome:
    areas = [area(score, trial.member) for score, trial in zip(scores, trials, strict=True)]
    member = np.concatenate([trial.member for trial in trials])
    found = found_at(np.concatenate(scores), member)
    return Outcome(float(np.mean(areas)), float(np.std(areas)), found)


def best_feature(trials: Sequence[Trial]) -> Outcome:
    """The single feature of the largest area; chosen afterwards, so to the attacker's advantage."""
    n_features = trials[0].features.shape[1]
    outcomes = [outcome([trial.features[:, i] for trial in trials], trials) for i in range(n_features)]
    return max(outcomes, key=lambda found: found.auc)


def learned(trials: Sequence[Trial]) -> Outcome:
    """Logistic regression taught by the other halves: an attacker who has made such files himself."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scores = []
    for i, trial in enumerate(trials):
        others = [other for j, other in enumerate(trials) if j != i]
        model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=2_000))
        model.fit(
            np.concatenate([other.features for other in others]),
            np.concatenate([other.member for other in others]),
        )
        scores.append(model.decision_function(trial.features))
    return outcome(scores, trials)
