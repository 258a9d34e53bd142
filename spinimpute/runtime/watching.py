"""A command runs in a process of its own, and this one watches over it.

Libraries that read files end the process on some damaged ones, without a word. Then the watcher says which
files were being read, and removes temporary files. What the libraries print of their own does not reach the
user: the command's errors say it in their words.

Not for Windows, which cannot fork.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from spinimpute.runtime.errors import printable
from spinimpute.runtime.watched import (
    BEGINS,
    ENDING,
    FOLDER_SUFFIX,
    LOG,
    MAPPED,
    READING,
    SUFFIX,
    TEMPORARY,
    TEMPORARY_FOLDER,
    log_line,
    watched_through,
)

BAD_INPUT = 2
PATIENCE = 20.0  # seconds for a process to clean up when it is to end
LIBRARIES = (b"[E::", b"[W::", b"[M::", b"[D::", b"[I::")  # htslib's lines begin so
PIECE = 65_536
REMEMBERED = 2_000  # bytes
MOMENT = 0.001  # seconds, of a process that ends
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
DEADLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # others may be handled, and the command goes on
SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def start_watched() -> None:
    """Return in a new process, which is watched; this one exits as that one does.

    Call it before threads start: a fork copies one.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a standard stream that was closed must not become one of the pipes
    os.close(number)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    told, telling = os.pipe()
    printed, printing = os.pipe()
    watching, alive = os.pipe()  # its other end closes when this process dies
    process = os.fork()
    if process:
        for pipe in (telling, printing, watching):
            os.close(pipe)
        os._exit(_Watch(process, told, printed).until_it_ends())
    for pipe in (told, printed, alive):
        os.close(pipe)
    watched_through(telling)
    _print_apart(printing)
    _end_with_watcher(watching)


def _print_apart(printing: int) -> None:
    """Python prints where it did; what libraries print, to file descriptor 2, goes to the watcher."""
    if sys.stderr is not None:
        own = os.dup(2)
        sys.stderr = open(  # noqa: SIM115  (it stays open to the end)
            own, "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace"
        )
    os.dup2(printing, 2)
    os.close(printing)


def _end_with_watcher(watching: int) -> None:
    """A watcher that is killed cannot pass on signals, nor say how the command ends."""

    def watch() -> None:
        os.read(watching, 1)  # returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class _Watch:
    """Watches over a process.

    Parameters
    ----------
    process : int
        Its number.
    told, printed : int
        Pipes with what it tells (`spinimpute.runtime.watched`), and what its libraries print.
    """

    def __init__(self, process: int, told: int, printed: int) -> None:
        self._process, self._hearing = process, told
        self._pipes: dict[int, Callable[[bytes], None]] = {told: self._hear, printed: self._show}
        self._told, self._printed = b"", b""
        self._reading = False  # whether a library has read since something was printed
        self._hidden = b""  # the last that was not shown
        kinds = (READING, MAPPED, TEMPORARY, TEMPORARY_FOLDER, ENDING, LOG)
        self._open: dict[str, list[str]] = {kind: [] for kind in kinds}
        self._ended = 0  # its number, once it has ended
        self._passed_on: set[int] = set()  # signals
        self._asked: tuple[int, float] | None = None  # the first to end, and when it came

    def until_it_ends(self) -> int:
        """Exit status for this process."""
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, self._pass_on)
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ)
            status = None
            while status is None:
                # its end closes the first pipe; the second may be open in processes that it started
                self._read(selector, 0.5 if self._hearing in selector.get_map() else MOMENT)
                self._ended, found = os.waitpid(self._process, os.WNOHANG)
                status = found if self._ended else None
                if self._asked and status is None and time.monotonic() - self._asked[1] > PATIENCE:
                    os.kill(self._process, signal.SIGKILL)
            while self._read(selector, 0):  # what is left in the pipes
                pass
        self._show(b"\n" if self._printed else b"")
        return self._judged(os.waitstatus_to_exitcode(status))

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self._passed_on.add(number)
        if number in DEADLY:
            self._asked = self._asked or (number, time.monotonic())
        if not self._ended:
            with suppress(ProcessLookupError):  # it has ended this moment
                os.kill(self._process, number)

    def _read(self, selector: selectors.BaseSelector, seconds: float) -> bool:
        """Whether there was something to read."""
        # what is told comes first: it says whether what is printed then is of a library that reads
        ready = sorted(selector.select(seconds), key=lambda each: each[0].fd != self._hearing)
        for key, _ in ready:
            piece = os.read(key.fd, PIECE)
            if piece:
                self._pipes[key.fd](piece)
            else:
                selector.unregister(key.fd)
        if not selector.get_map():
            time.sleep(MOMENT)  # both pipes are closed: it ends any moment
        return bool(ready)

    def _hear(self, piece: bytes) -> None:
        *lines, self._told = (self._told + piece).split(b"\n")
        for line in lines:
            head, _, what = line.decode(errors="surrogateescape").partition("\t")
            now = self._open.setdefault(head[1:], [])
            if head[0] == BEGINS:
                now.append(what)
                self._reading |= head[1:] == READING
            elif what in now:
                now.remove(what)

    def _show(self, piece: bytes) -> None:
        """Pass on what is printed past Python, but for what libraries print that read files.

        They quote headers and records, whole and of any length.
        """
        if self._reading:
            self._printed, kept = b"", []
            self._hidden = (self._hidden + piece)[-REMEMBERED:]
            self._reading = bool(self._open[READING])
        else:
            *lines, rest = (self._printed + piece).split(b"\n")
            self._printed = rest[:PIECE]
            kept = [line + b"\n" for line in lines if not line.startswith(LIBRARIES)]
        if kept:
            self._say(b"".join(kept))

    def _say(self, text: bytes) -> None:
        """On stderr, and in the log of the command, if it has one."""
        _write(text)
        lines = text.decode(errors="backslashreplace").splitlines()
        for path in self._open[LOG]:
            with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(log_line("\n".join(map(printable, lines))))

    def _judged(self, code: int) -> int:
        if code >= 0 and (self._open[ENDING] or code == 0):
            return code
        _remove(self._open[TEMPORARY], self._open[TEMPORARY_FOLDER])
        by = self._asked[0] if self._asked and code == -signal.SIGKILL else -code
        if by in self._passed_on:
            number = signal.Signals(by)
            self._say(f"spinimpute: {SAID.get(number, f'ended by {number.name}')}\n".encode())
            return 128 + number
        if self._hidden and not self._damaged(code):
            said = printable(self._hidden.decode(errors="backslashreplace"))
            self._say(f"spinimpute: a library said: {said}\n".encode(errors="backslashreplace"))
        self._say(f"spinimpute: error: {self._why(code)}\n".encode(errors="backslashreplace"))
        if self._damaged(code):
            return BAD_INPUT
        return 128 - code if code < 0 else code

    def _damaged(self, code: int) -> list[str]:
        """Files of which one is probably damaged, if that is why the process ended."""
        if code == -signal.SIGBUS:
            return self._open[READING] + self._open[MAPPED]
        of_libraries = code > 0 or -code in (signal.SIGSEGV, signal.SIGABRT)
        return self._open[READING] if of_libraries else []

    def _why(self, code: int) -> str:
        files = " and ".join(dict.fromkeys(self._damaged(code)))
        if code == -signal.SIGKILL:
            return (
                "the process was killed, perhaps because memory ran out: give the job more, or 'impute' less "
                "with --max-memory or --threads"
            )
        if code == -signal.SIGXCPU:
            return "the process was ended because its time on the processor was over: give the job more"
        end = f"with {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        if not files:
            return f"the process ended {end}: this is a defect, please report it"
        if code == -signal.SIGBUS:
            return f"{files}: a file became shorter while it was read, or its disk failed; run it again"
        return (
            f"{files}: a file is damaged such that the library that reads it ended {end}. "
            "Check it (bcftools view, bcftools index -f), or get it again"
        )


def _remove(files: list[str], folders: list[str]) -> None:
    import shutil  # not needed in most runs

    for path in files:
        if path.endswith(SUFFIX):
            with suppress(OSError):  # it is gone, or the disk is
                os.unlink(path)
    for path in folders:
        if path.endswith(FOLDER_SUFFIX):
            shutil.rmtree(path, ignore_errors=True)


def _write(text: bytes) -> None:
    with suppress(OSError):  # stderr is closed or full: the exit status says enough
        os.write(2, text)
