"""What the commands show on the terminal. Everything but results goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


def print_error(message: str) -> None:
    click.echo(f"spinimpute: error: {message}", err=True)


def print_warning(message: str) -> None:
    click.echo(f"spinimpute: warning: {message}", err=True)


@contextmanager
def progress_bar(what: str, quiet: bool = False) -> Iterator[Callable[[float], None] | None]:
    """A function that shows the fraction of the work that is done; None where nobody is watching."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)

        def show(fraction: float) -> None:
            bar.update(task, completed=fraction)

        yield show
