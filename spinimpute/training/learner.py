"""What training needs of a model: draw a task, give its loss, score a validation task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from spinimpute.genotypes.blocks import HaplotypeSource


@dataclass(frozen=True)
class Outcome:
    """A model's loss and predictions on a task; one entry for each hidden allele.

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
    """A model with its tasks."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> object:
        """Draw a task from a segment; the same generator state gives the same task."""

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Score a task.

        Parameters
        ----------
        task : object
            What `draw` returned.
        progress : float
            Fraction of the training that is done.
        rng : numpy.random.Generator
            For random masks.

        Returns
        -------
        Outcome
            Loss and predictions.
        """
