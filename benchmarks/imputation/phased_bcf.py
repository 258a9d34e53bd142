"""Write phased genotypes as BCF, fast enough for tens of thousands of haplotypes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from spinimpute.vcf.bcf_format import INT8, file_start, record_start, typed_descriptor, typed_integer
from spinimpute.vcf.bgzf import BgzfWriter

GT_KEY = typed_integer(1)  # number 1 of the header's names; number 0 is PASS


class PhasedBcfWriter:
    """Writer of biallelic phased diploid genotypes of one contig, site by site; a context manager.

    The library's `GenotypeWriter` writes imputed genotypes. A panel needs only GT, which takes a tenth of the
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
        header = ("\n".join(lines) + "\n").encode()
        self.path = path
        self.sites = 0
        self._file = path.open("wb")
        self._bgzf = BgzfWriter(self._file, threads=2)
        self._bgzf.write(file_start(header))
        self._n_samples = len(samples)
        # REF is 2, ALT 4; the lowest bit of a sample's second allele says that the two are phased
        self._ref = np.tile(np.array([2, 3], dtype=np.int8), len(samples))
        self._genotype_start = GT_KEY + typed_descriptor(INT8, 2)

    def write(self, position: int, ref: str, alt: str, alleles: np.ndarray) -> None:
        """Append a site: 1-based position, and 0 or 1 for each haplotype, int8 (n_haplotypes,)."""
        samples = self._genotype_start + (self._ref + 2 * alleles).astype(np.int8).tobytes()
        start = record_start(
            contig=0,
            position=position,
            length=len(ref),
            name="",
            ref=ref,
            alts=[alt],
            n_info=0,
            info=b"",
            n_formats=1,
            n_samples=self._n_samples,
            sample_bytes=len(samples),
        )
        self._bgzf.write(start + samples)
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
