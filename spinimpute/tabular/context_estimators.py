"""Estimators whose networks read the training rows as context.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.attention import recorded_attention
from spinimpute.nn.carrying import CarriedPoints
from spinimpute.nn.masking import attribute_weight
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine
from spinimpute.tabular.base import TableEstimator
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.context_networks import (
    ContextNetwork,
    make_npt,
    make_set_transformer,
)
from spinimpute.tabular.table import Rows

MOST_QUERIES = 0.3  # of the rows that a step draws
PREDICTED_AT_A_TIME = 1_024  # queries, each member's counted
ENCODED_WHILE_TRAINING = 4_096  # rows: each look at the validation part would otherwise read all of them


class LabelledRows(NamedTuple):
    """Rows of an episode with codes or scaled numbers as labels, and weights."""

    rows: Rows
    label_N: Tensor
    weight_N: Tensor


@dataclass(kw_only=True, eq=False, repr=False)
class ContextEstimator(TableEstimator):  # numpydoc ignore=PR02
    """Episodes of a context with visible labels and queries without; LAMB with Lookahead.

    A row is never a query and in its own context.

    Parameters
    ----------
    context_size : int
        Rows of a step's context, at most.
    pieces : int
        Pieces that numbers are cut into (see `ColumnEmbedding`), 0 for none.
    """

    context_size: int = 256
    pieces: int = 16
    scaling: str = "quantile"
    steps: int = 3_000
    batch_size: int = 128
    learning_rate: float = 1e-2

    def _optimiser(self) -> tuple[Optimizer | Lookahead, LRScheduler | None]:
        optimiser = Lookahead(Lamb(self.network_.parameters(), lr=self.learning_rate))
        return optimiser, flat_then_cosine(optimiser, self.steps)

    def _loss_at(
        self, rows: Rows, label_N: Tensor, weight_N: Tensor, generator: torch.Generator
    ) -> Callable[[int], Tensor]:
        n_rows = len(rows)
        n_queries = max(1, min(self.batch_size, int(MOST_QUERIES * n_rows)))
        n_context = max(1, min(self.context_size, n_rows - n_queries))

        def loss(step: int) -> Tensor:
            order = torch.randperm(n_rows, generator=generator, device=label_N.device)
            asked = order[:n_queries]
            shown = order[n_queries : n_queries + n_context] if n_rows > 1 else order
            context, query = (
                LabelledRows(rows.take(index), label_N[index], weight_N[index]) for index in (shown, asked)
            )
            return self._episode_loss(context, query, step, generator)

        return loss

    @abstractmethod
    def _episode_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        """The loss of queries that read this context."""

    def _losses_of_members(self, outputs_AQO: Tensor, query: LabelledRows) -> Tensor:
        """Mean over members, which learn on their own, and queries by their weight."""
        members = len(outputs_AQO)
        loss_L = self._losses(outputs_AQO.flatten(0, 1), query.label_N.repeat(members))
        return (loss_L * query.weight_N.repeat(members)).mean()

    def set_context(self, X: Any, y: Any) -> ContextEstimator:
        """Predict from these labelled rows instead of the training rows; the weights stay as they are.

        NPT and the Set Transformer take context_size of them, drawn at random, where there are more.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows of the columns that training had.
        y : array (N,)
            Their labels.

        Returns
        -------
        ContextEstimator
            Itself.

        Raises
        ------
        ValueError
            There are columns or classes that training had not, or no rows.
        """
        rows = self._rows(X)
        if not len(rows):
            raise ValueError("a context must hold at least one row")
        self._remember(rows, self._label_tensor(self._known_labels(y, len(rows))))
        return self

    @property
    def _classes(self) -> int:
        """Of the label; 0 for a number."""
        return len(self.classes_) if hasattr(self, "classes_") else 0


@dataclass(kw_only=True, eq=False, repr=False)
class RowsAsContext(ContextEstimator):  # numpydoc ignore=PR02
    """NPT and the Set Transformer: predictions read the training rows, or context_size of them, each time.

    Parameters
    ----------
    attribute_loss : float
        λ at the start, of the reconstruction of queries' attributes that are hidden; by cosine to 0.
    attribute_masking : float
        Share of the attributes that are hidden.
    """

    attribute_loss: float = 0.0
    attribute_masking: float = 0.15

    if TYPE_CHECKING:  # no parameter
        network_: ContextNetwork

    def _episode_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        share = attribute_weight(step, self.steps, self.attribute_loss)
        hidden = torch.zeros_like(query.rows.missing_ND)
        if share:
            drawn = torch.rand(hidden.shape, generator=generator, device=hidden.device)
            hidden = drawn < self.attribute_masking
        visible = Rows(query.rows.value_ND, query.rows.missing_ND | hidden)
        outputs = self.network_(context.rows, context.label_N, visible)
        labels = self._losses_of_members(self.network_.label_outputs(outputs)[None], query)
        if not share:
            return labels
        attributes = self.network_.attribute_loss(outputs, query.rows, hidden)
        return (1 - share) * labels + share * attributes

    def _remember(self, rows: Rows, label_N: Tensor) -> None:
        self.context_, self.context_label_ = rows, label_N
        if len(rows) > self.context_size:
            generator = torch.Generator(label_N.device).manual_seed(0)
            chosen = torch.randperm(len(rows), generator=generator, device=label_N.device)
            index = chosen[: self.context_size].sort().values
            self.context_, self.context_label_ = rows.take(index), label_N[index]

    def _outputs(self, rows: Rows) -> Tensor:
        context, label_N = self._context(rows.value_ND.device)
        found = [
            self.network_.label_outputs(self.network_(context, label_N, rows.take(index)))
            for index in torch.arange(len(rows), device=label_N.device).split(PREDICTED_AT_A_TIME)
        ]
        return torch.cat(found)

    def _context(self, device: torch.device) -> tuple[Rows, Tensor]:
        return Rows(*(part.to(device) for part in self.context_)), self.context_label_.to(device)


@dataclass(kw_only=True, eq=False, repr=False)
class SPINEstimator(ContextEstimator):  # numpydoc ignore=PR02
    """SPIN with inducing points that carry labels; further parameters as of `ContextEstimator`.

    `fit` encodes all training rows, those of early stopping too, into `inducing_points_`, which predictions
    read: their cost does not depend on the training rows.

    Parameters
    ----------
    width : int
        Of a cell.
    heads, head_width : int
        With which queries read inducing points, and numbers that a head compares rows by.
    inducing_points : int
        At most; rows of a smaller context are the inducing points themselves.
    rounds : int
        How often inducing points compete for the rows of a larger one.
    predictor_layers, row_width, members : int
        Of the correction, see `CorrectingPredictor`.
    dropout : float
        Probability of dropping a number of the correction in training.
    read_loss : float
        Weight of the loss of what was read, without its correction.

    Attributes
    ----------
    inducing_points_ : CarriedPoints
        What predictions read: features (1, H, heads * head_width), labels (1, H, O), masses (1, H).

    References
    ----------
    Rastogi et al., ICLR 2023; what differs: `spinimpute.nn.carrying`.
    """

    width: int = 16
    heads: int = 4
    head_width: int = 16
    inducing_points: int = 1_024
    rounds: int = 2
    predictor_layers: int = 2
    row_width: int = 64
    members: int = 8
    dropout: float = 0.2
    read_loss: float = 0.5
    context_size: int = 512

    _reads_rows_apart: ClassVar[bool] = True

    if TYPE_CHECKING:  # no parameter
        network_: CarryingNetwork

    def _make(self) -> nn.Module:
        return CarryingNetwork(
            self.encoder_.schema_,
            self._classes,
            self.width,
            self.heads,
            self.head_width,
            self.inducing_points,
            self.rounds,
            self.predictor_layers,
            self.row_width,
            self.members,
            self.dropout,
            self.pieces,
        )

    def _episode_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        del step, generator
        outputs_AQO, read_AQO = self.network_(context.rows, context.label_N, query.rows)
        corrected = self._losses_of_members(outputs_AQO, query)
        return corrected + self.read_loss * self._losses_of_members(read_AQO, query)

    def _remember(self, rows: Rows, label_N: Tensor) -> None:
        self._encoded_rows_, self._encoded_label_ = rows, label_N
        if not self._is_training:
            self._encode()

    def _encode(self, most: int | None = None) -> None:
        self.network_.eval()
        step = 1 if most is None else max(1, len(self._encoded_rows_) // most)
        index = torch.arange(0, len(self._encoded_rows_), step, device=self._encoded_label_.device)
        with torch.no_grad():
            self.inducing_points_ = self.network_.encode(
                self._encoded_rows_.take(index), self._encoded_label_[index]
            )

    def forget_training_data(self) -> SPINEstimator:
        """Drop the context's rows, if they are still there; `inducing_points_` alone serves predictions."""
        self.__dict__.pop("_encoded_rows_", None)
        self.__dict__.pop("_encoded_label_", None)
        return self

    def inducing_attention(self, X: Any) -> np.ndarray:
        """How much the prediction of each row reads each inducing point.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows of the columns that training had.

        Returns
        -------
        float32 (N, H)
            Rows sum to 1; mean over members, of their mixtures of heads.
        """
        rows, found = self._rows(X), []
        points = self._points(rows.value_ND.device)
        for index in self._batches(rows):
            with torch.no_grad():
                found.append(self.network_.attention(rows.take(index), points))
        return torch.cat(found).cpu().numpy()

    def training_row_attention(self) -> np.ndarray:
        """How much of each inducing point comes from each row of the context.

        The context is all rows that `fit` was given and that have a weight, in their order, or the rows of
        `set_context`. `inducing_attention(X) @` this shows which rows a prediction comes from: with these
        weights, the mean of their labels (as numbers, or one-hot) is what was read, before its correction.

        Returns
        -------
        float32 (H, N)
            Rows sum to 1.

        Raises
        ------
        ValueError
            After `forget_training_data`.
        """
        check_is_fitted(self, "n_parameters_")
        if "_encoded_rows_" not in self.__dict__:
            raise ValueError("the training rows have been forgotten: fit again to see which ones are read")
        device = next(self.network_.eval().parameters()).device
        with torch.no_grad():
            rows = Rows(*(part.to(device) for part in self._encoded_rows_))
            return self.network_.shares(rows, self._encoded_label_.to(device)).cpu().numpy()

    def _outputs(self, rows: Rows) -> Tensor:
        if self._is_training:
            self._encode(ENCODED_WHILE_TRAINING)  # the weights have changed since
        points = self._points(rows.value_ND.device)
        found = [
            self.network_.mean_of_members(self.network_.predict(rows.take(index), points)[0])
            for index in self._batches(rows)
        ]
        return torch.cat(found)

    def _points(self, device: torch.device) -> CarriedPoints:
        return CarriedPoints(*(part.to(device) for part in self.inducing_points_))

    def _batches(self, rows: Rows) -> tuple[Tensor, ...]:
        """Indices of rows that are predicted at a time."""
        index_N = torch.arange(len(rows), device=rows.value_ND.device)
        return index_N.split(max(1, PREDICTED_AT_A_TIME // self.members))


@dataclass(kw_only=True, eq=False, repr=False)
class NPTEstimator(RowsAsContext):  # numpydoc ignore=PR02
    """Non-parametric transformer; further parameters as of `ContextEstimator`.

    Time and memory grow with the square of the context.

    Parameters
    ----------
    width : int
        Of a cell.
    blocks : int
        ABD and ABA each.
    heads : int
        Attention heads; must divide the width.
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.

    References
    ----------
    Kossen et al., NeurIPS 2021.
    """

    width: int = 16
    blocks: int = 2
    heads: int = 2
    dropout: float = 0.1

    def row_attention(self, X: Any) -> np.ndarray:
        """How much each row attends to each of the training rows that are its context.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows of the columns that training had.

        Returns
        -------
        float32 (blocks, N, M)
            Rows sum to 1; mean over heads.
        """
        rows = self._rows(X)
        context, label_N = self._context(rows.value_ND.device)
        layers, found = self.network_.datapoint_layers(), []
        for index in torch.arange(len(rows), device=label_N.device).split(PREDICTED_AT_A_TIME):
            with torch.no_grad(), recorded_attention(layers) as maps:
                self.network_(context, label_N, rows.take(index))
            found.append(torch.cat(maps).mean(1)[:, len(context) :, : len(context)])
        return torch.cat(found, 1).cpu().numpy()

    def _make(self) -> nn.Module:
        return make_npt(
            self.encoder_.schema_,
            self._classes,
            self.width,
            self.blocks,
            self.heads,
            self.dropout,
            self.pieces,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class SetTransformerEstimator(RowsAsContext):  # numpydoc ignore=PR02
    """Set Transformer; further parameters as of `ContextEstimator`.

    Parameters
    ----------
    width : int
        Of a cell.
    blocks, heads : int
        Blocks of an ISAB over rows and one over columns, and attention heads.
    inducing_points : int
        Of rows.
    latent_attributes : int
        Inducing points of columns.
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.

    References
    ----------
    Lee et al., ICML 2019.
    """

    width: int = 16
    blocks: int = 2
    heads: int = 2
    inducing_points: int = 16
    latent_attributes: int = 4
    dropout: float = 0.1

    def _make(self) -> nn.Module:
        return make_set_transformer(
            self.encoder_.schema_,
            self._classes,
            self.width,
            self.blocks,
            self.heads,
            self.inducing_points,
            self.latent_attributes,
            self.dropout,
            self.pieces,
        )
