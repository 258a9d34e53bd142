"""BAM files of simulated reads, of people whose haplotypes are known.

The reference is made: letters at random, and REF at the sites. A fragment starts anywhere, is of either
haplotype with equal chance, and is read from both ends, or from one through to the other. A base has a
quality of 20 to 27, and is another letter with the chance that this says.

Axes: S sites, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pysam

MARGIN = 10_000  # bases of the reference around the sites
QUALITIES = (20, 27)
LETTERS = np.frombuffer(b"ACGT", np.uint8)


@dataclass(frozen=True)
class ReadKind:
    """How fragments are read.

    Attributes
    ----------
    name : str
        In tables.
    fragment : int
        Mean length of a fragment.
    spread : int
        Its standard deviation.
    read : int
        What is read of it from either end; all of it, as one read, where it is no longer than this.
    """

    name: str
    fragment: int
    spread: int
    read: int


SHORT = ReadKind("pairs of 150", 350, 50, 150)
LONG = ReadKind("5 kb", 5_000, 500, 10_000)


@dataclass(frozen=True)
class SequencedPeople:
    """SNPs of a chromosome, and alleles (0, 1) of people's haplotypes, those of a person side by side."""

    chrom: str
    length: int
    position: Sequence[int]
    ref: Sequence[str]
    alt: Sequence[str]
    samples: Sequence[str]
    alleles_SQ: np.ndarray

    def write_bams(self, folder: Path, kind: ReadKind, coverage: float, seed: int) -> list[Path]:
        """One file for each person, with its index."""
        rng = np.random.default_rng(seed)
        start = max(0, self.position[0] - MARGIN)
        genome = LETTERS[rng.integers(0, 4, self.position[-1] + MARGIN - start)]
        at = np.array(self.position) - 1 - start
        genome[at] = [ord(letter) for letter in self.ref]
        alt = np.array([ord(letter) for letter in self.alt], np.uint8)
        paths = []
        for x, sample in enumerate(self.samples):
            haplotypes = [genome.copy(), genome.copy()]
            for h, letters in enumerate(haplotypes):
                has_alt = self.alleles_SQ[:, 2 * x + h] == 1
                letters[at[has_alt]] = alt[has_alt]
            reads = _reads(rng, haplotypes, kind, coverage)
            paths.append(self._write(folder / f"{sample}.bam", sample, start, reads))
        return paths

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
                read.cigarstring, read.query_sequence = f"{len(one.letters)}M", one.letters.tobytes().decode()
                read.query_qualities = pysam.qualitystring_to_array(
                    (one.qualities + np.uint8(33)).tobytes().decode()
                )
                file.write(read)
        pysam.index(str(path))
        return path


@dataclass(frozen=True)
class _Read:
    name: str
    flag: int
    start: int  # in the genome's letters
    letters: np.ndarray
    qualities: np.ndarray


def _reads(
    rng: np.random.Generator, haplotypes: Sequence[np.ndarray], kind: ReadKind, coverage: float
) -> list[_Read]:
    """By their starts."""
    n_letters = len(haplotypes[0])
    of_fragment = min(2 * kind.read, kind.fragment)
    reads = []
    for i in range(rng.poisson(coverage * n_letters / of_fragment)):
        length = min(max(round(rng.normal(kind.fragment, kind.spread)), 1), n_letters)
        first = int(rng.integers(0, n_letters - length + 1))
        haplotype = haplotypes[rng.integers(len(haplotypes))]
        if kind.read >= length:
            ends = [(0, first, length)]
        else:
            ends = [(0x1 | 0x40, first, kind.read), (0x1 | 0x80, first + length - kind.read, kind.read)]
        for flag, begin, n_read in ends:
            letters = haplotype[begin : begin + n_read].copy()
            qualities = rng.integers(QUALITIES[0], QUALITIES[1] + 1, n_read).astype(np.uint8)
            wrong = np.flatnonzero(rng.random(n_read) < 10 ** (qualities / -10))
            number = np.searchsorted(LETTERS, letters[wrong])
            letters[wrong] = LETTERS[(number + rng.integers(1, 4, len(wrong))) % 4]
            reads.append(_Read(f"f{i}", flag, begin, letters, qualities))
    return sorted(reads, key=lambda read: read.start)
