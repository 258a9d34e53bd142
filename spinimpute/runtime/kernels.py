"""`kernel`: numba's njit for the hot loops, cached for the user.

Numba recompiles a function when its own file changes, but misses changes of constants and kernels that it
imports. So the cache has a folder for each version of the sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba

from spinimpute.runtime.progress import announce

# Sums may be contracted to fused multiply-adds, and zeros have no sign. The order of sums stays.
FAST = frozenset({"contract", "nsz"})
LEAST_ROOM = 50 * 2**20  # bytes: all kernels take 10 MB
MOST_DAYS = 60  # that the folder of another version is kept without being used
_DAY = 24 * 3600


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function at its first call. It runs without the interpreter's lock.

    Parameters
    ----------
    fast : bool
        Allow the optimisations of `FAST`.
    inline : bool
        Compile the function into each of its callers.

    Returns
    -------
    callable
        A decorator.
    """
    folder = cache_folder()

    def compile_lazily(function: Callable[..., Any]) -> Any:
        usual, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        try:  # numba chooses the folder of a function when it is decorated
            return numba.njit(
                nogil=True,
                cache=folder is not None,
                fastmath=set(FAST) if fast else False,
                inline="always" if inline else "never",
            )(function)
        finally:
            numba.config.CACHE_DIR = usual

    return compile_lazily


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels of these sources, or None if nothing can be kept.

    Compiled kernels are programs: a folder that another user owns or may write to is not used.
    """
    top = user_cache() / "kernels"
    folder = top / _version_of_sources()
    usable = _is_usable(folder)
    if not usable:
        announce(
            "compiling the numeric kernels (about a minute) again in each run: nothing can be kept in "
            f"{top}; SPINIMPUTE_CACHE chooses another folder"
        )
    elif not any(folder.rglob("*.nbi")):
        announce(
            "the first run compiles the numeric kernels (about a minute of processor time); "
            "later runs start at once"
        )
    return folder if usable else None


def _is_usable(folder: Path) -> bool:
    """Make a folder; whether it is this user's alone and can be written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (folder.parent, folder):
            status = part.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return False
        if not os.access(folder, os.W_OK | os.X_OK) or shutil.disk_usage(folder).free < LEAST_ROOM:
            return False
        os.utime(folder)
        _remove_unused(folder.parent)
    except OSError:
        return False
    return True


def user_cache() -> Path:
    """Return the folder of this user's cache: SPINIMPUTE_CACHE, or that of the platform."""
    if named := os.environ.get("SPINIMPUTE_CACHE"):
        return Path(named).absolute()
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Caches/spinimpute"))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: relative paths are ignored
        base = os.path.expanduser("~/.cache")
    return Path(base) / "spinimpute"


def _version_of_sources() -> str:
    """Digest of the names, sizes and timestamps of all modules of the package."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{package}\0{sys.version}\0{numba.__version__}".encode())
    for parent, folders, files in os.walk(package):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(os.path.join(parent, name))
                digest.update(f"{parent}\0{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _remove_unused(top: Path) -> None:
    """Remove the folders of versions that nobody has used for a while."""
    for other in top.iterdir():
        with suppress(OSError):  # another process removes it
            if time.time() - other.stat().st_mtime > MOST_DAYS * _DAY:
                shutil.rmtree(other, ignore_errors=True)
