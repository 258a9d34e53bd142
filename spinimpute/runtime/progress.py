"""How far a run has come: the fraction that is done, and for those who show it the stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

Progress = Callable[[float], None]

SECONDS_BETWEEN_LINES = 30.0


announcements: list[Callable[[str], None]] = []
"""Functions that print a line for the user; a program that uses the library has none."""


def announce(text: str) -> None:
    """Print a line for the user of a command."""
    for say in announcements:
        say(text)


def begin_stage(progress: Progress | None, stage: str) -> None:
    """Tell what is done from now on, such as "phasing", if the progress has a method `begin_stage`."""
    begin = getattr(progress, "begin_stage", None)
    if begin is not None:
        begin(stage)


class Shares:
    """Cuts a progress into consecutive parts by their weights.

    Parameters
    ----------
    progress : callable or None
        Given the fraction of the whole that is done.
    weights : sequence of float
        Of the parts.
    """

    def __init__(self, progress: Progress | None, weights: Sequence[float]) -> None:
        self._progress, self._total = progress, float(sum(weights))
        self._weights = weights

    def of(self, number: int) -> Progress | None:
        """The progress of a part: it goes from 0 to 1."""
        if self._progress is None:
            return None
        before, weight = sum(self._weights[:number]), self._weights[number]
        return _Part(self._progress, before / self._total, weight / self._total)


class _Part:
    def __init__(self, whole: Progress, before: float, weight: float) -> None:
        self._whole, self._before, self._weight = whole, before, weight

    def __call__(self, fraction: float) -> None:
        self._whole(self._before + fraction * self._weight)

    def begin_stage(self, stage: str) -> None:
        begin_stage(self._whole, stage)


class ProgressLines:
    """A progress that says now and then where it is: for runs that nobody watches on a terminal.

    A context manager; nothing is said of a run that ends within SECONDS_BETWEEN_LINES.

    Parameters
    ----------
    stage : str
        What is done until another stage begins.
    say : callable
        Prints a line.
    """

    def __init__(self, stage: str, say: Callable[[str], None]) -> None:
        self._stage, self._say = stage, say
        self._fraction, self._start = 0.0, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __call__(self, fraction: float) -> None:
        """Take note of the fraction that is done."""
        self._fraction = fraction

    def begin_stage(self, stage: str) -> None:
        """Take note of what is done from now on."""
        self._stage = stage

    def __enter__(self) -> ProgressLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _speak(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LINES):
            minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
            self._say(f"{self._stage}: {self._fraction:.1%} of the run done after {minutes} min {seconds} s")
