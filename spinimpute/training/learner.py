"""What training needs of a model: draw a task, give its loss, score a validation task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from spinimpute.genotypes.blocks import HaplotypeSource


@dataclass(frozen=True)
class Outcome:
    """loss: scalar to minimise; predicted, truth, frequency: float32 (n,), one entry a hidden allele."""

    loss: Tensor
    predicted: np.ndarray
    truth: np.ndarray
    frequency: np.ndarray


class Learner(Protocol):
    """A model with its tasks; `progress` is the fraction of the training that is done."""

    @property
    def model(self) -> nn.Module: ...
    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> object: ...
    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome: ...
