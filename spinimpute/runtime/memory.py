"""Memory of this process: read the sizes that users write, measure memory use, and enforce a budget.

The budget is the user's option `--max-memory` (`Resources.max_memory` in Python).
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spinimpute.runtime.errors import InputError, argument

COMPILED = 160e6  # bytes that compiled kernels and their buffers add once phasing and imputing have started


def parse_size(text: str) -> int:
    """Return the bytes of a size such as "800M", "2G", "1.5GB" or "3000000". Raises InputError."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if not size:
        raise InputError(
            "argument", f"{text!r} is not an amount of memory; give a number and K, M, G or T, such as 2G"
        )
    return size


def format_size(size: float) -> str:
    """Return a number of bytes as text for messages, such as "530 MB"."""
    return f"{size / 2**20:.0f} MB"


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def resident_bytes(peak: bool = False) -> int:
    """Return the current resident memory of this process in bytes, or its peak. Outside Linux: the peak."""
    name = "VmHWM:" if peak else "VmRSS:"
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return int(peak_memory_mb() * 2**20)


class TooLittleMemory(InputError):
    """The memory budget was exceeded."""


@contextmanager
def within_budget(budget: int | None, what: str, alternative: str = "") -> Iterator[None]:
    """Raise TooLittleMemory if the `with` block pushes the peak memory above `budget` bytes (None: no limit).

    `what` names the work of the block in the message. `alternative` replaces the advice to impute chunks.
    A block that does not raise the peak of the process passes, even if that peak is above the budget.
    """
    before = 0 if budget is None else resident_bytes(peak=True)
    yield
    if budget is not None and (peak := resident_bytes(peak=True)) > max(budget, before):
        where = f"({argument('region')} with {argument('buffer_cM')})"
        chunks = f"or impute chunks {where} of the output of 'spinimpute phase' or 'convert'"
        raise TooLittleMemory(
            "memory",
            f"{format_size(budget)} of memory are too little: {format_size(peak)} are needed for {what}. "
            f"Give more, {alternative or chunks}",
        )


def remedy(threads: int) -> str:
    """Return the advice of a message about a budget that is too small."""
    fewer = "fewer threads, " if threads > 1 else ""
    return f"Give more, {fewer}or impute chunks ({argument('region')} with {argument('buffer_cM')})"


def fewer_samples() -> str:
    """Return the advice of a message about samples that need too much memory."""
    return f"or impute fewer samples at a time (none depends on the others), or chunks ({argument('region')})"
