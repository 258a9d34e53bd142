"""The two engines of the predictor SPIN.

`BlockEngine` imputes from a panel of haplotypes: it computes the inducing points of each block and discards
them after use. `InducingEngine` imputes from a `.spip` file, which already contains the inducing points. Each
task of the thread pool is one block (8 gaps between typed sites by default), or the posteriors of a tile of
blocks for several queries (`point_posteriors`). Blocks are read whole, and tiles do not depend on windows.
Results therefore do not depend on how a chromosome is cut into windows.

Axes: T typed sites, Q queries, U sites of a window or block, S typed places of a block, V sites of the array
of a `.spip` file. A place is a typed site of the block, or padding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor, BlockReader, EncodedBlock, PanelBlock
from spinimpute.panels.soft_alleles import round_points
from spinimpute.predictors.interface import Engine, ImputationJob, panel_frequencies
from spinimpute.predictors.spin.panel_posteriors import PanelEngine
from spinimpute.predictors.spin.point_posteriors import (
    POINT_WEIGHT,
    PointChain,
    TilePosteriors,
    posteriors_of,
    tile_of,
)
from spinimpute.runtime.errors import InputError, argument

Result = TypeVar("Result")
QUERIES_PER_TASK = 32  # queries whose posteriors one thread computes together


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
        # the tile whose posteriors were computed last, its alleles, and the posteriors
        self._last: tuple[range, np.ndarray, list[TilePosteriors]] | None = None

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, see `Engine`."""
        for window in windows:
            yield self._predict_window(window, typed_TQ)

    def _predict_window(self, window: Interval, typed_TQ: np.ndarray) -> np.ndarray:
        """Return P(ALT) of one window; in blocks without typed sites, the panel's ALT frequencies."""
        p_UQ = panel_frequencies(self.panel.frequency, window, typed_TQ.shape[1])
        if not typed_TQ.shape[1]:
            return p_UQ
        blocks = self.panel.blocks(window.start, window.stop)
        first = blocks.start
        while first < blocks.stop:
            tile, around = tile_of(self.panel, first)
            part = range(first, min(tile.stop, blocks.stop))
            if self._last is None or self._last[0] != tile or self._last[1] is not typed_TQ:
                self._last = None  # frees memory
                self._last = tile, typed_TQ, self._posteriors(tile, around, typed_TQ)
            work = partial(self._impute_block, window, tile.start, self._last[2], typed_TQ, p_UQ)
            list(self.pool.map(work, part))
            first = part.stop
        return p_UQ

    def _impute_block(
        self,
        window: Interval,
        first: int,
        posteriors: Sequence[TilePosteriors],
        typed_TQ: np.ndarray,
        p_UQ: np.ndarray,
        number: int,
    ) -> None:
        """Write P(ALT) of a block to its sites of the window; `first` is the first block of its tile."""
        block = self.panel.read(number, window.start, window.stop)
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
        p_UQ[block.sites.panel_index_U - window.start] = mean_UQ

    def _posteriors(self, tile: range, around: range, typed_TQ: np.ndarray) -> list[TilePosteriors]:
        """Return the posteriors of points in the blocks of a tile, of several queries each."""
        states = self._chain.states(around)
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
