"""Accuracy of a neural process on tasks of Gaussian processes: log-likelihood and calibration.

The oracle is the best possible predictor: it knows the Gaussian process from which a task was drawn.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal

from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, apply_floor, draw_tasks, oracle
from spinimpute.neural_processes.models import NeuralProcess

HELD_OUT_SEED = 987_654_321  # of held-out tasks; training with a smaller seed never draws them
LEVELS = tuple(i / 10 for i in range(11))  # probabilities of the central intervals


@dataclass(frozen=True)
class Score:
    """Accuracy per target, averaged over held-out tasks."""

    log_likelihood: float
    se: float  # standard error of log_likelihood, over batches
    oracle: float  # log-likelihood under the oracle
    floored: float  # log-likelihood under the oracle if its sd had the model's lower bound

    @property
    def gap(self) -> float:
        """Log-likelihood that the model loses against the floored oracle."""
        return self.floored - self.log_likelihood


@torch.no_grad()
def score(
    model: NeuralProcess,
    tasks: ProcessSettings,
    batches: int,
    samples: int = 50,
    device: torch.device | str = "cpu",
) -> Score:
    """Compute the mean log-likelihood of the targets of held-out tasks, under the model and the oracle.

    `samples` is the number of samples drawn by latent and bootstrapping models.
    """
    model.eval()
    rows = []
    for number in range(batches):
        task, process = draw_tasks(tasks, HELD_OUT_SEED, number, device)
        torch.manual_seed(number)
        exact = oracle(task, process)
        rows.append(
            [
                float(model.log_likelihood(task, samples).mean()),
                float(exact.log_prob(task.y_BQY.double()).sum(-1).mean()),
                float(apply_floor(exact, model.settings.floor).log_prob(task.y_BQY.double()).sum(-1).mean()),
            ]
        )
    means = np.array(rows)
    se = means[:, 0].std(ddof=1) / math.sqrt(batches) if batches > 1 else math.nan
    return Score(float(means[:, 0].mean()), float(se), float(means[:, 1].mean()), float(means[:, 2].mean()))


def cdf(distribution: Distribution, y: Tensor) -> Tensor:
    """Return P(y' <= y) for y' from a Normal or a mixture of Normals, in the shape of y."""
    if isinstance(distribution, MixtureSameFamily):
        return distribution.component_distribution.cdf(y[..., None]).mean(-1)
    assert isinstance(distribution, Normal)
    return distribution.cdf(y)


@dataclass(frozen=True)
class Calibration:
    """How often targets lie inside the central intervals of their predictions."""

    inside: tuple[float, ...]  # fraction of targets inside the interval, for each of LEVELS
    targets: int  # number of targets

    @property
    def error(self) -> float:
        """Mean squared difference of fraction and level (SPIN paper, appendix A.6, equation 1)."""
        return float(np.mean([(p - level) ** 2 for p, level in zip(self.inside, LEVELS, strict=True)]))


@torch.no_grad()
def calibration(
    model: NeuralProcess,
    tasks: ProcessSettings,
    context: int,
    batches: int,
    samples: int = 50,
    device: torch.device | str = "cpu",
) -> Calibration:
    """Measure the calibration with this number of context points. For other parameters see `score`."""
    model.eval()
    settings = replace(tasks, context=(context, context))
    inside, total = np.zeros(len(LEVELS)), 0
    for number in range(batches):
        task, _ = draw_tasks(settings, HELD_OUT_SEED, number, device)
        torch.manual_seed(number)
        predicted = model(task.x_BNX, task.y_BNY, task.x_BQX, samples)
        distance = (cdf(predicted, task.y_BQY) - 0.5).abs() * 2
        inside += [float((distance <= level).sum()) for level in LEVELS[:-1]] + [float(distance.numel())]
        total += distance.numel()
    return Calibration(tuple((inside / total).tolist()), total)
