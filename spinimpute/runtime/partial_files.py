"""Temporary files and folders.

A file is written under a temporary name and renamed when it is complete. It is locked while its process
lives. A later run that finds an unlocked temporary file deletes it: a killed run has left it.
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
PATIENCE = 1.0  # seconds to wait for other runs in the same folder
_own_folders: set[Path] = set()  # temporary folders that this process has locked


class PartialFile:
    """A new, empty, locked file beside its final name. Raises InputError if another run writes the same file.

    Attributes
    ----------
    final, path : Path
        Final and temporary path.
    descriptor : int
        Descriptor of the open file, which holds the lock.
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self.path = final.with_name(f"{_beginning(final)}{secrets.token_hex(TOKEN // 2)}{SUFFIX}")
        opened("temporary", os.path.abspath(self.path))
        self.descriptor = -1
        try:
            with _one_at_a_time(final.parent):  # two runs that start together see each other
                self.descriptor = _made_and_locked(self.path)
                self._clear_others()
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Rename the file to its final name, replacing an older file, and flush the name to the disk."""
        self.store()
        os.replace(self.path, self.final)
        store_names(self.final.parent)
        self._release()

    def store(self) -> None:
        """Flush the content to the disk. Raises OSError."""
        with open(self.path, "rb+") as file:  # not `descriptor`: a library may have replaced the file
            os.fsync(file.fileno())

    def discard(self) -> None:
        """Remove the file. After `complete` this does nothing."""
        with suppress(OSError):  # a read-only file system: writing reports it
            self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            closed("temporary", os.path.abspath(self.path))

    def _clear_others(self) -> None:
        """Remove files of killed runs. Raises InputError if another run is writing the file."""
        beginning = _beginning(self.final)
        for other in _named_so(self.final.parent, beginning, SUFFIX):
            if other == self.path:
                continue
            try:
                descriptor = os.open(other, os.O_RDWR)
            except OSError:
                continue  # removed meanwhile, or of another user
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
    """Flush the names in a folder to the disk, where the file system can."""
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
        os.close(descriptor)  # another run found it before it was locked, and removed it


@contextmanager
def temporary_folder_in(parent: Path, beginning: str) -> Iterator[Path]:
    """Yield a temporary folder; folders that killed runs have left are removed first."""
    folder = parent / f"{beginning}{secrets.token_hex(TOKEN // 2)}{FOLDER_SUFFIX}"
    absolute = os.path.abspath(folder)
    opened("temporary", absolute)
    descriptor = -1
    try:
        with _one_at_a_time(parent):  # another run must not remove a folder that is not locked yet
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
    """Remove a folder of this user unless a process has locked it."""
    descriptor = _opened_folder(folder)
    if descriptor >= 0 and os.fstat(descriptor).st_uid == os.getuid() and _locked(descriptor):
        shutil.rmtree(folder, ignore_errors=True)
    _close(descriptor)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait for other runs in a folder, where folders can be locked and the folder is not this run's own."""
    if folder in _own_folders:
        yield
        return
    descriptor = _opened_folder(folder, follow=True)  # other runs may use another name of the folder
    end = time.monotonic() + PATIENCE
    while descriptor >= 0 and _locked(descriptor) is False and time.monotonic() < end:
        time.sleep(0.005)
    try:
        yield
    finally:
        _close(descriptor)


def _opened_folder(folder: Path, *, follow: bool = False) -> int:
    """Open a folder, by default not through a link; -1 if it cannot be opened."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        return -1


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _named_so(folder: Path, beginning: str, suffix: str) -> list[Path]:
    """Paths in a folder whose name is this prefix, a token, and this suffix."""
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
    """Lock a file. Return False if another process has locked it, None if files cannot be locked."""
    if descriptor < 0:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True
