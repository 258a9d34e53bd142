"""Insertions and deletions in reads.

An indel may fit at several positions if the following bases repeat its letters. Indels of variants and of
alignments are leftmost, so a read shows ALT if its CIGAR has the same indel at the same position. The length
of the repeat is read from the read itself: a read that ends within the repeat fits both alleles and shows
nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import ne
from typing import NamedTuple

from spinimpute.sequencing.aligned_blocks import DELETION, INSERTION, AlignedBlock
from spinimpute.sequencing.fragments import OTHER_ALLELE

# Bases that a read must have on either side of an indel and its repeat, besides as many as the indel has.
# Aligners place an indel if the bases beyond it outweigh its cost: with the scores of bwa mem and minimap2, 6
# bases and one more for each base of the indel. Otherwise they clip the end of the read or align it without
# the indel. The remaining bases allow for sequencing errors.
MIN_FLANK = 10

# Phred-scaled probability that a read shows the wrong allele of an indel without a repeat: 1 in 10,000
MAX_QUALITY = 40

# With n copies of the bases in a row this probability is SLIPPAGE / n, Phred-scaled, if that is less:
# polymerases slip. A tenth of the reads of 10 copies have another number of copies.
SLIPPAGE = 100

# one of so many inserted or repeated bases may differ: a sequencing error
BASES_PER_ERROR = 10

_BASES = frozenset("ACGT")
_UNKNOWN = ("N", "=")  # bases of reads; "=" is the reference base


class Indel(NamedTuple):
    """An insertion or deletion.

    `before` is the 0-based position of the base before the inserted or deleted `bases`. With `is_insertion`
    ALT has these bases, else REF. `is_leftmost`: the indel fits no position further to the left.
    """

    before: int
    bases: str
    is_insertion: bool
    is_leftmost: bool


class ObservedAllele(NamedTuple):
    """The allele of an indel that a read shows.

    `allele` is 0 (REF), 1 (ALT) or OTHER_ALLELE (another indel). `before` and `behind` are indices in the
    read's sequence of the bases on either side of the indel. `max_quality` limits the Phred-scaled
    quality, whatever the quality of these bases.
    """

    allele: int
    index_before: int
    index_after: int
    max_quality: int


def find_indel(position: int, ref: str, alt: str) -> Indel | None:
    """The indel between two alleles, REF at a 1-based position; None if the alleles differ otherwise."""
    ref, alt = ref.upper(), alt.upper()
    while min(len(ref), len(alt)) > 1 and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    short, long = sorted((ref, alt), key=len)
    bases = long[len(short) :]
    if not (bases and long.startswith(short) and set(long) <= _BASES):
        return None
    return Indel(position + len(short) - 2, bases, alt == long, short[-1] != bases[-1])


def allele_in_read(blocks: Sequence[AlignedBlock], sequence: str, indel: Indel) -> ObservedAllele | None:
    """The allele of a leftmost indel in a read with a sequence; None if the read shows nothing.

    A read counts only if it would count with either allele. Otherwise the allele with which more reads reach
    far enough would be counted more often. A read with another indel just before shows nothing.
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
    longer = following if has_bases else indel.bases + following  # the sequence with the bases
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
    """Whether this indel is behind a block."""
    n_bases = len(indel.bases)
    if block.next_operations != ((INSERTION if indel.is_insertion else DELETION, n_bases),):
        return False
    if not indel.is_insertion:
        return True
    inserted = sequence[block.read_stop : block.read_stop + n_bases]
    n_wrong = sum(map(ne, inserted, indel.bases))
    return n_wrong <= n_bases // BASES_PER_ERROR


def _other_indel(block: AlignedBlock, index_before: int) -> ObservedAllele | None:
    """OTHER_ALLELE if the block ends with another indel."""
    if not any(operation in (INSERTION, DELETION) for operation, _ in block.next_operations):
        return None
    return ObservedAllele(OTHER_ALLELE, index_before, index_before, MAX_QUALITY)


def _repeat_length(sequence: str, unit: str) -> int:
    """The number of bases that repeat a text over and over.

    A sequencing error does not end a repeat, or reads that end within a long repeat would seem to go beyond
    it.
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
