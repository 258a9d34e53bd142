"""A chunk of the panel for haplotype attention: bits at typed sites, patterns between them.

A chunk is CHUNK gaps between typed sites, cut into blocks of BLOCK_GAPS gaps, with FLANK further typed sites
on each side, or more where they are dense. Chunks lie at fixed multiples, so no result depends on how a
chromosome is cut into windows. The panel's haplotypes are put into an order that their content decides, so
no result depends on their order in the file.

Axes: S typed places of a chunk, N panel haplotypes, G gaps, B blocks, U sites, W 64-bit words.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.blocks import flanking_distances, gap_geometry
from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.patterns import SpanPatterns, span_patterns
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors import typed_chunks
from spinimpute.predictors.haplotype_attention.agreement import RarestAlleles, rarest_alleles
from spinimpute.predictors.haplotype_attention.copying import (
    BLOCK_GAPS,
    GapPatterns,
    gap_patterns,
    hash_rows,
)
from spinimpute.predictors.haplotype_attention.ibs_classes import GapDistances
from spinimpute.predictors.haplotype_attention.settings import gap_features, site_features

WHOLE_BLOCK_SITES = 65_536  # of a block that is computed whole where a window cuts it
HASHED_SITES = 1_024  # that vary, at each end of a chunk's gap: enough to distinguish haplotypes
DENSE_CM = 0.004  # gaps of this mean width, or less, need few classes; wider ones more, by the square root,
MOST_CLASSES = 2  # at most this many times as many: where typed sites are sparse, more haplotypes fit


@dataclass(frozen=True)
class ChunkBlock:
    """The sites of a block of gaps, and their features.

    Attributes
    ----------
    first, n_gaps : int
        Its gaps, counted in the chunk.
    sites : slice
        Panel sites (U).
    starts_G1 : int64
        Sites of the gaps, counted in the block.
    gap_U : int64
        The gap of each site, counted in the block.
    gap_GF, site_UF : float32
        See `gap_features` and `site_features`.
    fraction_U : float32
        Where a site lies in its gap (`gap_geometry`).
    frequency_U : float64
        Of ALT.
    flip_U : bool
        Whether ALT is the major allele.
    distances : GapDistances
        Of the gaps.
    more_classes : float
        How many times as many classes the gaps need as narrow ones.
    whole : bool
        Whether no window can cut it, see `WHOLE_BLOCK_SITES`.
    """

    first: int
    n_gaps: int
    sites: slice
    starts_G1: np.ndarray
    gap_U: np.ndarray
    gap_GF: np.ndarray
    site_UF: np.ndarray
    fraction_U: np.ndarray
    frequency_U: np.ndarray
    flip_U: np.ndarray
    distances: GapDistances
    more_classes: float
    whole: bool
    _typed_place_G: np.ndarray
    _has_untyped_G: np.ndarray

    @classmethod
    def of(
        cls,
        panel: Panel,
        place_G: np.ndarray,
        typed_index_S: np.ndarray,
        typed_cM_S: np.ndarray,
        first: int,
        site_start_G1: np.ndarray,
        whole: bool,
    ) -> ChunkBlock:
        """The gaps on the left of places, with these panel sites; first: counted in the chunk."""
        n_gaps, n = len(place_G), panel.n_haplotypes
        start, stop = int(site_start_G1[0]), int(site_start_G1[-1])
        gap_U = np.repeat(np.arange(n_gaps), np.diff(site_start_G1))
        typed_place_G = place_G.clip(max=len(typed_cM_S) - 1)
        width_cM = float(np.ptp(typed_cM_S[typed_place_G])) / n_gaps
        cM_U, place_U = panel.cM[start:stop], place_G[gap_U]
        frequency_U = panel.frequency[start:stop]
        flip_U = frequency_U > 0.5
        minor_U = np.where(flip_U, 1 - frequency_U, frequency_U)
        fraction_U, _ = gap_geometry(cM_U, place_U, typed_cM_S)
        untyped_U = np.isin(np.arange(start, stop), typed_index_S, assume_unique=True, invert=True)
        has_untyped_G = np.zeros(n_gaps, bool)
        has_untyped_G[gap_U[untyped_U & (minor_U > 0)]] = True
        return cls(
            first,
            n_gaps,
            slice(start, stop),
            site_start_G1 - start,
            gap_U,
            gap_features(typed_cM_S, place_G, n),
            site_features(minor_U, fraction_U, *flanking_distances(cM_U, place_U, typed_cM_S), n),
            fraction_U,
            frequency_U,
            flip_U,
            GapDistances.of(typed_cM_S, int(place_G[0]), n_gaps),
            min(max(1.0, math.sqrt(width_cM / DENSE_CM)), MOST_CLASSES),
            whole,
            typed_place_G,
            has_untyped_G,
        )

    def wanted(self, queries: TypedAlleles) -> np.ndarray:
        """Whether there is something to impute in a gap, at its untyped sites or typed ones, bool (G,)."""
        missing_G = (queries.alleles_SX[self._typed_place_G] == MISSING).any(axis=1)
        return self._has_untyped_G | missing_G


@dataclass(frozen=True)
class PanelChunk:
    """A chunk of the panel, read for one window.

    Attributes
    ----------
    first_gap, n_gaps : int
        Counted in all gaps of the target's typed sites.
    first_typed : int
        The typed site at place 0.
    panel, panel_backwards : PanelAlleles
        Typed alleles of the panel, in order of places and in reverse order.
    frequency_S, cM_S : float64
        Frequency of ALT, and genetic position.
    sibling_N : int64
        The sibling haplotype of each haplotype.
    site_start_G1 : int64
        Panel sites of the gaps, cut to the blocks that the window touches.
    order_N : int64
        The panel's haplotypes in the order in which all arrays have them.
    spans : SpanPatterns or None
        Patterns of the typed places; None for panels larger than MOST_STATES.
    blocks : tuple of ChunkBlock
        All of its gaps in order.
    """

    first_gap: int
    n_gaps: int
    first_typed: int
    panel: PanelAlleles
    panel_backwards: PanelAlleles
    frequency_S: np.ndarray
    cM_S: np.ndarray
    sibling_N: np.ndarray
    site_start_G1: np.ndarray
    order_N: np.ndarray
    spans: SpanPatterns | None
    blocks: tuple[ChunkBlock, ...]

    def block_gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """The first gap (within the chunk) and the number of gaps of every block, int64 (B,)."""
        first_B = np.arange(0, self.n_gaps, BLOCK_GAPS)
        return first_B, np.minimum(BLOCK_GAPS, self.n_gaps - first_B)

    def right_place(self, gap_X: np.ndarray) -> np.ndarray:
        """The places on the right of gaps of the chunk."""
        return self.first_gap - self.first_typed + gap_X

    def typed_alleles(self, typed_TQ: np.ndarray) -> TypedAlleles:
        """Queries' alleles at the chunk's places, of those at all typed sites."""
        return TypedAlleles.of(typed_TQ[self._typed])

    def sibling_alleles(self, typed_TQ: np.ndarray, queries: slice, sibling_Q: np.ndarray) -> TypedAlleles:
        """Those of the other haplotypes of some queries' samples; no calls where there is none."""
        alleles_SQ = typed_TQ[self._typed][:, sibling_Q[queries]]  # a copy, of the chunk's places alone
        alleles_SQ[:, sibling_Q[queries] == np.arange(len(sibling_Q))[queries]] = -1
        return TypedAlleles.of(alleles_SQ)

    @property
    def _typed(self) -> slice:
        return slice(self.first_typed, self.first_typed + len(self.cM_S))


@dataclass(frozen=True)
class ChunkSizes:
    """Number of chunks; of the largest one: typed places, sites, sites of a block; of all: gaps, sites."""

    n_chunks: int
    places: int
    sites: int
    block_sites: int
    all_gaps: int
    all_sites: int

    @classmethod
    def of(cls, cM: np.ndarray, typed_index: np.ndarray, n_haplotypes: int) -> ChunkSizes:
        """Sizes for a panel and typed sites.

        Parameters
        ----------
        cM : float64 (n_sites,)
            Of all panel sites.
        typed_index : int64 (T,)
            Typed panel sites, T > 0.
        n_haplotypes : int
            Of the panel.

        Returns
        -------
        ChunkSizes
            Of all chunks.
        """
        n_sites, typed_cM_T = len(cM), cM[typed_index]
        reach_cM = typed_chunks.reach(n_haplotypes)
        n_chunks = len(typed_index) // typed_chunks.CHUNK + 1
        spans = (
            typed_chunks.with_flanks(
                typed_cM_T, n * typed_chunks.CHUNK - 1, (n + 1) * typed_chunks.CHUNK, reach_cM
            )
            for n in range(n_chunks)
        )
        ends = np.append(typed_index + 1, n_sites)

        def largest(gaps: int) -> int:
            return int(np.diff(ends[gaps - 1 :: gaps], prepend=0, append=n_sites).max())

        places = max(high - low for low, high in spans)
        return cls(
            n_chunks, places, largest(typed_chunks.CHUNK), largest(BLOCK_GAPS), len(typed_index) + 1, n_sites
        )


def windows_of_chunks(
    cM: np.ndarray,
    typed_index: np.ndarray,
    first: int,
    last: int,
    length_cM: float,
    n_sites: int,
) -> list[Interval]:
    """Windows of whole chunks over panel sites: a chunk that two windows share would be computed twice.

    A window takes more than one chunk as long as it has at most n_sites sites and length_cM. Only a chunk
    with more sites is cut, into equal parts; results do not depend on it.

    Parameters
    ----------
    cM : float64 (n_sites,)
        Of all panel sites.
    typed_index : int64 (T,)
        Typed panel sites.
    first, last : int
        The panel sites [first, last).
    length_cM : float
        Largest length of a window of several chunks.
    n_sites : int
        Largest number of sites of a window.

    Returns
    -------
    list of Interval
        In order.
    """
    ends = typed_index[typed_chunks.CHUNK - 1 :: typed_chunks.CHUNK] + 1
    edges = [first, *ends[(ends > first) & (ends < last)].tolist(), last]
    bounds = [first]
    for start, stop in itertools.pairwise(edges):
        begin = bounds[-1]
        if begin < start and (stop - begin > n_sites or cM[stop - 1] - cM[begin] > length_cM):
            bounds.append(start)
        parts = -(-(stop - start) // max(n_sites, 1))
        if parts > 1:
            if bounds[-1] < start:
                bounds.append(start)
            bounds += [start + (stop - start) * i // parts for i in range(1, parts)] + [stop]
    if bounds[-1] < last:
        bounds.append(last)
    return [Interval(start, stop) for start, stop in itertools.pairwise(bounds)]


def prepare_chunk(panel: Panel, typed_index: np.ndarray, number: int, window: Interval) -> PanelChunk:
    """Read a chunk of the panel; what lies between its typed sites is read by `read_patterns`.

    Parameters
    ----------
    panel : Panel
        Open.
    typed_index : int64 (T,)
        Typed panel sites, T > 0.
    number : int
        Of the chunk.
    window : Interval
        Only blocks that it touches are read between typed sites.

    Returns
    -------
    PanelChunk
        The chunk.

    Raises
    ------
    InputError
        As `Panel.packed`.
    """
    n_typed = len(typed_index)
    first_gap = number * typed_chunks.CHUNK
    n_gaps = min(typed_chunks.CHUNK, n_typed + 1 - first_gap)
    low, high = typed_chunks.with_flanks(
        panel.cM[typed_index], first_gap - 1, first_gap + n_gaps, typed_chunks.reach(panel.n_haplotypes)
    )
    rows = typed_index[low:high]
    packed_SB = panel.packed_rows(rows)
    ends = np.append(typed_index, panel.n_sites - 1) + 1  # a typed site belongs to the gap on its left
    edges_G1 = np.insert(ends[first_gap : first_gap + n_gaps], 0, ends[first_gap - 1] if first_gap else 0)
    order_N = _order(panel, rows, edges_G1)
    typed = PanelAlleles.ordered(packed_SB, order_N)
    site_start_G1 = edges_G1.clip(*_whole_blocks(edges_G1, window))
    panel.release_memory()  # a large file would stay with the process to its end
    place_of = np.empty_like(order_N)
    place_of[order_N] = np.arange(len(order_N))
    cM_S, place_G = panel.cM[rows], first_gap - low + np.arange(n_gaps)

    def block(first: int) -> ChunkBlock:
        gaps, edges = slice(first, first + BLOCK_GAPS), slice(first, first + BLOCK_GAPS + 1)
        whole = bool(np.ptp(edges_G1[edges]) <= WHOLE_BLOCK_SITES)
        return ChunkBlock.of(panel, place_G[gaps], rows, cM_S, first, site_start_G1[edges], whole)

    return PanelChunk(
        first_gap,
        n_gaps,
        low,
        typed,
        typed.backwards(),
        panel.frequency[rows],
        cM_S,
        place_of[sibling_haplotypes(panel.haplotype_sample)[order_N]],
        site_start_G1,
        order_N,
        span_patterns(typed.bits_NW, len(rows)) if panel.n_haplotypes <= parameters.MOST_STATES else None,
        tuple(block(first) for first in range(0, n_gaps, BLOCK_GAPS)),
    )


class ChunkPatterns(NamedTuple):
    """What lies between a chunk's typed sites: the patterns of its gaps, and the rarest allele of each."""

    gaps: GapPatterns
    rarest: RarestAlleles


def read_patterns(panel: Panel, chunk: PanelChunk) -> ChunkPatterns:
    """The patterns of a chunk's gaps; matches are found without them.

    Parameters
    ----------
    panel : Panel
        Open.
    chunk : PanelChunk
        Of it.

    Returns
    -------
    ChunkPatterns
        Of the sites that the chunk's window shows.

    Raises
    ------
    InputError
        As `Panel.packed`.
    """
    first, stop = int(chunk.site_start_G1[0]), int(chunk.site_start_G1[-1])
    start_G1 = chunk.site_start_G1 - first
    count_U = panel.allele_count[first:stop]
    copies_U = np.minimum(count_U, panel.n_haplotypes - count_U)
    patterns = gap_patterns(panel.stored_rows(first, stop), start_G1, chunk.order_N, copies_U)
    panel.release_memory()
    return ChunkPatterns(patterns, rarest_alleles(patterns, start_G1, copies_U))


def _whole_blocks(edges_G1: np.ndarray, window: Interval) -> tuple[int, int]:
    """A window's sites, with the rest of the blocks at its ends.

    What is computed for a part of a block may be rounded differently. A block with very many sites is cut
    anyway.
    """
    edges = np.append(edges_G1[:-1:BLOCK_GAPS], edges_G1[-1])
    start, stop = window.start, window.stop
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, stop, side="left"))
    if 0 <= first < len(edges) - 1 and edges[first + 1] - edges[first] <= WHOLE_BLOCK_SITES:
        start = int(edges[first])
    if 0 < last < len(edges) and edges[last] - edges[last - 1] <= WHOLE_BLOCK_SITES:
        stop = int(edges[last])
    return start, stop


def _order(panel: Panel, typed_S: np.ndarray, edges_G1: np.ndarray) -> np.ndarray:
    """Haplotypes in an order that depends on their content and their siblings' only, int64 (N,).

    Monomorphic sites between typed ones make no difference.
    """
    hash_N = np.zeros(panel.n_haplotypes, dtype=np.uint64)
    for place, site in enumerate(typed_S.tolist()):
        hash_rows(*panel.stored_rows(site, site + 1), np.array([place + 1]), hash_N)
    first = int(edges_G1[0])
    count_X = panel.allele_count[first : edges_G1[-1]]
    varies_X = (count_X > 0) & (count_X < panel.n_haplotypes)
    salt = 1 << 40
    for start, stop in zip(edges_G1[:-1].tolist(), edges_G1[1:].tolist(), strict=True):
        varying = (start + np.flatnonzero(varies_X[start - first : stop - first])).tolist()
        parts = (
            [(start, stop)]
            if len(varying) <= 2 * HASHED_SITES
            else [(start, varying[HASHED_SITES - 1] + 1), (varying[-HASHED_SITES], stop)]
        )
        for low, high in parts:
            n_varying_X = np.cumsum(varies_X[low - first : high - first])
            hash_rows(*panel.stored_rows(low, high), salt + n_varying_X - 1, hash_N)
            salt += int(n_varying_X[-1]) if high > low else 0
    return np.lexsort((hash_N[sibling_haplotypes(panel.haplotype_sample)], hash_N))
