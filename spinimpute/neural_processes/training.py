"""Training on tasks: Adam, cosine to nothing, resumable, the same on every run with the same seed (CPU)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from spinimpute.errors import InputError
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, Task, draw_tasks
from spinimpute.neural_processes.models import ModelSettings, NeuralProcess, make_model
from spinimpute.nn.model_weights import (
    arrays_of,
    flatten_state,
    load_weights,
    network_of,
    restore_training,
    tensors_of,
    unflatten_state,
)
from spinimpute.nn.shapes import require_count, require_positive
from spinimpute.tensor_files import fingerprint, load_tensors, save_tensors

MODEL_FORMAT = "spinimpute-neural-process-2"
STATE_FORMAT = "spinimpute-neural-process-state-2"
DrawTask = Callable[[int], Task]
"""Gives the task of a step."""


@dataclass(frozen=True)
class TrainingSettings:
    """steps: updates (the paper: 100,000); learning_rate: at the start, by cosine to 0; clip: gradient norm;
    seed: of weights, tasks and samples; bfloat16: autocast."""

    steps: int = 100_000
    learning_rate: float = 5e-4
    clip: float = 10.0
    seed: int = 1
    bfloat16: bool = False

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        object.__setattr__(self, "steps", int(self.steps))  # not numpy's, which files cannot hold
        for name in ("learning_rate", "clip"):
            require_positive(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))


class Trainer:
    """One model and its optimiser. `draw` gives the task of each step, so that a resumed run sees the same.

    described: what tasks are, kept in files. start: a model of the same kind and sizes, with whose weights
    this one begins; floor and samples may differ. Raises InputError if anything else does.
    """

    def __init__(
        self,
        model_settings: ModelSettings,
        settings: TrainingSettings,
        draw: DrawTask,
        described: dict[str, Any],
        device: torch.device | str = "cpu",
        start: NeuralProcess | None = None,
    ) -> None:
        self.settings, self.draw, self.device = settings, draw, torch.device(device)
        torch.manual_seed(settings.seed)
        self.model = make_model(model_settings).to(self.device)
        begun_with = {} if start is None else arrays_of(start.state_dict())
        if start is not None:
            _check_alike(model_settings, start.settings)
            load_weights(self.model, begun_with)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, settings.steps)
        self.step = 0
        self.run = {
            "model": asdict(model_settings),
            "training": asdict(settings),
            "tasks": described,
            "start": None if start is None else fingerprint(begun_with),
        }

    def train_step(self) -> float:
        """One update; returns its loss. Raises InputError if it is not finite."""
        task = self.draw(self.step)
        # samples of a step do not depend on whether the run was resumed before it
        torch.manual_seed((self.settings.seed * 1_000_003 + self.step) % 2**63)
        self.model.train()
        # weights that are cast where no gradient is kept must not serve where one is: older torch keeps them
        bfloat16 = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.settings.bfloat16, cache_enabled=False
        )
        with bfloat16:
            loss = self.model.loss(task)
        if not torch.isfinite(loss):
            raise InputError(
                f"training diverged at step {self.step + 1}: the loss is {float(loss.detach())}; lower the "
                "learning rate"
            )
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimiser.step()
        self.schedule.step()
        self.step += 1
        return float(loss.detach())

    def train(
        self,
        until: int | None = None,
        report: Callable[[int, float], None] | None = None,
        checkpoint: Callable[[], None] | None = None,
        every: int = 500,
    ) -> float:
        """Train to the end, or to step `until`; returns the seconds it took.

        report: told the step and the mean loss since the last time, every so many steps; checkpoint: called
        then.
        """
        started, losses = time.perf_counter(), []
        stop = min(self.settings.steps, until or self.settings.steps)
        while self.step < stop:
            losses.append(self.train_step())
            if self.step % every == 0 or self.step == stop:
                if report is not None:
                    report(self.step, sum(losses) / len(losses))
                if checkpoint is not None:
                    checkpoint()
                losses = []
        return time.perf_counter() - started

    def save(self, path: str | Path) -> None:
        """The model, with all that rebuilds it. Raises InputError if it cannot be written."""
        metadata = self.run | {"step": self.step}
        save_tensors(path, arrays_of(self.model.state_dict()), metadata, MODEL_FORMAT)

    def save_state(self, path: str | Path) -> None:
        """All that `resume` needs."""
        tensors: dict[str, torch.Tensor] = {}
        plain = flatten_state(
            {
                "weights": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "schedule": self.schedule.state_dict(),
            },
            "",
            tensors,
        )
        metadata = {"run": self.run, "plain": plain, "step": self.step}
        save_tensors(path, arrays_of(tensors), metadata, STATE_FORMAT)

    def resume(self, path: str | Path) -> None:
        """Continue from `save_state`, bit for bit on the CPU. Raises InputError if it is of another run."""
        tensors, metadata = load_tensors(path, STATE_FORMAT, "training state")
        run = metadata["run"]
        # what was saved before there were such settings has their defaults
        model = {"readings": ModelSettings.readings} | run.get("model", {})
        before = {"start": None} | run | {"model": model}
        if before != json.loads(json.dumps(self.run)):
            raise InputError(
                f"training state {path} belongs to other settings; resume with those it was made with: "
                f"{json.dumps(metadata['run'])}"
            )
        saved = unflatten_state(metadata["plain"], tensors_of(tensors))
        restore_training(self.model, self.optimiser, saved, path)
        self.schedule.load_state_dict(saved["schedule"])
        self.step = metadata["step"]


def gaussian_trainer(
    model: ModelSettings,
    settings: TrainingSettings,
    tasks: ProcessSettings,
    device: torch.device | str = "cpu",
    start: NeuralProcess | None = None,
) -> Trainer:
    """A trainer on tasks of Gaussian processes, drawn on the device. start: see `Trainer`.

    Raises InputError if the model's dimensions are not those of the tasks, too.
    """
    sizes, wanted = (model.x_size, model.y_size), (tasks.x_size, tasks.y_size)
    if sizes != wanted:
        raise InputError(
            f"the model takes {sizes[0]} inputs and gives {sizes[1]} outputs, the tasks have {wanted[0]} and "
            f"{wanted[1]}"
        )
    return Trainer(
        model,
        settings,
        lambda step: draw_tasks(tasks, settings.seed, step, device)[0],
        {"gaussian": asdict(tasks)},
        device,
        start,
    )


def _check_alike(model: ModelSettings, start: ModelSettings) -> None:
    theirs = asdict(start)
    differ = [
        f"{name} {value}, there {theirs[name]}"
        for name, value in asdict(model).items()
        if value != theirs[name] and name not in ("floor", "samples")
    ]
    if differ:
        raise InputError(f"the weights to begin with are of another model: {'; '.join(differ)}")


def load_model(path: str | Path, device: torch.device | str = "cpu") -> tuple[NeuralProcess, dict[str, Any]]:
    """A model that `Trainer.save` wrote, ready to predict, and its description.

    Raises InputError if the file is missing, damaged, or of something else.
    """
    arrays, metadata = load_tensors(path, MODEL_FORMAT, "neural process")
    try:
        settings = ModelSettings(**metadata["model"])
        model = network_of(lambda: make_model(settings), arrays)
        if not isinstance(metadata["tasks"], dict):
            raise TypeError(f"tasks: {metadata['tasks']!r}")
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        said = str(error).partition("\n")[0][:200]
        raise InputError(f"neural process {path}: it does not fit its own description ({said})") from error
    return model.to(device).eval(), metadata
