"""Attention with bounded memory, and the attention blocks of the SPIN and NPT papers.

Axes: see `spinimpute.nn`.

    XABA  cross-attention between attributes:  latent attributes attend to their own datapoint's attributes
    ABLA  attention between latent attributes: self-attention inside a datapoint's latent attributes
    XABD  cross-attention between datapoints:  inducing points attend to all datapoints
    ABD   attention between datapoints:        self-attention of whole datapoints (NPT)
    ABA   attention between attributes:        self-attention inside a datapoint (NPT)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.checks import require_choice, require_count, require_positive, require_shape

Scale = Literal["head", "full"]
Score = Literal["dot", "distance"]

STEEPNESS = 3.0  # see `start_alike`; with 1, initial attention is nearly uniform and learns half as fast
FUSED_HEAD_WIDTH = 256  # widest heads of fused kernels; for wider ones, torch stores the L x M score matrix
QUERY_BLOCK = 512  # queries computed at a time if heads are wider than FUSED_HEAD_WIDTH
BATCH_BLOCK = 32_768  # CUDA kernels index the batch with 16 bits; B * N of a large context exceeds that


@dataclass(frozen=True)
class MABOptions:
    """Options that all attention blocks of a model share."""

    heads: int = 1  # must divide the width of every block
    scale: Scale = "head"  # divide scores by sqrt(width of one head), or "full": sqrt(width of all heads)
    learned_residual: bool = False  # residual branch: learned projection (NPT paper) or identity (SPIN paper)
    dropout: float = 0.0  # of attention weights and feed-forward outputs
    expansion: int = 4  # hidden width of the feed-forward network, in units of its input width
    score: Score = "dot"  # see `MultiHeadAttention`
    steepness: float | None = None  # see `MultiHeadAttention`

    def __post_init__(self) -> None:
        require_count("heads", self.heads)
        require_choice("scale", self.scale, ("head", "full"))
        require_choice("score", self.score, ("dot", "distance"))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.steepness is not None:
            require_positive("steepness", self.steepness)


def attend(
    q_BGLP: Tensor,
    k_BGMP: Tensor,
    v_BGMP: Tensor,
    *,
    scale: float,
    visible_BM: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return scaled dot-product attention (B, G, L, P) with bounded memory; zeros if there are no keys.

    Values may be wider or narrower than keys. `visible_BM` is True for keys that may get attention. If there
    are keys, every task needs at least one visible key.
    """
    if not k_BGMP.shape[-2]:
        return v_BGMP.new_zeros(*q_BGLP.shape[:-1], v_BGMP.shape[-1])
    value_width = v_BGMP.shape[-1]
    if value_width != q_BGLP.shape[-1]:  # fused kernels require equal widths of keys and values
        width = max(value_width, q_BGLP.shape[-1])
        padded = (functional.pad(t, (0, width - t.shape[-1])) for t in (q_BGLP, k_BGMP, v_BGMP))
        return attend(*padded, scale=scale, visible_BM=visible_BM, dropout=dropout)[..., :value_width]
    if q_BGLP.shape[0] > BATCH_BLOCK:
        tensors = (q_BGLP, k_BGMP, v_BGMP, *(() if visible_BM is None else (visible_BM,)))
        blocks = zip(*(tensor.split(BATCH_BLOCK) for tensor in tensors), strict=True)
        return torch.cat(
            [
                attend(q, k, v, scale=scale, visible_BM=mask[0] if mask else None, dropout=dropout)
                for q, k, v, *mask in blocks
            ]
        )

    mask_B11M = None if visible_BM is None else visible_BM[:, None, None, :]

    def fused(q_BGLP: Tensor, k_BGMP: Tensor, v_BGMP: Tensor) -> Tensor:
        with torch.autocast(q_BGLP.device.type, enabled=False):  # distances need float32
            return functional.scaled_dot_product_attention(
                q_BGLP, k_BGMP, v_BGMP.to(q_BGLP.dtype), attn_mask=mask_B11M, dropout_p=dropout, scale=scale
            )

    if q_BGLP.shape[-1] <= FUSED_HEAD_WIDTH or q_BGLP.shape[-2] <= QUERY_BLOCK:
        return fused(q_BGLP, k_BGMP, v_BGMP)
    query_blocks = q_BGLP.split(QUERY_BLOCK, dim=-2)
    if torch.is_grad_enabled():
        outputs = [checkpoint(fused, block, k_BGMP, v_BGMP, use_reentrant=False) for block in query_blocks]
    else:
        outputs = [fused(block, k_BGMP, v_BGMP) for block in query_blocks]
    return torch.cat(outputs, dim=-2)


def start_alike(attention: "MultiHeadAttention", steepness: float = STEEPNESS) -> None:
    """Give the projections of queries and keys equal weights: PyTorch's default times `steepness`.

    The initial attention is then far from uniform and differs between queries.
    """
    with torch.no_grad():
        for parameter in attention.key.parameters():
            parameter.mul_(steepness)
    attention.query.load_state_dict(attention.key.state_dict())


class MultiHeadAttention(nn.Module):
    """Multi-head attention MHA(x, h, h), with dot products or distances, that can also average labels.

        paper  score(q, k) = q . k / sqrt(P)
        here   "dot": as in the paper. "distance": -|q - k|^2 / (2 sqrt(P)). The term |q|^2 is omitted,
               because a softmax over keys does not depend on it. The rest, q . k - |k|^2 / 2, is the dot
               product of (q, 1) and (k, -|k|^2 / 2), so any implementation of attention can compute it.

    If queries and keys have the same projection, the distance score is largest for a key that equals the
    query, whereas the dot product is larger for longer keys. With `steepness`, both projections are
    initialized with equal weights (see `start_alike`). Labels are appended to the values of each head, so the
    attention weights average the labels themselves. Distances are computed in float32 even under autocast.
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
            raise ValueError(f"heads must divide the width of the queries, got {query_width=}, {heads=}")
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
        """Project queries and split them by head: (B, L, W) -> (B, G, L, P), P + 1 for distances."""
        if self.score == "dot":
            return self._split_heads(self.query(x_BLW))
        return functional.pad(self._split_heads(_project_in_float32(self.query, x_BLW)), (0, 1), value=1.0)

    def _keys(self, h_BMV: Tensor) -> Tensor:
        if self.score == "dot":
            return self._split_heads(self.key(h_BMV))
        k_BGMP = self._split_heads(_project_in_float32(self.key, h_BMV))
        return torch.cat([k_BGMP, -0.5 * k_BGMP.square().sum(-1, keepdim=True)], -1)

    def keys_values(
        self, key_BMV: Tensor, value_BMV: Tensor | None = None, label: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return keys (B, G, M, P), P + 1 for distances, and values with labels appended (B, G, M, P + U).

        Without `value_BMV`, values are computed from `key_BMV`. Labels are (B, M, U), or (B, G, M, U) if they
        differ between heads. Each row depends on its own inputs only.
        """
        v_BGMP = self._split_heads(self.value(key_BMV if value_BMV is None else value_BMV))
        if label is not None:
            label_BGMU = (label.unsqueeze(1) if label.ndim == 3 else label).expand(-1, self.heads, -1, -1)
            v_BGMP = torch.cat([v_BGMP, label_BGMU], -1)  # has the wider type: labels keep their precision
        return self._keys(key_BMV), v_BGMP

    def split_labels(self, o_BGLP: Tensor) -> tuple[Tensor, Tensor]:
        """Split attention outputs (B, G, L, P + U) into joined values (B, L, W) and labels (B, G, L, U)."""
        head = self.query_width // self.heads
        return self.join_heads(o_BGLP[..., :head]), o_BGLP[..., head:]

    def look_up(
        self, q_BGLP: Tensor, key_BMV: Tensor, value_BMV: Tensor, label: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with separate keys and values; return values (B, L, W) and mean labels (B, G, L, U)."""
        k_BGMP, v_BGMP = self.keys_values(key_BMV, value_BMV, label)
        dropout = self.dropout if self.training else 0.0
        return self.split_labels(attend(q_BGLP, k_BGMP, v_BGMP, scale=self.scale, dropout=dropout))

    def join_heads(self, o_BGLP: Tensor) -> Tensor:
        """Mix the heads: (B, G, L, P) -> (B, L, W)."""
        return self.output(o_BGLP.transpose(-3, -2).flatten(-2))

    def forward(self, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None) -> Tensor:
        """Attend from x to the visible rows of h: (B, L, W)."""
        require_shape("x", x_BLW, None, None, self.query_width)
        require_shape("h", h_BMV, x_BLW.shape[0], None, self.key_width)
        k_BGMP, v_BGMP = self.keys_values(h_BMV)
        o_BGLP = attend(
            self.queries(x_BLW),
            k_BGMP,
            v_BGMP,
            scale=self.scale,
            visible_BM=visible_BM,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.join_heads(o_BGLP)


def _project_in_float32(projection: nn.Linear, x: Tensor) -> Tensor:
    """Return the projection in float32 or wider, because autocast would round differences of positions."""
    with torch.autocast(x.device.type, enabled=False):
        return projection(x.to(projection.weight.dtype))


def attention_weights(
    attention: MultiHeadAttention, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None
) -> Tensor:
    """Return the attention weights (B, G, L, M), which `MultiHeadAttention.forward` does not store."""
    k_BGMP, _ = attention.keys_values(h_BMV)
    score_BGLM = attention.queries(x_BLW) @ k_BGMP.mT * attention.scale
    if visible_BM is not None:
        score_BGLM = score_BGLM.masked_fill(~visible_BM[:, None, None, :], -torch.inf)
    return torch.softmax(score_BGLM, -1)


@contextmanager
def recorded_attention(layers: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Yield a list to which every forward call of these layers appends its weights (B, G, L, M)."""
    maps: list[Tensor] = []

    def record(attention: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        assert isinstance(attention, MultiHeadAttention)
        with torch.no_grad():
            maps.append(attention_weights(attention, *inputs))

    handles = [attention.register_forward_hook(record) for attention in layers]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()


class MAB(nn.Module):
    """Multi-head attention block: O = X + MHA(LN(X), H, H); out = O + FF(LN(O)).

    LN is layer normalisation. With `learned_residual` the first term of O is a learned projection of X. With
    the distance score, queries are not normalised, because keys are not either. Lee et al., Set Transformer,
    ICML 2019, section 3.1; normalisation as in Kossen et al., NeurIPS 2021.
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
        """Return the queries of the attention: (B, L, W) -> (B, G, L, P)."""
        return self.attention.queries(self.norm(x_BLW))

    def finish(self, x_BLW: Tensor, attended_BLW: Tensor) -> Tensor:
        """Return the output of the layers after the attention: residual branch and feed-forward network."""
        o_BLW = self.residual(x_BLW) + attended_BLW
        return o_BLW + self.feed_forward(self.feed_forward_norm(o_BLW))

    def forward(self, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None) -> Tensor:
        """Attend from x to the visible rows of h, then apply the feed-forward network: (B, L, W)."""
        return self.finish(x_BLW, self.attention(self.norm(x_BLW), h_BMV, visible_BM))


class XABA(nn.Module):
    """Cross-attention between attributes: the latent attributes of a datapoint attend to its attributes."""

    def __init__(self, width: int, options: MABOptions) -> None:
        super().__init__()
        self.mab = MAB(width, width, options)

    def forward(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        """Return the latent attributes (B, N, F, E) after attending to the attributes."""
        out = self.mab(a_BNFE.flatten(0, 1), d_BNDE.flatten(0, 1))
        return out.unflatten(0, a_BNFE.shape[:2])


class ABA(nn.Module):
    """Attention between attributes: self-attention inside each datapoint."""

    def __init__(self, width: int, options: MABOptions) -> None:
        super().__init__()
        self.mab = MAB(width, width, options)

    def forward(self, d_BNDE: Tensor) -> Tensor:
        """Mix the attributes of each datapoint: (B, N, D, E) -> (B, N, D, E)."""
        rows = d_BNDE.flatten(0, 1)
        return self.mab(rows, rows).unflatten(0, d_BNDE.shape[:2])


class ABLA(ABA):
    """Attention between latent attributes: ABA over F latent attributes, (B, N, F, E) -> (B, N, F, E)."""


class XABD(nn.Module):
    """Cross-attention between datapoints: H inducing points attend to N datapoints, each flattened.

    `forward` computes the paper's attention. `queries`, `keys_values` and `carry` are its separate steps.
    With these steps, keys may differ from values (keys may be positions alone), and the attention weights may
    also average labels:

        paper  H' = MAB(H, A): O = H + W sum_n softmax_n(score(LN(H), A)) value(A_n); H' = O + FF(LN(O))
        here   scores compare key_h with key_n; same values; label_gh = sum_n softmax_n(score_g) label_n
    """

    def __init__(self, attributes: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.attributes = attributes
        self.width = width
        self.mab = MAB(attributes * width, attributes * width, options)

    def forward(self, h_BHFE: Tensor, a_BNFE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Return the inducing points (B, H, F, E) after attending to the visible datapoints."""
        out = self.mab(h_BHFE.flatten(-2), a_BNFE.flatten(-2), visible_BN)
        return out.unflatten(-1, (self.attributes, self.width))

    def queries(self, key_BHFE: Tensor) -> Tensor:
        """Return the attention queries (B, G, H, P) of inducing points with these keys."""
        return self.mab.queries(key_BHFE.flatten(-2))

    def keys_values(self, key_BNFE: Tensor, a_BNFE: Tensor, label_BNU: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of datapoints, see `MultiHeadAttention.keys_values`."""
        return self.mab.attention.keys_values(key_BNFE.flatten(-2), a_BNFE.flatten(-2), label_BNU)

    def carry(self, h_BHFE: Tensor, read_BGHP: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new inducing points (B, H, F, E) and their mean labels by head (B, G, H, U).

        `read_BGHP` is the output of the attention, labels included.
        """
        attended_BHW, label_BGHU = self.mab.attention.split_labels(read_BGHP)
        out_BHW = self.mab.finish(h_BHFE.flatten(-2), attended_BHW)
        return out_BHW.unflatten(-1, (self.attributes, self.width)), label_BGHU


class ABD(nn.Module):
    """Attention between datapoints: self-attention of N datapoints, each flattened to D * E numbers."""

    def __init__(self, attributes: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.attributes = attributes
        self.width = width
        self.mab = MAB(attributes * width, attributes * width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix the visible datapoints: (B, N, D, E) -> (B, N, D, E)."""
        rows = d_BNDE.flatten(-2)
        return self.mab(rows, rows, visible_BN).unflatten(-1, (self.attributes, self.width))
