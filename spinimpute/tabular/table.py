"""Encoding of tables as tensors: numbers are scaled, categories become codes, missing cells are marked.

`TableEncoder` learns the scales and the list of categories from training rows.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

MAX_SCALED = 1e6  # standard deviations; larger scaled numbers are clipped
QUANTILE_NOISE = 1e-3  # standard deviations; noise that breaks ties (Gorishniy et al. 2021)
DATES, DURATIONS = ("datetime64", "datetime", "date"), ("timedelta64", "timedelta")  # pandas' names of types
MICROSECONDS_PER_DAY = 86_400e6


class Rows(NamedTuple):
    """Rows of a table, encoded as tensors."""

    value_ND: Tensor  # float32, codes of categories or scaled numbers; 0 if missing
    missing_ND: Tensor  # bool

    def take(self, index: Tensor) -> Rows:
        """Return the rows at these indices."""
        return Rows(self.value_ND[index], self.missing_ND[index])

    def to(self, device: torch.device) -> Rows:
        """Return the rows on another device."""
        return Rows(self.value_ND.to(device), self.missing_ND.to(device))

    def batches(self, size: int) -> Iterator[Rows]:
        """Yield the rows in batches of at most `size` rows."""
        for index in torch.arange(len(self), device=self.value_ND.device).split(size):
            yield self.take(index)

    def __len__(self) -> int:
        return len(self.value_ND)


class LabelledRows(NamedTuple):
    """Rows with their labels (codes of classes, or scaled numbers) and weights."""

    rows: Rows
    label_N: Tensor
    weight_N: Tensor

    def take(self, index: Tensor) -> LabelledRows:
        """Return the rows at these indices."""
        return LabelledRows(self.rows.take(index), self.label_N[index], self.weight_N[index])


@dataclass(frozen=True)
class Schema:
    """The kinds of the columns: numbers or categories."""

    cardinality: tuple[int, ...]  # number of categories of each column; 0 for numeric columns
    may_miss: tuple[bool, ...]  # whether a column has missing values in the training rows

    @property
    def continuous(self) -> tuple[int, ...]:
        """Indices of the numeric columns."""
        return tuple(i for i, n in enumerate(self.cardinality) if not n)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the categorical columns."""
        return tuple(i for i, n in enumerate(self.cardinality) if n)

    @property
    def vocabulary(self) -> int:
        """Largest number of categories in a column, at least 1."""
        return max(1, *self.cardinality) if self.cardinality else 1


class TableEncoder:
    """Encoder of tables, with scales and categories learned from training rows.

    Columns named in `categorical` and the categorical, boolean and text columns of a DataFrame are
    categorical. All other columns are numeric. Categories absent from the training rows are encoded as
    missing.
    """

    def __init__(self, scaling: str = "standard", categorical: Sequence[int | str] | None = None) -> None:
        self.scaling = scaling
        self.categorical = categorical

    def fit(self, table: Any, seed: int) -> TableEncoder:
        """Learn scales and categories from training rows. NaN and None mean missing.

        `seed` determines the noise that breaks ties before quantile scaling.
        """
        if self.scaling not in ("standard", "quantile"):
            raise ValueError(f"scaling must be 'standard' or 'quantile', got {self.scaling!r}")
        columns = _columns(table)
        categorical = self._categorical_columns(table, len(columns))
        self.categories_: list[np.ndarray | None] = []
        may_miss = []
        for number, column in enumerate(columns):
            if number in categorical or column.dtype.kind not in "iuf":
                name_N, names = _factorize(column)
                may_miss.append(bool((name_N < 0).any()))
                self.categories_.append(np.unique(names))
            else:
                may_miss.append(column.dtype.kind == "f" and bool(np.isnan(column).any()))
                self.categories_.append(None)
        cardinality = tuple(
            0 if categories is None else max(1, len(categories)) for categories in self.categories_
        )
        self.schema_ = Schema(cardinality, tuple(may_miss))
        numbers = self._numbers(columns)
        self.mean_ = np.zeros(numbers.shape[1])
        self.sd_ = np.ones(numbers.shape[1])
        self.quantiles_: QuantileTransformer | None = None
        if numbers.shape[1]:
            n_present = (~np.isnan(numbers)).sum(0).clip(1)
            self.mean_ = np.nansum(numbers, 0) / n_present
            sd = np.sqrt(np.nansum((numbers - self.mean_) ** 2, 0) / n_present)
            # in a constant column sd may be a rounding error instead of 0
            self.sd_ = np.where(sd > 1e-12 * np.abs(self.mean_).clip(1e-300), sd, 1.0)
            if self.scaling == "quantile":
                rng = np.random.default_rng(seed)
                noisy = numbers + QUANTILE_NOISE * self.sd_ * rng.standard_normal(numbers.shape)
                self.quantiles_ = QuantileTransformer(
                    n_quantiles=max(2, min(1_000, len(numbers) // 30)),
                    output_distribution="normal",
                    subsample=1_000_000,
                    random_state=seed % 2**32,
                ).fit(noisy)
        return self

    def transform(self, table: Any) -> Rows:
        """Encode rows that have the columns of the training rows."""
        columns = _columns(table)
        value_ND = np.zeros((len(table), len(columns)), np.float32)
        missing_ND = np.zeros(value_ND.shape, bool)
        for number, (column, categories) in enumerate(zip(columns, self.categories_, strict=True)):
            if categories is None:
                continue
            name_N, names = _factorize(column)
            code_of_name = np.searchsorted(categories, names)
            # missing cells have index -1 in name_N, which selects the last entry: -1
            code_of_name = np.append(np.where(np.isin(names, categories), code_of_name, -1), -1)
            code_N = code_of_name[name_N]
            missing_ND[:, number] = code_N < 0
            value_ND[:, number] = code_N.clip(0)
        numbers = self._numbers(columns)
        if numbers.shape[1]:
            missing_ND[:, list(self.schema_.continuous)] = np.isnan(numbers)
            if self.quantiles_ is not None:
                scaled = self.quantiles_.transform(numbers)
            else:
                scaled = (numbers - self.mean_) / self.sd_
            value_ND[:, list(self.schema_.continuous)] = np.nan_to_num(scaled, nan=0.0).clip(
                -MAX_SCALED, MAX_SCALED
            )
        return Rows(torch.from_numpy(value_ND), torch.from_numpy(missing_ND))

    def _numbers(self, columns: list[np.ndarray]) -> np.ndarray:
        """Return the numeric columns, float64 (N, numbers). Raise ValueError for text or infinity."""
        numeric = [
            column for column, categories in zip(columns, self.categories_, strict=True) if categories is None
        ]
        if not numeric:
            return np.empty((len(columns[0]) if columns else 0, 0))
        try:
            numbers = np.stack([np.asarray(column, dtype=np.float64) for column in numeric], axis=1)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"a column was numeric in training, but cannot be converted to numbers now: {error}"
            ) from error
        if np.isinf(numbers).any():
            raise ValueError("Input X contains infinity: every number must be finite, or NaN where missing")
        return numbers

    def _categorical_columns(self, table: Any, n_columns: int) -> set[int]:
        if self.categorical is None:
            return set()
        if isinstance(self.categorical, str):
            raise ValueError(f"categorical_features must be a list, got {self.categorical!r}")
        features = list(self.categorical)
        if features and all(isinstance(entry, bool | np.bool_) for entry in features):
            if len(features) != n_columns:
                raise ValueError(f"categorical_features: {len(features)} flags for {n_columns} columns")
            return {i for i, entry in enumerate(features) if entry}
        names = list(getattr(table, "columns", ()))
        chosen: set[int] = set()
        for entry in features:
            if isinstance(entry, int | np.integer) and -n_columns <= entry < n_columns:
                chosen.add(int(entry) % n_columns)
            elif isinstance(entry, str) and entry in names:
                chosen.add(names.index(entry))
            else:
                raise ValueError(f"categorical_features: there is no column {entry!r}")
        return chosen


def times_to_days(table: Any, time_columns: Sequence[int] | None) -> tuple[Any, list[int]]:
    """Convert durations to days, and dates to days since 1970 in UTC.

    Return the table and the indices of the converted columns. `time_columns` is None in `fit`; later it holds
    the indices that were returned in `fit`. Raise ValueError if other columns hold times now.
    """
    days_of_column: dict[int, np.ndarray] = {}
    for number in range(table.shape[1]):
        column = table.iloc[:, number]
        days = _days(column)
        if time_columns is not None and column.isna().all():
            days = None if days is None and number not in time_columns else np.full(len(table), np.nan)
        elif time_columns is not None and (days is not None) != (number in time_columns):
            kind = "dates or durations" if number in time_columns else "neither dates nor durations"
            raise ValueError(
                f"column {table.columns[number]!r} held {kind} in training, now it holds {column.dtype}, "
                f"for example {column.dropna().iloc[0]!r}"
            )
        if days is not None:
            days_of_column[number] = days
    if days_of_column:
        table = table.copy()
        for number, days in days_of_column.items():
            table.isetitem(number, days)
    return table, list(days_of_column)


def _days(column: Any) -> np.ndarray | None:
    """Return the dates or durations of a column in days, float64 (N,); None for other columns."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in DATES:
        times = pd.to_datetime(column, utc=True).to_numpy("datetime64[us]")
    elif kind in DURATIONS:
        times = pd.to_timedelta(column).to_numpy("timedelta64[us]")
    else:
        return None
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / MICROSECONDS_PER_DAY)


def _columns(table: Any) -> list[np.ndarray]:
    if hasattr(table, "iloc"):
        return [_column_cells(table.iloc[:, i]) for i in range(table.shape[1])]
    return [table[:, i] for i in range(table.shape[1])]


def _column_cells(series: Any) -> np.ndarray:
    """Return a column as float64 or as objects. Raise ValueError for complex numbers and lists."""
    kind = getattr(series.dtype, "kind", "O")
    if kind in "iuf" and not hasattr(series, "cat"):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    cells = np.asarray(series.astype(object), dtype=object)
    for cell in cells:
        if pd.api.types.is_list_like(cell) or isinstance(cell, complex | np.complexfloating):
            raise ValueError(
                f"column {series.name!r} holds a {type(cell).__name__}: {cell!r}. "
                "Each cell must hold one number, text or date."
            )
    return cells


def _factorize(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each cell in the list of names (-1 if missing), and this list."""
    name_N, values = pd.factorize(column)
    # True, 1 and 1.0 get one name: they are the same category
    return name_N, np.array([_category_name(value) for value in values], dtype=object).astype(str)


def _category_name(value: object) -> str:
    if (
        isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
        and float(value).is_integer()
    ):
        return str(int(value))
    return str(value)
