"""NPT and the Set Transformer on tables: networks that take context rows and queries as one table.

The label is the last column of this table: a category or a scaled number. It is missing in queries.
`context_estimators` trains these networks.

Axes: see `spinimpute.nn`; D columns without the label.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABD, MultiHeadAttention
from spinimpute.nn.row_models import RowModel
from spinimpute.tabular.table import Rows, Schema

LABEL = -1  # column of the label


class ContextNetwork(nn.Module):
    """A `RowModel` (NPT or Set Transformer) on a table with its label; `classes` is 0 for numeric labels."""

    def __init__(self, network: RowModel, schema: Schema, classes: int) -> None:
        super().__init__()
        self.network = network
        self.schema = schema
        self.classes = classes

    def forward(self, context: Rows, label_N: Tensor, query: Rows) -> Tensor:
        """Return the outputs (Q, D + 1, K) for all columns of the queries; the label is the last column.

        Labels are codes of classes, or scaled numbers. Queries attend to context rows, never to each other.
        """
        rows = Rows(*(torch.cat(both) for both in zip(context, query, strict=True)))
        is_context_L = torch.arange(len(rows), device=label_N.device) < len(context)
        label_L = functional.pad(label_N.to(rows.value_ND.dtype), (0, len(query)))
        value_LD = torch.cat([rows.value_ND, label_L[:, None]], 1)
        missing_LD = torch.cat([rows.missing_ND, ~is_context_L[:, None]], 1)
        return self.network.rows(value_LD[None], missing_LD[None], None, is_context_L[None])[
            0, len(context) :
        ]

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
