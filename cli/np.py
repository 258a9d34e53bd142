"""`spinimpute np train | evaluate | plot`: neural processes on tasks of Gaussian processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from spinimpute.runtime.errors import printable

from .messages import say
from .options import (
    OnceEach,
    device_option,
    force_option,
    out_option,
    progress_bar,
    quiet_option,
)

MOST_NUMBERS = 2**27  # of covariances at once: a gibibyte
KINDS = ("CANP", "ANP", "BANP", "CIPNP", "IPNP", "LBANP", "RCANP", "RCIPNP", "RIPNP")


@click.group()
def np() -> None:
    """Train and judge neural processes on tasks drawn from Gaussian processes."""


@np.command(cls=OnceEach)
@click.option("--model", "kind", type=click.Choice(KINDS), help="Default: CIPNP, or that of --init.")
@click.option(
    "--kernel", type=click.Choice(["rbf", "matern52", "periodic"]), default="rbf", show_default=True
)
@click.option(
    "--context", nargs=2, type=int, default=(64, 128), show_default=True, help="Points, from and to."
)
@click.option("--steps", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--learning-rate", type=float, default=5e-4, show_default=True)
@click.option(
    "--inducing-points",
    type=click.IntRange(min=1),
    help="Default: half the smallest context, or those of --init.",
)
@click.option("--floor", type=float, help="Of the standard deviation. Default: 0.1, or that of --init.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=1,
    show_default=True,
    help="Of weights and tasks; with --init give another than that model's, or its tasks come again.",
)
@click.option(
    "--init",
    type=click.Path(),
    help="Model whose weights to begin with, for instance one of smaller contexts.",
)
@click.option("--resume", is_flag=True, help="Go on from OUT.state.")
@click.option("--bf16", is_flag=True, help="Autocast to bfloat16.")
@out_option("Model to write (safetensors).")
@device_option
@force_option
@quiet_option
def train(
    kind: str | None,
    kernel: str,
    context: tuple[int, int],
    steps: int,
    learning_rate: float,
    inducing_points: int | None,
    floor: float | None,
    seed: int,
    init: str | None,
    resume: bool,
    bf16: bool,
    out: str,
    device: str,
    force: bool,
    quiet: bool,
) -> None:
    """Train a model on tasks that are drawn as it goes, with the settings of the SPIN paper by default."""
    from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
    from spinimpute.neural_processes.models import ModelSettings
    from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer, load_model
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.errors import InputError
    from spinimpute.runtime.output_files import check_output

    path = check_output(out, force or resume, [init])
    state = path.with_name(f"{path.name}.state")
    if not resume:
        check_output(state, force, [init], instead=", or --resume to go on from it")
    where = choose_device(device)
    start = None if init is None else load_model(init, where)[0]
    try:
        tasks = ProcessSettings(kernel=kernel, context=context)
        model = ModelSettings("CIPNP", inducing_points=max(1, context[0] // 2))
        asked: dict[str, Any] = {"kind": kind, "inducing_points": inducing_points, "floor": floor}
        model = replace(
            model if start is None else start.settings, **{k: v for k, v in asked.items() if v is not None}
        )
        settings = TrainingSettings(steps, learning_rate, seed=seed, bfloat16=bf16)
    except ValueError as error:
        raise InputError("content", str(error)) from error
    with _as_input_errors("training cannot begin" if init is None else f"--init {init}"):
        trainer = gaussian_trainer(model, settings, tasks, where, start)
    if resume:
        trainer.restore_state(state)
    try:
        with _as_input_errors("training cannot go on"), progress_bar("training", quiet) as progress:

            def report(step: int, loss: float) -> None:
                progress(step / steps)
                if not quiet:
                    say(f"step {step}: loss {loss:.4f}")

            trainer.train(
                report=report, checkpoint=lambda: trainer.save_state(state), every=max(1, steps // 20)
            )
    except InputError:
        if not resume:
            state.unlink(missing_ok=True)
        raise
    trainer.save(path)
    state.unlink(missing_ok=True)
    if not quiet:
        say(f"model:    {path}, {model.kind}, {trainer.step} steps, seed {seed}")


@contextmanager
def _as_input_errors(what: str) -> Iterator[None]:
    """Turn numbers that overflow, and too little memory, into InputError."""
    from spinimpute.runtime.errors import InputError

    try:
        yield
    except InputError as error:
        raise InputError("content", f"{what}: {error}") from error
    except (ValueError, RuntimeError, MemoryError) as error:
        said = next(iter(str(error).splitlines()), "there is not enough memory")
        raise InputError("content", f"{what}: {said}") from error


def _loaded(path: str, device: str, context: tuple[int, int] | None = None) -> tuple[Any, Any]:
    """Model and the settings of the tasks that it was trained on, with other numbers of points if wanted."""
    from spinimpute.neural_processes.gaussian_tasks import parse_settings
    from spinimpute.neural_processes.training import check_sizes, load_model
    from spinimpute.runtime.errors import InputError

    model, metadata = load_model(path, device)
    described = metadata["tasks"].get("gaussian")
    if described is None:
        raise InputError("content", f"{path}: it was not trained on tasks of Gaussian processes")
    try:
        tasks = parse_settings(described if context is None else described | {"context": context})
        check_sizes(model.settings, tasks)
    except (InputError, TypeError, ValueError) as error:
        said = printable(str(error))[:200]
        raise InputError("content", f"{path}: what it says of its tasks makes no sense ({said})") from error
    if tasks.numbers > MOST_NUMBERS:
        raise InputError(
            "content",
            f"{path}: a batch of its tasks has covariances of {tasks.numbers:,} numbers; evaluate it on "
            "fewer points with --context",
        )
    return model, tasks


@np.command(cls=OnceEach)
@click.argument("models", nargs=-1, required=True)
@click.option("--batches", type=click.IntRange(min=2), default=100, show_default=True)
@click.option(
    "--samples", type=click.IntRange(min=1), default=50, show_default=True, help="Of latent models."
)
@click.option(
    "--context", nargs=2, type=int, help="Points of the held-out tasks, from and to; default: as in training."
)
@device_option
def evaluate(
    models: tuple[str, ...], batches: int, samples: int, context: tuple[int, int] | None, device: str
) -> None:
    """Log-likelihood on held-out tasks, its gap to the oracle, and calibration at 4, 8 and 16 points.

    The gap is to the oracle with the model's floor of the standard deviation: no model can do better.
    """
    from spinimpute.neural_processes.evaluation import calibration, score
    from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.errors import InputError

    if context is not None:
        try:
            ProcessSettings(context=context)
        except ValueError as error:
            raise InputError("content", f"--context {context[0]} {context[1]}: {error}") from error
    where = choose_device(device)
    head = "model log_likelihood se oracle floored_oracle gap calibration_4 calibration_8 calibration_16"
    for number, path in enumerate(models):
        model, tasks = _loaded(path, where, context)
        with _as_input_errors(f"{path} cannot be evaluated"):
            found = score(model, tasks, batches, samples, where)
            errors = [calibration(model, tasks, n, batches, samples, where).error for n in (4, 8, 16)]
        if not number:
            click.echo(head.replace(" ", "\t"))
        # the difference of the numbers as they are printed
        gap = round(found.floored, 4) - round(found.log_likelihood, 4)
        numbers = [found.log_likelihood, found.se, found.oracle, found.floored, gap, *errors]
        click.echo("\t".join([Path(path).name, *(f"{x:.4f}" for x in numbers)]))


@np.command(cls=OnceEach)
@click.argument("models", nargs=-1, required=True)
@out_option("Picture to write (PNG).")
@click.option("--what", type=click.Choice(["predictions", "calibration"]), default="predictions")
@click.option(
    "--batches", type=click.IntRange(min=1), default=100, show_default=True, help="For calibration."
)
@force_option
def plot(models: tuple[str, ...], out: str, what: str, batches: int, force: bool) -> None:
    """Draw predictions beside the oracle's, or calibration curves."""
    from spinimpute.neural_processes.evaluation import calibration
    from spinimpute.neural_processes.plots import plot_calibration, plot_predictions
    from spinimpute.runtime.errors import InputError
    from spinimpute.runtime.output_files import check_output, written_whole

    if not out.endswith(".png"):
        raise InputError("content", f"{out}: the picture is a PNG; give a name that ends with .png")
    path = check_output(out, force, models)
    stems = [Path(name).stem for name in models]
    names = stems if len(set(stems)) == len(stems) else models
    loaded = {name: _loaded(path_of, "cpu") for name, path_of in zip(names, models, strict=True)}
    with _as_input_errors("there is no picture"), written_whole(path) as partial:
        if what == "predictions":
            tasks = next(iter(loaded.values()))[1]
            plot_predictions({name: model for name, (model, _) in loaded.items()}, tasks, partial)
        else:
            curves = {
                name: [calibration(model, tasks, n, batches) for n in (4, 8, 16)]
                for name, (model, tasks) in loaded.items()
            }
            plot_calibration(curves, partial)
    say(str(path))
