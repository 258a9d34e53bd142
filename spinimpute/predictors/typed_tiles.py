"""Tiles: groups of 256 neighbouring gaps between typed sites, which predictors read and compute together.

Tiles are counted from the first typed site of a target. So each site belongs to the same tile however a
chromosome is cut into windows, and a region gets the same results as the whole chromosome. Typed sites on the
left may only be dropped by whole tiles. To read a part of a file one must know where the tiles of the whole
file start: `phase` and `convert` write these starts into the header, with the number of typed sites, so that
a later change of the file is noticed.

Axes: T typed sites, C tiles whose starts the header lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.genotypes.intervals import Interval

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel

TILE_GAPS = 256
# A tile also reads the typed sites of its flanks. A flank has at least FLANK typed sites. Where typed sites
# are dense it has more: it reaches 1 cM for REACH_HAPLOTYPES panel haplotypes, in proportion (larger panels
# have longer matches), within these limits, and has at most MAX_FLANK typed sites.
FLANK = 160
MIN_REACH_CM = 0.3
REACH_HAPLOTYPES = 15_000
MAX_REACH_CM = 1.0
MAX_FLANK = 1_024
STARTS_LINE = "##spinimpute_chunk_starts="  # then gaps of a tile, typed sites, and number:position of tiles
MAX_STARTS = 1_000  # each takes about 12 characters of the header line


def tiles_between(start: int, stop: int, typed_index: np.ndarray) -> range:
    """Numbers of the tiles that contain the panel sites [start, stop)."""
    first, last = np.searchsorted(typed_index, [start, stop - 1])
    return range(int(first) // TILE_GAPS, int(last) // TILE_GAPS + 1)


def flank_reach(n_haplotypes: int) -> float:
    """Length in cM that flanks reach where typed sites are dense."""
    return min(max(MIN_REACH_CM, n_haplotypes / REACH_HAPLOTYPES), MAX_REACH_CM)


def add_flanks(typed_cM_T: np.ndarray, typed: Interval, reach_cM: float) -> Interval:
    """Add the flanks on both sides to some typed sites, and cut the result to the existing typed sites."""
    n_typed = len(typed_cM_T)
    start, stop = max(typed.start, 0), min(typed.stop, n_typed)
    reach_start = int(np.searchsorted(typed_cM_T, typed_cM_T[start] - reach_cM))
    reach_stop = int(np.searchsorted(typed_cM_T, typed_cM_T[stop - 1] + reach_cM, side="right"))
    return Interval(
        max(0, min(start - FLANK, max(reach_start, start - MAX_FLANK))),
        min(n_typed, max(stop + FLANK, min(reach_stop, stop + MAX_FLANK))),
    )


def typed_sites_of_tiles(
    cM: np.ndarray, typed_index: np.ndarray, sites: Interval, reach_cM: float
) -> Interval:
    """Typed sites that the tiles of some panel sites read, extended to the left to the start of a tile.

    cM has an entry for each panel site; there is at least one typed site.
    """
    tiles = tiles_between(sites.start, sites.stop, typed_index)
    own_tile = Interval(tiles.start * TILE_GAPS - 1, tiles.stop * TILE_GAPS)
    typed = add_flanks(cM[typed_index], own_tile, reach_cM)
    return Interval(typed.start // TILE_GAPS * TILE_GAPS, typed.stop)


def starts_line(position_T: np.ndarray) -> str:
    """Header line of a file with typed sites at these positions (int64, not decreasing)."""
    first_C = np.arange(0, len(position_T), TILE_GAPS)
    # Reading from a position on gives all sites there. A start must share its position with no earlier site.
    is_unambiguous_C = position_T[first_C] > np.where(first_C > 0, position_T[first_C - 1], -1)
    first_C = first_C[is_unambiguous_C]
    first_C = first_C[:: -(-len(first_C) // MAX_STARTS) or 1]
    starts = (f"{first // TILE_GAPS}:{position_T[first]}" for first in first_C.tolist())
    return f"{STARTS_LINE}{TILE_GAPS} {len(position_T)} {','.join(starts)}"


@dataclass(frozen=True)
class TileStarts:
    """Starts of tiles, as the header of a file lists them; the first tile is always included."""

    n_typed: int  # typed sites of the file
    tile_C: np.ndarray  # int64, increasing
    position_C: np.ndarray  # int64, position of a tile's first typed site
    cM_C: np.ndarray  # float64, genetic position of the same site
    reach_cM: float  # see `flank_reach`

    def start_before(self, position: int) -> int:
        """Position of the last listed start at or before this position, or of the first start."""
        return int(self.position_C[self._last_at(position)])

    def around(self, start: int, end: int) -> tuple[int, int | None]:
        """Positions of the first and last typed site that the tiles of the sites at [start, end] read.

        The first one is the start of a tile. The last one is None for the end of the file.
        """
        # A site belongs to the last tile that starts before it, or to the next tile if it lies right before.
        own_tile = self._last_at(start)
        sites_to_left_C = (self.tile_C[own_tile] - self.tile_C[: own_tile + 1]) * TILE_GAPS
        beyond_reach_C = self.cM_C[: own_tile + 1] < self.cM_C[max(own_tile - 1, 0)] - self.reach_cM
        first = np.flatnonzero(
            (sites_to_left_C > MAX_FLANK) | ((sites_to_left_C > FLANK) & beyond_reach_C)
        ).max(initial=0)
        # The site at the end may belong to the next tile, which reaches to the start of the tile after it.
        after = int(np.searchsorted(self.position_C, end, side="right")) + 1
        if after >= len(self.position_C):
            return int(self.position_C[first]), None
        sites_to_right_C = (self.tile_C[after:] - self.tile_C[after]) * TILE_GAPS
        beyond_reach_C = self.cM_C[after:] > self.cM_C[after] + self.reach_cM
        flank_ends_C = np.flatnonzero(
            (sites_to_right_C >= MAX_FLANK) | ((sites_to_right_C >= FLANK) & beyond_reach_C)
        )
        last = int(self.position_C[after + flank_ends_C[0]]) if len(flank_ends_C) else None
        return int(self.position_C[first]), last

    def _last_at(self, position: int) -> int:
        return max(int(np.searchsorted(self.position_C, position, side="right")) - 1, 0)


def read_starts_line(header: str, panel: ReferencePanel) -> TileStarts | None:
    """Read the line that `starts_line` wrote; None if it is absent or does not fit the panel."""
    for line in header.splitlines():
        if line.startswith(f"{STARTS_LINE}{TILE_GAPS} "):
            return _parse(line.removeprefix(f"{STARTS_LINE}{TILE_GAPS} "), panel)
    return None


def _parse(text: str, panel: ReferencePanel) -> TileStarts | None:
    count, _, starts = text.partition(" ")
    try:
        n_typed = int(count)
        pairs = [tuple(map(int, start.split(":"))) for start in starts.split(",")]
        tile_C, position_C = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    except (ValueError, OverflowError):
        return None
    index_C = np.searchsorted(panel.position, position_C).clip(max=panel.n_sites - 1)
    increasing = (np.diff(tile_C) > 0).all() and (np.diff(position_C) > 0).all()
    if tile_C[0] != 0 or not increasing or (panel.position[index_C] != position_C).any():
        return None
    return TileStarts(n_typed, tile_C, position_C, panel.cM[index_C], flank_reach(panel.n_haplotypes))
