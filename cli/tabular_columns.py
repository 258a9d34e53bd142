"""What the commands on tables share: models, columns with their options and how their cells are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from spinimpute.runtime.errors import InputError, printable

from .messages import say, warn
from .options import (
    Command,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MOST_CLASSES = 20  # different whole numbers of a target that --task auto takes for classes
INEXACT = 2.0**53  # whole numbers from here on, which floats cannot distinguish
MANY_CATEGORIES = 1_000  # of a text column, all different: dates, names, keys
table_option = click.option(
    "--table", required=True, metavar="FILE", help="CSV or TSV, also .gz, or Parquet, known by suffix."
)

# what is offered to train, and the options of training
TABULAR_MODELS = {
    "spin": "SPIN",
    "npt": "NPT",
    "set-transformer": "SetTransformer",
    "ft-transformer": "FTTransformer",
    "resnet": "ResNet",
    "mlp": "MLP",
}
steps_option = click.option(
    "--steps", type=click.IntRange(min=1), help="Training steps at most. Default: the model's."
)
seed_option = click.option("--seed", type=click.IntRange(0, 2**31), default=1, show_default=True)


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


def labelled_table_options(command: Command) -> Command:
    """Add the options; the command receives the fields of `ColumnChoice`."""
    for option in (
        click.option("--drop-missing-target", is_flag=True, help="Leave out rows whose target is missing."),
        click.option(
            "--categorical", multiple=True, metavar="COLUMN", help="Numbers that are names; repeatable."
        ),
        click.option("--ignore", multiple=True, metavar="COLUMN", help="Not a feature; may be repeated."),
        click.option("--weights", metavar="COLUMN", help="Weights of the rows; not a feature."),
        click.option(
            "--task",
            type=click.Choice(["auto", "classification", "regression"]),
            default="auto",
            show_default=True,
            help=f"auto: regression if the target holds fractions or more than {MOST_CLASSES} different "
            "numbers.",
        ),
        click.option("--target", required=True, metavar="COLUMN", help="To be predicted."),
        table_option,
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class LabelledTable:
    """Rows of a table with a known target.

    Attributes
    ----------
    features : DataFrame of N rows
        As of `features_of`.
    label : (N,)
        Text of classes, or numbers.
    weight : float64 (N,) or None
        Of the rows.
    task : str
        "classification" or "regression".
    """

    features: pd.DataFrame
    label: np.ndarray
    weight: np.ndarray | None
    task: str


def read_labelled_table(choice: ColumnChoice, quiet: bool) -> LabelledTable:
    """Read the rows of a table whose target is known.

    Parameters
    ----------
    choice : ColumnChoice
        The table and its columns.
    quiet : bool
        Do not print which task it is.

    Returns
    -------
    LabelledTable
        With at least one row.

    Raises
    ------
    InputError
        The file cannot be read, a column is missing or given twice, or its cells are not what they must be.
    """
    from spinimpute.tabular.table_files import read_table, shown

    table = choice.table
    rows = read_table(table)
    columns = _feature_columns(rows, choice)
    rows = _with_target(rows, choice)
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
            f"table {table}: the target {choice.target!r} is {shown(counted.tolist()[0])} in {which}",
        )
    return LabelledTable(features_of(rows, table, columns, choice.categorical), label, weight, task)


def _feature_columns(rows: pd.DataFrame, choice: ColumnChoice) -> list[str]:
    """All that are neither target, weights nor ignored."""

    table, target, weights, categorical = choice.table, choice.target, choice.weights, choice.categorical
    others = {
        "--target": [target],
        "--weights": [] if weights is None else [weights],
        "--ignore": [*choice.ignore],
    }
    for option, names in [*others.items(), ("--categorical", [*categorical])]:
        require_columns(rows, table, names, f"of {option}")
    for option, names in others.items():
        for other, others_names in [*others.items(), ("--categorical", [*categorical])]:
            both = set(names) & set(others_names)
            if option != other and both:
                raise InputError("mismatch", f"column {min(both)!r} is given for both {option} and {other}")
    left_out = {name for names in others.values() for name in names}
    columns = [name for name in rows.columns if name not in left_out]
    if not columns:
        raise InputError("content", f"table {table}: no column is left to predict {target!r} from")
    return columns


def _with_target(rows: pd.DataFrame, choice: ColumnChoice) -> pd.DataFrame:
    """Rows whose target is known."""
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
            "arguments",
            f"table {table}: the target {target!r} is missing in row {listed(numbers, 5)}; use "
            "--drop-missing-target to leave such rows out",
        )
    return rows[~missing]


def _task(column: pd.Series, table: str, task: str) -> tuple[str, str]:
    """Classification or regression, and why."""
    from spinimpute.tabular.table_files import is_numeric, numbers_of

    if task != "auto":
        return task, "as --task says"
    if not is_numeric(column):
        return "classification", f"{column.name!r} holds text"
    number = numbers_of(column, table)
    if (number % 1 != 0).any():
        return "regression", f"{column.name!r} holds fractions"
    different = len(set(number.tolist()))
    if different > MOST_CLASSES:
        return "regression", f"{column.name!r} holds {different} different numbers"
    return "classification", f"{column.name!r} holds {different} different whole numbers"


def _label(column: pd.Series, table: str, task: str) -> np.ndarray:
    """Text of classes, or numbers, (N,)."""
    from spinimpute.tabular.table_files import categories_of, is_numeric, numbers_of

    if task == "classification":
        label = categories_of(column).to_numpy(dtype=str)
        if is_numeric(column):
            _require_one_spelling(label, numbers_of(column, table), column, table)
    elif is_numeric(column):
        label = numbers_of(column, table)
    else:
        raise InputError(
            "content", f"table {table}: the target {column.name!r} holds text; use --task classification"
        )
    return label


def _require_one_spelling(label: np.ndarray, number: np.ndarray, column: pd.Series, table: str) -> None:
    """Raise InputError where one number is two classes, such as 1 and 1.0."""

    first: dict[float | Decimal, str] = {}
    for row, (name, rounded) in enumerate(zip(label.tolist(), number.tolist(), strict=True)):
        value = rounded if abs(rounded) < INEXACT else Decimal(name)
        if first.setdefault(value, name) != name:
            raise InputError(
                "content",
                f"table {table}: row {column.index[row] + 1}, target {column.name!r}: {name!r} and "
                f"{first[value]!r} are the same number; write every class in one way",
            )


def _weight(column: pd.Series, table: str) -> np.ndarray:
    """(N,)."""
    from spinimpute.tabular.table_files import numbers_of, shown

    weight = numbers_of(column, table)
    wrong = (~(weight >= 0)).nonzero()[0]
    if len(wrong):
        raise InputError(
            "content",
            f"table {table}: row {column.index[wrong[0]] + 1}, column {column.name!r}: a weight must be 0 or "
            f"more, got {shown(column.iloc[wrong[0]])}",
        )
    if not weight.any():
        raise InputError("content", f"table {table}: every weight in column {column.name!r} is 0")
    return weight


def features_of(
    rows: pd.DataFrame, table: str, columns: list[str], categorical: Any, no_other_text: bool = False
) -> pd.DataFrame:
    """Columns of a table as features.

    Parameters
    ----------
    rows : DataFrame
        The table.
    table : str
        Its file, for messages.
    columns : list of str
        The features.
    categorical : collection of str
        Those that hold categories.
    no_other_text : bool
        Whether all other columns must hold numbers; otherwise those that hold text are categories, too.

    Returns
    -------
    DataFrame
        float64 columns of numbers, columns of text for categories.

    Raises
    ------
    InputError
        A cell is not a number where there must be one.
    """
    import pandas as pd

    from spinimpute.tabular.table_files import categories_of, is_numeric, numbers_of

    found: dict[str, Any] = {}
    for name in columns:
        column = rows[name]
        if name in categorical or not (no_other_text or is_numeric(column)):
            found[name] = categories_of(column)
            different = found[name].nunique()
            if not no_other_text and different == len(column) > MANY_CATEGORIES:
                warn(f"column {name!r} holds another text in every row, taken for {different} categories")
        else:
            found[name] = numbers_of(column, table)
            if not no_other_text and (found[name] != found[name]).all():
                warn(f"column {name!r} is missing in every row")
    return pd.DataFrame(found)


def require_columns(rows: pd.DataFrame, table: str, names: Any, what: str) -> None:
    """Check that a table has some columns.

    Parameters
    ----------
    rows : DataFrame
        The table.
    table : str
        Its file, for the message.
    names : iterable of str
        The columns.
    what : str
        What they are, for the message.

    Raises
    ------
    InputError
        A column is missing.
    """

    present = set(rows.columns)
    absent = [name for name in names if name not in present]
    if absent:
        raise InputError(
            "content",
            f"table {table}: there is no column {listed([repr(name) for name in absent])} {what}; it has "
            f"{listed(list(rows.columns))}",
        )


def listed(names: list[str], most: int = 10) -> str:
    """Names with commas between them; of more than `most`, the first ones and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(printable, names[:most])) + more


@contextmanager
def estimator_errors(what: str) -> Iterator[None]:
    """Turn errors of estimators into InputError, and hide numpy's warnings.

    Parameters
    ----------
    what : str
        What failed, for the message.

    Raises
    ------
    InputError
        Parameters are wrong, there are too few rows, numbers overflow, or memory is too small.
    """
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of empty columns
            yield
    except (ValueError, RuntimeError, MemoryError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError("content", f"{what}: {said}") from error
