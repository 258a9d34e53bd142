"""The commands' kernels are compiled all at once, when the first of them is needed.

Otherwise each command would compile what it is the first to need. `kernel_signatures.txt` lists what commands
compile, longest first; as many processes as there are processors take one after the other from it. Where a
program uses the library, and for all that is not in the list, each kernel is compiled at its first call.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

SIGNATURES = Path(__file__).with_name("kernel_signatures.txt")
MOST_PROCESSES = 4  # the longest kernel takes a fifth of all the time
_SECONDS = 40  # of one process, on a processor of 2024
_SIGNATURE = re.compile(r"([\w.]+)\.(\w+)\((.*)\)")
_TYPE = re.compile(r"(const )?(\w+)(?:\[(\d)\])?")
_SHARE = "import sys; sys.path[:] = sys.argv[1:]; import spinimpute.compilation as c; c.compile_share()"


def _say_nothing(_: str) -> None:
    pass


@dataclass
class _Command:
    """running: whether it is one of ours that has compiled nothing yet."""

    running: bool = False
    say: Callable[[str], None] = _say_nothing


_command = _Command()


def start_command(say: Callable[[str], None]) -> None:
    """Begin a command: all kernels are compiled when the first one is missing.

    Parameters
    ----------
    say : callable
        Given a line for the user when kernels are compiled.
    """
    _command.running, _command.say = True, say


def compile_quietly() -> None:
    """Say nothing when the command has to compile."""
    _command.say = _say_nothing


def before_compiling(signature: str, name: str) -> bool:
    """Compile all kernels of a command when the first one is missing.

    Parameters
    ----------
    signature : str
        Of the missing kernel, as of `signature_text`.
    name : str
        Of its file.

    Returns
    -------
    bool
        Whether the kernel may be there now.
    """
    from spinimpute.devices import default_threads
    from spinimpute.kernel_files import kernel_files

    if not _command.running:
        return False
    _command.running = False
    files = kernel_files()
    files.check_room()
    if files.unwritable:
        _command.say(
            f"compiling for this processor, again in each run: nothing can be kept in {files.folder} "
            f"({files.unwritable}); SPINIMPUTE_CACHE chooses another folder"
        )
        return False
    if signature not in signatures():
        _command.say("compiling for this processor, once ...")
        return False
    processes = min(default_threads(), MOST_PROCESSES)
    _command.say(f"compiling for this processor, once (about {_SECONDS // processes} s) ...")
    with files.alone():
        if files.read(name) is None:  # else another command has compiled all in the meantime
            compile_all(processes)
    return True


def compile_all(processes: int) -> bool:
    """Compile all kernels in the list that are not there yet.

    Parameters
    ----------
    processes : int
        How many compile at the same time.

    Returns
    -------
    bool
        Whether all were compiled and kept.
    """
    import subprocess

    # each process takes the number of its next kernel from the pipe: reading a byte takes it from all others
    numbers, put = os.pipe()
    os.write(put, bytes(range(len(signatures()))))
    os.close(put)
    command = [sys.executable, "-c", _SHARE, *sys.path]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            none = subprocess.DEVNULL
            started.append(subprocess.Popen(command, stdin=numbers, stdout=none, stderr=none))
        statuses = [process.wait() for process in started]
        return not any(statuses)
    finally:
        os.close(numbers)
        for process in started:
            process.kill()
            process.wait()


def compile_share() -> None:
    """Compile the kernels whose numbers come through standard input, as one of the processes."""
    from spinimpute.kernel_files import kernel_files

    while number := os.read(sys.stdin.fileno(), 1):
        compile_signature(signatures()[number[0]])
        if kernel_files().unwritable:
            sys.exit(1)


@cache
def signatures() -> list[str]:
    """The lines of the list, as `signature_text` gives them."""
    return SIGNATURES.read_text().splitlines()


def signature_text(kernel: Any, argument_types: tuple[Any, ...]) -> str:
    """A kernel and its arguments as in the list.

    Parameters
    ----------
    kernel : numba dispatcher
        As `kernels.kernel` makes it.
    argument_types : tuple of numba types
        Of a call.

    Returns
    -------
    str
        Such as "module.name(uint8[2], int64)"; uint8[2] is a contiguous array with two axes, a const one
        cannot be written to.
    """
    from numba import types

    def text(kind: Any) -> str:
        if isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned:
            return f"{'' if kind.mutable else 'const '}{kind.dtype}[{kind.ndim}]"
        return str(kind)

    function = kernel.py_func
    return f"{function.__module__}.{function.__qualname__}({', '.join(map(text, argument_types))})"


def compile_signature(text: str) -> None:
    """Compile a kernel as a line of the list says, unless it is compiled already."""
    import numpy as np
    from numba import from_dtype, types

    signature = _SIGNATURE.fullmatch(text)
    assert signature is not None, text
    module, name, arguments = signature.groups()
    kinds = []
    for argument in arguments.split(", "):
        kind = _TYPE.fullmatch(argument)
        assert kind is not None, text
        dtype = from_dtype(np.dtype(kind[2]))
        kinds.append(types.Array(dtype, int(kind[3]), "C", readonly=bool(kind[1])) if kind[3] else dtype)
    getattr(import_module(module), name).compile(tuple(kinds))
