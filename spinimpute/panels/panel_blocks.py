"""Cut a panel into blocks for the SPIN predictor.

A block is a number of neighbouring gaps between typed sites. A `PanelBlock` has the panel's haplotypes at the
sites of a block. The predictor encodes it as an `EncodedBlock`, which has inducing points in place of
haplotypes and can be used without the panel.

Axes: N panel haplotypes, Q query haplotypes, T typed sites, S places (typed sites in and around a block), U
sites that a block imputes, C compared sites (untyped sites by which a block compares haplotypes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from spinimpute.genotypes.blocks import (
    FAR_SITES,
    MAX_COMPARED,
    BlockShape,
    PaddedSites,
    gap_geometry,
    pad_typed_sites,
    spread_evenly,
)
from spinimpute.panels.panel import Panel


@dataclass(frozen=True)
class BlockSites:
    """The sites that a block imputes, in panel order. A typed site belongs to the gap on its left."""

    panel_index_U: np.ndarray  # panel sites, int64
    gap_U: np.ndarray  # index of the site's gap within the block, int64
    frequency_U: np.ndarray  # panel frequency of ALT, float32
    fraction_U: np.ndarray  # relative position in the gap, see `blocks.gap_geometry`, float32
    distance_U: np.ndarray  # see `blocks.gap_geometry`
    block_fraction_U: np.ndarray  # relative position in the block, 0 (left) to 1 (right), float32


@dataclass(frozen=True)
class PanelBlock:
    """One block with the panel's haplotypes. Its compared sites do not depend on which sites are imputed."""

    places: PaddedSites
    frequency_S: np.ndarray  # panel frequency of ALT at typed places, float32
    typed_NS: np.ndarray  # alleles at typed places, uint8
    sites: BlockSites
    alleles_UN: np.ndarray  # alleles at the imputed sites, uint8
    compared_NC: np.ndarray  # alleles at the compared sites, uint8
    compared_frequency_C: np.ndarray  # panel frequency of ALT at the compared sites, float32

    @property
    def n_haplotypes(self) -> int:
        """The number N of panel haplotypes."""
        return self.typed_NS.shape[0]


class Members(NamedTuple):
    """Which panel haplotypes the inducing points of a block stand for, in the order of haplotypes."""

    haplotype_L: np.ndarray  # int64
    point_L: np.ndarray  # int64
    share_L: np.ndarray  # float64, share of the haplotype that belongs to the point


@dataclass(frozen=True)
class EncodedBlock:
    """One block with inducing points in place of the panel's haplotypes."""

    places: PaddedSites
    frequency_S: np.ndarray  # panel frequency of ALT at typed places, float32
    sites: BlockSites
    n_haplotypes: int  # number of haplotypes of the panel
    k: int  # number of SNPs in a token (K-mer)
    # the inducing points of the block (B = 1, without this axis), see `nn.carrying.CarriedPoints`, float32
    points: dict[str, np.ndarray]
    members: Members | None = None

    @property
    def tokens(self) -> np.ndarray:
        """The distributions of the points' K-mers in each column (D, V = 2^k), float32 (H, D, V)."""
        token_HF = self.points["feature_BHF"]
        return token_HF.reshape(len(token_HF), -1, 2**self.k)


class BlockPredictor(Protocol):
    """The interface of a trained model that predicts block by block."""

    @property
    def kind(self) -> str:
        """The predictor's name."""

    @property
    def shape(self) -> BlockShape:
        """The shape of its blocks."""

    @property
    def fingerprint(self) -> str:
        """An identifier of the weights and of all settings that change results."""

    @property
    def device_name(self) -> str:
        """The device on which the model runs, "cpu" or "cuda"."""

    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        """Encode a block as inducing points. The panel is not needed afterwards.

        `with_members`: also return which haplotypes each point stands for, see `EncodedBlock.members`.
        """

    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """Predict P(ALT) of queries, float32 (U, Q), from their typed alleles.

        known_QS is 1 where the allele is known.
        """


class BlockPlan:
    """The division of a panel into blocks for given typed sites. It does not depend on alleles.

    `typed_index`, int64 (T,), are the typed sites, increasing. `cM` and `frequency` are those of all sites.
    """

    def __init__(
        self, shape: BlockShape, typed_index: np.ndarray, cM: np.ndarray, frequency: np.ndarray
    ) -> None:
        self.shape, self.typed_index = shape, typed_index
        self._cM, self._frequency = cM, frequency
        self._typed_cM = cM[typed_index]

    def blocks(self, start: int, stop: int) -> range:
        """Return the blocks that impute at least one of the panel sites [start, stop)."""
        first, last = np.searchsorted(self.typed_index, [start, stop - 1])
        return range(int(first) // self.shape.core, int(last) // self.shape.core + 1)

    def places(self, block: int, low: int, high: int) -> tuple[PaddedSites, np.ndarray]:
        """Return the padded typed sites of a block, and the panel frequency of ALT there, float32 (S,).

        Only the typed sites with an index in [low, high) are visible; the other places are padding.
        """
        places = pad_typed_sites(block, self._typed_cM, self.shape, low, high)
        frequency_S = np.zeros(self.shape.n_typed, dtype=np.float32)
        seen = slice(places.offset, places.offset + places.last - places.first)
        frequency_S[seen] = self._frequency[self.typed_index[places.first : places.last]]
        return places, frequency_S

    def span(self, block: int, start: int, stop: int) -> tuple[int, int]:
        """Return the part of the panel sites [start, stop) that a block imputes, as first and last + 1."""
        core, typed = self.shape.core, self.typed_index
        before = block * core - 1
        first = start if before < 0 else max(int(typed[before]) + 1, start)
        end = min((block + 1) * core - 1, len(typed) - 1)
        return first, stop if end < block * core + core - 1 else min(int(typed[end]) + 1, stop)

    def compared(self, block: int) -> np.ndarray:
        """Return the compared sites (C,) of a block. They do not depend on the window that is imputed."""
        first, stop = self.span(block, 0, len(self._frequency))
        # sites far beyond the typed sites are not in linkage disequilibrium with the rest of the block
        first = max(first, int(self.typed_index[0]) - FAR_SITES)
        stop = min(stop, int(self.typed_index[-1]) + 1 + FAR_SITES)
        varies = (self._frequency[first:stop] > 0) & (self._frequency[first:stop] < 1)
        low, high = np.searchsorted(self.typed_index, [first, stop])
        varies[self.typed_index[low:high] - first] = False
        return spread_evenly(first + np.flatnonzero(varies), MAX_COMPARED)

    def sites(self, block: int, start: int, stop: int) -> BlockSites:
        """Describe the sites among the panel sites [start, stop) that a block imputes."""
        core, typed = self.shape.core, self.typed_index
        first, stop = self.span(block, start, stop)
        index_U = np.arange(first, stop)
        gap_U = np.searchsorted(typed, index_U)
        fraction_U, distance_U, *_ = gap_geometry(self._cM[index_U], gap_U, self._typed_cM)
        gap_in_block_U = gap_U - block * core
        return BlockSites(
            index_U,
            gap_in_block_U,
            self._frequency[index_U].astype(np.float32),
            fraction_U,
            distance_U,
            ((gap_in_block_U + fraction_U) / core).astype(np.float32),
        )


class BlockReader:
    """Reader of the blocks that impute the panel sites [start, stop).

    `typed_index`, int64 (T,), are the typed sites, increasing. Only [low, high) of them are visible.
    """

    def __init__(
        self,
        panel: Panel,
        typed_index: np.ndarray,
        shape: BlockShape,
        low: int,
        high: int,
        start: int,
        stop: int,
    ) -> None:
        self.panel, self.start, self.stop = panel, start, stop
        self._plan = BlockPlan(shape, typed_index, panel.cM, panel.frequency)
        self.blocks = self._plan.blocks(start, stop)
        # unpack only the typed sites that are visible to a block: [low, high) may be much larger
        low = max(low, shape.visible(self.blocks[0], low, high)[0])
        high = min(high, shape.visible(self.blocks[-1], low, high)[1])
        self.low, self.high = low, high
        rows = typed_index[low:high]
        packed = panel.packed_rows(rows)
        self._typed_TN = np.unpackbits(packed, axis=1, count=panel.n_haplotypes)

    def __iter__(self) -> Iterator[PanelBlock]:
        for block in self.blocks:
            yield self.read(block)

    def read(self, block: int) -> PanelBlock:
        """Read one block. Raises InputError if the panel is damaged there."""
        places, frequency_S = self._plan.places(block, self.low, self.high)
        sites = self._plan.sites(block, self.start, self.stop)
        first, stop = int(sites.panel_index_U[0]), int(sites.panel_index_U[-1]) + 1
        typed_NS = places.fill(self._typed_TN, self.low)
        compared = self._plan.compared(block)
        compared_CN = np.unpackbits(self.panel.packed_rows(compared), axis=1, count=self.panel.n_haplotypes)
        return PanelBlock(
            places,
            frequency_S,
            typed_NS,
            sites,
            self.panel.alleles(first, stop),
            compared_CN.T,
            self.panel.frequency[compared].astype(np.float32),
        )
