"""Estimators whose networks see one row at a time.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.optimisers import Lookahead
from spinimpute.tabular.base import TableEstimator
from spinimpute.tabular.row_networks import MLP, FTTransformer, ResNet
from spinimpute.tabular.table import Rows

PREDICTED_AT_A_TIME = 4_096


@dataclass(kw_only=True, eq=False, repr=False)
class RowEstimator(TableEstimator):  # numpydoc ignore=PR02
    """Batches of rows, AdamW.

    Parameters
    ----------
    weight_decay : float
        Weight decay of AdamW; tokens, norms and biases have none.
    """

    weight_decay: float = 1e-5

    def _optimiser(self) -> tuple[Optimizer | Lookahead, LRScheduler | None]:
        # weights of tokens, norms and biases do not decay
        decayed: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in self.network_.named_parameters():
            apart = parameter.ndim == 1 or name.startswith(("tokens", "cls"))
            (others if apart else decayed).append(parameter)
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        return AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay), None

    def _loss_at(
        self, rows: Rows, label_N: Tensor, weight_N: Tensor, generator: torch.Generator
    ) -> Callable[[int], Tensor]:
        order: list[Tensor] = []
        size = min(self.batch_size, len(rows))

        def loss(step: int) -> Tensor:
            del step
            if not order:
                shuffled = torch.randperm(len(rows), generator=generator, device=label_N.device)
                order.extend(batch for batch in shuffled.split(size) if len(batch) == size)
            index = order.pop()
            loss_L = self._losses(self.network_(rows.take(index)), label_N[index])
            return (loss_L * weight_N[index]).mean()

        return loss

    def _outputs(self, rows: Rows) -> Tensor:
        index = torch.arange(len(rows), device=rows.value_ND.device)
        return torch.cat([self.network_(rows.take(part)) for part in index.split(PREDICTED_AT_A_TIME)])


@dataclass(kw_only=True, eq=False, repr=False)
class MLPEstimator(RowEstimator):  # numpydoc ignore=PR02
    """A multi-layer perceptron; further parameters as of `RowEstimator`.

    Parameters
    ----------
    layers, width : int
        Hidden layers and their width.
    dropout : float
        Probability of dropping a number in training.
    """

    layers: int = 3
    width: int = 256
    dropout: float = 0.1

    def _make(self) -> nn.Module:
        return MLP(self.encoder_.schema_, self._n_outputs, self.layers, self.width, self.dropout)


@dataclass(kw_only=True, eq=False, repr=False)
class ResNetEstimator(RowEstimator):  # numpydoc ignore=PR02
    """A ResNet for tables; further parameters as of `RowEstimator`.

    Parameters
    ----------
    blocks, width : int
        Blocks and the width between them.
    hidden : int
        Width of a block's first layer.
    dropout, residual_dropout : float
        Probabilities of dropping a number in training: inside a block, and of its output.

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

    def _loss_at(
        self, rows: Rows, label_N: Tensor, weight_N: Tensor, generator: torch.Generator
    ) -> Callable[[int], Tensor]:
        if len(rows) < 2 or self.batch_size < 2:
            raise ValueError(
                f"BatchNorm needs at least 2 rows in a batch, however: n_samples = {len(rows)}, "
                f"batch_size = {self.batch_size}"
            )
        return super()._loss_at(rows, label_N, weight_N, generator)

    def _make(self) -> nn.Module:
        return ResNet(
            self.encoder_.schema_,
            self._n_outputs,
            self.blocks,
            self.width,
            self.hidden,
            self.dropout,
            self.residual_dropout,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class FTTransformerEstimator(RowEstimator):  # numpydoc ignore=PR02
    """FT-Transformer; further parameters as of `RowEstimator`.

    Parameters
    ----------
    blocks : int
        Number of blocks.
    width : int
        Of a token.
    heads : int
        Attention heads; must divide the width.
    attention_dropout, dropout, residual_dropout : float
        Probabilities of dropping in training: attention weights, numbers inside the feed-forward network, and
        the outputs of both.
    pieces : int
        Of numbers, see `ColumnEmbedding`; 0 as published.

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

    def _make(self) -> nn.Module:
        return FTTransformer(
            self.encoder_.schema_,
            self._n_outputs,
            self.blocks,
            self.width,
            self.heads,
            self.attention_dropout,
            self.dropout,
            self.residual_dropout,
            self.pieces,
        )

    def column_attention(self, X: Any, by_norm: bool = False) -> np.ndarray:
        """How much [CLS] attends to each column, a measure of importance.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows of the columns that training had.
        by_norm : bool
            Attention times what it carries, the norms of the vectors that [CLS] reads of each column. A
            column may be attended to and carry nothing.

        Returns
        -------
        float64 (D,)
            Sums to 1; mean over rows, blocks and heads.

        References
        ----------
        Gorishniy et al., NeurIPS 2021, section 5.3; `by_norm`: Kobayashi et al., EMNLP 2020, section 3.
        """
        rows, network = self._rows(X), self.network_
        assert isinstance(network, FTTransformer)
        index = torch.arange(len(rows), device=rows.value_ND.device)
        with torch.no_grad():
            parts = [
                network.cls_attention(rows.take(part), by_norm).sum(0)
                for part in index.split(PREDICTED_AT_A_TIME)
            ]
        attention: np.ndarray = torch.stack(parts).sum(0).double().cpu().numpy()
        return attention / attention.sum()
