"""Training with early stopping on rows that are kept apart."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.optimisers import Lookahead
from spinimpute.training.loop import Report, TrainingLoop, Validation

CLIP = 1.0  # of the gradient's norm


class EarlyStopping(TrainingLoop[nn.Module]):
    """Trains a network on rows, and leaves it with the weights that validated best.

    Parameters
    ----------
    network, optimiser, schedule
        What is trained.
    loss_at : callable
        Loss of a step.
    validation_loss : callable, optional
        Loss of the rows kept apart; without it the last weights stay.
    steps : int
        At most.
    patience : int
        Validations without a better one before training ends.

    Attributes
    ----------
    validation_losses : list of float
    best_step : int
        Steps that the weights took which the network is left with.
    """

    def __init__(
        self,
        network: nn.Module,
        optimiser: Optimizer | Lookahead,
        schedule: LRScheduler | None,
        loss_at: Callable[[int], Tensor],
        validation_loss: Callable[[], float] | None,
        *,
        steps: int,
        patience: int,
    ) -> None:
        super().__init__(network, optimiser, schedule, steps=steps, clip=CLIP, patience=patience)
        self._loss_at, self._validation_loss = loss_at, validation_loss
        self.validation_losses: list[float] = []
        self.best_step = steps

    def loss(self, number: int) -> Tensor:
        """Loss of the step; its rows follow from those drawn before."""
        return self._loss_at(self.step)

    def validate(self) -> Validation | None:
        """Loss of the rows kept apart."""
        if self._validation_loss is None:
            return None
        self.model.eval()
        return Validation(self._validation_loss())

    def train(self, every: int, verbose: bool) -> None:
        """Train to the end or until patience is exhausted.

        Parameters
        ----------
        every : int
            Steps between validations.
        verbose : bool
            Whether to report progress on the standard error stream.

        Raises
        ------
        InputError
            The loss of a step, or of a validation, is not finite.
        """
        best: dict[str, Any] | None = None

        def reported(found: Report) -> None:
            nonlocal best
            if found.validation is not None:
                self.validation_losses.append(found.validation.loss)
            if found.improved:
                best, self.best_step = copy.deepcopy(self.model.state_dict()), found.step
            if verbose:
                said = "" if found.validation is None else f", validation {found.validation.loss:.4f}"
                text = f"\rstep {found.step} of {self.steps}: loss {found.loss:.4f}{said}"
                _print(text)

        self.take_steps(every, reported)
        if verbose:
            _print("\n")
        if best is not None:
            self.model.load_state_dict(best)
        self.model.eval()


def _print(text: str) -> None:
    with suppress(OSError):  # stderr cannot be written, such as on a full disk: that ends no training
        print(text, end="", file=sys.stderr)
