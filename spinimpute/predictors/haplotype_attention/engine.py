"""The engine of haplotype attention, which imputes tile by tile with a pool of threads.

For each tile (256 gaps between typed sites) the engine submits three kinds of task to the pool: reading the
tile, searching the longest matches of a batch of queries, and imputing some queries. While a tile is imputed,
the next tile is read and the matches of the next batch are searched.

Axes: T typed sites, Q queries, S typed places of a tile, U sites, X panel sites, C numbers of carriers.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.pbwt import Candidates, Matches, unite
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors.haplotype_attention.memory import limits_of
from spinimpute.predictors.haplotype_attention.posterior_alleles import rare_allele_odds
from spinimpute.predictors.haplotype_attention.tile import (
    PanelTile,
    TilePatterns,
    read_patterns,
    read_tile,
    windows_of_tiles,
)
from spinimpute.predictors.interface import Engine, ImputationJob, panel_frequencies
from spinimpute.predictors.results import FileResults, MemoryResults
from spinimpute.predictors.typed_tiles import tiles_between


class PanelRates(NamedTuple):
    """Rates that are estimated once per job, from the panel."""

    jumps_per_cM: float  # recombination scale
    rare_odds_C: np.ndarray  # factors for the odds of rare alleles, see `rare_allele_odds`


class TileTask(NamedTuple):
    """Some queries to impute in a tile."""

    panel: Panel
    tile: PanelTile
    patterns: TilePatterns
    typed_TQ: np.ndarray  # int8, -1 where missing
    siblings: TypedAlleles | None  # alleles of the queries' sibling haplotypes; None if they are unknown
    candidates: Candidates
    rates: PanelRates


class TilePredictor(Protocol):
    """What the engine runs: `HaplotypePredictor` or `PosteriorTiles`."""

    def find_matches(self, tile: PanelTile, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """Return the longest matches of queries on one side of the tile's gaps."""

    def impute_tile(self, task: TileTask) -> np.ndarray:
        """Return P(ALT) at the tile's sites, float32 (U, Q)."""


class _WindowGroup(NamedTuple):
    """Windows that are computed together: one window of whole tiles, or all windows of one tile."""

    windows: list[Interval]
    tiles: range


class _MatchedQueries(NamedTuple):
    """A batch of queries of a tile, with the tasks that search their matches on both sides of the gaps."""

    tile: PanelTile
    patterns: Future[TilePatterns]
    queries: range
    left: Future[Matches]
    right: Future[Matches]


@dataclass
class _RunningTile:
    """A tile that is being computed."""

    results: MemoryResults  # P(ALT) of the tile's group of windows
    group: _WindowGroup | None  # set only in the last tile of a group
    tasks: list[Future[None]]  # each task imputes some queries
    entries: int = 0  # number of the tile's results (site x query) in memory

    def finish(self) -> Iterator[np.ndarray]:
        """Wait for the tile. If it is the last one of its group, yield the results of the group's windows."""
        for task in self.tasks:
            task.result()
        if self.group is not None:
            first = self.group.windows[0].start
            for window in self.group.windows:
                yield self.results.take(window.start - first, window.stop - first)
        self.results.close()


class HaplotypeEngine(Engine):
    """Engine of haplotype attention.

    If a tile is cut into several windows, its results are stored in a file in the job's scratch folder.
    """

    def __init__(
        self, predictor: TilePredictor, job: ImputationJob, pool: ThreadPoolExecutor | None = None
    ) -> None:
        assert job.panel.haplotypes is not None, "the registry allows only panels with haplotypes"
        self.limits, self.panel, self.predictor = limits_of(job), job.panel.haplotypes, predictor
        super().__init__(job, pool)
        self.scratch = Path(tempfile.gettempdir()) if job.scratch is None else job.scratch

        def estimate() -> PanelRates:
            count_X, n = self.panel.allele_count.astype(np.int64), self.panel.n_haplotypes
            scale = job.jumps_per_cM
            if scale is None:
                scale = recombination_scale(self.panel, self.typed_index)
            return PanelRates(scale, rare_allele_odds(np.minimum(count_X, n - count_X), n))

        self._rates = self.pool.submit(estimate)  # submitted first, because other tasks wait for the rates

    def cut_windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows of whole tiles, as large as the memory limits allow."""
        length_cM, n_sites = self.job.options["window_cM"], self.limits.window // self.job.n_queries
        return windows_of_tiles(self.panel.cM, self.typed_index, sites, length_cM, n_sites)

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, see `Engine`.

        Several windows may be in progress. A task is submitted only when its inputs exist, so no thread of
        the pool waits for another thread: matches are searched when the tile has been read, and queries are
        imputed when their matches have been found.
        """
        n_queries = typed_TQ.shape[1]
        if len(self.typed_index) == 0:
            for window in windows:
                yield panel_frequencies(self.panel.frequency, window, n_queries)
            return
        limits, groups = self.limits, _group_windows(windows, self.typed_index)
        batches = _batches(range(n_queries), limits.matched)
        matched_batches = self._search_matches(groups, typed_TQ, batches)
        running: deque[_RunningTile] = deque()
        entries = 0
        try:
            for group in groups:
                window = Interval(group.windows[0].start, group.windows[-1].stop)
                in_file, shape = len(group.windows) > 1, (window.n_sites, n_queries)
                results = (
                    FileResults(*shape, self.scratch)
                    if in_file
                    else MemoryResults(np.empty(shape, np.float32))
                )
                for number in group.tiles:
                    tile = _RunningTile(results, group if number == group.tiles[-1] else None, [])
                    running.append(tile)
                    for matched in itertools.islice(matched_batches, len(batches)):
                        for future in (matched.patterns, matched.left, matched.right):
                            future.result()  # wait here, not in a thread of the pool
                        share = -(-len(matched.queries) // self.job.threads)
                        tile.tasks += [
                            self.pool.submit(self._impute, typed_TQ, matched, window, results, queries)
                            for queries in _batches(matched.queries, min(limits.queries, share))
                        ]
                    if not in_file:
                        tile.entries = matched.tile.sites.n_sites * n_queries
                    entries += tile.entries
                    while len(running) > limits.tiles_ahead or (len(running) > 1 and entries > limits.ahead):
                        yield from running[0].finish()
                        entries -= running.popleft().entries
            while running:
                yield from running[0].finish()
                running.popleft()
        finally:
            for tile in running:
                # cancelled tasks are never marked as done if the pool is shut down: do not wait for them
                wait([task for task in tile.tasks if not task.cancel()])
                tile.results.close()

    def _search_matches(
        self, groups: Sequence[_WindowGroup], typed_TQ: np.ndarray, batches: Sequence[range]
    ) -> Iterator[_MatchedQueries]:
        """Yield the batches of queries of all tiles in order, with the tasks that search their matches.

        The next tile is already being read, and the matches of the next batch are already being searched.
        """
        reads = (
            self.pool.submit(
                read_tile, self.panel, self.typed_index, number, Interval(windows[0].start, windows[-1].stop)
            )
            for windows, tiles in groups
            for number in tiles
        )  # a generator: each read is submitted when `next` is called
        waiting: deque[_MatchedQueries] = deque()
        next_reading = next(reads, None)
        while next_reading is not None:
            reading, next_reading = next_reading, next(reads, None)
            tile = reading.result()
            patterns = self.pool.submit(read_patterns, self.panel, tile)
            for queries in batches:
                some_TQ = typed_TQ[:, queries.start : queries.stop]
                left, right = (
                    self.pool.submit(self.predictor.find_matches, tile, some_TQ, on_left)
                    for on_left in (True, False)
                )
                waiting.append(_MatchedQueries(tile, patterns, queries, left, right))
                if len(waiting) > 1:
                    yield waiting.popleft()
        yield from waiting

    def _impute(
        self,
        typed_TQ: np.ndarray,
        matched: _MatchedQueries,
        window: Interval,
        results: MemoryResults,
        numbers: range,
    ) -> None:
        """Impute the queries `numbers` of a tile. Store P(ALT) in the results of the tile's group."""
        tile, queries, sibling_Q = matched.tile, slice(numbers.start, numbers.stop), self.job.sibling_Q
        batch_slice = numbers.start - matched.queries.start, numbers.stop - matched.queries.start
        siblings = None
        if sibling_Q is not None:
            alleles_SQ = typed_TQ[tile.typed.slice][:, sibling_Q[queries]]
            alleles_SQ[:, sibling_Q[queries] == np.array(numbers)] = -1  # queries without a sibling
            siblings = TypedAlleles.from_alleles(alleles_SQ)
        task = TileTask(
            self.panel,
            tile,
            matched.patterns.result(),
            typed_TQ[:, queries],
            siblings,
            unite(matched.left.result().part(*batch_slice), matched.right.result().part(*batch_slice)),
            self._rates.result(),
        )
        p_UQ = self.predictor.impute_tile(task)
        first = tile.sites.start
        start, stop = max(first, window.start), min(first + len(p_UQ), window.stop)
        results.put(start - window.start, queries, p_UQ[start - first : stop - first])


def _group_windows(windows: Sequence[Interval], typed_index: np.ndarray) -> list[_WindowGroup]:
    groups: list[_WindowGroup] = []
    for window in windows:
        tiles = tiles_between(window.start, window.stop, typed_index)
        if groups and len(tiles) == 1 and groups[-1].tiles == tiles:
            groups[-1].windows.append(window)
        else:
            groups.append(_WindowGroup([window], tiles))
    return groups


def _batches(queries: range, max_size: int) -> list[range]:
    """Cut queries into consecutive ranges of at most `max_size` queries."""
    return [queries[i : i + max_size] for i in range(0, len(queries), max_size)]
