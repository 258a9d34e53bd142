"""Encoder and reader of conditional inducing point neural processes (SPIN paper, sections 3.2 and 3.3).

The context of a neural process consists of points with positions x and outputs y. Inducing points attend to
context points and keep weighted means of x and y. Queries attend to inducing points and average these means.

Axes: see `spinimpute.nn`; U = Y + X: the pooled outputs and positions of an inducing point.
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

CHECKPOINT_FROM = 256  # contexts of this many datapoints or more are streamed, see `nn.streaming`
STREAM_CHUNK = 256  # datapoints of a streamed context that are processed together: they fit the CPU's cache
INPUT_RANGE = 2.0  # inputs lie mostly in ±2; ReLU kinks and inducing points are initialized in this range
MAX_POSITIONS = 1_000_000


def mlp(
    input_width: int, width: int, output_width: int, layers: int, *, he_start: bool = True
) -> nn.Sequential:
    """Return `layers` linear layers with ReLU between them.

    With `he_start`, weights are initialized as in He et al. (2015). With PyTorch's default initialization,
    each layer shrinks the differences between points. Attention to nearly equal points then learns nothing
    for thousands of steps.
    """
    widths = [input_width, *[width] * (layers - 1), output_width]
    modules: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        modules += [nn.ReLU()] if i else []
        linear = nn.Linear(a, b)
        if he_start:
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu" if i < layers - 1 else "linear")
            bound = 0.0 if i else INPUT_RANGE
            nn.init.uniform_(linear.bias, -bound, bound)
        modules.append(linear)
    return nn.Sequential(*modules)


def spread_positions(x_size: int, number: int) -> Tensor:
    """Return initial positions (H, X) of inducing points, spread evenly over the range of inputs.

    Raises ValueError if `number` exceeds MAX_POSITIONS: it may come from an untrusted model file, and the
    positions are allocated even when the model is built on PyTorch's meta device.
    """
    if number > MAX_POSITIONS:
        raise ValueError(f"inducing_points must be at most {MAX_POSITIONS:,}, got {number:,}")
    spread_HX = torch.quasirandom.SobolEngine(x_size, scramble=True).draw(number)
    return INPUT_RANGE * (2 * spread_HX - 1)


class ContextPoints(NamedTuple):
    """The L points to which queries attend: inducing points, or the context points themselves."""

    key_BLE: Tensor  # embedded positions, to compare with the embedded positions of queries
    value_BLE: Tensor
    label_BGLU: Tensor  # for each head of the encoder, the attention-weighted means of y, then of x


class PointEncoder(nn.Module):
    """Inducing points with learned positions that attend once to the context points and pool their labels.

    The attention is an XABD (cross-attention between datapoints, `nn.attention`). Differences from the paper
    (Rastogi et al., ICLR 2023, sections 3.2 and 3.3):

        paper  H' = MAB(H, D). The inducing points H start from constants. Keys are computed from the data D,
               which include the labels.
        here   Inducing point h starts as the embedding of (s_h, 0) at a learned position s_h. Its query
               position(s_h) is compared with the keys position(x_n), so the attention depends only on
               positions. Values are computed from the embedding of (x_n, y_n). The attention weights also
               average (y_n, x_n) directly.
    """

    def __init__(self, x_size: int, y_size: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.y_size = y_size
        self.embed = mlp(x_size + y_size, width, width, layers)
        self.xabd = XABD(1, width, options)

    def forward(
        self, chunks: Sequence[LabelledChunk], start_HX: Tensor, position: Callable[[Tensor], Tensor]
    ) -> ContextPoints:
        """Return the encoded inducing points of a context, which is given in chunks (x_BNX, y_BNY).

        Neither the result nor its gradients depend on how the context is cut into chunks. `position` embeds
        the positions of inducing points, datapoints and queries: (..., X) -> (..., E). The labels of an empty
        context are 0.
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
        if len(chunks) == 1 and first < CHECKPOINT_FROM:
            keys, values = reader(chunks[0])()
            read_BGHP = attend(query_1GHP.expand(batch, -1, -1, -1), keys, values, scale=scale)
        else:
            weights = position.parameters() if isinstance(position, nn.Module) else ()
            small_chunks = [
                chunk
                for x, y in chunks
                for chunk in zip(x.split(STREAM_CHUNK, 1), y.split(STREAM_CHUNK, 1), strict=True)
            ]
            sources = [*self.parameters(), *weights, *(tensor for chunk in small_chunks for tensor in chunk)]
            read_BGHP = streamed_attention(
                query_1GHP, [reader(chunk) for chunk in small_chunks], scale=scale, sources=sources
            )
        h_1HE = self.embed(functional.pad(start_HX, (0, self.y_size)))[None]
        h_BH1E, label_BGHU = self.xabd.carry(h_1HE.expand(batch, -1, -1).unsqueeze(2), read_BGHP)
        return ContextPoints(key_1HE.expand(batch, -1, -1), h_BH1E.squeeze(2), label_BGHU)


class TargetReading(NamedTuple):
    """Results of attention from queries to the points of a context."""

    r_BQI: Tensor  # input of the decoder
    carried_BQY: Tensor  # attention-weighted mean of outputs, which the decoder corrects


class PointReader(nn.Module):
    """Attention of queries to inducing points, which averages the points' values and labels.

        paper  r(x, H) = MAB(x, H). A decoder maps (x, r) to the distribution of y.
        here   The attention block has no feed-forward layer. Head g averages the labels of the encoder's
               head g: outputs y_g and positions x_g. A learned mixture of all y_g is `carried_BQY`. The
               decoder corrects this mixture. The decoder's inputs are the averaged values, y_g minus the
               mixture, and x_g minus the query's position.

    The number of heads must equal that of the encoder. `width` is the size of `r_BQI`.
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
        """Return the attention of queries at positions x_BQX, embedded as key_BQE, to the points."""
        query_BGQP = self.attention.queries(key_BQE)
        read_BQE, label_BGQU = self.attention.look_up(query_BGQP, *points)
        label_BQGU = label_BGQU.transpose(1, 2)
        y_BQGY, x_BQGX = label_BQGU[..., : self.y_size], label_BQGU[..., self.y_size :]
        carried_BQY = (self.share_G.softmax(0)[:, None] * y_BQGY).sum(2)
        offsets = (y_BQGY - carried_BQY.unsqueeze(2), x_BQGX - x_BQX.unsqueeze(2))
        r_BQI = torch.cat([read_BQE, *(part.flatten(2).to(read_BQE.dtype) for part in offsets)], -1)
        return TargetReading(r_BQI, carried_BQY)
