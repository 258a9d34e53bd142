"""The networks MLP, ResNet and FT-Transformer (Gorishniy et al., NeurIPS 2021); trained by `row_estimators`.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.tabular.table import Rows, Schema


class FlatInput(nn.Module):
    """Encoding of a row as one vector: numbers, one-hot categories, and a bit for each missing value.

    Columns without missing values in the training rows have no such bit.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema
        self.may_miss = [i for i, miss in enumerate(schema.may_miss) if miss]
        self.width = len(schema.continuous) + len(self.may_miss) + sum(schema.cardinality)

    def forward(self, rows: Rows) -> Tensor:
        """Encode rows as vectors (N, width)."""
        value_ND, missing_ND = rows
        parts = [value_ND[:, list(self.schema.continuous)], missing_ND[:, self.may_miss].to(value_ND.dtype)]
        for column, n in enumerate(self.schema.cardinality):
            if n:
                one_hot = functional.one_hot(value_ND[:, column].long(), n)
                parts.append((one_hot * ~missing_ND[:, column, None]).to(value_ND.dtype))
        return torch.cat(parts, 1)


class MLP(nn.Module):
    """Multi-layer perceptron: hidden layers of equal width with ReLU and dropout."""

    def __init__(self, schema: Schema, outputs: int, layers: int, width: int, dropout: float) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        parts: list[nn.Module] = []
        input_width = self.input.width
        for _ in range(layers):
            parts += [nn.Linear(input_width, width), nn.ReLU(), nn.Dropout(dropout)]
            input_width = width
        self.layers = nn.Sequential(*parts, nn.Linear(input_width, outputs))

    def forward(self, rows: Rows) -> Tensor:
        """Return outputs (N, O) for the label: logits of the classes, or a number."""
        return self.layers(self.input(rows))


class ResNetBlock(nn.Module):
    """Block of a ResNet: x + Dropout(Linear(Dropout(ReLU(Linear(BatchNorm(x))))))."""

    def __init__(self, width: int, hidden: int, dropout: float, residual_dropout: float) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(residual_dropout),
        )

    def forward(self, x_NE: Tensor) -> Tensor:
        """Transform rows: (N, E) -> (N, E)."""
        return x_NE + self.change(x_NE)


class ResNet(nn.Module):
    """ResNet for tables: a linear layer, blocks, then BatchNorm, ReLU and a linear output layer."""

    def __init__(
        self,
        schema: Schema,
        outputs: int,
        *,
        blocks: int,
        width: int,
        hidden: int,
        dropout: float,
        residual_dropout: float,
    ) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        self.first = nn.Linear(self.input.width, width)
        self.blocks = nn.Sequential(
            *(ResNetBlock(width, hidden, dropout, residual_dropout) for _ in range(blocks))
        )
        self.head = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, rows: Rows) -> Tensor:
        """Return outputs (N, O) for the label: logits of the classes, or a number."""
        return self.head(self.blocks(self.first(self.input(rows))))


class FTBlock(nn.Module):
    """Block of an FT-Transformer: self-attention among the tokens of a row, then a gated network (ReGLU).

    A LayerNorm precedes both parts; in the first block the attention has none.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        attention_dropout: float,
        dropout: float,
        residual_dropout: float,
        normed: bool,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width) if normed else nn.Identity()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.gate_and_value = nn.Linear(width, 2 * hidden)
        self.out = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)
        self.residual_dropout = nn.Dropout(residual_dropout)

    def attention(self, x_NTE: Tensor) -> tuple[Tensor, Tensor]:
        """Return attention weights (N, G, T, T) and values (N, G, T, P)."""
        parts = self.query_key_value(self.attention_norm(x_NTE)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1), v

    def cls_contributions(self, x_NTE: Tensor) -> Tensor:
        """Return the vectors (N, T, E) that [CLS], the first token, reads: attention times values."""
        weight_NGTT, v_NGTP = self.attention(x_NTE)
        join_EGP = self.join.weight.unflatten(1, (self.heads, -1))
        return torch.einsum("ngt,ngtp,egp->nte", weight_NGTT[:, :, 0], v_NGTP, join_EGP)

    def forward(self, x_NTE: Tensor) -> Tensor:
        """Transform the tokens of rows: (N, T, E) -> (N, T, E)."""
        weight, v = self.attention(x_NTE)
        read = self.join((self.attention_dropout(weight) @ v).transpose(1, 2).flatten(-2))
        x_NTE = x_NTE + self.residual_dropout(read)
        gate, value = self.gate_and_value(self.feed_forward_norm(x_NTE)).chunk(2, -1)
        return x_NTE + self.residual_dropout(self.out(self.dropout(value * torch.relu(gate))))


class FTTransformer(nn.Module):
    """FT-Transformer: each column is a token; the output is computed from a further token, [CLS]."""

    def __init__(
        self,
        schema: Schema,
        outputs: int,
        *,
        blocks: int,
        width: int,
        heads: int,
        attention_dropout: float,
        dropout: float,
        residual_dropout: float,
        pieces: int,
    ) -> None:
        super().__init__()
        self.tokens = ColumnEmbedding(
            schema.vocabulary, width, len(schema.cardinality), continuous=schema.continuous, pieces=pieces
        )
        self.cls = nn.Parameter(torch.randn(1, 1, width) * width**-0.5)
        hidden = int(width * 4 / 3)
        self.blocks = nn.ModuleList(
            FTBlock(width, heads, hidden, attention_dropout, dropout, residual_dropout, normed=i > 0)
            for i in range(blocks)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, rows: Rows) -> Tensor:
        """Return outputs (N, O) for the label: logits of the classes, or a number."""
        x_NTE = self._embed_tokens(rows)
        for block in self.blocks:
            x_NTE = block(x_NTE)
        return self.head(x_NTE[:, 0])

    def cls_attention(self, rows: Rows, by_norm: bool) -> Tensor:
        """Return the attention (N, D) of [CLS] to the columns, averaged over blocks and heads.

        With `by_norm`, return the norms of the vectors that [CLS] reads from the columns instead.
        """
        x_NTE, attention = self._embed_tokens(rows), []
        for block in self.blocks:
            assert isinstance(block, FTBlock)
            if by_norm:
                attention.append(block.cls_contributions(x_NTE)[:, 1:].norm(dim=-1))
            else:
                attention.append(block.attention(x_NTE)[0][:, :, 0, 1:].mean(1))
            x_NTE = block(x_NTE)
        return torch.stack(attention).mean(0)

    def _embed_tokens(self, rows: Rows) -> Tensor:
        tokens = self.tokens(rows.value_ND[None], rows.missing_ND[None])[0]
        return torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], 1)
