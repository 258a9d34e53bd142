"""`spinimpute tabular fit | predict | info`: networks on tables in files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from spinimpute.runtime.errors import printable

from .messages import say, warn
from .options import (
    OnceEach,
    device_option,
    force_option,
    quiet_option,
)
from .tabular_benchmark import benchmark
from .tabular_columns import (
    TABULAR_MODELS,
    ColumnChoice,
    estimator_errors,
    features_of,
    labelled_table_options,
    listed,
    read_labelled_table,
    require_columns,
    seed_option,
    steps_option,
    table_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from spinimpute.tabular.base import TableEstimator

OPTION_OF = {
    "categorical_features": "--categorical",
    "device": "--device",
    "random_state": "--seed",
    "verbose": "--verbose",
}


def output_option(what: str) -> Any:
    """--output, with this help."""
    return click.option("--output", "--out", "-o", "out", required=True, metavar="FILE", help=what)


@click.group()
def tabular() -> None:
    """Train networks on tables, and predict a column of them."""


tabular.add_command(benchmark)


@tabular.command(cls=OnceEach)
@labelled_table_options
@output_option("Model to write (safetensors).")
@click.option("--model", "kind", type=click.Choice(list(TABULAR_MODELS)), default="spin", show_default=True)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Parameter of the estimator; repeatable."
)
@steps_option
@seed_option
@device_option
@force_option
@quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Report the losses while training.")
def fit(
    out: str,
    kind: str,
    settings: tuple[str, ...],
    steps: int | None,
    seed: int,
    device: str,
    force: bool,
    quiet: bool,
    verbose: bool,
    **columns: Any,
) -> None:
    """Train a network on all columns of a table but the target's. Text columns are categories."""
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import check_output
    from spinimpute.tabular.model_files import save_estimator

    choice = ColumnChoice(**columns)
    path = check_output(out, force, [choice.table])
    where = choose_device(device)
    table = read_labelled_table(choice, quiet)
    with estimator_errors("training cannot go on"):
        estimator = _estimator(kind, table.task, settings, steps)
        estimator.set_params(device=where, random_state=seed, verbose=verbose and not quiet)
        estimator.fit(table.features, table.label, table.weight)
    n_rows = len(table.label) if table.weight is None else int((table.weight > 0).sum())
    n_columns = table.features.shape[1]
    described = {"target": choice.target, "weights": choice.weights, "rows": n_rows, "seed": seed}
    save_estimator(estimator, path, described)
    if not quiet:
        numbers = sum(dtype.kind == "f" for dtype in table.features.dtypes)
        say(f"table:    {n_rows} rows, {numbers} columns of numbers, {n_columns - numbers} of categories")
        say(
            f"model:    {path}, {type(estimator).__name__}, "
            f"{estimator.n_parameters_} weights, {estimator.n_steps_} steps, seed {seed}"
        )


@tabular.command(cls=OnceEach)
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
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.errors import InputError
    from spinimpute.runtime.output_files import check_output, written_whole
    from spinimpute.tabular.model_files import load_estimator
    from spinimpute.tabular.table_files import output_suffix, read_table, write_table

    suffix = ".csv" if out == "-" else output_suffix(out)
    path = None if out == "-" else check_output(out, force, [model, table])
    estimator = load_estimator(model, choose_device(device))
    if probabilities and not hasattr(estimator, "predict_proba"):
        raise InputError("content", f"--probabilities: {model} predicts numbers, which have none")
    if not hasattr(estimator, "feature_names_in_"):
        raise InputError("content", f"tabular model {model}: it was fitted without names of columns")
    rows = read_table(table)
    columns = list(estimator.feature_names_in_)
    require_columns(rows, table, columns, "that the model reads")
    require_columns(rows, table, ids, "of --id")
    surplus = [name for name in rows.columns if name not in {*columns, *ids}]
    if surplus and not quiet:
        say(f"ignored:  {listed(surplus)}")
    categorical = [columns[number] for number in estimator.encoder_.schema_.categorical]
    features = features_of(rows, table, columns, categorical, no_other_text=True)
    _tell_unseen(estimator, features)
    found = _predictions(estimator, features, probabilities)
    clashes = found.keys() & set(ids)
    if clashes:
        raise InputError("content", f"--id {min(clashes)}: the predictions have a column of this name")
    predicted = rows[list(dict.fromkeys(ids))].assign(**found)
    if path is None:
        write_table(predicted, sys.stdout, suffix)
        return
    with written_whole(path) as partial:
        write_table(predicted, partial, suffix)
    if not quiet:
        say(f"output:   {path}, {len(predicted)} predictions")


@tabular.command(cls=OnceEach)
@click.argument("model")
def info(model: str) -> None:
    """What a model holds."""
    from spinimpute.tabular.model_files import load_with_description

    estimator, description = load_with_description(model, "cpu")
    click.echo(f"estimator: {type(estimator).__name__}")
    for name, value in description["metadata"].items():
        click.echo(f"{printable(str(name))}: {printable(str(value))}")
    if hasattr(estimator, "classes_"):
        click.echo(f"classes: {listed([str(name) for name in estimator.classes_])}")
    known = estimator.encoder_.categories_
    names = getattr(estimator, "feature_names_in_", range(len(known)))
    for name, categories in zip(names, known, strict=True):
        kind = "numbers" if categories is None else f"{len(categories)} categories"
        click.echo(f"column: {printable(str(name))}: {kind}")
    for name, value in estimator.get_params().items():
        if name not in OPTION_OF:
            click.echo(f"{name}: {printable(str(value))}")
    click.echo(f"weights of the network: {estimator.n_parameters_}")
    click.echo(f"steps taken: {estimator.n_steps_}")
    if estimator.validation_losses_:
        click.echo(f"validation loss: {min(estimator.validation_losses_):.4f}")
    click.echo(f"written by: spinimpute {printable(str(description['spinimpute']))}")


def _estimator(kind: str, task: str, settings: tuple[str, ...], steps: int | None) -> TableEstimator:
    """An estimator with the parameters of --set and --steps; raises InputError and ValueError."""
    from spinimpute.runtime.errors import InputError
    from spinimpute.tabular.model_files import ESTIMATORS, check_parameters

    estimator = ESTIMATORS[
        TABULAR_MODELS[kind] + ("Classifier" if task == "classification" else "Regressor")
    ]()
    defaults = estimator.get_params()
    parameters: dict[str, Any] = {} if steps is None else {"steps": steps}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError("content", f"--set {setting}: it must be NAME=VALUE")
        if name in OPTION_OF:
            raise InputError("content", f"--set {setting}: use {OPTION_OF[name]}")
        if name in parameters:
            raise InputError("content", f"--set {setting}: {name} is given twice")
        parameters[name] = _typed(text, defaults.get(name))
    try:
        check_parameters(estimator, parameters)
    except ValueError as error:
        raise InputError("content", f"--set: {error}") from error
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
    """Warn of categories that the training rows lack."""
    for name, known in zip(features.columns, estimator.encoder_.categories_, strict=True):
        if known is not None:
            unseen = int((features[name].notna() & ~features[name].isin(set(known.tolist()))).sum())
            if unseen:
                warn(
                    f"column {name!r}: {unseen} cells hold a category that training rows lack; they count as "
                    "missing"
                )


def _predictions(estimator: TableEstimator, features: pd.DataFrame, probabilities: bool) -> dict[str, Any]:
    """Columns of the output."""
    with estimator_errors("the rows cannot be predicted"):
        if not hasattr(estimator, "predict_proba"):
            return {"prediction": estimator.predict(features)}
        probability = estimator.predict_proba(features)
    found: dict[str, Any] = {"prediction": estimator.classes_[probability.argmax(1)]}
    if probabilities:
        found |= {f"probability_{name}": probability[:, i] for i, name in enumerate(estimator.classes_)}
    return found
