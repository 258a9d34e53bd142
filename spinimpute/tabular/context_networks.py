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
        context_table, query_table = _with_label(context, label_N), _without_label(query)
        value, missing = (torch.cat(both, 1) for both in zip(context_table, query_table, strict=True))
        visible = torch.arange(value.shape[1], device=value.device)[None] < len(context)
        return self.network.rows(value, missing, None, visible)[0, len(context) :]

    def datapoint_layers(self) -> list[MultiHeadAttention]:
        """Return the layers of an NPT in which rows attend to each other."""
        return [layer.mab.attention for layer in self.modules() if isinstance(layer, ABD)]

    def label_outputs(self, outputs_QDK: Tensor) -> Tensor:
        """Return the logits (Q, classes) or numbers (Q, 1) of the label."""
        return outputs_QDK[:, LABEL, : self.classes or 1]

    def attribute_loss(self, outputs_QDK: Tensor, query: Rows, hidden_QD: Tensor) -> Tensor:
        """Return the mean loss of hidden cells with a value: cross-entropy (categories), squared error."""
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


def _with_label(rows: Rows, label_N: Tensor) -> tuple[Tensor, Tensor]:
    """Append the label as a column; return values and missing bits (1, N, D + 1)."""
    value = torch.cat([rows.value_ND, label_N[:, None].to(rows.value_ND.dtype)], 1)
    return value[None], functional.pad(rows.missing_ND, (0, 1))[None]


def _without_label(rows: Rows) -> tuple[Tensor, Tensor]:
    """Append a missing label as a column; return values and missing bits (1, N, D + 1)."""
    missing = functional.pad(rows.missing_ND, (0, 1), value=True)
    return functional.pad(rows.value_ND, (0, 1))[None], missing[None]
