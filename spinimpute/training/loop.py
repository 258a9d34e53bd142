"""Meta-training across genomic segments: the loop, its state, its log, for any model."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinimpute.errors import InputError
from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.nn.model_weights import (
    arrays_of,
    flatten_state,
    restore_training,
    tensors_of,
    unflatten_state,
)
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine
from spinimpute.processes import ALONE, Processes, launch
from spinimpute.tensor_files import load_tensors, save_tensors
from spinimpute.training.learner import Learner, Outcome

STATE_FORMAT = "spinimpute-training-state-2"
LARGEST_SEED = 9_998  # each seed has its own simulated segments


@dataclass(frozen=True)
class TrainingSettings:
    """steps: updates; optimiser: "adam" or "lamb" (with Lookahead); learning_rate: constant for the part
    `flat` of the steps, then by cosine to 0; clip: gradient norm; validate_every: steps between validations;
    validation_tasks: number of held-out tasks; patience: validations without improvement after which training
    stops (0: never); seed: of weights and tasks; tasks: of an update, shared out among processes.
    """

    steps: int = 3_000
    tasks: int = 1
    optimiser: str = "adam"
    learning_rate: float = 3e-3
    flat: float = 0.3
    clip: float = 1.0
    validate_every: int = 200
    validation_tasks: int = 24
    patience: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.optimiser not in ("adam", "lamb"):
            raise InputError(f"training.optimiser must be 'adam' or 'lamb', found {self.optimiser!r}")
        for name in ("steps", "tasks", "validate_every", "validation_tasks"):
            if getattr(self, name) < 1:
                raise InputError(f"training.{name} must be at least 1, found {getattr(self, name)}")
        if self.learning_rate <= 0 or self.clip <= 0 or not 0 <= self.flat <= 1:
            raise InputError(
                "training.learning_rate and clip must be positive and training.flat between 0 and 1, "
                f"found {self.learning_rate}, {self.clip}, {self.flat}"
            )
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InputError(f"training.seed must lie in 0..{LARGEST_SEED}, found {self.seed}")


Sampler = Callable[[np.random.Generator], HaplotypeSource]
"""Gives a segment to draw a task from."""


@dataclass(frozen=True)
class Validation:
    """loss: mean over held-out tasks; r2: pooled over their hidden alleles, as minor-allele dosages."""

    loss: float
    r2: float


def versions() -> dict[str, str]:
    """Versions that a result may depend on."""
    from importlib.metadata import version

    names = ("spinimpute", "torch", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


class Trainer:
    """Trains a learner's model; `state` and `restore` continue it bit for bit on the CPU.

    train_source, validation_sources: where tasks come from; validation tasks are drawn once, from segments or
    people that are never trained on. processes: that share out the tasks; all have the same weights at every
    step, and the same as one process would have, but for how sums are rounded (not even that, of two).
    Raises InputError if there are fewer tasks in an update than processes.
    """

    def __init__(
        self,
        learner: Learner,
        settings: TrainingSettings,
        train_source: Sampler,
        validation_sources: Sequence[HaplotypeSource],
        processes: Processes = ALONE,
    ) -> None:
        if settings.tasks % processes.count:
            raise InputError(
                f"training.tasks must be a multiple of the {processes.count} processes, found "
                f"{settings.tasks}"
            )
        self.learner = learner
        self.processes = processes
        self.settings = settings
        self.train_source = train_source
        self.step = 0
        self.best = float("inf")
        self.stale = 0
        held_out = np.random.default_rng([settings.seed, 1])
        self.validation_tasks = [
            learner.draw(validation_sources[i % len(validation_sources)], held_out)
            for i in range(settings.validation_tasks)
        ]
        parameters = [p for p in learner.model.parameters() if p.requires_grad]
        self.optimiser: torch.optim.Adam | Lookahead
        if settings.optimiser == "lamb":
            self.optimiser = Lookahead(Lamb(parameters, lr=settings.learning_rate))
        else:
            self.optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate, betas=(0.9, 0.98))
        self.schedule = flat_then_cosine(self.optimiser, settings.steps, settings.flat)
        self.parameters = parameters

    @property
    def exhausted(self) -> bool:
        """Whether too many validations have brought no improvement."""
        return 0 < self.settings.patience <= self.stale

    def train_step(self) -> float:
        """One update; returns its loss."""
        numbers = self.processes.mine(range(self.settings.tasks))
        mine, gradient = self._gradient(numbers)
        loss = sum(self.processes.joined([mine]))
        if not math.isfinite(loss):
            raise InputError(
                f"training diverged: the loss of step {self.step + 1} is {loss}; lower training.learning_rate"
            )
        self.processes.add_up(gradient)
        for parameter, part in zip(self.parameters, gradient, strict=True):
            parameter.grad = part
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimiser.step()
        self.schedule.step()
        self.step += 1
        return loss

    def _gradient(self, numbers: Sequence[int]) -> tuple[float, list[Tensor]]:
        """Of these tasks of the step: their share of the mean loss, and its gradient. Halves are added up:
        two processes that have a half each then come to the same sum, to the last bit."""
        if len(numbers) > 1:
            half = len(numbers) // 2
            left, gradient = self._gradient(numbers[:half])
            right, more = self._gradient(numbers[half:])
            return left + right, [a.add_(b) for a, b in zip(gradient, more, strict=True)]
        # a task depends on its number alone: not on the process, nor on whether the run was resumed
        rng = np.random.default_rng([self.settings.seed, 0, self.step, numbers[0]])
        torch.manual_seed(int(rng.integers(2**62)))
        task = self.learner.draw(self.train_source(rng), rng)
        device = self.parameters[0].device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = self.learner.outcome(task, self.step / self.settings.steps, rng).loss / self.settings.tasks
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.detach()), [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self.parameters
        ]

    @torch.no_grad()
    def validate(self) -> Validation:
        """Score the held-out tasks."""
        outcomes = self.processes.joined(
            [self._validated(number) for number in self.processes.mine(range(len(self.validation_tasks)))]
        )
        flip = np.concatenate([o.frequency for o in outcomes]) > 0.5
        p = np.concatenate([o.predicted for o in outcomes])
        y = np.concatenate([o.truth for o in outcomes])
        p, y = np.where(flip, 1 - p, p), np.where(flip, 1 - y, y)
        r2 = float(np.corrcoef(p, y)[0, 1] ** 2) if p.std() > 0 and y.std() > 0 else 0.0
        return Validation(float(np.mean([float(o.loss) for o in outcomes])), r2)

    def _validated(self, number: int) -> Outcome:
        rng = np.random.default_rng([self.settings.seed, 2, number])
        outcome = self.learner.outcome(self.validation_tasks[number], 1.0, rng)
        return replace(outcome, loss=outcome.loss.cpu())  # it may go to another process

    def run(self, report: Callable[[dict[str, Any]], None], checkpoint: Callable[[bool], None]) -> None:
        """Train to the end or until patience is exhausted.

        report: gets a log entry at each validation; checkpoint: called after it, with whether the model is
        the best so far.
        """
        started, losses = time.perf_counter(), []
        while self.step < self.settings.steps and not self.exhausted:
            losses.append(self.train_step())
            if self.step % self.settings.validate_every and self.step < self.settings.steps:
                continue
            validation = self.validate()
            if not np.isfinite(validation.loss):
                raise InputError(
                    f"training diverged: the validation loss at step {self.step} is {validation.loss}; lower "
                    "training.learning_rate"
                )
            improved = validation.loss < self.best
            self.best = min(self.best, validation.loss)
            self.stale = 0 if improved else self.stale + 1
            report(
                {
                    "step": self.step,
                    "train_loss": round(float(np.mean(losses)), 6),
                    "validation_loss": round(validation.loss, 6),
                    "validation_r2": round(validation.r2, 5),
                    "learning_rate": self.schedule.get_last_lr()[0],
                    "seconds": round(time.perf_counter() - started, 1),
                }
            )
            checkpoint(improved)
            losses = []
        if self.exhausted:
            report({"step": self.step, "stopped": f"no improvement in {self.stale} validations"})

    def save_state(self, path: str | Path, run: dict[str, Any]) -> None:
        """Everything that `restore_state` needs to continue bit for bit. run: JSON, what is being trained."""
        tensors: dict[str, Tensor] = {}
        plain = flatten_state(
            {
                "weights": self.learner.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "schedule": {"last_epoch": self.schedule.last_epoch, "_last_lr": self.schedule.get_last_lr()},
            },
            "",
            tensors,
        )
        metadata = {
            "run": run,
            "plain": plain,
            "step": self.step,
            "best": self.best,
            "stale": self.stale,
            "launch": launch(),
        }
        save_tensors(path, arrays_of(tensors), metadata, STATE_FORMAT)

    def restore_state(self, path: str | Path, run: dict[str, Any]) -> None:
        """Continue from `save_state`. Raises InputError if the state belongs to another run."""
        tensors, metadata = load_tensors(path, STATE_FORMAT, "training state")
        if _apart_from_steps(metadata["run"]) != _apart_from_steps(run):
            raise InputError(
                f"training state {path} belongs to another configuration, seed, start or panel: resume with "
                "those, or start anew with --force"
            )
        saved = unflatten_state(metadata["plain"], tensors_of(tensors))
        restore_training(self.learner.model, self.optimiser, saved, path)
        self.schedule.last_epoch = saved["schedule"]["last_epoch"]
        self.schedule._last_lr = saved["schedule"]["_last_lr"]
        self.step, self.best, self.stale = metadata["step"], metadata["best"], metadata["stale"]


def _apart_from_steps(run: dict[str, Any]) -> dict[str, Any]:
    """A run's description without its length: a finished run may be made longer."""
    configuration = run["configuration"]
    training = {name: value for name, value in configuration["training"].items() if name != "steps"}
    return run | {"configuration": configuration | {"training": training}}
