"""Posterior probabilities of Li and Stephens over inducing points, for panels without haplotypes (`.spip`).

The states of the model are the inducing points. Within a block, a query stays on its point or jumps to a
random one; a point is chosen with a probability that is proportional to its mass. From block to block, a
query goes to the points of the next block that stand for the same panel haplotypes (the links of
`soft_alleles.PointStates`). Emissions are the soft alleles of the points at typed sites.

SPIN compares a query with points inside of one block. The model follows the query along the chromosome. The
mean of their predictions is more accurate than either (benchmarks/tried.md).

The model is computed in tiles of blocks, with further blocks on both sides. Tiles do not depend on windows,
so results do not depend on how a chromosome is cut.

Axes: Q queries, H inducing points of a block, C vectors of LANES points, S typed sites of a tile, P places of
a tile: the left end of each block and its own typed sites, B blocks of a tile, L links or lanes, E entries:
points with a posterior probability at a place, U sites that a block imputes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, multiply_add, store, sum_lanes, where_positive
from spinimpute.hmm.parameters import FLANK, LANES, MAX_THRESHOLD_SHARE, MISMATCH
from spinimpute.hmm.steps import jump_probabilities
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import EncodedBlock
from spinimpute.panels.soft_alleles import PointStates
from spinimpute.predictors.typed_tiles import TILE_GAPS
from spinimpute.runtime.kernels import kernel

POINT_WEIGHT = 0.4  # of the posteriors in the mean with SPIN (benchmarks/tried.md)
# Smaller posteriors of a point are left out; but the threshold is at most MAX_THRESHOLD_SHARE of the mean of
# all points, so that points are left where none stands out.
MIN_POSTERIOR = 1e-3
CACHED_BLOCKS = 256  # blocks whose states are kept in memory: several tiles with their flanks
SMALLEST_SUM = np.float32(1e-30)  # avoids division by 0


def tile_of(panel: InducingPanel, block: int) -> tuple[range, range]:
    """Return the blocks of a block's tile, and those of the tile with its flanks."""
    size, flank = (max(1, gaps // panel.shape.core) for gaps in (TILE_GAPS, FLANK))
    first = block // size * size
    stop = min(first + size, panel.n_blocks)
    return range(first, stop), range(max(0, first - flank), min(stop + flank, panel.n_blocks))


def needed_array_sites(panel: InducingPanel, start: int, stop: int) -> np.ndarray:
    """Return the array sites on which the sites [start, stop) depend, int64, increasing."""
    blocks, n_array = panel.blocks(start, stop), len(panel.array_index)
    chained = range(tile_of(panel, blocks[0])[1].start, tile_of(panel, blocks[-1])[1].stop)
    first, last = (
        panel.shape.visible(blocks[0], 0, n_array)[0],
        panel.shape.visible(blocks[-1], 0, n_array)[1],
    )
    own_first, own_last = panel.own_typed(chained[0]).start, panel.own_typed(chained[-1]).stop
    return panel.array_index[min(first, own_first) : max(last, own_last)]


class TileStates(NamedTuple):
    """The states of the blocks of a tile, padded to one number of points, for the kernels."""

    mass_BCL: np.ndarray  # float32, masses divided by their sum
    alt_SCL: np.ndarray  # float32, P(allele is ALT) of each point at each typed site
    jump_S: np.ndarray  # float32, probability of a jump before each typed site
    first_S: np.ndarray  # int64 (B + 1,): the typed sites of block b are [first_S[b], first_S[b + 1])
    first_H: np.ndarray  # int64: links of point h of block b: first_H[row_B[b] + h] and the next
    row_B: np.ndarray  # int64
    to_L: np.ndarray  # int64, point of the next block
    share_L: np.ndarray  # float32
    points_B: np.ndarray  # int64, number of points of each block


class Entries(NamedTuple):
    """Points with their posteriors; first_QP1[q, p] is the first entry of query q at place p."""

    first_QP1: np.ndarray  # int64
    point_E: np.ndarray  # int32
    posterior_E: np.ndarray  # float32, add up to 1 at each place


@kernel(fast=True)
def _forward_backward(states, allele_S, value_PCL):  # type: ignore[no-untyped-def]
    """Write the posteriors of all points at each place for one query; alleles are -1 where missing."""
    mass_BCL, alt_SCL, jump_S, first_S, first_H, row_B, to_L, share_L, _ = states
    n_blocks, n_vectors, _ = mass_BCL.shape
    one, zero = np.float32(1), np.float32(0)
    x_CL, y_CL = np.empty((n_vectors, LANES), np.float32), np.empty((n_vectors, LANES), np.float32)
    for c in range(n_vectors):
        store(x_CL, c, load(mass_BCL, (0, c)))
    place = 0
    for b in range(n_blocks):
        for c in range(n_vectors):
            store(value_PCL, (place, c), load(x_CL, c))
        place += 1
        for s in range(first_S[b], first_S[b + 1]):
            jump, stay, allele = jump_S[s], one - jump_S[s], allele_S[s]
            total = all_lanes(zero)
            for c in range(n_vectors):
                x = multiply_add(load(x_CL, c), all_lanes(stay), load(mass_BCL, (b, c)) * jump)
                if allele == 1:
                    x = x * load(alt_SCL, (s, c))
                elif allele == 0:
                    x = x * (load(alt_SCL, (s, c)) * -one + one)
                total += x
                store(x_CL, c, x)
            scale = one / max(sum_lanes(total), SMALLEST_SUM)
            for c in range(n_vectors):
                x = load(x_CL, c) * scale
                store(x_CL, c, x)
                store(value_PCL, (place, c), x)
            place += 1
        if b + 1 < n_blocks:
            _cross_right(x_CL, first_H, row_B[b], row_B[b + 1] - 1, to_L, share_L, y_CL)
            # the probability of points without links goes to all points
            total = all_lanes(zero)
            for c in range(n_vectors):
                total += load(y_CL, c)
            rest = max(one - sum_lanes(total), zero)
            for c in range(n_vectors):
                store(x_CL, c, multiply_add(load(mass_BCL, (b + 1, c)), all_lanes(rest), load(y_CL, c)))
    for c in range(n_vectors):
        store(x_CL, c, all_lanes(one))
    for i in range(n_blocks):
        b = n_blocks - 1 - i
        for j in range(first_S[b + 1] - first_S[b]):
            s = first_S[b + 1] - 1 - j
            place -= 1
            _multiply_posterior(value_PCL, place, x_CL)
            jump, stay, allele = jump_S[s], one - jump_S[s], allele_S[s]
            total = all_lanes(zero)
            for c in range(n_vectors):
                x = load(x_CL, c)
                if allele == 1:
                    x = x * load(alt_SCL, (s, c))
                elif allele == 0:
                    x = x * (load(alt_SCL, (s, c)) * -one + one)
                total = multiply_add(x, load(mass_BCL, (b, c)), total)
                store(x_CL, c, x)
            mean = max(sum_lanes(total), SMALLEST_SUM)
            scale = stay / mean
            for c in range(
                n_vectors
            ):  # divided by the mean, the values of points with a mass keep their size
                x = multiply_add(load(x_CL, c), all_lanes(scale), all_lanes(jump))
                store(x_CL, c, where_positive(load(mass_BCL, (b, c)), x))
        place -= 1
        _multiply_posterior(value_PCL, place, x_CL)
        if b > 0:
            total = all_lanes(zero)
            for c in range(n_vectors):
                total = multiply_add(load(x_CL, c), load(mass_BCL, (b, c)), total)
            _cross_left(x_CL, first_H, row_B[b - 1], row_B[b] - 1, to_L, share_L, sum_lanes(total), y_CL)
            for c in range(n_vectors):
                store(x_CL, c, load(y_CL, c))


@kernel(fast=True)
def _cross_right(x_CL, first_H, row, end, to_L, share_L, y_CL):  # type: ignore[no-untyped-def]
    """Write the probabilities of the next block's points to y."""
    y_CL[:] = np.float32(0)
    for h in range(end - row):
        c, lane = h // LANES, h % LANES
        value = x_CL[c, lane]
        if value > np.float32(1e-9):
            for k in range(first_H[row + h], first_H[row + h + 1]):
                y_CL[to_L[k] // LANES, to_L[k] % LANES] += value * share_L[k]


@kernel(fast=True)
def _cross_left(x_CL, first_H, row, end, to_L, share_L, mean, y_CL):  # type: ignore[no-untyped-def]
    """Write the backward values of the block before to y; points without links get the mean."""
    y_CL[:] = np.float32(0)
    for h in range(end - row):
        total = np.float32(0)
        for k in range(first_H[row + h], first_H[row + h + 1]):
            total += share_L[k] * x_CL[to_L[k] // LANES, to_L[k] % LANES]
        y_CL[h // LANES, h % LANES] = mean if first_H[row + h] == first_H[row + h + 1] else total


@kernel(fast=True)
def _multiply_posterior(value_PCL, place, x_CL):  # type: ignore[no-untyped-def]
    """Multiply the values of a place by x, and divide them by their sum."""
    total = all_lanes(np.float32(0))
    for c in range(len(x_CL)):
        value = load(value_PCL, (place, c)) * load(x_CL, c)
        total += value
        store(value_PCL, (place, c), value)
    scale = np.float32(1) / max(sum_lanes(total), SMALLEST_SUM)
    for c in range(len(x_CL)):
        store(value_PCL, (place, c), load(value_PCL, (place, c)) * scale)


@kernel()
def _count_entries(value_PCL, first_P, stop_P, least, count_P):  # type: ignore[no-untyped-def]
    """Count the points with a posterior of at least `least` at the places [first, stop)."""
    for p in range(first_P, stop_P):
        n = 0
        for c in range(value_PCL.shape[1]):
            for lane in range(LANES):
                n += value_PCL[p, c, lane] >= least
        count_P[p - first_P] = n


@kernel()
def _write_entries(value_PCL, first_P, stop_P, least, point_E, posterior_E):  # type: ignore[no-untyped-def]
    """Write these points, and their posteriors divided by the sum at each place."""
    e = 0
    for p in range(first_P, stop_P):
        start, total = e, np.float32(0)
        for c in range(value_PCL.shape[1]):
            for lane in range(LANES):
                value = value_PCL[p, c, lane]
                if value >= least:
                    point_E[e], posterior_E[e] = c * LANES + lane, value
                    total += value
                    e += 1
        for i in range(start, e):
            posterior_E[i] /= total


@kernel()  # without fused additions, a site's result does not depend on the sites around it
def _pool_labels(entries, first_place, n_own, label_HU, gap_U, fraction_U, out_UQ):  # type: ignore[no-untyped-def]
    """Write the mean labels of the points, interpolated between the places at both ends of each gap."""
    first_QP1, point_E, posterior_E = entries
    n_sites = len(gap_U)
    one = np.float32(1)
    row_U = np.empty(n_sites, np.float32)
    for q in range(len(first_QP1)):
        row_U[:] = np.float32(0)
        start = 0
        while start < n_sites:
            gap = gap_U[start]
            stop = start
            while stop < n_sites and gap_U[stop] == gap:
                stop += 1
            for end in range(2):
                place = first_place + min(gap + end, n_own)
                for e in range(first_QP1[q, place], first_QP1[q, place + 1]):
                    point, posterior = point_E[e], posterior_E[e]
                    for u in range(start, stop):
                        fraction = fraction_U[u] if end else one - fraction_U[u]
                        row_U[u] += posterior * fraction * label_HU[point, u]
            start = stop
        for u in range(n_sites):
            out_UQ[u, q] = row_U[u]


class TilePosteriors(NamedTuple):
    """The posteriors of all queries in the blocks of a tile."""

    entries: Entries
    first_P: np.ndarray  # int64 (B,), first place of each block
    own_B: np.ndarray  # int64 (B,), number of own typed sites of each block
    points_B: np.ndarray  # int64 (B,), number of points of each block
    first_block: int

    def pool(self, block: int, encoded: EncodedBlock) -> np.ndarray:
        """Return P(ALT) at the sites of a block that has the points of the states, float32 (U, Q)."""
        i = block - self.first_block
        sites = encoded.sites
        out_UQ = np.empty((len(sites.gap_U), len(self.entries.first_QP1)), np.float32)
        label_HU = np.ascontiguousarray(encoded.points["label_BHU"])
        assert len(label_HU) == self.points_B[i]
        fraction_U = sites.fraction_U.astype(np.float32)
        _pool_labels(self.entries, self.first_P[i], self.own_B[i], label_HU, sites.gap_U, fraction_U, out_UQ)
        return out_UQ


class PointChain:
    """The model of Li and Stephens over the inducing points of a panel."""

    def __init__(self, panel: InducingPanel) -> None:
        self._panel = panel
        self._cached: OrderedDict[int, PointStates] = OrderedDict()
        typed_cM = panel.cM[panel.array_index]
        self._jump_T = jump_probabilities(typed_cM, panel.n_haplotypes, panel.jumps_per_cM)

    def typed(self, blocks: range) -> slice:
        """Return the array sites of neighbouring blocks, as a part of `array_index`."""
        return slice(self._panel.own_typed(blocks[0]).start, self._panel.own_typed(blocks[-1]).stop)

    def states(self, blocks: range) -> TileStates:
        """Return the states of a tile's blocks. Raises InputError if they are damaged."""
        read = [self._read(block) for block in blocks]
        for before, one in pairwise(read):
            fits = len(one.first_P1) == len(before.mass_H) + 1
            self._panel.container.require(fits, "the links of a block are not those of the block before")
        n_vectors = -(-max(len(one.mass_H) for one in read) // LANES)
        typed = self.typed(blocks)
        mass_BH = np.zeros((len(read), n_vectors * LANES), np.float32)
        alt_SH = np.full((typed.stop - typed.start, n_vectors * LANES), 0.5, np.float32)
        first_S = np.zeros(len(read) + 1, np.int64)
        for b, one in enumerate(read):
            n = len(one.mass_H)
            mass_BH[b, :n] = one.mass_H / one.mass_H.sum()
            first_S[b + 1] = first_S[b] + len(one.allele_SH)
            alt_SH[first_S[b] : first_S[b + 1], :n] = MISMATCH + (1 - 2 * MISMATCH) * one.allele_SH
        n_links = np.cumsum([0, *(len(one.to_L) for one in read[1:])])
        first_H = [one.first_P1 + n for one, n in zip(read[1:], n_links, strict=False)]
        row_B = np.cumsum([0, *map(len, first_H)])
        return TileStates(
            mass_BH.reshape(len(read), n_vectors, LANES),
            alt_SH.reshape(-1, n_vectors, LANES),
            self._jump_T[typed],
            first_S,
            np.concatenate([np.zeros(0, np.int64), *first_H]),
            row_B.astype(np.int64),
            np.concatenate([np.zeros(0, np.int64), *(one.to_L for one in read[1:])]),
            np.concatenate([np.zeros(0, np.float32), *(one.share_L for one in read[1:])]),
            np.array([len(one.mass_H) for one in read]),
        )

    def _read(self, block: int) -> PointStates:
        """Read the states of a block. The blocks that were read last are kept in memory."""
        if block not in self._cached:
            self._cached[block] = self._panel.read_states(block)
            while len(self._cached) > CACHED_BLOCKS:
                self._cached.popitem(last=False)
        self._cached.move_to_end(block)
        return self._cached[block]


def posteriors_of(states: TileStates, core: slice, first_block: int, allele_SQ: np.ndarray) -> TilePosteriors:
    """Return the posteriors of queries in the blocks `core` of a tile's states.

    `first_block` is the number of the first of these blocks. allele_SQ are the queries' alleles at the tile's
    typed sites, int8, -1 where missing.
    """
    n_blocks = len(states.mass_BCL)
    first_P = states.first_S + np.arange(n_blocks + 1)
    start, stop = int(first_P[core.start]), int(first_P[core.stop])
    value_PCL = np.empty((int(first_P[-1]), *states.mass_BCL.shape[1:]), np.float32)
    least = np.float32(min(MIN_POSTERIOR, MAX_THRESHOLD_SHARE / value_PCL[0].size))
    allele_QS = np.ascontiguousarray(allele_SQ.T)
    count_QP = np.empty((len(allele_QS), stop - start), np.int64)
    parts = []
    for allele_S, count_P in zip(allele_QS, count_QP, strict=True):
        _forward_backward(states, allele_S, value_PCL)
        _count_entries(value_PCL, start, stop, least, count_P)
        n = int(count_P.sum())
        parts.append((np.empty(n, np.int32), np.empty(n, np.float32)))
        _write_entries(value_PCL, start, stop, least, *parts[-1])
    return TilePosteriors(
        _joined(count_QP, parts),
        first_P[core] - start,
        np.diff(states.first_S)[core],
        states.points_B[core],
        first_block,
    )


def _joined(count_QP: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Entries:
    first_E = np.concatenate([[0], count_QP.ravel().cumsum()])
    n_places = count_QP.shape[1]
    first_QP1 = first_E[np.arange(len(count_QP))[:, None] * n_places + np.arange(n_places + 1)]
    return Entries(first_QP1, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
