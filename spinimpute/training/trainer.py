"""Meta-training of imputation networks: settings, tasks from many genomic segments, validation and log."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.processes import SINGLE_PROCESS, Processes
from spinimpute.training.loop import Report, TrainingLoop, Validation

STATE_FORMAT = "spinimpute-training-state-2"
DRAWING_THREADS = 4  # on a GPU, tasks are drawn while earlier steps run
TASKS_AHEAD = 6  # steps whose tasks are drawn ahead
MAX_SEED = 9_998  # keeps the seeds of training segments below those of held-out segments, see `sources`


@dataclass(frozen=True)
class TrainingSettings:
    """The table [training] of a configuration file. Raises InputError for a value out of its range."""

    steps: int = 3_000
    tasks: int = 1  # number of tasks in a step; processes share them
    optimiser: str = "adam"  # or "lamb", which is combined with Lookahead
    learning_rate: float = 3e-3  # initial value
    flat: float = 0.3  # share of the steps with this learning rate; then it falls to 0 by a cosine schedule
    clip: float = 1.0  # larger gradients are scaled down to this norm
    validate_every: int = 200  # steps
    validation_tasks: int = 24  # number of held-out tasks
    patience: int = 0  # training stops after this many validations without improvement; 0: never
    seed: int = 1  # of weights and tasks

    def __post_init__(self) -> None:
        if self.optimiser not in ("adam", "lamb"):
            raise InputError(
                "content", f"training.optimiser must be 'adam' or 'lamb', got {self.optimiser!r}"
            )
        for name in ("steps", "tasks", "validate_every", "validation_tasks"):
            if getattr(self, name) < 1:
                raise InputError("content", f"training.{name} must be at least 1, got {getattr(self, name)}")
        if self.learning_rate <= 0 or self.clip <= 0 or not 0 <= self.flat <= 1:
            raise InputError(
                "content",
                "training.learning_rate and clip must be positive and training.flat between 0 and 1, "
                f"got {self.learning_rate}, {self.clip}, {self.flat}",
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError("content", f"training.seed must lie in 0..{MAX_SEED}, got {self.seed}")


@dataclass(frozen=True)
class Outcome:
    """Loss and predictions of a model on a task, with n hidden alleles of queries."""

    loss: Tensor  # a scalar, to be minimised
    predicted: np.ndarray  # float32 (n,), probability of ALT or of the minor allele
    truth: np.ndarray  # float32 (n,), 1 if the true allele is this one, otherwise 0
    frequency: np.ndarray  # float32 (n,), frequency of this allele in the context


class Learner(Protocol):
    """A network with the way to draw its tasks and to compute its loss."""

    @property
    def model(self) -> nn.Module:
        """The network that is trained."""

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> object:
        """Draw a task from a segment; segment and generator state determine it."""

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Compute the loss and the predictions of a task; random masks are drawn with `rng`.

        progress: the fraction of the training steps that are done.
        """


DrawnTask = tuple[object, int, np.random.Generator]
Sampler = Callable[[np.random.Generator], HaplotypeSource]
"""Function that draws a segment for a task."""


@dataclass(frozen=True)
class AlleleValidation(Validation):
    """Accuracy on held-out tasks."""

    r2: float  # squared correlation of predicted and true minor alleles, over all hidden alleles


def versions() -> dict[str, str]:
    """Return the versions of Python, spinimpute, torch and numpy: results may depend on them."""
    from importlib.metadata import version

    names = ("spinimpute", "torch", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


class Trainer(TrainingLoop[nn.Module]):
    """Trainer of a learner's model on tasks that are drawn from segments.

    The validation tasks are drawn once, from segments or samples that training never uses. Raises InputError
    if the tasks of a step cannot be shared equally among the processes.
    """

    def __init__(
        self,
        learner: Learner,
        settings: TrainingSettings,
        train_source: Sampler,
        validation_sources: Sequence[HaplotypeSource],
        run: dict[str, Any],
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        if settings.tasks % processes.count:
            raise InputError(
                "content",
                f"training.tasks must be a multiple of the {processes.count} processes, got {settings.tasks}",
            )
        self.learner = learner
        self.settings = settings
        self.train_source = train_source
        held_out = np.random.default_rng([settings.seed, 1])
        self.validation_tasks = [
            learner.draw(validation_sources[i % len(validation_sources)], held_out)
            for i in range(settings.validation_tasks)
        ]
        self._pool: ThreadPoolExecutor | None = None
        self._drawn: dict[tuple[int, int], Future[DrawnTask]] = {}  # by step and number
        parameters = [p for p in learner.model.parameters() if p.requires_grad]
        optimiser: torch.optim.Adam | Lookahead
        if settings.optimiser == "lamb":
            optimiser = Lookahead(Lamb(parameters, lr=settings.learning_rate))
        else:
            optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate, betas=(0.9, 0.98))
        super().__init__(
            learner.model,
            optimiser,
            flat_then_cosine(optimiser, settings.steps, settings.flat),
            steps=settings.steps,
            clip=settings.clip,
            tasks=settings.tasks,
            patience=settings.patience,
            run=run,
            state_format=STATE_FORMAT,
            processes=processes,
        )

    def loss(self, number: int) -> Tensor:
        """Draw a task and return its loss.

        On a GPU it is computed in float32, too: log-likelihoods reach hundreds, and bfloat16 (three digits)
        would round a probability of .999 to 1.
        """
        draw, pool = (self.step, number), self._pool
        if pool is not None:
            for step in range(self.step, min(self.step + TASKS_AHEAD, self.steps)):
                if (step, number) not in self._drawn:
                    self._drawn[step, number] = pool.submit(self._draw, step, number)
        task, seed, rng = self._drawn.pop(draw).result() if draw in self._drawn else self._draw(*draw)
        torch.manual_seed(seed)
        return self.learner.outcome(task, self.step / self.steps, rng).loss

    def _draw(self, step: int, number: int) -> DrawnTask:
        """Draw a task. Return it with torch's seed and the generator of masks."""
        rng = np.random.default_rng([self.settings.seed, 0, step, number])
        seed = int(rng.integers(2**62))
        return self.learner.draw(self.train_source(rng), rng), seed, rng

    def validate(self) -> AlleleValidation:
        """Compute loss and r2 of the held-out tasks."""
        outcomes = self.processes.gather(
            [self._outcome(number) for number in self.processes.own_slice(range(len(self.validation_tasks)))]
        )
        flip = np.concatenate([o.frequency for o in outcomes]) > 0.5
        p = np.concatenate([o.predicted for o in outcomes])
        y = np.concatenate([o.truth for o in outcomes])
        p, y = np.where(flip, 1 - p, p), np.where(flip, 1 - y, y)
        r2 = float(np.corrcoef(p, y)[0, 1] ** 2) if p.std() > 0 and y.std() > 0 else 0.0
        return AlleleValidation(float(np.mean([float(o.loss) for o in outcomes])), r2)

    def _outcome(self, number: int) -> Outcome:
        rng = np.random.default_rng([self.settings.seed, 2, number])
        outcome = self.learner.outcome(self.validation_tasks[number], 1.0, rng)
        return replace(outcome, loss=outcome.loss.cpu())  # CPU tensors can be sent to other processes

    def comparable_run(self, run: dict[str, Any]) -> dict[str, Any]:
        """Select all entries except the number of steps, so that a finished run can be extended."""
        configuration = run["configuration"]
        training = {name: value for name, value in configuration["training"].items() if name != "steps"}
        return run | {"configuration": configuration | {"training": training}}

    def train(
        self,
        report: Callable[[dict[str, Any]], None],
        checkpoint: Callable[[bool], None],
        stepped: Callable[[int], None] | None = None,
    ) -> None:
        """Train to the last step or until patience is exhausted.

        At each validation, call `report` with a log entry, and then `checkpoint` with whether the model is
        the best so far. After each step, call `stepped` with its number.
        """
        started = time.perf_counter()

        def log_validation(progress_report: Report) -> None:
            assert isinstance(progress_report.validation, AlleleValidation)
            assert self.schedule is not None
            report(
                {
                    "step": progress_report.step,
                    "train_loss": round(progress_report.loss, 6),
                    "validation_loss": round(progress_report.validation.loss, 6),
                    "validation_r2": round(progress_report.validation.r2, 5),
                    "learning_rate": self.schedule.get_last_lr()[0],
                    "seconds": round(time.perf_counter() - started, 1),
                }
            )
            checkpoint(progress_report.improved)

        on_gpu = any(parameter.is_cuda for parameter in self.model.parameters())
        with ThreadPoolExecutor(DRAWING_THREADS, "draw") as pool:
            self._pool = pool if on_gpu else None
            try:
                self.take_steps(self.settings.validate_every, log_validation, stepped=stepped)
            finally:
                self._pool = None
                pool.shutdown(cancel_futures=True)
                self._drawn.clear()
        if self.exhausted:
            report({"step": self.step, "stopped": f"no improvement in {self.stale} validations"})
