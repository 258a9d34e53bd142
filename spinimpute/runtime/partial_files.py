"""Files that are written under a temporary name, which becomes their own when they are whole; and folders.

What is temporary is locked as long as its process lives. So the next run that writes the same file tells one
that is being written from one that a killed run has left, and removes that.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.open_files import FOLDER_SUFFIX, SUFFIX, closed, opened

TOKEN = 8  # letters
PATIENCE = 1.0  # seconds for other runs that look for temporary files in the same folder
_own_folders: set[Path] = set()  # temporary ones, which this process has locked


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
        self.path = final.with_name(f"{_beginning(final)}{secrets.token_hex(TOKEN // 2)}{SUFFIX}")
        opened("temporary", os.path.abspath(self.path))
        self.descriptor = -1
        try:
            with _one_at_a_time(final.parent):  # of two runs that start together, one sees the other
                self.descriptor = _made_and_locked(self.path)
                self._clear_others()
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Give the file its own name, on the disk, too; one that has it is replaced.

        Raises
        ------
        OSError
            It cannot get this name, or cannot be stored.
        """
        self.store()
        os.replace(self.path, self.final)
        store_names(self.final.parent)
        self._release()

    def store(self) -> None:
        """Wait until the content is on the disk. Raises OSError."""
        with open(self.path, "rb+") as file:  # not `descriptor`: a whole file may have been moved here
            os.fsync(file.fileno())

    def discard(self) -> None:
        """Remove the file; nothing happens after `complete`."""
        with suppress(OSError):  # the file system cannot be written: who writes has noticed
            self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            closed("temporary", os.path.abspath(self.path))

    def _clear_others(self) -> None:
        """Remove what killed runs have left of the same file. Raises InputError if one is being written."""
        beginning = _beginning(self.final)
        for other in _named_so(self.final.parent, beginning, SUFFIX):
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
                        "write",
                        f"cannot write {self.final}: another run is writing it (its temporary file is "
                        f"{other}). Wait for it, or choose another name",
                    )
                if locked:
                    other.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def store_names(folder: Path) -> None:
    """Wait until new names in a folder are on the disk, where the file system can do this."""
    descriptor = _opened_folder(folder, follow=True)
    with suppress(OSError):
        if descriptor >= 0:
            os.fsync(descriptor)
    _close(descriptor)


def _made_and_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        locked = _locked(descriptor)
        if locked is not False and path.exists():
            return descriptor
        os.close(descriptor)  # another run found it before it was locked, and took it for a dead one's


@contextmanager
def temporary_folder_in(parent: Path, beginning: str) -> Iterator[Path]:
    """Make a folder that is removed at the end; those that killed runs have left are removed before.

    Parameters
    ----------
    parent : Path
        Where it is.
    beginning : str
        Of its name.

    Yields
    ------
    Path
        The folder, which only this user may read.

    Raises
    ------
    OSError
        It cannot be made.
    """
    folder = parent / f"{beginning}{secrets.token_hex(TOKEN // 2)}{FOLDER_SUFFIX}"
    absolute = os.path.abspath(folder)
    opened("temporary", absolute)
    descriptor = -1
    try:
        with _one_at_a_time(parent):  # a folder that is not locked yet must not be taken for a dead one
            for other in _named_so(parent, beginning, FOLDER_SUFFIX):
                _remove_dead(other)
            folder.mkdir(mode=0o700)
            descriptor = _opened_folder(folder)
            _locked(descriptor)
        _own_folders.add(folder)
        yield folder
    finally:
        _own_folders.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)
        _close(descriptor)
        closed("temporary", absolute)


def _remove_dead(folder: Path) -> None:
    """Remove a folder of this user that no process has locked."""
    descriptor = _opened_folder(folder)
    if descriptor >= 0 and os.fstat(descriptor).st_uid == os.getuid() and _locked(descriptor):
        shutil.rmtree(folder, ignore_errors=True)
    _close(descriptor)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Runs wait for each other, where a folder can be locked; no other run is in one of this run's own."""
    if folder in _own_folders:
        yield
        return
    descriptor = _opened_folder(folder, follow=True)  # they may have other names of it
    end = time.monotonic() + PATIENCE
    while descriptor >= 0 and _locked(descriptor) is False and time.monotonic() < end:
        time.sleep(0.005)
    try:
        yield
    finally:
        _close(descriptor)


def _opened_folder(folder: Path, *, follow: bool = False) -> int:
    """A descriptor of a folder, by default no link, which can be locked; -1 if there is none."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        return -1


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _named_so(folder: Path, beginning: str, suffix: str) -> list[Path]:
    """What is in a folder and has a name of this beginning, a token, and this end."""
    names: list[str] = []
    with suppress(OSError):  # a folder that may be written to, but not listed
        names = os.listdir(folder)
    length = len(beginning) + TOKEN + len(suffix)
    return [
        folder / name
        for name in names
        if len(name) == length
        and name.startswith(beginning)
        and name.endswith(suffix)
        and _is_token(name[len(beginning) :][:TOKEN])
    ]


def _beginning(final: Path) -> str:
    return f".{final.name}."


def _is_token(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def _locked(descriptor: int) -> bool | None:
    """Whether a file is locked now; False if another process has it; None where files cannot be locked."""
    if descriptor < 0:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True
