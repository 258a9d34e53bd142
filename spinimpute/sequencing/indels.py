"""What reads show of insertions and deletions.

An indel is some letters that stand behind the one before it, or do not. Where what follows repeats them it
could as well be further to the right; those of variants, and of alignments, are placed as far to the left as
they go. So a read shows ALT if its CIGAR has the same one at the same place. How far the letters are repeated
is seen in the read itself: one that ends before the repeat does fits both alleles, and says nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import ne
from typing import NamedTuple

from spinimpute.sequencing.aligned_blocks import DELETION, INSERTION, AlignedBlock
from spinimpute.sequencing.fragments import OTHER_ALLELE

BEYOND = 10
"""Letters that a read has on either side of an indel and its repeat, besides as many as the indel has.

Aligners put an indel where the letters beyond it are worth it: as bwa mem and minimap2 count, 6 of them and
one more for each letter of the indel. Of a read with fewer they leave out the end, or take it for one of REF.
The rest is to spare, for wrong letters.
"""

HIGHEST_QUALITY = 40
"""Phred-scaled chance that a read shows the wrong allele, where nothing is repeated: 1 in 10,000."""

SLIPPING = 100
"""Such a chance where n copies of the letters stand in a row: SLIPPING / n, Phred-scaled, if that is less.

Polymerases slip there: a tenth of the reads of 10 copies have another number of them.
"""

WRONG_AMONG = 10
"""Of so many inserted or repeated letters one may be another one: it was misread."""

_LETTERS = frozenset("ACGT")
_UNKNOWN = ("N", "=")  # letters of reads; the latter is the reference's


class Indel(NamedTuple):
    """An insertion or deletion.

    Attributes
    ----------
    before : int
        0-based position of the letter before it.
    letters : str
        What is inserted or deleted.
    is_insertion : bool
        Whether ALT has these letters; else REF.
    is_leftmost : bool
        Whether it can be placed no further to the left.
    """

    before: int
    letters: str
    is_insertion: bool
    is_leftmost: bool


class Shown(NamedTuple):
    """What a read shows of an indel.

    Attributes
    ----------
    allele : int
        0 REF, 1 ALT, or OTHER_ALLELE: another insertion or deletion.
    before, behind : int
        Places in the read's sequence of the letters on either side of what is inserted or deleted.
    highest_quality : int
        Phred-scaled chance that this is wrong, whatever the quality of these letters.
    """

    allele: int
    before: int
    behind: int
    highest_quality: int


def indel_of(position: int, ref: str, alt: str) -> Indel | None:
    """The insertion or deletion that two alleles differ by.

    Parameters
    ----------
    position : int
        1-based, of the first letter of REF.
    ref, alt : str
        The alleles.

    Returns
    -------
    Indel or None
        None for alleles that differ by anything else.
    """
    ref, alt = ref.upper(), alt.upper()
    while min(len(ref), len(alt)) > 1 and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    short, long = sorted((ref, alt), key=len)
    letters = long[len(short) :]
    if not (letters and long.startswith(short) and set(long) <= _LETTERS):
        return None
    return Indel(position + len(short) - 2, letters, alt == long, short[-1] != letters[-1])


def shown_by_read(blocks: Sequence[AlignedBlock], letters: str, indel: Indel) -> Shown | None:
    """What a read shows of an indel that is placed as far to the left as it goes.

    A read counts if it would count whichever of the alleles it had: otherwise the one with which more reads
    reach far enough would be counted more often.

    Parameters
    ----------
    blocks : sequence of AlignedBlock
        Of the read.
    letters : str
        Its sequence.
    indel : Indel
        The insertion or deletion.

    Returns
    -------
    Shown or None
        None where it shows nothing: it does not reach so far, or has another indel just before.
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
        if number + 1 == len(blocks) or not _is_shown(block, letters, indel):
            return _unless_cut_off(block, before)
        block, has_letters = blocks[number + 1], indel.is_insertion
    behind = letters[first : block.end]
    longer = behind if has_letters else indel.letters + behind  # what would be there with the letters
    n_repeat = max(_n_repeating(longer, indel.letters), n_letters)
    if len(behind) < n_repeat + flank:
        return _unless_cut_off(block, before)
    return Shown(
        int(has_letters == indel.is_insertion),
        before,
        first + (n_letters if has_letters else 0),
        min(HIGHEST_QUALITY, round(SLIPPING * n_letters / n_repeat)),
    )


def _is_shown(block: AlignedBlock, letters: str, indel: Indel) -> bool:
    """Whether this insertion or deletion is behind a block."""
    n_letters = len(indel.letters)
    if block.behind != ((INSERTION if indel.is_insertion else DELETION, n_letters),):
        return False
    if not indel.is_insertion:
        return True
    inserted = letters[block.end : block.end + n_letters]
    n_wrong = sum(map(ne, inserted, indel.letters))
    return n_wrong <= n_letters // WRONG_AMONG


def _unless_cut_off(block: AlignedBlock, before: int) -> Shown | None:
    """Another insertion or deletion, if the block ends with one."""
    if not any(operation in (INSERTION, DELETION) for operation, _ in block.behind):
        return None
    return Shown(OTHER_ALLELE, before, before, HIGHEST_QUALITY)


def _n_repeating(letters: str, repeated: str) -> int:
    """How many letters may be those of a text, over and over.

    A misread letter does not end a repeat: reads that end within a long one would seem to go beyond it.
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
