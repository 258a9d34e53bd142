"""The network of SPIN on tables: it summarizes labelled rows and predicts queries from the summary.

    z = keys(embed(row))           features of a row, by which rows are compared
    H = encoder(z, label)          inducing points, each with the mean features and mean label of many rows
    r = reader(z of query, H)      attention-weighted mean labels of the inducing points
    outputs = predictor(embed(query), r)      r plus a correction by a network

Labels are averaged directly, never embedded: inducing points carry labels (see `spinimpute.nn.carrying`).
As in the paper's SPIN (`spinimpute.nn.spin`), a prediction needs only H of the context, and does not depend
on other queries. In a context with no more rows than inducing points, each row is an inducing point.

Axes: see `spinimpute.nn`; D columns without the label, X features by which rows are compared.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.carrying import (
    CarriedPoints,
    CarryingEncoder,
    LabelledChunk,
    LabelReader,
    SquaredDistance,
    spread_out,
)
from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.nn.predictors import CorrectingPredictor
from spinimpute.tabular.table import Rows, Schema

CHUNK = 4_096  # context rows that are embedded at a time
# mean squared distance of two rows before training: in the first head and in the last one
INITIAL_DISTANCES = (4.0, 32.0)
SIMULATED_ROWS = 512  # random rows with which the initial distances are measured


class CarryingNetwork(nn.Module):
    """SPIN on a table, with inducing points that carry labels. For the sizes see `SPINEstimator`.

    `schema` describes the columns without the label. `classes` is the number of classes, 0 for numeric
    labels.
    """

    def __init__(
        self,
        schema: Schema,
        classes: int,
        *,
        width: int,
        heads: int,
        head_width: int,
        inducing_points: int,
        rounds: int,
        predictor_layers: int,
        row_width: int,
        members: int,
        dropout: float,
        pieces: int,
    ) -> None:
        super().__init__()
        columns, features = len(schema.cardinality), heads * head_width
        self.classes = classes
        self.inducing_points = inducing_points
        self.embedding = ColumnEmbedding(
            schema.vocabulary, width, columns, continuous=schema.continuous, pieces=pieces
        )
        self.keys = nn.Linear(columns * width, features)
        self.encoder = CarryingEncoder[tuple[Tensor, Tensor]](rounds)
        self.reader = LabelReader(heads)
        self.predictor = CorrectingPredictor(
            width=width,
            columns=columns,
            outputs=classes or 1,
            features=features,
            heads=heads,
            row_width=row_width,
            layers=predictor_layers,
            members=members,
            continuous=schema.continuous,
            probabilities=classes > 0,
            dropout=dropout,
        )
        self._scale_keys(schema)

    def forward(self, context: Rows, label_N: Tensor, query: Rows) -> tuple[Tensor, Tensor]:
        """Return the outputs (A, Q, O) of each member for the queries, with and without the correction.

        Labels are codes of classes, or scaled numbers.
        """
        return self.predict(query, self.encode(context, label_N))

    def encode(self, context: Rows, label_N: Tensor) -> CarriedPoints:
        """Summarize a context of any size as inducing points; rows are embedded in chunks to save memory."""
        chunks = self._chunks(context, label_N)
        start = self._initial_points(chunks)
        if len(context) > self.inducing_points:
            return self.encoder(chunks, start, SquaredDistance())
        return start._replace(label_BHU=torch.cat([label_1NO for _, label_1NO in chunks], 1))

    def shares(self, context: Rows, label_N: Tensor) -> Tensor:
        """Return the weight of each row of the context in each inducing point, (H, N)."""
        if len(context) <= self.inducing_points:
            return torch.eye(len(context), device=label_N.device)
        chunks = self._chunks(context, label_N)
        return self.encoder.shares(chunks, self._initial_points(chunks), SquaredDistance())[0]

    def predict(self, query: Rows, points: CarriedPoints) -> tuple[Tensor, Tensor]:
        """Return the outputs of `forward`, from inducing points instead of a context."""
        x_1QDE = self._embed(query)
        outputs_1AQO, read_1AQO = self.predictor(x_1QDE, self.reader(self._query_features(x_1QDE), points))
        return outputs_1AQO[0], read_1AQO[0]

    def attention(self, query: Rows, points: CarriedPoints) -> Tensor:
        """Return the attention of each query to each inducing point, (Q, H), averaged over members."""
        read = self.reader(self._query_features(self._embed(query)), points)
        weight_G = self.predictor.mixture().mean(0).to(read.attention_BGQH.dtype)
        return torch.einsum("g,gqh->qh", weight_G, read.attention_BGQH[0]).to(self.keys.weight.dtype)

    def mean_of_members(self, outputs_AQO: Tensor) -> Tensor:
        """Average members: return the logits (Q, classes) of mean probabilities, or mean numbers (Q, 1)."""
        if len(outputs_AQO) == 1:
            return outputs_AQO[0]
        # in double precision: in float32 the rounding of sums depends on the order of queries
        wide_AQO = outputs_AQO.double()
        if not self.classes:
            return wide_AQO.mean(0).to(outputs_AQO.dtype)
        summed_QO = torch.logsumexp(functional.log_softmax(wide_AQO, -1), 0)
        return (summed_QO - math.log(len(outputs_AQO))).to(outputs_AQO.dtype)

    def _chunks(self, context: Rows, label_N: Tensor) -> list[LabelledChunk]:
        """Return chunks of the context: features of rows, and labels as one-hot classes or numbers."""
        label_1NO = label_N[None, :, None].to(self.keys.weight.dtype)
        if self.classes:
            codes_O = torch.arange(self.classes, device=label_N.device)
            label_1NO = (label_N[None, :, None] == codes_O).to(self.keys.weight.dtype)
        features_of = self._row_features
        if torch.is_grad_enabled() and len(context) > CHUNK:
            features_of = partial(checkpoint, self._row_features, use_reentrant=False)
        return [
            (features_of(*context.take(index)), label_1NO[:, index])
            for index in torch.arange(len(context), device=label_N.device).split(CHUNK)
        ]

    def _initial_points(self, chunks: list[LabelledChunk]) -> CarriedPoints:
        return spread_out(torch.cat([x_1NX for x_1NX, _ in chunks], 1), self.inducing_points)

    def _row_features(self, value_ND: Tensor, missing_ND: Tensor) -> Tensor:
        return self._project(self._embed(Rows(value_ND, missing_ND)))

    def _embed(self, rows: Rows) -> Tensor:
        """Embed the cells of rows, (1, N, D, E)."""
        return self.embedding(rows.value_ND[None], rows.missing_ND[None])

    def _project(self, x_1NDE: Tensor) -> Tensor:
        """Project embedded cells to features (1, N, X), by which rows are compared."""
        return self.keys(x_1NDE.flatten(-2))

    def _query_features(self, x_1QDE: Tensor) -> Tensor:
        """Return the features (1, Q, X) of queries, in double precision except during training.

        Rounding depends on the batch of a query, and steep attention scores would amplify it.
        """
        if self.training:
            return self._project(x_1QDE)
        weight, bias = self.keys.weight.double(), self.keys.bias.double()
        return functional.linear(x_1QDE.flatten(-2).double(), weight, bias)

    @torch.no_grad()
    def _scale_keys(self, schema: Schema) -> None:
        """Scale the keys so that simulated rows have INITIAL_DISTANCES in the features of the heads."""
        value_ND = torch.randn(SIMULATED_ROWS, len(schema.cardinality))
        for column, n in enumerate(schema.cardinality):
            if n:
                value_ND[:, column] = torch.randint(n, (SIMULATED_ROWS,)).float()
        z_1NX = self._row_features(value_ND, torch.zeros_like(value_ND, dtype=torch.bool))
        distance_G = 2 * z_1NX[0].var(0).unflatten(0, (self.reader.heads, -1)).sum(-1)
        low, high = (math.log10(end) for end in INITIAL_DISTANCES)
        target_G = torch.logspace(low, high, self.reader.heads)
        scale_G1 = (target_G / distance_G.clamp(min=torch.finfo(distance_G.dtype).tiny)).sqrt()[:, None]
        self.keys.weight.unflatten(0, (self.reader.heads, -1)).mul_(scale_G1.unsqueeze(-1))
        self.keys.bias.zero_()
