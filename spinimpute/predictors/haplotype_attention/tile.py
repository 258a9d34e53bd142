"""A tile of the panel for haplotype attention: alleles at typed sites, and patterns of alleles in the gaps.

A tile (`typed_tiles`) is 256 gaps, cut into blocks of 16 gaps (BLOCK_GAPS). Tiles and blocks are counted from
the first gap of the chromosome, so results do not depend on how a chromosome is cut into windows. The panel's
haplotypes are sorted by their alleles, so results do not depend on the order of the samples in the file. A
*place* is the index of a typed site among the typed sites of a tile and of its flanks.

Axes: S places of a tile, N panel haplotypes, G gaps, B blocks, U sites, W 64-bit words. A trailing 1 means
one more than the axis.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.blocks import gap_geometry
from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import label_rows
from spinimpute.hmm import parameters
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.patterns import SpanPatterns, span_patterns
from spinimpute.hmm.pbwt import Candidates, CandidateSettings, Matches, longest_matches
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors import typed_tiles
from spinimpute.predictors.haplotype_attention.agreement import RarestAlleles, rarest_alleles
from spinimpute.predictors.haplotype_attention.copying import (
    BLOCK_GAPS,
    GapPatterns,
    GapSites,
    gap_patterns,
    hash_rows,
)
from spinimpute.predictors.haplotype_attention.decoder_network import SiteFeatures
from spinimpute.predictors.haplotype_attention.ibs_classes import GapDistances
from spinimpute.predictors.haplotype_attention.posterior_alleles import large_panel_share
from spinimpute.predictors.haplotype_attention.settings import gap_features, site_features

WHOLE_BLOCK_SITES = 65_536  # blocks with up to this many sites are never cut by the edge of a window
HASHED_SITES = 1_024  # polymorphic sites to hash at each end of a gap: enough to distinguish haplotypes
# In blocks with wide gaps more haplotypes match equally well. If the mean width of a block's gaps exceeds
# DENSE_CM, the number of IBS classes is multiplied by min(sqrt(width / DENSE_CM), MAX_CLASS_FACTOR).
DENSE_CM = 0.004
MAX_CLASS_FACTOR = 2
CANDIDATES = CandidateSettings(nearest=12, most=120, margin=2)
# Candidates with a posterior probability below MIN_POSTERIOR_SHARE / N are dropped. In panels with more than
# LARGE_PANEL_HAPLOTYPES haplotypes, N is replaced by that number: the threshold stays at 1e-4. There the
# candidates below 1e-4 would take a quarter of the time and hardly change the results (benchmarks/tried.md).
MIN_POSTERIOR_SHARE, LARGE_PANEL_HAPLOTYPES = 0.5, 5_000
MAX_CANDIDATE_FACTOR = 4.0  # maximum factor of the number of candidates, see `tile_matches`


@dataclass(frozen=True)
class TileBlock:
    """The panel sites of a block of gaps, and their features."""

    sites: Interval  # panel sites (U)
    gaps: GapSites
    gap_GF: np.ndarray  # float32, see `gap_features`
    site_features: SiteFeatures
    distances: GapDistances
    class_factor: float  # factor of the number of IBS classes, see DENSE_CM
    whole: bool  # whether the block has at most WHOLE_BLOCK_SITES sites
    typed_place_G: np.ndarray  # int64, place at the right end of a gap; for the last gap, the last place
    has_untyped_G: np.ndarray  # bool, whether a gap has a polymorphic untyped site
    label_U: np.ndarray  # bool, whether ALT is a label, such as an HLA type


@dataclass(frozen=True)
class PanelTile:
    """A tile of the panel, read for one window. All arrays have the haplotypes in the order of `order_N`."""

    typed: Interval  # the typed sites at the tile's places
    panel: PanelAlleles
    panel_backwards: PanelAlleles  # `panel` with the places in reverse order
    frequency_S: np.ndarray  # float64, of ALT
    cM_S: np.ndarray  # float64
    sibling_N: np.ndarray  # int64, the sibling haplotype of each haplotype
    # int64, first panel site of each gap, clipped to the blocks that overlap the window
    site_start_G1: np.ndarray
    sites: Interval  # panel sites of the blocks that overlap the window
    order_N: np.ndarray  # int64, the panel's haplotypes, see `_order_by_content`
    spans: SpanPatterns | None  # None for panels larger than MAX_PANEL_AS_STATES
    blocks: tuple[TileBlock, ...]
    # for each block, the place to the right of its first gap, and its number of gaps, int64 (B,)
    block_places: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TileSizes:
    """The sizes of a panel's tiles. `memory` uses them to estimate how much memory a job needs."""

    n_tiles: int
    places: int  # typed places of the largest tile
    sites: int  # panel sites of the largest tile
    block_sites: int  # panel sites of the largest block
    all_gaps: int  # of the whole panel
    all_sites: int  # of the whole panel

    @classmethod
    def of(
        cls, cM: np.ndarray, typed_index: np.ndarray, n_haplotypes: int, imputed: Interval | None = None
    ) -> TileSizes:
        """Return the sizes. Of the panel's sites, only the `imputed` ones count; None stands for all.

        cM are genetic positions of the panel sites; typed_index must not be empty.
        """
        n_sites, typed_cM_T = len(cM), cM[typed_index]
        reach_cM = typed_tiles.flank_reach(n_haplotypes)
        n_tiles = len(typed_index) // typed_tiles.TILE_GAPS + 1
        ends, tile = np.append(typed_index + 1, n_sites), typed_tiles.TILE_GAPS
        gaps = (Interval(n * tile - 1, (n + 1) * tile) for n in range(n_tiles))
        places = max(typed_tiles.add_flanks(typed_cM_T, interval, reach_cM).n_sites for interval in gaps)
        edges = np.concatenate([[0], ends[BLOCK_GAPS - 1 : -1 : BLOCK_GAPS], [n_sites]])
        sites_B = np.diff(edges)
        inside_B = sites_B if imputed is None else np.diff(edges.clip(*imputed))
        sites_B = np.where((inside_B > 0) & (sites_B <= WHOLE_BLOCK_SITES), sites_B, inside_B)
        tile_sites = np.add.reduceat(sites_B, np.arange(0, len(sites_B), tile // BLOCK_GAPS)).max()
        return cls(n_tiles, places, int(tile_sites), int(sites_B.max()), len(typed_index) + 1, n_sites)


def windows_of_tiles(
    cM: np.ndarray, typed_index: np.ndarray, sites: Interval, length_cM: float, n_sites: int
) -> list[Interval]:
    """Cut panel sites into windows of whole tiles.

    A window has as many tiles as fit into n_sites sites and length_cM. A tile with more than n_sites sites is
    cut into equal windows. Whole tiles save time, because a tile that two windows share is computed twice.
    """
    ends = typed_index[typed_tiles.TILE_GAPS - 1 :: typed_tiles.TILE_GAPS] + 1
    edges = [sites.start, *ends[(ends > sites.start) & (ends < sites.stop)].tolist(), sites.stop]
    bounds = [sites.start]
    for start, stop in itertools.pairwise(edges):
        begin = bounds[-1]
        if begin < start and (stop - begin > n_sites or cM[stop - 1] - cM[begin] > length_cM):
            bounds.append(start)
        n_windows = -(-(stop - start) // max(n_sites, 1))
        if n_windows > 1:
            if bounds[-1] < start:
                bounds.append(start)
            bounds += [start + (stop - start) * i // n_windows for i in range(1, n_windows)] + [stop]
    if bounds[-1] < sites.stop:
        bounds.append(sites.stop)
    return [Interval(start, stop) for start, stop in itertools.pairwise(bounds)]


def read_tile(panel: Panel, typed_index: np.ndarray, number: int, window: Interval) -> PanelTile:
    """Read the typed sites of a tile, and describe the blocks that overlap the window.

    `read_patterns` reads the untyped sites later. typed_index must not be empty.
    """
    n_typed = len(typed_index)
    first_gap = number * typed_tiles.TILE_GAPS
    n_gaps = min(typed_tiles.TILE_GAPS, n_typed + 1 - first_gap)
    typed = typed_tiles.add_flanks(
        panel.cM[typed_index],
        Interval(first_gap - 1, first_gap + n_gaps),
        typed_tiles.flank_reach(panel.n_haplotypes),
    )
    rows = typed_index[typed.slice]
    packed_SB = panel.packed_rows(rows)
    ends = np.append(typed_index, panel.n_sites - 1) + 1  # a typed site belongs to the gap on its left
    edges_G1 = np.insert(ends[first_gap : first_gap + n_gaps], 0, ends[first_gap - 1] if first_gap else 0)
    order_N = _order_by_content(panel, rows, edges_G1)
    alleles = PanelAlleles.ordered(packed_SB, order_N)
    site_start_G1 = edges_G1.clip(*_whole_blocks(edges_G1, window))
    panel.release_memory()  # otherwise the mapped bytes of a large file stay in memory
    new_index_N = np.empty_like(order_N)
    new_index_N[order_N] = np.arange(len(order_N))
    cM_S = panel.cM[rows]
    blocks, first_B = [], np.arange(0, n_gaps, BLOCK_GAPS)
    for first in first_B.tolist():
        gaps, edges = slice(first, first + BLOCK_GAPS), slice(first, first + BLOCK_GAPS + 1)
        place_G = (first_gap - typed.start + np.arange(n_gaps))[gaps]
        whole = bool(np.ptp(edges_G1[edges]) <= WHOLE_BLOCK_SITES)
        blocks.append(_block(panel, first, place_G, rows, cM_S, site_start_G1[edges], whole))
    return PanelTile(
        typed,
        alleles,
        alleles.backwards(),
        panel.frequency[rows],
        cM_S,
        new_index_N[sibling_haplotypes(panel.haplotype_sample)[order_N]],
        site_start_G1,
        Interval(int(site_start_G1[0]), int(site_start_G1[-1])),
        order_N,
        span_patterns(alleles.bits_NW, len(rows))
        if panel.n_haplotypes <= parameters.MAX_PANEL_AS_STATES
        else None,
        tuple(blocks),
        (first_gap - typed.start + first_B, np.minimum(BLOCK_GAPS, n_gaps - first_B)),
    )


def _block(
    panel: Panel,
    first_gap: int,
    place_G: np.ndarray,
    typed_index_S: np.ndarray,
    typed_cM_S: np.ndarray,
    site_start_G1: np.ndarray,
    whole: bool,
) -> TileBlock:
    """Return a block. Gap g ends at place_G[g]. first_gap is the block's first gap, relative to the tile."""
    n_gaps, n = len(place_G), panel.n_haplotypes
    sites = Interval(int(site_start_G1[0]), int(site_start_G1[-1]))
    gap_U = np.repeat(np.arange(n_gaps), np.diff(site_start_G1))
    typed_place_G = place_G.clip(max=len(typed_cM_S) - 1)
    width_cM = float(np.ptp(typed_cM_S[typed_place_G])) / n_gaps
    cM_U, place_U = panel.cM[sites.slice], place_G[gap_U]
    frequency_U = panel.frequency[sites.slice]
    flip_U = frequency_U > 0.5
    minor_U = np.where(flip_U, 1 - frequency_U, frequency_U)
    fraction_U, _, left_U, right_U = gap_geometry(cM_U, place_U, typed_cM_S)
    untyped_U = np.isin(np.arange(*sites), typed_index_S, assume_unique=True, invert=True)
    has_untyped_G = np.zeros(n_gaps, bool)
    has_untyped_G[gap_U[untyped_U & (minor_U > 0)]] = True
    site_UF = site_features(minor_U, fraction_U, left_U, right_U, n)
    return TileBlock(
        sites,
        GapSites(first_gap, site_start_G1 - sites.start, fraction_U, flip_U),
        gap_features(typed_cM_S, place_G, n),
        SiteFeatures(gap_U, site_UF, flip_U, frequency_U),
        GapDistances.of(typed_cM_S, int(place_G[0]), n_gaps),
        min(max(1.0, math.sqrt(width_cM / DENSE_CM)), MAX_CLASS_FACTOR),
        whole,
        typed_place_G,
        has_untyped_G,
        label_rows(panel.sites, panel.multiallelic, sites),
    )


class TilePatterns(NamedTuple):
    """The patterns of a tile's gaps, and the number of copies of the rarest allele of each pattern."""

    gaps: GapPatterns
    rarest: RarestAlleles


def read_patterns(panel: Panel, tile: PanelTile) -> TilePatterns:
    """Read the patterns of a tile's gaps at `tile.sites`. They are not needed to search matches."""
    start, stop = tile.sites
    start_G1 = tile.site_start_G1 - start
    count_U = panel.allele_count[start:stop]
    copies_U = np.minimum(count_U, panel.n_haplotypes - count_U)
    patterns = gap_patterns(panel.stored_rows(start, stop), start_G1, tile.order_N, copies_U)
    panel.release_memory()
    return TilePatterns(patterns, rarest_alleles(patterns, start_G1, copies_U))


def _whole_blocks(edges_G1: np.ndarray, window: Interval) -> Interval:
    """Return the panel sites of a window, extended to whole blocks at both ends.

    Blocks are computed whole, because the results of a part of a block might be rounded differently. Blocks
    with more than WHOLE_BLOCK_SITES sites may be cut.
    """
    edges = np.append(edges_G1[:-1:BLOCK_GAPS], edges_G1[-1])
    start, stop = window.start, window.stop
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, stop, side="left"))
    if 0 <= first < len(edges) - 1 and edges[first + 1] - edges[first] <= WHOLE_BLOCK_SITES:
        start = int(edges[first])
    if 0 < last < len(edges) and edges[last] - edges[last - 1] <= WHOLE_BLOCK_SITES:
        stop = int(edges[last])
    return Interval(start, stop)


def _order_by_content(panel: Panel, typed_S: np.ndarray, edges_G1: np.ndarray) -> np.ndarray:
    """Return the haplotypes, sorted by hashes of their alleles, then of their siblings' alleles, int64 (N,).

    Untyped monomorphic sites do not change the order.
    """
    hash_N = np.zeros(panel.n_haplotypes, dtype=np.uint64)
    for place, site in enumerate(typed_S.tolist()):
        hash_rows(panel.stored_rows(site, site + 1), 0, 1, np.array([place + 1]), hash_N)
    first = int(edges_G1[0])
    count_X = panel.allele_count[first : edges_G1[-1]]
    is_polymorphic_X = (count_X > 0) & (count_X < panel.n_haplotypes)
    salt = 1 << 40
    for start, stop in zip(edges_G1[:-1].tolist(), edges_G1[1:].tolist(), strict=True):
        polymorphic = start + np.flatnonzero(is_polymorphic_X[start - first : stop - first])
        intervals = [(start, stop)]
        if len(polymorphic) > 2 * HASHED_SITES:  # a long gap: only the sites at its ends
            left_end, right_start = polymorphic[[HASHED_SITES - 1, -HASHED_SITES]].tolist()
            intervals = [(start, left_end + 1), (right_start, stop)]
        for low, high in intervals:
            n_polymorphic_X = np.cumsum(is_polymorphic_X[low - first : high - first])
            hash_rows(panel.stored_rows(low, high), 0, high - low, salt + n_polymorphic_X - 1, hash_N)
            salt += int(n_polymorphic_X[-1]) if high > low else 0
    return np.lexsort((hash_N[sibling_haplotypes(panel.haplotype_sample)], hash_N))


def tile_matches(
    tile: PanelTile, typed_TQ: np.ndarray, candidates: CandidateSettings, *, on_left: bool
) -> Matches:
    """Return the longest matches of queries on one side of the tile's gaps; they define the candidates.

    typed_TQ are the alleles at all typed sites, int8, -1 where missing. One call with many queries is faster
    than several calls, because each call reads the whole panel. More candidates are used in a large panel
    with sparse typed sites, where thousands of haplotypes match equally well.
    """
    if large_panel_share(len(tile.order_N)) > 0:
        width_cM = float(np.ptp(tile.cM_S)) / len(tile.cM_S)
        factor = min(max((width_cM / DENSE_CM) ** 2, 1.0), MAX_CANDIDATE_FACTOR)
        nearest, most = round(factor * candidates.nearest), round(factor * candidates.most)
        candidates = candidates._replace(nearest=nearest, most=most)
    panel = tile.panel if on_left else tile.panel_backwards
    queries = TypedAlleles.from_alleles(typed_TQ[tile.typed.slice])
    return longest_matches(panel, queries, *tile.block_places, candidates, on_left=on_left)


def tile_posteriors(
    tile: PanelTile, alleles: TypedAlleles, candidates: Candidates, jumps_per_cM: float
) -> tuple[np.ndarray, Candidates]:
    """Return the posteriors of the queries' likely candidates, and these candidates.

    `alleles` are those at the tile's places. See `copying_posteriors` for the result.
    """
    n_haplotypes = len(tile.order_N)
    return copying_posteriors(
        tile.spans,
        tile.panel.bits_NW,
        allele_emissions(alleles.alleles_SX.T, MISMATCH),
        jump_probabilities(tile.cM_S, n_haplotypes, jumps_per_cM),
        candidates,
        *tile.block_places,
        MIN_POSTERIOR_SHARE * max(1.0, n_haplotypes / LARGE_PANEL_HAPLOTYPES),
    )
