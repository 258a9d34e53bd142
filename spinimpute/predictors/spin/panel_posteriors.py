"""Posterior probabilities of Li and Stephens over the panel's haplotypes, as one more head of SPIN.

SPIN compares a query with inducing points inside of one block. The model of Li and Stephens follows the query
along the chromosome: which haplotype it copies here depends on whom it copies elsewhere. Neither contains the
other, and the mean of their predictions is more accurate than either (benchmarks/spin).

Axes: T typed sites, U sites, Q queries.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np

from spinimpute.genotypes.intervals import DEFAULT_LENGTH_CM, Interval, cut_windows
from spinimpute.hmm.pbwt import Matches
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors.haplotype_attention.engine import HaplotypeEngine, TileTask
from spinimpute.predictors.haplotype_attention.ibs_classes import BlockCandidates
from spinimpute.predictors.haplotype_attention.posterior_alleles import large_panel_share, posterior_alleles
from spinimpute.predictors.haplotype_attention.tile import (
    CANDIDATES,
    PanelTile,
    tile_matches,
    tile_posteriors,
    windows_of_tiles,
)
from spinimpute.predictors.interface import WINDOW_ENTRIES, WINDOW_SITES, Engine

# Weights of the posteriors in the mean. In a large panel, many haplotypes share an inducing point, so that
# SPIN knows less than the posteriors (benchmarks/tried.md).
POSTERIOR_WEIGHT = 0.5
LARGE_PANEL_WEIGHT = 0.9


def weight_of_posteriors(n_haplotypes: int) -> float:
    """Return the weight of the posteriors: POSTERIOR_WEIGHT, in large panels up to LARGE_PANEL_WEIGHT."""
    return POSTERIOR_WEIGHT + (LARGE_PANEL_WEIGHT - POSTERIOR_WEIGHT) * large_panel_share(n_haplotypes)


class PosteriorTiles:
    """Imputes tiles with the posteriors of the queries' candidates alone; see `TilePredictor`."""

    def find_matches(self, tile: PanelTile, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """Return the longest matches of queries on one side of the tile's gaps, see `tile_matches`."""
        return tile_matches(tile, typed_TQ, CANDIDATES, on_left=on_left)

    def impute_tile(self, task: TileTask) -> np.ndarray:
        """Return P(ALT) at the tile's sites, float32 (U, Q); NaN in blocks where a query has no candidate."""
        tile, typed_TQ = task.tile, task.typed_TQ
        alleles = TypedAlleles.from_alleles(typed_TQ[tile.typed.slice])
        posterior_CP, candidates = tile_posteriors(tile, alleles, task.candidates, task.rates.jumps_per_cM)
        start, stop = tile.sites
        out_UQ = np.empty((stop - start, typed_TQ.shape[1]), np.float32)
        for block, first_Q1 in zip(tile.blocks, candidates.first_BQ1, strict=True):
            if block.sites.n_sites:
                block_candidates = BlockCandidates(candidates.haplotype_C, posterior_CP, first_Q1)
                p_UQ = posterior_alleles(block_candidates, task.patterns.gaps, block.gaps)
                flip_U = block.gaps.flip_U
                p_UQ[flip_U] = 1 - p_UQ[flip_U]
                p_UQ[:, np.diff(first_Q1) == 0] = np.nan
                out_UQ[block.sites.start - start : block.sites.stop - start] = p_UQ
        out_UQ[:, ~alleles.known_XW.any(axis=1)] = np.nan
        return out_UQ


class PanelEngine(Engine):
    """Base class of engines that impute from a panel's haplotypes: the mean of SPIN and of the posteriors.

    The posteriors are computed by the threads of the pool, also if SPIN runs on a GPU.
    """

    panel: Panel

    @abstractmethod
    def predict_spin(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of SPIN alone for each window, float32 (U, Q)."""

    def cut_windows(self, sites: Interval) -> list[Interval]:
        """Cut panel sites into windows of whole tiles, or of parts of one tile if `window_cM` is shorter."""
        length_cM = self.job.options.get("window_cM", DEFAULT_LENGTH_CM)
        n_sites = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // max(1, self.job.n_queries)))
        cM, position = self.panel.cM, self.panel.position
        return [
            Interval(window.start + part.start, window.start + part.stop)
            for window in windows_of_tiles(cM, self.typed_index, sites, length_cM, n_sites)
            for part in cut_windows(cM[window.slice], position[window.slice], length_cM, n_sites)
        ]

    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of each window, see `Engine`."""
        predicted = self.predict_spin(windows, typed_TQ)
        if not len(self.typed_index):
            yield from predicted
            return
        weight = np.float32(weight_of_posteriors(self.panel.n_haplotypes))
        with (
            HaplotypeEngine(PosteriorTiles(), self.job, self.pool) as engine,
            closing(engine.predict_windows(windows, typed_TQ)) as copied,
        ):
            for p_UQ, copied_UQ in zip(predicted, copied, strict=True):
                copied_UQ -= p_UQ
                copied_UQ *= weight
                p_UQ += np.nan_to_num(copied_UQ, copy=False, nan=0)
                yield p_UQ
