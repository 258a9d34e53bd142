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
BEYOND = 10

# Phred-scaled probability that a read shows the wrong allele of an indel without a repeat: 1 in 10,000
HIGHEST_QUALITY = 40

# With n copies of the letters in a row this probability is SLIPPING / n, Phred-scaled, if that is less:
# polymerases slip. A tenth of the reads of 10 copies have another number of copies.
SLIPPING = 100

# one of so many inserted or repeated bases may differ: a sequencing error
WRONG_AMONG = 10

_LETTERS = frozenset("ACGT")
_UNKNOWN = ("N", "=")  # bases of reads; "=" is the reference base


class Indel(NamedTuple):
    """An insertion or deletion.

    `before` is the 0-based position of the base before the inserted or deleted `letters`. With `is_insertion`
    ALT has these letters, else REF. `is_leftmost`: the indel fits no position further to the left.
    """

    before: int
    letters: str
    is_insertion: bool
    is_leftmost: bool


class ShownAllele(NamedTuple):
    """The allele of an indel that a read shows.

    `allele` is 0 (REF), 1 (ALT) or OTHER_ALLELE (another indel). `before` and `behind` are indices in the
    read's sequence of the bases on either side of the indel. `highest_quality` limits the Phred-scaled
    quality, whatever the quality of these bases.
    """

    allele: int
    before: int
    behind: int
    highest_quality: int


def indel_of(position: int, ref: str, alt: str) -> Indel | None:
    """The indel between two alleles, REF at a 1-based position; None if the alleles differ otherwise."""
    ref, alt = ref.upper(), alt.upper()
    while min(len(ref), len(alt)) > 1 and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    short, long = sorted((ref, alt), key=len)
    letters = long[len(short) :]
    if not (letters and long.startswith(short) and set(long) <= _LETTERS):
        return None
    return Indel(position + len(short) - 2, letters, alt == long, short[-1] != letters[-1])


def allele_in_read(blocks: Sequence[AlignedBlock], letters: str, indel: Indel) -> ShownAllele | None:
    """The allele of a leftmost indel in a read with a sequence; None if the read shows nothing.

    A read counts only if it would count with either allele. Otherwise the allele with which more reads reach
    far enough would be counted more often. A read with another indel just before shows nothing.
    """
    number = bisect_right(blocks, indel.before, key=lambda block: block.start) - 1
    n_letters = len(indel.letters)
    flank = n_letters + BEYOND
    if number < 0 or not blocks[number].start + flank <= indel.before + 1 <= blocks[number].stop:
        return None
    block = blocks[number]
    before = block.offset + indel.before - block.start
    first, has_letters = before + 1, not indel.is_insertion
    if first == block.end and block.behind:
        if number + 1 == len(blocks) or not _has_indel(block, letters, indel):
            return _other_indel(block, before)
        block, has_letters = blocks[number + 1], indel.is_insertion
    behind = letters[first : block.end]
    longer = behind if has_letters else indel.letters + behind  # the sequence with the letters
    n_repeat = max(_n_repeating(longer, indel.letters), n_letters)
    if len(behind) < n_repeat + flank:
        return _other_indel(block, before)
    return ShownAllele(
        int(has_letters == indel.is_insertion),
        before,
        first + (n_letters if has_letters else 0),
        min(HIGHEST_QUALITY, round(SLIPPING * n_letters / n_repeat)),
    )


def _has_indel(block: AlignedBlock, letters: str, indel: Indel) -> bool:
    """Whether this indel is behind a block."""
    n_letters = len(indel.letters)
    if block.behind != ((INSERTION if indel.is_insertion else DELETION, n_letters),):
        return False
    if not indel.is_insertion:
        return True
    inserted = letters[block.end : block.end + n_letters]
    n_wrong = sum(map(ne, inserted, indel.letters))
    return n_wrong <= n_letters // WRONG_AMONG


def _other_indel(block: AlignedBlock, before: int) -> ShownAllele | None:
    """OTHER_ALLELE if the block ends with another indel."""
    if not any(operation in (INSERTION, DELETION) for operation, _ in block.behind):
        return None
    return ShownAllele(OTHER_ALLELE, before, before, HIGHEST_QUALITY)


def _n_repeating(letters: str, repeated: str) -> int:
    """The number of bases that repeat a text over and over.

    A sequencing error does not end a repeat, or reads that end within a long repeat would seem to go beyond
    it.
    """
    longest = n_wrong = 0
    for n, letter in enumerate(letters):
        if letter in (repeated[n % len(repeated)], *_UNKNOWN):
            longest = n + 1
            continue
        n_wrong += 1
        if n_wrong > max(1, n // WRONG_AMONG):
            break
    return longest
