"""The interface of predictors: what a new one implements, and the pipeline uses.

A `Predictor` is a loaded model. For each `ImputationJob` it makes an `Engine`, which imputes windows. Engines
spread the work over threads, and one thread computes each task. The arithmetic of a task does not depend on
the number of threads, so results do not either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spinimpute.genotypes.intervals import DEFAULT_LENGTH_CM, Interval, cut_windows
from spinimpute.genotypes.sites import ExclusiveAlleles
from spinimpute.panels.trust.site_trust import NEAR
from spinimpute.predictors.typed_tiles import TILE_GAPS, TileStarts, flank_reach, typed_sites_of_tiles
from spinimpute.runtime.errors import InputError, argument

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel

WINDOW_ENTRIES = 50_000_000  # sites x haplotypes that are computed before they are written
WINDOW_SITES = 20_000
MAX_WINDOWS = 100_000


class Checkpoint(NamedTuple):
    """What a predictor is loaded from, see `PredictorRow.load`."""

    weights: dict[str, np.ndarray]  # {} for a predictor without weights
    settings: Any  # of the model: JSON, which may be wrong
    fingerprint: str  # of the weights
    device: str  # of torch
    options: Mapping[str, Any]  # of the predictor, by name


class WeightsMismatch(Exception):
    """The weights of a checkpoint do not fit the network that the checkpoint describes."""


@contextmanager
def convert_weight_errors() -> Iterator[None]:
    """Turn the errors of building a network from a checkpoint into WeightsMismatch.

    A checkpoint may hold any settings and weights. Nothing else belongs into the block.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsMismatch(str(error).partition("\n")[0][:200]) from error


@dataclass(frozen=True, eq=False)
class ImputationJob:
    """Typed sites of an open panel, and how its other sites are imputed."""

    panel: ReferencePanel
    typed_index: np.ndarray  # int64 (T,), panel sites, increasing
    threads: int
    n_queries: int = 0  # haplotypes of the target
    options: Mapping[str, Any] = field(default_factory=dict)  # of the predictor, by name
    scratch: Path | None = None  # folder for temporary results; None for the system's
    jumps_per_cM: float | None = None  # recombination scale; None estimates it from the typed sites
    sibling_Q: np.ndarray | None = None  # int64, the other haplotype of a query's sample; None if unknown


class Engine(ExitStack):
    """Threads that impute the windows of a job; a context manager."""

    def __init__(self, job: ImputationJob) -> None:
        super().__init__()
        length_cM, cM = job.options.get("window_cM", DEFAULT_LENGTH_CM), job.panel.cM
        if len(cM) and cM[-1] - cM[0] > MAX_WINDOWS * length_cM:
            raise InputError(
                "argument",
                f"{argument('window_cM', length_cM)}: windows of {length_cM:g} cM would be more than "
                f"{MAX_WINDOWS:,}, as the panel has {cM[-1] - cM[0]:.4g} cM. Choose longer windows.",
            )
        self.job, self.typed_index = job, job.typed_index
        self.pool = ThreadPoolExecutor(job.threads, "impute")
        self.callback(self.pool.shutdown, cancel_futures=True)

    def windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows, which are imputed and written one after the other.

        By default their length is the option `window_cM`, if the predictor has it.
        """
        panel = self.job.panel
        length_cM = self.job.options.get("window_cM", DEFAULT_LENGTH_CM)
        max_sites = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // max(1, self.job.n_queries)))
        windows = cut_windows(panel.cM[sites.slice], panel.position[sites.slice], length_cM, max_sites)
        return [Interval(window.start + sites.start, window.stop + sites.start) for window in windows]

    def impute_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, float32 (U, Q), in order; later windows may be computed in advance.

        typed_TQ: int8, the queries' alleles at the typed sites, -1 where missing. Where predictions of a site
        are too certain (`ReferencePanel.prediction_trust`), they are drawn towards the allele's frequency,
        except for queries with a typed allele nearby: that site may have the same artefact, and predict well.
        A haplotype with a typed ALT allele gets no other ALT allele of the same multi-allelic site. Without
        typed sites the result is the panel's frequency.
        """
        typed_position_T = self.job.panel.position[self.typed_index]
        exclusive = ExclusiveAlleles.of(self.job.panel.sites, self.job.typed_index)
        with closing(self.predict_windows(windows, typed_TQ)) as predicted:
            for window, p_UQ in zip(windows, predicted, strict=True):
                trust_U = self.job.panel.prediction_trust[window.slice]
                frequency_U = self.job.panel.frequency[window.slice].astype(np.float32)
                for u in np.flatnonzero(trust_U < 1):  # one by one: a window is as large as memory allows
                    position = self.job.panel.position[window.start + u]
                    near = slice(*np.searchsorted(typed_position_T, (position - NEAR, position + NEAR + 1)))
                    untyped_nearby_Q = (typed_TQ[near] < 0).all(axis=0)
                    shrunk_Q = trust_U[u] * p_UQ[u] + (1 - trust_U[u]) * frequency_U[u]
                    p_UQ[u] = np.where(untyped_nearby_Q, shrunk_Q, p_UQ[u])
                exclusive.exclude(window.start, p_UQ, typed_TQ)
                yield p_UQ

    def impute_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """Impute one window as `impute_windows` does."""
        (p_UQ,) = self.impute_windows([window], typed_TQ)
        return p_UQ

    @abstractmethod
    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield the predictor's own P(ALT) of each window; the caller may change the arrays."""


def panel_frequencies(frequency_X: np.ndarray, window: Interval, n_queries: int) -> np.ndarray:
    """P(ALT) of queries without any typed site, float32 (U, Q): the panel's frequencies."""
    return np.repeat(frequency_X[window.slice, None].astype(np.float32), n_queries, axis=1)


class Predictor(ABC):
    """A model that imputes the sites of a panel.

    The fingerprint identifies the weights and everything else that results depend on.
    """

    kind: str  # as in the registry
    fingerprint: str
    device_name: str = "cpu"

    @abstractmethod
    def engine(self, job: ImputationJob) -> Engine:
        """Return the engine of a job. Raises InputError for a job that does not fit the memory budget."""

    def check_panel(self, panel: ReferencePanel, user_options: Mapping[str, Any]) -> None:  # noqa: B027
        """Raise InputError for a panel that cannot be read, or not with the given options.

        The registry has already checked whether the panel holds haplotypes or inducing points.
        """

    def check_memory(self, job: ImputationJob) -> None:  # noqa: B027
        """Raise InputError for a job that surely exceeds its memory budget."""

    def needed_typed_sites(
        self, panel: ReferencePanel, typed_index: np.ndarray, sites: Interval, near: Interval
    ) -> Interval:
        """Typed sites with which some panel sites get the results of a run with the whole target.

        There is at least one typed site; `near` are typed sites that are used in any case. The default are
        whole tiles.
        """
        typed = typed_sites_of_tiles(panel.cM, typed_index, sites, flank_reach(panel.n_haplotypes))
        return Interval(min(near.start, typed.start) // TILE_GAPS * TILE_GAPS, max(near.stop, typed.stop))

    def needed_positions(
        self, panel: ReferencePanel, starts: TileStarts, sites: Interval, near: Interval
    ) -> tuple[int, int]:
        """First and last position of the sites of `needed_typed_sites`, in a file with tile starts.

        `near` are panel sites whose typed ones are used in any case.
        """
        position = panel.position
        start, end = starts.around(*sites.positions(position))
        start = min(start, starts.start_before(int(position[near.start])))
        return start, int(position[-1]) if end is None else max(end, int(position[near.stop - 1]))
