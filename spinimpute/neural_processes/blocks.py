"""Parts that all neural processes are made of: encoders of points, a reader, a decoder.

Axes: B tasks, M context points, N target points, L points of any kind, H inducing points, I input width,
E embedding width, Y output dimensions, K samples.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from spinimpute.nn.attention import MAB, MABOptions, MultiHeadAttention


def mlp(input_width: int, width: int, output_width: int, layers: int) -> nn.Sequential:
    """`layers` linear layers with ReLU between them."""
    widths = [input_width, *[width] * (layers - 1), output_width]
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        parts += [nn.ReLU()] if i else []
        parts.append(nn.Linear(a, b))
    return nn.Sequential(*parts)


def induced(block: nn.Module, h_BHE: Tensor, d_BME: Tensor) -> Tensor:
    """MAB(H, D), also of no points at all."""
    assert isinstance(block, MAB)
    return block(h_BHE, d_BME) if d_BME.shape[1] else block.close(h_BHE, torch.zeros_like(h_BHE))


class SelfAttendedPoints(nn.Module):
    """Every point attends to all points: MAB(D, D), time quadratic in their number."""

    def __init__(self, input_width: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.embed = mlp(input_width, width, width, layers)
        self.attend = MAB(width, width, options)

    def forward(self, d_BMI: Tensor) -> Tensor:
        """(B, M, I) -> (B, M, E); M may be 0."""
        d_BME = self.embed(d_BMI)
        return self.attend(d_BME, d_BME) if d_BMI.shape[1] else d_BME


class InducedPoints(nn.Module):
    """H learned inducing points attend to all points: XABD, MAB(H_D, D), time linear in their number."""

    def __init__(
        self, input_width: int, width: int, layers: int, inducing_points: int, options: MABOptions
    ) -> None:
        super().__init__()
        self.embed = mlp(input_width, width, width, layers)
        self.inducing = nn.Parameter(torch.empty(1, inducing_points, width))
        nn.init.xavier_uniform_(self.inducing)
        self.attend = MAB(width, width, options)

    def forward(self, d_BMI: Tensor) -> Tensor:
        """(B, M, I) -> (B, H, E); M may be 0."""
        return induced(self.attend, self.inducing.expand(d_BMI.shape[0], -1, -1), self.embed(d_BMI))


class Reader(nn.Module):
    """Targets ask (by position) what was kept of the context: multi-head cross-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, width, heads)

    def forward(self, query_BNE: Tensor, key_BLE: Tensor, value_BLE: Tensor) -> Tensor:
        """-> (B, N, E); zero where nothing was kept."""
        if not key_BLE.shape[1]:
            return torch.zeros_like(query_BNE)
        attention = self.attention
        q, k = attention.queries(query_BNE), attention._split_heads(attention.key(key_BLE))
        v = attention._split_heads(attention.value(value_BLE))
        attended = functional.scaled_dot_product_attention(q, k, v, scale=attention.scale)
        return attention.join(attended)


class Decoder(nn.Module):
    """Parameters of a Normal from a target's position and what is known of the task.

    floor: of the standard deviation, which is floor + (1 - floor) softplus(.). extra_width: of a second
    representation that is added after a layer of its own (the bootstrapped one of BANP), 0 for none.
    """

    def __init__(
        self, input_width: int, width: int, y_size: int, layers: int, floor: float, extra_width: int = 0
    ) -> None:
        super().__init__()
        self.floor = floor
        self.first = nn.Linear(input_width, width)
        self.extra = nn.Linear(extra_width, width) if extra_width else None
        self.rest = mlp(width, width, 2 * y_size, layers - 1)

    def forward(self, r_BNI: Tensor, extra_BNI: Tensor | None = None) -> Normal:
        """(..., N, I) -> Normal of shape (..., N, Y)."""
        hidden = self.first(r_BNI)
        if extra_BNI is not None:
            assert self.extra is not None, "made without extra_width"
            hidden = hidden + self.extra(extra_BNI)
        mean, raw = self.rest(torch.relu(hidden)).float().chunk(2, -1)
        return Normal(mean, self.floor + (1 - self.floor) * functional.softplus(raw))


def pooled(points_BLE: Tensor) -> Tensor:
    """Mean over points, (B, L, E) -> (B, E); zero of none."""
    return points_BLE.mean(1) if points_BLE.shape[1] else points_BLE.new_zeros(points_BLE.shape[::2])
