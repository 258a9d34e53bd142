"""What training needs of a model: draw a task, give its loss, score a validation task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from spinimpute.genotypes.blocks import HaplotypeSource


@dataclass(frozen=True)
class Outcome:
    """What a model made of a task; one entry a hidden allele.

    Attributes
    ----------
    loss : Tensor ()
        To be minimised.
    predicted : float32 (n,)
        Probability of the allele that `truth` counts: ALT, or the minor one.
    truth : float32 (n,)
        0 or 1.
    frequency : float32 (n,)
        Of that allele in the context.
    """

    loss: Tensor
    predicted: np.ndarray
    truth: np.ndarray
    frequency: np.ndarray


class Learner(Protocol):
    """A model with its tasks.

    `draw` gives a task from a segment: the same one for the same generator state. `outcome` scores a task;
    `progress` is the fraction of the training that is done.
    """

    @property
    def model(self) -> nn.Module: ...
    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> object: ...
    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome: ...
