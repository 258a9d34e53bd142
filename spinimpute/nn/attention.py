"""Attention blocks, named as in the SPIN and NPT papers.

Axes: see `spinimpute.nn`.

    XABA  cross-attention between attributes:  latent attributes read the attributes of their own datapoint
    ABLA  attention between latent attributes: self-attention inside a datapoint's latent attributes
    XABD  cross-attention between datapoints:  inducing points read all datapoints
    ABD   attention between datapoints:        self-attention of whole datapoints (NPT)
    ABA   attention between attributes:        self-attention inside a datapoint (NPT)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.fused_attention import attend
from spinimpute.nn.shapes import require_count, require_dimensions, require_positive, require_size

Scale = Literal["head", "full"]
Score = Literal["dot", "distance"]

STEEPNESS = 3.0  # with 1 attention starts nearly even, and takes twice as many steps to learn where to look


@dataclass(frozen=True)
class MABOptions:
    """What all attention blocks of a model share.

    Attributes
    ----------
    heads : int
        Number of attention heads; must divide the width of every block.
    scale : Scale
        Scores are divided by the square root of the width of one head ("head", as in the papers) or
        of all heads together ("full", as in the code released with them).
    learned_residual : bool
        True: the residual branch of the attention is a learned projection (NPT paper,
        released SPIN code); False: it is the identity (SPIN paper).
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.
    expansion : int
        Hidden width of the feed-forward network, in units of its input width.
    score, steepness
        See `MultiHeadAttention`.
    """

    heads: int = 1
    scale: Scale = "head"
    learned_residual: bool = False
    dropout: float = 0.0
    expansion: int = 4
    score: Score = "dot"
    steepness: float | None = None

    def __post_init__(self) -> None:
        require_count("heads", self.heads)
        if self.scale not in ("head", "full"):
            raise ValueError(f"scale must be 'head' or 'full', however: scale={self.scale!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), however: dropout={self.dropout}")
        if self.score not in ("dot", "distance"):
            raise ValueError(f"score must be 'dot' or 'distance', however: score={self.score!r}")
        if self.steepness is not None:
            require_positive("steepness", self.steepness)


def start_alike(attention: "MultiHeadAttention", steepness: float = STEEPNESS) -> None:
    """Start queries and keys with the same projection, torch's times `steepness`.

    Attention is then far from uniform, and different for different queries, from the first step.
    """
    with torch.no_grad():
        for parameter in attention.key.parameters():
            parameter.mul_(steepness)
    attention.query.load_state_dict(attention.key.state_dict())


class MultiHeadAttention(nn.Module):
    """MHA(x, h, h): x asks, h answers.

        paper  score(q, k) = q . k / sqrt(P)
        here   the same, or with "distance" -|q - k|^2 / (2 sqrt(P)), a query's own |q|^2 left out: no softmax
               over keys sees it. What is left is q . k - |k|^2 / 2, the dot product of (q, 1) and
               (k, -|k|^2 / 2): whatever computes attention, at once or in chunks, computes it.

    With equal projections a distance is a similarity: nothing scores higher than what is equal to the query.
    Of a dot product a long key does. And the weights can pool labels as they are, beside the values: labels
    are appended to the values of each head.

    Parameters
    ----------
    query_width : int
        W, width of the queries, of all heads together and of the output.
    key_width : int
        V, width of what is attended to.
    heads : int
        G; must divide `query_width`.
    scale : Scale
        See `MABOptions`.
    dropout : float
        Probability of dropping an attention weight in training.
    score : {"dot", "distance"}
        Distances are computed in float32, also where autocast is on.
    steepness : float, optional
        Queries and keys start with the same projection, this many times as steep as usual (see
        `start_alike`); by default each has its own start, as in the papers.

    Raises
    ------
    ValueError
        Heads do not divide the width, or queries and keys are to start alike but differ in width.
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        heads: int = 1,
        scale: Scale = "head",
        dropout: float = 0.0,
        *,
        score: Score = "dot",
        steepness: float | None = None,
    ) -> None:
        super().__init__()
        if query_width % heads:
            raise ValueError(f"heads must divide the width of the queries, however: {query_width=}, {heads=}")
        if steepness is not None and query_width != key_width:
            raise ValueError(
                f"queries and keys must have one width to start alike, however: {query_width=}, {key_width=}"
            )
        self.query_width = query_width
        self.key_width = key_width
        self.heads = heads
        self.scale = (query_width // heads if scale == "head" else query_width) ** -0.5
        self.dropout = dropout
        self.score = score
        self.query = nn.Linear(query_width, query_width)
        self.key = nn.Linear(key_width, query_width)
        self.value = nn.Linear(key_width, query_width)
        self.output = nn.Linear(query_width, query_width)
        if steepness is not None:
            start_alike(self, steepness)

    def _split_heads(self, x_BLW: Tensor) -> Tensor:
        return x_BLW.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def queries(self, x_BLW: Tensor) -> Tensor:
        """Project what asks and split it by heads: (B, L, W) -> (B, G, L, P), P + 1 for distances."""
        if self.score == "dot":
            return self._split_heads(self.query(x_BLW))
        return functional.pad(self._split_heads(_precisely(self.query, x_BLW)), (0, 1), value=1.0)

    def _keys(self, h_BMV: Tensor) -> Tensor:
        if self.score == "dot":
            return self._split_heads(self.key(h_BMV))
        k_BGMP = self._split_heads(_precisely(self.key, h_BMV))
        return torch.cat([k_BGMP, -0.5 * k_BGMP.square().sum(-1, keepdim=True)], -1)

    def keys_values(
        self, key_BMV: Tensor, value_BMV: Tensor | None = None, label: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Project rows to keys and values. They depend on their own row only.

        Parameters
        ----------
        key_BMV : Tensor
            What keys are made of, and values, too.
        value_BMV : Tensor, optional
            What values are made of instead.
        label : Tensor (B, M, U), or (B, G, M, U) with labels of each head, optional
            What the weights are to pool as it is.

        Returns
        -------
        Tensor (B, G, M, P), P + 1 for distances
            Keys.
        Tensor (B, G, M, P + U)
            Values with the labels behind them.
        """
        v_BGMP = self._split_heads(self.value(key_BMV if value_BMV is None else value_BMV))
        if label is not None:
            label_BGMU = (label.unsqueeze(1) if label.ndim == 3 else label).expand(-1, self.heads, -1, -1)
            v_BGMP = torch.cat([v_BGMP, label_BGMU], -1)  # labels keep their digits: cat promotes
        return self._keys(key_BMV), v_BGMP

    def pooled(self, o_BGLP: Tensor) -> tuple[Tensor, Tensor]:
        """Split what was read into values, their heads mixed, and labels.

        Parameters
        ----------
        o_BGLP : Tensor (B, G, L, P + U)
            What attention gave.

        Returns
        -------
        Tensor (B, L, W)
            What each query reads.
        Tensor (B, G, L, U)
            The labels that it pools.
        """
        head = self.query_width // self.heads
        return self.join(o_BGLP[..., :head]), o_BGLP[..., head:]

    def look_up(
        self, q_BGLP: Tensor, key_BMV: Tensor, value_BMV: Tensor, label: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with keys that are made of something else than the values.

        Parameters
        ----------
        q_BGLP : Tensor
            See `queries`.
        key_BMV, value_BMV, label : Tensor
            See `keys_values`.

        Returns
        -------
        Tensor (B, L, W)
            What each query reads.
        Tensor (B, G, L, U)
            The labels that it pools; U is 0 without labels.
        """
        k_BGMP, v_BGMP = self.keys_values(key_BMV, value_BMV, label)
        dropout = self.dropout if self.training else 0.0
        return self.pooled(attend(q_BGLP, k_BGMP, v_BGMP, scale=self.scale, dropout=dropout))

    def join(self, o_BGLP: Tensor) -> Tensor:
        """Mix the heads: (B, G, L, P) -> (B, L, W)."""
        return self.output(o_BGLP.transpose(-3, -2).flatten(-2))

    def forward(self, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None) -> Tensor:
        """Attend.

        Parameters
        ----------
        x_BLW : Tensor
            What asks.
        h_BMV : Tensor
            What is asked.
        visible_BM : bool Tensor, optional
            True where a row of h may be read; all by default.

        Returns
        -------
        Tensor (B, L, W)
            What each row of x reads of h.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        require_dimensions("x", x_BLW, 3)
        require_dimensions("h", h_BMV, 3)
        require_size("x", x_BLW, -1, self.query_width, "numbers (the width of the queries)")
        require_size("h", h_BMV, -1, self.key_width, "numbers (the width of the keys)")
        require_size("h", h_BMV, 0, x_BLW.shape[0], "tasks (as x has)")
        if visible_BM is not None:
            require_dimensions("visible", visible_BM, 2)
            require_size("visible", visible_BM, 1, h_BMV.shape[1], "keys (as h has)")
        k_BGMP, v_BGMP = self.keys_values(h_BMV)
        o_BGLP = attend(
            self.queries(x_BLW),
            k_BGMP,
            v_BGMP,
            scale=self.scale,
            visible_BM=visible_BM,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.join(o_BGLP)


def _precisely(projection: nn.Linear, x: Tensor) -> Tensor:
    """Project in float32 at least: differences of positions need more digits than autocast keeps."""
    with torch.autocast(x.device.type, enabled=False):
        return projection(x.to(projection.weight.dtype))


class MAB(nn.Module):
    """Multi-head attention block: O = X + MHA(LN(X), H, H); out = O + FF(LN(O)).

    With `learned_residual` the first term of O is a learned projection of X. Where scores are distances
    queries are not normalised, as keys are not.

    References
    ----------
    Lee et al., Set Transformer, ICML 2019, section 3.1; normalised as in Kossen et al., NeurIPS 2021.
    """

    def __init__(self, query_width: int, key_width: int, options: MABOptions) -> None:
        super().__init__()
        self.options = options
        self.norm = nn.LayerNorm(query_width) if options.score == "dot" else nn.Identity()
        o = options
        self.attention = MultiHeadAttention(
            query_width, key_width, o.heads, o.scale, o.dropout, score=o.score, steepness=o.steepness
        )
        self.residual = nn.Linear(query_width, query_width) if options.learned_residual else nn.Identity()
        self.feed_forward_norm = nn.LayerNorm(query_width)
        self.feed_forward = nn.Sequential(
            nn.Linear(query_width, options.expansion * query_width),
            nn.GELU(),
            nn.Dropout(options.dropout),
            nn.Linear(options.expansion * query_width, query_width),
            nn.Dropout(options.dropout),
        )

    def queries(self, x_BLW: Tensor) -> Tensor:
        """What the attention asks with: (B, L, W) -> (B, G, L, P)."""
        return self.attention.queries(self.norm(x_BLW))

    def close(self, x_BLW: Tensor, attended_BLW: Tensor) -> Tensor:
        """Compute everything after the attention: residual branch and feed-forward network."""
        o_BLW = self.residual(x_BLW) + attended_BLW
        return o_BLW + self.feed_forward(self.feed_forward_norm(o_BLW))

    def forward(self, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None) -> Tensor:
        """Attend, then pass through the feed-forward network; parameters as of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor (B, L, W)
            The rows of x with what they read of h.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        require_dimensions("x", x_BLW, 3)
        require_size("x", x_BLW, -1, self.attention.query_width, "numbers (the width of the queries)")
        return self.close(x_BLW, self.attention(self.norm(x_BLW), h_BMV, visible_BM))


class XABA(nn.Module):
    """Cross-attention between attributes: a datapoint's latent attributes read its attributes."""

    def __init__(self, width: int, options: MABOptions) -> None:
        super().__init__()
        self.mab = MAB(width, width, options)

    def forward(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        """Read.

        Parameters
        ----------
        a_BNFE : Tensor
            Latent attributes.
        d_BNDE : Tensor
            Embedded datapoints.

        Returns
        -------
        Tensor (B, N, F, E)
            Latent attributes that have read the attributes.
        """
        require_dimensions("a", a_BNFE, 4)
        require_dimensions("d", d_BNDE, 4)
        out = self.mab(a_BNFE.flatten(0, 1), d_BNDE.flatten(0, 1))
        return out.unflatten(0, a_BNFE.shape[:2])


class ABA(nn.Module):
    """Attention between attributes: self-attention inside every datapoint on its own."""

    def __init__(self, width: int, options: MABOptions) -> None:
        super().__init__()
        self.mab = MAB(width, width, options)

    def forward(self, d_BNDE: Tensor) -> Tensor:
        """Mix the attributes of each datapoint: (B, N, D, E) -> the same."""
        require_dimensions("d", d_BNDE, 4)
        rows = d_BNDE.flatten(0, 1)
        return self.mab(rows, rows).unflatten(0, d_BNDE.shape[:2])


class ABLA(ABA):
    """Attention between latent attributes: ABA over F latent attributes, (B, N, F, E) -> the same."""


class XABD(nn.Module):
    """Cross-attention between datapoints: H inducing points read N datapoints, each unfolded to one vector.

    `forward` is the paper's. `queries`, `keys_values` and `carry` are its parts, with keys that are made of
    something else than the values (of positions alone), and with labels that the same weights pool:

        paper  H' = MAB(H, A): O = H + W sum_n softmax_n(score(LN(H), A)) value(A_n); H' = O + FF(LN(O))
        here   scores compare key_h with key_n, values are of A; label_gh = sum_n softmax_n(score_g) label_n

    Parameters
    ----------
    attributes : int
        F, latent attributes of an inducing point and of a datapoint.
    width : int
        E.
    options : MABOptions
        Shared options; heads must divide F * E.
    """

    def __init__(self, attributes: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.attributes = attributes
        self.width = width
        self.mab = MAB(attributes * width, attributes * width, options)

    def forward(self, h_BHFE: Tensor, a_BNFE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Read.

        Parameters
        ----------
        h_BHFE : Tensor
            Inducing points.
        a_BNFE : Tensor
            Latent attributes of the datapoints.
        visible_BN : bool Tensor, optional
            False for padding; all are read by default.

        Returns
        -------
        Tensor (B, H, F, E)
            Inducing points that have read the datapoints.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        self.check(h_BHFE, a_BNFE)
        out = self.mab(h_BHFE.flatten(-2), a_BNFE.flatten(-2), visible_BN)
        return out.unflatten(-1, (self.attributes, self.width))

    def queries(self, key_BHFE: Tensor) -> Tensor:
        """What inducing points with these keys ask with, (B, G, H, P)."""
        return self.mab.queries(key_BHFE.flatten(-2))

    def keys_values(self, key_BNFE: Tensor, a_BNFE: Tensor, label_BNU: Tensor) -> tuple[Tensor, Tensor]:
        """What datapoints with these keys and labels answer with; see `MultiHeadAttention.keys_values`."""
        return self.mab.attention.keys_values(key_BNFE.flatten(-2), a_BNFE.flatten(-2), label_BNU)

    def carry(self, h_BHFE: Tensor, read_BGHP: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what follows the attention.

        Parameters
        ----------
        h_BHFE : Tensor
            Inducing points before.
        read_BGHP : Tensor (B, G, H, P + U)
            What the attention gave, at once or in chunks.

        Returns
        -------
        Tensor (B, H, F, E)
            Inducing points that have read the datapoints.
        Tensor (B, G, H, U)
            The labels that they carry, of each head.
        """
        attended_BHW, label_BGHU = self.mab.attention.pooled(read_BGHP)
        out_BHW = self.mab.close(h_BHFE.flatten(-2), attended_BHW)
        return out_BHW.unflatten(-1, (self.attributes, self.width)), label_BGHU

    def check(self, h_BHFE: Tensor, a_BNFE: Tensor) -> None:
        """Raise ValueError where shapes do not fit this layer."""
        for name, tensor in (("h", h_BHFE), ("a", a_BNFE)):
            require_dimensions(name, tensor, 4)
            require_size(name, tensor, 2, self.attributes, "latent attributes")
            require_size(name, tensor, 3, self.width, "numbers (the embedding width)")


class ABD(nn.Module):
    """Attention between datapoints: self-attention of N datapoints, each unfolded to D * E numbers."""

    def __init__(self, attributes: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.attributes = attributes
        self.width = width
        self.mab = MAB(attributes * width, attributes * width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix the datapoints: (B, N, D, E) -> the same; visible_BN as of `XABD.forward`."""
        require_dimensions("d", d_BNDE, 4)
        require_size("d", d_BNDE, 2, self.attributes, "attributes")
        rows = d_BNDE.flatten(-2)
        return self.mab(rows, rows, visible_BN).unflatten(-1, (self.attributes, self.width))
