"""`kernel`: numba's njit for functions that run for long, compiled once for each version of the package.

Numba keeps compiled functions on disk and compiles anew when the function's own file changes. A constant or a
function from another module is compiled in, and goes unnoticed when that one changes, as with an update of
the package. Here the key of what is kept holds a hash of all sources.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

# sums may be contracted to fused multiply-adds and zeros have no sign; the order of sums stays
FAST = frozenset({"contract", "nsz"})


@cache
def source_hash() -> str:
    """Of the package's Python files."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_announcements: list[Callable[[], None]] = []


def announce_compilation(announce: Callable[[], None]) -> None:
    """Call this once, before the first function that has to be compiled."""
    _announcements[:] = [announce]


class _PackageCache(FunctionCache):
    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """None if it has to be compiled.

        Numba would first set up all that compiling needs, and load scipy: a fifth of a second that a compiled
        function has no use for. The compiler does it by itself when it is called.
        """
        found = None
        rtsys.initialize(target_context)  # of arrays that are made inside
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            while _announcements:
                _announcements.pop()()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # a full disk: it is compiled anew by each process
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), source_hash())


def kernel(*, fast: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, which then runs without the interpreter's lock.

    fast: see `FAST`; inline: into each of its callers.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        dispatcher = njit(
            nogil=True, fastmath=set(FAST) if fast else False, inline="always" if inline else "never"
        )(function)
        # where nothing can be kept, in a container without a home, say, it is compiled anew by each process
        with contextlib.suppress(RuntimeError):
            dispatcher._cache = _PackageCache(function)
        return dispatcher

    return compile_lazily
