"""Parts that all neural processes are made of: encoders of points, a reader, a decoder.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.attention import MAB, MABOptions, MultiHeadAttention

INPUT_RANGE = 2.0  # inputs and outputs are of about this size: bends and inducing points start within it
RECOMPUTED_FROM = 256  # context points
STEEPNESS = 3.0  # with 1 attention starts nearly even, and takes twice as many steps to learn where to look


def mlp(input_width: int, width: int, output_width: int, layers: int) -> nn.Sequential:
    """`layers` linear layers with ReLU between them.

    Weights start as in He et al. (2015): torch's own start shrinks the differences between points at every
    layer, and attention to points that all look alike learns nothing for thousands of steps.
    """
    widths = [input_width, *[width] * (layers - 1), output_width]
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        parts += [nn.ReLU()] if i else []
        linear = nn.Linear(a, b)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu" if i < layers - 1 else "linear")
        reach = 0.0 if i else INPUT_RANGE
        nn.init.uniform_(linear.bias, -reach, reach)
        parts.append(linear)
    return nn.Sequential(*parts)


def start_alike(attention: MultiHeadAttention) -> None:
    """Start queries and keys with the same projection, a steep one.

    Attention is then far from uniform, and different at different positions, from the first step.
    """
    with torch.no_grad():
        for parameter in attention.key.parameters():
            parameter.mul_(STEEPNESS)
    attention.query.load_state_dict(attention.key.state_dict())


def induced(block: nn.Module, h_BHE: Tensor, d_BNE: Tensor) -> Tensor:
    """MAB(H, D), also where D has no points."""
    assert isinstance(block, MAB)
    return block(h_BHE, d_BNE) if d_BNE.shape[1] else block.close(h_BHE, torch.zeros_like(h_BHE))


def without_output(x_BLX: Tensor, y_size: int) -> Tensor:
    """Give positions the output 0, to be points: (B, L, X) -> (B, L, X + Y)."""
    return functional.pad(x_BLX, (0, y_size))


def spread_points(x_size: int, y_size: int, number: int) -> nn.Parameter:
    """Learned points, (1, H, X + Y), that start at positions over the range of inputs, with the output 0."""
    spread_HX = torch.quasirandom.SobolEngine(x_size, scramble=True).draw(number)
    return nn.Parameter(without_output(INPUT_RANGE * (2 * spread_HX[None] - 1), y_size))


class SelfAttendedPoints(nn.Module):
    """Every point attends to all points: MAB(D, D), time quadratic in their number."""

    def __init__(self, input_width: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.embed = mlp(input_width, width, width, layers)
        self.attend = MAB(width, width, options)

    def forward(self, d_BNI: Tensor) -> Tensor:
        """Encode points: (B, N, I) -> (B, N, E); N may be 0."""
        d_BNE = self.embed(d_BNI)
        return self.attend(d_BNE, d_BNE) if d_BNI.shape[1] else d_BNE


class InducedPoints(nn.Module):
    """H learned inducing points attend to all points: XABD, MAB(H_D, D), time linear in their number.

    An inducing point starts as what a point would be embedded to, at a position of its own and with the
    output 0; positions and outputs are learned. It finds points by their positions, as targets find what is
    kept in attentive neural processes, so that what it reads differs from its neighbours' from the start.
    """

    def __init__(
        self, x_size: int, y_size: int, width: int, layers: int, inducing_points: int, options: MABOptions
    ) -> None:
        super().__init__()
        self.x_size, self.y_size = x_size, y_size
        self.embed = mlp(x_size + y_size, width, width, layers)
        self.points = spread_points(x_size, y_size, inducing_points)
        self.attend = MAB(width, width, options)
        start_alike(self.attend.attention)

    def forward(self, d_BNI: Tensor) -> Tensor:
        """Encode points: (B, N, I) -> (B, H, E); N may be 0."""
        h_BHE = self.embed(self.points).expand(d_BNI.shape[0], -1, -1)
        if not d_BNI.shape[1]:
            return self.attend.close(h_BHE, torch.zeros_like(h_BHE))
        queries = self.attend.queries(h_BHE)
        if d_BNI.shape[1] < RECOMPUTED_FROM or not torch.is_grad_enabled():
            found_BHE = self._find(queries, d_BNI)
        else:  # all that grows with the context is computed again for the gradient, not kept
            found_BHE = checkpoint(self._find, queries, d_BNI, use_reentrant=False)
        return self.attend.close(h_BHE, found_BHE)

    def _find(self, queries_BGHP: Tensor, d_BNI: Tensor) -> Tensor:
        """What inducing points read from the points: (B, H, E)."""
        keys_BNE, values_BNE = self.at(d_BNI[..., : self.x_size]), self.embed(d_BNI)
        return self.attend.attention.look_up(queries_BGHP, keys_BNE, values_BNE)

    def at(self, x_BLX: Tensor) -> Tensor:
        """Embed positions as inducing points there would start: (B, L, X) -> (B, L, E)."""
        return self.embed(without_output(x_BLX, self.y_size))


class Reader(nn.Module):
    """Targets read (by position) what was kept of the context: multi-head cross-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, width, heads)
        start_alike(self.attention)

    def forward(self, query_BQE: Tensor, key_BLE: Tensor, value_BLE: Tensor) -> Tensor:
        """Read: (B, Q, E) from keys and values (B, L, E) -> (B, Q, E); zero where nothing was kept."""
        if not key_BLE.shape[1]:
            return torch.zeros_like(query_BQE)
        return self.attention.look_up(self.attention.queries(query_BQE), key_BLE, value_BLE)


class Decoder(nn.Module):
    """Parameters of a Normal from a target's position and what is known of the task.

    The standard deviation is floor + (1 - floor) softplus(.). With an `extra_width` above 0 a second
    representation of that width (the bootstrapped one of BANP, or what was read again) is added after a layer
    of its own.
    """

    def __init__(
        self, input_width: int, width: int, y_size: int, layers: int, floor: float, extra_width: int = 0
    ) -> None:
        super().__init__()
        self.floor = floor
        self.first = nn.Linear(input_width, width)
        self.extra = nn.Linear(extra_width, width) if extra_width else None
        self.rest = mlp(width, width, 2 * y_size, layers - 1)

    def forward(self, r_BQI: Tensor, extra_BQI: Tensor | None = None) -> Normal:
        """Decode: (..., Q, I) -> Normal of shape (..., Q, Y)."""
        hidden = self.first(r_BQI)
        if extra_BQI is not None:
            assert self.extra is not None, "made without extra_width"
            hidden = hidden + self.extra(extra_BQI)
        mean, raw = self.rest(torch.relu(hidden)).float().chunk(2, -1)
        return Normal(mean, self.floor + (1 - self.floor) * functional.softplus(raw))


def pooled(points_BLE: Tensor) -> Tensor:
    """Mean over points, (B, L, E) -> (B, E); zero of none."""
    return points_BLE.mean(1) if points_BLE.shape[1] else points_BLE.new_zeros(points_BLE.shape[::2])
