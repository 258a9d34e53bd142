"""What chunks of typed sites need, so that a region is imputed as in a run of the whole target.

Chunks are counted from a target's first typed site. Who leaves sites out, has to leave out whole chunks on
the left; who reads a part of a file has to know where chunks begin in all of it: the header of what `phase`
and `convert` write tells where.

Axes: T typed sites, C chunks that the header tells of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.panel_file import Panel
from spinimpute.imputation.haplotype_chunk import (
    CHUNK,
    FLANK,
    MOST_FLANK,
    REACH_CM,
    chunks_between,
    with_flanks,
)

STARTS_LINE = "##spinimpute_chunk_starts="  # then the gaps of a chunk, and number:position of chunks
MOST_STARTS = 1_000  # a line has about 12 characters for each


def typed_of_chunks(cM: np.ndarray, typed_index: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """The typed sites [low, high) that the chunks of panel sites [first, last) see, from the start of a chunk
    on. cM: float64, of all panel sites; typed_index: int64 (T,), T > 0."""
    chunks = chunks_between(first, last, typed_index)
    low, high = with_flanks(cM[typed_index], chunks[0] * CHUNK - 1, (chunks[-1] + 1) * CHUNK)
    return low // CHUNK * CHUNK, high


def starts_line(position_T: np.ndarray) -> str:
    """A line of the header of a file with typed sites at these positions (int64, never decreasing)."""
    first_C = np.arange(0, len(position_T), CHUNK)
    # what is read from a position on holds all sites there, also those of the chunk before
    alone_C = position_T[first_C] > np.where(first_C > 0, position_T[first_C - 1], -1)
    first_C = first_C[alone_C]
    first_C = first_C[:: -(-len(first_C) // MOST_STARTS) or 1]
    starts = (f"{first // CHUNK}:{position_T[first]}" for first in first_C.tolist())
    return f"{STARTS_LINE}{CHUNK} {','.join(starts)}"


@dataclass(frozen=True)
class ChunkStarts:
    """Chunks, and the positions and genetic positions of their first typed sites: int64, int64, float64 (C,),
    increasing; the first chunk is among them."""

    number_C: np.ndarray
    position_C: np.ndarray
    cM_C: np.ndarray

    def around(self, start: int, end: int) -> tuple[int, int | None]:
        """Positions from that of a chunk's first typed site to another (None: to the end), between which all
        typed sites lie that the chunks of the sites at [start, end] see."""
        # a site belongs to the last chunk that begins before it, or, right before a chunk, to that one
        left = max(int(np.searchsorted(self.position_C, start, side="right")) - 1, 0)
        before_C = (self.number_C[left] - self.number_C[: left + 1]) * CHUNK
        reached_C = self.cM_C[: left + 1] < self.cM_C[max(left - 1, 0)] - REACH_CM
        low = np.flatnonzero((before_C > MOST_FLANK) | ((before_C > FLANK) & reached_C)).max(initial=0)
        right = int(np.searchsorted(self.position_C, end, side="right")) + 1  # begins behind all chunks
        if right >= len(self.position_C):
            return int(self.position_C[low]), None
        behind_C = (self.number_C[right:] - self.number_C[right]) * CHUNK
        reached_C = self.cM_C[right:] > self.cM_C[right] + REACH_CM
        high = np.flatnonzero((behind_C >= MOST_FLANK) | ((behind_C >= FLANK) & reached_C))
        return int(self.position_C[low]), int(self.position_C[right + high[0]]) if len(high) else None


def told_starts(header: str, panel: Panel) -> ChunkStarts | None:
    """What `starts_line` wrote; None if there is no such line, or none that is right for the panel."""
    for line in header.splitlines():
        if line.startswith(f"{STARTS_LINE}{CHUNK} "):
            return _parse(line.split(" ", 1)[1], panel)
    return None


def _parse(text: str, panel: Panel) -> ChunkStarts | None:
    try:
        pairs = [tuple(map(int, start.split(":"))) for start in text.split(",")]
        number_C, position_C = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    except (ValueError, OverflowError):
        return None
    index_C = np.searchsorted(panel.position, position_C).clip(max=panel.n_sites - 1)
    increasing = (np.diff(number_C) > 0).all() and (np.diff(position_C) > 0).all()
    if number_C[0] != 0 or not increasing or (panel.position[index_C] != position_C).any():
        return None
    return ChunkStarts(number_C, position_C, panel.cM[index_C])
