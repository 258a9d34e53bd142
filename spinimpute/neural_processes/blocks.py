"""Layers from which `models` builds neural processes: encoder, reader and decoder.

The encoder embeds the context points, the reader lets targets attend to them, and the decoder computes the
predicted distribution. The encoder and reader of the inducing point models are in `spinimpute.nn.points`.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal
from torch.nn import functional

from spinimpute.nn.attention import MAB, MABOptions, MultiHeadAttention
from spinimpute.nn.points import ContextPoints, TargetReading, mlp


def append_zero_outputs(x_BLX: Tensor, y_size: int) -> Tensor:
    """Append outputs of 0 to positions, to embed them like points: (B, L, X) -> (B, L, X + Y)."""
    return functional.pad(x_BLX, (0, y_size))


class SelfAttendedPoints(nn.Module):
    """Encoder of a context by self-attention; its time grows with the square of the number of points."""

    def __init__(self, input_width: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.embed = mlp(input_width, width, width, layers)
        self.attend = MAB(width, width, options)

    def forward(self, d_BNI: Tensor) -> Tensor:
        """Encode points: (B, N, I) -> (B, N, E); N may be 0."""
        d_BNE = self.embed(d_BNI)
        return self.attend(d_BNE, d_BNE)


class Reader(nn.Module):
    """Multi-head attention from targets to context points that compares their positions.

    It has the interface of `nn.points.PointReader`, but does not average the outputs of context points.
    """

    def __init__(self, width: int, options: MABOptions) -> None:
        super().__init__()
        self.width = width
        self.attention = MultiHeadAttention(
            width, width, options.heads, score=options.score, steepness=options.steepness
        )

    def forward(self, key_BQE: Tensor, x_BQX: Tensor, points: ContextPoints) -> TargetReading:
        """Return what targets read from the points; the carried outputs are 0."""
        query_BGQP = self.attention.queries(key_BQE)
        r_BQE, _ = self.attention.look_up(query_BGQP, points.key_BLE, points.value_BLE)
        return TargetReading(r_BQE, torch.zeros_like(x_BQX[..., :1]))


class Decoder(nn.Module):
    """Decoder that computes a normal distribution from a target's position and what it read.

    With carried outputs (attention-weighted means of context outputs), the network only corrects them: its
    result is added to them. The standard deviation is floor + (1 - floor) softplus(network output). If
    `extra_width` is above 0, a second vector of this width enters by its own linear layer: what the target
    read from the bootstrapped context (BANP) or in further readings.
    """

    def __init__(
        self, input_width: int, width: int, y_size: int, layers: int, floor: float, extra_width: int = 0
    ) -> None:
        super().__init__()
        self.floor = floor
        self.first = nn.Linear(input_width, width)
        self.extra = nn.Linear(extra_width, width) if extra_width else None
        self.rest = mlp(width, width, 2 * y_size, layers - 1)

    def forward(
        self, r_BQI: Tensor, extra_BQI: Tensor | None = None, carried_BQY: Tensor | float = 0.0
    ) -> Normal:
        """Decode vectors (..., Q, I) to a Normal of shape (..., Q, Y)."""
        hidden = self.first(r_BQI)
        if extra_BQI is not None:
            assert self.extra is not None
            hidden = hidden + self.extra(extra_BQI)
        mean, raw = self.rest(torch.relu(hidden)).float().chunk(2, -1)
        return Normal(mean + carried_BQY, self.floor + (1 - self.floor) * functional.softplus(raw))


def pooled(points_BLE: Tensor) -> Tensor:
    """Average over points, (B, L, E) -> (B, E); the mean of no points is 0."""
    return points_BLE.mean(1) if points_BLE.shape[1] else points_BLE.new_zeros(points_BLE.shape[::2])


def mixture(normals_SBQY: Normal) -> Distribution:
    """Return the mixture of S equally likely normal distributions."""
    mean, sd = (x.movedim(0, -1) for x in (normals_SBQY.mean, normals_SBQY.stddev))
    validate = None if mean.numel() else False  # torch's checks fail if there are no targets
    weights = Categorical(logits=torch.zeros_like(mean), validate_args=validate)
    return MixtureSameFamily(weights, Normal(mean, sd), validate_args=validate)
