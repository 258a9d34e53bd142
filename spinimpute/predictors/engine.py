"""Imputes windows: their parts are spread over threads, each part computed by one thread.

The arithmetic of a part does not depend on the number of threads, so results do not either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from spinimpute.genotypes.exclusive_alleles import ExclusiveAlleles
from spinimpute.genotypes.intervals import DEFAULT_LENGTH_CM, Interval, cut_windows
from spinimpute.panels.trust.site_trust import NEAR
from spinimpute.runtime.errors import InputError

if TYPE_CHECKING:
    from spinimpute.panels.panel import Panel
    from spinimpute.panels.reference import ReferencePanel

WINDOW_ENTRIES = 50_000_000  # sites x haplotypes computed before they are written
WINDOW_SITES = 20_000
MOST_WINDOWS = 100_000


@dataclass(frozen=True, eq=False)
class ImputationJob:
    """Typed sites of a panel, and how its other sites are imputed.

    Attributes
    ----------
    panel : ReferencePanel
        Open.
    typed_index : int64 (T,)
        The typed panel sites, increasing.
    threads : int
        Results do not depend on it.
    n_queries : int
        Haplotypes of the target.
    options : mapping
        Options of the predictor, by name (see the registry).
    scratch : Path or None
        A folder for temporary results; None for the system's.
    jumps_per_cM : float or None
        The recombination scale; None to estimate it from the typed sites (`recombination_scale`).
    sibling_Q : int64 (Q,) or None
        The other haplotype of each one's sample (`sibling_haplotypes`); None if that is not known.
    """

    panel: ReferencePanel
    typed_index: np.ndarray
    threads: int
    n_queries: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    scratch: Path | None = None
    jumps_per_cM: float | None = None
    sibling_Q: np.ndarray | None = None

    @property
    def haplotypes(self) -> Panel:
        """The panel, for predictors that read haplotypes."""
        assert self.panel.haplotypes is not None, "the registry gives them no other panel"
        return self.panel.haplotypes


class Engine(ABC):
    """Threads that impute windows; a context manager.

    Raises InputError for less than one thread, and for windows that are too short.

    Parameters
    ----------
    job : ImputationJob
        What is imputed.
    """

    def __init__(self, job: ImputationJob) -> None:
        if job.threads < 1:
            raise InputError("content", f"the number of threads must be at least 1, found {job.threads}")
        length_cM, cM = job.options.get("window_cM", DEFAULT_LENGTH_CM), job.panel.cM
        if len(cM) and cM[-1] - cM[0] > MOST_WINDOWS * length_cM:
            raise InputError(
                "content",
                f"windows of {length_cM:g} cM would be more than {MOST_WINDOWS:,}: the panel has "
                f"{cM[-1] - cM[0]:.4g} cM; choose longer ones",
            )
        self.job, self.typed_index = job, job.typed_index
        self.pool = ThreadPoolExecutor(job.threads, "impute")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def windows(self, first: int, last: int) -> list[Interval]:
        """Windows over panel sites, which are imputed and written one after the other.

        By default their length is that of the option `window_cM`, if the predictor has it.

        Parameters
        ----------
        first, last : int
            The panel sites [first, last).

        Returns
        -------
        list of Interval
            In order.
        """
        panel, options = self.job.panel, self.job.options
        length_cM = options.get("window_cM", DEFAULT_LENGTH_CM)
        most = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // max(1, self.job.n_queries)))
        sites = slice(first, last)
        windows = cut_windows(panel.cM[sites], panel.position[sites], length_cM, most)
        return [Interval(window.start + first, window.stop + first) for window in windows]

    def impute_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Impute the core sites of windows, one after the other; later ones may be computed in advance.

        Where predictions are too certain (`ReferencePanel.prediction_trust`), they are drawn towards the
        allele's frequency, unless the query's allele at a site nearby is known: that site may be of the same
        artefact, and predict well. A haplotype with a typed ALT allele gets no other one of the same
        multi-allelic site.

        Parameters
        ----------
        windows : sequence of Interval
            Some of `windows`, in order.
        typed_TQ : int8 (T, Q)
            The queries' alleles at the typed sites, -1 where missing.

        Yields
        ------
        float32 (stop - start, Q)
            P(ALT) of each window; the panel's frequency if nothing is typed.
        """
        typed_position_T = self.job.panel.position[self.typed_index]
        exclusive = ExclusiveAlleles.of(self.job.panel.sites, self.job.typed_index)
        with closing(self.predict_windows(windows, typed_TQ)) as predicted:
            for window, p_UQ in zip(windows, predicted, strict=True):
                sites = slice(window.start, window.stop)
                trust_U = self.job.panel.prediction_trust[sites]
                frequency_U = self.job.panel.frequency[sites].astype(np.float32)
                for u in np.flatnonzero(trust_U < 1):  # one by one: a window is as large as memory allows
                    position = self.job.panel.position[window.start + u]
                    near = slice(*np.searchsorted(typed_position_T, (position - NEAR, position + NEAR + 1)))
                    unknown_Q = (typed_TQ[near] < 0).all(axis=0)
                    drawn_Q = trust_U[u] * p_UQ[u] + (1 - trust_U[u]) * frequency_U[u]
                    p_UQ[u] = np.where(unknown_Q, drawn_Q, p_UQ[u])
                exclusive.exclude(window.start, p_UQ, typed_TQ)
                yield p_UQ

    def impute_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """Impute the core sites of one window, as `impute_windows`."""
        (p_UQ,) = self.impute_windows([window], typed_TQ)
        return p_UQ

    @abstractmethod
    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """P(ALT) by the predictor alone, of each window; arrays of the caller's own.

        Parameters
        ----------
        windows, typed_TQ
            As of `impute_windows`.

        Yields
        ------
        float32 (stop - start, Q)
            As of `impute_windows`.
        """


def panel_frequencies(frequency_X: np.ndarray, window: Interval, n_queries: int) -> np.ndarray:
    """P(ALT) of queries without any typed site, float32 (stop - start, Q): the panel's frequencies."""
    return np.repeat(frequency_X[window.start : window.stop, None].astype(np.float32), n_queries, axis=1)
