"""`kernel`: numba's njit for the hot loops, cached for the user.

Numba recompiles a function when its own file changes, but misses changes of constants and kernels that the
file imports. So the cache has a folder for each version of a module and of the modules that it imports.
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

# Sums may be contracted to fused multiply-adds, and zeros have no sign. The order of sums stays.
FAST = frozenset({"contract", "nsz"})
MIN_FREE_BYTES = 50 * 2**20  # bytes: all kernels take 10 MB
MAX_UNUSED_DAYS = 60  # that the folder of another version is kept without being used
_DAY = 24 * 3600


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function at its first call. It runs without the interpreter's lock."""

    def compile_lazily(function: Callable[..., Any]) -> Any:
        folder = folder_of(function.__module__)
        previous, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        try:  # numba chooses the folder of a function when it is decorated
            return numba.njit(
                nogil=True,
                cache=folder is not None,
                fastmath=set(FAST) if fast else False,
                inline="always" if inline else "never",
            )(function)
        finally:
            numba.config.CACHE_DIR = previous

    return compile_lazily


@cache
def cache_folder() -> Path | None:
    """Return the folder of all compiled kernels, or None if nothing can be kept.

    It is in SPINIMPUTE_CACHE or in the platform's folder for caches. Compiled kernels are programs: a folder
    that another user owns or may write to is not used.
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
    if _is_usable(cache / "kernels"):
        return cache / "kernels"
    announce(
        "compiling the numeric kernels (about a minute) again in each run: nothing can be kept in "
        f"{cache / 'kernels'}; SPINIMPUTE_CACHE chooses another folder"
    )
    return None


@cache
def folder_of(module: str) -> Path | None:
    """Return the folder for the kernels of a module of these sources, or None if nothing can be kept.

    Its name is a digest of the sources of the module and of all modules of the package that it imports.
    """
    top = cache_folder()
    if top is None or _source(module) is None:  # such as a module of tests
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
    with suppress(OSError):  # another process removes it
        if time.time() - folder.stat().st_mtime > _DAY:
            os.utime(folder)
            _remove_unused(top)
    return folder


@cache
def _announce_compilation() -> None:
    announce(
        "compiling numeric kernels for the first time (up to a minute of processor time); later runs start "
        "at once"
    )


def _is_usable(folder: Path) -> bool:
    """Make a folder; return whether it is this user's alone and can be written to."""
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
    """Return the source of a module of the package; None if there is no such file."""
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
    """Remove the folders of versions that nobody has used for a while."""
    for other in top.iterdir():
        with suppress(OSError):  # another process removes it
            if time.time() - other.stat().st_mtime > MAX_UNUSED_DAYS * _DAY:
                shutil.rmtree(other, ignore_errors=True)
