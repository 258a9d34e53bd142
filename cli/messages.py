"""What commands print on stderr, in words of the command line, and the log that keeps it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from spinimpute.runtime.errors import printable
from spinimpute.runtime.watched import LOG, begins, ends, log_line


class _Log:
    """What `say` prints, in a file as well, with times."""

    file: IO[str] | None = None


LOG_START = re.compile(rb"$|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \$ spinimpute")  # or empty


def is_log(path: Path) -> bool:
    """Whether a file is there that begins as logs do. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return bool(LOG_START.match(file.read(100)))


def start_log(path: Path, command: str) -> None:
    """Print to a file as well from now on, which begins with the command. Raises OSError."""
    path.write_bytes(b"")
    # each line goes behind the last: the process that watches this one writes there, too
    _Log.file = path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
    begins(LOG, path.absolute())
    to_log(f"$ {command}")


def end_log() -> None:
    """Close the log, if there is one."""
    if _Log.file is not None:
        with suppress(OSError):
            _Log.file.close()
        ends(LOG, Path(_Log.file.name).absolute())
        _Log.file = None


def to_log(text: str) -> None:
    """Write lines into the log alone, if there is one. Raises OSError."""
    if _Log.file is not None:
        _Log.file.write(log_line(text))


COMMANDS = {
    "build_panel": "'spinimpute panel build'",
    "build_inducing_panel": "'spinimpute panel build --inducing H --array FILE'",
    "convert": "'spinimpute convert --vcf TRUTH --panel PANEL'",
}
OPTIONS = {"buffer_cM": "buffer", "genetic_map": "map", "leave_one_out": "loo"}  # others are called alike


def option(name: str, value: object) -> str:
    """Name the option of a library's argument, for messages."""
    words = f"--{OPTIONS.get(name, name.replace('_', '-'))}"
    return words if value is True or value is ... else f"{words} {value}"


def command(name: str) -> str:
    """Name the command of a library's function, for messages."""
    return COMMANDS[name]


def say(line: str) -> None:
    """Print a line on stderr, if it can be: a run goes on where that is on a full disk, or read by nobody."""
    line = printable(line)
    try:
        click.echo(line, err=True)
    except OSError:
        discard(sys.stderr)
    try:
        to_log(line)
    except OSError as error:
        end_log()
        say(f"spinimpute: warning: the log ends here: {error.strerror or error}")


def warn(message: str) -> None:
    """Print a warning."""
    say(f"spinimpute: warning: {message}")


def discard(stream: IO[str]) -> None:
    """Forget what is in the stream's buffer: some Pythons fail with it at exit, and with another status."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
