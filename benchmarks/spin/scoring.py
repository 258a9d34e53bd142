"""Held-out tasks, equal for all rows and seeds, and pooled r² of minor-allele dosages in these tasks.

Axes: U hidden sites of a task, Q query haplotypes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from benchmarks.simulated.ablation import simulated_set
from benchmarks.spin.budget import Budget
from spinimpute.genotypes.blocks import BlockShape, HaplotypeSource
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.quality.metrics import minor_allele_dosage, pooled_r2, site_statistics
from spinimpute.training.episodes import Episode, draw_episode
from spinimpute.training.sources import SimulatedSource

# frequency of the minor allele in the context
BINS = {"all": (0.0, 0.5), "rare": (0.0, 0.01), "common": (0.05, 0.5)}
UNSEEN, LARGER = "unseen", "larger panels"  # segments as in training; those of benchmarks/simulated
SCORES = tuple(f"{group}, {name}" for group in (UNSEEN, LARGER) for name in BINS)


@cache
def _sources(budget: Budget) -> dict[str, list[HaplotypeSource]]:
    """No seed trains on these."""
    return {
        UNSEEN: SimulatedSource(1, 1, budget.simulation).validation(budget.held_out),
        LARGER: [simulated_set(*one)[0] for one in budget.sets],
    }


@cache
def held_out(budget: Budget, shape: BlockShape, points: int) -> dict[str, list[Episode]]:
    """Return tasks of each group. Their hidden sites depend on a block's core, not on its flank or points."""
    return {
        group: [
            draw_episode(source, np.random.default_rng([7, len(group), i, j]), budget.episodes, shape, points)
            for i, source in enumerate(sources)
            for j in range(budget.episodes_each)
        ]
        for group, sources in _sources(budget).items()
    }


def score(learner: SPINLearner, budget: Budget) -> dict[str, float]:
    """Return the pooled r² of all SCORES; NaN without sites.

    Blocks have at most the number of inducing points in the learner's settings.
    """
    settings = learner.settings
    scores = dict.fromkeys(SCORES, float("nan"))
    for group, episodes in held_out(budget, settings.shape, settings.inducing_points).items():
        if not episodes:
            continue
        found = [_statistics(learner, episode) for episode in episodes]
        statistics = np.concatenate([one for one, _ in found])
        minor = np.concatenate([frequency for _, frequency in found])
        for name, (low, high) in BINS.items():
            chosen = (minor > low) & (minor <= high)
            scores[f"{group}, {name}"] = pooled_r2(statistics[chosen])
    return scores


@torch.no_grad()
def _statistics(learner: SPINLearner, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Of each hidden site, and the minor allele's frequency."""
    n_queries = episode.truth_BGUQ.shape[-1]
    outcome = learner.outcome(episode, 1.0, np.random.default_rng(0))
    p_UQ, truth_UQ = (x.reshape(-1, n_queries) for x in (outcome.predicted, outcome.truth))
    frequency = outcome.frequency.reshape(-1, n_queries)[:, 0]
    # haplotypes of a sample are neighbours
    dosage, minor = minor_allele_dosage(p_UQ[:, ::2] + p_UQ[:, 1::2], frequency)
    truth, _ = minor_allele_dosage(truth_UQ[:, ::2] + truth_UQ[:, 1::2], frequency)
    return site_statistics(truth, dosage), minor
