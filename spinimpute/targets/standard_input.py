"""Standard input as a file: formats are told apart by content, and read more than once."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import STANDARD, CannotWrite, temporary_folder

NAME = "standard_input"  # as messages and reports name the file


@contextmanager
def standard_input_as_file(option: str) -> Iterator[Path]:
    """Copy standard input into a temporary file.

    Parameters
    ----------
    option : str
        What is read from it, for messages.

    Yields
    ------
    Path
        The file, which is removed at the end.

    Raises
    ------
    InputError
        Standard input is closed, a terminal, or cannot be read; or there is no space for the file.
    """
    if sys.stdin is None:
        raise InputError("content", f"{option} {STANDARD}: standard input is closed; pipe a file into it")
    if sys.stdin.isatty():
        raise InputError("content", f"{option} {STANDARD}: standard input is a terminal; pipe a file into it")
    with temporary_folder() as folder:
        path = folder / NAME
        # what has been read already would be lacking in a second reader's buffer: none is made before
        with open(os.dup(sys.stdin.fileno()), "rb") as piped:
            try:
                with path.open("wb") as file:
                    shutil.copyfileobj(piped, file, 1 << 20)
            except IsADirectoryError as error:
                raise InputError("content", f"{option} {STANDARD}: standard input is a folder") from error
            except OSError as error:
                raise CannotWrite(path, error) from error
        yield path
