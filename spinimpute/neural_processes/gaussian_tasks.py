"""Tasks drawn from Gaussian processes, and the oracle, which knows the process of each task.

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
MAX_COUNT = 10**9
MAX_VALUE = 1e9  # of real numbers
JITTER = 1e-6  # added to the variance of each point, in units of the function's own


class Task(NamedTuple):
    """A batch of tasks, float32, with the same numbers of context points N and targets Q."""

    x_BNX: Tensor
    y_BNY: Tensor
    x_BQX: Tensor
    y_BQY: Tensor


@dataclass(frozen=True)
class ProcessSettings:
    """Distribution of tasks. The defaults follow the SPIN paper and its code.

    Rastogi et al., ICLR 2023, section 4.2. Ranges are pairs (from, to), both included.
    """

    kernel: str = "rbf"
    context: tuple[int, int] = (64, 128)  # points; one number is drawn for a batch
    target: tuple[int, int] = (4, 64)
    tasks: int = 16  # B
    x_size: int = 1
    y_size: int = 1
    inputs: tuple[float, float] = (-2.0, 2.0)  # inputs are uniform on this range
    length_scale: tuple[float, float] = (0.1, 0.6)  # drawn uniformly for every task, as the next two
    scale: tuple[float, float] = (0.1, 1.0)
    period: tuple[float, float] = (0.5, 1.5)  # of the periodic kernel
    noise: float = 0.02  # standard deviation

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {self.kernel!r}")
        for name, least in (("context", 0), ("target", 1)):
            low, high = _check_range(name, getattr(self, name), Integral)
            if not least <= low <= high:
                raise ValueError(f"{name} must be a range of numbers from {least}, got {low}, {high}")
        for name in ("tasks", "x_size", "y_size"):
            require_count(name, getattr(self, name))
        for name in ("context", "target", "tasks", "x_size", "y_size"):
            if np.max(getattr(self, name)) > MAX_COUNT:
                raise ValueError(f"{name} must be at most {MAX_COUNT:,}, got {getattr(self, name)}")
        for name in ("inputs", "length_scale", "scale", "period"):
            low, high = _check_range(name, getattr(self, name), Real)
            if not (-MAX_VALUE <= low <= high <= MAX_VALUE and (name == "inputs" or low > 0)):
                raise ValueError(f"{name} must be a range of numbers, got {low}, {high}")
        require_positive("noise", self.noise)
        if self.noise > MAX_VALUE:
            raise ValueError(f"noise must be at most {MAX_VALUE:g}, got {self.noise}")
        for name, value in list(vars(self).items()):  # files cannot hold NumPy's numbers
            if name != "kernel":
                object.__setattr__(self, name, _plain(value))

    @property
    def numbers(self) -> int:
        """Number of covariances of the largest batch."""
        return self.tasks * (self.context[1] + self.target[1]) ** 2


def _check_range(name: str, value: Any, kind: type) -> tuple[Any, Any]:
    """Both ends of a range, which must be numbers of this kind."""
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise ValueError(f"{name} must be a range of two numbers, got {value!r}")
    if not all(isinstance(number, kind) and not isinstance(number, bool) for number in value):
        raise ValueError(f"{name} must be {'whole ' if kind is Integral else ''}numbers, got {value!r}")
    return value[0], value[1]


def _plain(value: Any) -> Any:
    """Numbers, and ranges of them, as JSON has them."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, Integral) else float(value)


def parse_settings(description: dict[str, Any]) -> ProcessSettings:
    """Settings from JSON of `dataclasses.asdict` (lists stand for tuples); ValueError if invalid."""
    names = {field.name for field in fields(ProcessSettings)}
    if not isinstance(description, dict) or not names >= set(description):
        raise ValueError(f"settings of tasks must be {', '.join(sorted(names))}, got {description!r}")
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in description.items()}
    return ProcessSettings(**plain)


@dataclass(frozen=True)
class Process:
    """The processes of a batch."""

    kernel: str
    length_B: Tensor
    scale_B: Tensor
    period_B: Tensor
    noise: float  # standard deviation

    def covariance(self, a_BLX: Tensor, b_BLX: Tensor) -> Tensor:
        """Covariance of the function without noise: (B, L, X) and (B, L', X) -> (B, L, L')."""
        length, scale, period = (x[:, None, None] for x in (self.length_B, self.scale_B, self.period_B))
        if self.kernel == "periodic":
            # the product over dimensions of MacKay's kernel
            difference_BLLX = a_BLX[:, :, None] - b_BLX[:, None]
            angle = math.pi * difference_BLLX / period[..., None]
            return scale**2 * torch.exp(-2 * (torch.sin(angle) / length[..., None]).square().sum(-1))
        distance = torch.cdist(a_BLX, b_BLX, compute_mode="donot_use_mm_for_euclid_dist") / length
        if self.kernel == "rbf":
            return scale**2 * torch.exp(-0.5 * distance.square())
        scaled = math.sqrt(5) * distance
        return scale**2 * (1 + scaled + scaled.square() / 3) * torch.exp(-scaled)

    def noisy_covariance(self, x_BLX: Tensor) -> Tensor:
        """Covariance of observations: (B, L, X) -> (B, L, L)."""
        added_B = self.noise**2 + JITTER * self.scale_B.square()
        eye = torch.eye(x_BLX.shape[1], dtype=x_BLX.dtype, device=x_BLX.device)
        return self.covariance(x_BLX, x_BLX) + added_B[:, None, None] * eye


def draw_tasks(
    settings: ProcessSettings, seed: int, number: int, device: torch.device | str = "cpu"
) -> tuple[Task, Process]:
    """Draw batch `number` of the tasks with this seed, and the processes that they were drawn from."""
    device = torch.device(device)
    # one stream for each batch: a resumed run draws the same tasks
    generator = torch.Generator(device).manual_seed((seed * 1_000_003 + number) % 2**63)

    def uniform(size: tuple[int, ...], low: float, high: float) -> Tensor:
        drawn = torch.rand(size, generator=generator, device=device, dtype=torch.float64)
        return low + (high - low) * drawn

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator, device=device))

    n_context, n_target = integer(*settings.context), integer(*settings.target)
    tasks, n_points = settings.tasks, n_context + n_target
    process = Process(
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
    return Task(x[:, :n_context], y[:, :n_context], x[:, n_context:], y[:, n_context:]), process


def oracle(task: Task, process: Process) -> Normal:
    """Predict each target given the context and the process: Normal of batch shape (B, Q, Y), float64."""
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
    """Raise the standard deviation to at least `floor`: the best prediction under this floor."""
    return Normal(distribution.mean, distribution.stddev.clamp(min=floor))
