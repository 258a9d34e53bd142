"""Reports which files are open and which are temporary, so that a crash can be explained and cleaned up.

A C library that reads a damaged file can kill the process without an exception. So can the operating system
when memory runs out. So code that opens a file calls `opened` and later `closed`. The command line adds
a listener that sends each report to its parent process (`cli/watcher.py`), which survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SUFFIX, FOLDER_SUFFIX = ".part", ".parts"  # ends of the names of temporary files and folders

Change = Literal["opened", "closed"]
Use = Literal[
    "read",  # a C library reads the file, and could crash
    "mapped",  # the file is memory-mapped
    "temporary",  # the file or folder must be removed after a crash; its name is an absolute path
]

listeners: list[Callable[[Change, Use, str], None]] = []
"""Functions that are called with each report: change, use and name of the file."""


def opened(use: Use, name: object) -> None:
    """Report that a file is opened, or that a temporary file or folder is created."""
    for listener in listeners:
        listener("opened", use, str(name))


def closed(use: Use, name: object) -> None:
    """Report that a file is closed, or that a temporary file or folder is removed or renamed."""
    for listener in listeners:
        listener("closed", use, str(name))
