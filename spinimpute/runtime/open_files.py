"""Notices of open and temporary files, for a program that explains a crash and cleans up after it.

Libraries that read files can end the process without an exception, and so can the system when memory runs
out. The command line listens, and notifies its parent process (`cli/watcher.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SUFFIX, FOLDER_SUFFIX = ".part", ".parts"  # of temporary files and folders: nothing else may be removed

Change = Literal["opened", "closed"]
Use = Literal[
    "read",  # a library reads the file, and could crash
    "mapped",  # the file is mapped into memory
    "temporary",  # the file or folder must be removed after a crash; its name is an absolute path
]

listeners: list[Callable[[Change, Use, str], None]] = []
"""Functions that receive each notice."""


def opened(use: Use, name: object) -> None:
    """Report that a file is opened, or that a temporary file or folder is made; messages quote the name."""
    for listener in listeners:
        listener("opened", use, str(name))


def closed(use: Use, name: object) -> None:
    """Report that a file is closed, or that a temporary file or folder is gone."""
    for listener in listeners:
        listener("closed", use, str(name))
