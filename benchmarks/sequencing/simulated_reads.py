"""BAM files of simulated reads, of people whose haplotypes are known.

The reference is simulated: random bases, and REF at the sites. The bases of an insertion or deletion are
repeated up to MOST_COPIES times after it, unless the next site is closer. A fragment starts anywhere, is of
either haplotype with equal probability, and is read from both ends, or in one read if it is short. A base has
a quality of 20 to 27, and is wrong with the probability that this quality states. From LEAST_SLIPPING copies
on, a read of n copies in a row has one copy more or less with a probability of 10^(-10/n). Reads have the
correct CIGAR.

Axes: S sites, Q haplotypes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pysam

MARGIN = 10_000  # bases of the reference around the sites
QUALITIES = (20, 27)
LETTERS = np.frombuffer(b"ACGT", np.uint8)
MOST_COPIES = 9
LEAST_SLIPPING = 2.5


@dataclass(frozen=True)
class ReadKind:
    """How fragments are read.

    Attributes
    ----------
    name : str
        Name in tables.
    fragment : int
        Mean length of a fragment.
    spread : int
        Standard deviation of this length.
    read : int
        Number of bases that are read from either end. A fragment of at most this length is one read.
    """

    name: str
    fragment: int
    spread: int
    read: int


SHORT = ReadKind("pairs of 150", 350, 50, 150)
LONG = ReadKind("5 kb", 5_000, 500, 10_000)


@dataclass(frozen=True)
class SequencedPeople:
    """Sites of a chromosome, and alleles (0, 1) of people's haplotypes; those of a person are adjacent.

    Sites are SNPs, and insertions and deletions with one base before them, by position. If alleles of a
    haplotype overlap, only the first is used.
    """

    chrom: str
    length: int
    position: Sequence[int]
    ref: Sequence[str]
    alt: Sequence[str]
    samples: Sequence[str]
    alleles_SQ: np.ndarray

    @property
    def start(self) -> int:
        """0-based position of the first base of the simulated genome."""
        return max(0, self.position[0] - MARGIN)

    def genome(self, rng: np.random.Generator) -> np.ndarray:
        """Bases of the reference, uint8, from `start` on."""
        genome = LETTERS[rng.integers(0, 4, self.position[-1] + MARGIN - self.start)]
        for at, ref, alt in self._sites():
            if len(ref) != len(alt):
                repeated = max(ref, alt, key=len)[1:] * int(rng.integers(0, MOST_COPIES + 1))
                genome[at + len(ref) : at + len(ref) + len(repeated)] = _codes(repeated)
        for at, ref, _ in self._sites():
            genome[at : at + len(ref)] = _codes(ref)
        return genome

    def write_bams(self, folder: Path, kind: ReadKind, coverage: float, seed: int) -> list[Path]:
        """Write one file for each person, with its index."""
        rng = np.random.default_rng(seed)
        genome = self.genome(rng)
        paths = []
        for x, sample in enumerate(self.samples):
            haplotypes = [self._haplotype(genome, 2 * x + h) for h in range(2)]
            reads = _reads(rng, haplotypes, kind, coverage)
            paths.append(self._write(folder / f"{sample}.bam", sample, self.start, reads))
        return paths

    def _sites(self) -> Iterator[tuple[int, str, str]]:
        """Places in the genome, REF and ALT."""
        for position, ref, alt in zip(self.position, self.ref, self.alt, strict=True):
            yield position - 1 - self.start, ref, alt

    def _haplotype(self, genome: np.ndarray, q: int) -> _Haplotype:
        letters, place, end = list[np.ndarray](), list[np.ndarray](), 0
        for (at, ref, alt), has_alt in zip(self._sites(), self.alleles_SQ[:, q], strict=True):
            if has_alt and at >= end:
                letters += [genome[end:at], _codes(alt)]
                inserted = np.full(len(alt) - 1, -1)
                place += [np.arange(end, at), np.array([at]), inserted]
                end = at + len(ref)
        whole = np.concatenate([*letters, genome[end:]])
        places = np.concatenate([*place, np.arange(end, len(genome))])
        slips, reached = [], np.maximum.accumulate(places)
        for at, ref, alt in self._sites():
            before = int(np.searchsorted(reached, at))
            if len(ref) == len(alt) or reached[before] > at:
                continue
            unit = max(ref, alt, key=len)[1:]
            n_copies = _n_repeating(whole, before + 1, unit) / len(unit)
            if n_copies >= LEAST_SLIPPING:
                slips.append(_Slip(before, unit, 10 ** (-10 / n_copies)))
        return _Haplotype(whole, places, slips)

    def _write(self, path: Path, sample: str, start: int, reads: Sequence[_Read]) -> Path:
        header = {
            "HD": {"VN": "1.6", "SO": "coordinate"},
            "SQ": [{"SN": self.chrom, "LN": self.length}],
            "RG": [{"ID": "g", "SM": sample}],
        }
        with pysam.AlignmentFile(str(path), "wb", header=header) as file:
            for one in reads:
                read = pysam.AlignedSegment(file.header)
                read.query_name, read.flag, read.reference_id = one.name, one.flag, 0
                read.reference_start, read.mapping_quality = start + one.start, 60
                read.cigarstring, read.query_sequence = one.cigar, one.letters.tobytes().decode()
                read.query_qualities = pysam.qualitystring_to_array(
                    (one.qualities + np.uint8(33)).tobytes().decode()
                )
                file.write(read)
        pysam.index(str(path))
        return path


@dataclass(frozen=True)
class _Slip:
    """Where a read may have one copy more or less."""

    before: int  # the haplotype's letter before the copies
    unit: str
    chance: float


@dataclass(frozen=True)
class _Haplotype:
    """Letters, where in the genome each of them is (-1 of what is inserted), and slips by their place."""

    letters: np.ndarray
    place: np.ndarray
    slips: Sequence[_Slip]

    def read(self, rng: np.random.Generator, begin: int, n_letters: int) -> tuple[np.ndarray, np.ndarray]:
        """Letters and their places from one on, with slips."""
        letters, place = (of[begin : begin + n_letters] for of in (self.letters, self.place))
        first = bisect_left(self.slips, begin, key=lambda slip: slip.before)
        stop = bisect_left(self.slips, begin + n_letters, first, key=lambda slip: slip.before)
        for slip in reversed(self.slips[first:stop]):
            if rng.random() >= slip.chance:
                continue
            at, n_unit = slip.before - begin + 1, len(slip.unit)
            if rng.random() < 0.5:
                is_deleted = 0 < at < len(place) and place[at] > place[at - 1] + n_unit
                again = place[at - 1] + 1 + np.arange(n_unit) if is_deleted else np.full(n_unit, -1)
                letters, place = np.insert(letters, at, _codes(slip.unit)), np.insert(place, at, again)
            else:
                letters, place = (np.delete(of, slice(at, at + n_unit)) for of in (letters, place))
        return letters.copy(), place


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _n_repeating(letters: np.ndarray, first: int, unit: str) -> int:
    """How many letters from the first on are those of a text, over and over."""
    codes, at = _codes(unit), first
    while at < len(letters) and letters[at] == codes[(at - first) % len(codes)]:
        at += 1
    return at - first


def _cigar(place: np.ndarray) -> tuple[int, str]:
    """The first place in the genome, and the CIGAR of letters with these places."""
    inside = np.flatnonzero(place >= 0)
    start, stop = int(place[inside[0]]), int(place[inside[-1]]) + 1
    if stop - start == len(place) == len(inside):
        return start, f"{len(place)}M"
    operations, last = "S" * int(inside[0]), start - 1
    for at in place[inside[0] : inside[-1] + 1].tolist():
        operations += "I" if at < 0 else "D" * (at - last - 1) + "M"
        last = max(at, last)
    operations += "S" * (len(place) - 1 - int(inside[-1]))
    return start, "".join(f"{len(list(run))}{operation}" for operation, run in groupby(operations))


@dataclass(frozen=True)
class _Read:
    name: str
    flag: int
    start: int  # in the genome's letters
    cigar: str
    letters: np.ndarray
    qualities: np.ndarray


def _reads(
    rng: np.random.Generator, haplotypes: list[_Haplotype], kind: ReadKind, coverage: float
) -> list[_Read]:
    """By their starts."""
    n_letters = min(len(haplotype.letters) for haplotype in haplotypes)
    of_fragment = min(2 * kind.read, kind.fragment)
    reads = []
    for i in range(rng.poisson(coverage * n_letters / of_fragment)):
        length = min(max(round(rng.normal(kind.fragment, kind.spread)), 1), n_letters)
        first = int(rng.integers(0, n_letters - length + 1))
        haplotype = haplotypes[int(rng.integers(len(haplotypes)))]
        if kind.read >= length:
            ends = [(0, first, length)]
        else:
            ends = [(0x1 | 0x40, first, kind.read), (0x1 | 0x80, first + length - kind.read, kind.read)]
        for flag, begin, n_read in ends:
            letters, place = haplotype.read(rng, begin, n_read)
            qualities = rng.integers(QUALITIES[0], QUALITIES[1] + 1, len(letters)).astype(np.uint8)
            wrong = np.flatnonzero(rng.random(len(letters)) < 10 ** (qualities / -10))
            number = np.searchsorted(LETTERS, letters[wrong])
            letters[wrong] = LETTERS[(number + rng.integers(1, 4, len(wrong))) % 4]
            reads.append(_Read(f"f{i}", flag, *_cigar(place), letters, qualities))
    return sorted(reads, key=lambda read: read.start)
