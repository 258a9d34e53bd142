"""Tiles: groups of 256 neighbouring gaps between typed sites, which predictors read and compute together.

Tiles are counted from the first typed site of a target file. The tile of a site therefore does not depend on
how the chromosome is cut into windows, and a region gets the same results as the whole chromosome. When a
region is imputed, typed sites to its left may only be dropped by whole tiles.

To read only a part of a target file, one must know where the tiles of the whole file start. `phase` and
`convert` therefore list these starts in the header of their output. The list includes the number of typed
sites: if the file was changed later, this number is wrong, and the whole file is read.

A tile also needs the typed sites around it, its flanks.

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
# A flank has at least FLANK typed sites. Where typed sites are dense it has as many as are needed to reach
# `flank_reach` cM, but at most MAX_FLANK. The reach is proportional to the number of panel haplotypes: 1 cM
# for REACH_HAPLOTYPES. Matches to a larger panel are longer.
FLANK = 160
MIN_REACH_CM = 0.3
REACH_HAPLOTYPES = 15_000
MAX_REACH_CM = 1.0
MAX_FLANK = 1_024
STARTS_LINE = "##spinimpute_chunk_starts="  # then TILE_GAPS, typed sites of the file, and TILE:POSITION,...
MAX_STARTS = 1_000  # maximum number of listed tiles; each takes about 12 characters


def tiles_between(start: int, stop: int, typed_index: np.ndarray) -> range:
    """Return the numbers of the tiles that contain the panel sites [start, stop)."""
    first, last = np.searchsorted(typed_index, [start, stop - 1])
    return range(int(first) // TILE_GAPS, int(last) // TILE_GAPS + 1)


def flank_reach(n_haplotypes: int) -> float:
    """Return the length in cM of a flank where typed sites are dense."""
    return min(max(MIN_REACH_CM, n_haplotypes / REACH_HAPLOTYPES), MAX_REACH_CM)


def add_flanks(typed_cM_T: np.ndarray, typed: Interval, reach_cM: float) -> Interval:
    """Extend an interval of typed sites by its two flanks, without leaving the range of typed sites."""
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
    """Return the typed sites that are needed to compute the tiles of the panel sites `sites`.

    These are the typed sites of the tiles and of their flanks. The result starts at the start of a tile. cM
    are the genetic positions of the panel sites; typed_index must not be empty.
    """
    tiles = tiles_between(sites.start, sites.stop, typed_index)
    own_tile = Interval(tiles.start * TILE_GAPS - 1, tiles.stop * TILE_GAPS)
    typed = add_flanks(cM[typed_index], own_tile, reach_cM)
    return Interval(typed.start // TILE_GAPS * TILE_GAPS, typed.stop)


def starts_line(position_T: np.ndarray) -> str:
    """Return the header line with tile starts of a file whose typed sites have these sorted positions."""
    first_C = np.arange(0, len(position_T), TILE_GAPS)
    # A file is read from a position, which gives all sites there. If the last site of the previous tile has
    # the same position as the first site of a tile, the start of this tile is ambiguous and is not listed.
    is_unambiguous_C = position_T[first_C] > np.where(first_C > 0, position_T[first_C - 1], -1)
    first_C = first_C[is_unambiguous_C]
    first_C = first_C[:: -(-len(first_C) // MAX_STARTS) or 1]
    starts = (f"{first // TILE_GAPS}:{position_T[first]}" for first in first_C.tolist())
    return f"{STARTS_LINE}{TILE_GAPS} {len(position_T)} {','.join(starts)}"


@dataclass(frozen=True)
class TileStarts:
    """The tile starts in the header of a file: always the first tile, and some or all of the other tiles."""

    n_typed: int  # number of typed sites of the file
    tile_C: np.ndarray  # int64, tile numbers, increasing
    position_C: np.ndarray  # int64, position of the tile's first typed site
    cM_C: np.ndarray  # float64, genetic position of the tile's first typed site
    reach_cM: float  # see `flank_reach`

    def start_before(self, position: int) -> int:
        """Return the last listed start at or before `position`; the first start if there is none."""
        return int(self.position_C[self._last_at(position)])

    def around(self, start: int, end: int) -> tuple[int, int | None]:
        """Return the first and last position to read, to impute the sites at the positions [start, end].

        The first position is the start of a tile. The last position is None if the file must be read to its
        end.
        """
        # The gap to the left of a tile's first typed site belongs to that tile. A site at `start` is in the
        # last tile that starts before it, or in the next tile if it lies in the gap to the left of its start.
        own_tile = self._last_at(start)
        sites_to_left_C = (self.tile_C[own_tile] - self.tile_C[: own_tile + 1]) * TILE_GAPS
        beyond_reach_C = self.cM_C[: own_tile + 1] < self.cM_C[max(own_tile - 1, 0)] - self.reach_cM
        first = np.flatnonzero(
            (sites_to_left_C > MAX_FLANK) | ((sites_to_left_C > FLANK) & beyond_reach_C)
        ).max(initial=0)
        # The site at `end` may also be in the next tile, which ends where the tile after it starts.
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
    """Parse the line of `starts_line` in a header. Return None if it is absent or does not fit the panel."""
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
