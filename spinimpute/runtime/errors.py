"""`InputError`, the exception for users' mistakes, and helpers to write its messages.

A message names arguments and functions with `argument` and `call`. They return Python's words by default:
`force=True`, `spinimpute.build_panel(...)`. The command line replaces these words with its own (`use_words`):
`--force`, 'spinimpute panel build'. So the same message is right for both kinds of users.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Code = Literal[
    "argument",  # an argument has an invalid value
    "arguments",  # arguments exclude or require each other
    "not-found",  # there is no such file, folder or name
    "exists",  # an output exists already
    "read",  # a file cannot be read
    "write",  # an output cannot be written
    "damaged",  # a file is truncated or corrupted
    "content",  # a file has a wrong format, or content that cannot be used
    "mismatch",  # two inputs do not belong together
    "memory",  # the memory budget is too small
    "device",  # there is no such device
    "package",  # an optional package is not installed
]


class InputError(Exception):
    """A user's mistake: the message says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2.

    Parameters
    ----------
    code : str
        Kind of mistake, one of `Code`.
    message : str
        Text for the user.

    Attributes
    ----------
    code : str
        Kind of mistake.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)  # a copy in another process gets both
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])


def _python_argument(name: str, value: object) -> str:
    return f"{name}=..." if value is ... else f"{name}={value!r}"


def _python_call(name: str) -> str:
    return f"spinimpute.{name}(...)"


_words: list[tuple[Callable[[str, object], str], Callable[[str], str]]] = [(_python_argument, _python_call)]


def argument(name: str, value: Any = ...) -> str:
    """Name an argument in a message: `force=True` in Python, `--force` on the command line."""
    return _words[-1][0](name, value)


def call(name: str) -> str:
    """Name a public function in a message: `spinimpute.build_panel(...)`, or the command that calls it."""
    return _words[-1][1](name)


@contextmanager
def use_words(argument: Callable[[str, object], str], call: Callable[[str], str]) -> Iterator[None]:
    """Name arguments and functions in messages with these two functions inside the `with` block."""
    _words.append((argument, call))
    try:
        yield
    finally:
        _words.pop()


def printable(text: str) -> str:
    r"""Escape the characters that can change a terminal, such as \x1b, line breaks or bidi marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs a second time, or None if all names differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def refuse_pipe(path: Path, what: str) -> None:
    """Raise InputError if the path is a pipe or device. It could be read only once, but is read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError("read", f"{what} {path}: {why_no_file(path)}")


def why_no_file(path: Path) -> str:
    """Return the reason why a path is not a regular file, for messages."""
    if path.is_dir():
        return "it is a folder"
    return "it is not a regular file; copy it to one" if path.exists() else "there is no such file"
