"""The engine of haplotype attention: tiles are read in advance, and their queries are spread over threads."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.pbwt import Candidates, Matches, unite
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engine import Engine, ImputationJob, panel_frequencies
from spinimpute.predictors.haplotype_attention.memory import limits_of
from spinimpute.predictors.haplotype_attention.posterior_alleles import rare_allele_odds
from spinimpute.predictors.haplotype_attention.tile import (
    PanelTile,
    TilePatterns,
    read_patterns,
    read_tile,
    windows_of_tiles,
)
from spinimpute.predictors.results import FileResults, MemoryResults
from spinimpute.predictors.typed_tiles import tiles_between

Task = TypeVar("Task")
Result = TypeVar("Result")


class PanelRates(NamedTuple):
    """What is estimated once for a panel and an array: recombination scale, and odds of rare alleles."""

    jumps_per_cM: float
    rare_odds_C: np.ndarray  # see `rare_allele_odds`


class TilePredictor(Protocol):
    """The methods of `HaplotypePredictor` that the engine calls."""

    def find_matches(self, tile: PanelTile, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """Find the longest matches on one side of the tile's gaps."""

    def impute_tile(
        self,
        panel: Panel,
        tile: PanelTile,
        patterns: TilePatterns,
        typed_TQ: np.ndarray,
        siblings: TypedAlleles | None,
        candidates: Candidates,
        rates: PanelRates,
    ) -> np.ndarray:
        """P(ALT) at the tile's sites, float32 (U, Q)."""


@dataclass(frozen=True)
class _WindowGroup:
    """Windows that are computed together: one window of whole tiles, or all windows of one tile."""

    windows: list[Interval]
    tiles: range

    @property
    def sites(self) -> Interval:
        return Interval(self.windows[0].start, self.windows[-1].stop)

    @staticmethod
    def of(windows: Sequence[Interval], typed_index: np.ndarray) -> list[_WindowGroup]:
        def tiles(window: Interval) -> range:
            return tiles_between(window.start, window.stop, typed_index)

        groups: list[_WindowGroup] = []
        for numbers, some in itertools.groupby(windows, tiles):
            together = list(some)
            if len(numbers) == 1:
                groups.append(_WindowGroup(together, numbers))
            else:
                groups += [_WindowGroup([window], numbers) for window in together]
        return groups


@dataclass(frozen=True)
class _MatchedQueries:
    """Some queries of a tile, with their matches on both sides."""

    tile: PanelTile
    patterns: TilePatterns
    queries: range
    left: Matches
    right: Matches


@dataclass(frozen=True)
class _RunningTile:
    """A tile that is being computed."""

    tasks: list[Future[None]]  # each computes some queries
    entries: int  # results in memory
    results: MemoryResults  # of the tile's group of windows
    group: _WindowGroup | None  # None unless this is the last tile of its group

    def finish(self) -> Iterator[np.ndarray]:
        """Wait for the tile; yield the results of its group if this is the group's last tile."""
        try:
            for task in self.tasks:
                task.result()
            if self.group is not None:
                first = self.group.sites.start
                for window in self.group.windows:
                    yield self.results.take(window.start - first, window.stop - first)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Wait for the tasks and release the results, also after an error."""
        # waiting for a cancelled task never ends if the pool is shut down before a worker reaches it
        wait([task for task in self.tasks if not task.cancel()])
        self.results.close()


class HaplotypeEngine(Engine):
    """Computes some queries in a tile at a time.

    Results of a tile that is cut into several windows go through a file in the job's scratch folder.
    """

    def __init__(self, predictor: TilePredictor, job: ImputationJob) -> None:
        self.limits = limits_of(job)
        super().__init__(job)
        self.panel, self.predictor = job.haplotypes, predictor
        self.scratch = Path(tempfile.gettempdir()) if job.scratch is None else job.scratch

        def estimate() -> PanelRates:
            count_X, n = self.panel.allele_count.astype(np.int64), self.panel.n_haplotypes
            scale = job.jumps_per_cM
            if scale is None:
                scale = recombination_scale(self.panel, self.typed_index)
            return PanelRates(scale, rare_allele_odds(np.minimum(count_X, n - count_X), n))

        self._rates = self.pool.submit(estimate)  # a worker's first task, which other tasks may wait for

    def windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows of whole tiles, as long as memory allows."""
        length_cM, n_sites = self.job.options["window_cM"], self.limits.window // self.job.n_queries
        return windows_of_tiles(self.panel.cM, self.typed_index, sites, length_cM, n_sites)

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window.

        Workers never wait for each other: the search for matches in a tile is submitted when the tile has
        been read, and the imputation of its queries when their matches are found, whether or not the window
        before is finished.
        """
        n_queries = typed_TQ.shape[1]
        if len(self.typed_index) == 0:
            for window in windows:
                yield panel_frequencies(self.panel.frequency, window, n_queries)
            return
        limits, sibling_Q = self.limits, self.job.sibling_Q

        def read(task: tuple[Interval, int]) -> PanelTile:
            return read_tile(self.panel, self.typed_index, task[1], task[0])

        def impute(
            matched: _MatchedQueries, window: Interval, results: MemoryResults, numbers: range
        ) -> None:
            tile, queries = matched.tile, slice(numbers.start, numbers.stop)
            some = numbers.start - matched.queries.start, numbers.stop - matched.queries.start
            p_UQ = self.predictor.impute_tile(
                self.panel,
                tile,
                matched.patterns,
                typed_TQ[:, queries],
                None if sibling_Q is None else tile.sibling_alleles(typed_TQ, queries, sibling_Q),
                unite(matched.left.part(*some), matched.right.part(*some)),
                self._rates.result(),
            )
            first = tile.sites.start
            start, stop = max(first, window.start), min(first + len(p_UQ), window.stop)
            results.put(start - window.start, queries, p_UQ[start - first : stop - first])

        groups = _WindowGroup.of(windows, self.typed_index)
        tiles = self._ahead(read, [(group.sites, number) for group in groups for number in group.tiles])
        batches = _batches(range(n_queries), limits.matched)
        all_matched = self._matched(tiles, typed_TQ, batches)
        running: deque[_RunningTile] = deque()
        entries = 0
        opened: MemoryResults | None = None
        tasks: list[Future[None]] = []
        try:
            for group in groups:
                window = group.sites
                in_file = len(group.windows) > 1
                shape = (window.n_sites, n_queries)
                results = FileResults(*shape, self.scratch) if in_file else MemoryResults(*shape)
                opened = results
                for number in group.tiles:
                    tasks = []
                    for matched in itertools.islice(all_matched, len(batches)):
                        share = -(-len(matched.queries) // self.job.threads)
                        tasks += [
                            self.pool.submit(impute, matched, window, results, numbers)
                            for numbers in _batches(matched.queries, min(limits.queries, share))
                        ]
                    size = 0 if in_file else matched.tile.sites.n_sites * n_queries
                    is_last = number == group.tiles[-1]
                    running.append(_RunningTile(tasks, size, results, group if is_last else None))
                    entries += size
                    while len(running) > limits.tiles_ahead or (len(running) > 1 and entries > limits.ahead):
                        entries -= running[0].entries
                        yield from running.popleft().finish()
            while running:
                yield from running.popleft().finish()
        finally:
            wait([task for task in tasks if not task.cancel()])  # of a tile that is not yet in `running`
            for tile_left in running:
                tile_left.abandon()
            if opened is not None:  # its tile may never have started
                opened.close()

    def _matched(
        self, tiles: Iterator[PanelTile], typed_TQ: np.ndarray, batches: Sequence[range]
    ) -> Iterator[_MatchedQueries]:
        """Yield all queries of all tiles in order; meanwhile the next matches are found, a task a side."""
        waiting: deque[tuple[PanelTile, Future[TilePatterns], range, list[Future[Matches]]]] = deque()

        def first() -> _MatchedQueries:
            tile, patterns, queries, sides = waiting.popleft()
            left, right = (side.result() for side in sides)
            return _MatchedQueries(tile, patterns.result(), queries, left, right)

        for tile in tiles:
            patterns = self.pool.submit(read_patterns, self.panel, tile)
            for queries in batches:
                some_TQ = typed_TQ[:, queries.start : queries.stop]
                sides = [
                    self.pool.submit(self.predictor.find_matches, tile, some_TQ, on_left)
                    for on_left in (True, False)
                ]
                waiting.append((tile, patterns, queries, sides))
                if len(waiting) > 1:
                    yield first()
        while waiting:
            yield first()

    def _ahead(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield results in order; the next one is computed meanwhile."""
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self.pool.submit(work, task))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _batches(queries: range, most: int) -> list[range]:
    """Consecutive queries, at most this many in each range."""
    return [queries[i : i + most] for i in range(0, len(queries), most)]
