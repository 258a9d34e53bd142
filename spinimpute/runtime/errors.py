"""The one exception that stands for a user's mistake."""

from collections.abc import Iterable
from pathlib import Path


class InputError(Exception):
    """Bad input: the message says what was found, where, and what to do.

    The command line prints the message alone and exits with 2; nothing else of the library is caught there.
    """


def printable(text: str) -> str:
    r"""A text without what would change a terminal: a name may hold \x1b, line breaks or reversed writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def repeated(names: Iterable[str]) -> str | None:
    """A name that is there twice, for messages; None if there is none."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def refuse_pipe(path: Path, what: str) -> None:
    """Raise InputError for what is there but neither file nor folder, and would have to be read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{what} {path}: {why_no_file(path)}")


def why_no_file(path: Path) -> str:
    """Why a path is not that of a file, for messages."""
    if path.is_dir():
        return "it is a folder"
    return "it is not a regular file; copy it to one" if path.exists() else "there is no such file"
