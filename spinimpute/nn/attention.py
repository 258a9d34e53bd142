"""Attention blocks, named as in the SPIN and NPT papers.

Axes: see `spinimpute.nn`.

    XABA  cross-attention between attributes:  latent attributes read the attributes of their own datapoint
    ABLA  attention between latent attributes: self-attention inside a datapoint's latent attributes
    XABD  cross-attention between datapoints:  inducing points read all datapoints
    ABD   attention between datapoints:        self-attention of whole datapoints (NPT)
    ABA   attention between attributes:        self-attention inside a datapoint (NPT)
    ISAB  induced set attention block:         attention through learned inducing points (Set Transformer)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.shapes import require_count, require_dimensions, require_size

Scale = Literal["head", "full"]

# Fused kernels stop at this head width; wider heads would hold the whole L x M matrix of scores.
FUSED_HEAD_WIDTH = 256
# Queries handled at a time when heads are wider than that.
QUERY_BLOCK = 512
# CUDA kernels number the batch with 16 bits; B * N of a large context exceeds that.
BATCH_BLOCK = 32_768


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
    """

    heads: int = 1
    scale: Scale = "head"
    learned_residual: bool = False
    dropout: float = 0.0
    expansion: int = 4

    def __post_init__(self) -> None:
        require_count("heads", self.heads)
        if self.scale not in ("head", "full"):
            raise ValueError(f"scale must be 'head' or 'full', however: scale={self.scale!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), however: dropout={self.dropout}")


def attend(
    q_BGLP: Tensor,
    k_BGMP: Tensor,
    v_BGMP: Tensor,
    *,
    scale: float,
    visible_BM: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention with bounded memory.

    Parameters
    ----------
    q_BGLP, k_BGMP, v_BGMP : Tensor
        Queries, keys and values.
    scale : float
        Multiplies the scores.
    visible_BM : bool Tensor, optional
        True where a key may be read, at least one in every row; all by default.
    dropout : float
        Probability of dropping an attention weight.

    Returns
    -------
    Tensor (B, G, L, P)
        What each query reads.
    """
    if q_BGLP.shape[0] > BATCH_BLOCK:
        parts = [
            attend(
                q_BGLP[i : i + BATCH_BLOCK],
                k_BGMP[i : i + BATCH_BLOCK],
                v_BGMP[i : i + BATCH_BLOCK],
                scale=scale,
                visible_BM=None if visible_BM is None else visible_BM[i : i + BATCH_BLOCK],
                dropout=dropout,
            )
            for i in range(0, q_BGLP.shape[0], BATCH_BLOCK)
        ]
        return torch.cat(parts)

    mask_B11M = None if visible_BM is None else visible_BM[:, None, None, :]

    def fused(q_BGLP: Tensor, k_BGMP: Tensor, v_BGMP: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            q_BGLP, k_BGMP, v_BGMP, attn_mask=mask_B11M, dropout_p=dropout, scale=scale
        )

    if q_BGLP.shape[-1] <= FUSED_HEAD_WIDTH or q_BGLP.shape[-2] <= QUERY_BLOCK:
        return fused(q_BGLP, k_BGMP, v_BGMP)
    blocks = q_BGLP.split(QUERY_BLOCK, dim=-2)
    if torch.is_grad_enabled():
        done = [checkpoint(fused, block, k_BGMP, v_BGMP, use_reentrant=False) for block in blocks]
    else:
        done = [fused(block, k_BGMP, v_BGMP) for block in blocks]
    return torch.cat(done, dim=-2)


class MultiHeadAttention(nn.Module):
    """MHA(x, h, h): x asks, h answers.

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

    Raises
    ------
    ValueError
        Heads do not divide the width.
    """

    def __init__(
        self, query_width: int, key_width: int, heads: int = 1, scale: Scale = "head", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if query_width % heads:
            raise ValueError(f"heads must divide the width of the queries, however: {query_width=}, {heads=}")
        self.query_width = query_width
        self.key_width = key_width
        self.heads = heads
        self.scale = (query_width // heads if scale == "head" else query_width) ** -0.5
        self.dropout = dropout
        self.query = nn.Linear(query_width, query_width)
        self.key = nn.Linear(key_width, query_width)
        self.value = nn.Linear(key_width, query_width)
        self.output = nn.Linear(query_width, query_width)

    def _split_heads(self, x_BLW: Tensor) -> Tensor:
        return x_BLW.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def queries(self, x_BLW: Tensor) -> Tensor:
        """Project what asks and split it by heads: (B, L, W) -> (B, G, L, P)."""
        return self._split_heads(self.query(x_BLW))

    def keys_values(self, h_BMV: Tensor) -> tuple[Tensor, Tensor]:
        """Project rows to keys and values, (B, G, M, P) each. They depend on their own row of h only."""
        return self._split_heads(self.key(h_BMV)), self._split_heads(self.value(h_BMV))

    def look_up(self, q_BGLP: Tensor, key_BMV: Tensor, value_BMV: Tensor) -> Tensor:
        """Attend with keys that are made of something else than the values.

        Parameters
        ----------
        q_BGLP : Tensor
            See `queries`.
        key_BMV, value_BMV : Tensor
            What keys and values are made of.

        Returns
        -------
        Tensor (B, L, W)
            What each query reads.
        """
        k_BGMP, v_BGMP = self._split_heads(self.key(key_BMV)), self._split_heads(self.value(value_BMV))
        dropout = self.dropout if self.training else 0.0
        return self.join(attend(q_BGLP, k_BGMP, v_BGMP, scale=self.scale, dropout=dropout))

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


class MAB(nn.Module):
    """Multi-head attention block: O = X + MHA(LN(X), H, H); out = O + FF(LN(O)).

    With `learned_residual` the first term of O is a learned projection of X.

    References
    ----------
    Lee et al., Set Transformer, ICML 2019, section 3.1; normalised as in Kossen et al., NeurIPS 2021.
    """

    def __init__(self, query_width: int, key_width: int, options: MABOptions) -> None:
        super().__init__()
        self.options = options
        self.norm = nn.LayerNorm(query_width)
        self.attention = MultiHeadAttention(
            query_width, key_width, options.heads, options.scale, options.dropout
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


class ISAB(nn.Module):
    """Induced set attention: ISAB(X) = MAB(X, MAB(I, X)) with learned inducing points I of X's width.

    References
    ----------
    Lee et al., Set Transformer, ICML 2019, section 3.1.
    """

    def __init__(self, inducing_points: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(1, inducing_points, width))
        nn.init.xavier_uniform_(self.inducing)
        self.read = MAB(width, width, options)
        self.write = MAB(width, width, options)

    def forward(self, x_BLW: Tensor, visible_BL: Tensor | None = None) -> Tensor:
        """Mix a set: (B, L, W) -> the same. visible_BL: bool, False for padding."""
        require_dimensions("x", x_BLW, 3)
        i_BHW = self.inducing.expand(x_BLW.shape[0], -1, -1)
        return self.write(x_BLW, self.read(i_BHW, x_BLW, visible_BL))
