"""`spinimpute tabular fit | predict | info | benchmark`: train neural networks on tables in files.

The commands read a table, call estimators of `spinimpute.tabular` and write models, predictions or scores.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from spinimpute.runtime.errors import InputError, printable

from .commands import Command, Count, Decorator, option
from .messages import say, warn
from .options import device_option, force_option, progress_bar, quiet_option
from .tabular_columns import (
    TABULAR_MODELS,
    ColumnChoice,
    convert_estimator_errors,
    join_names,
    labelled_table_options,
    read_labelled_table,
    require_columns,
    seed_option,
    select_features,
    steps_option,
    table_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from spinimpute.tabular.base import TableEstimator

# parameters of estimators that have an option of their own, so that --set refuses them
DEDICATED_OPTIONS = {
    "categorical_features": "--categorical",
    "device": "--device",
    "random_state": "--seed",
    "verbose": "--verbose",
}


# metric -> column title in the comparison
TITLES = {"rmse": "RMSE", "r2": "R²", "accuracy": "accuracy", "log_loss": "log loss"}


def output_option(text: str, *, required: bool = True) -> Decorator:
    """Return the option --output with the given help text."""
    return option(
        "--output", "--out", "-o", "out", required=required, metavar="FILE", help=text, group="Output"
    )


@click.group()
def tabular() -> None:
    """Train networks on tables, and predict a column of them."""


@tabular.command(cls=Command)
@labelled_table_options
@output_option("Model (.safetensors).")
@option(
    "--model",
    "kind",
    type=click.Choice(list(TABULAR_MODELS)),
    default="spin",
    help="Architecture.",
    group="Training",
)
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the estimator. Repeat for several.",
    group="Training",
)
@steps_option
@seed_option
@device_option
@force_option
@quiet_option
@option("--verbose", "-v", is_flag=True, help="Print the losses during training.", group="Output")
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
    """Train a network to predict one column of a table from the others. Text columns are categories."""
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import check_output
    from spinimpute.tabular.model_files import save_estimator

    choice = ColumnChoice(**columns)
    path = check_output(out, force, [choice.table])
    where = choose_device(device)
    table = read_labelled_table(choice, quiet)
    with convert_estimator_errors("training failed"):
        estimator = _estimator(kind, table.task, settings, steps)
        estimator.set_params(device=where, random_state=seed)
        with progress_bar("training", quiet or verbose) as progress:
            estimator.set_params(verbose=True if verbose and not quiet else progress)
            estimator.fit(table.features, table.label, table.weight)
        estimator.set_params(verbose=False)  # the model file has the parameters
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


@tabular.command(cls=Command)
@option(
    "--model",
    required=True,
    metavar="FILE",
    help="Model that 'spinimpute tabular fit' has written.",
    group="Input",
)
@table_option
@output_option("Predictions (.csv, .tsv, also .gz, or .parquet); - for CSV on standard output.")
@option("--probabilities", is_flag=True, help="Also write the probability of each class.", group="Output")
@option(
    "--id",
    "ids",
    multiple=True,
    metavar="COLUMN",
    help="Column to copy to the output. Repeat for several.",
    group="Output",
)
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
    """Predict the target of a table's rows. Columns are found by their names; their order does not matter."""
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import atomic_write, check_output
    from spinimpute.tabular.model_files import load_estimator
    from spinimpute.tabular.table_files import output_suffix, read_table, write_table

    suffix = ".csv" if out == "-" else output_suffix(out)
    path = None if out == "-" else check_output(out, force, [model, table])
    estimator = load_estimator(model, choose_device(device))
    if probabilities and not hasattr(estimator, "predict_proba"):
        raise InputError("mismatch", f"--probabilities: {model} predicts numbers, not classes")
    if not hasattr(estimator, "feature_names_in_"):
        raise InputError("content", f"tabular model {model}: it was fitted without names of columns")
    rows = read_table(table)
    columns = list(estimator.feature_names_in_)
    require_columns(rows, table, columns, "that the model reads")
    require_columns(rows, table, ids, "of --id")
    surplus = [name for name in rows.columns if name not in {*columns, *ids}]
    if surplus and not quiet:
        say(f"ignored:  {join_names(surplus)}")
    categorical = [columns[number] for number in estimator.encoder_.schema_.categorical]
    features = select_features(rows, table, columns, categorical, no_other_text=True)
    _warn_of_new_categories(estimator, features)
    found = _predictions(estimator, features, probabilities)
    clashes = found.keys() & set(ids)
    if clashes:
        raise InputError("argument", f"--id {min(clashes)}: the predictions have a column of this name")
    predicted = rows[list(dict.fromkeys(ids))].assign(**found)
    if path is None:
        write_table(predicted, sys.stdout, suffix)
        return
    with atomic_write(path) as partial:
        write_table(predicted, partial, suffix)
    if not quiet:
        say(f"output:   {path}, {len(predicted)} predictions")


@tabular.command(cls=Command)
@click.argument("model")
def info(model: str) -> None:
    """Print what a model contains."""
    from spinimpute.tabular.model_files import load_with_description

    estimator, description = load_with_description(model, "cpu")
    click.echo(f"estimator: {type(estimator).__name__}")
    for name, value in description["metadata"].items():
        click.echo(f"{printable(str(name))}: {printable(str(value))}")
    if hasattr(estimator, "classes_"):
        click.echo(f"classes: {join_names([str(name) for name in estimator.classes_])}")
    known = estimator.encoder_.categories_
    names = getattr(estimator, "feature_names_in_", range(len(known)))
    for name, categories in zip(names, known, strict=True):
        kind = "numbers" if categories is None else f"{len(categories)} categories"
        click.echo(f"column: {printable(str(name))}: {kind}")
    for name, value in estimator.get_params().items():
        if name not in DEDICATED_OPTIONS:
            click.echo(f"{name}: {printable(str(value))}")
    click.echo(f"weights of the network: {estimator.n_parameters_}")
    click.echo(f"steps taken: {estimator.n_steps_}")
    if estimator.validation_losses_:
        click.echo(f"validation loss: {min(estimator.validation_losses_):.4f}")
    click.echo(f"written by: spinimpute {printable(str(description['spinimpute']))}")


def _estimator(kind: str, task: str, settings: tuple[str, ...], steps: int | None) -> TableEstimator:
    """Return an estimator with the parameters of --set and --steps. Raises InputError or ValueError."""
    from spinimpute.tabular.model_files import ESTIMATORS, check_parameters

    estimator = ESTIMATORS[
        TABULAR_MODELS[kind] + ("Classifier" if task == "classification" else "Regressor")
    ]()
    defaults = estimator.get_params()
    parameters: dict[str, Any] = {} if steps is None else {"steps": steps}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError("argument", f"--set {setting}: it must be NAME=VALUE")
        if name in DEDICATED_OPTIONS:
            raise InputError("argument", f"--set {setting}: use {DEDICATED_OPTIONS[name]}")
        if name in parameters:
            raise InputError("argument", f"--set {setting}: {name} is given twice")
        parameters[name] = _parse_value(text, defaults.get(name))
    try:
        check_parameters(estimator, parameters)
    except ValueError as error:
        raise InputError("argument", f"--set: {error}") from error
    return estimator.set_params(**parameters)


def _parse_value(text: str, default: Any) -> Any:
    """Convert a text to the type of the parameter's default. Return the text if this is impossible."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return None if default is None and text.lower() == "none" else text


def _warn_of_new_categories(estimator: TableEstimator, features: pd.DataFrame) -> None:
    """Warn about categories that did not occur in the training rows."""
    for name, known in zip(features.columns, estimator.encoder_.categories_, strict=True):
        if known is not None:
            unseen = int((features[name].notna() & ~features[name].isin(set(known.tolist()))).sum())
            if unseen:
                warn(
                    f"column {name!r}: {unseen} cells hold a category that training rows lack; they count as "
                    "missing"
                )


def _predictions(estimator: TableEstimator, features: pd.DataFrame, probabilities: bool) -> dict[str, Any]:
    """Return the columns of predictions and, if requested, of class probabilities."""
    with convert_estimator_errors("the rows cannot be predicted"):
        if not hasattr(estimator, "predict_proba"):
            return {"prediction": estimator.predict(features)}
        probability = estimator.predict_proba(features)
    found: dict[str, Any] = {"prediction": estimator.classes_[probability.argmax(1)]}
    if probabilities:
        found |= {f"probability_{name}": probability[:, i] for i, name in enumerate(estimator.classes_)}
    return found


@tabular.command(cls=Command)
@labelled_table_options
@option(
    "--models",
    default="spin,mlp",
    metavar="A,B,...",
    help=f"Networks to compare, from {', '.join(TABULAR_MODELS)}.",
    group="Training",
)
@option("--folds", type=Count(2), default=5, help="Number of cross-validation folds.", group="Training")
@steps_option
@seed_option
@output_option("Scores of every fold (.tsv, .csv or .parquet).", required=False)
@device_option
@force_option
@quiet_option
def benchmark(
    models: str,
    folds: int,
    steps: int | None,
    seed: int,
    out: str | None,
    device: str,
    force: bool,
    quiet: bool,
    **columns: Any,
) -> None:
    """Compare networks with boosted trees, nearest neighbours and a constant prediction, by cross-validation.

    The constant is the mean or the most frequent class. All methods use their default parameters and the same
    folds. The table lists the best method first. Scores are means ± standard deviations over folds; seconds
    and numbers of weights are medians.
    """
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import atomic_write, check_output
    from spinimpute.tabular.comparison import METRICS, compare, summary
    from spinimpute.tabular.table_files import output_suffix, write_table

    choice = ColumnChoice(**columns)
    kinds = _parse_models(models)
    suffix = None if out is None else output_suffix(out)
    path = None if out is None else check_output(out, force, [choice.table])
    parameters: dict[str, Any] = {"device": choose_device(device)}
    if steps is not None:
        parameters["steps"] = steps
    table = read_labelled_table(choice, quiet)
    first = METRICS[table.task][0]

    def report(score: Mapping[str, Any]) -> None:
        if not quiet:
            seconds = score["fit_seconds"] + score["predict_seconds"]
            say(
                f"{score['model']}, fold {score['fold']} of {folds}: {TITLES[first]} {score[first]:.4g}, "
                f"{seconds:.1f} s"
            )

    with convert_estimator_errors("the comparison failed"):
        scores = compare(
            table.features, table.label, table.task, kinds, folds, seed,
            weight=table.weight, parameters=parameters, report=report,
        )  # fmt: skip
    if path is not None and suffix is not None:
        with atomic_write(path) as partial:
            write_table(scores, partial, suffix)
        if not quiet:
            say(f"output:   {path}, {len(scores)} scores")
    click.echo(_format_scores(summary(scores), METRICS[table.task]))


def _parse_models(models: str) -> list[str]:
    """Return the estimators' names for --models. Raises InputError for an unknown model."""
    names = models.split(",")
    for name in names:
        if name not in TABULAR_MODELS:
            raise InputError(
                "argument",
                f"--models {models}: there is no model {name!r}. Choose from {', '.join(TABULAR_MODELS)}",
            )
    return [TABULAR_MODELS[name] for name in names]


def _format_scores(found: pd.DataFrame, metrics: tuple[str, ...]) -> str:
    """Return the scores as text, a line for each model, with aligned columns."""
    import pandas as pd

    lines = pd.DataFrame({"model": found["model"]})
    for metric in metrics:
        pairs = zip(found[metric], found[f"{metric}_sd"], strict=True)
        lines[TITLES[metric]] = [f"{mean:.4g} ± {sd:.2g}" for mean, sd in pairs]
    for name, title in (("fit_seconds", "fit [s]"), ("predict_seconds", "predict [s]")):
        lines[title] = [f"{seconds:.2f}" for seconds in found[name]]
    lines["weights"] = ["-" if pd.isna(count) else f"{count:.0f}" for count in found["weights"]]
    return lines.to_string(index=False)
