"""Blocks of a read that are aligned letter by letter, by its CIGAR."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from spinimpute.sequencing.alignment_file import Read

INSERTION, DELETION = 1, 2  # operations of a CIGAR: I, D
_MATCHES, _IN_READ, _IN_REFERENCE = (0, 7, 8), (INSERTION, 4), (DELETION, 3)  # M = X; I S; D N
_IN_NEITHER = (5, 6)  # H P


class AlignedBlock(NamedTuple):
    """Letters of a read that stand on as many of the reference.

    Attributes
    ----------
    start, stop : int
        0-based positions: the first, and that behind the last.
    offset : int
        The first one's place in the read's sequence.
    behind : tuple of (int, int)
        Operations of the CIGAR behind it, with their lengths, up to the next block or the read's end.
    """

    start: int
    stop: int
    offset: int
    behind: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The place in the read's sequence behind the last letter."""
        return self.offset + self.stop - self.start


def aligned_blocks(read: Read) -> list[AlignedBlock]:
    """Cut a read, which has a CIGAR, at all that is inserted, deleted, skipped or clipped."""
    blocks: list[AlignedBlock] = []
    at, offset = read.reference_start, 0
    operations = (one for one in read.cigartuples if one[0] not in _IN_NEITHER)
    for is_aligned, run in groupby(operations, key=lambda one: one[0] in _MATCHES):
        if is_aligned:  # = and X may be side by side
            length = sum(length for _, length in run)
            blocks.append(AlignedBlock(at, at + length, offset, ()))
            at, offset = at + length, offset + length
            continue
        between = tuple(run)
        if blocks:
            blocks[-1] = blocks[-1]._replace(behind=between)
        offset += sum(length for operation, length in between if operation in _IN_READ)
        at += sum(length for operation, length in between if operation in _IN_REFERENCE)
    return blocks


def places_in_read(blocks: Sequence[AlignedBlock], position: Sequence[int]) -> list[tuple[int, int]]:
    """Where a read has letters at sites.

    Parameters
    ----------
    blocks : sequence of AlignedBlock
        Of the read.
    position : sequence of int
        0-based, of the sites, increasing.

    Returns
    -------
    list of (int, int)
        Number of a site that a block covers, and the place in the read's sequence of the letter there.
    """
    found = []
    stop = 0
    for block in blocks:
        site = bisect_left(position, block.start, stop)
        stop = bisect_left(position, block.stop, site)
        before = block.offset - block.start
        found += [(number, before + position[number]) for number in range(site, stop)]
    return found
