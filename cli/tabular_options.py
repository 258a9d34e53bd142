"""What `spinimpute tabular` offers to train, and the options of training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

MODELS = {
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


@contextmanager
def estimator_errors(what: str) -> Iterator[None]:
    """What estimators say of what was asked for, as InputError: parameters, too few rows, numbers that
    overflow, more memory than there is. No warnings of numpy's."""
    from spinimpute.errors import InputError

    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of empty columns
            yield
    except (ValueError, RuntimeError, MemoryError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{what}: {said}") from error
