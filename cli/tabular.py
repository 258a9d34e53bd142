"""`spinimpute tabular fit | predict | info`: networks on tables in files."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

from cli.options import available_device, device_option, force_option, quiet_option

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from spinimpute.tabular.base import TableEstimator

MODELS = {
    "spin": "SPIN",
    "npt": "NPT",
    "set-transformer": "SetTransformer",
    "ft-transformer": "FTTransformer",
    "resnet": "ResNet",
    "mlp": "MLP",
}
MOST_CLASSES = 20  # different whole numbers of a target that --task auto takes for classes
MANY_CATEGORIES = 1_000  # of a text column, all different: dates, names, keys
OPTION_OF = {
    "categorical_features": "--categorical",
    "device": "--device",
    "random_state": "--seed",
    "verbose": "--verbose",
}
table_option = click.option(
    "--table", required=True, metavar="FILE", help="CSV or TSV, also .gz, or Parquet, known by suffix."
)


def output_option(what: str) -> Any:
    return click.option("--output", "--out", "-o", "out", required=True, metavar="FILE", help=what)


@click.group()
def tabular() -> None:
    """Train networks on tables, and predict a column of them."""


@tabular.command()
@table_option
@click.option("--target", required=True, metavar="COLUMN", help="To be predicted.")
@output_option("Model to write (safetensors).")
@click.option("--model", "kind", type=click.Choice(list(MODELS)), default="spin", show_default=True)
@click.option(
    "--task",
    type=click.Choice(["auto", "classification", "regression"]),
    default="auto",
    show_default=True,
    help=f"auto: regression if the target holds fractions or more than {MOST_CLASSES} different numbers.",
)
@click.option("--weights", metavar="COLUMN", help="Weights of the rows; not a feature.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Not a feature; may be repeated.")
@click.option("--categorical", multiple=True, metavar="COLUMN", help="Numbers that are names; repeatable.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Parameter of the estimator; repeatable."
)
@click.option("--steps", type=click.IntRange(min=1), help="Training steps at most. Default: the model's.")
@click.option("--seed", type=click.IntRange(0, 2**31), default=1, show_default=True)
@click.option("--drop-missing-target", is_flag=True, help="Leave out rows whose target is missing.")
@device_option
@force_option
@quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Report the losses while training.")
def fit(
    table: str,
    target: str,
    out: str,
    kind: str,
    task: str,
    weights: str | None,
    ignore: tuple[str, ...],
    categorical: tuple[str, ...],
    settings: tuple[str, ...],
    steps: int | None,
    seed: int,
    drop_missing_target: bool,
    device: str,
    force: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Train a network on all columns of a table but the target's. Text columns are categories."""
    from spinimpute.errors import InputError
    from spinimpute.output_files import check_output
    from spinimpute.tabular.model_files import save_estimator
    from spinimpute.tabular.table_files import read_table

    path = check_output(out, force, [table])
    where = available_device(device)
    rows = read_table(table)
    columns = _feature_columns(rows, table, target, weights, ignore, categorical)
    rows = _with_target(rows, table, target, drop_missing_target)
    task, reason = _task(rows[target], table, task)
    if not quiet:
        click.echo(f"task:     {task}: {reason}", err=True)
    label = _label(rows[target], table, task)
    weight = None if weights is None else _weight(rows[weights], table)
    features = _features(rows, table, columns, categorical)
    try:
        estimator = _estimator(kind, task, settings, steps)
        estimator.set_params(device=where, random_state=seed, verbose=verbose and not quiet)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of empty columns
            estimator.fit(features, label, weight)
    except (ValueError, RuntimeError, MemoryError) as error:
        # of what is asked for: parameters, too few rows, numbers that overflow, more memory than there is
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"training cannot go on: {said}") from error
    described = {"target": target, "weights": weights, "rows": len(rows), "seed": seed}
    save_estimator(estimator, path, described)
    if not quiet:
        numbers = sum(features[column].dtype.kind == "f" for column in columns)
        click.echo(
            f"table:    {len(rows)} rows, {numbers} columns of numbers, {len(columns) - numbers} of "
            "categories\n"
            f"model:    {path}, {type(estimator).__name__}, {estimator.n_parameters_} weights, "
            f"{estimator.n_steps_} steps, seed {seed}",
            err=True,
        )


@tabular.command()
@click.option("--model", required=True, metavar="FILE", help="Of `spinimpute tabular fit`.")
@table_option
@output_option("Predictions to write: .csv, .tsv, also .gz, or .parquet; - for CSV on standard output.")
@click.option("--probabilities", is_flag=True, help="Of every class, too.")
@click.option("--id", "ids", multiple=True, metavar="COLUMN", help="Column to carry over; may be repeated.")
@device_option
@force_option
@quiet_option
def predict(
    model: str,
    table: str,
    out: str,
    probabilities: bool,
    ids: tuple[str, ...],
    device: str,
    force: bool,
    quiet: bool,
) -> None:
    """Predict the target of a table's rows. Columns are found by their names, in any order."""
    from spinimpute.errors import InputError
    from spinimpute.output_files import check_output, written_whole
    from spinimpute.tabular.model_files import load_estimator
    from spinimpute.tabular.table_files import output_suffix, read_table, write_table

    suffix = ".csv" if out == "-" else output_suffix(out)
    path = None if out == "-" else check_output(out, force, [model, table])
    estimator = load_estimator(model, available_device(device))
    if probabilities and not hasattr(estimator, "predict_proba"):
        raise InputError(f"--probabilities: {model} predicts numbers, which have none")
    if not hasattr(estimator, "feature_names_in_"):
        raise InputError(f"tabular model {model}: it was fitted without names of columns")
    rows = read_table(table)
    columns = list(estimator.feature_names_in_)
    _require_columns(rows, table, columns, "that the model reads")
    _require_columns(rows, table, ids, "of --id")
    surplus = [name for name in rows.columns if name not in {*columns, *ids}]
    if surplus and not quiet:
        click.echo(f"ignored:  {_listed(surplus)}", err=True)
    categorical = [columns[number] for number in estimator.encoder_.schema_.categorical]
    features = _features(rows, table, columns, categorical, no_other_text=True)
    _tell_unseen(estimator, features)
    found = _predictions(estimator, features, probabilities)
    clashes = found.keys() & set(ids)
    if clashes:
        raise InputError(f"--id {min(clashes)}: the predictions have a column of this name")
    predicted = rows[list(dict.fromkeys(ids))].assign(**found)
    if path is None:
        write_table(predicted, sys.stdout, suffix)
        return
    with written_whole(path) as partial:
        write_table(predicted, partial, suffix)
    if not quiet:
        click.echo(f"output:   {path}, {len(predicted)} predictions", err=True)


@tabular.command()
@click.argument("model")
def info(model: str) -> None:
    """What a model holds."""
    from spinimpute.tabular.model_files import load_with_description

    estimator, description = load_with_description(model, "cpu")
    click.echo(f"estimator: {type(estimator).__name__}")
    for name, value in description["metadata"].items():
        click.echo(f"{name}: {_on_one_line(str(value))}")
    if hasattr(estimator, "classes_"):
        click.echo(f"classes: {_listed([str(name) for name in estimator.classes_])}")
    known = estimator.encoder_.categories_
    names = getattr(estimator, "feature_names_in_", range(len(known)))
    for name, categories in zip(names, known, strict=True):
        kind = "numbers" if categories is None else f"{len(categories)} categories"
        click.echo(f"column: {name}: {kind}")
    for name, value in estimator.get_params().items():
        if name not in OPTION_OF:
            click.echo(f"{name}: {value}")
    click.echo(f"weights of the network: {estimator.n_parameters_}")
    click.echo(f"steps taken: {estimator.n_steps_}")
    if estimator.validation_losses_:
        click.echo(f"validation loss: {min(estimator.validation_losses_):.4f}")
    click.echo(f"written by: spinimpute {description['spinimpute']}")


def _listed(names: list[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(_on_one_line, names[:most])) + more


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _require_columns(rows: pd.DataFrame, table: str, names: Any, what: str) -> None:
    from spinimpute.errors import InputError

    present = set(rows.columns)
    absent = [name for name in names if name not in present]
    if absent:
        raise InputError(
            f"table {table}: there is no column {_listed([repr(name) for name in absent])} {what}; it has "
            f"{_listed(list(rows.columns))}"
        )


def _feature_columns(
    rows: pd.DataFrame,
    table: str,
    target: str,
    weights: str | None,
    ignore: tuple[str, ...],
    categorical: tuple[str, ...],
) -> list[str]:
    """All that are neither target, weights nor ignored."""
    from spinimpute.errors import InputError

    others = {"--target": [target], "--weights": [] if weights is None else [weights], "--ignore": [*ignore]}
    for option, names in [*others.items(), ("--categorical", [*categorical])]:
        _require_columns(rows, table, names, f"of {option}")
    for option, names in others.items():
        for other, others_names in [*others.items(), ("--categorical", [*categorical])]:
            both = set(names) & set(others_names)
            if option != other and both:
                raise InputError(f"column {min(both)!r} is given for both {option} and {other}")
    left_out = {name for names in others.values() for name in names}
    columns = [name for name in rows.columns if name not in left_out]
    if not columns:
        raise InputError(f"table {table}: no column is left to predict {target!r} from")
    return columns


def _with_target(rows: pd.DataFrame, table: str, target: str, drop: bool) -> pd.DataFrame:
    """Rows whose target is known."""
    from spinimpute.errors import InputError
    from spinimpute.tabular.table_files import missing_cells

    missing = missing_cells(rows[target])
    if missing.all():
        raise InputError(f"table {table}: the target {target!r} is missing in every row")
    if not missing.any():
        return rows
    if not drop:
        numbers = [str(number + 1) for number in missing.nonzero()[0]]
        raise InputError(
            f"table {table}: the target {target!r} is missing in row {_listed(numbers, 5)}; use "
            "--drop-missing-target to leave such rows out"
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
    from spinimpute.errors import InputError
    from spinimpute.tabular.table_files import categories_of, is_numeric, numbers_of, shown

    if task == "classification":
        label = categories_of(column).to_numpy(dtype=str)
    elif is_numeric(column):
        label = numbers_of(column, table)
    else:
        raise InputError(f"table {table}: the target {column.name!r} holds text; use --task classification")
    different = len(set(label.tolist()))
    if different == 1:
        raise InputError(
            f"table {table}: the target {column.name!r} is {shown(label.tolist()[0])} in every row"
        )
    return label


def _weight(column: pd.Series, table: str) -> np.ndarray:
    """(N,)."""
    from spinimpute.errors import InputError
    from spinimpute.tabular.table_files import numbers_of, shown

    weight = numbers_of(column, table)
    wrong = (~(weight >= 0)).nonzero()[0]
    if len(wrong):
        raise InputError(
            f"table {table}: row {column.index[wrong[0]] + 1}, column {column.name!r}: a weight must be 0 or "
            f"more, however: {shown(column.iloc[wrong[0]])}"
        )
    if not weight.any():
        raise InputError(f"table {table}: every weight in column {column.name!r} is 0")
    return weight


def _features(
    rows: pd.DataFrame, table: str, columns: list[str], categorical: Any, no_other_text: bool = False
) -> pd.DataFrame:
    """float64 columns of numbers, columns of text for categories: of those named, and of all that hold text
    unless there must be none."""
    import pandas as pd

    from spinimpute.tabular.table_files import categories_of, is_numeric, numbers_of

    found: dict[str, Any] = {}
    for name in columns:
        column = rows[name]
        if name in categorical or not (no_other_text or is_numeric(column)):
            found[name] = categories_of(column)
            different = found[name].nunique()
            if not no_other_text and different == len(column) > MANY_CATEGORIES:
                _warn(f"column {name!r} holds another text in every row, taken for {different} categories")
        else:
            found[name] = numbers_of(column, table)
            if not no_other_text and (found[name] != found[name]).all():
                _warn(f"column {name!r} is missing in every row")
    return pd.DataFrame(found)


def _estimator(kind: str, task: str, settings: tuple[str, ...], steps: int | None) -> TableEstimator:
    """With the parameters of --set and --steps. Raises InputError and ValueError."""
    from spinimpute.errors import InputError
    from spinimpute.tabular.model_files import ESTIMATORS, check_parameters

    estimator = ESTIMATORS[MODELS[kind] + ("Classifier" if task == "classification" else "Regressor")]()
    defaults = estimator.get_params()
    parameters: dict[str, Any] = {} if steps is None else {"steps": steps}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: it must be NAME=VALUE")
        if name in OPTION_OF:
            raise InputError(f"--set {setting}: use {OPTION_OF[name]}")
        if name in parameters:
            raise InputError(f"--set {setting}: {name} is given twice")
        parameters[name] = _typed(text, defaults.get(name))
    try:
        check_parameters(estimator, parameters)
    except ValueError as error:
        raise InputError(f"--set: {error}") from error
    return estimator.set_params(**parameters)


def _typed(text: str, default: Any) -> Any:
    """A value of the default's type if it can be read as one, otherwise the text itself."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return None if default is None and text.lower() == "none" else text


def _tell_unseen(estimator: TableEstimator, features: pd.DataFrame) -> None:
    """Of categories that the training rows lack."""
    for name, known in zip(features.columns, estimator.encoder_.categories_, strict=True):
        if known is not None:
            unseen = int((features[name].notna() & ~features[name].isin(set(known.tolist()))).sum())
            if unseen:
                _warn(
                    f"column {name!r}: {unseen} cells hold a category that training rows lack; they count as "
                    "missing"
                )


def _predictions(estimator: TableEstimator, features: pd.DataFrame, probabilities: bool) -> dict[str, Any]:
    """Columns of the output."""
    from spinimpute.errors import InputError

    try:
        if not hasattr(estimator, "predict_proba"):
            return {"prediction": estimator.predict(features)}
        chance = estimator.predict_proba(features)
    except (ValueError, RuntimeError, MemoryError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"the rows cannot be predicted: {said}") from error
    found: dict[str, Any] = {"prediction": estimator.classes_[chance.argmax(1)]}
    if probabilities:
        found |= {f"probability_{name}": chance[:, i] for i, name in enumerate(estimator.classes_)}
    return found


def _warn(message: str) -> None:
    click.echo(f"spinimpute: warning: {message}", err=True)
