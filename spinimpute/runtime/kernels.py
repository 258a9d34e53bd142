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
from typing import Any

import numba

from spinimpute.runtime.progress import announce

_PACKAGE_FOLDER = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from (spinimpute[\w.]*) import (\([^)]*\)|.+)", re.MULTILINE)

# Sums may be contracted to fused multiply-adds, and zeros have no sign. The order of sums stays.
FAST = frozenset({"contract", "nsz"})
LEAST_ROOM = 50 * 2**20  # bytes: all kernels take 10 MB
MOST_DAYS = 60  # that the folder of another version is kept without being used
_DAY = 24 * 3600


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function at its first call. It runs without the interpreter's lock."""

    def compile_lazily(function: Callable[..., Any]) -> Any:
        folder = folder_of(function.__module__)
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
    """Return the folder of all compiled kernels, or None if nothing can be kept.

    Compiled kernels are programs: a folder that another user owns or may write to is not used.
    """
    top = user_cache() / "kernels"
    if not _is_usable(top):
        announce(
            "compiling the numeric kernels (about a minute) again in each run: nothing can be kept in "
            f"{top}; SPINIMPUTE_CACHE chooses another folder"
        )
        return None
    return top


@cache
def folder_of(module: str) -> Path | None:
    """Return the folder for the kernels of a module of these sources, or None if nothing can be kept."""
    top = cache_folder()
    if top is None or not os.path.isfile(_source_of(module)):  # such as a module of tests
        return None
    folder = top / _version_of(module)
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
        if not os.access(folder, os.W_OK | os.X_OK) or shutil.disk_usage(folder).free < LEAST_ROOM:
            return False
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


def _version_of(module: str) -> str:
    """Digest of the sources of a module and of all modules of the package that it imports."""
    package, _, _ = module.partition(".")
    found, todo = set[str](), [module]
    while todo:
        name = todo.pop()
        if name not in found and name.startswith(f"{package}."):
            found.add(name)
            todo += _imported(name)
    digest = hashlib.sha256(f"{sys.version}\0{numba.__version__}".encode())
    for name in sorted(found):
        path = _source_of(name)
        status = os.stat(path)
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _imported(module: str) -> list[str]:
    """Names of modules that a module of this package imports at its top level."""
    found = []
    for source, names in _IMPORT.findall(Path(_source_of(module)).read_text(encoding="utf-8")):
        inside = [f"{source}.{name}" for name in re.findall(r"\w+", names)]
        modules = [name for name in inside if os.path.isfile(_source_of(name))]
        found += modules or [source]
    return [name for name in found if os.path.isfile(_source_of(name))]


def _source_of(module: str) -> str:
    return f"{_PACKAGE_FOLDER}/{module.partition('.')[2].replace('.', '/')}.py"


def _remove_unused(top: Path) -> None:
    """Remove the folders of versions that nobody has used for a while."""
    for other in top.iterdir():
        with suppress(OSError):  # another process removes it
            if time.time() - other.stat().st_mtime > MOST_DAYS * _DAY:
                shutil.rmtree(other, ignore_errors=True)
