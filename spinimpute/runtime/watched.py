"""What a process tells the one that watches over it, so that its death can be explained and cleaned up after.

Libraries that read files can end a process at once, and so can the system where memory runs out. Whoever
watches (the command line does) then knows which files were open, and which temporary files are left. Without
a watcher nothing is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READING, MAPPED, ENDING, LOG = "reading", "mapped", "ending", "log"
TEMPORARY, TEMPORARY_FOLDER = "temporary", "folder"
SUFFIX, FOLDER_SUFFIX = ".part", ".parts"  # of their names: nothing else may be removed
LONGEST = 1_000  # letters told at once: longer messages of two threads could mix
BEGINS, ENDS = "+", "-"

_channel: int | None = None  # file descriptor of a pipe


def watched_through(channel: int) -> None:
    """Tell a watcher through this pipe from now on."""
    global _channel
    _channel = channel


def begins(kind: str, what: object) -> None:
    """Tell that something begins to be read, or that a temporary file or folder is there.

    Parameters
    ----------
    kind : str
        READING: a library reads the file; MAPPED: it is in memory as it is on the disk; TEMPORARY or
        TEMPORARY_FOLDER: it is to be removed; LOG: what is printed goes there, too.
    what : object
        The file, as messages name it, or its absolute path.
    """
    _tell(BEGINS, kind, what)


def ends(kind: str, what: object) -> None:
    """Tell that it is closed, or gone; parameters as of `begins`."""
    _tell(ENDS, kind, what)


@contextmanager
def temporary_folder_told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Tell of a temporary folder as long as it is there."""
    absolute = os.path.abspath(path)
    begins(TEMPORARY_FOLDER, absolute)
    try:
        yield
    finally:
        ends(TEMPORARY_FOLDER, absolute)


def log_line(text: str) -> str:
    """A text as lines of a log, with the time."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(f"{now} {line}\n" for line in text.splitlines())


def ending() -> None:
    """Tell that the process ends by itself, with a status that means what it says."""
    _tell(BEGINS, ENDING, "")


def _tell(change: str, kind: str, what: object) -> None:
    if _channel is None:
        return
    text = str(what).replace("\n", " ")[:LONGEST]
    if text != str(what) and kind in (TEMPORARY, TEMPORARY_FOLDER, LOG):
        return  # under another name it is something else, which must stay: the next run finds what is left
    with suppress(OSError):  # nobody watches any longer
        os.write(_channel, f"{change}{kind}\t{text}\n".encode(errors="surrogateescape"))
