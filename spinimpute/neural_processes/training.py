"""Training on tasks: Adam, cosine to nothing, resumable, the same on every run with the same seed (CPU)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, Task, draw_tasks
from spinimpute.neural_processes.models import ModelSettings, NeuralProcess, make_model
from spinimpute.nn.checks import require_count, require_positive
from spinimpute.nn.model_weights import arrays_of, load_weights, network_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import fingerprint, load_tensors, save_tensors
from spinimpute.training.loop import Report, TrainingLoop

MODEL_FORMAT = "spinimpute-neural-process-2"
STATE_FORMAT = "spinimpute-neural-process-state-2"
FORMER_POINTS = "value_encoder.points"  # a weight of models whose inducing points did not carry y
DrawTask = Callable[[int], Task]
"""Gives the task of a step."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained.

    Attributes
    ----------
    steps : int
        Updates (the paper: 100,000).
    learning_rate : float
        At the start, by cosine to 0.
    clip : float
        Largest norm of the gradient.
    seed : int
        Of weights, tasks and samples.
    bfloat16 : bool
        Whether to autocast.

    Raises
    ------
    ValueError
        A value is out of its range.
    """

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


class NeuralProcessTrainer(TrainingLoop[NeuralProcess]):
    """Trains one model.

    Parameters
    ----------
    model_settings : ModelSettings
        Kind and sizes of the model.
    settings : TrainingSettings
        How it is trained.
    draw : DrawTask
        Gives the task of each step, so that a resumed run sees the same ones.
    described : dict
        JSON: what the tasks are; kept in files.
    device : torch.device or str
        Where to train.
    start : NeuralProcess, optional
        A model of the same kind and sizes, with whose weights this one begins; floor and samples may differ.

    Raises
    ------
    InputError
        `start` differs in anything else.
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
        model = make_model(model_settings).to(self.device)
        start_weights = {} if start is None else arrays_of(start.state_dict())
        if start is not None:
            _check_alike(model_settings, start.settings)
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
                "tasks": described,
                "start": None if start is None else fingerprint(start_weights),
            },
            state_format=STATE_FORMAT,
        )

    def loss(self, number: int) -> Tensor:
        """Draw the step's batch of tasks and give its loss."""
        task = self.draw(self.step)
        torch.manual_seed((self.settings.seed * 1_000_003 + self.step) % 2**63)
        # weights that are cast where no gradient is kept must not serve where one is: older torch keeps them
        bfloat16 = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.settings.bfloat16, cache_enabled=False
        )
        with bfloat16:
            return self.model.loss(task)

    def same_run(self, run: dict[str, Any]) -> dict[str, Any]:
        """All of it; what was saved before there were such settings has their defaults."""
        return {"start": None} | run | {"model": {"readings": ModelSettings.readings} | run.get("model", {})}

    def train(
        self,
        until: int | None = None,
        report: Callable[[int, float], None] | None = None,
        checkpoint: Callable[[], None] | None = None,
        every: int = 500,
    ) -> float:
        """Train to the end, or to step `until`.

        Parameters
        ----------
        until : int, optional
            The step to stop after; by default the last one.
        report : callable, optional
            Given the step and the mean loss since the last report.
        checkpoint : callable, optional
            Called after each report.
        every : int
            Steps from one report to the next.

        Returns
        -------
        float
            The seconds that it took.

        Raises
        ------
        InputError
            The loss of a step is not finite.
        """
        started = time.perf_counter()

        def reported(found: Report) -> None:
            if report is not None:
                report(found.step, found.loss)
            if checkpoint is not None:
                checkpoint()

        self.take_steps(every, reported, until)
        return time.perf_counter() - started

    def save(self, path: str | Path) -> None:
        """Write the model with all that rebuilds it; raises InputError if it cannot be written."""
        metadata = self.run | {"step": self.step}
        save_tensors(path, arrays_of(self.model.state_dict()), metadata, MODEL_FORMAT)


def gaussian_trainer(
    model: ModelSettings,
    settings: TrainingSettings,
    tasks: ProcessSettings,
    device: torch.device | str = "cpu",
    start: NeuralProcess | None = None,
) -> NeuralProcessTrainer:
    """A trainer on tasks of Gaussian processes.

    Parameters
    ----------
    model : ModelSettings
        Kind and sizes of the model.
    settings : TrainingSettings
        How it is trained.
    tasks : ProcessSettings
        What tasks are drawn.
    device : torch.device or str
        Where to train and to draw tasks.
    start : NeuralProcess, optional
        See `NeuralProcessTrainer`.

    Returns
    -------
    NeuralProcessTrainer
        A trainer at step 0.

    Raises
    ------
    InputError
        The model's dimensions are not those of the tasks, or `start` is another model.
    """
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
    """Raise InputError unless a model takes as many inputs as tasks have, and gives as many outputs."""
    sizes, wanted = (model.x_size, model.y_size), (tasks.x_size, tasks.y_size)
    if sizes != wanted:
        raise InputError(
            "content",
            f"the model takes {sizes[0]} inputs and gives {sizes[1]} outputs, the tasks have {wanted[0]} and "
            f"{wanted[1]}",
        )


def _check_alike(model: ModelSettings, start: ModelSettings) -> None:
    theirs = asdict(start)
    differ = [
        f"{name} {value}, there {theirs[name]}"
        for name, value in asdict(model).items()
        if value != theirs[name] and name not in ("floor", "samples")
    ]
    if differ:
        raise InputError("mismatch", f"the weights to begin with are of another model: {'; '.join(differ)}")


def load_model(path: str | Path, device: torch.device | str = "cpu") -> tuple[NeuralProcess, dict[str, Any]]:
    """Read a model that `NeuralProcessTrainer.save` wrote.

    Parameters
    ----------
    path : str or Path
        The file.
    device : torch.device or str
        Where to put the model.

    Returns
    -------
    NeuralProcess
        Ready to predict.
    dict
        Its description: model, training, tasks, start and step.

    Raises
    ------
    InputError
        The file is missing, damaged, of something else, or of a model with inducing points that do not carry
        y, as they all were once.
    """
    arrays, metadata = load_tensors(path, MODEL_FORMAT, "neural process")
    if FORMER_POINTS in arrays:
        raise InputError(
            "mismatch",
            f"neural process {path}: it was trained when inducing points did not carry y yet, and is another "
            "network than the one of that name now; train it again",
        )
    try:
        settings = ModelSettings(**metadata["model"])
        model = network_of(lambda: make_model(settings), arrays)
        if not isinstance(metadata["tasks"], dict):
            raise TypeError(f"tasks: {metadata['tasks']!r}")
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        said = str(error).partition("\n")[0][:200]
        raise InputError(
            "content", f"neural process {path}: it does not fit its own description ({said})"
        ) from error
    return model.to(device).eval(), metadata
