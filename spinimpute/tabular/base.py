"""Base classes of the estimators: checks of parameters and data, encoding, training, predictions.

`TableEstimator` trains a network on a table. A concrete estimator combines three classes: a subclass of
`TableEstimator` that makes the network and the loss of a step (`context_estimators`, `row_estimators`),
`ClassifierOutputs` or `RegressorOutputs`, and scikit-learn's `ClassifierMixin` or `RegressorMixin`.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.checks import require_count, require_positive
from spinimpute.nn.optimisers import Lookahead
from spinimpute.runtime.devices import choose_device
from spinimpute.runtime.errors import InputError
from spinimpute.tabular.early_stopping import EarlyStopping
from spinimpute.tabular.table import LabelledRows, Rows, TableEncoder, times_to_days

COUNT_PARAMETERS = {  # must be whole numbers of at least 1
    "steps", "batch_size", "patience", "evaluate_every", "width", "heads", "blocks",
    "layers", "hidden", "inducing_points", "latent_attributes", "predictor_layers", "row_width",
    "context_size", "members", "head_width", "rounds",
}  # fmt: skip
CLOSED_FRACTION_PARAMETERS = {"attribute_loss", "attribute_masking", "read_loss"}  # must be in [0, 1]
FRACTION_PARAMETERS = CLOSED_FRACTION_PARAMETERS | {"dropout", "validation_fraction"}  # the last two: [0, 1)
MAX_SCALED_LABEL = 1e18  # standard deviations; squares of larger labels overflow float32
MIN_VALIDATION_ROWS = 10  # with fewer rows the validation loss is too noisy


@dataclass(kw_only=True, eq=False, repr=False)
class TableEstimator(BaseEstimator, ABC):  # numpydoc ignore=PR02
    """Base class of an estimator that trains a network on a table.

    Parameters
    ----------
    steps : int
        Largest number of training steps.
    batch_size : int
        Number of rows of a training step. For SPIN, NPT and the Set Transformer: number of queries.
    learning_rate : float
        Learning rate of the optimiser: LAMB with Lookahead for SPIN, NPT and the Set Transformer, AdamW for
        the other networks.
    validation_fraction : float
        Fraction of the rows that are held out for early stopping. If this is fewer than 10 rows, no row is
        held out, and training takes all steps.
    patience : int
        Training stops after this number of validations in a row without a lower loss.
    evaluate_every : int
        Steps between validations.
    categorical_features : sequence of str or int, optional
        Names or indices of columns to treat as categories. Categorical, boolean and text columns of a
        DataFrame are always categories.
    scaling : {"standard", "quantile"}
        Scaling of numeric columns: "standard" subtracts the mean and divides by the standard deviation,
        "quantile" maps each column to a normal distribution.
    device : {"auto", "cpu", "cuda"}
        Device to compute on; "auto" uses a GPU if one is available.
    random_state : int or numpy.random.RandomState, optional
        Seed of all random choices. On a CPU, equal seeds give equal results.
    verbose : bool or callable
        Print progress on standard error, or call a function with the completed fraction of the steps.

    Attributes
    ----------
    network_ : nn.Module
    encoder_ : TableEncoder
    n_steps_ : int
        Number of steps after which the validation loss was lowest; the weights of that step are used.
    validation_losses_ : list of float
    n_parameters_ : int
        Number of weights of the network.
    peak_memory_ : int
        Peak memory of `fit` in bytes: the memory allocated on a GPU, or the growth of the process's peak
        resident set on a CPU. Compare models in separate processes, because this peak never falls.
    classes_ : array
        Classes (classifiers only).
    n_features_in_ : int
    feature_names_in_ : array
    """

    steps: int = 5_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    validation_fraction: float = 0.15
    patience: int = 16
    evaluate_every: int = 100
    categorical_features: Any = None
    scaling: str = "standard"
    device: str = "auto"
    random_state: Any = None
    verbose: bool | Callable[[float], None] = False

    _context_has_validation_rows: ClassVar[bool] = False  # whether predictions read validation rows, too

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TableEstimator:
        """Train the network on labelled rows.

        Parameters
        ----------
        X : array (N, D) or DataFrame
            An array of numbers, or a DataFrame of numbers and categories. NaN means missing. Dates and
            durations are converted to days. Tables for predictions must have the same columns.
        y : array (N,)
            Labels.
        sample_weight : array (N,), optional
            Weight of each row in the loss; rows of weight 0 are ignored.

        Returns
        -------
        TableEstimator
            The estimator itself.

        Raises
        ------
        ValueError
            A parameter, a column or a label is invalid, or training diverged.
        """
        self.__dict__.pop("n_parameters_", None)  # if this fit fails, `check_is_fitted` must not find it
        self._check_parameters()
        table = self._validate_input(X, y, reset=True)
        label_N = self._encode_labels(y, len(table))
        weight_N = np.asarray(
            _check_sample_weight(sample_weight, np.empty((len(table), 1)), ensure_non_negative=True)
        )
        if not weight_N.all():
            used_N = np.flatnonzero(weight_N)
            table, weight_N = _take_rows(table, used_N), weight_N[used_N]
            label_N = self._encode_labels(np.asarray(y)[used_N], len(table))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with self._seeded(seed), _peak_memory(self._device()) as peak_memory:
            training_N, validation_N = self._split(label_N, seed)
            self.encoder_ = TableEncoder(self.scaling, self.categorical_features).fit(
                _take_rows(table, training_N), seed
            )
            self._scale_labels(label_N[training_N])
            rows = self._encode_table(table)
            label = self._label_tensor(label_N)
            weight = torch.as_tensor(weight_N / weight_N[training_N].mean(), device=label.device)
            self._train(LabelledRows(rows, label, weight), training_N, validation_N, seed)
        self.peak_memory_ = peak_memory()
        self.n_parameters_ = sum(p.numel() for p in self.network_.parameters())
        return self

    def _train(self, data: LabelledRows, training_N: np.ndarray, validation_N: np.ndarray, seed: int) -> None:
        device = data.label_N.device
        training, validation = (torch.as_tensor(index, device=device) for index in (training_N, validation_N))
        self.network_ = self._make_network().to(device)
        optimiser, schedule = self._optimiser()
        generator = torch.Generator(device).manual_seed(seed)
        self._is_training = True
        training_data, validation_data = data.take(training), data.take(validation)
        self._store_context(training_data.rows, training_data.label_N)

        def validation_loss() -> float:
            rows, label_N, weight_N = validation_data
            loss_N = self._losses(self._outputs(rows), label_N)
            return float((loss_N.double() * weight_N).sum() / weight_N.sum())

        loop = EarlyStopping(
            self.network_,
            optimiser,
            schedule,
            self._make_step_loss(training_data, generator),
            validation_loss if len(validation) else None,
            steps=self.steps,
            patience=self.patience,
        )
        try:
            loop.train(self.evaluate_every, self.verbose)
        except InputError as error:  # scikit-learn expects ValueError
            raise ValueError(str(error)) from error
        self._is_training = False
        self.n_steps_, self.validation_losses_ = loop.best_step, loop.validation_losses
        context = data if self._context_has_validation_rows else training_data
        self._store_context(context.rows, context.label_N)

    @abstractmethod
    def _make_network(self) -> nn.Module:
        """Make an untrained network for the columns in the encoder's schema."""

    @abstractmethod
    def _make_step_loss(self, data: LabelledRows, generator: torch.Generator) -> Callable[[int], Tensor]:
        """Return a function that draws the rows of a training step and computes their loss."""

    @abstractmethod
    def _outputs(self, rows: Rows) -> Tensor:
        """Return predictions (N, O) for rows: logits of the classes, or scaled numbers."""

    def _optimiser(self) -> tuple[Optimizer | Lookahead, LRScheduler | None]:
        return AdamW(self.network_.parameters(), lr=self.learning_rate, weight_decay=1e-5), None

    def _store_context(self, rows: Rows, label_N: Tensor) -> None:
        """Store the training rows if predictions read them; by default they do not."""
        del rows, label_N

    @property
    @abstractmethod
    def _n_outputs(self) -> int: ...

    @abstractmethod
    def _encode_labels(self, y: Any, n_rows: int) -> np.ndarray:
        """Return the labels (N,) as codes of classes or as numbers, and learn the classes."""

    def _encode_context_labels(self, y: Any, n_rows: int) -> np.ndarray:
        """Return the labels (N,) as codes of the known classes or as numbers; ValueError for a new class."""
        return self._encode_labels(y, n_rows)

    def _scale_labels(self, label_N: np.ndarray) -> None:
        """Learn the mean and standard deviation of numeric labels."""
        del label_N

    @abstractmethod
    def _label_tensor(self, label_N: np.ndarray) -> Tensor:
        """Return codes of classes or scaled numbers (N,) as a tensor on the device."""

    def _encode_table(self, table: Any) -> Rows:
        """Encode rows as tensors on the device."""
        return self.encoder_.transform(table).to(self._device())

    @abstractmethod
    def _losses(self, outputs_NO: Tensor, label_N: Tensor) -> Tensor:
        """Return the loss (N,) of each row."""

    def _split(self, label_N: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the indices of training rows and validation rows, stratified by label.

        There are no validation rows if they would be fewer than MIN_VALIDATION_ROWS.
        """
        n_validation = int(self.validation_fraction * len(label_N))
        if n_validation < MIN_VALIDATION_ROWS:
            return np.arange(len(label_N)), np.empty(0, np.int64)
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(label_N))
        order = order[np.argsort(label_N[order], kind="stable")]
        # rows are sorted by label; draw one validation row from each of n_validation strata
        edges = np.linspace(0, len(label_N), n_validation + 1).astype(np.int64)
        validation_N = np.sort(order[rng.integers(edges[:-1], edges[1:])])
        return np.setdiff1d(np.arange(len(label_N)), validation_N), validation_N

    def _parameters_of(self, network: Callable[..., nn.Module]) -> dict[str, Any]:
        """Return the estimator's values of the keyword-only arguments of a function that makes a network."""
        parameters = self.get_params()
        arguments = [a.name for a in signature(network).parameters.values() if a.kind is a.KEYWORD_ONLY]
        return {name: parameters[name] for name in arguments if name in parameters}

    def _check_parameters(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        parameters = self.get_params()
        for name in sorted(COUNT_PARAMETERS & parameters.keys()):
            require_count(name, parameters[name])
        require_positive("learning_rate", self.learning_rate)
        self._device()
        if "head_width" not in parameters and parameters.get("width", 1) % parameters.get("heads", 1):
            raise ValueError(
                f"heads must divide the width, got {parameters['heads']} and {parameters['width']}"
            )
        for name in sorted(FRACTION_PARAMETERS & parameters.keys()):
            value, closed = parameters[name], name in CLOSED_FRACTION_PARAMETERS
            if not isinstance(value, Real) or not (0 <= float(value) < 1 or (value == 1 and closed)):
                raise ValueError(f"{name} must be in [0, 1{']' if closed else ')'}, got {value!r}")

    def _encode_input(self, X: Any) -> Rows:
        """Check and encode rows for a prediction, and move the network to the device."""
        check_is_fitted(self, "n_parameters_")
        table = self._validate_input(X, None, reset=False)
        self.network_.to(self._device()).eval()
        return self._encode_table(table)

    def _predict_outputs(self, X: Any) -> Tensor:
        """Return the network's outputs (N, O) for a table, on the CPU."""
        rows = self._encode_input(X)
        with torch.no_grad():
            return self._outputs(rows).float().cpu()

    def _validate_input(self, X: Any, y: Any, reset: bool) -> Any:
        """Check X. Return a DataFrame if it has categories, otherwise an array of numbers.

        `reset` is true in `fit`: names and number of the columns are stored. Later tables must match them.
        """
        if reset and y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        is_frame = hasattr(X, "iloc") and hasattr(X, "columns")
        if is_frame:
            X, time_columns = times_to_days(X, None if reset else self.time_columns_)
        if reset:
            self.time_columns_: list[int] = time_columns if is_frame else []
        if is_frame and self._keeps_frame(X, reset):
            _check_feature_names(self, X, reset=reset)
            _check_n_features(self, X, reset=reset)
            if not len(X) or not X.shape[1]:
                raise ValueError(f"Found array with {len(X)} sample(s) and {X.shape[1]} feature(s)")
            if y is not None and len(X) != len(y):
                raise ValueError(f"X has {len(X)} rows, y has {len(y)}")
            return X
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")

    def _keeps_frame(self, X: Any, reset: bool) -> bool:
        """Return whether a DataFrame has categories, which an array of numbers could not hold."""
        if not reset:
            return bool(self.encoder_.schema_.categorical)
        has_categories = any(getattr(kind, "kind", "O") not in "iuf" for kind in X.dtypes)
        return self.categorical_features is not None or has_categories

    def _device(self) -> torch.device:
        """Return the device. Raise ValueError if it is unknown or unavailable."""
        try:
            return torch.device(choose_device(self.device))
        except InputError as error:  # scikit-learn expects ValueError
            raise ValueError(str(error)) from error

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        """Seed torch's generators; restore their previous states afterwards."""
        devices = [0] if self._device().type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            yield

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags


class ClassifierOutputs(TableEstimator):
    """Classifiers: labels are classes, and the network's outputs are their logits."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probabilities of the classes for each row of X (see `fit`).

        The result is float32 (N, classes), with the classes in the order of `classes_`.
        """
        return np.asarray(torch.softmax(self._predict_outputs(X), 1).numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class of each row of X (see `fit`), with the type of `classes_`."""
        code_N = self.predict_proba(X).argmax(1)  # raises NotFittedError if there are no `classes_`
        return np.asarray(self.classes_[code_N])

    @property
    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _encode_labels(self, y: Any, n_rows: int) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        _require_same_length(y, n_rows)
        self.classes_, label_N = np.unique(y, return_inverse=True)
        return np.asarray(label_N)

    def _encode_context_labels(self, y: Any, n_rows: int) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        _require_same_length(y, n_rows)
        code_N = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[code_N] != y
        if unknown.any():
            raise ValueError(f"y holds a class that is not among the training labels: {str(y[unknown][0])!r}")
        return np.asarray(code_N)

    def _label_tensor(self, label_N: np.ndarray) -> Tensor:
        return torch.as_tensor(label_N, dtype=torch.int64, device=self._device())

    def _losses(self, outputs_NO: Tensor, label_N: Tensor) -> Tensor:
        return functional.cross_entropy(outputs_NO.float(), label_N, reduction="none")


class RegressorOutputs(TableEstimator):
    """Regressors: labels are numbers, and the network's output is the standardised label."""

    def predict(self, X: Any) -> np.ndarray:
        """Predict a number for each row of X (see `fit`).

        The result is float64 (N,), because float32 cannot separate large labels that differ little.
        """
        scaled: np.ndarray = self._predict_outputs(X)[:, 0].double().numpy()
        return scaled * self.label_sd_ + self.label_mean_

    @property
    def _n_outputs(self) -> int:
        return 1

    def _encode_labels(self, y: Any, n_rows: int) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind in "mM":
            raise ValueError(f"y has the type {y.dtype}: give dates and durations as numbers, such as days")
        label_N = np.asarray(y, dtype=np.float64)
        if not np.isfinite(label_N).all():
            raise ValueError("Input y contains NaN or infinity; every label must be a number")
        _require_same_length(label_N, n_rows)
        return label_N

    def _scale_labels(self, label_N: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.label_mean_, sd = float(label_N.mean()), float(label_N.std())
        if not np.isfinite(sd):
            raise _label_too_large(label_N[np.abs(label_N).argmax()])
        self.label_sd_ = sd if sd > 0 else 1.0

    def _label_tensor(self, label_N: np.ndarray) -> Tensor:
        scaled_N = (label_N - self.label_mean_) / self.label_sd_
        most_extreme = np.abs(scaled_N).argmax()
        if abs(scaled_N[most_extreme]) > MAX_SCALED_LABEL:
            raise _label_too_large(label_N[most_extreme])
        return torch.as_tensor(scaled_N, dtype=torch.float32, device=self._device())

    def _losses(self, outputs_NO: Tensor, label_N: Tensor) -> Tensor:
        return (outputs_NO[:, 0].float() - label_N).square()


def _label_too_large(label: float) -> ValueError:
    return ValueError(
        f"y holds {label:g}, which is so far from the other labels that squared errors overflow. Divide y "
        "by a constant, or leave the row out."
    )


def _require_same_length(label_N: np.ndarray, n_rows: int) -> None:
    if len(label_N) != n_rows:
        raise ValueError(f"X and y must have the same number of rows, got {n_rows} and {len(label_N)}")


def _take_rows(table: Any, index: np.ndarray) -> Any:
    return table.iloc[index] if hasattr(table, "iloc") else table[index]


@contextmanager
def _peak_memory(device: torch.device) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak memory since the start, in bytes.

    It is the memory allocated on a GPU, or the growth of the process's peak resident set on a CPU.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield lambda: int(torch.cuda.max_memory_allocated(device))
        return
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield lambda: (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
