"""Training loop for any torch module: steps, validation, early stopping, saving and resuming.

Subclasses of `TrainingLoop` train imputation networks, neural processes and networks for tables.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.optimisers import Lookahead
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.processes import SINGLE_PROCESS, Processes, launch_id
from spinimpute.training.state import TrainingState, differences

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class Validation:
    """Result of a validation."""

    loss: float  # mean over the held-out tasks


@dataclass(frozen=True)
class Report:
    """Progress report of a run."""

    step: int  # number of steps so far
    loss: float  # mean training loss since the last report
    validation: Validation | None  # None if there are no held-out tasks
    improved: bool  # whether the validation loss is the lowest so far


class TrainingLoop(ABC, Generic[Network]):
    """Trainer of a module; subclasses define the loss of a task and the validation.

    A step minimises the mean loss of `tasks` tasks. Several processes can share the tasks: each computes the
    gradients of some tasks, then the gradients are added up. All processes therefore have equal weights.
    These are the weights of a single process, except for the rounding of sums (with two: no exception).

    `schedule` changes the learning rate over `steps` steps; None keeps it constant. Gradients with a norm
    above `clip` are scaled down. The run ends after `patience` validations without improvement (0: never).
    `run` (JSON) describes what is trained; only a state with an equal description can be resumed.
    """

    def __init__(
        self,
        model: Network,
        optimiser: Optimizer | Lookahead,
        schedule: LRScheduler | None,
        *,
        steps: int,
        clip: float,
        tasks: int = 1,
        patience: int = 0,
        run: dict[str, Any] | None = None,
        state_format: str = "",
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.model, self.optimiser, self.schedule = model, optimiser, schedule
        self.steps, self.clip, self.tasks, self.patience = steps, clip, tasks, patience
        self.run, self.state_format, self.processes = run or {}, state_format, processes
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.step = 0
        self.best = math.inf
        self.stale = 0

    @abstractmethod
    def loss(self, number: int) -> Tensor:
        """Return the loss of a task of the current step; tasks are numbered from 0.

        For runs that can be resumed, the task and the seed of torch's generator must depend only on
        `self.step` and `number`, not on the process or on earlier random draws.
        """

    def validate(self) -> Validation | None:
        """Compute the loss of the held-out tasks; None if there are no such tasks."""
        return None

    def comparable_run(self, run: dict[str, Any]) -> dict[str, Any]:
        """Select the entries of a description that must be equal to resume a state."""
        return run

    @property
    def exhausted(self) -> bool:
        """Whether `patience` validations in a row have brought no improvement."""
        return 0 < self.patience <= self.stale

    def train_step(self) -> float:
        """Take one step and return the mean loss of its tasks. Raise InputError if it is not finite."""
        self.model.train()
        if self.tasks == 1:
            loss = self._backward(0)
        else:
            own_loss, gradient = self._gradient(self.processes.own_slice(range(self.tasks)))
            loss = sum(self.processes.gather([own_loss]))
            self.processes.sum_all(gradient)
            for parameter, part in zip(self.parameters, gradient, strict=True):
                parameter.grad = part
        if not math.isfinite(loss):
            raise InputError(
                "content",
                f"training diverged: the loss of step {self.step + 1} is {loss}. Lower the learning rate.",
            )
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimiser.step()
        if self.schedule is not None:
            self.schedule.step()
        self.step += 1
        return loss

    def _backward(self, number: int) -> float:
        """Return a task's part of the step's loss, and set its gradient in the parameters."""
        loss = self.loss(number) / self.tasks
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.detach())

    def _gradient(self, numbers: Sequence[int]) -> tuple[float, list[Tensor]]:
        """Return these tasks' part of the step's loss, and its gradient.

        The two halves of the tasks are summed separately and then added, so that two processes with one half
        each get exactly this sum.
        """
        if len(numbers) > 1:
            half = len(numbers) // 2
            left_loss, gradient = self._gradient(numbers[:half])
            right_loss, right_gradient = self._gradient(numbers[half:])
            return left_loss + right_loss, [a.add_(b) for a, b in zip(gradient, right_gradient, strict=True)]
        loss = self._backward(numbers[0])
        # a parameter may have a gradient only in other tasks of the step
        return loss, [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]

    def take_steps(
        self,
        every: int,
        report: Callable[[Report], None],
        until: int | None = None,
        stepped: Callable[[int], None] | None = None,
    ) -> None:
        """Train to the last step, to step `until`, or until patience is exhausted.

        After `every` steps and after the last step, validate and call `report`. After each step, call
        `stepped` with its number. Raises InputError if a loss is not finite.
        """
        stop = self.steps if until is None else min(self.steps, until)
        losses: list[float] = []
        while self.step < stop and not self.exhausted:
            losses.append(self.train_step())
            if stepped is not None:
                stepped(self.step)
            if self.step % every and self.step < stop:
                continue
            report(self._validate_now(sum(losses) / len(losses)))
            losses = []

    def _validate_now(self, loss: float) -> Report:
        with torch.no_grad():
            validation = self.validate()
        if validation is None:
            return Report(self.step, loss, None, False)
        if not math.isfinite(validation.loss):
            raise InputError(
                "content",
                f"training diverged: the validation loss is {validation.loss} after step {self.step}. Lower "
                "the learning rate, or look for extreme values in the data.",
            )
        improved = validation.loss < self.best
        self.best = min(self.best, validation.loss)
        self.stale = 0 if improved else self.stale + 1
        return Report(self.step, loss, validation, improved)

    def save_state(self, path: str | Path) -> None:
        """Write the state of the run, for `restore_state`. On a CPU, a restored run is bit-identical."""
        schedule = self.schedule
        content = {
            "weights": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": None
            if schedule is None
            else {"last_epoch": schedule.last_epoch, "_last_lr": schedule.get_last_lr()},
        }
        state = TrainingState(self.run, self.step, self.best, self.stale, launch_id(), content)
        state.save(path, self.state_format)

    def restore_state(self, path: str | Path) -> None:
        """Continue from a file that `save_state` wrote.

        Raises InputError if the file is missing or damaged, or is the state of another run or network.
        """
        state = TrainingState.load(path, self.state_format)
        own_run: dict[str, Any] = json.loads(json.dumps(self.run))
        differing = differences(self.comparable_run(state.run), self.comparable_run(own_run))
        if differing:
            raise InputError(
                "mismatch",
                f"training state {path} belongs to another run ({'; '.join(differing[:3])}). Resume with the "
                f"same settings, or start again with {argument('force', True)}.",
            )
        try:
            self.model.load_state_dict(state.content["weights"])
            self.optimiser.load_state_dict(state.content["optimiser"])
            if self.schedule is not None:
                self.schedule.last_epoch = state.content["schedule"]["last_epoch"]
                self.schedule._last_lr = state.content["schedule"]["_last_lr"]
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "mismatch",
                f"training state {path} holds the weights of another network. Start again with "
                f"{argument('force', True)}.",
            ) from error
        self.step, self.best, self.stale = state.step, state.best, state.stale
