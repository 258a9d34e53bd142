"""Inducing points for labelled points (x, y) whose attention carries the labels: an encoder and a reader.

Used by the conditional inducing point neural processes (SPIN paper, sections 3.2 and 3.3).

Axes: see `spinimpute.nn`; U labels of an inducing point, Y + X.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import XABD, MABOptions, MultiHeadAttention, attend
from spinimpute.nn.carrying import LabelledChunk
from spinimpute.nn.streaming import Chunk, KeysValues, streamed_attention

RECOMPUTED_FROM = 256  # datapoints; for larger contexts, activations are recomputed for the gradient
STREAM_CHUNK = 256  # datapoints of a larger context that are read at a time: they fit a processor's cache
INPUT_RANGE = 2.0  # inputs lie mostly in ±2; the bends of ReLUs and the inducing points start within it
MOST_POSITIONS = 1_000_000


def mlp(input_width: int, width: int, output_width: int, layers: int) -> nn.Sequential:
    """`layers` linear layers with ReLU between them.

    Weights start as in He et al. (2015). With torch's own start each layer shrinks the differences between
    points, and attention to points that look alike learns nothing for thousands of steps.
    """
    widths = [input_width, *[width] * (layers - 1), output_width]
    modules: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        modules += [nn.ReLU()] if i else []
        linear = nn.Linear(a, b)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu" if i < layers - 1 else "linear")
        bound = 0.0 if i else INPUT_RANGE
        nn.init.uniform_(linear.bias, -bound, bound)
        modules.append(linear)
    return nn.Sequential(*modules)


def spread_positions(x_size: int, number: int) -> Tensor:
    """Starting positions (H, X) of inducing points, spread evenly over the range of inputs.

    A file may ask for any number, and these positions take memory even where weights do not: raises
    ValueError for more than MOST_POSITIONS.
    """
    if number > MOST_POSITIONS:
        raise ValueError(f"inducing_points must be at most {MOST_POSITIONS:,}, got {number:,}")
    spread_HX = torch.quasirandom.SobolEngine(x_size, scramble=True).draw(number)
    return INPUT_RANGE * (2 * spread_HX - 1)


class ContextPoints(NamedTuple):
    """The points (inducing points, or the context itself) that predictions read, L of them.

    Labels are pooled by each head of the encoder: mean outputs, then mean positions, of the same datapoints
    with the same weights.
    """

    key_BLE: Tensor  # embedded positions, which queries are compared with
    value_BLE: Tensor
    label_BGLU: Tensor


class PointEncoder(nn.Module):
    """Inducing points at positions of their own read labelled points and carry their labels, by one XABD.

        paper  H' = MAB(H, D), H starts from constants, keys are of D, labels among its attributes
        here   h starts as the embedded point (s_h, 0) at a learned position s_h; the query position(s_h) is
               compared with key_n = position(x_n), so that weights depend on positions alone; values are of
               embedded (x_n, y_n); the same weights pool (y_n, x_n) unchanged

    Rastogi et al., ICLR 2023, sections 3.2 and 3.3.
    """

    def __init__(self, x_size: int, y_size: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.y_size = y_size
        self.embed = mlp(x_size + y_size, width, width, layers)
        self.xabd = XABD(1, width, options)

    def forward(
        self, chunks: Sequence[LabelledChunk], start_HX: Tensor, position: Callable[[Tensor], Tensor]
    ) -> ContextPoints:
        """Encode a context in chunks (x_BNX, y_BNY); neither result nor gradients depend on the chunks.

        `position` embeds positions, (..., X) -> (..., E), of inducing points, datapoints and queries alike.
        An empty context gives labels of 0.
        """
        key_1HE = position(start_HX[None])
        query_1GHP = self.xabd.queries(key_1HE.unsqueeze(2))
        scale = self.xabd.mab.attention.scale

        def reader(chunk: LabelledChunk) -> Chunk:
            x_BNX, y_BNY = chunk

            def keys_values() -> KeysValues:
                embedded_BNE = self.embed(torch.cat([x_BNX, y_BNY], -1))
                label_BNU = torch.cat([y_BNY, x_BNX], -1)
                return KeysValues(
                    *self.xabd.keys_values(position(x_BNX).unsqueeze(2), embedded_BNE.unsqueeze(2), label_BNU)
                )

            return keys_values

        batch, first = chunks[0][0].shape[:2]
        if len(chunks) == 1 and first < RECOMPUTED_FROM:
            keys, values = reader(chunks[0])()
            read_BGHP = attend(query_1GHP.expand(batch, -1, -1, -1), keys, values, scale=scale)
        else:
            weights = position.parameters() if isinstance(position, nn.Module) else ()
            small = [
                chunk
                for x, y in chunks
                for chunk in zip(x.split(STREAM_CHUNK, 1), y.split(STREAM_CHUNK, 1), strict=True)
            ]
            sources = [*self.parameters(), *weights, *(tensor for chunk in small for tensor in chunk)]
            read_BGHP = streamed_attention(
                query_1GHP, [reader(chunk) for chunk in small], scale=scale, sources=sources
            )
        h_1HE = self.embed(functional.pad(start_HX, (0, self.y_size)))[None]
        h_BH1E, label_BGHU = self.xabd.carry(h_1HE.expand(batch, -1, -1).unsqueeze(2), read_BGHP)
        return ContextPoints(key_1HE.expand(batch, -1, -1), h_BH1E.squeeze(2), label_BGHU)


class TargetReading(NamedTuple):
    """Results of attention from targets to the points of a context."""

    r_BQI: Tensor  # input of a decoder
    carried_BQY: Tensor  # outputs pooled by the attention, which a decoder corrects


class PointReader(nn.Module):
    """Targets read inducing points and the labels that they carry.

        paper  r(x, H) = MAB(x, H), and a decoder of (x, r) gives the distribution of y
        here   attention alone; head g pools the labels of the encoder's head g, y_g and x_g. The mixture of
               all y_g is `carried_BQY`. A decoder corrects it with the values, the offset of each y_g from
               the mixture, and the offset of x_g, the mean position of y_g, from the target

    It needs as many heads as the encoder has. `width` is the size of `r_BQI`.
    """

    def __init__(self, x_size: int, y_size: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.y_size = y_size
        self.attention = MultiHeadAttention(
            width, width, options.heads, options.scale, score=options.score, steepness=options.steepness
        )
        self.share_G = nn.Parameter(torch.zeros(options.heads))
        self.width = width + options.heads * (x_size + y_size)

    def forward(self, key_BQE: Tensor, x_BQX: Tensor, points: ContextPoints) -> TargetReading:
        """Read the points from targets at embedded positions `key_BQE` and positions `x_BQX`."""
        query_BGQP = self.attention.queries(key_BQE)
        read_BQE, label_BGQU = self.attention.look_up(query_BGQP, *points)
        label_BQGU = label_BGQU.transpose(1, 2)
        y_BQGY, x_BQGX = label_BQGU[..., : self.y_size], label_BQGU[..., self.y_size :]
        carried_BQY = (self.share_G.softmax(0)[:, None] * y_BQGY).sum(2)
        offsets = (y_BQGY - carried_BQY.unsqueeze(2), x_BQGX - x_BQX.unsqueeze(2))
        r_BQI = torch.cat([read_BQE, *(part.flatten(2).to(read_BQE.dtype) for part in offsets)], -1)
        return TargetReading(r_BQI, carried_BQY)
