"""Print messages on stderr and write them to the log (`--log`).

Messages of the library name arguments and functions. `name_option` and `COMMAND_OF_CALL` replace these
names with options and commands (`runtime.errors.use_words`).
"""

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

# the first line of a log has the time and the command; an empty file may be a log, too
LOG_START = re.compile(rb"$|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \$ spinimpute")

_log: IO[str] | None = None


def is_log(path: Path) -> bool:
    """Return whether an existing file is a log or empty. Raises OSError if the file cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return bool(LOG_START.match(file.read(100)))


def start_log(path: Path, command: str) -> None:
    """Start a log file with the command in its first line. Raises OSError if it cannot be written."""
    global _log
    path.write_bytes(b"")
    # append mode, because the watcher process writes to the same file
    _log = path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
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
    """Write lines to the log, if there is one. Raises OSError if it cannot be written."""
    if _log is not None:
        _log.write(log_lines(text))


# public function -> the command that calls it, for messages
COMMAND_OF_CALL = {
    "add_labels": "'spinimpute panel labels'",
    "build_panel": "'spinimpute panel build'",
    "build_inducing_panel": "'spinimpute panel build --inducing H --array FILE'",
    "get_panel": "'spinimpute panel get'",
    "convert": "'spinimpute convert --vcf FILE --panel PANEL'",
    "phase": "'spinimpute phase'",
}
# argument -> option, if their names differ
OPTIONS = {"buffer_cM": "buffer", "genetic_map": "map", "leave_one_out": "loo"}


def name_option(name: str, value: object) -> str:
    """Return the option that sets an argument of a library function, such as "--threads 4"."""
    flag = f"--{OPTIONS.get(name, name.replace('_', '-').lower())}"
    return flag if value is True or value is ... else f"{flag} {value}"


def say(line: str) -> None:
    """Print a line on stderr and write it to the log. The run continues if neither is possible."""
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
    """Print a warning on stderr and write it to the log."""
    say(f"spinimpute: warning: {message}")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's class name if there is no message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def discard(stream: IO[str]) -> None:
    """Redirect the rest of a stream to /dev/null.

    Otherwise the flush at exit could fail, and some versions of Python then change the exit status.
    """
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
