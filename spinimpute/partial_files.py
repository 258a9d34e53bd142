"""Files that are written under a temporary name, which becomes their own when they are whole.

A temporary file is locked as long as its process lives. So the next run that writes the same file tells one
that is being written from one that a killed run has left, and removes that.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from spinimpute.errors import InputError
from spinimpute.watched import TEMPORARY, begins, ends

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".part"


class PartialFile:
    """A new, empty, locked file beside the one that it becomes.

    Parameters
    ----------
    final : Path
        Of the whole file.

    Attributes
    ----------
    final, path : Path
        Of the whole file, and of this one.
    descriptor : int
        The open file. Who opens `path` need not use it.

    Raises
    ------
    InputError
        Another run is writing the same file.
    OSError
        The file cannot be made.
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self.path = final.with_name(f"{_beginning(final)}{secrets.token_hex(4)}{SUFFIX}")
        begins(TEMPORARY, os.path.abspath(self.path))
        self.descriptor = _made_and_locked(self.path)
        try:
            self._clear_others()
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Give the file its own name; one that has it is replaced.

        Raises
        ------
        OSError
            It cannot get this name.
        """
        os.replace(self.path, self.final)
        self._release()

    def discard(self) -> None:
        """Remove the file; nothing happens after `complete`."""
        with suppress(OSError):  # the file system cannot be written: who writes has noticed
            self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            ends(TEMPORARY, os.path.abspath(self.path))

    def _clear_others(self) -> None:
        """Remove what killed runs have left of the same file. Raises InputError if one is being written."""
        beginning = _beginning(self.final)
        names: list[str] = []
        with suppress(OSError):  # a folder that may be written to, but not listed
            names = os.listdir(self.final.parent)
        for name in names:
            middle = name.removeprefix(beginning).removesuffix(SUFFIX)
            if len(name) != len(beginning) + len(middle) + len(SUFFIX) or not _is_token(middle):
                continue
            other = self.final.with_name(name)
            if other == self.path:
                continue
            try:
                descriptor = os.open(other, os.O_RDWR)
            except OSError:
                continue  # it is gone, or of somebody else
            try:
                locked = _locked(descriptor)
                if locked is False:
                    raise InputError(
                        f"cannot write {self.final}: another run is writing it (its temporary file is "
                        f"{other}). Wait for it, or choose another name"
                    )
                if locked:
                    other.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _made_and_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        locked = _locked(descriptor)
        if locked is not False and path.exists():
            return descriptor
        os.close(descriptor)  # another run found it before it was locked, and took it for a dead one's


def _beginning(final: Path) -> str:
    return f".{final.name}."


def _is_token(text: str) -> bool:
    return len(text) == 8 and all(letter in "0123456789abcdef" for letter in text)


def _locked(descriptor: int) -> bool | None:
    """Whether a file is locked now; False if another process has it; None where files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True
