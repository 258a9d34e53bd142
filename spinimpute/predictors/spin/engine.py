"""The two engines of the predictor SPIN.

`BlockEngine` imputes from a panel of haplotypes: it computes the inducing points of each block and discards
them after use. `InducingEngine` imputes from a `.spip` file, which already contains the inducing points. Each
task of the thread pool is one block (8 gaps between typed sites by default), or the posteriors of a tile of
blocks for several queries (`point_posteriors`). Blocks are read whole, and tiles do not depend on windows.
Results therefore do not depend on how a chromosome is cut into windows.

The posteriors of a query in a tile take up to 140 kB, so `InducingEngine` computes a tile for a group of
queries at a time, and stores P(ALT) of all queries until the windows of the tile have been taken.

Axes: T typed sites, Q queries, U sites of a window or block, S typed places of a block, V sites of the array
of a `.spip` file. A place is a typed site of the block, or padding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor, BlockReader, EncodedBlock, PanelBlock
from spinimpute.panels.soft_alleles import round_points
from spinimpute.predictors.interface import Engine, ImputationJob, panel_frequencies
from spinimpute.predictors.results import FileResults, MemoryResults
from spinimpute.predictors.spin.panel_posteriors import PanelEngine
from spinimpute.predictors.spin.point_posteriors import (
    POINT_WEIGHT,
    PointChain,
    TilePosteriors,
    TileStates,
    posteriors_of,
    tile_of,
)
from spinimpute.runtime.errors import InputError, argument

Result = TypeVar("Result")
QUERIES_PER_TASK = 32  # queries whose posteriors one thread computes together
QUERIES_AT_ONCE = 1_024  # queries whose posteriors are in memory at a time
MAX_ENTRIES_IN_MEMORY = 8_000_000  # sites x queries of a tile; larger results are stored in a file


class BlockEngine(PanelEngine):
    """Engine that computes inducing points from a panel's haplotypes, and imputes from both."""

    def __init__(self, predictor: BlockPredictor, job: ImputationJob) -> None:
        assert job.panel.haplotypes is not None, "`InducingEngine` imputes from other panels"
        super().__init__(job)
        self.panel, self.predictor = job.panel.haplotypes, predictor

    def predict_spin(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of SPIN alone, block by block."""
        for window in windows:
            yield self._predict_window(window, typed_TQ)

    def encode_window(self, window: Interval) -> list[EncodedBlock]:
        """Return the points of every block of a window, with members; [] if there is no typed site."""
        return self._map_blocks(window, partial(self._encode, with_members=True))

    def _encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        encoded = self.predictor.encode(block, with_members=with_members)
        if not all(np.isfinite(values).all() for values in encoded.points.values()):
            raise not_finite()
        return encoded

    def _predict_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """Return P(ALT) of one window; without typed sites, the panel's ALT frequencies."""
        p_UQ = panel_frequencies(self.panel.frequency, window, typed_TQ.shape[1])

        def impute(block: PanelBlock) -> tuple[np.ndarray, np.ndarray]:
            encoded = round_points(self._encode(block))
            return encoded.sites.panel_index_U, predict_block(self.predictor, encoded, typed_TQ)

        for index_U, p in self._map_blocks(window, impute):
            p_UQ[index_U - window.start] = p
        return p_UQ

    def _map_blocks(self, window: Interval, work: Callable[[PanelBlock], Result]) -> list[Result]:
        n_typed = len(self.typed_index)
        if n_typed == 0:
            return []
        # 0 and n_typed: a block uses typed sites outside the window too, like the blocks of a `.spip` file
        reader = BlockReader(
            self.panel, self.typed_index, self.predictor.shape, 0, n_typed, window.start, window.stop
        )
        return list(self.pool.map(lambda number: work(reader.read(number)), reader.blocks))


def not_finite(what: str = "inducing points") -> InputError:
    """Return the error of a model that makes inducing points or predictions that are not finite."""
    return InputError(
        "damaged",
        f"the model makes {what} that are not finite: it is untrained or damaged. "
        f"Give another model ({argument('model')}).",
    )


def predict_block(predictor: BlockPredictor, encoded: EncodedBlock, typed_TQ: np.ndarray) -> np.ndarray:
    """Return P(ALT), float32 (U, Q), at the sites of a block; typed_TQ is int8, -1 where missing."""
    return _predict(predictor, encoded, encoded.places.fill(typed_TQ))


def _predict(predictor: BlockPredictor, encoded: EncodedBlock, alleles_QS: np.ndarray) -> np.ndarray:
    known_QS = (alleles_QS >= 0).astype(np.uint8)
    return predictor.predict(encoded, np.maximum(alleles_QS, 0).astype(np.uint8), known_QS)


class InducingEngine(Engine):
    """Engine that imputes from a file of inducing points: the mean of SPIN and of the posteriors of points.

    The file is made for an array. If the target lacks a site of this array, all its alleles there are treated
    as missing calls.
    """

    def __init__(self, predictor: BlockPredictor, panel: InducingPanel, job: ImputationJob) -> None:
        super().__init__(job)
        self.panel, self.predictor = panel, predictor
        array = panel.array_index
        row_V = np.searchsorted(job.typed_index, array)
        # row of typed_TQ for each site of the array; -1 if it is not typed, or outside the imputed region
        self._row_V = np.where(np.isin(array, job.typed_index), row_V, -1)
        self._chain = PointChain(panel)
        self._scratch = Path(tempfile.gettempdir()) if job.scratch is None else job.scratch

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, see `Engine`."""
        n_queries = typed_TQ.shape[1]
        last_tile, sites, results = range(0), Interval(0, 0), MemoryResults(np.empty((0, 0), np.float32))
        with ExitStack() as open_results:
            for window in windows:
                p_UQ = np.empty((window.n_sites, n_queries), np.float32)
                blocks = self.panel.blocks(window.start, window.stop)
                first = blocks.start
                while first < blocks.stop and n_queries:
                    tile, around = tile_of(self.panel, first)
                    if tile != last_tile:
                        open_results.close()
                        last_tile, sites = tile, self._sites(tile, windows)
                        results = open_results.enter_context(closing(self._storage(sites, n_queries)))
                        self._impute_tile(tile, around, sites, typed_TQ, results)
                    start, stop = max(window.start, sites.start), min(window.stop, sites.stop)
                    results.copy_to(start - sites.start, p_UQ[start - window.start : stop - window.start])
                    first = tile.stop
                yield p_UQ

    def _sites(self, tile: range, windows: Sequence[Interval]) -> Interval:
        """Return the sites of a tile from the first to the last window."""
        sites = self.panel.imputed_sites(tile)
        return Interval(max(sites.start, windows[0].start), min(sites.stop, windows[-1].stop))

    def _storage(self, sites: Interval, n_queries: int) -> MemoryResults:
        """Return a storage for the results of a tile."""
        if sites.n_sites * n_queries > MAX_ENTRIES_IN_MEMORY:
            return FileResults(sites.n_sites, n_queries, self._scratch)
        return MemoryResults(np.empty((sites.n_sites, n_queries), np.float32))

    def _impute_tile(
        self, tile: range, around: range, sites: Interval, typed_TQ: np.ndarray, results: MemoryResults
    ) -> None:
        """Store P(ALT) at the sites of a tile; in blocks without typed sites, the panel's ALT frequencies."""
        states = self._chain.states(around)
        for first in range(0, typed_TQ.shape[1], QUERIES_AT_ONCE):
            queries = slice(first, first + QUERIES_AT_ONCE)
            results.put(0, queries, self._impute_queries(tile, around, sites, states, typed_TQ[:, queries]))

    def _impute_queries(
        self, tile: range, around: range, sites: Interval, states: TileStates, typed_TQ: np.ndarray
    ) -> np.ndarray:
        """Return P(ALT) of some queries at the sites of a tile, float32 (U, Q)."""
        posteriors = self._posteriors(tile, around, states, typed_TQ)
        p_UQ = panel_frequencies(self.panel.frequency, sites, typed_TQ.shape[1])
        work = partial(self._impute_block, sites, tile.start, posteriors, typed_TQ, p_UQ)
        list(self.pool.map(work, self.panel.blocks(sites.start, sites.stop)))
        return p_UQ

    def _impute_block(
        self,
        sites: Interval,
        first: int,
        posteriors: Sequence[TilePosteriors],
        typed_TQ: np.ndarray,
        p_UQ: np.ndarray,
        number: int,
    ) -> None:
        """Write P(ALT) of a block to its sites of `sites`; `first` is the first block of its tile."""
        block = self.panel.read(number, sites.start, sites.stop)
        places = block.places
        visible = slice(places.first, places.last)
        if (self._row_V[visible] < 0).all():
            return
        alleles_QS = np.full((typed_TQ.shape[1], len(places.cM_S)), -1, dtype=np.int8)
        columns = slice(places.offset, places.offset + places.last - places.first)
        alleles_QS[:, columns] = self._alleles(visible, typed_TQ).T
        spin_UQ = _predict(self.predictor, block, alleles_QS)
        self.panel.check_states(number, block, posteriors[0].points_B[number - first])
        copied_UQ = np.concatenate([some.pool(number, block) for some in posteriors], axis=1)
        frequency_U1 = block.sites.frequency_U[:, None]
        weight_U1 = np.float32(POINT_WEIGHT) * ((frequency_U1 > 0) & (frequency_U1 < 1))
        mean_UQ = (1 - weight_U1) * spin_UQ + weight_U1 * copied_UQ
        p_UQ[block.sites.panel_index_U - sites.start] = mean_UQ

    def _posteriors(
        self, tile: range, around: range, states: TileStates, typed_TQ: np.ndarray
    ) -> list[TilePosteriors]:
        """Return the posteriors of points in the blocks of a tile, of several queries each."""
        core = slice(tile.start - around.start, tile.stop - around.start)
        allele_SQ = self._alleles(self._chain.typed(around), typed_TQ)

        def compute(number: int) -> TilePosteriors:
            queries = slice(number * QUERIES_PER_TASK, (number + 1) * QUERIES_PER_TASK)
            return posteriors_of(states, core, tile.start, allele_SQ[:, queries])

        return list(self.pool.map(compute, range(-(-typed_TQ.shape[1] // QUERIES_PER_TASK))))

    def _alleles(self, sites: slice, typed_TQ: np.ndarray) -> np.ndarray:
        """Return the queries' alleles at some sites of the array, int8 (S, Q), -1 where missing."""
        row_S = self._row_V[sites]
        allele_SQ = np.full((len(row_S), typed_TQ.shape[1]), -1, np.int8)
        allele_SQ[row_S >= 0] = typed_TQ[row_S[row_S >= 0]]
        return allele_SQ
