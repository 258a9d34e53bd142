"""Estimators that predict a row from other, labelled rows (the context): SPIN, NPT, Set Transformer.

Each training step is a task: predict the labels of some training rows (the queries) from other training rows
(the context). After training, the context of all predictions consists of training rows, or of the rows given
to `set_context`. NPT and the Set Transformer read context rows directly; both forms of SPIN read inducing
points, which summarize the context.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.attention import recorded_attention
from spinimpute.nn.carrying import CarriedPoints
from spinimpute.nn.optimisers import Lamb, Lookahead, attribute_weight, flat_then_cosine
from spinimpute.nn.presets import Form, published_network
from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs, TableEstimator
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.context_networks import ContextNetwork, SummaryNetwork
from spinimpute.tabular.table import LabelledRows, Rows

MAX_QUERY_FRACTION = 0.3  # largest number of queries in a step, as a fraction of the training rows
PREDICTION_BATCH = 1_024  # number of queries predicted together, times the number of ensemble members
# context rows in SPIN's validations; larger contexts are thinned to 1 to 2 times this number
VALIDATION_CONTEXT_ROWS = 4_096


@dataclass(kw_only=True, eq=False, repr=False)
class ContextEstimator(TableEstimator):  # numpydoc ignore=PR02
    """Base class of SPIN, NPT and the Set Transformer: training by tasks, with LAMB and Lookahead.

    In a task no query is also a row of the context (unless there is only one training row).

    Parameters
    ----------
    context_size : int
        Largest number of rows in the context of a training step.
    pieces : int
        Number of pieces of the piecewise encoding of numbers (see `ColumnEmbedding`); 0 for none.
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

    def _make_step_loss(self, data: LabelledRows, generator: torch.Generator) -> Callable[[int], Tensor]:
        n_rows = len(data.rows)
        n_queries = max(1, min(self.batch_size, int(MAX_QUERY_FRACTION * n_rows)))
        n_context = max(1, min(self.context_size, n_rows - n_queries))

        def loss(step: int) -> Tensor:
            order = torch.randperm(n_rows, generator=generator, device=data.label_N.device)
            context = order[n_queries : n_queries + n_context] if n_rows > 1 else order
            query = order[:n_queries]
            return self._task_loss(data.take(context), data.take(query), step, generator)

        return loss

    @abstractmethod
    def _task_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        """Return the loss of queries that are predicted from this context."""

    def _mean_member_loss(self, outputs_AQO: Tensor, query: LabelledRows) -> Tensor:
        """Return the weighted mean loss over queries and ensemble members (not of the members' mean)."""
        members = len(outputs_AQO)
        loss_L = self._losses(outputs_AQO.flatten(0, 1), query.label_N.repeat(members))
        return (loss_L * query.weight_N.repeat(members)).mean()

    def set_context(self, X: Any, y: Any) -> ContextEstimator:
        """Set the context of predictions to these labelled rows. The network is not trained again.

        NPT and the Set Transformer use at most context_size rows, chosen at random.

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
        """Number of classes, 0 for numeric labels."""
        return len(self.classes_) if hasattr(self, "classes_") else 0


@dataclass(kw_only=True, eq=False, repr=False)
class RowContextEstimator(ContextEstimator):  # numpydoc ignore=PR02
    """Base class of networks in their published form; predictions read at most context_size training rows.

    Parameters
    ----------
    width : int
        Width of the embedding of a cell.
    blocks : int
        Number of blocks. Each consists of attention between rows, then between columns.
    heads : int
        Number of attention heads; must divide the width.
    dropout : float
        Dropout of attention weights and feed-forward outputs.
    attribute_loss : float
        Initial weight λ of the loss of an additional task: to reconstruct hidden attributes of queries. λ
        falls to 0 by a cosine schedule.
    attribute_masking : float
        Fraction of the queries' attributes that are hidden while λ is above 0.
    """

    width: int = 16
    blocks: int = 2
    heads: int = 2
    dropout: float = 0.1
    attribute_loss: float = 0.0
    attribute_masking: float = 0.15

    _form: ClassVar[Form]
    _table_network: ClassVar[type[ContextNetwork]] = ContextNetwork

    if TYPE_CHECKING:  # at run time the annotation would make it a parameter
        network_: ContextNetwork

    def _make_network(self) -> nn.Module:
        schema, classes = self.encoder_.schema_, self._classes
        columns = len(schema.cardinality) + 1  # the label is the last column
        network = published_network(
            self._form,
            max(schema.vocabulary, classes),
            columns,
            continuous=schema.continuous if classes else (*schema.continuous, columns - 1),
            pieces=self.pieces,
            **self._parameters_of(published_network),
        )
        return self._table_network(network, schema, classes)

    def _task_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        share = attribute_weight(step, self.steps, self.attribute_loss)
        hidden = torch.zeros_like(query.rows.missing_ND)
        if share:
            random = torch.rand(hidden.shape, generator=generator, device=hidden.device)
            hidden = random < self.attribute_masking
        visible = Rows(query.rows.value_ND, query.rows.missing_ND | hidden)
        outputs = self.network_(context.rows, context.label_N, visible)
        label_loss = self._mean_member_loss(self.network_.label_outputs(outputs)[None], query)
        if not share:
            return label_loss
        attribute_loss = self.network_.attribute_loss(outputs, query.rows, hidden)
        return (1 - share) * label_loss + share * attribute_loss

    def _store_context(self, rows: Rows, label_N: Tensor) -> None:
        self.context_, self.context_label_ = rows, label_N
        if len(rows) > self.context_size:
            generator = torch.Generator(label_N.device).manual_seed(0)
            order = torch.randperm(len(rows), generator=generator, device=label_N.device)
            index = order[: self.context_size].sort().values
            self.context_, self.context_label_ = rows.take(index), label_N[index]

    def _outputs(self, rows: Rows) -> Tensor:
        context, label_N = self._context(rows.value_ND.device)
        batches = rows.batches(PREDICTION_BATCH)
        outputs = [self.network_.label_outputs(self.network_(context, label_N, batch)) for batch in batches]
        return torch.cat(outputs)

    def _context(self, device: torch.device) -> tuple[Rows, Tensor]:
        return self.context_.to(device), self.context_label_.to(device)


class SummarizingEstimator(ContextEstimator):
    """Base class of both forms of SPIN: predictions read only the inducing points of the context."""

    _context_has_validation_rows: ClassVar[bool] = True

    if TYPE_CHECKING:
        network_: Any
        inducing_points_: Any

    def _store_context(self, rows: Rows, label_N: Tensor) -> None:
        self._encoded_rows_, self._encoded_label_ = rows, label_N
        if not self._is_training:
            self._encode()

    def _encode(self, max_rows: int | None = None) -> None:
        """Summarize the context as inducing points; with max_rows, thin a larger context first."""
        self.network_.eval()
        step = 1 if max_rows is None else max(1, len(self._encoded_rows_) // max_rows)
        index = torch.arange(0, len(self._encoded_rows_), step, device=self._encoded_label_.device)
        with torch.no_grad():
            self.inducing_points_ = self.network_.encode(
                self._encoded_rows_.take(index), self._encoded_label_[index]
            )

    def forget_training_data(self) -> SummarizingEstimator:
        """Delete the stored rows of the context. Predictions need only `inducing_points_`."""
        self.__dict__.pop("_encoded_rows_", None)
        self.__dict__.pop("_encoded_label_", None)
        return self

    def _outputs(self, rows: Rows) -> Tensor:
        if self._is_training:
            self._encode(VALIDATION_CONTEXT_ROWS)  # the weights have changed since the last validation
        return torch.cat([self._predict_batch(batch) for batch in self._batches(rows)])

    def _batches(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows in batches that are predicted together."""
        return rows.batches(PREDICTION_BATCH)

    @abstractmethod
    def _predict_batch(self, rows: Rows) -> Tensor:
        """Return the outputs (N, O) for rows, from the inducing points."""


@dataclass(kw_only=True, eq=False, repr=False)
class SPINEstimator(SummarizingEstimator):  # numpydoc ignore=PR02
    """SPIN with inducing points that carry labels; for further parameters see `ContextEstimator`.

    `fit` summarizes all training rows, including the validation rows, as `inducing_points_`. Predictions read
    only these points, so the time of a prediction does not depend on the number of training rows.

    Parameters
    ----------
    width : int
        Width of the embedding of a cell.
    heads, head_width : int
        Number of attention heads with which queries read inducing points, and number of features that each
        head compares.
    inducing_points : int
        Largest number of inducing points. In a context with no more rows than this, each row is a point.
    rounds : int
        Number of rounds that assign the rows of a larger context softly to inducing points.
    predictor_layers, row_width, members : int
        Sizes of the network that corrects predictions, see `CorrectingPredictor`.
    dropout : float
        Dropout of the correcting network.
    read_loss : float
        Weight of the loss of the predictions before correction.

    Attributes
    ----------
    inducing_points_ : CarriedPoints
        All that predictions need of the training rows: features (1, H, heads * head_width), labels (1, H, O)
        and masses (1, H). The mass of a point is the number of rows that it stands for.

    References
    ----------
    Rastogi et al., ICLR 2023; for the differences see `spinimpute.nn.carrying`.
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

    if TYPE_CHECKING:  # at run time the annotation would make it a parameter
        network_: CarryingNetwork
        inducing_points_: CarriedPoints

    def _make_network(self) -> nn.Module:
        sizes = self._parameters_of(CarryingNetwork)
        return CarryingNetwork(self.encoder_.schema_, self._classes, **sizes)

    def _task_loss(
        self, context: LabelledRows, query: LabelledRows, step: int, generator: torch.Generator
    ) -> Tensor:
        outputs_AQO, uncorrected_AQO = self.network_(context.rows, context.label_N, query.rows)
        corrected = self._mean_member_loss(outputs_AQO, query)
        return corrected + self.read_loss * self._mean_member_loss(uncorrected_AQO, query)

    def inducing_attention(self, X: Any) -> np.ndarray:
        """Return the attention of each row of X to each inducing point in its prediction, float32 (N, H).

        It is averaged over heads (with learned weights) and ensemble members. Each row sums to 1.
        """
        rows = self._encode_input(X)
        points = self.inducing_points_.to(rows.value_ND.device)
        with torch.no_grad():
            attention = [self.network_.attention(batch, points) for batch in self._batches(rows)]
        return torch.cat(attention).cpu().numpy()

    def training_row_attention(self) -> np.ndarray:
        """Return the weight of each row of the context in each inducing point.

        The columns are the rows given to `fit` with a weight above 0, in their order, or the rows of
        `set_context`. The product `inducing_attention(X) @ training_row_attention()` is the weight of each
        context row in each prediction: the mean of their labels (numbers, or one-hot classes) with these
        weights is the prediction before its correction.

        Returns
        -------
        float32 (H, N)
            Weights. Each row sums to 1.

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

    def _predict_batch(self, rows: Rows) -> Tensor:
        points = self.inducing_points_.to(rows.value_ND.device)
        return self.network_.mean_of_members(self.network_.predict(rows, points)[0])

    def _batches(self, rows: Rows) -> Iterator[Rows]:
        return rows.batches(max(1, PREDICTION_BATCH // self.members))


@dataclass(kw_only=True, eq=False, repr=False)
class NPTEstimator(RowContextEstimator):
    """Non-parametric transformer; for its parameters see `RowContextEstimator` and `ContextEstimator`.

    Time and memory grow with the square of the number of context rows.

    References
    ----------
    Kossen et al., NeurIPS 2021.
    """

    _form: ClassVar[Form] = "NPT"

    def row_attention(self, X: Any) -> np.ndarray:
        """Return the attention of each row of X to the M context rows, float32 (blocks, N, M).

        It is given for each block of the network, averaged over heads. Each row sums to 1.
        """
        rows = self._encode_input(X)
        context, label_N = self._context(rows.value_ND.device)
        layers, attention = self.network_.datapoint_layers(), []
        for batch in rows.batches(PREDICTION_BATCH):
            with torch.no_grad(), recorded_attention(layers) as maps:
                self.network_(context, label_N, batch)
            attention.append(torch.cat(maps).mean(1)[:, len(context) :, : len(context)])
        return torch.cat(attention, 1).cpu().numpy()


@dataclass(kw_only=True, eq=False, repr=False)
class SetTransformerEstimator(RowContextEstimator):  # numpydoc ignore=PR02
    """Set Transformer; for further parameters see `RowContextEstimator` and `ContextEstimator`.

    Parameters
    ----------
    inducing_points : int
        Number of inducing points of the attention between rows.
    latent_attributes : int
        Number of inducing points of the attention between columns.

    References
    ----------
    Lee et al., ICML 2019.
    """

    inducing_points: int = 16
    latent_attributes: int = 4

    _form: ClassVar[Form] = "SetTransformer"


@dataclass(kw_only=True, eq=False, repr=False)
class PublishedSPINEstimator(SummarizingEstimator, RowContextEstimator):  # numpydoc ignore=PR02
    """SPIN in its published form; for further parameters see `RowContextEstimator` and `ContextEstimator`.

    Values and labels are embedded, and inducing points start from learned constants. A block consists of
    XABA, XABD and ABLA, and the predictor is flat (`spinimpute.nn.spin`).

    Parameters
    ----------
    inducing_points : int
        Number of inducing points.
    latent_attributes : int
        Number of latent attributes of a row and of an inducing point.

    Attributes
    ----------
    inducing_points_ : Tensor (1, H, F, E)
        All that predictions need of the training rows.

    References
    ----------
    Rastogi et al., ICLR 2023, section 3.
    """

    inducing_points: int = 10
    latent_attributes: int = 10

    _form: ClassVar[Form] = "SPIN"
    _table_network: ClassVar[type[ContextNetwork]] = SummaryNetwork

    if TYPE_CHECKING:  # at run time the annotation would make it a parameter
        network_: SummaryNetwork
        inducing_points_: Tensor

    def _predict_batch(self, rows: Rows) -> Tensor:
        points = self.inducing_points_.to(rows.value_ND.device)
        return self.network_.label_outputs(self.network_.predict(rows, points))


class SPINClassifier(ClassifierMixin, ClassifierOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023). For its parameters see `SPINEstimator`."""


class SPINRegressor(RegressorMixin, RegressorOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023). For its parameters see `SPINEstimator`."""


class PublishedSPINClassifier(ClassifierMixin, ClassifierOutputs, PublishedSPINEstimator):
    """SPIN as published (Rastogi et al. 2023). For its parameters see `PublishedSPINEstimator`."""


class PublishedSPINRegressor(RegressorMixin, RegressorOutputs, PublishedSPINEstimator):
    """SPIN as published (Rastogi et al. 2023). For its parameters see `PublishedSPINEstimator`."""


class NPTClassifier(ClassifierMixin, ClassifierOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021). For its parameters see `NPTEstimator`."""


class NPTRegressor(RegressorMixin, RegressorOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021). For its parameters see `NPTEstimator`."""


class SetTransformerClassifier(ClassifierMixin, ClassifierOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019). For its parameters see `SetTransformerEstimator`."""


class SetTransformerRegressor(RegressorMixin, RegressorOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019). For its parameters see `SetTransformerEstimator`."""
