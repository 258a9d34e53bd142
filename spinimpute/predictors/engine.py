"""Engines impute windows. They spread the work over threads, and one thread computes each task.

The arithmetic of a task does not depend on the number of threads, so results do not either.
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

from spinimpute.genotypes.intervals import DEFAULT_LENGTH_CM, Interval, cut_windows
from spinimpute.genotypes.sites import ExclusiveAlleles
from spinimpute.panels.trust.site_trust import NEAR
from spinimpute.runtime.errors import InputError, argument

if TYPE_CHECKING:
    from spinimpute.panels.panel import Panel
    from spinimpute.panels.reference import ReferencePanel

WINDOW_ENTRIES = 50_000_000  # sites x haplotypes that are computed before they are written
WINDOW_SITES = 20_000
MOST_WINDOWS = 100_000


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

    @property
    def haplotypes(self) -> Panel:
        """The panel, for predictors that read haplotypes."""
        assert self.panel.haplotypes is not None, "the registry gives them no other panel"
        return self.panel.haplotypes


class Engine(ABC):
    """Threads that impute the windows of a job; a context manager."""

    def __init__(self, job: ImputationJob) -> None:
        length_cM, cM = job.options.get("window_cM", DEFAULT_LENGTH_CM), job.panel.cM
        if len(cM) and cM[-1] - cM[0] > MOST_WINDOWS * length_cM:
            raise InputError(
                "argument",
                f"{argument('window_cM', length_cM)}: windows of {length_cM:g} cM would be more than "
                f"{MOST_WINDOWS:,}, as the panel has {cM[-1] - cM[0]:.4g} cM. Choose longer windows.",
            )
        self.job, self.typed_index = job, job.typed_index
        self.pool = ThreadPoolExecutor(job.threads, "impute")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows, which are imputed and written one after the other.

        By default their length is the option `window_cM`, if the predictor has it.
        """
        panel = self.job.panel
        length_cM = self.job.options.get("window_cM", DEFAULT_LENGTH_CM)
        most = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // max(1, self.job.n_queries)))
        windows = cut_windows(panel.cM[sites.slice], panel.position[sites.slice], length_cM, most)
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
                    unknown_Q = (typed_TQ[near] < 0).all(axis=0)
                    drawn_Q = trust_U[u] * p_UQ[u] + (1 - trust_U[u]) * frequency_U[u]
                    p_UQ[u] = np.where(unknown_Q, drawn_Q, p_UQ[u])
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
