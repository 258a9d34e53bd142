"""`kernel`: a decorator that compiles a hot loop with numba and caches the compiled code on disk.

Numba recompiles a function when its own file changes, but misses changes to constants and kernels that the
file imports. We therefore give each version of a module a cache folder of its own. The folder's name is a
digest of the module's file and of all files that it imports. Folders of unused versions are deleted.

Numba counts references to arrays with atomic instructions, which cost time in inner loops, above all if
several threads share an array. LLVM removes the counting from short kernels without calls. In inner loops we
therefore (1) index whole arrays instead of slicing rows, (2) call only short kernels that call no others
(`inline=True` removes a call), and (3) do not read an array for the last time inside of an `if`.

An index that may be negative is checked at every access, and the loop is not vectorised. Loops that copy or
gather therefore use indexes of type uint64, without mixing in signed numbers (their sum would be a float).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba

from spinimpute.runtime.progress import announce

_PACKAGE_FOLDER = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from (spinimpute[\w.]*) import (\([^)]*\)|.+)", re.MULTILINE)

# Allowed: fused multiply-adds, and ignoring the sign of zero. Terms of a sum are never reordered.
FAST = frozenset({"contract", "nsz"})
MIN_FREE_BYTES = 50 * 2**20  # free space on the disk without which nothing is cached; all kernels take 10 MB
MAX_UNUSED_DAYS = 60  # days after which the unused cache folder of another version is deleted
_DAY = 24 * 3600


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at its first call. The function runs without the GIL.

    `fast` allows the compiler the changes in `FAST`. `inline` copies the function into its callers. A
    division by zero raises no exception: the result is that of NumPy.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        folder = folder_of(function.__module__)
        previous, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        try:  # numba reads CACHE_DIR when it decorates a function
            return numba.njit(
                nogil=True,
                error_model="numpy",
                cache=folder is not None,
                fastmath=set(FAST) if fast else False,
                inline="always" if inline else "never",
            )(function)
        finally:
            numba.config.CACHE_DIR = previous

    return compile_lazily


@cache
def cache_folder() -> Path | None:
    """Return the folder of all compiled kernels, or None if no folder is safe and writable.

    The folder is in SPINIMPUTE_CACHE or in the platform's cache folder. Compiled kernels are executable code:
    a folder that another user owns or may write to is refused.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if named := os.environ.get("SPINIMPUTE_CACHE"):
        cache = Path(named).absolute()
    elif sys.platform == "darwin":
        cache = Path(os.path.expanduser("~/Library/Caches/spinimpute"))
    elif os.path.isabs(base):  # the XDG specification: relative paths are ignored
        cache = Path(base) / "spinimpute"
    else:
        cache = Path(os.path.expanduser("~/.cache/spinimpute"))
    if cache.is_absolute() and _is_usable(cache / "kernels"):  # relative: the user has no home folder
        return cache / "kernels"
    announce(
        "compiling the numeric kernels (about a minute) again in each run: nothing can be kept in "
        f"{cache / 'kernels'}; SPINIMPUTE_CACHE chooses another folder"
    )
    return None


@cache
def folder_of(module: str) -> Path | None:
    """Return the cache folder of the kernels of a module, or None if they cannot be cached.

    Its name is a digest of the path, size and modification time of the source files: the module's own file
    and all files of this package that it imports, directly or indirectly.
    """
    top = cache_folder()
    if top is None or _source(module) is None:  # a module outside the package, such as a test
        return None
    sources, todo = dict[str, str](), [module]
    while todo:
        name = todo.pop()
        if name not in sources and (source := _source(name)) is not None:
            sources[name] = source.path
            todo += source.imported
    digest = hashlib.sha256(f"{sys.version}\0{numba.__version__}".encode())
    for name in sorted(sources):
        status = os.stat(sources[name])
        digest.update(f"{sources[name]}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    folder = top / digest.hexdigest()[:16]
    if not folder.is_dir():
        _announce_compilation()
    if not _is_usable(folder):
        return None
    with suppress(OSError):  # another process has just removed the folder
        if time.time() - folder.stat().st_mtime > _DAY:  # its timestamp records the last day of use
            os.utime(folder)
            _remove_unused(top)
    return folder


@cache
def _announce_compilation() -> None:
    announce(
        "compiling numeric kernels that no run has used before (up to a minute of processor time); later "
        "runs load them"
    )


def _is_usable(folder: Path) -> bool:
    """Create a folder if needed. Return whether we can write to it, own it, and no other user can write."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return False
        if not os.access(folder, os.W_OK | os.X_OK) or shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            return False
    except OSError:
        return False
    return True


class _Source(NamedTuple):
    path: str
    imported: list[str]  # modules of the package that are imported at the top level


@cache
def _source(module: str) -> _Source | None:
    """Return the source file of a module of this package, or None if there is none."""
    package, _, inside = module.partition(".")
    path = f"{_PACKAGE_FOLDER}/{inside.replace('.', '/')}.py"
    if package != _PACKAGE_FOLDER.name or not os.path.isfile(path):
        return None
    imported = []
    for source, names in _IMPORT.findall(Path(path).read_text(encoding="utf-8")):
        modules = [f"{source}.{name}" for name in re.findall(r"\w+", names)]
        imported += [name for name in modules if _source(name) is not None] or [source]
    return _Source(path, imported)


def _remove_unused(top: Path) -> None:
    """Delete the cache folders that have been unused for more than MAX_UNUSED_DAYS."""
    for other in top.iterdir():
        with suppress(OSError):  # another process has just removed the folder
            if time.time() - other.stat().st_mtime > MAX_UNUSED_DAYS * _DAY:
                shutil.rmtree(other, ignore_errors=True)
