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
from textwrap import shorten
from typing import Any

SIGNATURES = Path(__file__).with_name("kernel_signatures.txt")
MOST_PROCESSES = 4  # the longest kernel takes a fifth of all the time
MOST_LETTERS = 500  # of an error, in its one line
_SECONDS = 40  # of one process, on a processor of 2024
_SIGNATURE = re.compile(r"([\w.]+)\.(\w+)\((.*)\)")
_TYPE = re.compile(r"(const )?(\w+)(?:\[(\d)\])?")
_NAMED_TUPLE = re.compile(r"([\w.]+)\.(\w+)<(.*)>")
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
            failure = compile_all(processes)
            if failure:
                _command.say(
                    f"some could not be compiled in advance and will be when they are needed ({failure})"
                )
    return True


def compile_all(processes: int) -> str:
    """Compile all kernels in the list that are not there yet.

    Parameters
    ----------
    processes : int
        How many compile at the same time.

    Returns
    -------
    str
        Why a process could not compile or keep all, in one line; empty if each could.
    """
    import subprocess

    # each process takes the number of its next kernel from the pipe: reading a byte takes it from all others
    numbers, put = os.pipe()
    os.write(put, bytes(range(len(signatures()))))
    os.close(put)
    command = [sys.executable, "-c", _SHARE, *sys.path]
    started: list[subprocess.Popen[bytes]] = []
    errors, put = os.pipe()
    with open(errors, errors="replace") as read_errors:
        try:
            with open(put, "w") as write_errors:  # closed here, so that the pipe ends with the processes
                for _ in range(processes):
                    none = subprocess.DEVNULL
                    started.append(subprocess.Popen(command, stdin=numbers, stdout=none, stderr=write_errors))
            lines = read_errors.read().splitlines()
            failed = [status for process in started if (status := process.wait())]
        finally:
            os.close(numbers)
            for process in started:
                process.kill()
                process.wait()
    if not failed:
        return ""
    return next((line for line in reversed(lines) if line), f"a process ended with status {failed[0]}")


def compile_share() -> None:
    """Compile the kernels whose numbers come through standard input, as one of the processes."""
    from spinimpute.kernel_files import kernel_files

    failed = False
    while number := os.read(sys.stdin.fileno(), 1):
        line = signatures()[number[0]]
        try:
            kernel, kinds = parse_signature(line)
            kernel.compile(kinds)
        except Exception as error:
            failed = True
            reason = shorten(f"{line.partition('(')[0]}: {type(error).__name__}: {error}", MOST_LETTERS)
            print(reason, file=sys.stderr, flush=True)
        if reason := kernel_files().unwritable:
            sys.exit(f"nothing can be kept: {reason}")
    sys.exit(failed)


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
        cannot be written to, and "module.Name<int64[1]; int32[1]>" is a named tuple of two. Other arrays, and
        values that are compiled in, are as numba has them: the list does not hold them, see
        `parse_signature`.
    """
    from numba import types

    def text(kind: Any) -> str:
        if isinstance(kind, types.NamedTuple):
            named = kind.instance_class
            return f"{named.__module__}.{named.__qualname__}<{'; '.join(map(text, kind.types))}>"
        if isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned:
            return f"{'' if kind.mutable else 'const '}{kind.dtype}[{kind.ndim}]"
        return str(kind)

    function = kernel.py_func
    return f"{function.__module__}.{function.__qualname__}({', '.join(map(text, argument_types))})"


def parse_signature(line: str) -> tuple[Any, tuple[Any, ...]]:
    """A kernel of numba, and the types of its arguments, as a line of the list gives them.

    Raises
    ------
    ValueError
        The line is of another form, or there is no such kernel.
    """
    signature = _SIGNATURE.fullmatch(line)
    if signature is None:
        raise ValueError(f"{line}: not a kernel with its arguments")
    module, name, arguments = signature.groups()
    try:
        kinds = tuple(_parse_type(argument) for argument in arguments.split(", "))
        kernel = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{line}: {error}") from error
    if not hasattr(kernel, "py_func"):
        raise ValueError(f"{line}: {name} is not a kernel")
    return kernel, kinds


def _parse_type(argument: str) -> Any:
    """The type of an argument, as `signature_text` writes it. Raises ValueError, or what importing raises."""
    import numpy as np
    from numba import from_dtype, types

    if parts := _NAMED_TUPLE.fullmatch(argument):
        kinds = [_parse_type(part) for part in parts[3].split("; ")]
        return types.NamedTuple(kinds, getattr(import_module(parts[1]), parts[2]))
    kind = _TYPE.fullmatch(argument)
    try:
        dtype = from_dtype(np.dtype(kind[2])) if kind else None
    except TypeError:
        dtype = None
    if kind is None or dtype is None:
        raise ValueError(f"{argument} is no number and no contiguous array")
    return types.Array(dtype, int(kind[3]), "C", readonly=bool(kind[1])) if kind[3] else dtype
