"""VCF and BCF files for evaluation, with keys to compare sites, and counts of ALT alleles.

Sites are keyed by (plain chromosome, position, REF, ALT). Only biallelic records are compared, because
programs differ in how they write the others; they are counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np

from spinimpute.genotypes.sites import plain_chromosome
from spinimpute.vcf.variant_file import Record, VariantFile

SiteKey = tuple[str, int, str, str]

DOSAGE_FIELDS = ("DS", "HDS", "GP", "GT")
MISSING = -1


class GenotypeFile(VariantFile):
    """A variant file that remembers which chromosomes and ranges it was read on; it is read once.

    Parameters
    ----------
    path : str or path-like
        VCF, VCF.gz or BCF.
    role : str
        What the file is to the user, e.g. "truth"; it starts every message.

    Raises
    ------
    InputError
        As `VariantFile`.
    """

    def __init__(self, path: str | os.PathLike[str], role: str) -> None:
        super().__init__(os.fspath(path), role)
        self.name = f"{role} file {self.path}"
        self.spans: dict[str, tuple[int, int, int]] = {}  # plain chromosome -> first, last position, records

    def fields(self) -> tuple[str, ...]:
        """The fields of DS, HDS, GP and GT that the header declares, in that order."""
        return tuple(name for name in DOSAGE_FIELDS if self.declares(name))

    def records(self, region: str | None = None) -> Iterator[Record]:
        """Records of the file, as of `VariantFile.records`; the file is closed at the end."""
        try:
            for record in super().records(region):
                position = record.POS
                chrom = plain_chromosome(record.CHROM)
                first, end, count = self.spans.get(chrom, (position, position, 0))
                self.spans[chrom] = (min(first, position), max(end, position), count + 1)
                yield record
        finally:
            self.close()

    def site_keys(self, record: Record) -> list[SiteKey]:
        """The keys of a record, one per ALT."""
        chrom = plain_chromosome(record.CHROM)
        ref, alts = self.alleles(record)
        return [(chrom, record.POS, ref.upper(), alt.upper()) for alt in alts]

    def allele_counts(
        self, record: Record, columns: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """ALT count and ploidy of each sample of a biallelic record.

        Parameters
        ----------
        record : Record
            It has genotypes (GT).
        columns : int64 (n_samples,)
            Indices of the wanted samples, in the wanted order.

        Returns
        -------
        int8 (n_samples,)
            Count, MISSING where any allele of the sample is missing.
        int8 (n_samples,)
            Ploidy.
        """
        alleles = self.genotypes(record)[columns, :-1]
        ploidy = (alleles != -2).sum(1, dtype=np.int8)
        count = (alleles > 0).sum(1, dtype=np.int8)
        count[(alleles == -1).any(1)] = MISSING
        return count, ploidy

    def describe_spans(self) -> str:
        """The chromosomes and ranges that were read, for messages."""
        return describe_spans(self.spans)


def describe_spans(spans: Mapping[str, tuple[int, int, int]]) -> str:
    """One line for {chromosome: (first position, last position, records)}."""
    if not spans:
        return "no records"
    shown = [f"{chrom}:{first:,}-{last:,} ({n:,} records)" for chrom, (first, last, n) in spans.items()]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more chromosomes" if len(shown) > 5 else "")
