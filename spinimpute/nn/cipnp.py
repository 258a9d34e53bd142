"""The conditional inducing point neural process (SPIN paper, section 3.3), over tokens and over points.

r_c = Encoder(context), r(x, r_c) = MAB(x, r_c), and a small network turns (x, r) into the parameters of a
distribution of every attribute. `CIPNP` is that over tokens. `PointEncoder` and `PointReader` are the
encoder and the reader of points (x, y), with labels y that attention carries.

Axes: see `spinimpute.nn`; U labels of an inducing point, Y + X.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical
from torch.nn import functional

from spinimpute.nn.attention import XABD, MABOptions, MultiHeadAttention
from spinimpute.nn.carrying import LabelledChunk
from spinimpute.nn.embedding import mlp
from spinimpute.nn.fused_attention import attend
from spinimpute.nn.predictors import TokenwiseReader
from spinimpute.nn.spin import SPIN, SPINConfig
from spinimpute.nn.streaming import Chunk, KeysValues, streamed_attention

RECOMPUTED_FROM = 256  # datapoints: what grows with a larger context is computed again for the gradient
PIECE = 256  # datapoints of a larger context that are read at a time: they stay in a processor's cache
DistributionName = Literal["categorical", "bernoulli"]


class CIPNPHead(nn.Module):
    """Decoder of (x, r(x, H)), and of the mean of H too where `pooled`, to `outputs` numbers an attribute.

    Parameters
    ----------
    width : int
        E.
    outputs : int
        Parameters of one attribute's distribution.
    layers : int
        Layers of the reader that computes r(x, H).
    options : MABOptions
        Shared by the attention blocks.
    hidden : int, optional
        Width of the decoder's two hidden layers; 4 * E by default.
    pooled : bool
        Also give the decoder the mean of all inducing points, the deterministic pooling path of the
        conditional neural processes.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        layers: int,
        options: MABOptions,
        *,
        hidden: int | None = None,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        self.reader = TokenwiseReader(width, layers, options)
        self.pooled = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) if pooled else None
        )
        self.decoder = nn.Sequential(
            nn.Linear((3 if pooled else 2) * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Decode.

        Parameters
        ----------
        x_BQDE : Tensor
            Embedded queries.
        h_BHFE : Tensor
            Inducing points.

        Returns
        -------
        Tensor (B, Q, D, outputs)
            Parameters of the distribution of each attribute.
        """
        parts = [x_BQDE, self.reader(x_BQDE, h_BHFE)]
        if self.pooled is not None:
            pooled_BE = self.pooled(h_BHFE).mean((1, 2))
            parts.append(pooled_BE[:, None, None].expand_as(x_BQDE))
        return self.decoder(torch.cat(parts, -1))


class CIPNP(SPIN):
    """A `SPIN` whose predictor is a `CIPNPHead`: `predict` gives distribution parameters (logits).

    Parameters
    ----------
    config : SPINConfig
        Of the encoder and the reader; `config.predictor` must be "tokenwise".
    distribution : DistributionName
        "categorical": K logits an attribute; "bernoulli": one, of category 1.
    pooled : bool
        See `CIPNPHead`.

    Raises
    ------
    ValueError
        Another predictor, or a Bernoulli of more than two categories.
    """

    def __init__(
        self, config: SPINConfig, distribution: DistributionName = "categorical", *, pooled: bool = False
    ) -> None:
        if config.predictor != "tokenwise":
            raise ValueError(f"predictor must be 'tokenwise' for CIPNP, however: {config.predictor!r}")
        if distribution not in ("categorical", "bernoulli"):
            raise ValueError(f"distribution must be 'categorical' or 'bernoulli', however: {distribution!r}")
        if distribution == "bernoulli" and config.vocabulary != 2:
            raise ValueError(f"vocabulary must be 2 for a Bernoulli, however: {config.vocabulary}")
        outputs = config.vocabulary if distribution == "categorical" else 1
        head = CIPNPHead(config.width, outputs, config.predictor_layers, config.options, pooled=pooled)
        super().__init__(config, predictor=head)
        self.distribution_name = distribution

    def distribution(self, parameters: Tensor) -> Categorical | Bernoulli:
        """Distribution of every attribute.

        Parameters
        ----------
        parameters : Tensor (B, Q, D, K)
            What `predict` gave.

        Returns
        -------
        Categorical or Bernoulli
            Of batch shape (B, Q, D).
        """
        if self.distribution_name == "categorical":
            return Categorical(logits=parameters)
        return Bernoulli(logits=parameters.squeeze(-1))


class KeptPoints(NamedTuple):
    """What is kept of a context, L points.

    Attributes
    ----------
    key_BLE : Tensor
        Embedded positions, which queries compare with their own.
    value_BLE : Tensor
        What the points have read.
    label_BGLU : Tensor
        The labels that they carry, of each head of the encoder: mean outputs, then mean positions, of the
        same datapoints with the same weights.
    """

    key_BLE: Tensor
    value_BLE: Tensor
    label_BGLU: Tensor


class PointEncoder(nn.Module):
    """Inducing points at positions of their own read labelled points and carry their labels: XABD once.

        paper  H' = MAB(H, D), H starts from constants, keys are of D, labels among its attributes
        here   h starts as the embedded point (s_h, 0) at a learned position s_h; key_h = position(s_h) asks
               key_n = position(x_n), so that weights depend on positions alone; values are of
               embedded (x_n, y_n); the same weights pool (y_n, x_n) as they are

    Parameters
    ----------
    x_size, y_size : int
        X and Y.
    width : int
        E.
    layers : int
        Of the network that embeds points.
    options : MABOptions
        Of the attention.

    References
    ----------
    Rastogi et al., ICLR 2023, section 3.2 and 3.3.
    """

    def __init__(self, x_size: int, y_size: int, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        self.y_size = y_size
        self.embed = mlp(x_size + y_size, width, width, layers)
        self.xabd = XABD(1, width, options)

    def forward(
        self, chunks: Sequence[LabelledChunk], start_HX: Tensor, position: Callable[[Tensor], Tensor]
    ) -> KeptPoints:
        """Encode a context, which may come in chunks: that changes neither result nor gradients.

        Parameters
        ----------
        chunks : sequence of (x_BNX, y_BNY)
            Positions and outputs; N may be 0.
        start_HX : Tensor
            Positions of the inducing points.
        position : callable
            Embeds positions, (..., X) -> (..., E): a network, the same for inducing points, datapoints and
            queries.

        Returns
        -------
        KeptPoints
            The inducing points, L = H, U = Y + X. Without datapoints all labels are 0.

        Raises
        ------
        ValueError
            There is no chunk.
        """
        if not len(chunks):
            raise ValueError("chunks must hold at least one chunk, however: it is empty")
        key_1HE = position(start_HX[None])
        query_1GHP = self.xabd.queries(key_1HE.unsqueeze(2))
        scale = self.xabd.mab.attention.scale

        def answering(chunk: LabelledChunk) -> Chunk:
            x_BNX, y_BNY = chunk

            def keys_values() -> KeysValues:
                embedded_BNE = self.embed(torch.cat([x_BNX, y_BNY], -1))
                label_BNU = torch.cat([y_BNY, x_BNX], -1)
                parts = self.xabd.keys_values(
                    position(x_BNX).unsqueeze(2), embedded_BNE.unsqueeze(2), label_BNU
                )
                return KeysValues(*parts)

            return keys_values

        batch, first = chunks[0][0].shape[:2]
        if len(chunks) == 1 and first < RECOMPUTED_FROM:
            keys, values, _ = answering(chunks[0])()
            read_BGHP = attend(query_1GHP.expand(batch, -1, -1, -1), keys, values, scale=scale)
        else:
            weights = position.parameters() if isinstance(position, nn.Module) else ()
            pieces = [
                piece for x, y in chunks for piece in zip(x.split(PIECE, 1), y.split(PIECE, 1), strict=True)
            ]
            sources = [*self.parameters(), *weights, *(part for piece in pieces for part in piece)]
            answers = [answering(piece) for piece in pieces]
            read_BGHP = streamed_attention(query_1GHP, answers, scale=scale, sources=sources)
        h_1HE = self.embed(functional.pad(start_HX, (0, self.y_size)))[None]
        h_BH1E, label_BGHU = self.xabd.carry(h_1HE.expand(batch, -1, -1).unsqueeze(2), read_BGHP)
        return KeptPoints(key_1HE.expand(batch, -1, -1), h_BH1E.squeeze(2), label_BGHU)


class PointsRead(NamedTuple):
    """What queries have read.

    Attributes
    ----------
    r_BQI : Tensor
        For a decoder.
    carried_BQY : Tensor
        The outputs that the attention carried: what a decoder is to correct.
    """

    r_BQI: Tensor
    carried_BQY: Tensor


class PointReader(nn.Module):
    """Queries read inducing points and the labels that they carry.

        paper  r(x, H) = MAB(x, H), and a decoder of (x, r) gives the distribution of y
        here   attention alone; head g pools the labels of the encoder's head g, y_g and x_g. The mixture of
               all y_g is what was carried, and a decoder is to correct it by what it knows: what the values
               say, how far each y_g is from the mixture, and how far x_g, where it comes from, from the query

    Parameters
    ----------
    x_size, y_size : int
        X and Y.
    width : int
        E.
    options : MABOptions
        Of the attention; as many heads as the encoder has.
    """

    def __init__(self, x_size: int, y_size: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.y_size = y_size
        self.attention = MultiHeadAttention(
            width, width, options.heads, options.scale, score=options.score, steepness=options.steepness
        )
        self.share_G = nn.Parameter(torch.zeros(options.heads))
        self.width = width + options.heads * (x_size + y_size)

    def forward(self, key_BQE: Tensor, x_BQX: Tensor, points: KeptPoints) -> PointsRead:
        """Read.

        Parameters
        ----------
        key_BQE, x_BQX : Tensor
            Positions, embedded and as they are.
        points : KeptPoints
            Of the context.

        Returns
        -------
        PointsRead
            `r_BQI` is as wide as `width`.
        """
        asked_BGQP = self.attention.queries(key_BQE)
        read_BQE, label_BGQU = self.attention.look_up(asked_BGQP, *points)
        label_BQGU = label_BGQU.transpose(1, 2)
        y_BQGY, x_BQGX = label_BQGU[..., : self.y_size], label_BQGU[..., self.y_size :]
        carried_BQY = (self.share_G.softmax(0)[:, None] * y_BQGY).sum(2)
        offsets = (y_BQGY - carried_BQY.unsqueeze(2), x_BQGX - x_BQX.unsqueeze(2))
        r_BQI = torch.cat([read_BQE, *(part.flatten(2).to(read_BQE.dtype) for part in offsets)], -1)
        return PointsRead(r_BQI, carried_BQY)
