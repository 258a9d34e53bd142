"""Memory of this process: sizes as users write them, what is in use, and budgets."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spinimpute.runtime.errors import InputError, argument

COMPILED = 160e6  # bytes of compiled functions and buffers that come only with phasing and imputing


def parse_size(text: str) -> int:
    """Bytes of a size as users write it.

    Parameters
    ----------
    text : str
        Such as "800M", "2G", "1.5GB" or "3000000".

    Returns
    -------
    int
        Bytes, more than 0.

    Raises
    ------
    InputError
        It is anything else.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if not size:
        raise InputError(
            "content", f"no amount of memory: {text!r}; give a number and K, M, G or T, such as 2G"
        )
    return size


def shown_size(size: float) -> str:
    """A number of bytes for messages."""
    return f"{size / 2**20:.0f} MB"


def peak_memory_mb() -> float:
    """The process's largest resident memory so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def resident_bytes(peak: bool = False) -> int:
    """Memory of this process.

    Parameters
    ----------
    peak : bool
        The largest so far, not what is used now.

    Returns
    -------
    int
        Bytes. If the system does not report what is used now (outside of Linux), the largest so far.
    """
    name = "VmHWM:" if peak else "VmRSS:"
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return int(peak_memory_mb() * 2**20)


class TooLittleMemory(InputError):
    """What was done took more memory than a budget has."""


@contextmanager
def within_budget(budget: int | None, what: str, instead: str = "") -> Iterator[None]:
    """Check that what is done inside keeps a budget.

    Parameters
    ----------
    budget : int or None
        Bytes; None for no limit.
    what : str
        What is done inside, for the message.
    instead : str
        What can be done other than to give more, for the message.

    Raises
    ------
    TooLittleMemory
        Memory was above the budget inside, and more than ever before.
    """
    before = 0 if budget is None else resident_bytes(peak=True)
    yield
    if budget is not None and (peak := resident_bytes(peak=True)) > max(budget, before):
        raise TooLittleMemory(
            "memory",
            f"{shown_size(budget)} of memory are too little: {shown_size(peak)} are needed for {what}. Give "
            f"more, {instead or in_chunks()}",
        )


def remedy(threads: int) -> str:
    """What to do where a budget is too small."""
    fewer = "fewer threads, " if threads > 1 else ""
    return f"Give more, {fewer}or impute chunks ({argument('region')} with {argument('buffer_cM')})"


def in_chunks() -> str:
    """What to do where typed genotypes need too much memory."""
    return (
        f"or impute chunks ({argument('region')} with {argument('buffer_cM')}) of what 'spinimpute phase' or "
        "'convert' wrote"
    )


def fewer_samples() -> str:
    """What to do where the samples need too much memory."""
    return f"or impute fewer samples at a time (none depends on the others), or chunks ({argument('region')})"
