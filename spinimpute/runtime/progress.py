"""The progress of a run: the fraction that is done, and the name of the stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Progress = Callable[[float], None]

SECONDS_BETWEEN_LINES = 30.0

announcements: list[Callable[[str], None]] = []
"""Functions that print a line for the user; empty unless the command line is used."""


def announce(text: str) -> None:
    """Print a line for the user of a command."""
    for say in announcements:
        say(text)


def begin_stage(progress: Progress | None, stage: str) -> None:
    """Name the stage that starts now, such as "phasing", if the progress has a method `begin_stage`."""
    while isinstance(progress, _Part):
        progress = progress.whole
    begin = getattr(progress, "begin_stage", None)
    if begin is not None:
        begin(stage)


def split_progress(progress: Progress | None, weights: Sequence[float]) -> list[Progress | None]:
    """Divide a progress into consecutive parts with these weights; each part gets fractions from 0 to 1."""
    if progress is None or len(weights) == 1:
        return [progress] * len(weights)
    return [
        _Part(progress, sum(weights[:number]) / sum(weights), weight / sum(weights))
        for number, weight in enumerate(weights)
    ]


@dataclass(frozen=True)
class _Part:
    whole: Progress
    before: float
    weight: float

    def __call__(self, fraction: float) -> None:
        self.whole(self.before + fraction * self.weight)


class ProgressLines:
    """A progress that prints a line every SECONDS_BETWEEN_LINES, for runs without a terminal."""

    def __init__(self, stage: str, say: Callable[[str], None]) -> None:
        self._stage, self._say = stage, say
        self._fraction, self._start = 0.0, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __call__(self, fraction: float) -> None:
        """Record the fraction that is done."""
        self._fraction = fraction

    def begin_stage(self, stage: str) -> None:
        """Record the name of the stage that starts now."""
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
