"""Run a command in a child process. If the child crashes, the parent explains why and cleans up.

C libraries such as htslib crash on some damaged files, and the system kills a process when memory runs out.
A command therefore runs in a child process. The child sends its parent notices of the files that it opens
and closes (see `spinimpute.runtime.open_files`). If the child is killed, by a crash or by the user, the
parent removes the child's temporary files and prints one message.

A second pipe carries what libraries print on stderr. The parent hides text that was printed while a file was
read, because htslib quotes headers and records of any length. The command prints a message of its own.
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

BAD_INPUT = 2  # exit status
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
VERBS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
READ_BYTES = 65_536  # maximum number of bytes to read from a pipe in one call
MAX_HIDDEN_BYTES = 2_000  # hidden text to keep; it is printed after a crash that no file explains
CLEAR_LINE = b"\r\x1b[K\x1b[?25h"  # erases a progress bar and shows the cursor, which the bar hides

_notices = -1  # file descriptor of the pipe to the parent process
_sending = threading.Lock()  # without it, long notices of two threads could be interleaved


def start_watched() -> None:
    """Fork. The child returns from this function and continues; the parent waits and exits with its status.

    No thread may have been started before, because a fork copies only the calling thread.
    """
    global _notices
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # if a standard stream is closed, occupy its descriptor, which a pipe would get otherwise
    os.close(number)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    notices, _notices = os.pipe()
    printed, printing = os.pipe()
    parent_lives, kept_open = os.pipe()  # the system closes the parent's end when the parent dies
    child = os.fork()
    if child:
        for pipe in (_notices, printing, parent_lives):
            os.close(pipe)
        os._exit(_Watcher(child, notices, printed).wait())
    for pipe in (notices, printed, kept_open):
        os.close(pipe)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the child; the parent cleans up
    if sys.stderr is not None:  # Python keeps the old stderr; descriptor 2 of C libraries becomes the pipe
        sys.stderr = open(  # noqa: SIM115  (it stays open until the process ends)
            os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace"
        )
    os.dup2(printing, 2)
    os.close(printing)
    files = _Files()
    listeners.extend([notify, files.change])
    threading.Thread(target=_end_with_parent, args=(parent_lives, files), daemon=True).start()


def notify(change: str, use: str, name: str) -> None:
    """Send a notice about a file, a log or the exit status to the parent process, if there is one.

    `change` is "opened" or "closed", `use` the kind of notice, and `name` the file's name or the exit status.
    """
    if _notices >= 0:
        with _sending, suppress(OSError):  # the parent is dead
            os.write(_notices, json.dumps([change, use, name]).encode() + b"\n")


def _end_with_parent(parent_lives: int, files: _Files) -> None:
    """Wait until the parent is dead, then clean up and exit."""
    os.read(parent_lives, 1)  # returns when the parent is dead
    files.remove_temporary()
    os._exit(128 + signal.SIGTERM)


def log_lines(text: str) -> str:
    """Return the lines of a text with a timestamp in front of each."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(f"{now} {line}\n" for line in text.splitlines())


class _Files:
    """The names of open files by use: "read", "mapped", "temporary", "log"; and "exit", the exit status."""

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
        import shutil  # slow to import, and most runs do not need it

        for path in self["temporary"]:
            if path.endswith(FOLDER_SUFFIX):
                shutil.rmtree(path, ignore_errors=True)
            elif path.endswith(SUFFIX):
                with suppress(OSError):  # the file or the disk no longer exists
                    os.unlink(path)


class _Watcher:
    """The parent of a command's process: it reads the two pipes until the child ends.

    `notices` is the pipe of notices. `printed` is the pipe of text that libraries print.
    """

    def __init__(self, child: int, notices: int, printed: int) -> None:
        self._child, self._notices = child, notices
        self._pipes = [notices, printed]
        self._files = _Files()
        self._notice = b""  # start of a notice whose end has not arrived yet
        self._reads_files = False  # whether a library has read a file since the last printed text
        self._hidden = b""  # end of the text that was not printed

    def wait(self) -> int:
        """Wait until the child ends. Return the exit status for this process."""
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self._forward)
        ended = 0
        while not ended:
            self._read(0.5)
            closed = self._notices not in self._pipes  # the pipe is closed when the child ends
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
        """Read from the pipes, waiting up to `seconds`. Return whether there was anything to read."""
        ready, _, _ = select.select(self._pipes, [], [], seconds)
        for pipe in ready:  # notices come first, because they decide whether printed text is hidden
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
        """Print a text of a library, or hide it if a library has been reading a file."""
        if self._reads_files:
            self._hidden = (self._hidden + printed)[-MAX_HIDDEN_BYTES:]
            self._reads_files = bool(self._files["read"])
        else:
            self._print(printed.decode(errors="backslashreplace"))

    def _print(self, text: str) -> None:
        """Print a text on stderr and write it to the log."""
        text = "".join(f"{printable(line)}\n" for line in text.splitlines())
        with suppress(OSError):  # stderr is closed or full: only the exit status can report the error
            os.write(2, text.encode(errors="backslashreplace"))
        for path in self._files["log"]:
            with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(log_lines(text))

    def _explain(self, code: int) -> int:
        """Return the exit status of the command. After a crash, clean up and print a message first."""
        if status := self._files["exit"]:  # the command had ended: ignore a crash or signal after its end
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
        """Return the open files if a damaged one explains the crash, otherwise an empty list."""
        if code == -signal.SIGBUS:
            return self._files["read"] + self._files["mapped"]
        died_in_library = code > 0 or -code in (signal.SIGSEGV, signal.SIGABRT)
        return self._files["read"] if died_in_library else []


def _reason(code: int, files: str) -> str:
    """Return the message for a crash. `files` are the names of files that may have caused it, or ""."""
    if code == -signal.SIGKILL:
        return (
            "the process was killed, perhaps because memory ran out. Give the job more memory, or let "
            "'spinimpute impute' use less with --max-memory or fewer --threads"
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
