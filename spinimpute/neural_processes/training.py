"""Training of neural processes with Adam and a cosine schedule, and files of trained models.

Training can be interrupted and resumed. On a CPU, equal seeds give equal models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, TaskBatch, draw_tasks
from spinimpute.neural_processes.models import NeuralProcess, make_model
from spinimpute.neural_processes.settings import ModelSettings
from spinimpute.nn.checks import require_count, require_positive
from spinimpute.nn.model_weights import arrays_of, load_weights, network_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import fingerprint, load_tensors, save_tensors
from spinimpute.training.loop import Report, TrainingLoop, Validation

MODEL_FORMAT = "spinimpute-neural-process-3"
STATE_FORMAT = "spinimpute-neural-process-state-3"
DrawBatch = Callable[[int], TaskBatch]  # returns the batch of tasks for the number of a step


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training."""

    steps: int = 100_000  # as in the SPIN paper
    learning_rate: float = 5e-4  # initial value; falls to 0 by a cosine schedule
    clip: float = 10.0  # larger gradients are scaled down to this norm
    seed: int = 1  # of weights, tasks and samples
    bfloat16: bool = False  # compute in bfloat16 where autocast allows it

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        object.__setattr__(self, "steps", int(self.steps))  # JSON cannot store NumPy's types
        for name in ("learning_rate", "clip"):
            require_positive(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))


class NeuralProcessTrainer(TrainingLoop[NeuralProcess]):
    """Trainer of one model.

    `draw` returns the tasks of a step, which must depend only on the step's number. `tasks` (JSON) describes
    them in the files of the model. Training starts from the weights of `start`, if given. `start` must be a
    model of the same kind and sizes (floor, samples and objective may differ), otherwise InputError is
    raised. Reports include the loss of the batches `held_out`, if any.
    """

    def __init__(
        self,
        model_settings: ModelSettings,
        settings: TrainingSettings,
        draw: DrawBatch,
        tasks: dict[str, Any],
        device: torch.device | str = "cpu",
        start: NeuralProcess | None = None,
        held_out: Sequence[TaskBatch] = (),
    ) -> None:
        self.settings, self.draw, self.device = settings, draw, torch.device(device)
        self.held_out = held_out
        torch.manual_seed(settings.seed)
        model = make_model(model_settings).to(self.device)
        start_weights = {} if start is None else arrays_of(start.state_dict())
        if start is not None:
            _require_same_model(model_settings, start.settings)
            load_weights(model, start_weights)
        optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        super().__init__(
            model,
            optimiser,
            torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps),
            steps=settings.steps,
            clip=settings.clip,
            run={
                "model": asdict(model_settings),
                "training": asdict(settings),
                "tasks": tasks,
                "start": None if start is None else fingerprint(start_weights),
            },
            state_format=STATE_FORMAT,
        )

    def loss(self, number: int) -> Tensor:
        """Return the loss of the current step's batch of tasks."""
        task = self.draw(self.step)
        torch.manual_seed((self.settings.seed * 1_000_003 + self.step) % 2**63)
        # no cache: older torch would reuse weights cast under no_grad where gradients are needed
        bfloat16 = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.settings.bfloat16, cache_enabled=False
        )
        with bfloat16:
            return self.model.loss(task)

    def validate(self) -> Validation | None:
        """Compute the mean negative log-likelihood of the targets of held-out tasks, if there are any."""
        if not self.held_out:
            return None
        self.model.eval()
        torch.manual_seed(self.settings.seed)
        losses = [-float(self.model.log_likelihood(task).mean()) for task in self.held_out]
        return Validation(sum(losses) / len(losses))

    def train(
        self,
        until: int | None = None,
        report: Callable[[Report], None] | None = None,
        checkpoint: Callable[[], None] | None = None,
        every: int = 500,
    ) -> float:
        """Train to the last step, or to step `until`, and return the time taken in seconds.

        After every `every` steps, `report` is called, and then `checkpoint`. Raises InputError if a loss is
        not finite.
        """
        started = time.perf_counter()

        def handle(progress: Report) -> None:
            if report is not None:
                report(progress)
            if checkpoint is not None:
                checkpoint()

        self.take_steps(every, handle, until)
        return time.perf_counter() - started

    def save(self, path: str | Path) -> None:
        """Write the model and its description. Raise InputError if the file cannot be written."""
        metadata = self.run | {"step": self.step}
        save_tensors(path, arrays_of(self.model.state_dict()), metadata, MODEL_FORMAT)


def gaussian_trainer(
    model: ModelSettings,
    settings: TrainingSettings,
    tasks: ProcessSettings,
    device: torch.device | str = "cpu",
    start: NeuralProcess | None = None,
) -> NeuralProcessTrainer:
    """Make a `NeuralProcessTrainer` whose tasks are drawn from Gaussian processes."""
    check_sizes(model, tasks)
    return NeuralProcessTrainer(
        model,
        settings,
        lambda step: draw_tasks(tasks, settings.seed, step, device)[0],
        {"gaussian": asdict(tasks)},
        device,
        start,
    )


def check_sizes(model: ModelSettings, tasks: ProcessSettings) -> None:
    """Raise InputError if the model and the tasks differ in dimensions or outputs are binary."""
    if model.is_binary:
        raise InputError(
            "mismatch", "Gaussian processes have continuous outputs, the model has binary outputs"
        )
    sizes, expected = (model.x_size, model.y_size), (tasks.x_size, tasks.y_size)
    if sizes != expected:
        raise InputError(
            "mismatch",
            f"the model has {sizes[0]} inputs and {sizes[1]} outputs, the tasks have {expected[0]} "
            f"and {expected[1]}",
        )


def _require_same_model(model: ModelSettings, start: ModelSettings) -> None:
    start_settings = asdict(start)
    differing = [
        f"{name} {start_settings[name]} instead of {value}"
        for name, value in asdict(model).items()
        if value != start_settings[name] and name not in ("floor", "samples", "objective")
    ]
    if differing:
        raise InputError("mismatch", f"the initial weights are of another model: {'; '.join(differing)}")


def load_model(path: str | Path, device: torch.device | str = "cpu") -> tuple[NeuralProcess, dict[str, Any]]:
    """Read a model and its description: a dict with model, training, tasks, start and step.

    Raises InputError if the file is missing, damaged or of another format.
    """
    arrays, metadata = load_tensors(path, MODEL_FORMAT, "neural process")
    with report_disagreement(f"neural process {path}"):
        model = model_of(metadata["model"], arrays)
        if not isinstance(metadata["tasks"], dict):
            raise TypeError(f"tasks: {metadata['tasks']!r}")
    return model.to(device).eval(), metadata


def model_of(settings: dict[str, Any], weights: Mapping[str, np.ndarray]) -> NeuralProcess:
    """Return the model of these settings and weights of a file; call it inside `report_disagreement`."""
    model_settings = ModelSettings(**settings)
    return network_of(lambda: make_model(model_settings), weights)


@contextmanager
def report_disagreement(file: str) -> Iterator[None]:
    """Convert errors in the `with` block, which reads the description of `file`, to InputError."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError("content", f"{file}: weights and description do not agree ({reason})") from error
