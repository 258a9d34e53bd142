"""Temporary files and folders, locked while their process is alive.

An output is written under a temporary name, `.NAME.RANDOM.part`, and renamed to NAME when it is complete.
The lock tells live temporary files from stale ones: the operating system releases it when the process ends.
A run that finds an unlocked temporary file deletes it, because it belongs to a killed run.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.open_files import FOLDER_SUFFIX, SUFFIX, closed, opened

TOKEN_BYTES = 4  # random bytes in a temporary name, written as twice as many hexadecimal digits
_CREATE_ATTEMPTS = 20  # attempts to create a folder that other runs remove
PATIENCE = 1.0  # maximum time in seconds to wait for another run's lock on a folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY  # flags to open a folder
_own_folders: set[Path] = set()  # temporary folders that this process has locked


class PartialFile:
    """A new, empty, locked temporary file in the folder of its final name.

    Raises InputError if another run is writing a file of the same final name.

    Attributes
    ----------
    final, path : Path
        Final and temporary path.
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        beginning = f".{final.name}."
        self.path = final.with_name(f"{beginning}{secrets.token_hex(TOKEN_BYTES)}{SUFFIX}")
        self._descriptor = -1  # holds the lock
        opened("temporary", os.path.abspath(self.path))
        try:
            with _folder_lock(final.parent):  # without it, two runs might each miss the other's new file
                while self._descriptor < 0:
                    descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                    if _lock(descriptor) is False or not self.path.exists():
                        os.close(descriptor)  # another run deleted the file before we locked it: try again
                    else:
                        self._descriptor = descriptor
                other = _remove_stale(self.path, beginning, SUFFIX)
            if other is not None:
                raise InputError(
                    "write",
                    f"cannot write {final}: another run is writing it (its temporary file is {other}). Wait "
                    "until that run ends, or choose another name",
                )
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Rename the file to its final name and flush it to the disk. An older file is replaced."""
        flush(self.path)
        os.replace(self.path, self.final)
        flush(self.final.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the file and its lock. After `complete`, do nothing."""
        with suppress(OSError):  # a read-only file system: the write error has been reported
            self.path.unlink(missing_ok=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            closed("temporary", os.path.abspath(self.path))


@contextmanager
def temporary_folder_in(parent: Path, beginning: str) -> Iterator[Path]:
    """Yield a new temporary folder, and remove it at the end of the `with` block.

    First, remove the folders of killed runs: unlocked folders whose names start with `beginning`.
    """
    folder = parent / f"{beginning}{secrets.token_hex(TOKEN_BYTES)}{FOLDER_SUFFIX}"
    absolute = os.path.abspath(folder)
    descriptor = -1
    opened("temporary", absolute)
    try:
        with _folder_lock(parent):  # otherwise another run could remove our folder before we lock it
            _remove_stale(folder, beginning, FOLDER_SUFFIX)
            folder.mkdir(mode=0o700)
            descriptor = os.open(folder, _FOLDER | os.O_NOFOLLOW)
            _lock(descriptor)
        _own_folders.add(folder)
        yield folder
    finally:
        _own_folders.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor >= 0:
            os.close(descriptor)
        closed("temporary", absolute)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create a folder if there is none, and lock it for the `with` block. At the end, remove it if empty.

    Missing parent folders are created and removed in the same way. Raises InputError if another run has
    locked the folder, and OSError if the folder cannot be created.
    """
    missing = [parent for parent in folder.parents if not parent.exists()]  # the innermost one first
    try:
        descriptor = _create_locked(folder)
        try:
            yield
        finally:
            _remove_empty(folder)
            os.close(descriptor)
    finally:
        for parent in missing:
            _remove_empty(parent)


def _create_locked(folder: Path) -> int:
    """Create a folder if there is none, and return the descriptor that holds its lock."""
    for attempt in range(1, _CREATE_ATTEMPTS + 1):  # another run may remove the folder before we lock it
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, _FOLDER)
        except (FileNotFoundError, FileExistsError):
            if attempt == _CREATE_ATTEMPTS:
                raise
            continue
        is_locked = _lock(descriptor) is not False
        with suppress(FileNotFoundError):
            if is_locked and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)
        if not is_locked:
            break
    raise InputError("write", f"cannot write to {folder}: another run is using it. Wait until it ends")


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not empty
        folder.rmdir()


def flush(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to the disk.

    Raises OSError if a file cannot be flushed. Errors of folders are ignored.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        if not path.is_dir():  # not all file systems can flush folders
            raise


def _remove_stale(own: Path, beginning: str, suffix: str) -> Path | None:
    """Remove the stale temporary files (or folders) next to `own`, whose names have the same beginning.

    Return a file that another running process has locked, or None.
    """
    pattern = re.compile(rf"{re.escape(beginning)}[0-9a-f]{{{2 * TOKEN_BYTES}}}{re.escape(suffix)}")
    names: list[str] = []
    with suppress(OSError):  # we may have permission to write to the folder, but not to list it
        names = os.listdir(own.parent)
    active = None
    for other in (own.with_name(name) for name in names if pattern.fullmatch(name) and name != own.name):
        try:
            descriptor = os.open(other, (_FOLDER if suffix == FOLDER_SUFFIX else os.O_RDWR) | os.O_NOFOLLOW)
        except OSError:
            continue  # removed in the meantime, or owned by another user
        try:
            locked = _lock(descriptor)
            if locked is False:
                active = other
            elif locked and suffix == SUFFIX:
                other.unlink(missing_ok=True)
            elif locked and os.fstat(descriptor).st_uid == os.getuid():
                shutil.rmtree(other, ignore_errors=True)
        finally:
            os.close(descriptor)
    return active


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder for the `with` block. Wait up to PATIENCE seconds for a lock of another run.

    Without effect on file systems that cannot lock folders, and in temporary folders of this process.
    """
    descriptor = -1
    if folder not in _own_folders:
        with suppress(OSError):  # we may have permission to write to the folder, but not to list it
            descriptor = os.open(folder, _FOLDER)
    try:
        end = time.monotonic() + PATIENCE
        while descriptor >= 0 and _lock(descriptor) is False and time.monotonic() < end:
            time.sleep(0.005)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock an open file and return True.

    Return False if another process has locked it, None if the file system cannot lock files.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True
