"""How far a run has come, as the fraction that is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Progress = Callable[[float], None]


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
        progress = self._progress
        if progress is None:
            return None
        before, weight = sum(self._weights[:number]), self._weights[number]
        return lambda fraction: progress((before + fraction * weight) / self._total)
