"""Estimators that predict a row from this row alone: MLP, ResNet and FT-Transformer.

The networks are in `row_networks`.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.optimisers import Lookahead
from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs, TableEstimator
from spinimpute.tabular.row_networks import MLP, FTTransformer, ResNet
from spinimpute.tabular.table import LabelledRows, Rows

PREDICTION_BATCH = 4_096  # rows


@dataclass(kw_only=True, eq=False, repr=False)
class RowEstimator(TableEstimator):  # numpydoc ignore=PR02
    """Base class of MLP, ResNet and FT-Transformer: training on batches of rows with AdamW.

    Parameters
    ----------
    weight_decay : float
        Weight decay of AdamW. Embeddings of columns, norms and biases have none.
    """

    weight_decay: float = 1e-5

    def _optimiser(self) -> tuple[Optimizer | Lookahead, LRScheduler | None]:
        decaying: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in self.network_.named_parameters():
            decays = parameter.ndim > 1 and not name.startswith(("tokens", "cls"))
            (decaying if decays else others).append(parameter)
        groups: list[dict[str, Any]] = [{"params": decaying}, {"params": others, "weight_decay": 0.0}]
        return AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay), None

    def _make_step_loss(self, data: LabelledRows, generator: torch.Generator) -> Callable[[int], Tensor]:
        batches: list[Tensor] = []
        n_rows = len(data.rows)
        size = min(self.batch_size, n_rows)

        def loss(step: int) -> Tensor:
            del step
            if not batches:
                shuffled = torch.randperm(n_rows, generator=generator, device=data.label_N.device)
                batches.extend(batch for batch in shuffled.split(size) if len(batch) == size)
            rows, label_L, weight_L = data.take(batches.pop())
            return (self._losses(self.network_(rows), label_L) * weight_L).mean()

        return loss

    def _outputs(self, rows: Rows) -> Tensor:
        return torch.cat([self.network_(batch) for batch in rows.batches(PREDICTION_BATCH)])


@dataclass(kw_only=True, eq=False, repr=False)
class MLPEstimator(RowEstimator):  # numpydoc ignore=PR02
    """A multi-layer perceptron; for further parameters see `RowEstimator`.

    Parameters
    ----------
    layers, width : int
        Number of hidden layers, and their width.
    dropout : float
        Dropout after each hidden layer.
    """

    layers: int = 3
    width: int = 256
    dropout: float = 0.1

    def _make_network(self) -> nn.Module:
        return MLP(self.encoder_.schema_, self._n_outputs, self.layers, self.width, self.dropout)


@dataclass(kw_only=True, eq=False, repr=False)
class ResNetEstimator(RowEstimator):  # numpydoc ignore=PR02
    """A ResNet for tables; for further parameters see `RowEstimator`.

    Parameters
    ----------
    blocks, width : int
        Number of blocks, and width of their inputs and outputs.
    hidden : int
        Width of the hidden layer of a block.
    dropout, residual_dropout : float
        Dropout after the hidden layer of a block, and of the output of a block.

    References
    ----------
    Gorishniy et al., NeurIPS 2021.
    """

    blocks: int = 4
    width: int = 192
    hidden: int = 384
    dropout: float = 0.25
    residual_dropout: float = 0.0
    scaling: str = "quantile"

    def _make_step_loss(self, data: LabelledRows, generator: torch.Generator) -> Callable[[int], Tensor]:
        n_rows = len(data.rows)
        if n_rows < 2 or self.batch_size < 2:
            raise ValueError(
                f"BatchNorm needs at least 2 rows in a batch, got n_samples = {n_rows}, "
                f"batch_size = {self.batch_size}"
            )
        return super()._make_step_loss(data, generator)

    def _make_network(self) -> nn.Module:
        return ResNet(self.encoder_.schema_, self._n_outputs, **self._parameters_of(ResNet))


@dataclass(kw_only=True, eq=False, repr=False)
class FTTransformerEstimator(RowEstimator):  # numpydoc ignore=PR02
    """FT-Transformer; for further parameters see `RowEstimator`.

    Parameters
    ----------
    blocks : int
        Number of blocks.
    width : int
        Width of a token.
    heads : int
        Number of attention heads; must divide the width.
    attention_dropout, dropout, residual_dropout : float
        Dropout of attention weights, inside the feed-forward network, and of the outputs of both.
    pieces : int
        Number of pieces of the piecewise encoding of numbers (see `ColumnEmbedding`); 0 (as published) for
        none.

    References
    ----------
    Gorishniy et al., NeurIPS 2021.
    """

    blocks: int = 3
    width: int = 192
    heads: int = 8
    attention_dropout: float = 0.2
    dropout: float = 0.1
    residual_dropout: float = 0.0
    pieces: int = 0
    steps: int = 10_000
    learning_rate: float = 1e-4
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return FTTransformer(self.encoder_.schema_, self._n_outputs, **self._parameters_of(FTTransformer))

    def column_attention(self, X: Any, by_norm: bool = False) -> np.ndarray:
        """Return the attention of the token [CLS] to each column, a measure of the column's importance.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows with the columns of the training rows.
        by_norm : bool
            Return norms of the vectors that [CLS] reads (attention times value) instead of the attention.
            They also show when [CLS] attends to a column but reads only a small vector from it.

        Returns
        -------
        float64 (D,)
            Mean over rows, blocks and heads, scaled to sum to 1.

        References
        ----------
        Gorishniy et al., NeurIPS 2021, section 5.3. For `by_norm`: Kobayashi et al., EMNLP 2020, section 3.
        """
        rows, network = self._encode_input(X), self.network_
        assert isinstance(network, FTTransformer)
        batches = rows.batches(PREDICTION_BATCH)
        with torch.no_grad():
            parts = [network.cls_attention(batch, by_norm).sum(0) for batch in batches]
        attention: np.ndarray = torch.stack(parts).sum(0).double().cpu().numpy()
        return attention / attention.sum()


class FTTransformerClassifier(ClassifierMixin, ClassifierOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021). For its parameters see `FTTransformerEstimator`."""


class FTTransformerRegressor(RegressorMixin, RegressorOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021). For its parameters see `FTTransformerEstimator`."""


class ResNetClassifier(ClassifierMixin, ClassifierOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021). For its parameters see `ResNetEstimator`."""


class ResNetRegressor(RegressorMixin, RegressorOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021). For its parameters see `ResNetEstimator`."""


class MLPClassifier(ClassifierMixin, ClassifierOutputs, MLPEstimator):
    """Multi-layer perceptron. For its parameters see `MLPEstimator`."""


class MLPRegressor(RegressorMixin, RegressorOutputs, MLPEstimator):
    """Multi-layer perceptron. For its parameters see `MLPEstimator`."""
