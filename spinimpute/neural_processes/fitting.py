"""Training of a neural process on a user's own tables: many small data sets (x, y) of the same kind.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from spinimpute.neural_processes.fitted import FittedProcess, Scaler
from spinimpute.neural_processes.gaussian_tasks import TaskBatch
from spinimpute.neural_processes.settings import ModelSettings
from spinimpute.neural_processes.training import NeuralProcessTrainer, TrainingSettings
from spinimpute.nn.checks import require_count
from spinimpute.runtime.errors import InputError, argument

MIN_POINTS = 3  # rows of a table
Table = tuple[np.ndarray, np.ndarray]  # x, y


def fit(
    tables: Sequence[Table],
    kind: str = "CIPNP+",
    *,
    steps: int = 2_000,
    learning_rate: float = 1e-3,
    context: tuple[int, int] | None = None,
    tasks: int = 16,
    seed: int = 1,
    floor: float = 1e-2,
    device: torch.device | str = "cpu",
    report: Callable[[int, float], None] | None = None,
    **model: Any,
) -> FittedProcess:
    """Train a neural process on tables of the same kind.

    Parameters
    ----------
    tables : sequence of (x, y)
        x (L, X) or (L,) and y (L, Y) or (L,). The number of points L is at least 3 and may differ between
        tables.
    kind : str
        One of `settings.KINDS`. The improved models learn much faster than the published ones.
    steps : int
        Number of training steps.
    learning_rate : float
        Initial learning rate; it falls to 0 by a cosine schedule.
    context : tuple of int, optional
        Minimum and maximum number of context points of a task. By default the minimum is 1, and the maximum
        is two less than the number of points of the smallest table.
    tasks : int
        Number of tables in a training step.
    seed : int
        Random seed of weights and training tasks.
    floor : float
        Lower bound of predicted standard deviations, as a fraction of the standard deviation of y.
    device : torch.device or str
        Device to train on.
    report : callable, optional
        Called every 500 steps with the number of the step and the mean loss of these steps.
    **model
        Further fields of `ModelSettings`.

    Returns
    -------
    FittedProcess
        The trained model, with the scales of the tables.

    Raises
    ------
    InputError
        There are no tables, or a table is too small, has another number of columns than the first, or holds
        values that are not finite numbers; or seed or context is invalid.
    ValueError
        Another parameter is out of its range.
    """
    if seed < 0:
        raise InputError("argument", f"{argument('seed')} must not be negative, got {seed}")
    require_count("tasks", tasks)
    checked = [_check_table(number, table) for number, table in enumerate(tables)]
    if not checked:
        raise InputError("content", "there are no tables to fit. Give at least one (x, y) pair.")
    widths = {(x.shape[1], y.shape[1]) for x, y in checked}
    if len(widths) > 1:
        raise InputError(
            "content", f"all tables must have the same numbers of columns, got (x, y) = {sorted(widths)}"
        )
    x_scaler, y_scaler = (Scaler.from_tables([table[i] for table in checked]) for i in (0, 1))
    if model.get("outputs") == "binary":
        for number, (_, y) in enumerate(checked):
            if not np.isin(y, (0, 1)).all():
                raise InputError("content", f"table {number}: binary outputs must be 0 or 1")
        y_scaler = Scaler(np.zeros_like(y_scaler.mean), np.ones_like(y_scaler.sd))
    scaled = [(x_scaler.scaled(x), y_scaler.scaled(y)) for x, y in checked]
    smallest = min(len(x) for x, _ in scaled)
    low, high = context or (1, smallest - 2)
    if not 0 <= low <= high < smallest:
        raise InputError(
            "argument",
            f"a context of {low} to {high} points leaves no target in the table of {smallest} points. "
            f"Use a smaller {argument('context')}.",
        )

    def draw(step: int) -> TaskBatch:
        rng = np.random.default_rng([seed, step])
        n_context = int(rng.integers(low, high + 1))
        n_target = int(rng.integers(1, smallest - n_context + 1))
        chosen = rng.integers(len(scaled), size=tasks)
        parts: list[list[np.ndarray]] = [[], [], [], []]
        for number in chosen:
            x, y = scaled[number]
            order = rng.permutation(len(x))
            for index, (x_part, y_part) in zip(
                (order[:n_context], order[n_context : n_context + n_target]),
                (parts[:2], parts[2:]),
                strict=True,
            ):
                x_part.append(x[index])
                y_part.append(y[index])
        return TaskBatch(*(torch.from_numpy(np.stack(part).astype(np.float32)).to(device) for part in parts))

    ((x_size, y_size),) = widths
    settings = ModelSettings(kind, x_size=x_size, y_size=y_size, floor=floor, **model)
    description = {"tables": len(scaled), "context": [low, high], "tasks": tasks}
    trainer = NeuralProcessTrainer(
        settings, TrainingSettings(steps, learning_rate, seed=seed), draw, description, device
    )
    trainer.train(report=report and (lambda progress: report(progress.step, progress.loss)))
    return FittedProcess(trainer.model.cpu(), x_scaler, y_scaler)


def _as_columns(values: np.ndarray) -> np.ndarray:
    """Return values as float64, with a vector as one column."""
    values = np.asarray(values, dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values


def _check_table(number: int, table: Table) -> Table:
    try:
        x, y = (_as_columns(part) for part in table)
    except (TypeError, ValueError) as error:
        raise InputError("content", f"table {number}: not a pair of numeric arrays ({error})") from error
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise InputError(
            "content",
            f"table {number}: x and y must have a row for each point, got the shapes {x.shape} and {y.shape}",
        )
    if len(x) < MIN_POINTS:
        raise InputError("content", f"table {number}: needs at least {MIN_POINTS} points, got {len(x)}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("content", f"table {number}: it holds NaN or infinite numbers. Remove these points.")
    return x, y
