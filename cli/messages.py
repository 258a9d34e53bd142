"""Messages of commands on stderr and in their log, in words of the command line."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from spinimpute.runtime.errors import printable

from .watcher import log_lines, notify

LOG_START = re.compile(rb"$|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \$ spinimpute")  # or empty

_log: IO[str] | None = None


def is_log(path: Path) -> bool:
    """Whether an existing file starts as logs do. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return bool(LOG_START.match(file.read(100)))


def start_log(path: Path, command: str) -> None:
    """Write messages to a file, too, which begins with the command. Raises OSError."""
    global _log
    path.write_bytes(b"")
    _log = path.open(
        "a", buffering=1, encoding="utf-8", errors="backslashreplace"
    )  # the watcher appends, too
    notify("opened", "log", str(path.absolute()))
    to_log(f"$ {command}")


def end_log() -> None:
    """Close the log, if there is one."""
    global _log
    if _log is not None:
        with suppress(OSError):
            _log.close()
        notify("closed", "log", str(Path(_log.name).absolute()))
        _log = None


def to_log(text: str) -> None:
    """Write lines to the log, if there is one. Raises OSError."""
    if _log is not None:
        _log.write(log_lines(text))


# commands that call functions of the library, for messages
COMMANDS = {
    "build_panel": "'spinimpute panel build'",
    "build_inducing_panel": "'spinimpute panel build --inducing H --array FILE'",
    "convert": "'spinimpute convert --vcf FILE --panel PANEL'",
    "phase": "'spinimpute phase'",
}
OPTIONS = {"buffer_cM": "buffer", "genetic_map": "map", "leave_one_out": "loo"}  # others have the same name


def name_option(name: str, value: object) -> str:
    """The option that sets an argument of a library function, for messages."""
    words = f"--{OPTIONS.get(name, name.replace('_', '-').lower())}"
    return words if value is True or value is ... else f"{words} {value}"


def say(line: str) -> None:
    """Print a line on stderr; the run continues if stderr is closed or its disk is full."""
    line = printable(line)
    try:
        click.echo(line, err=True)
    except OSError:
        discard(sys.stderr)
    try:
        to_log(line)
    except OSError as error:
        end_log()
        say(f"spinimpute: warning: the log cannot be continued: {error.strerror or error}")


def warn(message: str) -> None:
    """Print a warning."""
    say(f"spinimpute: warning: {message}")


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of the error if it has no message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def discard(stream: IO[str]) -> None:
    """Send the rest of a stream to /dev/null: if the flush at exit fails, some Pythons change the status."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
