"""`spinimpute np train | evaluate | plot`: neural processes that learn to regress on Gaussian-process tasks.

In a task, a function is drawn from a Gaussian process. The model sees the function at context points and
predicts it at other points. The oracle is the exact prediction of the Gaussian process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from spinimpute.runtime.errors import InputError, printable

from .commands import Command, Count, option
from .messages import first_line, say
from .options import device_option, force_option, out_option, progress_bar, quiet_option

MAX_COVARIANCE_NUMBERS = 2**27  # elements of the covariance matrices of a batch: one gibibyte of memory
KINDS = (
    "CANP", "ANP", "BANP", "CIPNP", "IPNP",
    "CANP+", "ANP+", "BANP+", "CIPNP+", "IPNP+", "LBANP+", "RCANP", "RCIPNP", "RIPNP",
)  # fmt: skip


@click.group()
def np() -> None:
    """Train and evaluate neural processes on tasks drawn from Gaussian processes."""


@np.command(cls=Command)
@option(
    "--model",
    "kind",
    type=click.Choice(KINDS),
    help="Model. The first five are the SPIN paper's, the others are improved. Default: the model of --init, "
    "or CIPNP.",
    group="Training",
)
@option(
    "--architecture",
    type=click.Choice(["paper", "released"]),
    help="Layers of the SPIN paper's models: as in the paper or in its released code. Default: the choice of "
    "--init, or paper.",
    group="Training",
)
@option(
    "--objective",
    type=click.Choice(["paper", "released"]),
    help="Loss of the SPIN paper's models: as in the paper (targets; evidence lower bound), or as in its "
    "released code (also context points; importance-weighted bound). Default: that of --init, or paper.",
    group="Training",
)
@option(
    "--kernel",
    type=click.Choice(["rbf", "matern52", "periodic"]),
    default="rbf",
    help="Kernel of the Gaussian processes.",
    group="Training",
)
@option(
    "--context",
    nargs=2,
    type=int,
    default=(64, 128),
    help="Minimum and maximum number of context points.",
    group="Training",
)
@option("--steps", type=Count(), default=100_000, help="Number of steps.", group="Training")
@option("--learning-rate", type=float, default=5e-4, help="Learning rate.", group="Training")
@option(
    "--inducing-points",
    type=Count(),
    help="Number of inducing points. Default: the number of --init, or half of the minimum context.",
    group="Training",
)
@option(
    "--floor",
    type=float,
    help="Minimum standard deviation of a prediction. Default: the value of --init, or 0.1.",
    group="Training",
)
@option(
    "--seed",
    type=Count(0),
    default=1,
    help="Random seed of weights and tasks. With --init, choose another seed than for the first model; "
    "otherwise the tasks are repeated.",
    group="Training",
)
@option(
    "--init",
    type=click.Path(),
    help="Model to start from, such as one trained with smaller contexts.",
    group="Input",
)
@option("--resume", is_flag=True, help="Continue from OUT.state.", group="Training")
@option("--bf16", is_flag=True, help="Compute in bfloat16 (autocast).", group="Performance")
@out_option("Model (.safetensors).")
@device_option
@force_option
@quiet_option
def train(
    kind: str | None,
    architecture: str | None,
    objective: str | None,
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
    """Train a model on tasks that are drawn during training. The defaults are the SPIN paper's settings."""
    from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
    from spinimpute.neural_processes.settings import ModelSettings
    from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer, load_model
    from spinimpute.runtime.devices import choose_device
    from spinimpute.runtime.output_files import check_output

    path = check_output(out, force or resume, [init])
    state = path.with_name(f"{path.name}.state")
    if not resume:
        check_output(state, force, [init], alternative=", or --resume to continue from it")
    where = choose_device(device)
    start = None if init is None else load_model(init, where)[0]
    try:
        tasks = ProcessSettings(kernel=kernel, context=context)
        model = ModelSettings("CIPNP", inducing_points=max(1, context[0] // 2))
        overrides: dict[str, Any] = {
            "kind": kind,
            "architecture": architecture,
            "objective": objective,
            "inducing_points": inducing_points,
            "floor": floor,
        }
        model = replace(
            model if start is None else start.settings,
            **{k: v for k, v in overrides.items() if v is not None},
        )
        settings = TrainingSettings(steps, learning_rate, seed=seed, bfloat16=bf16)
    except ValueError as error:
        raise InputError("argument", str(error)) from error
    with _convert_errors("training cannot start" if init is None else f"--init {init}"):
        trainer = gaussian_trainer(model, settings, tasks, where, start)
    if resume:
        trainer.restore_state(state)
    try:
        with _convert_errors("training failed"), progress_bar("training", quiet) as progress:

            def report(done: Any) -> None:
                progress(done.step / steps)
                if not quiet:
                    say(f"step {done.step}: loss {done.loss:.4f}")

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
def _convert_errors(what: str) -> Iterator[None]:
    """Convert errors in the `with` block, such as overflow or too little memory, to InputError.

    `what` is the beginning of the message.
    """
    try:
        yield
    except InputError as error:
        raise InputError(error.code, f"{what}: {error}") from error
    except MemoryError as error:
        raise InputError("memory", f"{what}: there is not enough memory") from error
    except (ValueError, RuntimeError) as error:
        raise InputError("argument", f"{what}: {first_line(error)}") from error


def _load(path: str, device: str, context: tuple[int, int] | None = None) -> tuple[Any, Any]:
    """Return a model and the settings of the tasks that it was trained on.

    `context` replaces the range of the number of context points. Raises InputError if the file is damaged or
    the tasks need too much memory.
    """
    from spinimpute.neural_processes.gaussian_tasks import parse_settings
    from spinimpute.neural_processes.training import check_sizes, load_model

    model, metadata = load_model(path, device)
    described = metadata["tasks"].get("gaussian")
    if described is None:
        raise InputError("content", f"{path}: it was not trained on tasks of Gaussian processes")
    try:
        tasks = parse_settings(described if context is None else described | {"context": context})
        check_sizes(model.settings, tasks)
    except (InputError, TypeError, ValueError) as error:
        reason = printable(str(error))[:200]
        raise InputError("damaged", f"{path}: the description of its tasks is invalid ({reason})") from error
    if tasks.max_covariances > MAX_COVARIANCE_NUMBERS:
        raise InputError(
            "memory",
            f"{path}: a batch of its tasks has up to {tasks.max_covariances:,} covariances; evaluate it on "
            "fewer points with --context",
        )
    return model, tasks


@np.command(cls=Command)
@click.argument("models", nargs=-1, required=True)
@option("--batches", type=Count(2), default=100, help="Number of batches.")
@option("--samples", type=Count(), default=50, help="Number of samples of latent variables.")
@option(
    "--context",
    nargs=2,
    type=int,
    help="Minimum and maximum number of context points. Default: as in training.",
)
@device_option
def evaluate(
    models: tuple[str, ...], batches: int, samples: int, context: tuple[int, int] | None, device: str
) -> None:
    """Print the log-likelihood on held-out tasks, its gap to the oracle, and the calibration error.

    The oracle is the exact posterior of the Gaussian process. The gap is to the floored oracle, which has at
    least the model's minimum standard deviation.
    """
    from spinimpute.neural_processes.evaluation import calibration, score
    from spinimpute.neural_processes.gaussian_tasks import ProcessSettings
    from spinimpute.runtime.devices import choose_device

    if context is not None:
        try:
            ProcessSettings(context=context)
        except ValueError as error:
            raise InputError("argument", f"--context {context[0]} {context[1]}: {error}") from error
    where = choose_device(device)
    head = "model log_likelihood se oracle floored_oracle gap calibration_4 calibration_8 calibration_16"
    for index, path in enumerate(models):
        model, tasks = _load(path, where, context)
        with _convert_errors(f"{path} cannot be evaluated"):
            scores = score(model, tasks, batches, samples, where)
            errors = [calibration(model, tasks, n, batches, samples, where).error for n in (4, 8, 16)]
        if index == 0:
            click.echo(head.replace(" ", "\t"))
        # gap of the rounded numbers, so that the printed columns add up
        gap = round(scores.floored, 4) - round(scores.log_likelihood, 4)
        numbers = [scores.log_likelihood, scores.se, scores.oracle, scores.floored, gap, *errors]
        click.echo("\t".join([Path(path).name, *(f"{x:.4f}" for x in numbers)]))


@np.command(cls=Command)
@click.argument("models", nargs=-1, required=True)
@out_option("Figure (PNG).")
@option(
    "--what",
    type=click.Choice(["predictions", "calibration"]),
    default="predictions",
    help="Content of the figure.",
)
@option("--batches", type=Count(), default=100, help="Number of batches for the calibration.")
@force_option
def plot(models: tuple[str, ...], out: str, what: str, batches: int, force: bool) -> None:
    """Plot the predictions of models and of the oracle, or calibration curves."""
    from spinimpute.neural_processes.evaluation import calibration
    from spinimpute.neural_processes.plots import plot_calibration, plot_predictions
    from spinimpute.runtime.output_files import atomic_write, check_output

    if not out.endswith(".png"):
        raise InputError("argument", f"{out}: the figure is a PNG. Give a name that ends with .png")
    path = check_output(out, force, models)
    stems = [Path(name).stem for name in models]
    names = stems if len(set(stems)) == len(stems) else models
    loaded = {name: _load(model_path, "cpu") for name, model_path in zip(names, models, strict=True)}
    with _convert_errors("the figure cannot be made"), atomic_write(path) as partial:
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
