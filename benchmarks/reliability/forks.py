"""Run functions in forked children under limits. Slow imports are done once, in the parent."""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

SAID_BYTES = 200_000  # of what a child says, at most
FILES = ("out.txt", "err.txt", "fault.txt", "start.txt")
_UNHANDLED = 1


@dataclass(frozen=True)
class Limits:
    """Limits of a child.

    Attributes
    ----------
    seconds : int
        Processor time. The limit of wall-clock time is twice as high.
    memory : int
        Bytes of memory in use, beyond those at the start. Four times as many may be requested.
    file_bytes : int
        Size of any file that it writes.
    """

    seconds: int = 15
    memory: int = 2**30
    file_bytes: int = 2**28


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes
    ----------
    status : int
        Exit status, or the negative number of a signal.
    out, err, fault : str
        Its standard output and standard error, and where a signal interrupted it.
    seconds : float
        Processor time, or wall-clock time if that exceeded its limit.
    memory : int
        Peak number of bytes in use, beyond those at the start.
    """

    status: int
    out: str
    err: str
    fault: str
    seconds: float
    memory: int


def run_forked(
    function: Callable[[], None], folder: Path, limits: Limits, place: Path | None = None
) -> Ended:
    """Run a function in a forked child.

    Parameters
    ----------
    function : callable
        May raise SystemExit.
    folder : Path
        Folder for the child's output: the FILES.
    limits : Limits
        Limits of the child.
    place : Path or None
        Working folder of the child; by default `folder`.

    Returns
    -------
    Ended
        The result, when the child has ended or was killed.
    """
    if threading.active_count() > 1:
        raise RuntimeError(f"threads are running, children could wait for them: {threading.enumerate()}")
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _be_child(function, folder, limits, place or folder)
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if not poll.poll(2_000 * limits.seconds):
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    os.close(ended)
    _, status, usage = os.wait4(child, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it may have left running
    clock = time.perf_counter() - started
    seconds = usage.ru_utime + usage.ru_stime
    said = [_text(folder / name) for name in ("out.txt", "err.txt", "fault.txt")]
    return Ended(
        os.waitstatus_to_exitcode(status),
        *said,
        clock if clock >= 2 * limits.seconds else seconds,
        max(0, 1024 * usage.ru_maxrss - int(_text(folder / "start.txt") or 0)),
    )


def _be_child(function: Callable[[], None], folder: Path, limits: Limits, place: Path) -> NoReturn:
    """Run the function and end: nothing of the parent's is finished twice."""
    status = _UNHANDLED
    try:
        os.setsid()
        streams = [
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out.txt", "err.txt")
        ]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
            os.close(stream)
        fault = os.open(folder / "fault.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        faulthandler.enable(fault)
        faulthandler.register(signal.SIGXCPU, fault, chain=True)
        os.chdir(place)
        (folder / "start.txt").write_text(
            str(_resident())
        )  # less than the parent's: files are not mapped yet
        space = _virtual() + 4 * limits.memory
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        status = _status_of(function)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _status_of(function: Callable[[], None]) -> int:
    """As the interpreter would exit."""
    try:
        function()
    except SystemExit as exited:
        if exited.code is None or isinstance(exited.code, int):
            return exited.code or 0
        print(exited.code, file=sys.stderr)
        return _UNHANDLED
    return 0


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SAID_BYTES).decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


def _virtual() -> int:
    return _pages(0)


def _resident() -> int:
    return _pages(1)


def _pages(field: int) -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[field]) * resource.getpagesize()
