"""Accuracy of a neural process: log-likelihood beside the oracle's, and calibration.

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

HELD_OUT_SEED = 987_654_321  # no training with a smaller seed sees these tasks
LEVELS = tuple(i / 10 for i in range(11))  # of central intervals


@dataclass(frozen=True)
class Score:
    """Means over held-out tasks, per target."""

    log_likelihood: float
    se: float  # standard error of the model's mean over batches
    oracle: float  # log-likelihood of the oracle, which knows the process
    floored: float  # log-likelihood of the oracle with the model's floor on the standard deviation

    @property
    def gap(self) -> float:
        """Difference of the floored oracle's log-likelihood and the model's."""
        return self.floored - self.log_likelihood


@torch.no_grad()
def score(
    model: NeuralProcess,
    tasks: ProcessSettings,
    batches: int,
    samples: int = 50,
    device: torch.device | str = "cpu",
    seed: int = HELD_OUT_SEED,
) -> Score:
    """Log-likelihood of targets of held-out tasks, beside the oracle's on the same tasks.

    `samples` is the number of samples of models that draw.
    """
    model.eval()
    rows = []
    for number in range(batches):
        task, process = draw_tasks(tasks, seed, number, device)
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
    """P(y' <= y) under a Normal or a mixture of Normals, with the shape of y."""
    if isinstance(distribution, MixtureSameFamily):
        return distribution.component_distribution.cdf(y[..., None]).mean(-1)
    assert isinstance(distribution, Normal)
    return distribution.cdf(y)


@dataclass(frozen=True)
class Calibration:
    """Coverage of central intervals."""

    inside: tuple[float, ...]  # share of targets in the central interval of each of LEVELS
    targets: int

    @property
    def error(self) -> float:
        """Mean squared distance from the 45 degree line, equation 1 of the SPIN paper's appendix A.6."""
        return float(np.mean([(p - level) ** 2 for p, level in zip(self.inside, LEVELS, strict=True)]))


@torch.no_grad()
def calibration(
    model: NeuralProcess,
    tasks: ProcessSettings,
    context: int,
    batches: int,
    samples: int = 50,
    device: torch.device | str = "cpu",
    seed: int = HELD_OUT_SEED,
) -> Calibration:
    """Coverage of all targets, for this number of context points; other parameters as in `score`."""
    model.eval()
    settings = replace(tasks, context=(context, context))
    inside, total = np.zeros(len(LEVELS)), 0
    for number in range(batches):
        task, _ = draw_tasks(settings, seed, number, device)
        torch.manual_seed(number)
        predicted = model(task.x_BNX, task.y_BNY, task.x_BQX, samples)
        distance = (cdf(predicted, task.y_BQY) - 0.5).abs() * 2
        inside += [float((distance <= level).sum()) for level in LEVELS[:-1]] + [float(distance.numel())]
        total += distance.numel()
    return Calibration(tuple((inside / total).tolist()), total)
