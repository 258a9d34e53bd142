"""Typed sites in chunks of a fixed number, so that a region is imputed as in a run of the whole target.

Chunks are counted from a target's first typed site. If sites are dropped on the left, they must be whole
chunks; to read a part of a file, one must know where chunks begin in all of it. The header of what `phase`
and `convert` write states this, and the number of sites, so that a file that was changed later is noticed.

Axes: T typed sites, C chunks that the header states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel

CHUNK = 256  # gaps between typed sites
FLANK = 160  # further typed sites that a chunk sees on each side
# Where typed sites are dense, flanks have more: they reach so far, in larger panels, whose haplotypes match
# for longer, 1 cM for so many haplotypes, and no further than this;
LEAST_REACH_CM = 0.3
REACH_HAPLOTYPES = 15_000
MOST_REACH_CM = 1.0
MOST_FLANK = 1_024  # or they have so many
STARTS_LINE = "##spinimpute_chunk_starts="  # then gaps of a chunk, typed sites, and number:position of chunks
MOST_STARTS = 1_000  # a line has about 12 characters for each


def chunks_between(start: int, stop: int, typed_index: np.ndarray) -> range:
    """The chunks that hold the panel sites [start, stop)."""
    first, last = np.searchsorted(typed_index, [start, stop - 1])
    return range(int(first) // CHUNK, int(last) // CHUNK + 1)


def reach(n_haplotypes: int) -> float:
    """How far flanks reach where typed sites are dense, in cM, for a panel of so many haplotypes."""
    return min(max(LEAST_REACH_CM, n_haplotypes / REACH_HAPLOTYPES), MOST_REACH_CM)


def with_flanks(typed_cM_T: np.ndarray, low: int, high: int, reach_cM: float) -> tuple[int, int]:
    """The typed sites [low, high) with the flanks on both sides; reach_cM: see `reach`."""
    n_typed = len(typed_cM_T)
    low, high = max(low, 0), min(high, n_typed)
    reach_low = int(np.searchsorted(typed_cM_T, typed_cM_T[low] - reach_cM))
    reach_high = int(np.searchsorted(typed_cM_T, typed_cM_T[high - 1] + reach_cM, side="right"))
    return (
        max(0, min(low - FLANK, max(reach_low, low - MOST_FLANK))),
        min(n_typed, max(high + FLANK, min(reach_high, high + MOST_FLANK))),
    )


def typed_of_chunks(
    cM: np.ndarray, typed_index: np.ndarray, first: int, last: int, reach_cM: float
) -> tuple[int, int]:
    """The typed sites that the chunks of some panel sites see, from the start of a chunk on.

    Parameters
    ----------
    cM : float64 (n_sites,)
        Of all panel sites.
    typed_index : int64 (T,)
        Typed panel sites, T > 0.
    first, last : int
        The panel sites [first, last).
    reach_cM : float
        See `reach`.

    Returns
    -------
    (int, int)
        Typed sites [low, high).
    """
    chunks = chunks_between(first, last, typed_index)
    low, high = with_flanks(cM[typed_index], chunks[0] * CHUNK - 1, (chunks[-1] + 1) * CHUNK, reach_cM)
    return low // CHUNK * CHUNK, high


def starts_line(position_T: np.ndarray) -> str:
    """The header line of a file with typed sites at these positions (int64, not decreasing)."""
    first_C = np.arange(0, len(position_T), CHUNK)
    # what is read from a position on holds all sites there, also those of the chunk before
    alone_C = position_T[first_C] > np.where(first_C > 0, position_T[first_C - 1], -1)
    first_C = first_C[alone_C]
    first_C = first_C[:: -(-len(first_C) // MOST_STARTS) or 1]
    starts = (f"{first // CHUNK}:{position_T[first]}" for first in first_C.tolist())
    return f"{STARTS_LINE}{CHUNK} {len(position_T)} {','.join(starts)}"


@dataclass(frozen=True)
class ChunkStarts:
    """Where chunks begin, as the header of a file states; the first chunk is included.

    Attributes
    ----------
    n_typed : int
        Typed sites of all chunks.
    number_C : int64 (C,)
        Numbers of chunks, increasing.
    position_C : int64 (C,)
        Positions of their first typed sites.
    cM_C : float64 (C,)
        Genetic positions of these.
    reach_cM : float
        See `reach`.
    """

    n_typed: int
    number_C: np.ndarray
    position_C: np.ndarray
    cM_C: np.ndarray
    reach_cM: float

    def start_before(self, position: int) -> int:
        """The position of the last start at or before this position, or of the first start."""
        return int(self.position_C[self._last_at(position)])

    def around(self, start: int, end: int) -> tuple[int, int | None]:
        """Positions between which all typed sites lie that the chunks of the sites at [start, end] see.

        Parameters
        ----------
        start, end : int
            Positions of sites.

        Returns
        -------
        int
            The position of a chunk's first typed site.
        int or None
            The last position; None for the end of the file.
        """
        # a site belongs to the last chunk that begins before it, or, right before a chunk, to that one
        own = self._last_at(start)
        before_C = (self.number_C[own] - self.number_C[: own + 1]) * CHUNK
        reached_C = self.cM_C[: own + 1] < self.cM_C[max(own - 1, 0)] - self.reach_cM
        first = np.flatnonzero((before_C > MOST_FLANK) | ((before_C > FLANK) & reached_C)).max(initial=0)
        # two starts on: the end's site may belong to the next chunk, and that one reaches to the start after
        after = int(np.searchsorted(self.position_C, end, side="right")) + 1
        if after >= len(self.position_C):
            return int(self.position_C[first]), None
        behind_C = (self.number_C[after:] - self.number_C[after]) * CHUNK
        reached_C = self.cM_C[after:] > self.cM_C[after] + self.reach_cM
        enough = np.flatnonzero((behind_C >= MOST_FLANK) | ((behind_C >= FLANK) & reached_C))
        last = int(self.position_C[after + enough[0]]) if len(enough) else None
        return int(self.position_C[first]), last

    def _last_at(self, position: int) -> int:
        return max(int(np.searchsorted(self.position_C, position, side="right")) - 1, 0)


def starts_in_header(header: str, panel: ReferencePanel) -> ChunkStarts | None:
    """Read what `starts_line` wrote; None if there is no such line, or none that fits the panel."""
    for line in header.splitlines():
        if line.startswith(f"{STARTS_LINE}{CHUNK} "):
            return _parse(line.removeprefix(f"{STARTS_LINE}{CHUNK} "), panel)
    return None


def _parse(text: str, panel: ReferencePanel) -> ChunkStarts | None:
    count, _, starts = text.partition(" ")
    try:
        n_typed = int(count)
        pairs = [tuple(map(int, start.split(":"))) for start in starts.split(",")]
        number_C, position_C = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    except (ValueError, OverflowError):
        return None
    index_C = np.searchsorted(panel.position, position_C).clip(max=panel.n_sites - 1)
    increasing = (np.diff(number_C) > 0).all() and (np.diff(position_C) > 0).all()
    if number_C[0] != 0 or not increasing or (panel.position[index_C] != position_C).any():
        return None
    return ChunkStarts(n_typed, number_C, position_C, panel.cM[index_C], reach(panel.n_haplotypes))
