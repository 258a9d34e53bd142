"""Training tasks: functions drawn from Gaussian processes, each split into context points and targets.

The oracle predicts the targets with the very Gaussian process from which a task was drawn. No model can have
a higher expected log-likelihood.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from spinimpute.nn.checks import require_count, require_positive

KERNELS = ("rbf", "matern52", "periodic")
MAX_COUNT = 10**9  # of points, tasks and dimensions in settings
MAX_VALUE = 1e9  # of real numbers in settings
JITTER = 1e-6  # fraction of the function's variance added at each point, for numerical stability


class TaskBatch(NamedTuple):
    """A batch of tasks, float32; all have N context points and Q targets."""

    x_BNX: Tensor  # context
    y_BNY: Tensor
    x_BQX: Tensor  # targets
    y_BQY: Tensor


@dataclass(frozen=True)
class ProcessSettings:
    """Distribution of tasks. The defaults come from section 4.2 of the SPIN paper and from its code.

    Ranges are pairs (minimum, maximum), both included; numbers are drawn uniformly from them.
    """

    kernel: str = "rbf"  # one of KERNELS
    context: tuple[int, int] = (64, 128)  # number of context points, drawn once for a batch
    target: tuple[int, int] = (4, 64)  # number of targets, drawn once for a batch
    tasks: int = 16  # tasks of a batch, B
    x_size: int = 1  # input dimensions
    y_size: int = 1  # output dimensions
    inputs: tuple[float, float] = (-2.0, 2.0)  # range of the inputs
    length_scale: tuple[float, float] = (0.1, 0.6)  # of the kernel, drawn for each task
    scale: tuple[float, float] = (0.1, 1.0)  # standard deviation of the function, drawn for each task
    period: tuple[float, float] = (0.5, 1.5)  # of the periodic kernel, drawn for each task
    noise: float = 0.02  # standard deviation of the noise of observations

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {self.kernel!r}")
        for name, minimum in (("context", 0), ("target", 1)):
            low, high = _check_range(name, getattr(self, name), Integral)
            if not minimum <= low <= high:
                raise ValueError(f"{name} must be {minimum} <= minimum <= maximum, got {low, high}")
        for name in ("tasks", "x_size", "y_size"):
            require_count(name, getattr(self, name))
        for name in ("context", "target", "tasks", "x_size", "y_size"):
            if np.max(getattr(self, name)) > MAX_COUNT:
                raise ValueError(f"{name} must be at most {MAX_COUNT:,}, got {getattr(self, name)}")
        for name in ("inputs", "length_scale", "scale", "period"):
            low, high = _check_range(name, getattr(self, name), Real)
            if not (-MAX_VALUE <= low <= high <= MAX_VALUE and (name == "inputs" or low > 0)):
                bound = f"-{MAX_VALUE:g} <=" if name == "inputs" else "0 <"
                limits = f"{bound} minimum <= maximum <= {MAX_VALUE:g}"
                raise ValueError(f"{name} must be {limits}, got {low, high}")
        require_positive("noise", self.noise)
        if self.noise > MAX_VALUE:
            raise ValueError(f"noise must be at most {MAX_VALUE:g}, got {self.noise}")
        for name, value in list(vars(self).items()):  # JSON cannot store NumPy's types
            if name != "kernel":
                object.__setattr__(self, name, _plain(value))

    @property
    def max_covariances(self) -> int:
        """Number of covariances in the largest possible batch."""
        return self.tasks * (self.context[1] + self.target[1]) ** 2


def _check_range(name: str, value: Any, kind: type) -> tuple[Any, Any]:
    """Return both ends of a range. Raise ValueError unless they are numbers of this kind."""
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise ValueError(f"{name} must be a range of two numbers, got {value!r}")
    if not all(isinstance(number, kind) and not isinstance(number, bool) for number in value):
        raise ValueError(f"{name} must be {'whole ' if kind is Integral else ''}numbers, got {value!r}")
    return value[0], value[1]


def _plain(value: Any) -> Any:
    """Convert numbers, and ranges of numbers, to Python's own types."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, Integral) else float(value)


def parse_settings(description: dict[str, Any]) -> ProcessSettings:
    """Make settings from JSON, where lists stand for tuples. Raise ValueError if they are invalid."""
    names = {field.name for field in fields(ProcessSettings)}
    if not isinstance(description, dict) or not names >= set(description):
        raise ValueError(f"allowed settings of tasks: {', '.join(sorted(names))}; got {description!r}")
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in description.items()}
    return ProcessSettings(**plain)


@dataclass(frozen=True)
class ProcessBatch:
    """The Gaussian processes from which the tasks of a batch were drawn; see `ProcessSettings`."""

    kernel: str
    length_B: Tensor
    scale_B: Tensor
    period_B: Tensor
    noise: float

    def covariance(self, a_BLX: Tensor, b_BLX: Tensor) -> Tensor:
        """Return covariances of the noise-free function: (B, L, X) and (B, L', X) -> (B, L, L')."""
        length, scale, period = (x[:, None, None] for x in (self.length_B, self.scale_B, self.period_B))
        if self.kernel == "periodic":
            # product over input dimensions of MacKay's periodic kernel
            difference_BLLX = a_BLX[:, :, None] - b_BLX[:, None]
            angle = math.pi * difference_BLLX / period[..., None]
            return scale**2 * torch.exp(-2 * (torch.sin(angle) / length[..., None]).square().sum(-1))
        distance = torch.cdist(a_BLX, b_BLX, compute_mode="donot_use_mm_for_euclid_dist") / length
        if self.kernel == "rbf":
            return scale**2 * torch.exp(-0.5 * distance.square())
        scaled = math.sqrt(5) * distance
        return scale**2 * (1 + scaled + scaled.square() / 3) * torch.exp(-scaled)

    def noisy_covariance(self, x_BLX: Tensor) -> Tensor:
        """Return covariances of observations with noise: (B, L, X) -> (B, L, L)."""
        added_B = self.noise**2 + JITTER * self.scale_B.square()
        eye = torch.eye(x_BLX.shape[1], dtype=x_BLX.dtype, device=x_BLX.device)
        return self.covariance(x_BLX, x_BLX) + added_B[:, None, None] * eye


def draw_tasks(
    settings: ProcessSettings, seed: int, batch_number: int, device: torch.device | str = "cpu"
) -> tuple[TaskBatch, ProcessBatch]:
    """Draw the batch with this number; return it and the processes from which its tasks were drawn."""
    device = torch.device(device)
    # a generator for each batch, so that a resumed run draws the tasks of an uninterrupted run
    generator = torch.Generator(device).manual_seed((seed * 1_000_003 + batch_number) % 2**63)

    def uniform(size: tuple[int, ...], low: float, high: float) -> Tensor:
        drawn = torch.rand(size, generator=generator, device=device, dtype=torch.float64)
        return low + (high - low) * drawn

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator, device=device))

    n_context, n_target = integer(*settings.context), integer(*settings.target)
    tasks, n_points = settings.tasks, n_context + n_target
    process = ProcessBatch(
        settings.kernel,
        uniform((tasks,), *settings.length_scale),
        uniform((tasks,), *settings.scale),
        uniform((tasks,), *settings.period),
        settings.noise,
    )
    x_BLX = uniform((tasks, n_points, settings.x_size), *settings.inputs)
    root_BLL = torch.linalg.cholesky(process.noisy_covariance(x_BLX))
    white = torch.randn(
        (tasks, n_points, settings.y_size), generator=generator, device=device, dtype=torch.float64
    )
    y_BLY = root_BLL @ white
    x, y = x_BLX.float(), y_BLY.float()
    return TaskBatch(x[:, :n_context], y[:, :n_context], x[:, n_context:], y[:, n_context:]), process


def oracle(task: TaskBatch, process: ProcessBatch) -> Normal:
    """Predict targets from the context and the known processes; return a Normal (B, Q, Y), float64."""
    x_BNX, y_BNY, x_BQX = task.x_BNX.double(), task.y_BNY.double(), task.x_BQX.double()
    prior_B = process.scale_B.square() * (1 + JITTER) + process.noise**2
    if not x_BNX.shape[1]:
        mean, variance = torch.zeros_like(task.y_BQY).double(), prior_B[:, None].expand(x_BQX.shape[:2])
    else:
        root_BNN = torch.linalg.cholesky(process.noisy_covariance(x_BNX))
        cross_BNQ = process.covariance(x_BNX, x_BQX)
        half_BNQ = torch.linalg.solve_triangular(root_BNN, cross_BNQ, upper=False)
        mean = half_BNQ.mT @ torch.linalg.solve_triangular(root_BNN, y_BNY, upper=False)
        variance = (prior_B[:, None] - half_BNQ.square().sum(1)).clamp(min=process.noise**2)
    return Normal(mean, variance.sqrt()[..., None].expand_as(mean))


def apply_floor(distribution: Normal, floor: float) -> Normal:
    """Raise an oracle's standard deviations to `floor`: the best prediction of a model with this floor."""
    return Normal(distribution.mean, distribution.stddev.clamp(min=floor))
