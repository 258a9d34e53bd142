"""Alleles of insertions and deletions in reads.

If the bases after an indel repeat it, the indel can be placed at several positions: in CACACA, for example,
it makes no difference which CA is deleted. By convention, variant files and aligners use the leftmost
position. A read therefore has ALT if its CIGAR contains the same indel at the same position.

A read that ends within the repeat fits both alleles, so it is not used. The length of the repeat is found in
the read's own sequence.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import ne
from typing import NamedTuple

from spinimpute.sequencing.aligned_blocks import DELETION, INSERTION, AlignedBlock
from spinimpute.sequencing.fragments import OTHER_ALLELE

# A read must extend beyond an indel and its repeat, on both sides, by this number of bases plus the length of
# the indel. If fewer bases lie beyond the indel, an aligner clips the end of the read or aligns it without
# the indel. With the scores of bwa mem and minimap2, this happens below 6 bases plus the length of the indel.
# The difference from 6 to 10 allows for sequencing errors.
MIN_FLANK = 10

# Phred-scaled probability that a read has the wrong allele of an indel without a repeat: 1 in 10,000
MAX_QUALITY = 40

# If the indel's bases are repeated n times in a row, the quality is at most SLIPPAGE / n, because polymerases
# lose or add copies (they slip). Of reads with 10 copies, a tenth have a wrong number of copies: quality 10.
SLIPPAGE = 100

# One in this many inserted or repeated bases may differ, because of sequencing errors.
BASES_PER_ERROR = 10

_BASES = frozenset("ACGT")
_UNKNOWN = ("N", "=")  # in reads: N is an unknown base, "=" stands for the reference base


class Indel(NamedTuple):
    """An insertion or deletion of the panel."""

    before: int  # 0-based position of the base before the inserted or deleted bases
    bases: str  # the inserted or deleted bases
    is_insertion: bool  # whether ALT has these bases (an insertion) or REF (a deletion)
    is_leftmost: bool  # whether the indel cannot be placed further to the left


class ObservedAllele(NamedTuple):
    """The allele of an indel in a read."""

    allele: int  # 0 (REF), 1 (ALT) or OTHER_ALLELE (another indel)
    index_before: int  # index in the read's sequence of the base before the indel
    index_after: int  # index in the read's sequence of the base after the indel
    max_quality: int  # upper limit of the Phred-scaled quality, whatever the quality of the two bases


def find_indel(position: int, ref: str, alt: str) -> Indel | None:
    """Return the indel of a panel site (1-based `position`); None if its alleles differ in another way."""
    ref, alt = ref.upper(), alt.upper()
    while min(len(ref), len(alt)) > 1 and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    short, long = sorted((ref, alt), key=len)
    bases = long[len(short) :]
    if not (bases and long.startswith(short) and set(long) <= _BASES):
        return None
    return Indel(position + len(short) - 2, bases, alt == long, short[-1] != bases[-1])


def allele_in_read(blocks: Sequence[AlignedBlock], sequence: str, indel: Indel) -> ObservedAllele | None:
    """Return the allele that a read has at a leftmost indel; None if the read must not be used.

    A read is used only if it extends far enough for both alleles. Otherwise the allele that needs fewer bases
    would be counted too often. A read with another indel shortly before this one is not used.
    """
    i = bisect_right(blocks, indel.before, key=lambda block: block.start) - 1
    n_bases = len(indel.bases)
    flank = n_bases + MIN_FLANK
    if i < 0 or not blocks[i].start + flank <= indel.before + 1 <= blocks[i].stop:
        return None
    block = blocks[i]
    index_before = block.offset + indel.before - block.start
    first, has_bases = index_before + 1, not indel.is_insertion
    if first == block.read_stop and block.next_operations:
        if i + 1 == len(blocks) or not _has_indel(block, sequence, indel):
            return _other_indel(block, index_before)
        block, has_bases = blocks[i + 1], indel.is_insertion
    following = sequence[first : block.read_stop]
    # the read's sequence after index_before, as if the read had the indel's bases
    longer = following if has_bases else indel.bases + following
    n_repeat = max(_repeat_length(longer, indel.bases), n_bases)
    if len(following) < n_repeat + flank:
        return _other_indel(block, index_before)
    return ObservedAllele(
        int(has_bases == indel.is_insertion),
        index_before,
        first + (n_bases if has_bases else 0),
        min(MAX_QUALITY, round(SLIPPAGE * n_bases / n_repeat)),
    )


def _has_indel(block: AlignedBlock, sequence: str, indel: Indel) -> bool:
    """Return whether the block is followed by this indel."""
    n_bases = len(indel.bases)
    if block.next_operations != ((INSERTION if indel.is_insertion else DELETION, n_bases),):
        return False
    if not indel.is_insertion:
        return True
    inserted = sequence[block.read_stop : block.read_stop + n_bases]
    n_wrong = sum(map(ne, inserted, indel.bases))
    return n_wrong <= n_bases // BASES_PER_ERROR


def _other_indel(block: AlignedBlock, index_before: int) -> ObservedAllele | None:
    """Return OTHER_ALLELE if the block is followed by an indel, else None."""
    if not any(operation in (INSERTION, DELETION) for operation, _ in block.next_operations):
        return None
    return ObservedAllele(OTHER_ALLELE, index_before, index_before, MAX_QUALITY)


def _repeat_length(sequence: str, unit: str) -> int:
    """Return how many bases at the start of a sequence are repeats of `unit`.

    A few sequencing errors (N bases or wrong bases) do not end the repeat. Otherwise a read that ends within
    a long repeat would seem to extend beyond it.
    """
    longest = n_wrong = 0
    for n, base in enumerate(sequence):
        if base in (unit[n % len(unit)], *_UNKNOWN):
            longest = n + 1
            continue
        n_wrong += 1
        if n_wrong > max(1, n // BASES_PER_ERROR):
            break
    return longest
