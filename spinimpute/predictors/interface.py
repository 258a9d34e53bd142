"""What the pipeline asks of a loaded predictor, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.predictors.typed_chunks import CHUNK, ChunkStarts, typed_of_chunks

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel
    from spinimpute.predictors.engine import Engine, ImputationJob


class UnfitWeights(Exception):
    """A checkpoint's weights are not of the network that it describes; the message says why."""


@contextmanager
def fitting_weights() -> Iterator[None]:
    """Around what builds settings and a network and puts a checkpoint's weights into it, and nothing else.

    Raises
    ------
    UnfitWeights
        What fails there: a checkpoint may hold any settings and weights.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise UnfitWeights(str(error).partition("\n")[0][:200]) from error


class Predictor(ABC):
    """A model that imputes the sites of a panel.

    Attributes
    ----------
    kind : str
        As in the registry.
    fingerprint : str
        Identifies the weights and whatever else results depend on.
    device_name : str
        Where it computes.
    """

    kind: str
    fingerprint: str
    device_name: str

    @abstractmethod
    def engine(self, job: ImputationJob) -> Engine:
        """What does a job.

        Raises
        ------
        InputError
            The job cannot be done, for example within its budget of memory.
        """

    def check_panel(self, panel: ReferencePanel, given: Mapping[str, Any]) -> None:  # noqa: B027
        """Raises InputError if it cannot read this panel, or not with the options that are given.

        What a panel holds has been compared with the registry already.
        """

    def check_memory(self, job: ImputationJob) -> None:  # noqa: B027
        """Raises InputError if the job does not fit into its budget of memory, as far as can be known
        before it begins."""

    def typed_needed(
        self, panel: ReferencePanel, typed_index: np.ndarray, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """The typed sites that a region's results need to be those of a run of the whole target.

        Parameters
        ----------
        typed_index : int64 (T,)
            The typed panel sites, increasing, T > 0.
        first, last : int
            The region's panel sites, [first, last).
        near : (int, int)
            The typed sites [low, high) that are wanted in any case.

        Returns
        -------
        (int, int)
            Typed sites [low, high), with those that are near. By default whole chunks.
        """
        low, high = typed_of_chunks(panel.cM, typed_index, first, last)
        return min(near[0], low) // CHUNK * CHUNK, max(near[1], high)

    def positions_needed(
        self, panel: ReferencePanel, starts: ChunkStarts, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """Where the typed sites of `typed_needed` lie in a file whose header states where chunks begin.

        Parameters
        ----------
        starts : ChunkStarts
            What the header states.
        first, last : int
            The region's panel sites, [first, last).
        near : (int, int)
            The panel sites [low, high) whose typed ones are wanted in any case.

        Returns
        -------
        (int, int)
            The first and the last position.
        """
        position = panel.position
        start, end = starts.around(int(position[first]), int(position[last - 1]))
        start = min(start, starts.start_before(int(position[near[0]])))
        return start, int(position[-1]) if end is None else max(end, int(position[near[1] - 1]))
