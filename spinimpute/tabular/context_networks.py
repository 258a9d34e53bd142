"""Networks that read a context of labelled rows themselves: NPT and the Set Transformer on tables.

The label is the table's last column: a category, or a scaled number. Labels of the context are visible;
those of queries never enter.

Axes: see `spinimpute.nn`; D columns without the label.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABD, MABOptions, MultiHeadAttention
from spinimpute.nn.row_models import NPT, RowModel, SetTransformer
from spinimpute.tabular.table import Rows, Schema

LABEL = -1  # the label's column


class ContextNetwork(nn.Module):
    """A RowModel over a table with its label.

    Parameters
    ----------
    network : RowModel
        Over the columns and the label, which is the last column.
    schema : Schema
        What the columns hold, without the label.
    classes : int
        Classes of the label; 0 for a number.
    """

    def __init__(self, network: RowModel, schema: Schema, classes: int) -> None:
        super().__init__()
        self.network = network
        self.schema = schema
        self.classes = classes

    def forward(self, context: Rows, label_N: Tensor, query: Rows) -> Tensor:
        """Outputs for every column of the queries; queries read the context and never each other.

        Parameters
        ----------
        context : Rows
            Rows with known labels.
        label_N : Tensor
            These labels: codes of classes, or scaled numbers.
        query : Rows
            Rows to predict.

        Returns
        -------
        Tensor (Q, D + 1, K)
            Outputs, that of the label last.
        """
        shown, asked = _with_label(context, label_N), _without_label(query)
        value, missing = (torch.cat(both, 1) for both in zip(shown, asked, strict=True))
        visible = torch.arange(value.shape[1], device=value.device)[None] < len(context)
        return self.network.rows(value, missing, None, visible)[0, len(context) :]

    def datapoint_layers(self) -> list[MultiHeadAttention]:
        """Attention of an NPT's rows to rows."""
        return [layer.mab.attention for layer in self.modules() if isinstance(layer, ABD)]

    def label_outputs(self, outputs_QDK: Tensor) -> Tensor:
        """Logits (Q, classes), or numbers (Q, 1)."""
        return outputs_QDK[:, LABEL, : self.classes or 1]

    def attribute_loss(self, outputs_QDK: Tensor, query: Rows, hidden_QD: Tensor) -> Tensor:
        """Mean loss of the cells that were hidden and are known: cross-entropy or squared error."""
        losses = []
        asked_QD = hidden_QD & ~query.missing_ND
        for column, n in enumerate(self.schema.cardinality):
            asked_Q = asked_QD[:, column]
            true, said = query.value_ND[asked_Q, column], outputs_QDK[asked_Q, column]
            if n:
                losses.append(functional.cross_entropy(said[:, :n], true.long(), reduction="none"))
            else:
                losses.append((said[:, 0] - true).square())
        every = torch.cat(losses)
        return every.mean() if len(every) else outputs_QDK.sum() * 0


def _with_label(rows: Rows, label_N: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.cat([rows.value_ND, label_N[:, None].to(rows.value_ND.dtype)], 1)
    missing = functional.pad(rows.missing_ND, (0, 1))
    return value[None], missing[None]


def _without_label(rows: Rows) -> tuple[Tensor, Tensor]:
    return functional.pad(rows.value_ND, (0, 1))[None], functional.pad(rows.missing_ND, (0, 1), value=True)[
        None
    ]


def _table(schema: Schema, classes: int) -> tuple[int, int, tuple[int, ...]]:
    """Vocabulary, columns and continuous columns with the label's."""
    columns = len(schema.cardinality) + 1
    continuous = schema.continuous if classes else (*schema.continuous, columns - 1)
    return max(schema.vocabulary, classes), columns, continuous


def make_npt(
    schema: Schema, classes: int, width: int, blocks: int, heads: int, dropout: float, pieces: int
) -> ContextNetwork:
    """Make an NPT; a block is ABD and ABA.

    Parameters
    ----------
    schema : Schema
        What the columns hold, without the label.
    classes : int
        Classes of the label; 0 for a number.
    width : int
        Of a cell.
    blocks, heads : int
        Number of blocks, and of attention heads.
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.
    pieces : int
        Pieces that numbers are cut into, see `ColumnEmbedding`; 0 for none.

    Returns
    -------
    ContextNetwork
        The untrained network.
    """
    vocabulary, columns, continuous = _table(schema, classes)
    options = MABOptions(heads=heads, learned_residual=True, dropout=dropout)
    network = NPT(vocabulary, columns, width, blocks, options, continuous=continuous, pieces=pieces)
    return ContextNetwork(network, schema, classes)


def make_set_transformer(
    schema: Schema,
    classes: int,
    width: int,
    blocks: int,
    heads: int,
    inducing_points: int,
    latent_attributes: int,
    dropout: float,
    pieces: int,
) -> ContextNetwork:
    """Make a Set Transformer; a block is an ISAB over rows and one over columns.

    Parameters
    ----------
    schema : Schema
        What the columns hold, without the label.
    classes : int
        Classes of the label; 0 for a number.
    width : int
        Of a cell.
    blocks, heads : int
        Number of blocks, and of attention heads.
    inducing_points, latent_attributes : int
        Learned points of the two ISABs, for rows and for columns.
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.
    pieces : int
        Pieces that numbers are cut into, see `ColumnEmbedding`; 0 for none.

    Returns
    -------
    ContextNetwork
        The untrained network.
    """
    vocabulary, columns, continuous = _table(schema, classes)
    network = SetTransformer(
        vocabulary,
        columns,
        width,
        blocks,
        inducing_points,
        latent_attributes,
        MABOptions(heads=heads, learned_residual=True, dropout=dropout),
        continuous=continuous,
        pieces=pieces,
    )
    return ContextNetwork(network, schema, classes)
