"""Training with early stopping: keep the weights with the lowest loss on held-out validation rows."""

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
from spinimpute.runtime.progress import Progress
from spinimpute.training.loop import Report, TrainingLoop, Validation

MAX_GRADIENT_NORM = 1.0  # larger gradients are scaled down to this norm


class EarlyStopping(TrainingLoop[nn.Module]):
    """Training loop that ends with the weights of the lowest validation loss.

    Training stops after `patience` validations without a lower loss. Without validation rows,
    `validation_loss` is None; all steps are taken, and the last weights stay. `loss_at` returns the loss of a
    step.
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
        """Return the loss of the current step. Its random rows depend on all earlier steps."""
        return self._loss_at(self.step)

    def validate(self) -> Validation | None:
        """Return the loss of the validation rows, None if there are no such rows."""
        if self._validation_loss is None:
            return None
        self.model.eval()
        return Validation(self._validation_loss())

    def train(self, every: int, verbose: bool | Progress) -> None:
        """Train, and validate after every `every` steps.

        `verbose` prints the losses on standard error; a `Progress` receives the fraction of the steps.
        Raises InputError if a training loss or validation loss is not finite.
        """
        best: dict[str, Any] | None = None

        def record(report: Report) -> None:
            nonlocal best
            if report.validation is not None:
                self.validation_losses.append(report.validation.loss)
            if report.improved:
                best, self.best_step = copy.deepcopy(self.model.state_dict()), report.step
            if callable(verbose):
                verbose(report.step / self.steps)
            elif verbose:
                validation = "" if report.validation is None else f", validation {report.validation.loss:.4f}"
                _print(f"\rstep {report.step} of {self.steps}: loss {report.loss:.4f}{validation}")

        self.take_steps(every, record)
        if verbose is True:
            _print("\n")
        if best is not None:
            self.model.load_state_dict(best)
        self.model.eval()


def _print(text: str) -> None:
    with suppress(OSError):  # an unwritable stderr, such as a file on a full disk, must not stop training
        print(text, end="", file=sys.stderr)
