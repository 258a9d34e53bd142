"""Result of a case: a complete output, an error message, or a failure with its location."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.reliability.forks import Ended, Limits

COMPLETE, REFUSED, FAILED = "complete", "refused", "failed"

_OURS = re.compile(r'File "[^"]*?/((?:spinimpute|cli)/[^"]+)", line (\d+),? in (\S+)')
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029]")
_ERROR = re.compile(
    r"^(?:spinimpute: error|Error): ", re.MULTILINE
)  # click's word for a wrong option is its own


@dataclass(frozen=True)
class Verdict:
    """group: group of failures; failures with the same cause have the same group."""

    kind: str
    group: str = ""


def judge(ended: Ended, left: Sequence[str], limits: Limits) -> Verdict:
    """Judge a command.

    Parameters
    ----------
    ended : Ended
        The result of the command.
    left : sequence of str
        Files that should not exist.
    limits : Limits
        Limits of the command.

    Returns
    -------
    Verdict
        COMPLETE means only that the command reports success: its outputs must still be read.
    """
    for found in (
        _too_much(ended, limits),
        _death(ended),
        _traceback(ended),
        _control_characters(ended),
        _wrong_message(ended),
    ):
        if found:
            return Verdict(FAILED, found)
    if left:
        names = sorted({plain(path.rpartition("/")[2]) for path in left})
        return Verdict(FAILED, f"exit {ended.status}, left: {', '.join(names[:3])}")
    return Verdict(COMPLETE if ended.status == 0 else REFUSED)


def _too_much(ended: Ended, limits: Limits) -> str:
    place = _innermost(ended.fault, first=True) or _said(ended)
    if ended.seconds >= limits.seconds:
        return f"more than {limits.seconds} s: {place}"
    if ended.memory > limits.memory:
        return f"more than {limits.memory >> 20} MiB: {place}"
    return ""


def _death(ended: Ended) -> str:
    if ended.status >= 0:
        return ""
    return f"{signal.Signals(-ended.status).name}: {_innermost(ended.fault, first=True) or _said(ended)}"


def _traceback(ended: Ended) -> str:
    """The exception that was raised last, and the innermost line of ours."""
    if "Traceback (most recent call last)" not in ended.err and "Exception ignored" not in ended.err:
        return ""
    last = ended.err.rpartition("Traceback (most recent call last)")[2]
    raised = [line for line in last.splitlines()[1:] if re.match(r"[A-Za-z_][\w.]*(:|$)", line)]
    name = raised[0].partition(":")[0] if raised else "?"  # more lines may belong to its message
    return f"{name}: {_innermost(last) or plain(raised[0] if raised else '')}"


def _control_characters(ended: Ended) -> str:
    for stream in (ended.err, ended.out):
        for line in stream.split("\n"):
            if _CONTROL.search(line):
                ours = line.startswith("spinimpute: ") or stream is ended.out
                return f"control characters: {plain(line) if ours else 'in a line that is not ours'}"
    return ""


def _wrong_message(ended: Ended) -> str:
    if ended.status == 0:
        return ""
    if ended.status != 2:
        return f"exit {ended.status}: {_said(ended)}"
    errors = list(_ERROR.finditer(ended.err))
    if len(errors) != 1:
        return f"exit 2 with {len(errors)} messages: {_said(ended)}"
    after = ended.err[errors[0].start() :].rstrip("\n")
    return f"message of several lines: {plain(after.splitlines()[0])}" if "\n" in after else ""


def _innermost(trace: str, first: bool = False) -> str:
    """The innermost line of ours; `first` if the trace begins with the latest call."""
    found = _OURS.findall(trace)
    if not found:
        return ""
    path, line, function = found[0 if first else -1]
    return f"{path}:{line} {function}"


def _said(ended: Ended) -> str:
    lines = [line for line in ended.err.splitlines() if line.strip()]
    return plain(lines[-1]) if lines else "nothing said"


def plain(text: str) -> str:
    """Return a message without the parts that differ between cases: paths, numbers, quoted words."""
    text = text[:400]  # some messages repeat a long field
    text = re.sub(r"\S*/[^\s:,]*", "FILE", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", text)
    text = re.sub(r"\.[0-9a-f]{8}\.part", ".#.part", text)
    text = re.sub(r"\d+", "#", text)
    return "".join(c if c.isprintable() else "?" for c in text)[:90]
