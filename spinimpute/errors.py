"""The one exception that stands for a user's mistake."""

from pathlib import Path


class InputError(Exception):
    """Bad input: the message says what was found, where, and what to do.

    The command line prints the message alone and exits with 2; nothing else of the library is caught there.
    """


def why_no_file(path: Path) -> str:
    """What to say of a path at which there is no file."""
    return "it is a folder" if path.is_dir() else "there is no such file"
