"""Training with early stopping on validation rows."""

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

MAX_GRADIENT_NORM = 1.0  # largest norm of the gradient


class EarlyStopping(TrainingLoop[nn.Module]):
    """Train a network and leave it with the weights that validated best, or else with the last ones.

    `validation_loss` is None without validation rows. Training stops after `patience` validations without a
    better loss.
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
        super().__init__(network, optimiser, schedule, steps=steps, clip=MAX_GRADIENT_NORM, patience=patience)
        self._loss_at, self._validation_loss = loss_at, validation_loss
        self.validation_losses: list[float] = []
        self.best_step = steps

    def loss(self, number: int) -> Tensor:
        """Loss of the step; its rows depend on the draws of the steps before."""
        return self._loss_at(self.step)

    def validate(self) -> Validation | None:
        """Loss of the validation rows."""
        if self._validation_loss is None:
            return None
        self.model.eval()
        return Validation(self._validation_loss())

    def train(self, every: int, verbose: bool) -> None:
        """Train with a validation every `every` steps; `verbose` reports progress on standard error.

        Raises InputError if the loss of a step, or of a validation, is not finite.
        """
        best: dict[str, Any] | None = None

        def record(report: Report) -> None:
            nonlocal best
            if report.validation is not None:
                self.validation_losses.append(report.validation.loss)
            if report.improved:
                best, self.best_step = copy.deepcopy(self.model.state_dict()), report.step
            if verbose:
                validation = "" if report.validation is None else f", validation {report.validation.loss:.4f}"
                _print(f"\rstep {report.step} of {self.steps}: loss {report.loss:.4f}{validation}")

        self.take_steps(every, record)
        if verbose:
            _print("\n")
        if best is not None:
            self.model.load_state_dict(best)
        self.model.eval()


def _print(text: str) -> None:
    with suppress(OSError):  # an unwritable stderr, such as a file on a full disk, must not stop training
        print(text, end="", file=sys.stderr)
