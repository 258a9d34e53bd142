"""Blocks: a few adjacent gaps between typed sites, and the typed sites around them.

A block is one task for a network: it predicts the untyped sites in its gaps from the typed sites. With T
typed sites there are T + 1 gaps: gap g lies between typed sites g - 1 and g, gap 0 before the first typed
site and gap T after the last. Block b has the gaps [b * core, (b + 1) * core), which are called its core, and
uses `flank` further typed sites on each side. Blocks depend only on the typed sites, not on windows.

Axes: N panel haplotypes, Q query haplotypes, S typed sites of a block, padded to one number in all
blocks, U sites that a block imputes, R patterns of alleles, H groups of haplotypes, X alleles of any sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

MAX_TYPED = 10_000  # maximum number of gaps of a core, and of typed sites of a flank
FAR_CM = 5.0  # distance that stands for "no typed site on this side"
TIE = 1e-9  # added to a weight between two groups, so that rounding errors do not decide
WEIGHT_WIDTHS = 24, 72  # numbers of central typed sites at which `initial_groups` looks for equal haplotypes
MAX_COMPARED = 512  # maximum number of untyped sites of a block by which haplotypes are compared
# Maximum number of sites compared, or predicted in training, before the first or after the last typed site
FAR_SITES = 400
BATCH_COLUMNS = 64  # columns that `group_means` converts to float32 at a time


class HaplotypeSource(Protocol):
    """The attributes of a panel file or a simulated segment that training reads."""

    @property
    def n_sites(self) -> int:
        """Number of sites."""

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes."""

    @property
    def position(self) -> np.ndarray:
        """Positions in base pairs, int64 (n_sites,), 1-based, non-decreasing."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,)."""

    @property
    def haplotype_sample(self) -> np.ndarray:
        """Sample index of each haplotype, int64 (n_haplotypes,)."""

    @property
    def query_samples(self) -> np.ndarray | None:
        """Indices of the samples that are only used as queries; None: tasks draw queries from all."""

    @property
    def sample_deme(self) -> np.ndarray | None:
        """Population (deme) of each sample, int64; None if unknown."""

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Return the alleles of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""


@dataclass(frozen=True)
class BlockShape:
    """The size of blocks. Raises ValueError for numbers that are out of range."""

    core: int  # number of gaps that a block imputes
    flank: int  # number of further typed sites on each side that it uses

    def __post_init__(self) -> None:
        for name, least in (("core", 1), ("flank", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MAX_TYPED:
                raise ValueError(f"{name} must be an integer from {least} to {MAX_TYPED}, got {value!r}")

    @property
    def n_typed(self) -> int:
        """S: the number of typed sites around the core gaps and in both flanks, padding included."""
        return self.core + 1 + 2 * self.flank

    def place(self, typed: int, block: int) -> int:
        """Return the index, 0 to S - 1, of typed site `typed` in a block.

        The site to the left of the block's first gap has index `flank`.
        """
        return typed - (block * self.core - 1 - self.flank)

    def visible(self, block: int, low: int, high: int) -> tuple[int, int]:
        """Return the typed sites [first, last) that are both in the block and in [low, high)."""
        first = block * self.core - 1 - self.flank
        return max(first, low), max(min(first + self.n_typed, high), max(first, low))


@dataclass(frozen=True)
class PaddedSites:
    """The typed sites of one block, padded to S."""

    # float64, genetic positions relative to the block's middle; padding repeats its neighbour
    cM_S: np.ndarray
    valid_S: np.ndarray  # float32, 1 for a typed site, 0 for padding
    first: int  # the block has the typed sites [first, last)
    last: int
    offset: int  # index of site `first` in the padded arrays

    def fill(self, alleles_TX: np.ndarray, start: int = 0) -> np.ndarray:
        """Return the typed alleles of the block, (X, S), with 0 as padding.

        alleles_TX: alleles of consecutive typed sites, of which the first is typed site `start`.
        """
        out = np.zeros((alleles_TX.shape[1], len(self.cM_S)), dtype=alleles_TX.dtype)
        rows = alleles_TX[self.first - start : self.last - start]
        out[:, self.offset : self.offset + len(rows)] = rows.T
        return out


def pad_typed_sites(block: int, typed_cM: np.ndarray, shape: BlockShape, low: int, high: int) -> PaddedSites:
    """Return the typed sites that are in the block and in [low, high), padded.

    typed_cM: genetic positions of all typed sites, float64 (T,).
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
    """Return where sites lie in their gaps: arrays (n,) `fraction`, `nearest`, `left` and `right`.

    - fraction, float32: 0 at the typed site to the left, 1 at the typed site to the right. It is 1 before the
      first typed site and 0 after the last.
    - nearest, float32: distance in cM to the nearer of the two typed sites. A missing typed site counts as
      FAR_CM.
    - left, right, float64: distances in cM to the two typed sites. Before the first and after the last typed
      site, both are the distance to that site.

    site_cM: genetic positions, float64 (n,). gap: the gap of each site, int64 (n,).
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
    """Return a group of similar haplotypes for each haplotype, int64 (N,); there are at most `count` groups.

    Inducing points are initialised with the means of these groups. Haplotypes are sorted by their typed
    alleles, with the central sites of the block first. The sorted haplotypes are cut into groups of equal
    weight. Rare haplotypes weigh more, so that they get groups of their own: for each width in WEIGHT_WIDTHS,
    the weight of a haplotype is multiplied by m^(-1/4), where m is the number of haplotypes with its alleles
    at the `width` central sites. Haplotypes with equal typed alleles are in the same group, and no group is
    empty. The result does not depend on the order of haplotypes.
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
    group_R = np.minimum((middle_R * count + TIE).astype(np.int64), count - 1)
    return np.unique(group_R, return_inverse=True)[1][pattern_N]


def argsort_rows(alleles_NX: np.ndarray) -> np.ndarray:
    """Return the order of haplotypes sorted by their alleles, int64 (N,).

    Equal haplotypes keep their order.
    """
    return np.argsort(_packed(alleles_NX), kind="stable")


def _packed(alleles_NX: np.ndarray) -> np.ndarray:
    """Return each row as one value that numpy can sort."""
    packed = np.ascontiguousarray(np.packbits(alleles_NX, axis=1))
    return packed.view(f"V{packed.shape[1]}").ravel()


def _patterns(alleles_NS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct rows, sorted, the row of each haplotype, and the number of haplotypes per row."""
    _, first, row_N, shared = np.unique(
        _packed(alleles_NS), return_index=True, return_inverse=True, return_counts=True
    )
    return alleles_NS[first], row_N, shared


def group_means(x_NX: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """Return the mean of each group of rows, float32 (H, X). group_N: the group of each row, 0 to H - 1."""
    order = np.argsort(group_N, kind="stable")
    first = np.flatnonzero(np.diff(group_N[order], prepend=-1))
    total_HX = np.empty((len(first), x_NX.shape[1]), dtype=np.float32)
    # a few columns at a time, because reduceat converts its whole argument to floats
    for low in range(0, x_NX.shape[1], BATCH_COLUMNS):
        columns = slice(low, low + BATCH_COLUMNS)
        np.add.reduceat(x_NX[order, columns], first, axis=0, dtype=np.float32, out=total_HX[:, columns])
    return total_HX / np.bincount(group_N)[:, None].astype(np.float32)


def spread_evenly(sites: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` of the sites, evenly spaced."""
    if len(sites) <= most:
        return sites
    return sites[(2 * np.arange(most) + 1) * len(sites) // (2 * most)]
