"""Blocks of a panel: what a predictor reads of the panel, and what it keeps without it.

Axes: N panel haplotypes, Q query haplotypes, S typed places of a block, U sites that a block imputes, C
untyped sites of a block by which haplotypes are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spinimpute.genotypes.blocks import (
    FAR_SITES,
    MOST_COMPARED,
    BlockShape,
    PaddedSites,
    gap_geometry,
    pad_typed_sites,
    spread_evenly,
)
from spinimpute.panels.panel import Panel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BlockSites:
    """The sites that a block imputes, in panel order. A typed site belongs to the gap on its left.

    Attributes
    ----------
    panel_index_U : int64 (U,)
    gap_U : int64 (U,)
        The gap within the block, 0..core-1.
    frequency_U : float32 (U,)
        Panel frequency of ALT.
    fraction_U, distance_U : float32 (U,)
        See `blocks.gap_geometry`.
    place_U : float32 (U,)
        Where in the block: 0 at its left end, 1 at its right one, by gaps.
    """

    panel_index_U: np.ndarray
    gap_U: np.ndarray
    frequency_U: np.ndarray
    fraction_U: np.ndarray
    distance_U: np.ndarray
    place_U: np.ndarray


@dataclass(frozen=True)
class PanelBlock:
    """One block with the panel's haplotypes.

    Attributes
    ----------
    places : PaddedSites
    frequency_S : float32 (S,)
        Panel frequency of ALT at typed places.
    typed_NS : uint8 (N, S)
        Alleles at typed places.
    sites : BlockSites
    alleles_UN : uint8 (U, N)
        Alleles at the imputed sites.
    compared_NC : uint8 (N, C)
        Alleles at the block's sites by which haplotypes are compared; the same whichever sites are imputed.
    compared_frequency_C : float32 (C,)
        Panel frequency of ALT there.
    """

    places: PaddedSites
    frequency_S: np.ndarray
    typed_NS: np.ndarray
    sites: BlockSites
    alleles_UN: np.ndarray
    compared_NC: np.ndarray
    compared_frequency_C: np.ndarray

    @property
    def n_haplotypes(self) -> int:
        """N."""
        return self.typed_NS.shape[0]


@dataclass(frozen=True)
class EncodedBlock:
    """One block without the panel.

    Attributes
    ----------
    places : PaddedSites
    frequency_S : float32 (S,)
        Panel frequency of ALT at typed places.
    sites : BlockSites
    n_haplotypes : int
        N, of the panel.
    k : int
        SNPs of a token.
    points : dict of str to Tensor
        What a predictor made of the panel's haplotypes.
    """

    places: PaddedSites
    frequency_S: np.ndarray
    sites: BlockSites
    n_haplotypes: int
    k: int
    points: dict[str, Tensor]


class BlockPredictor(Protocol):
    """A trained model seen from the pipeline."""

    @property
    def kind(self) -> str:
        """The predictor's name."""
        ...

    @property
    def shape(self) -> BlockShape:
        """The shape of its blocks."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies the weights and the sizes that results depend on."""
        ...

    @property
    def device_name(self) -> str:
        """Where it computes, "cpu" or "cuda"."""
        ...

    def encode(self, block: PanelBlock) -> EncodedBlock:
        """Inducing points of a block; the panel is not needed afterwards."""
        ...

    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """Impute queries.

        Parameters
        ----------
        block : EncodedBlock
            As of `encode`.
        query_QS : uint8 (Q, S)
            Typed alleles.
        known_QS : uint8 (Q, S)
            1 where they are known.

        Returns
        -------
        float32 (U, Q)
            P(ALT).
        """
        ...


class BlockPlan:
    """Where the blocks of a panel lie, given which of its sites are typed, whatever the alleles.

    Parameters
    ----------
    shape : BlockShape
        The shape of all blocks.
    typed_index : int64 (T,)
        Increasing panel sites.
    cM, frequency : float64 (n_sites,)
        Of the panel.
    """

    def __init__(
        self, shape: BlockShape, typed_index: np.ndarray, cM: np.ndarray, frequency: np.ndarray
    ) -> None:
        self.shape, self.typed_index = shape, typed_index
        self._cM, self._frequency = cM, frequency
        self._typed_cM = cM[typed_index]

    def blocks(self, start: int, stop: int) -> range:
        """The blocks that impute some of the panel sites [start, stop)."""
        first, last = np.searchsorted(self.typed_index, [start, stop - 1])
        return range(int(first) // self.shape.core, int(last) // self.shape.core + 1)

    def places(self, block: int, low: int, high: int) -> tuple[PaddedSites, np.ndarray]:
        """Where a block's typed sites are.

        Parameters
        ----------
        block : int
            Its number.
        low, high : int
            The typed sites [low, high) are visible.

        Returns
        -------
        places : PaddedSites
            Padded to S places.
        frequency_S : float32 (S,)
            Panel frequency of ALT there.
        """
        places = pad_typed_sites(block, self._typed_cM, self.shape, low, high)
        frequency_S = np.zeros(self.shape.n_typed, dtype=np.float32)
        seen = slice(places.offset, places.offset + places.last - places.first)
        frequency_S[seen] = self._frequency[self.typed_index[places.first : places.last]]
        return places, frequency_S

    def span(self, block: int, start: int, stop: int) -> tuple[int, int]:
        """The panel sites that a block imputes.

        Parameters
        ----------
        block : int
            Its number.
        start, stop : int
            Of the panel sites [start, stop).

        Returns
        -------
        first, last : int
            The sites [first, last).
        """
        core, typed = self.shape.core, self.typed_index
        before = block * core - 1
        first = start if before < 0 else max(int(typed[before]) + 1, start)
        end = min((block + 1) * core - 1, len(typed) - 1)
        return first, stop if end < block * core + core - 1 else min(int(typed[end]) + 1, stop)

    def compared(self, block: int) -> np.ndarray:
        """The panel sites (C,) by which a block's haplotypes are compared, wherever windows end."""
        first, stop = self.span(block, 0, len(self._frequency))
        # what lies far beyond the typed sites is in no linkage with the rest of the block
        first = max(first, int(self.typed_index[0]) - FAR_SITES)
        stop = min(stop, int(self.typed_index[-1]) + 1 + FAR_SITES)
        varies = (self._frequency[first:stop] > 0) & (self._frequency[first:stop] < 1)
        low, high = np.searchsorted(self.typed_index, [first, stop])
        varies[self.typed_index[low:high] - first] = False
        return spread_evenly(first + np.flatnonzero(varies), MOST_COMPARED)

    def sites(self, block: int, places: PaddedSites, start: int, stop: int) -> BlockSites:
        """The panel sites that a block imputes, and where they lie in it.

        Parameters
        ----------
        block : int
            Its number.
        places : PaddedSites
            The block's typed sites, as of `places`.
        start, stop : int
            Of the panel sites [start, stop).

        Returns
        -------
        BlockSites
            In panel order.
        """
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
    """Cuts a part of a panel into blocks, given which of its sites the target has typed.

    Parameters
    ----------
    panel : Panel
        The panel.
    typed_index : int64 (T,)
        Increasing panel sites.
    shape : BlockShape
        The shape of all blocks.
    low, high : int
        The typed sites [low, high) are visible.
    start, stop : int
        The panel sites [start, stop) are imputed.
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
        # only what some block sees is unpacked: a window's overlaps may hold far more
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
        """Read one block.

        Parameters
        ----------
        block : int
            Its number.

        Returns
        -------
        PanelBlock
            With the panel's haplotypes.

        Raises
        ------
        InputError
            The panel is damaged there, or elsewhere in the block.
        """
        places, frequency_S = self._plan.places(block, self.low, self.high)
        sites = self._plan.sites(block, places, self.start, self.stop)
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
