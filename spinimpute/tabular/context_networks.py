"""The published SPIN, NPT and Set Transformer on tables.

The label is the last column of a row: a category or a scaled number. It is missing in queries.
`context_estimators` trains these networks.

Axes: see `spinimpute.nn`; D columns without the label.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABD, MultiHeadAttention
from spinimpute.nn.row_models import RowModel
from spinimpute.nn.spin import SPIN
from spinimpute.tabular.table import Rows, Schema

LABEL = -1  # column of the label
CHUNK = 4_096  # context rows that are encoded at a time


class ContextNetwork(nn.Module):
    """A `RowModel` (NPT or Set Transformer) on a table with its label; `classes` is 0 for numeric labels.

    Context rows and queries are one table.
    """

    network: Any

    def __init__(self, network: RowModel | SPIN, schema: Schema, classes: int) -> None:
        super().__init__()
        self.network = network
        self.schema = schema
        self.classes = classes

    def forward(self, context: Rows, label_N: Tensor, query: Rows) -> Tensor:
        """Return the outputs (Q, D + 1, K) for all columns of the queries; the label is the last column.

        Labels are codes of classes, or scaled numbers. Queries attend to context rows, never to each other.
        """
        both = zip(_with_label(context, label_N), _with_label(query), strict=True)
        value_1LD, missing_1LD = (torch.cat(parts, 1) for parts in both)
        is_context_1L = (torch.arange(value_1LD.shape[1], device=label_N.device) < len(context))[None]
        return self.network.rows(value_1LD, missing_1LD, None, is_context_1L)[0, len(context) :]

    def datapoint_layers(self) -> list[MultiHeadAttention]:
        """Return the layers of an NPT in which rows attend to each other."""
        return [layer.mab.attention for layer in self.modules() if isinstance(layer, ABD)]

    def label_outputs(self, outputs_QDK: Tensor) -> Tensor:
        """Return the logits (Q, classes) or numbers (Q, 1) of the label."""
        return outputs_QDK[:, LABEL, : self.classes or 1]

    def attribute_loss(self, outputs_QDK: Tensor, query: Rows, hidden_QD: Tensor) -> Tensor:
        """Return the mean loss of hidden cells with a value: cross-entropy or squared error."""
        losses = []
        target_QD = hidden_QD & ~query.missing_ND
        for column, n in enumerate(self.schema.cardinality):
            target_Q = target_QD[:, column]
            true, predicted = query.value_ND[target_Q, column], outputs_QDK[target_Q, column]
            if n:
                losses.append(functional.cross_entropy(predicted[:, :n], true.long(), reduction="none"))
            else:
                losses.append((predicted[:, 0] - true).square())
        loss_L = torch.cat(losses)
        return loss_L.mean() if len(loss_L) else outputs_QDK.sum() * 0


class SummaryNetwork(ContextNetwork):
    """The published `SPIN` on a table with its label. Predictions read only the context's inducing points."""

    network: SPIN

    def forward(self, context: Rows, label_N: Tensor, query: Rows) -> Tensor:
        """Return the outputs (Q, D + 1, K) for all columns of the queries; the label is the last column."""
        return self.predict(query, self.network.encode(*_with_label(context, label_N)))

    def encode(self, context: Rows, label_N: Tensor) -> Tensor:
        """Return the inducing points (1, H, F, E) of a context of any size, without dropout."""
        value_1ND, missing_1ND = _with_label(context, label_N)
        chunks = zip(value_1ND.split(CHUNK, 1), missing_1ND.split(CHUNK, 1), strict=True)
        return self.network.encode_stream(list(chunks))

    def predict(self, query: Rows, h_1HFE: Tensor) -> Tensor:
        """Return the outputs of `forward`, from inducing points instead of a context."""
        return self.network.predict(*_with_label(query), h_1HFE)[0]


def _with_label(rows: Rows, label_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the values of rows with their label as the last column, and which are missing, (1, N, D + 1)."""
    label_N1 = torch.zeros_like(rows.value_ND[:, :1]) if label_N is None else label_N[:, None]
    missing_ND = functional.pad(rows.missing_ND, (0, 1), value=label_N is None)
    return torch.cat([rows.value_ND, label_N1.to(rows.value_ND.dtype)], 1)[None], missing_ND[None]
