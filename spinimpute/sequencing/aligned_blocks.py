"""Intervals of a read that are aligned base by base to the reference genome, from the read's CIGAR.

The CIGAR 50M2D30M, for example, gives two blocks of 50 and 30 bases, with a deletion after the first one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from spinimpute.sequencing.alignment_file import Read

# codes of CIGAR operations
INSERTION, DELETION = 1, 2  # I, D
_MATCHES = (0, 7, 8)  # M, =, X: aligned base by base
_IN_READ = (INSERTION, 4)  # I, S: bases of the read without bases of the reference
_IN_REFERENCE = (DELETION, 3)  # D, N: bases of the reference without bases of the read
_IN_NEITHER = (5, 6)  # H, P: no bases at all


class AlignedBlock(NamedTuple):
    """Consecutive bases of a read that are aligned to consecutive positions of the reference."""

    start: int  # first position in the reference, 0-based
    stop: int  # position after the last one in the reference
    offset: int  # index of the first base in the read's sequence
    # CIGAR operations and their lengths from this block to the next one, or to the end of the read
    next_operations: tuple[tuple[int, int], ...]

    @property
    def read_stop(self) -> int:
        """Index in the read's sequence after the last base of the block."""
        return self.offset + self.stop - self.start


def aligned_blocks(read: Read) -> list[AlignedBlock]:
    """Return the aligned blocks of a read: cut it at insertions, deletions, skipped and clipped bases."""
    blocks: list[AlignedBlock] = []
    position, offset = read.reference_start, 0
    operations = (pair for pair in read.cigartuples if pair[0] not in _IN_NEITHER)
    for is_aligned, run in groupby(operations, key=lambda pair: pair[0] in _MATCHES):
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
    """Return the sites that the blocks cover: pairs of site index and index of the base in the read.

    `position` has the 0-based positions of all sites, increasing.
    """
    sites = []
    stop = 0
    for block in blocks:
        site = bisect_left(position, block.start, stop)
        stop = bisect_left(position, block.stop, site)
        shift = block.offset - block.start
        sites += [(number, shift + position[number]) for number in range(site, stop)]
    return sites
