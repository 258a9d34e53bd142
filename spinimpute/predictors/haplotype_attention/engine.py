"""Haplotype attention's engine: chunks are prepared in advance, their queries spread over threads."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.pbwt import Matches, unite
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engine import Engine, ImputationJob, panel_frequencies
from spinimpute.predictors.haplotype_attention.chunk import (
    ChunkPatterns,
    PanelChunk,
    prepare_chunk,
    read_patterns,
    windows_of_chunks,
)
from spinimpute.predictors.haplotype_attention.memory import limits_of
from spinimpute.predictors.haplotype_attention.rare_alleles import rare_allele_odds
from spinimpute.predictors.results import ChunkResults, FileResults
from spinimpute.predictors.typed_chunks import chunks_between

Task = TypeVar("Task")
Result = TypeVar("Result")


class ChunkPredictor(Protocol):
    """What the engine needs of a predictor, see `HaplotypePredictor`."""

    def find_matches(self, chunk: PanelChunk, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """As of `HaplotypePredictor`."""

    def impute_chunk(
        self,
        panel: Panel,
        chunk: PanelChunk,
        patterns: ChunkPatterns,
        typed_TQ: np.ndarray,
        siblings: TypedAlleles | None,
        candidates: Candidates,
        jumps_per_cM: float,
        rare_odds_C: np.ndarray,
    ) -> np.ndarray:
        """As of `HaplotypePredictor`."""


@dataclass(frozen=True)
class _WindowGroup:
    """Windows whose results are computed together: one of whole chunks, or all that one chunk is cut into."""

    windows: list[Interval]
    chunks: range

    @property
    def whole(self) -> Interval:
        first, last = self.windows[0], self.windows[-1]
        return Interval(first.start, last.stop)

    @staticmethod
    def of(windows: Sequence[Interval], typed_index: np.ndarray) -> list[_WindowGroup]:
        def chunks(window: Interval) -> range:
            return chunks_between(window.start, window.stop, typed_index)

        groups: list[_WindowGroup] = []
        for numbers, some in itertools.groupby(windows, chunks):
            together = list(some)
            if len(numbers) == 1:
                groups.append(_WindowGroup(together, numbers))
            else:
                groups += [_WindowGroup([window], numbers) for window in together]
        return groups


@dataclass(frozen=True)
class _Walked:
    """Some queries of a chunk, whose matches on both sides are known."""

    chunk: PanelChunk
    patterns: ChunkPatterns
    queries: range
    left: Matches
    right: Matches


@dataclass(frozen=True)
class _RunningChunk:
    """A chunk that is being computed.

    parts: some queries each; size: results of all that are in memory; results: of its group; group: set for
    the last chunk of it.
    """

    parts: list[Future[None]]
    size: int
    results: ChunkResults
    group: _WindowGroup | None

    def finish(self) -> Iterator[np.ndarray]:
        """The results of its group, if this is the group's last chunk."""
        try:
            for part in self.parts:
                part.result()
            if self.group is not None:
                first = self.group.whole.start
                for window in self.group.windows:
                    yield self.results.take(window.start - first, window.stop - first)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Wait for its parts and release its results, also after an error."""
        # waiting for a cancelled part never ends if the pool is shut down before a worker reaches it
        wait([part for part in self.parts if not part.cancel()])
        self.results.close()


class HaplotypeEngine(Engine):
    """Haplotype attention; a part is some queries in a chunk.

    Results of a chunk that is cut into several windows go through a file in the job's scratch folder.

    Parameters
    ----------
    predictor : ChunkPredictor
        What imputes a part.
    job : ImputationJob
        What is imputed.
    """

    def __init__(self, predictor: ChunkPredictor, job: ImputationJob) -> None:
        self.limits = limits_of(job)
        super().__init__(job)
        self.panel, self.predictor = job.haplotypes, predictor
        self.scratch = Path(tempfile.gettempdir()) if job.scratch is None else job.scratch

        def rate() -> float:
            if job.jumps_per_cM is not None:
                return job.jumps_per_cM
            return recombination_scale(self.panel, self.typed_index)

        count_X, n = self.panel.allele_count.astype(np.int64), self.panel.n_haplotypes
        self._rare_odds_C = rare_allele_odds(np.minimum(count_X, n - count_X), n)
        self._jumps_per_cM = self.pool.submit(rate)  # a worker's first task, which the others can wait for

    def windows(self, first: int, last: int) -> list[Interval]:
        """As `Engine.windows`; whole chunks, as long as memory allows."""
        return windows_of_chunks(
            self.panel.cM,
            self.typed_index,
            first,
            last,
            self.job.options["window_cM"],
            self.limits.window // self.job.n_queries,
        )

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """As `Engine.predict_windows`.

        Workers never wait for each other: walks along a chunk are submitted when it is prepared, and parts
        of queries when these are walked, whether or not the window before is finished.
        """
        n_queries = typed_TQ.shape[1]
        if len(self.typed_index) == 0:
            for window in windows:
                yield panel_frequencies(self.panel.frequency, window, n_queries)
            return
        limits, sibling_Q = self.limits, self.job.sibling_Q

        def prepare(task: tuple[Interval, int]) -> PanelChunk:
            return prepare_chunk(self.panel, self.typed_index, task[1], task[0])

        def impute(walked: _Walked, window: Interval, results: ChunkResults, part: range) -> None:
            chunk, queries = walked.chunk, slice(part.start, part.stop)
            first = int(chunk.site_start_G1[0])
            of_part = part.start - walked.queries.start, part.stop - walked.queries.start
            candidates = unite(walked.left.part(*of_part), walked.right.part(*of_part))
            p = self.predictor.impute_chunk(
                self.panel,
                chunk,
                walked.patterns,
                typed_TQ[:, queries],
                None if sibling_Q is None else chunk.sibling_alleles(typed_TQ, queries, sibling_Q),
                candidates,
                self._jumps_per_cM.result(),
                self._rare_odds_C,
            )
            start, stop = max(first, window.start), min(first + len(p), window.stop)
            results.put(start - window.start, queries, p[start - first : stop - first])

        groups = _WindowGroup.of(windows, self.typed_index)
        prepared = self._ahead(prepare, [(one.whole, number) for one in groups for number in one.chunks])
        walks = _parts(range(n_queries), limits.walk)
        all_walked = self._walked(prepared, typed_TQ, walks)
        running: deque[_RunningChunk] = deque()
        entries = 0
        opened: ChunkResults | None = None
        parts: list[Future[None]] = []
        try:
            for group in groups:
                window = group.whole
                in_file = len(group.windows) > 1
                shape = (window.stop - window.start, n_queries)
                results = FileResults(*shape, self.scratch) if in_file else ChunkResults(*shape)
                opened = results
                for number in group.chunks:
                    parts = []
                    for walked in itertools.islice(all_walked, len(walks)):
                        share = -(-len(walked.queries) // self.job.threads)
                        parts += [
                            self.pool.submit(impute, walked, window, results, part)
                            for part in _parts(walked.queries, min(limits.queries, share))
                        ]
                    size = 0 if in_file else int(np.ptp(walked.chunk.site_start_G1)) * n_queries
                    last = number == group.chunks[-1]
                    running.append(_RunningChunk(parts, size, results, group if last else None))
                    entries += size
                    while len(running) > limits.chunks_ahead or (len(running) > 1 and entries > limits.ahead):
                        entries -= running[0].size
                        yield from running.popleft().finish()
            while running:
                yield from running.popleft().finish()
        finally:
            wait([part for part in parts if not part.cancel()])  # of a chunk that is not yet among them
            for chunk_left in running:
                chunk_left.abandon()
            if opened is not None:  # its chunk may never have started
                opened.close()

    def _walked(
        self, prepared: Iterator[PanelChunk], typed_TQ: np.ndarray, walks: Sequence[range]
    ) -> Iterator[_Walked]:
        """All chunks' queries in order; the next ones' matches are found meanwhile, a task for each side."""
        waiting: deque[tuple[PanelChunk, Future[ChunkPatterns], range, list[Future[Matches]]]] = deque()

        def first() -> _Walked:
            chunk, patterns, queries, sides = waiting.popleft()
            left, right = (side.result() for side in sides)
            return _Walked(chunk, patterns.result(), queries, left, right)

        for chunk in prepared:
            patterns = self.pool.submit(read_patterns, self.panel, chunk)
            for queries in walks:
                typed_TP = typed_TQ[:, queries.start : queries.stop]
                sides = [
                    self.pool.submit(self.predictor.find_matches, chunk, typed_TP, on_left)
                    for on_left in (True, False)
                ]
                waiting.append((chunk, patterns, queries, sides))
                if len(waiting) > 1:
                    yield first()
        while waiting:
            yield first()

    def _ahead(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in order; the next ones are computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self.pool.submit(work, task))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _parts(queries: range, most: int) -> list[range]:
    """Consecutive queries, at most so many."""
    return [queries[i : i + most] for i in range(0, len(queries), most)]
