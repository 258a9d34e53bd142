"""Options of `spinimpute tabular`, and the choice of target, weights and features among a table's columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from spinimpute.runtime.errors import InputError, printable

from .commands import Count, Decorator, combine_options, option
from .messages import first_line, say, warn

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MAX_CLASSES = 20  # with --task auto, a target of at most this many different whole numbers is categorical
MAX_EXACT_INTEGER = 2.0**53  # larger whole numbers are rounded to a float64
MANY_CATEGORIES = 1_000  # a text column with more different values probably has dates, names or keys
table_option = option(
    "--table",
    required=True,
    metavar="FILE",
    help="Table: CSV or TSV, also .gz, or Parquet, by suffix.",
    group="Input",
)

# name on the command line -> first part of the estimator's class name
TABULAR_MODELS = {
    "spin": "SPIN",
    "published-spin": "PublishedSPIN",
    "npt": "NPT",
    "set-transformer": "SetTransformer",
    "ft-transformer": "FTTransformer",
    "resnet": "ResNet",
    "mlp": "MLP",
}
steps_option = option(
    "--steps", type=Count(), help="Maximum number of training steps. Default: the model's.", group="Training"
)
seed_option = option("--seed", type=Count(0), default=1, help="Random seed.", group="Training")


@dataclass(frozen=True)
class ColumnChoice:
    """The values of the options of `labelled_table_options`."""

    table: str
    target: str
    task: str
    weights: str | None
    ignore: tuple[str, ...]
    categorical: tuple[str, ...]
    drop_missing_target: bool


labelled_table_options: Decorator = combine_options(
    table_option,
    option("--target", required=True, metavar="COLUMN", help="Column to predict.", group="Input"),
    option(
        "--task",
        type=click.Choice(["auto", "classification", "regression"]),
        default="auto",
        help="Task; auto chooses regression if the target has fractions or more than "
        f"{MAX_CLASSES} different numbers.",
        group="Input",
    ),
    option("--weights", metavar="COLUMN", help="Column with the weights of the rows.", group="Input"),
    option(
        "--ignore",
        multiple=True,
        metavar="COLUMN",
        help="Column that is no feature. Repeat for several.",
        group="Input",
    ),
    option(
        "--categorical",
        multiple=True,
        metavar="COLUMN",
        help="Column of numbers that are names of categories. Repeat for several.",
        group="Input",
    ),
    option("--drop-missing-target", is_flag=True, help="Leave out rows without a target.", group="Input"),
)


@dataclass(frozen=True)
class LabelledTable:
    """The rows of a table whose target is known. `label` has class names as text, or numbers."""

    features: pd.DataFrame
    label: np.ndarray
    weight: np.ndarray | None
    task: str


def read_labelled_table(choice: ColumnChoice, quiet: bool) -> LabelledTable:
    """Read a table and choose its columns. Raises InputError if the table cannot be used for training."""
    from spinimpute.tabular.table_files import quote, read_table

    table = choice.table
    rows = read_table(table)
    columns = _feature_columns(rows, choice)
    rows = _drop_missing_targets(rows, choice)
    task, reason = _task(rows[choice.target], table, choice.task)
    if not quiet:
        say(f"task:     {task}: {reason}")
    label = _label(rows[choice.target], table, task)
    weight = None if choice.weights is None else _weight(rows[choice.weights], table)
    counted = label if weight is None else label[weight > 0]
    if (counted == counted[0]).all():
        which = "every row" if weight is None else "every row whose weight is not 0"
        raise InputError(
            "content",
            f"table {table}: the target {choice.target!r} is {quote(counted.tolist()[0])} in {which}",
        )
    return LabelledTable(select_features(rows, table, columns, choice.categorical), label, weight, task)


def _feature_columns(rows: pd.DataFrame, choice: ColumnChoice) -> list[str]:
    """Return all columns except the target, the weights and the ignored columns.

    Raises InputError if an option names an unknown column, or if two options name the same column.
    """
    table, target, weights, categorical = choice.table, choice.target, choice.weights, choice.categorical
    others = {
        "--target": [target],
        "--weights": [] if weights is None else [weights],
        "--ignore": [*choice.ignore],
    }
    for flag, names in [*others.items(), ("--categorical", [*categorical])]:
        require_columns(rows, table, names, f"of {flag}")
    for flag, names in others.items():
        for other, others_names in [*others.items(), ("--categorical", [*categorical])]:
            both = set(names) & set(others_names)
            if flag != other and both:
                raise InputError("arguments", f"column {min(both)!r} is given for both {flag} and {other}")
    left_out = {name for names in others.values() for name in names}
    columns = [name for name in rows.columns if name not in left_out]
    if not columns:
        raise InputError("content", f"table {table}: no column is left to predict {target!r} from")
    return columns


def _drop_missing_targets(rows: pd.DataFrame, choice: ColumnChoice) -> pd.DataFrame:
    """Return the rows whose target is not missing.

    Raises InputError if rows must be dropped without --drop-missing-target, or if no row remains.
    """
    from spinimpute.tabular.table_files import missing_cells

    table, target = choice.table, choice.target
    missing = missing_cells(rows[target])
    if missing.all():
        raise InputError("content", f"table {table}: the target {target!r} is missing in every row")
    if not missing.any():
        return rows
    if not choice.drop_missing_target:
        numbers = [str(number + 1) for number in missing.nonzero()[0]]
        raise InputError(
            "content",
            f"table {table}: the target {target!r} is missing in row {join_names(numbers, 5)}; use "
            "--drop-missing-target to leave such rows out",
        )
    return rows[~missing]


def _task(column: pd.Series, table: str, task: str) -> tuple[str, str]:
    """Return "classification" or "regression", and the reason for the choice."""
    from spinimpute.tabular.table_files import is_numeric, parse_numbers

    if task != "auto":
        return task, "given by --task"
    if not is_numeric(column):
        return "classification", f"{column.name!r} holds text"
    number = parse_numbers(column, table)
    if (number % 1 != 0).any():
        return "regression", f"{column.name!r} holds fractions"
    different = len(set(number.tolist()))
    if different > MAX_CLASSES:
        return "regression", f"{column.name!r} holds {different} different numbers"
    return "classification", f"{column.name!r} holds {different} different whole numbers"


def _label(column: pd.Series, table: str, task: str) -> np.ndarray:
    """Return the labels of the rows, (N,): class names as text, or numbers."""
    from spinimpute.tabular.table_files import is_numeric, parse_categories, parse_numbers

    if task == "classification":
        label = parse_categories(column).to_numpy(dtype=str)
        if is_numeric(column):
            _require_one_spelling(label, parse_numbers(column, table), column, table)
    elif is_numeric(column):
        label = parse_numbers(column, table)
    else:
        raise InputError(
            "argument", f"table {table}: the target {column.name!r} holds text; use --task classification"
        )
    return label


def _require_one_spelling(label: np.ndarray, number: np.ndarray, column: pd.Series, table: str) -> None:
    """Raise InputError if a number is spelled in two ways, such as 1 and 1.0: are they one class or two?"""
    first: dict[float | Decimal, str] = {}
    for row, (name, rounded) in enumerate(zip(label.tolist(), number.tolist(), strict=True)):
        value = rounded if abs(rounded) < MAX_EXACT_INTEGER else Decimal(name)
        if first.setdefault(value, name) != name:
            raise InputError(
                "content",
                f"table {table}: row {column.index[row] + 1}, target {column.name!r}: {name!r} and "
                f"{first[value]!r} are the same number. Write each class always alike",
            )


def _weight(column: pd.Series, table: str) -> np.ndarray:
    """Return the weights of the rows, (N,). Raises InputError for a negative weight or if all are 0."""
    from spinimpute.tabular.table_files import parse_numbers, quote

    weight = parse_numbers(column, table)
    wrong = (~(weight >= 0)).nonzero()[0]
    if len(wrong):
        raise InputError(
            "content",
            f"table {table}: row {column.index[wrong[0]] + 1}, column {column.name!r}: a weight must be 0 or "
            f"more, got {quote(column.iloc[wrong[0]])}",
        )
    if not weight.any():
        raise InputError("content", f"table {table}: every weight in column {column.name!r} is 0")
    return weight


def select_features(
    rows: pd.DataFrame, table: str, columns: list[str], categorical: Any, no_other_text: bool = False
) -> pd.DataFrame:
    """Return columns of a table as features: numbers as float64, categories as text.

    `categorical` are the columns of categories. Other columns of text are also categories. With
    `no_other_text`, which is used for prediction, they raise InputError.
    """
    import pandas as pd

    from spinimpute.tabular.table_files import is_numeric, parse_categories, parse_numbers

    found: dict[str, Any] = {}
    for name in columns:
        column = rows[name]
        if name in categorical or not (no_other_text or is_numeric(column)):
            found[name] = parse_categories(column)
            different = found[name].nunique()
            if not no_other_text and different == len(column) > MANY_CATEGORIES:
                warn(f"column {name!r} holds a different text in every row: {different} categories")
        else:
            found[name] = parse_numbers(column, table)
            if not no_other_text and (found[name] != found[name]).all():
                warn(f"column {name!r} is missing in every row")
    return pd.DataFrame(found)


def require_columns(rows: pd.DataFrame, table: str, names: Any, what: str) -> None:
    """Raise InputError if a column is missing. `what` is the origin of the names, such as "of --ignore"."""
    present = set(rows.columns)
    absent = [name for name in names if name not in present]
    if absent:
        raise InputError(
            "not-found",
            f"table {table}: there is no column {join_names([repr(name) for name in absent])} {what}; it has "
            f"{join_names(list(rows.columns))}",
        )


def join_names(names: list[str], most: int = 10) -> str:
    """Return the first `most` names, separated by commas, and the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(printable, names[:most])) + more


@contextmanager
def convert_estimator_errors(what: str) -> Iterator[None]:
    """Convert errors of estimators in the `with` block to InputError, and hide numpy's warnings.

    Estimators raise errors for wrong parameters, too few rows, overflow or too little memory. numpy warns
    about empty columns.
    """
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            yield
    except MemoryError as error:
        raise InputError("memory", f"{what}: {first_line(error)}") from error
    except (ValueError, RuntimeError) as error:
        raise InputError("content", f"{what}: {first_line(error)}") from error
