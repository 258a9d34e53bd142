"""Blocks: a few adjacent gaps between typed sites, with the typed sites around them; one task each.

With T typed sites there are T + 1 gaps: gap g lies between typed sites g - 1 and g, gap 0 before the first
and gap T after the last. Block b covers the gaps [b * core, (b + 1) * core) and sees `flank` further typed
sites on each side. Blocks depend on the typed sites alone, not on the windows of a run.

Axes: N panel haplotypes, Q query haplotypes, S typed sites of a block, padded to the same number in all
blocks, U sites that a block imputes, R distinct patterns of alleles, H groups of haplotypes, X alleles of any
sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

MAX_TYPED = 10_000  # sites of a block's core, and of a flank
FAR_CM = 5.0  # distance to a typed site that does not exist
WEIGHT_WIDTHS = 24, 72  # central typed sites that make haplotypes alike, see `initial_groups`
MAX_COMPARED = 512  # untyped sites of a block by which haplotypes are compared
FAR_SITES = 400  # sites before the first or after the last typed site to compare, or to predict in training
BATCH_COLUMNS = 64


class HaplotypeSource(Protocol):
    """What training reads of a panel file or a simulated segment."""

    @property
    def n_sites(self) -> int:
        """Number of sites."""

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes."""

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,)."""

    @property
    def haplotype_sample(self) -> np.ndarray:
        """Sample index of each haplotype, int64 (n_haplotypes,)."""

    @property
    def query_samples(self) -> np.ndarray | None:
        """Samples that are queries, never context; None: tasks choose."""

    @property
    def sample_deme(self) -> np.ndarray | None:
        """Population of each sample, int64; None if unknown."""

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Alleles of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""


@dataclass(frozen=True)
class BlockShape:
    """Size of blocks. Raises ValueError for numbers out of range."""

    core: int  # gaps that a block imputes
    flank: int  # further typed sites that it sees on each side

    def __post_init__(self) -> None:
        for name, least in (("core", 1), ("flank", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MAX_TYPED:
                raise ValueError(f"{name} must be an integer from {least} to {MAX_TYPED}, got {value!r}")

    @property
    def n_typed(self) -> int:
        """S: the typed sites around the core gaps and those of both flanks, padding included."""
        return self.core + 1 + 2 * self.flank

    def place(self, typed: int, block: int) -> int:
        """Index 0..S-1 of a typed site in a block.

        The site left of the block's first gap has index `flank`.
        """
        return typed - (block * self.core - 1 - self.flank)

    def visible(self, block: int, low: int, high: int) -> tuple[int, int]:
        """The typed sites [first, last) of a block, among those in [low, high)."""
        first = block * self.core - 1 - self.flank
        return max(first, low), max(min(first + self.n_typed, high), max(first, low))


@dataclass(frozen=True)
class PaddedSites:
    """The typed sites of one block, padded to S: sites [first, last) have the indices from `offset` on."""

    cM_S: np.ndarray  # float64, relative to the block's middle; padding repeats its neighbour
    valid_S: np.ndarray  # float32, 1 for a site, 0 for padding
    first: int
    last: int
    offset: int

    def fill(self, alleles_TX: np.ndarray, start: int = 0) -> np.ndarray:
        """Typed alleles of the block, (X, S); padding is 0.

        Alleles_TX: alleles of the typed sites from `start` on.
        """
        out = np.zeros((alleles_TX.shape[1], len(self.cM_S)), dtype=alleles_TX.dtype)
        rows = alleles_TX[self.first - start : self.last - start]
        out[:, self.offset : self.offset + len(rows)] = rows.T
        return out


def pad_typed_sites(block: int, typed_cM: np.ndarray, shape: BlockShape, low: int, high: int) -> PaddedSites:
    """The typed sites that a block sees among [low, high), padded.

    Typed_cM: all typed sites, float64 (T,).
    """
    first, last = shape.visible(block, low, high)
    offset = shape.place(first, block) if last > first else 0
    cM_S = np.zeros(shape.n_typed)
    valid_S = np.zeros(shape.n_typed, dtype=np.float32)
    if last > first:
        end = offset + last - first
        cM_S[offset:end] = typed_cM[first:last]
        cM_S[:offset] = cM_S[offset]
        cM_S[end:] = cM_S[end - 1]
        cM_S -= (cM_S[shape.flank] + cM_S[shape.flank + shape.core]) / 2
        valid_S[offset:end] = 1
    return PaddedSites(cM_S, valid_S, first, last, offset)


def gap_geometry(
    site_cM: np.ndarray, gap: np.ndarray, typed_cM: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions of sites, float64 (n,), in their gaps, int64 (n,): fraction, nearest, left and right.

    The fraction, float32, is 0 at the left typed site and 1 at the right one; 1 before the first typed site,
    where only the right side counts, and 0 after the last. `nearest`, float32, is the distance to the nearer
    typed site in cM, at most FAR_CM outside the typed sites, and FAR_CM if no site is typed. `left` and
    `right`, float64, are the distances to both typed sites; before the first and after the last typed site,
    both are distances to that one.
    """
    if len(typed_cM) == 0:
        far = np.full(len(gap), FAR_CM)
        return np.full(len(gap), 0.5, np.float32), far.astype(np.float32), far, far
    left_cM = typed_cM[np.maximum(gap - 1, 0)]
    right_cM = typed_cM[np.minimum(gap, len(typed_cM) - 1)]
    left, right, width = np.abs(site_cM - left_cM), np.abs(right_cM - site_cM), right_cM - left_cM
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = np.where(width > 0, (site_cM - left_cM) / width, 0.5)
    fraction = np.where(gap == 0, 1.0, np.where(gap == len(typed_cM), 0.0, fraction)).clip(0, 1)
    nearest = np.minimum(np.where(gap == 0, FAR_CM, left), np.where(gap == len(typed_cM), FAR_CM, right))
    return fraction.astype(np.float32), nearest.astype(np.float32), left, right


def initial_groups(typed_NS: np.ndarray, count: int, shape: BlockShape) -> np.ndarray:
    """Groups of similar haplotypes, from whose means inducing points start, int64 (N,), at most `count`.

    Haplotypes are sorted by their alleles, central sites first, so that neighbours are alike around the
    block's middle. This order is cut into groups of equal weight. Where m haplotypes are alike, at either of
    two widths, each weighs m^(-1/4) times as much, so that rare haplotypes get groups, too. Haplotypes with
    the same typed alleles share a group; no group is empty. The order of the panel's haplotypes has no
    influence.
    """
    central = np.argsort(np.abs(np.arange(shape.n_typed) - (shape.n_typed - 1) / 2), kind="stable")
    patterns_RS, pattern_N, shared_R = _patterns(typed_NS[:, central])
    if len(patterns_RS) <= count:
        return pattern_N
    weight_R = shared_R.astype(np.float64)
    for width in WEIGHT_WIDTHS:
        _, cluster_R, _ = _patterns(patterns_RS[:, :width])
        weight_R *= np.bincount(cluster_R, shared_R)[cluster_R] ** -0.25
    middle_R = (np.cumsum(weight_R) - weight_R / 2) / weight_R.sum()
    group_R = np.minimum((middle_R * count).astype(np.int64), count - 1)
    return np.unique(group_R, return_inverse=True)[1][pattern_N]


def argsort_rows(alleles_NX: np.ndarray) -> np.ndarray:
    """Order of haplotypes by their alleles, int64 (N,), whatever their order in the panel; equal ones tie."""
    return np.argsort(_packed(alleles_NX), kind="stable")


def _packed(alleles_NX: np.ndarray) -> np.ndarray:
    """Each row as one value that can be sorted."""
    packed = np.ascontiguousarray(np.packbits(alleles_NX, axis=1))
    return packed.view(f"V{packed.shape[1]}").ravel()


def _patterns(alleles_NS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows, sorted; the row of each haplotype; how many haplotypes share each row."""
    _, first, row_N, shared = np.unique(
        _packed(alleles_NS), return_index=True, return_inverse=True, return_counts=True
    )
    return alleles_NS[first], row_N, shared


def group_means(x_NX: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """Mean of each group, float32 (h, X). group_N: the group of each row, 0 to h - 1."""
    order = np.argsort(group_N, kind="stable")
    first = np.flatnonzero(np.diff(group_N[order], prepend=-1))
    total_HX = np.empty((len(first), x_NX.shape[1]), dtype=np.float32)
    for low in range(0, x_NX.shape[1], BATCH_COLUMNS):  # reduceat converts its whole argument to floats
        columns = slice(low, low + BATCH_COLUMNS)
        np.add.reduceat(x_NX[order, columns], first, axis=0, dtype=np.float32, out=total_HX[:, columns])
    return total_HX / np.bincount(group_N)[:, None].astype(np.float32)


def spread_evenly(sites: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of these sites, evenly spread."""
    if len(sites) <= most:
        return sites
    return sites[(2 * np.arange(most) + 1) * len(sites) // (2 * most)]
