"""Which haplotypes of a panel resemble each haplotype at a locus, by the model of Li and Stephens.

The samples are divided into FOLDS parts. The haplotypes of a part are compared with those of the other parts,
so no haplotype is compared with itself or with its sibling.

Axes: T typed sites, N haplotypes, C pairs of a haplotype and one that it may copy. A trailing 1 means one
more than the axis.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.pbwt import unite
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.trust.discordance import order_samples, read_alleles
from spinimpute.pipeline.trust.doubts import write_subpanel
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS
from spinimpute.predictors.haplotype_attention.tile import (
    CANDIDATES,
    PanelTile,
    read_tile,
    tile_matches,
    tile_posteriors,
)
from spinimpute.predictors.typed_tiles import TILE_GAPS
from spinimpute.runtime.progress import Progress

FOLDS = 10
STEP = 200  # base pairs; the most common site of each step is compared
MIN_FREQUENCY = 0.005  # minimum minor allele frequency of these sites
REACH_CM = 2.0  # sites up to this distance from a locus are compared
_BATCH = 512  # haplotypes compared at a time; bounds the memory


class CopyingWeights(NamedTuple):
    """For each haplotype, the probability that it copies each of some others at a locus."""

    haplotype_C: np.ndarray  # int32
    weight_C: np.ndarray  # float32
    first_N1: np.ndarray  # int64, index of each haplotype's first pair


def comparable_sites(panel: Panel, position: int) -> np.ndarray:
    """Return the sites at which haplotypes are compared to find the label at a position, int64 (T,)."""
    minor_X = np.minimum(panel.frequency, 1 - panel.frequency)
    locus_cM = np.interp(position, panel.position, panel.cM)
    near_X = np.abs(panel.cM - locus_cM) <= REACH_CM
    common_T = np.flatnonzero((minor_X >= MIN_FREQUENCY) & near_X & ~panel.multiallelic)
    step_T = panel.position[common_T] // STEP
    order_T = np.lexsort((common_T, -minor_X[common_T], step_T))
    first = np.unique(step_T[order_T], return_index=True)[1]
    return common_T[order_T][first]


def copying_weights(
    panel: Panel, position: int, folder: Path, threads: int, progress: Progress | None = None
) -> CopyingWeights:
    """Return the weights at a position.

    Temporary files are written to `folder`. Results do not depend on `threads`, or on the order and names of
    samples.
    """
    site_T = comparable_sites(panel, position)
    rank_X = np.empty(panel.n_samples, np.int64)
    rank_X[order_samples(panel, site_T)] = np.arange(panel.n_samples)
    fold_N = (rank_X % FOLDS)[panel.haplotype_sample]
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    with ThreadPoolExecutor(threads) as pool:
        for fold in range(min(FOLDS, panel.n_samples)):
            query_Q, kept_N = np.flatnonzero(fold_N == fold), np.flatnonzero(fold_N != fold)
            path = folder / "others.spin"
            write_subpanel(panel, site_T, kept_N, path)
            typed_TQ = read_alleles(panel, site_T, query_Q).astype(np.int8)
            with Panel.open(path) as others:
                typed_index = np.arange(len(site_T))
                scale = recombination_scale(others, typed_index)
                gap = int(np.searchsorted(others.position, position))
                site = min(gap, len(site_T) - 1)
                tile = read_tile(others, typed_index, gap // TILE_GAPS, Interval(site, site + 1))
                starts = range(0, len(query_Q), _BATCH)
                batches_TQ = [typed_TQ[:, first : first + _BATCH] for first in starts]
                found = pool.map(partial(_weights, tile, gap, scale), batches_TQ)
                for first, weights in zip(starts, found, strict=True):
                    query_C = np.repeat(query_Q[first : first + _BATCH], np.diff(weights.first_N1))
                    pairs.append((query_C, kept_N[weights.haplotype_C], weights.weight_C))
            if progress is not None:
                progress((fold + 1) / FOLDS)
    query_C, haplotype_C, weight_C = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((haplotype_C, query_C))
    first_N1 = np.searchsorted(query_C[order], np.arange(panel.n_haplotypes + 1))
    return CopyingWeights(haplotype_C[order].astype(np.int32), weight_C[order], first_N1)


def _weights(tile: PanelTile, gap: int, jumps_per_cM: float, typed_TQ: np.ndarray) -> CopyingWeights:
    """Return the weights of queries in a gap between typed sites. All sites of the tile's panel are typed."""
    typed_TQ = np.ascontiguousarray(typed_TQ)
    left, right = (tile_matches(tile, typed_TQ, CANDIDATES, on_left=side) for side in (True, False))
    alleles = TypedAlleles.from_alleles(typed_TQ[tile.typed.slice])
    posterior_CP, candidates = tile_posteriors(tile, alleles, unite(left, right), jumps_per_cM)
    block, place = divmod(gap % TILE_GAPS, BLOCK_GAPS)
    first_Q1 = candidates.first_BQ1[block]
    here = slice(int(first_Q1[0]), int(first_Q1[-1]))
    weight_C = posterior_CP[here, place : place + 2].mean(axis=1)
    return CopyingWeights(tile.order_N[candidates.haplotype_C[here]], weight_C, first_Q1 - first_Q1[0])
