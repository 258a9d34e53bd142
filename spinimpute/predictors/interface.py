"""The interface of predictors, which the pipeline uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.predictors.typed_chunks import CHUNK, ChunkStarts, reach, typed_of_chunks

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
        """The engine for a job.

        Parameters
        ----------
        job : ImputationJob
            What is imputed.

        Returns
        -------
        Engine
            A context manager.

        Raises
        ------
        InputError
            The job cannot be done, for example within its memory budget.
        """

    def check_panel(self, panel: ReferencePanel, given: Mapping[str, Any]) -> None:  # noqa: B027
        """Check that it can read a panel; what the panel holds has been compared with the registry already.

        Parameters
        ----------
        panel : ReferencePanel
            Open.
        given : mapping
            Options that were given, by name.

        Raises
        ------
        InputError
            It cannot read this panel, or not with these options.
        """

    def check_memory(self, job: ImputationJob) -> None:  # noqa: B027
        """Check that a job fits into its memory budget, as far as this is known before it begins.

        Parameters
        ----------
        job : ImputationJob
            What is imputed.

        Raises
        ------
        InputError
            It does not fit.
        """

    def typed_needed(
        self, panel: ReferencePanel, typed_index: np.ndarray, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """The typed sites that a region needs for the results of a run with the whole target.

        Parameters
        ----------
        panel : ReferencePanel
            Open.
        typed_index : int64 (T,)
            The typed panel sites, increasing, T > 0.
        first, last : int
            The region's panel sites, [first, last).
        near : (int, int)
            The typed sites [low, high) that are used in any case.

        Returns
        -------
        (int, int)
            Typed sites [low, high), with those that are near. By default whole chunks.
        """
        low, high = typed_of_chunks(panel.cM, typed_index, first, last, reach(panel.n_haplotypes))
        return min(near[0], low) // CHUNK * CHUNK, max(near[1], high)

    def positions_needed(
        self, panel: ReferencePanel, starts: ChunkStarts, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """Positions of the typed sites of `typed_needed`, in a file whose header states where chunks begin.

        Parameters
        ----------
        panel : ReferencePanel
            Open.
        starts : ChunkStarts
            What the header states.
        first, last : int
            The region's panel sites, [first, last).
        near : (int, int)
            The panel sites [low, high) whose typed ones are used in any case.

        Returns
        -------
        (int, int)
            The first and the last position.
        """
        position = panel.position
        start, end = starts.around(int(position[first]), int(position[last - 1]))
        start = min(start, starts.start_before(int(position[near[0]])))
        return start, int(position[-1]) if end is None else max(end, int(position[near[1] - 1]))
