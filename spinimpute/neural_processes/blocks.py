"""Layers from which `models` builds neural processes: encoder, reader and decoder.

The encoder embeds the context points, the reader lets targets attend to them, and the decoder computes the
predicted distribution. The encoder and reader of CIPNP+ and IPNP+ are in `spinimpute.nn.points`.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, MixtureSameFamily, Normal
from torch.nn import functional

from spinimpute.neural_processes.settings import Source
from spinimpute.nn.attention import MAB, MABOptions, MultiHeadAttention, attend
from spinimpute.nn.points import ContextPoints, TargetReading, mlp


def append_zero_outputs(x_BLX: Tensor, y_size: int) -> Tensor:
    """Append outputs of 0 to positions, to embed them like points: (B, L, X) -> (B, L, X + Y)."""
    return functional.pad(x_BLX, (0, y_size))


class PaperBlock(nn.Module):
    """Attention block of the SPIN paper, section 2: `MAB`, with values that may differ from the keys."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mab = MAB(width, width, MABOptions(heads=heads))

    def forward(self, x_BLE: Tensor, key_BME: Tensor, value_BME: Tensor) -> Tensor:
        """Attend from x to keys with values, then apply the feed-forward network: (B, L, E)."""
        read_BLE, _ = self.mab.attention.look_up(self.mab.queries(x_BLE), key_BME, value_BME)
        return self.mab.finish(x_BLE, read_BLE)


class ReleasedBlock(nn.Module):
    """Attention block of the code released with the SPIN paper.

    Differences from `PaperBlock`: layers are normalised after the residual sums, the residual branch is the
    projected query, projections have no bias, scores are divided by the root of the full width, and the
    feed-forward network has one layer.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.feed_forward = nn.Linear(width, width)
        self.norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x_BLE: Tensor, key_BME: Tensor, value_BME: Tensor) -> Tensor:
        """Attend from x to keys with values, then apply the feed-forward layer: (B, L, E)."""
        query_BLE = self.query(x_BLE)
        q_BGLP, k_BGMP, v_BGMP = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projected in (query_BLE, self.key(key_BME), self.value(value_BME))
        )
        read_BGLP = attend(q_BGLP, k_BGMP, v_BGMP, scale=query_BLE.shape[-1] ** -0.5)
        o_BLE = self.norm(query_BLE + read_BGLP.transpose(1, 2).flatten(-2))
        return self.feed_forward_norm(o_BLE + torch.relu(self.feed_forward(o_BLE)))


def make_block(source: Source, width: int, heads: int) -> nn.Module:
    """Make an attention block as in the SPIN paper or as in its released code."""
    return (PaperBlock if source == "paper" else ReleasedBlock)(width, heads)


class SelfAttendedPoints(nn.Module):
    """Encoder of a context by self-attention; its time grows with the square of the number of points.

    `embed` embeds points, (B, N, I) -> (B, N, E), and `block` is an attention block.
    """

    def __init__(self, embed: nn.Module, block: nn.Module) -> None:
        super().__init__()
        self.embed, self.block = embed, block

    def forward(self, d_BNI: Tensor) -> Tensor:
        """Encode points: (B, N, I) -> (B, N, E); N may be 0."""
        d_BNE = self.embed(d_BNI)
        return self.block(d_BNE, d_BNE, d_BNE)


class InducedPoints(nn.Module):
    """Encoder of a context by inducing points: XABD of the SPIN paper, in time linear in the points.

    The inducing points are learned constants, which attend once to the embedded context points. As in the
    released code, their initial values are those of Glorot and Bengio (2010).
    """

    def __init__(self, embed: nn.Module, block: nn.Module, inducing_points: int, width: int) -> None:
        super().__init__()
        self.embed, self.block = embed, block
        self.start = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inducing_points, width))[None])

    def forward(self, d_BNI: Tensor) -> Tensor:
        """Encode points as inducing points: (B, N, I) -> (B, H, E); N may be 0."""
        d_BNE = self.embed(d_BNI)
        return self.block(self.start.expand(len(d_BNE), -1, -1), d_BNE, d_BNE)


class MABReader(nn.Module):
    """Attention block from targets to the points of a context: r(x, H) = MAB(x, H), SPIN paper, section 3.3.

    It has the interface of `Reader`.
    """

    def __init__(self, width: int, block: nn.Module) -> None:
        super().__init__()
        self.width, self.block = width, block

    def forward(self, key_BQE: Tensor, x_BQX: Tensor, points: ContextPoints) -> TargetReading:
        """Return what targets read from the points; the carried outputs are 0."""
        return TargetReading(self.block(key_BQE, *points[:2]), torch.zeros_like(x_BQX[..., :1]))


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
    read from the bootstrapped context (BANP) or in further readings. For `he_start` see `nn.points.mlp`.
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        y_size: int,
        layers: int,
        floor: float,
        extra_width: int = 0,
        *,
        he_start: bool = True,
        is_binary: bool = False,
    ) -> None:
        super().__init__()
        self.floor, self.is_binary = floor, is_binary
        self.first = nn.Linear(input_width, width)
        self.extra = nn.Linear(extra_width, width, bias=he_start) if extra_width else None
        self.rest = mlp(width, width, y_size if is_binary else 2 * y_size, layers - 1, he_start=he_start)

    def forward(
        self, r_BQI: Tensor, extra_BQI: Tensor | None = None, carried_BQY: Tensor | float = 0.0
    ) -> Normal | Bernoulli:
        """Decode vectors (..., Q, I) to a Normal or Bernoulli of shape (..., Q, Y)."""
        hidden = self.first(r_BQI)
        if extra_BQI is not None:
            assert self.extra is not None
            hidden = hidden + self.extra(extra_BQI)
        output = self.rest(torch.relu(hidden)).float()
        if self.is_binary:  # the sum is the logit of P(y = 1)
            return Bernoulli(logits=output + carried_BQY)
        mean, raw = output.chunk(2, -1)
        return Normal(mean + carried_BQY, self.floor + (1 - self.floor) * functional.softplus(raw))


def pooled(points_BLE: Tensor) -> Tensor:
    """Average over points, (B, L, E) -> (B, E); the mean of no points is 0."""
    return points_BLE.mean(1) if points_BLE.shape[1] else points_BLE.new_zeros(points_BLE.shape[::2])


def mixture(components_SBQY: Normal | Bernoulli) -> Distribution:
    """Return the mixture of S equally likely normal or Bernoulli distributions."""
    mean, sd = (x.movedim(0, -1) for x in (components_SBQY.mean, components_SBQY.stddev))
    validate = None if mean.numel() else False  # torch's checks fail if there are no targets
    weights = Categorical(logits=torch.zeros_like(mean), validate_args=validate)
    is_binary = isinstance(components_SBQY, Bernoulli)
    components = Bernoulli(probs=mean) if is_binary else Normal(mean, sd)
    return MixtureSameFamily(weights, components, validate_args=validate)
