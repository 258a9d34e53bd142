"""Blocks of a read that are aligned base by base, from its CIGAR."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from spinimpute.sequencing.alignment_file import Read

INSERTION, DELETION = 1, 2  # operations of a CIGAR: I, D
_MATCHES, _IN_READ, _IN_REFERENCE = (0, 7, 8), (INSERTION, 4), (DELETION, 3)  # M = X; I S; D N
_IN_NEITHER = (5, 6)  # H P


class AlignedBlock(NamedTuple):
    """Bases of a read that are aligned with the reference positions [start, stop), 0-based.

    `offset` is the index of the first one in the read's sequence. `next_operations` are the CIGAR operations,
    with lengths, between the block and the next one or the end of the read.
    """

    start: int
    stop: int
    offset: int
    next_operations: tuple[tuple[int, int], ...]

    @property
    def read_stop(self) -> int:
        """The index in the read's sequence next_operations the last base."""
        return self.offset + self.stop - self.start


def aligned_blocks(read: Read) -> list[AlignedBlock]:
    """Cut a read with a CIGAR at insertions, deletions, skipped and clipped bases."""
    blocks: list[AlignedBlock] = []
    position, offset = read.reference_start, 0
    operations = (one for one in read.cigartuples if one[0] not in _IN_NEITHER)
    for is_aligned, run in groupby(operations, key=lambda one: one[0] in _MATCHES):
        if is_aligned:  # = and X may be adjacent
            length = sum(length for _, length in run)
            blocks.append(AlignedBlock(position, position + length, offset, ()))
            position, offset = position + length, offset + length
            continue
        between = tuple(run)
        if blocks:
            blocks[-1] = blocks[-1]._replace(next_operations=between)
        offset += sum(length for operation, length in between if operation in _IN_READ)
        position += sum(length for operation, length in between if operation in _IN_REFERENCE)
    return blocks


def sites_in_read(blocks: Sequence[AlignedBlock], position: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers of the sites (0-based, increasing) that blocks cover, and indices in the read's sequence."""
    sites = []
    stop = 0
    for block in blocks:
        site = bisect_left(position, block.start, stop)
        stop = bisect_left(position, block.stop, site)
        shift = block.offset - block.start
        sites += [(number, shift + position[number]) for number in range(site, stop)]
    return sites
