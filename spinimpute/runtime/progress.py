"""Report the progress of a run.

A `Progress` is a function that is called with the fraction of the run that is done, from 0 to 1. It may also
have a method `begin_stage`, which receives the name of the current stage, such as "phasing".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Progress = Callable[[float], None]

SECONDS_BETWEEN_LINES = 30.0
GROWTH = 0.1  # a line is printed when the run has taken longer by this share than at the last line

announcements: list[Callable[[str], None]] = []
"""Functions that print a line for the user. The command line adds one; in Python the list is empty."""


def announce(text: str) -> None:
    """Print a line on the command line. In Python, do nothing."""
    for say in announcements:
        say(text)


def begin_stage(progress: Progress | None, stage: str) -> None:
    """Pass the name of the stage that starts now to the `begin_stage` of a progress, if it has one."""
    while isinstance(progress, _Part):
        stage = f"{progress.name}, {stage}" if progress.name else stage
        progress = progress.whole
    begin = getattr(progress, "begin_stage", None)
    if begin is not None:
        begin(stage)


def split_progress(
    progress: Progress | None, weights: Sequence[float], names: Sequence[str] = ()
) -> list[Progress | None]:
    """Return a progress for each consecutive part of a run. `weights` are the parts' shares of the time.

    `names`, such as "chromosome 1", are put before the names of the stages. Each part reports its own
    fraction, from 0 to 1. The whole progress receives the fraction of the run.
    """
    if progress is None or len(weights) == 1:
        return [progress] * len(weights)
    return [
        _Part(progress, sum(weights[:number]) / sum(weights), weight / sum(weights), name)
        for number, (weight, name) in enumerate(zip(weights, names or [""] * len(weights), strict=True))
    ]


@dataclass(frozen=True)
class _Part:
    """The progress of one part of a run."""

    whole: Progress
    before: float  # fraction of the run before this part
    weight: float  # this part's fraction of the run
    name: str

    def __call__(self, fraction: float) -> None:
        self.whole(self.before + fraction * self.weight)


class ProgressLines:
    """A progress that prints lines, for runs without a terminal.

    It prints a line every 30 seconds in the first five minutes, and later one each time the run has taken
    longer by a tenth.
    """

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
        elapsed = 0.0
        while not self._ended.wait(max(SECONDS_BETWEEN_LINES, elapsed * GROWTH)):
            elapsed = time.monotonic() - self._start
            minutes, seconds = divmod(int(elapsed), 60)
            self._say(f"{self._stage}: {self._fraction:.1%} of the run done after {minutes} min {seconds} s")
