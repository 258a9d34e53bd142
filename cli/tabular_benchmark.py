"""`spinimpute tabular benchmark`: networks beside scikit-learn's methods, by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from .messages import say
from .options import (
    OnceEach,
    device_option,
    force_option,
    quiet_option,
)
from .tabular_columns import (
    TABULAR_MODELS,
    ColumnChoice,
    estimator_errors,
    labelled_table_options,
    read_labelled_table,
    seed_option,
    steps_option,
)

if TYPE_CHECKING:
    import pandas as pd

TITLES = {"rmse": "RMSE", "r2": "R²", "accuracy": "accuracy", "log_loss": "log loss"}


@click.command(cls=OnceEach)
@labelled_table_options
@click.option(
    "--models",
    default="spin,mlp",
    show_default=True,
    metavar="A,B,...",
    help=f"Of {', '.join(TABULAR_MODELS)}.",
)
@click.option("--folds", type=click.IntRange(min=2), default=5, show_default=True)
@steps_option
@seed_option
@click.option(
    "--output", "--out", "-o", "out", metavar="FILE", help="Scores of every fold: .tsv, .csv, .parquet."
)
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
    """Compare networks with boosted trees, nearest neighbours and the mean (or the most frequent class).

    All have their default parameters and the same folds; the best one comes first. Scores are means of the
    folds ± standard deviations, seconds and weights of the network medians.
    """
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import check_output, written_whole
    from spinimpute.tabular.comparison import METRICS, compare, summary
    from spinimpute.tabular.table_files import output_suffix, write_table

    choice = ColumnChoice(**columns)
    kinds = _kinds(models)
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

    with estimator_errors("the comparison cannot go on"):
        scores = compare(
            table.features, table.label, table.task, kinds, folds, seed,
            weight=table.weight, parameters=parameters, report=report,
        )  # fmt: skip
    if path is not None and suffix is not None:
        with written_whole(path) as partial:
            write_table(scores, partial, suffix)
        if not quiet:
            say(f"output:   {path}, {len(scores)} scores")
    click.echo(_shown(summary(scores), METRICS[table.task]))


def _kinds(models: str) -> list[str]:
    from spinimpute.runtime.errors import InputError

    names = models.split(",")
    for name in names:
        if name not in TABULAR_MODELS:
            raise InputError(
                "content",
                f"--models {models}: there is no model {name!r}; choose of {', '.join(TABULAR_MODELS)}",
            )
    return [TABULAR_MODELS[name] for name in names]


def _shown(found: pd.DataFrame, metrics: tuple[str, ...]) -> str:
    """A line per model, columns aligned."""
    import pandas as pd

    lines = pd.DataFrame({"model": found["model"]})
    for metric in metrics:
        pairs = zip(found[metric], found[f"{metric}_sd"], strict=True)
        lines[TITLES[metric]] = [f"{mean:.4g} ± {sd:.2g}" for mean, sd in pairs]
    for name, title in (("fit_seconds", "fit [s]"), ("predict_seconds", "predict [s]")):
        lines[title] = [f"{seconds:.2f}" for seconds in found[name]]
    lines["weights"] = ["-" if pd.isna(count) else f"{count:.0f}" for count in found["weights"]]
    return lines.to_string(index=False)
