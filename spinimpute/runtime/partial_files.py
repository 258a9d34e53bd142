"""Temporary files and folders.

A file is written under a temporary name and renamed when it is complete. It is locked while its process
lives. A later run that finds an unlocked temporary file deletes it: a killed run has left it.
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

TOKEN_BYTES = 4  # of the random part of a temporary name, in hexadecimal digits
PATIENCE = 1.0  # seconds to wait for other runs in the same folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_own_folders: set[Path] = set()  # temporary folders that this process has locked


class PartialFile:
    """A new, empty, locked file beside its final name. Raises InputError if another run writes the same file.

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
            with _folder_lock(final.parent):  # two runs that start together see each other
                while self._descriptor < 0:
                    descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                    if _lock(descriptor) is False or not self.path.exists():
                        os.close(descriptor)  # another run found it before it was locked, and removed it
                    else:
                        self._descriptor = descriptor
                other = _remove_stale(self.path, beginning, SUFFIX)
            if other is not None:
                raise InputError(
                    "write",
                    f"cannot write {final}: another run is writing it (its temporary file is {other}). Wait "
                    "for it, or choose another name",
                )
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Rename the file to its final name, replacing an older file; flush content and name to the disk."""
        flush(self.path)
        os.replace(self.path, self.final)
        flush(self.final.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the file and its lock. After `complete` this does nothing."""
        with suppress(OSError):  # a read-only file system: writing reports it
            self.path.unlink(missing_ok=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            closed("temporary", os.path.abspath(self.path))


@contextmanager
def temporary_folder_in(parent: Path, beginning: str) -> Iterator[Path]:
    """Yield a temporary folder; folders that killed runs have left are removed first."""
    folder = parent / f"{beginning}{secrets.token_hex(TOKEN_BYTES)}{FOLDER_SUFFIX}"
    absolute = os.path.abspath(folder)
    descriptor = -1
    opened("temporary", absolute)
    try:
        with _folder_lock(parent):  # another run must not remove a folder that is not locked yet
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


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Raises OSError if a file cannot be flushed."""
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
    """Remove files, or folders, of killed runs for the same output; return one of a living run, if any."""
    pattern = re.compile(rf"{re.escape(beginning)}[0-9a-f]{{{2 * TOKEN_BYTES}}}{re.escape(suffix)}")
    names: list[str] = []
    with suppress(OSError):  # a folder that may be written to, but not listed
        names = os.listdir(own.parent)
    living = None
    for other in (own.with_name(name) for name in names if pattern.fullmatch(name) and name != own.name):
        try:
            descriptor = os.open(other, (_FOLDER if suffix == FOLDER_SUFFIX else os.O_RDWR) | os.O_NOFOLLOW)
        except OSError:
            continue  # removed meanwhile, or of another user
        try:
            locked = _lock(descriptor)
            if locked is False:
                living = other
            elif locked and suffix == SUFFIX:
                other.unlink(missing_ok=True)
            elif locked and os.fstat(descriptor).st_uid == os.getuid():
                shutil.rmtree(other, ignore_errors=True)
        finally:
            os.close(descriptor)
    return living


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Wait for other runs in a folder, where folders can be locked and the folder is not this run's own."""
    descriptor = -1
    if folder not in _own_folders:
        with suppress(OSError):  # a folder that may be written to, but not listed
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
    """Lock a file. Return False if another process has locked it, None if files cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True
