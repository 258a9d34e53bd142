"""Networks that read a context of labelled rows: SPIN, NPT and the Set Transformer on tables.

The label is the table's last column: a category, or a scaled number. Labels of the context are visible;
those of queries never enter.

Axes: see `spinimpute.nn`; D columns without the label.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABD, XABD, MABOptions, MultiHeadAttention
from spinimpute.nn.npt import NPT
from spinimpute.nn.predictors import RowPredictor
from spinimpute.nn.rows import RowModel
from spinimpute.nn.set_transformer import SetTransformer
from spinimpute.nn.spin import SPIN, SPINConfig
from spinimpute.tabular.table import Rows, Schema

LABEL = -1  # the label's column
CHUNK = 4_096  # context rows that are encoded at a time


class ContextNetwork(nn.Module):
    """A SPIN, or a RowModel, over a table with its label.

    Parameters
    ----------
    network : SPIN or RowModel
        Over the columns and the label, which is the last column.
    schema : Schema
        What the columns hold, without the label.
    classes : int
        Classes of the label; 0 for a number.
    """

    def __init__(self, network: SPIN | RowModel, schema: Schema, classes: int) -> None:
        super().__init__()
        self.network = network
        self.schema = schema
        self.classes = classes

    def forward(self, context: Rows, label_N: Tensor, query: Rows, label_only: bool = False) -> Tensor:
        """Outputs for every column of the queries; queries read the context and never each other.

        Parameters
        ----------
        context : Rows
            Rows with known labels.
        label_N : Tensor
            These labels: codes of classes, or scaled numbers.
        query : Rows
            Rows to predict.
        label_only : bool
            Whether a SPIN computes the outputs of the label alone.

        Returns
        -------
        Tensor (A * Q, D + 1, K), or (A * Q, 1, K) with `label_only`
            Outputs of A members, that of the label last.
        """
        asked = _without_label(query)
        if isinstance(self.network, SPIN):
            # dropout would differ between the readings of a stream
            whole = len(context) <= CHUNK or (self.training and self.network.config.dropout > 0)
            h_1HFE = (self.encode_whole if whole else self.encode)(context, label_N)
            return self.network.predict(*asked, h_1HFE, only=LABEL if label_only else None)[0]
        shown = _with_label(context, label_N)
        value, missing = (torch.cat(both, 1) for both in zip(shown, asked, strict=True))
        visible = torch.arange(value.shape[1], device=value.device)[None] < len(context)
        return self.network.rows(value, missing, None, visible)[0, len(context) :]

    def encode(self, context: Rows, label_N: Tensor) -> Tensor:
        """H (1, H, F, E) of a context of any size, in the memory of one chunk. Of a SPIN only."""
        assert isinstance(self.network, SPIN)
        chunks = [
            _with_label(context.take(index), label_N[index])
            for index in torch.arange(len(context), device=label_N.device).split(CHUNK)
        ]
        return self.network.encode_stream(chunks)

    def encode_whole(self, context: Rows, label_N: Tensor) -> Tensor:
        """As `encode`, of all rows at once."""
        assert isinstance(self.network, SPIN)
        return self.network.encode(*_with_label(context, label_N))

    def predict(self, query: Rows, h_1HFE: Tensor) -> Tensor:
        """As `forward` with `label_only`, from H: (A * Q, 1, K)."""
        assert isinstance(self.network, SPIN)
        return self.network.predict(*_without_label(query), h_1HFE, only=LABEL)[0]

    def datapoint_layers(self) -> list[MultiHeadAttention]:
        """Attention to rows of the context: of a SPIN's inducing points, of an NPT's rows."""
        return [layer.mab.attention for layer in self.modules() if isinstance(layer, XABD | ABD)]

    def predictor_layers(self) -> list[MultiHeadAttention]:
        """Attention of a SPIN's queries to the inducing points."""
        assert isinstance(self.network, SPIN)
        return [layer for layer in self.network.predictor.modules() if isinstance(layer, MultiHeadAttention)]

    @property
    def members(self) -> int:
        """A, of a SPIN's predictor; the others have one."""
        predictor = self.network.predictor if isinstance(self.network, SPIN) else None
        return predictor.members if isinstance(predictor, RowPredictor) else 1

    def label_outputs(self, outputs_LDK: Tensor) -> Tensor:
        """Of every member and query on its own: logits (A * Q, classes), or numbers (A * Q, 1)."""
        return outputs_LDK[:, LABEL, : self.classes or 1]

    def predicted_label(self, outputs_LDK: Tensor) -> Tensor:
        """The mean over members: logits (Q, classes) of the mean probability, or numbers (Q, 1)."""
        outputs_LO = self.label_outputs(outputs_LDK)
        if self.members == 1:
            return outputs_LO
        # in double precision: otherwise sums, and what they are rounded to, depend on the order of queries
        outputs_AQO = outputs_LO.unflatten(0, (self.members, -1)).double()
        if not self.classes:
            return outputs_AQO.mean(0).to(outputs_LO.dtype)
        summed_QO = torch.logsumexp(functional.log_softmax(outputs_AQO, -1), 0)
        return (summed_QO - math.log(self.members)).to(outputs_LO.dtype)

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


def make_spin(
    schema: Schema,
    classes: int,
    width: int,
    blocks: int,
    heads: int,
    inducing_points: int,
    latent_attributes: int,
    predictor_layers: int,
    row_width: int,
    members: int,
    dropout: float,
    pieces: int,
) -> ContextNetwork:
    """Make a SPIN; its predictor folds rows, so that it stays small however many columns there are.

    Parameters
    ----------
    schema : Schema
        What the columns hold, without the label.
    classes : int
        Classes of the label; 0 for a number.
    width, blocks, heads, inducing_points, latent_attributes : int
        Of the encoder, see `SPINEncoder`.
    predictor_layers, row_width, members : int
        Of the predictor, see `RowPredictor`.
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
    config = SPINConfig(
        vocabulary,
        columns,
        width,
        inducing_points,
        latent_attributes,
        blocks,
        predictor="row",
        predictor_layers=predictor_layers,
        row_width=row_width,
        members=members,
        continuous=continuous,
        pieces=pieces,
        heads=heads,
        dropout=dropout,
    )
    return ContextNetwork(SPIN(config), schema, classes)


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
