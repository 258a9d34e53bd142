"""The interface of predictors, which the pipeline uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.predictors.typed_tiles import TILE_GAPS, TileStarts, flank_reach, typed_of_tiles

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel
    from spinimpute.predictors.engine import Engine, ImputationJob


class UnfitWeights(Exception):
    """The weights of a checkpoint do not fit the network that the checkpoint describes."""


@contextmanager
def fitting_weights() -> Iterator[None]:
    """Turn the errors of building a network from a checkpoint into UnfitWeights.

    A checkpoint may hold any settings and weights. Nothing else belongs into the block.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise UnfitWeights(str(error).partition("\n")[0][:200]) from error


class Predictor(ABC):
    """A model that imputes the sites of a panel.

    The fingerprint identifies the weights and everything else that results depend on.
    """

    kind: str  # as in the registry
    fingerprint: str
    device_name: str

    @abstractmethod
    def engine(self, job: ImputationJob) -> Engine:
        """Return the engine of a job. Raises InputError for a job that does not fit the memory budget."""

    def check_panel(self, panel: ReferencePanel, given: Mapping[str, Any]) -> None:  # noqa: B027
        """Raise InputError for a panel that cannot be read, or not with the given options.

        The registry has already checked whether the panel holds haplotypes or inducing points.
        """

    def check_memory(self, job: ImputationJob) -> None:  # noqa: B027
        """Raise InputError for a job that surely exceeds its memory budget."""

    def typed_needed(
        self, panel: ReferencePanel, typed_index: np.ndarray, sites: Interval, near: Interval
    ) -> Interval:
        """Typed sites with which some panel sites get the results of a run with the whole target.

        There is at least one typed site; `near` are typed sites that are used in any case. The default are
        whole tiles.
        """
        typed = typed_of_tiles(panel.cM, typed_index, sites, flank_reach(panel.n_haplotypes))
        return Interval(min(near.start, typed.start) // TILE_GAPS * TILE_GAPS, max(near.stop, typed.stop))

    def positions_needed(
        self, panel: ReferencePanel, starts: TileStarts, sites: Interval, near: Interval
    ) -> tuple[int, int]:
        """First and last position of the sites of `typed_needed`, in a file with tile starts in its header.

        `near` are panel sites whose typed ones are used in any case.
        """
        position = panel.position
        start, end = starts.around(*sites.positions(position))
        start = min(start, starts.start_before(int(position[near.start])))
        return start, int(position[-1]) if end is None else max(end, int(position[near.stop - 1]))
