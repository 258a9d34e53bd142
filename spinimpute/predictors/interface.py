"""The interface between the pipeline and the predictors.

A `Predictor` is a loaded model. An `ImputationJob` is a panel with the typed sites of a target. For each job
the predictor makes an `Engine`, which imputes the job window by window. A window is an interval of panel
sites that is computed in one step and kept in memory. An engine spreads the tasks of a window over threads;
each task is computed by a single thread, so results do not depend on the number of threads.

Axes: T typed sites, U sites of a window, Q query haplotypes, X sites of the panel.
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

WINDOW_ENTRIES = 50_000_000  # maximum sites x query haplotypes of a window: bounds the memory
WINDOW_SITES = 20_000  # maximum sites of a window
MAX_WINDOWS = 100_000


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file, and the device and options: the argument of `PredictorRow.load`."""

    weights: dict[str, np.ndarray]  # {} for a predictor without weights
    settings: Any  # settings of the model, as read from JSON; not yet validated
    fingerprint: str  # fingerprint of the weights
    device: str  # name of a torch device
    options: Mapping[str, Any]  # values of the predictor's options, by name


class WeightsMismatch(Exception):
    """The weights of a checkpoint do not fit the network that the checkpoint describes."""


@contextmanager
def convert_weight_errors() -> Iterator[None]:
    """Convert errors that invalid settings or weights of a checkpoint cause into WeightsMismatch.

    The `with` block should contain only the code that builds the network. Otherwise a programming error in
    other code would be reported as a damaged file.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsMismatch(str(error).partition("\n")[0][:200]) from error


def check_arrays(weights: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the weights have these names and shapes, and are finite float32 numbers.

    This is necessary because kernels do not check array bounds.
    """
    given = {name: weight.shape for name, weight in weights.items()}
    wrong = sorted(name for name in expected.keys() | given if expected.get(name) != given.get(name))
    wrong = wrong or [
        name for name, w in weights.items() if w.dtype != np.float32 or not np.isfinite(w).all()
    ]
    if wrong:
        raise ValueError(f"weights of another network: {', '.join(wrong[:3])}")


def layer_shapes(layers: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights and biases of linear layers, given as (outputs, inputs)."""
    weights: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in layers.items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in layers.items()}


@dataclass(frozen=True, eq=False)
class ImputationJob:
    """An open panel, the typed sites of a target, and the options with which to impute the other sites."""

    panel: ReferencePanel
    typed_index: np.ndarray  # int64 (T,), indices of the typed sites in the panel, increasing
    threads: int
    n_queries: int = 0  # number of query haplotypes
    options: Mapping[str, Any] = field(default_factory=dict)  # values of the predictor's options, by name
    scratch: Path | None = None  # folder for temporary files; None for the system's
    jumps_per_cM: float | None = None  # recombination scale; None: estimate it from the typed sites
    sibling_Q: np.ndarray | None = None  # int64, index of the same sample's other haplotype; None if unknown
    imputed: Interval | None = None  # panel sites of all windows; None stands for all sites of the panel


class Engine(ExitStack):
    """Imputation of a job's windows by a pool of threads; a context manager.

    `pool` are the threads of another engine, which the two share; by default the engine starts its own.
    """

    def __init__(self, job: ImputationJob, pool: ThreadPoolExecutor | None = None) -> None:
        super().__init__()
        length_cM, cM = job.options.get("window_cM", DEFAULT_LENGTH_CM), job.panel.cM
        if len(cM) and cM[-1] - cM[0] > MAX_WINDOWS * length_cM:
            raise InputError(
                "argument",
                f"{argument('window_cM', length_cM)}: windows of {length_cM:g} cM would be more than "
                f"{MAX_WINDOWS:,}, as the panel has {cM[-1] - cM[0]:.4g} cM. Choose longer windows.",
            )
        self.job, self.typed_index = job, job.typed_index
        self.records = job.panel.records
        self.pool = pool or ThreadPoolExecutor(job.threads, "impute")
        if pool is None:
            self.callback(self.pool.shutdown, cancel_futures=True)

    def windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows, which are imputed and written one after the other.

        A multi-allelic record is within one window. `sites` must not cut such a record.
        """
        return self.records.keep_whole(self.cut_windows(sites))

    def cut_windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows, which may cut records. Some predictors override this method.

        The maximum length of a window is the predictor's option `window_cM`.
        """
        panel = self.job.panel
        length_cM = self.job.options.get("window_cM", DEFAULT_LENGTH_CM)
        max_sites = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // max(1, self.job.n_queries)))
        windows = cut_windows(panel.cM[sites.slice], panel.position[sites.slice], length_cM, max_sites)
        return [Interval(window.start + sites.start, window.stop + sites.start) for window in windows]

    def impute_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, float32 (U, Q), in order; later windows may be computed in advance.

        typed_TQ holds the queries' alleles at the typed sites, int8, -1 where missing. Without typed sites
        the result is the panel's ALT frequency. The predictions of `predict_windows` are corrected:

        - A site with `ReferencePanel.prediction_trust` below 1 tends to be predicted with too much certainty.
          Its predictions are shrunk towards the ALT frequency. A query with a typed allele within `NEAR`
          bases keeps its prediction, because neighbouring records of one artefact predict each other well.
        - A haplotype that carries a typed ALT allele cannot carry another ALT allele of the same
          multi-allelic site.
        - The alleles of a record with several ALTs have probabilities that add up to 1, see
          `RecordRows.share_alleles`.
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
                self.records.share_alleles(window.start, p_UQ, self.typed_index, typed_TQ)
                yield p_UQ

    def impute_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """Return P(ALT) of a single window, float32 (U, Q), see `impute_windows`."""
        (p_UQ,) = self.impute_windows([window], typed_TQ)
        return p_UQ

    @abstractmethod
    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window before the corrections of `impute_windows`.

        Every array must be new: the caller may modify it.
        """


def panel_frequencies(frequency_X: np.ndarray, window: Interval, n_queries: int) -> np.ndarray:
    """Return the panel's ALT frequencies as P(ALT) of each query, float32 (U, Q)."""
    return np.repeat(frequency_X[window.slice, None].astype(np.float32), n_queries, axis=1)


class Predictor(ABC):
    """A model that imputes the sites of a panel."""

    kind: str  # `PredictorRow.kind`
    fingerprint: str  # identifies the weights and all settings on which results depend
    device_name: str = "cpu"

    @abstractmethod
    def engine(self, job: ImputationJob) -> Engine:
        """Return an engine for the job. Raise InputError if the job exceeds the memory budget."""

    def check_panel(self, panel: ReferencePanel, user_options: Mapping[str, Any]) -> None:  # noqa: B027
        """Raise InputError if this predictor cannot use the panel, or cannot use it with these options.

        `user_options` are the options that the user has set. The kind of panel (haplotypes or inducing
        points) has been checked before.
        """

    def check_memory(self, job: ImputationJob) -> None:  # noqa: B027
        """Raise InputError if the job is certain to exceed its memory budget."""

    def needed_typed_sites(
        self, panel: ReferencePanel, typed_index: np.ndarray, sites: Interval, near: Interval
    ) -> Interval:
        """Return the typed sites that are needed to impute a region exactly as in a run with all typed sites.

        Both the argument `near` and the result are intervals of typed sites (indices into `typed_index`,
        which is not empty). `near` contains the typed sites of the region and its buffer; the result contains
        `near`. `sites` are the panel sites of the region. This default returns whole tiles with their flanks
        (`typed_tiles`).
        """
        typed = typed_sites_of_tiles(panel.cM, typed_index, sites, flank_reach(panel.n_haplotypes))
        return Interval(min(near.start, typed.start) // TILE_GAPS * TILE_GAPS, max(near.stop, typed.stop))

    def needed_positions(
        self, panel: ReferencePanel, starts: TileStarts, sites: Interval, near: Interval
    ) -> tuple[int, int]:
        """Return the first and last position of `needed_typed_sites`, without reading the target's records.

        The target's header lists the starts of its tiles. `sites` are the panel sites of the region, `near`
        those of the region and its buffer.
        """
        position = panel.position
        start, end = starts.around(*sites.positions(position))
        start = min(start, starts.start_before(int(position[near.start])))
        return start, int(position[-1]) if end is None else max(end, int(position[near.stop - 1]))
