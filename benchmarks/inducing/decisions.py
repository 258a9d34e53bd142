"""From features to decisions: error rates of single features, and of a classifier trained on shadow files.

Axes: P people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Trial:
    """One random half of a panel: the attacker's features, and who was in the half.

    features: float64 (P, features); member: bool (P,).
    """

    features: np.ndarray
    member: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """Success of an attack over all halves.

    auc: mean over halves. auc_spread: its standard deviation. found: share of members that are detected at 1
    % false positives, over all halves together.
    """

    auc: float
    auc_spread: float
    found: float


def area(score: np.ndarray, member: np.ndarray) -> float:
    """Return the probability that a member scores higher than another person; ties count half."""
    inside, outside = score[member], np.sort(score[~member])
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    return float(below.mean() / 2 / len(outside))


def found_at(score: np.ndarray, member: np.ndarray, rate: float = FALSE_POSITIVES) -> float:
    """Return the share of members above a threshold that at most a share `rate` of non-members exceeds."""
    outside = np.sort(score[~member])[::-1]
    return float((score[member] > outside[int(rate * len(outside))]).mean())


def outcome(scores: Sequence[np.ndarray], trials: Sequence[Trial]) -> Outcome:
    areas = [area(score, trial.member) for score, trial in zip(scores, trials, strict=True)]
    member = np.concatenate([trial.member for trial in trials])
    found = found_at(np.concatenate(scores), member)
    return Outcome(float(np.mean(areas)), float(np.std(areas)), found)


def best_feature(trials: Sequence[Trial]) -> Outcome:
    """Return the single feature with the largest area. It is chosen afterwards, which favours the attack."""
    n_features = trials[0].features.shape[1]
    outcomes = [outcome([trial.features[:, i] for trial in trials], trials) for i in range(n_features)]
    return max(outcomes, key=lambda found: found.auc)


def learned(trials: Sequence[Trial]) -> Outcome:
    """Fit a logistic regression to the other halves, like an attacker who has built such files."""
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
