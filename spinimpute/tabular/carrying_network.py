"""SPIN on tables: queries read inducing points that carry the label, and a network corrects the prediction.

    z = keys(embed(row))        H = encoder(z, label)        outputs = predictor(embed(query), read(z, H))

As in the paper's SPIN (`spinimpute.nn.spin`), predictions need only H of a context, and queries never meet.
Inducing points start from rows, compete for rows and carry their labels, which are never embedded (see
`spinimpute.nn.carrying`). A context with at most as many rows as inducing points is its own set of inducing
points.

Axes: see `spinimpute.nn`; D columns without the label, X features that rows are compared by.
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
    CompetingEncoder,
    LabelledChunk,
    LabelReader,
    SquaredDistance,
    spread_out,
)
from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.nn.predictors import CorrectingPredictor
from spinimpute.tabular.table import Rows, Schema

CHUNK = 4_096  # context rows that are embedded at a time
INITIAL_DISTANCES = (
    4.0,
    32.0,
)  # initial mean squared distance of two rows, by the first head and by the last
SIMULATED_ROWS = 512  # for measuring distances


class CarryingNetwork(nn.Module):
    """A SPIN over a table whose inducing points carry the label; parameters are those of `SPINEstimator`.

    `schema` describes the columns without the label; `classes` is 0 for a number.
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
        self.encoder = CompetingEncoder[tuple[Tensor, Tensor]](rounds)
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
        """Outputs (A, Q, O) of each member for the queries, and the same without the correction.

        Labels are codes of classes, or scaled numbers. Queries read the context and never each other.
        """
        return self.predict(query, self.encode(context, label_N))

    def encode(self, context: Rows, label_N: Tensor) -> CarriedPoints:
        """Inducing points of a context of any size; cells are embedded one chunk at a time."""
        chunks = self._chunks(context, label_N)
        start = self._initial_points(chunks)
        if len(context) > self.inducing_points:
            return self.encoder(chunks, start, SquaredDistance())
        return start._replace(label_BHU=torch.cat([label_1NO for _, label_1NO in chunks], 1))

    def shares(self, context: Rows, label_N: Tensor) -> Tensor:
        """Weight of each row of the context in each inducing point, (H, N)."""
        if len(context) <= self.inducing_points:
            return torch.eye(len(context), device=label_N.device)
        chunks = self._chunks(context, label_N)
        return self.encoder.shares(chunks, self._initial_points(chunks), SquaredDistance())[0]

    def predict(self, query: Rows, points: CarriedPoints) -> tuple[Tensor, Tensor]:
        """Outputs as of `forward`, from inducing points."""
        x_1QDE = self._embed(query)
        outputs_1AQO, read_1AQO = self.predictor(x_1QDE, self.reader(self._query_features(x_1QDE), points))
        return outputs_1AQO[0], read_1AQO[0]

    def attention(self, query: Rows, points: CarriedPoints) -> Tensor:
        """Attention of each query to each inducing point, (Q, H): the mean over members."""
        read = self.reader(self._query_features(self._embed(query)), points)
        weight_G = self.predictor.mixture().mean(0).to(read.attention_BGQH.dtype)
        return torch.einsum("g,gqh->qh", weight_G, read.attention_BGQH[0]).to(self.keys.weight.dtype)

    @property
    def members(self) -> int:
        """Number of members A."""
        return self.predictor.members

    def mean_of_members(self, outputs_AQO: Tensor) -> Tensor:
        """Logits (Q, classes) of the mean probability over members, or mean numbers (Q, 1)."""
        if self.members == 1:
            return outputs_AQO[0]
        # in double precision: in float32 the rounding of sums depends on the order of queries
        wide_AQO = outputs_AQO.double()
        if not self.classes:
            return wide_AQO.mean(0).to(outputs_AQO.dtype)
        summed_QO = torch.logsumexp(functional.log_softmax(wide_AQO, -1), 0)
        return (summed_QO - math.log(self.members)).to(outputs_AQO.dtype)

    def _chunks(self, context: Rows, label_N: Tensor) -> list[LabelledChunk]:
        """Features of the rows, and the labels that they carry: one-hot classes, or the number."""
        label_1NO = label_N[None, :, None].to(self.keys.weight.dtype)
        if self.classes:
            codes_O = torch.arange(self.classes, device=label_N.device)
            label_1NO = (label_N[None, :, None] == codes_O).to(self.keys.weight.dtype)
        compared_rows = self._row_features
        if torch.is_grad_enabled() and len(context) > CHUNK:
            compared_rows = partial(checkpoint, self._row_features, use_reentrant=False)
        return [
            (compared_rows(*context.take(index)), label_1NO[:, index])
            for index in torch.arange(len(context), device=label_N.device).split(CHUNK)
        ]

    def _initial_points(self, chunks: list[LabelledChunk]) -> CarriedPoints:
        return spread_out(torch.cat([x_1NX for x_1NX, _ in chunks], 1), self.inducing_points)

    def _row_features(self, value_ND: Tensor, missing_ND: Tensor) -> Tensor:
        return self._project(self._embed(Rows(value_ND, missing_ND)))

    def _embed(self, rows: Rows) -> Tensor:
        """Embedded cells (1, N, D, E)."""
        return self.embedding(rows.value_ND[None], rows.missing_ND[None])

    def _project(self, x_1NDE: Tensor) -> Tensor:
        """Features (1, N, X) that rows are compared by."""
        return self.keys(x_1NDE.flatten(-2))

    def _query_features(self, x_1QDE: Tensor) -> Tensor:
        """Features (1, Q, X) of queries.

        In prediction they have double precision: steep scores amplify rounding, which depends on a query's
        batch.
        """
        if self.training:
            return self._project(x_1QDE)
        weight, bias = self.keys.weight.double(), self.keys.bias.double()
        return functional.linear(x_1QDE.flatten(-2).double(), weight, bias)

    @torch.no_grad()
    def _scale_keys(self, schema: Schema) -> None:
        """Scale the keys of each head so that most rows start far apart, measured with simulated rows."""
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
