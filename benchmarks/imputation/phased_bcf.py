"""Writes phased genotypes as BCF, fast enough for tens of thousands of haplotypes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from spinimpute.vcf.bgzf import BgzfWriter

INT8, CHAR = 1, 7  # BCF's numbers of types
MISSING_FLOAT = 0x7F800001
GT_KEY = b"\x11\x01"  # number 1 of the header's dictionary; number 0 is PASS
PASS = b"\x11\x00"


class PhasedBcfWriter:
    """Biallelic phased diploid genotypes of one contig, one site at a time; a context manager.

    `GenotypeWriter` of the library writes what imputation finds; a panel needs GT alone, at a tenth of the
    time.
    """

    def __init__(self, path: Path, contig: str, length: int, samples: Sequence[str], source: str) -> None:
        lines = [
            "##fileformat=VCFv4.3",
            '##FILTER=<ID=PASS,Description="All filters passed">',
            f"##source={source}",
            f"##contig=<ID={contig},length={length}>",
            '##FORMAT=<ID=GT,Number=1,Type=String,Description="Phased genotype">',
            "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]),
        ]
        header = ("\n".join(lines) + "\n").encode() + b"\0"
        self.path = path
        self.sites = 0
        self._file = path.open("wb")
        self._bgzf = BgzfWriter(self._file, threads=2)
        self._bgzf.write(b"BCF\2\2" + struct.pack("<I", len(header)) + header)
        self._n_samples = len(samples)
        # REF is 2, ALT 4; the lowest bit of a person's second allele says that the two are phased
        self._ref = np.tile(np.array([2, 3], dtype=np.int8), len(samples))
        self._genotype_start = GT_KEY + bytes([2 << 4 | INT8])

    def write(self, position: int, ref: str, alt: str, alleles: np.ndarray) -> None:
        """Append a site: 1-based position, and 0 or 1 for each haplotype, int8 (n_haplotypes,)."""
        samples = self._genotype_start + (self._ref + 2 * alleles).astype(np.int8).tobytes()
        shared = struct.pack(
            "<3i3I", 0, position - 1, len(ref), MISSING_FLOAT, 2 << 16, 1 << 24 | self._n_samples
        )
        shared += b"\x07" + _text(ref) + _text(alt) + PASS  # no ID
        self._bgzf.write(struct.pack("<2I", len(shared), len(samples)) + shared + samples)
        self.sites += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._bgzf.finish()
        else:
            self._bgzf.abandon()
        self._file.close()
        if kind is not None:
            self.path.unlink()


def _text(allele: str) -> bytes:
    """A typed string of fewer than 15 characters."""
    return bytes([len(allele) << 4 | CHAR]) + allele.encode()
