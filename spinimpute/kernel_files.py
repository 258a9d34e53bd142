"""The folder with compiled kernels: a file for each, of this user alone.

Compiled kernels are programs: who can write them can run anything in the user's name. Files that belong to
others, or that others may write to, are never read, nor is anything where the folder or the one it lies in is
such a one, or a link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

MOST_FILES = 1_000
MOST_DAYS = 60  # that a file is kept without being used
_DAY = 24 * 3600
_LARGE_FILE = 2**18  # bytes, as the largest kernel takes
_DIGEST_SIZE = hashlib.sha256().digest_size
_OURS = re.compile(
    r"[^.].*-[0-9a-f]{32}|\..+\.[0-9a-f]{16}\.part"
)  # kernels, and files that were not finished


class KernelFiles:
    """The files in a folder, which is made if need be; each is whole or not there, whatever happens.

    Parameters
    ----------
    folder : Path
        Where the files are.

    Attributes
    ----------
    unwritable : str
        Why nothing can be kept there; empty as long as it can.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unwritable = self._unreadable = _obstacle(folder)
        self._pruned = False

    def read(self, name: str) -> bytes | None:
        """What was written under this name; None without it."""
        if self._unreadable:
            return None
        try:
            with (self.folder / name).open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except OSError:
            return None
        if time.time() - status.st_mtime > _DAY:
            with contextlib.suppress(OSError):
                os.utime(self.folder / name)  # it is in use
        digest, data = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        whole = hashlib.sha256(data).digest() == digest  # a machine may have stopped while it was written
        return data if whole and not _stranger(status, name) else None

    def write(self, name: str, data: bytes) -> None:
        """Keep data under this name if there is room for it; otherwise `unwritable` says why."""
        if self.unwritable:
            return
        partial = self.folder / f".{name}.{os.urandom(8).hex()}.part"
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            partial.replace(self.folder / name)
        except OSError as error:
            self.unwritable = error.strerror or str(error)
            with contextlib.suppress(OSError):
                partial.unlink()
        if not self._pruned:
            self._pruned = True
            self._prune()

    def check_room(self) -> None:
        """Find out whether a file can be written now, see `unwritable`."""
        self.write("room", bytes(_LARGE_FILE))
        with contextlib.suppress(OSError):
            (self.folder / "room").unlink()

    def _prune(self) -> None:
        """Remove what older versions have left, and those that were killed; other files are not ours."""
        last_use = {}
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if _OURS.fullmatch(path.name):
                    with contextlib.suppress(OSError):  # another process prunes
                        status = path.lstat()
                        if stat.S_ISREG(status.st_mode):
                            last_use[path] = status.st_mtime
        newest_first = sorted(last_use, key=last_use.__getitem__, reverse=True)
        for number, path in enumerate(newest_first):
            if number >= MOST_FILES or time.time() - last_use[path] > MOST_DAYS * _DAY:
                with contextlib.suppress(OSError):
                    path.unlink()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process is in here at a time, where the file system has locks."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                file = stack.enter_context((self.folder / "lock").open("ab"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@cache
def kernel_files() -> KernelFiles:
    """Those of this user."""
    return KernelFiles(_cache_folder() / "kernels")


def _cache_folder() -> Path:
    if named := os.environ.get("SPINIMPUTE_CACHE"):
        return Path(named).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # such a one is to be ignored, says the specification
            base = "~/.cache"
    return Path(os.path.expanduser(base)) / "spinimpute"


def _obstacle(folder: Path) -> str:
    if not folder.is_absolute() and folder.parts[0] == "~":
        return "there is no home folder"
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for place, name in ((folder.parent, str(folder.parent)), (folder, "it")):
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
            status = place.lstat()
            if stat.S_ISLNK(status.st_mode):
                return f"{name} is a link"
            if not stat.S_ISDIR(status.st_mode):
                return os.strerror(errno.ENOTDIR)
            if reason := _stranger(status, name):
                return reason
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _stranger(status: os.stat_result, name: str) -> str:
    """Why others than this user and root may have written it; empty if they cannot have."""
    if os.name != "posix":
        return ""  # it lies in the user's own folder
    if status.st_uid not in (0, os.geteuid()):
        return f"{name} belongs to another user"
    if status.st_mode & 0o022:
        return f"other users may write to {name}"
    return ""
