"""The process that watches over a command: it explains a crash and removes temporary files.

Libraries that read files end the process on some damaged files, and the system does when memory runs out. A
command therefore runs in a child process, which sends notices of its files to its parent (the notices of
`spinimpute.runtime.open_files`). When the child is killed, by a crash or by the user, the parent removes its
temporary files and prints one message.

What libraries print while they read files is hidden: htslib quotes headers and records of any length, and the
command's own errors say what is wrong.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from spinimpute.runtime.errors import printable
from spinimpute.runtime.open_files import FOLDER_SUFFIX, SUFFIX, listeners

BAD_INPUT = 2
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
VERBS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
READ_BYTES = 65_536  # bytes that are read from a pipe
MAX_HIDDEN_BYTES = 2_000  # bytes of what libraries print, shown after a crash that no file explains
CLEAR_LINE = b"\r\x1b[K\x1b[?25h"  # removes a progress bar, which hides the cursor

_notices = -1  # the pipe to the parent process
_sending = threading.Lock()  # longer notices of two threads could mix


def start_watched() -> None:
    """Continue in a child process; this process waits, and exits with the child's status.

    Threads must not have been started: a fork copies only one.
    """
    global _notices
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a pipe must not become a standard stream that was closed
    os.close(number)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    notices, _notices = os.pipe()
    printed, printing = os.pipe()
    parent_lives, kept_open = os.pipe()  # closed by the system when the parent dies
    child = os.fork()
    if child:
        for pipe in (_notices, printing, parent_lives):
            os.close(pipe)
        os._exit(_Watcher(child, notices, printed).wait())
    for pipe in (notices, printed, kept_open):
        os.close(pipe)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # signals end this process at once: the parent cleans up
    if sys.stderr is not None:  # Python prints where it did, and libraries to the parent
        sys.stderr = open(  # noqa: SIM115  (it stays open to the end)
            os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace"
        )
    os.dup2(printing, 2)
    os.close(printing)
    files = _Files()
    listeners.extend([notify, files.change])
    threading.Thread(target=_end_with_parent, args=(parent_lives, files), daemon=True).start()


def notify(change: str, use: str, name: str) -> None:
    """Send a notice to the parent process, if there is one: of a file, a log, or the exit status."""
    if _notices >= 0:
        with _sending, suppress(OSError):  # the parent is dead
            os.write(_notices, json.dumps([change, use, name]).encode() + b"\n")


def _end_with_parent(parent_lives: int, files: _Files) -> None:
    os.read(parent_lives, 1)  # returns when the parent is dead
    files.remove_temporary()
    os._exit(128 + signal.SIGTERM)


def log_lines(text: str) -> str:
    """A text as lines of a log, with the time."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(f"{now} {line}\n" for line in text.splitlines())


class _Files:
    """The names of notices by their use: files that are open, logs, and the exit status."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def __getitem__(self, use: str) -> list[str]:
        return self._names.setdefault(use, [])

    def change(self, change: str, use: str, name: str) -> None:
        if change == "opened":
            self[use].append(name)
        elif name in self[use]:
            self[use].remove(name)

    def remove_temporary(self) -> None:
        import shutil  # not needed in most runs

        for path in self["temporary"]:
            if path.endswith(FOLDER_SUFFIX):
                shutil.rmtree(path, ignore_errors=True)
            elif path.endswith(SUFFIX):
                with suppress(OSError):  # the file, or the disk, is gone
                    os.unlink(path)


class _Watcher:
    """Waits for a child process, given the pipes of its notices and of what its libraries print."""

    def __init__(self, child: int, notices: int, printed: int) -> None:
        self._child, self._notices = child, notices
        self._pipes = [notices, printed]
        self._files = _Files()
        self._notice = b""  # the beginning of a notice that is not complete
        self._reads_files = False  # whether a library has read a file since something was printed
        self._hidden = b""

    def wait(self) -> int:
        """Exit status of this process, after the child's end."""
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self._forward)
        ended = 0
        while not ended:
            self._read(0.5)
            closed = self._notices not in self._pipes  # the child's end closes this pipe
            ended, status = os.waitpid(self._child, 0 if closed else os.WNOHANG)
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN)
        while self._read(0):
            pass
        return self._explain(os.waitstatus_to_exitcode(status))

    def _forward(self, number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._child, number)

    def _read(self, seconds: float) -> bool:
        """Whether there was something to read within some seconds."""
        ready, _, _ = select.select(self._pipes, [], [], seconds)
        for pipe in ready:  # notices come first: they tell whether the library that prints reads a file
            read = os.read(pipe, READ_BYTES)
            if not read:
                self._pipes.remove(pipe)
            elif pipe == self._notices:
                self._receive(read)
            else:
                self._show(read)
        return bool(ready)

    def _receive(self, read: bytes) -> None:
        *lines, self._notice = (self._notice + read).split(b"\n")
        for line in lines:
            self._files.change(*json.loads(line))
            self._reads_files |= bool(self._files["read"])

    def _show(self, printed: bytes) -> None:
        """Print what libraries print, unless they read files."""
        if self._reads_files:
            self._hidden = (self._hidden + printed)[-MAX_HIDDEN_BYTES:]
            self._reads_files = bool(self._files["read"])
        else:
            self._print(printed.decode(errors="backslashreplace"))

    def _print(self, text: str) -> None:
        """Print a text on stderr and to the log."""
        text = "".join(f"{printable(line)}\n" for line in text.splitlines())
        with suppress(OSError):  # stderr is closed or full: the exit status says enough
            os.write(2, text.encode(errors="backslashreplace"))
        for path in self._files["log"]:
            with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(log_lines(text))

    def _explain(self, code: int) -> int:
        """Clean up and print a message after a crash; the exit status of the command."""
        if status := self._files["exit"]:  # whatever happened after the command's end
            return code if code >= 0 else int(status[0])
        if code == 0:
            return 0
        self._files.remove_temporary()
        with suppress(OSError):  # the terminal is closed
            os.write(2, CLEAR_LINE if os.isatty(2) else b"")
        if -code in FORWARDED:
            number = signal.Signals(-code)
            self._print(f"spinimpute: {VERBS.get(number, f'ended by {number.name}')}")
            return 128 + number
        damaged = self._damaged(code)
        if self._hidden and not damaged:
            self._print(f"spinimpute: a library printed: {self._hidden.decode(errors='backslashreplace')}")
        self._print(f"spinimpute: error: {_reason(code, ' and '.join(dict.fromkeys(damaged)))}")
        if damaged:
            return BAD_INPUT
        return 128 - code if code < 0 else code

    def _damaged(self, code: int) -> list[str]:
        """Files of which one is probably damaged, if that explains the crash."""
        if code == -signal.SIGBUS:
            return self._files["read"] + self._files["mapped"]
        died_in_library = code > 0 or -code in (signal.SIGSEGV, signal.SIGABRT)
        return self._files["read"] if died_in_library else []


def _reason(code: int, files: str) -> str:
    """Why a process has crashed that read some files."""
    if code == -signal.SIGKILL:
        return (
            "the process was killed, perhaps because memory ran out. Give the job more memory, or use less: "
            "'spinimpute impute' with --max-memory or fewer --threads"
        )
    if code == -signal.SIGXCPU:
        return "the process was killed because its processor time was used up. Give the job more time"
    end = f"with {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    if not files:
        return f"the process ended {end}. This is a defect: please report it"
    if code == -signal.SIGBUS:
        return f"{files}: a file became shorter while it was read, or its disk failed. Run the command again"
    return (
        f"{files}: a file is damaged so that the library that reads it ended {end}. Check it with 'bcftools "
        "view' and 'bcftools index -f', or get it again"
    )
