"""Networks with which FT-Transformer is compared (Gorishniy et al. 2021), as row estimators.

Sizes are within that paper's search ranges; nothing is tuned. Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor, nn

from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs
from spinimpute.tabular.row_estimators import RowEstimator
from spinimpute.tabular.row_networks import FlatInput
from spinimpute.tabular.table import Rows, Schema


class SNN(nn.Module):
    """Klambauer et al. (2017): SELU, alpha dropout, LeCun's initial weights."""

    def __init__(self, schema: Schema, outputs: int, layers: int, width: int, dropout: float) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        parts: list[nn.Module] = []
        before = self.input.width
        for _ in range(layers):
            parts += [_lecun(nn.Linear(before, width)), nn.SELU(), nn.AlphaDropout(dropout)]
            before = width
        self.layers = nn.Sequential(*parts, _lecun(nn.Linear(before, outputs)))

    def forward(self, rows: Rows) -> Tensor:
        outputs: Tensor = self.layers(self.input(rows))
        return outputs


def _lecun(linear: nn.Linear) -> nn.Linear:
    nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
    nn.init.zeros_(linear.bias)
    return linear


class DCN2(nn.Module):
    """Wang et al. (2021), in parallel: cross layers x0 * (W x + b) + x, a deep part, one head for both."""

    def __init__(
        self, schema: Schema, outputs: int, cross_layers: int, layers: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        wide = self.input.width
        self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(cross_layers))
        parts: list[nn.Module] = []
        before = wide
        for _ in range(layers):
            parts += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(dropout)]
            before = width
        self.deep = nn.Sequential(*parts)
        self.head = nn.Linear(wide + before, outputs)

    def forward(self, rows: Rows) -> Tensor:
        start = x = self.input(rows)
        for layer in self.cross:
            x = start * layer(x) + x
        outputs: Tensor = self.head(torch.cat((x, self.deep(start)), 1))
        return outputs


class AutoInt(nn.Module):
    """Song et al. (2019): self-attention among the tokens of columns, ReLU(attended + W x).

    The output is computed from all tokens.
    """

    def __init__(
        self, schema: Schema, outputs: int, layers: int, width: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        columns = len(schema.cardinality)
        self.tokens = ColumnEmbedding(schema.vocabulary, width, columns, continuous=schema.continuous)
        self.attention = nn.ModuleList(
            nn.MultiheadAttention(width, heads, dropout, batch_first=True) for _ in range(layers)
        )
        self.past = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(columns * width, outputs)

    def forward(self, rows: Rows) -> Tensor:
        x_NDE = self.tokens(rows.value_ND[None], rows.missing_ND[None])[0]
        for attention, past in zip(self.attention, self.past, strict=True):
            attended_NDE, _ = attention(x_NDE, x_NDE, x_NDE, need_weights=False)
            x_NDE = torch.relu(attended_NDE + past(x_NDE))
        outputs: Tensor = self.head(x_NDE.flatten(1))
        return outputs


@dataclass(kw_only=True, eq=False, repr=False)
class SNNEstimator(RowEstimator):
    layers: int = 4
    width: int = 256
    dropout: float = 0.05
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return SNN(self.encoder_.schema_, self._n_outputs, self.layers, self.width, self.dropout)


@dataclass(kw_only=True, eq=False, repr=False)
class DCN2Estimator(RowEstimator):
    cross_layers: int = 3
    layers: int = 3
    width: int = 256
    dropout: float = 0.1
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return DCN2(
            self.encoder_.schema_, self._n_outputs, self.cross_layers, self.layers, self.width, self.dropout
        )


@dataclass(kw_only=True, eq=False, repr=False)
class AutoIntEstimator(RowEstimator):
    layers: int = 3
    width: int = 32
    heads: int = 2
    dropout: float = 0.0
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return AutoInt(
            self.encoder_.schema_, self._n_outputs, self.layers, self.width, self.heads, self.dropout
        )


class SNNRegressor(RegressorMixin, RegressorOutputs, SNNEstimator):
    pass


class SNNClassifier(ClassifierMixin, ClassifierOutputs, SNNEstimator):
    pass


class DCN2Regressor(RegressorMixin, RegressorOutputs, DCN2Estimator):
    pass


class DCN2Classifier(ClassifierMixin, ClassifierOutputs, DCN2Estimator):
    pass


class AutoIntRegressor(RegressorMixin, RegressorOutputs, AutoIntEstimator):
    pass


class AutoIntClassifier(ClassifierMixin, ClassifierOutputs, AutoIntEstimator):
    pass
