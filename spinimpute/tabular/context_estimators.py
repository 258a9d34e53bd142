"""Estimators whose networks read the training rows as context: SPIN, NPT and the Set Transformer.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.attention import MABOptions, recorded_attention
from spinimpute.nn.carrying import CarriedPoints
from spinimpute.nn.masking import attribute_weight
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine
from spinimpute.nn.row_models import NPT, RowModel, SetTransformer
from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs, TableEstimator
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.context_networks import ContextNetwork
from spinimpute.tabular.table import LabelledRows, Rows

MAX_QUERY_FRACTION = 0.3  # of the rows that a step draws
PREDICTION_BATCH = 1_024  # queries, times the members
VALIDATION_CONTEXT_ROWS = 4_096  # context rows that validations read, at most about twice as many


@dataclass(kw_only=True, eq=False, repr=False)
class ContextEstimator(TableEstimator):  # numpydoc ignore=PR02
    """Training by episodes of a context with visible labels and queries without; LAMB with Lookahead.

    A row is never a query with itself in its context.

    Parameters
    ----------
    context_size : int
        Largest number of rows in a step's context.
    pieces : int
        Pieces of the encoding of numbers (see `ColumnEmbedding`), 0 for none.
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

    def _loss_at(self, data: LabelledRows, generator: torch.Generator) -> Callable[[int], Tensor]:
        n_rows = len(data.rows)
        n_queries = max(1, min(self.batch_size, int(MAX_QUERY_FRACTION * n_rows)))
        n_context = max(1, min(self.context_size, n_rows - n_queries))

        def loss(step: int) -> Tensor:
            order = torch.randperm(n_rows, generator=generator, device=data.label_N.device)
            context = order[n_queries : n_queries + n_context] if n_rows > 1 else order
            query = order[:n_queries]
            return self._episode_loss(data.take(context), data.take(query), step, generator)

        return loss

    @abstractmethod
    def _episode_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        """Loss of queries that read this context."""

    def _mean_member_loss(self, outputs_AQO: Tensor, query: LabelledRows) -> Tensor:
        """Weighted mean loss over queries and members, each of which has its own loss."""
        members = len(outputs_AQO)
        loss_L = self._losses(outputs_AQO.flatten(0, 1), query.label_N.repeat(members))
        return (loss_L * query.weight_N.repeat(members)).mean()

    def set_context(self, X: Any, y: Any) -> ContextEstimator:
        """Predict from these labelled rows instead of the training rows; the weights stay as they are.

        NPT and the Set Transformer draw context_size of them at random where there are more.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows with the columns of the training rows.
        y : array (N,)
            Labels of the rows.

        Returns
        -------
        ContextEstimator
            The estimator itself.

        Raises
        ------
        ValueError
            There are unknown columns or classes, or no rows.
        """
        rows = self._encode_input(X)
        self._store_context(rows, self._label_tensor(self._encode_context_labels(y, len(rows))))
        return self

    @property
    def _classes(self) -> int:
        """Number of classes of the label; 0 for a number."""
        return len(self.classes_) if hasattr(self, "classes_") else 0


@dataclass(kw_only=True, eq=False, repr=False)
class RowContextEstimator(ContextEstimator):  # numpydoc ignore=PR02
    """NPT and the Set Transformer: each prediction reads context_size of the training rows, or all of them.

    Parameters
    ----------
    width : int
        Width of a cell.
    blocks : int
        Number of blocks: each an ABD and an ABA (NPT), or an ISAB over rows and one over columns (Set
        Transformer).
    heads : int
        Attention heads; must divide the width.
    dropout : float
        Probability of dropping attention weights and feed-forward outputs in training.
    attribute_loss : float
        Initial weight λ of the reconstruction of hidden attributes of queries; it falls by cosine to 0.
    attribute_masking : float
        Fraction of the attributes that are hidden.
    """

    width: int = 16
    blocks: int = 2
    heads: int = 2
    dropout: float = 0.1
    attribute_loss: float = 0.0
    attribute_masking: float = 0.15

    if TYPE_CHECKING:  # an attribute, not a parameter
        network_: ContextNetwork

    def _make_network(self) -> nn.Module:
        schema, classes = self.encoder_.schema_, self._classes
        columns = len(schema.cardinality) + 1  # the label is the last column
        continuous = schema.continuous if classes else (*schema.continuous, columns - 1)
        options = MABOptions(heads=self.heads, learned_residual=True, dropout=self.dropout)
        network = self._row_model(max(schema.vocabulary, classes), columns, options, continuous)
        return ContextNetwork(network, schema, classes)

    @abstractmethod
    def _row_model(
        self, vocabulary: int, columns: int, options: MABOptions, continuous: Sequence[int]
    ) -> RowModel:
        """An untrained network for a table with its label."""

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
        labels = self._mean_member_loss(self.network_.label_outputs(outputs)[None], query)
        if not share:
            return labels
        attributes = self.network_.attribute_loss(outputs, query.rows, hidden)
        return (1 - share) * labels + share * attributes

    def _store_context(self, rows: Rows, label_N: Tensor) -> None:
        self.context_, self.context_label_ = rows, label_N
        if len(rows) > self.context_size:
            generator = torch.Generator(label_N.device).manual_seed(0)
            order = torch.randperm(len(rows), generator=generator, device=label_N.device)
            index = order[: self.context_size].sort().values
            self.context_, self.context_label_ = rows.take(index), label_N[index]

    def _outputs(self, rows: Rows) -> Tensor:
        context, label_N = self._context(rows.value_ND.device)
        outputs = [
            self.network_.label_outputs(self.network_(context, label_N, rows.take(index)))
            for index in torch.arange(len(rows), device=label_N.device).split(PREDICTION_BATCH)
        ]
        return torch.cat(outputs)

    def _context(self, device: torch.device) -> tuple[Rows, Tensor]:
        return self.context_.to(device), self.context_label_.to(device)


@dataclass(kw_only=True, eq=False, repr=False)
class SPINEstimator(ContextEstimator):  # numpydoc ignore=PR02
    """SPIN with inducing points that carry labels; further parameters are those of `ContextEstimator`.

    `fit` encodes all training rows, including those of early stopping, as `inducing_points_`. Predictions
    read these points alone, so their cost does not depend on the number of training rows.

    Parameters
    ----------
    width : int
        Width of a cell.
    heads, head_width : int
        Number of heads with which queries read inducing points, and number of features that a head compares.
    inducing_points : int
        Largest number of inducing points; the rows of a smaller context are inducing points themselves.
    rounds : int
        Number of rounds in which inducing points compete for the rows of a larger context.
    predictor_layers, row_width, members : int
        Sizes of the correction, see `CorrectingPredictor`.
    dropout : float
        Probability of dropping a number of the correction in training.
    read_loss : float
        Weight of the loss of the uncorrected labels.

    Attributes
    ----------
    inducing_points_ : CarriedPoints
        All that predictions read: features (1, H, heads * head_width), labels (1, H, O), masses (1, H).

    References
    ----------
    Rastogi et al., ICLR 2023; differences: `spinimpute.nn.carrying`.
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

    _context_has_validation_rows: ClassVar[bool] = True

    if TYPE_CHECKING:  # an attribute, not a parameter
        network_: CarryingNetwork

    def _make_network(self) -> nn.Module:
        return CarryingNetwork(
            self.encoder_.schema_,
            self._classes,
            width=self.width,
            heads=self.heads,
            head_width=self.head_width,
            inducing_points=self.inducing_points,
            rounds=self.rounds,
            predictor_layers=self.predictor_layers,
            row_width=self.row_width,
            members=self.members,
            dropout=self.dropout,
            pieces=self.pieces,
        )

    def _episode_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        outputs_AQO, read_AQO = self.network_(context.rows, context.label_N, query.rows)
        corrected = self._mean_member_loss(outputs_AQO, query)
        return corrected + self.read_loss * self._mean_member_loss(read_AQO, query)

    def _store_context(self, rows: Rows, label_N: Tensor) -> None:
        self._encoded_rows_, self._encoded_label_ = rows, label_N
        if not self._is_training:
            self._encode()

    def _encode(self, max_rows: int | None = None) -> None:
        self.network_.eval()
        step = 1 if max_rows is None else max(1, len(self._encoded_rows_) // max_rows)
        index = torch.arange(0, len(self._encoded_rows_), step, device=self._encoded_label_.device)
        with torch.no_grad():
            self.inducing_points_ = self.network_.encode(
                self._encoded_rows_.take(index), self._encoded_label_[index]
            )

    def forget_training_data(self) -> SPINEstimator:
        """Drop the context's rows; predictions need `inducing_points_` alone."""
        self.__dict__.pop("_encoded_rows_", None)
        self.__dict__.pop("_encoded_label_", None)
        return self

    def inducing_attention(self, X: Any) -> np.ndarray:
        """Attention of each row's prediction to each inducing point.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows with the columns of the training rows.

        Returns
        -------
        float32 (N, H)
            Rows sum to 1; the mean over members of their mixtures of heads.
        """
        rows = self._encode_input(X)
        points = self._points(rows.value_ND.device)
        with torch.no_grad():
            attention = [self.network_.attention(rows.take(index), points) for index in self._batches(rows)]
        return torch.cat(attention).cpu().numpy()

    def training_row_attention(self) -> np.ndarray:
        """Weight of each row of the context in each inducing point.

        The context is all rows with a weight that were given to `fit`, in their order, or the rows of
        `set_context`. `inducing_attention(X) @` this matrix shows which rows a prediction comes from: with
        these weights, the mean of their labels (as numbers, or one-hot) is the uncorrected prediction.

        Returns
        -------
        float32 (H, N)
            Rows sum to 1.

        Raises
        ------
        ValueError
            The rows were dropped by `forget_training_data`.
        """
        check_is_fitted(self, "n_parameters_")
        if "_encoded_rows_" not in self.__dict__:
            raise ValueError("the training rows were dropped: fit again to trace predictions to them")
        device = next(self.network_.eval().parameters()).device
        with torch.no_grad():
            rows, label_N = self._encoded_rows_.to(device), self._encoded_label_.to(device)
            return self.network_.shares(rows, label_N).cpu().numpy()

    def _outputs(self, rows: Rows) -> Tensor:
        if self._is_training:
            self._encode(VALIDATION_CONTEXT_ROWS)  # with the current weights
        points = self._points(rows.value_ND.device)
        outputs = [
            self.network_.mean_of_members(self.network_.predict(rows.take(index), points)[0])
            for index in self._batches(rows)
        ]
        return torch.cat(outputs)

    def _points(self, device: torch.device) -> CarriedPoints:
        return CarriedPoints(*(part.to(device) for part in self.inducing_points_))

    def _batches(self, rows: Rows) -> tuple[Tensor, ...]:
        """Indices of rows that are predicted at a time."""
        index_N = torch.arange(len(rows), device=rows.value_ND.device)
        return index_N.split(max(1, PREDICTION_BATCH // self.members))


@dataclass(kw_only=True, eq=False, repr=False)
class NPTEstimator(RowContextEstimator):
    """Non-parametric transformer; parameters are those of `RowContextEstimator` and `ContextEstimator`.

    Time and memory grow with the square of the context.

    References
    ----------
    Kossen et al., NeurIPS 2021.
    """

    def row_attention(self, X: Any) -> np.ndarray:
        """Attention of each row to each of the training rows that are its context.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            Rows with the columns of the training rows.

        Returns
        -------
        float32 (blocks, N, M)
            Rows sum to 1; mean over heads.
        """
        rows = self._encode_input(X)
        context, label_N = self._context(rows.value_ND.device)
        layers, attention = self.network_.datapoint_layers(), []
        for index in torch.arange(len(rows), device=label_N.device).split(PREDICTION_BATCH):
            with torch.no_grad(), recorded_attention(layers) as maps:
                self.network_(context, label_N, rows.take(index))
            attention.append(torch.cat(maps).mean(1)[:, len(context) :, : len(context)])
        return torch.cat(attention, 1).cpu().numpy()

    def _row_model(
        self, vocabulary: int, columns: int, options: MABOptions, continuous: Sequence[int]
    ) -> RowModel:
        return NPT(
            vocabulary, columns, self.width, self.blocks, options, continuous=continuous, pieces=self.pieces
        )


@dataclass(kw_only=True, eq=False, repr=False)
class SetTransformerEstimator(RowContextEstimator):  # numpydoc ignore=PR02
    """Set Transformer; further parameters are those of `RowContextEstimator` and `ContextEstimator`.

    Parameters
    ----------
    inducing_points : int
        Inducing points of the attention between rows.
    latent_attributes : int
        Inducing points of the attention between columns.

    References
    ----------
    Lee et al., ICML 2019.
    """

    inducing_points: int = 16
    latent_attributes: int = 4

    def _row_model(
        self, vocabulary: int, columns: int, options: MABOptions, continuous: Sequence[int]
    ) -> RowModel:
        return SetTransformer(
            vocabulary,
            columns,
            self.width,
            self.blocks,
            self.inducing_points,
            self.latent_attributes,
            options,
            continuous=continuous,
            pieces=self.pieces,
        )


class SPINClassifier(ClassifierMixin, ClassifierOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator`."""


class SPINRegressor(RegressorMixin, RegressorOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator`."""


class NPTClassifier(ClassifierMixin, ClassifierOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator`."""


class NPTRegressor(RegressorMixin, RegressorOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator`."""


class SetTransformerClassifier(ClassifierMixin, ClassifierOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator`."""


class SetTransformerRegressor(RegressorMixin, RegressorOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator`."""
