"""Reader of VCF and BCF files for `evaluate`: truth, imputed file, panel and target.

Sites of different files are matched by their keys: (plain chromosome, position, REF, ALT). The ALT of a
structural variant includes its END, see `Sites.keys`. A plain chromosome is a name without "chr", such as
"20". Each ALT allele of a multi-allelic record is a site, at which all other alleles count as REF.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import (
    NoRecord,
    Region,
    alt_key,
    chromosome_names,
    plain_chromosome,
    same_chromosome,
)
from spinimpute.genotypes.structural import StructuralVariant
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import Record, VariantFile

SiteKey = tuple[str, int, str, str]

DOSAGE_FIELDS = ("DS", "HDS", "GP", "GT")
MISSING = -1


class GenotypeFile(VariantFile):
    """A variant file that can be read once. It keeps track of the positions of its records, for messages.

    `role` describes the file in messages, for example "truth". `regions` must not overlap. Without regions,
    all records are read.
    """

    def __init__(self, path: str | os.PathLike[str], role: str, regions: Sequence[Region] = ()) -> None:
        super().__init__(os.fspath(path), role)
        self._regions = regions
        self.name = f"{role} file {self.path}"
        self.empty: list[Region] = []  # regions without a record
        # plain chromosome -> first position, last position, number of records
        self.ranges: dict[str, tuple[int, int, int]] = {}
        self._other_names: Collection[str] = ()
        self._plain: dict[str, str] = {}  # the file's name of a chromosome -> plain name

    def fields(self) -> tuple[str, ...]:
        """Return those of the fields DS, HDS, GP and GT that the header declares, in this order."""
        return tuple(name for name in DOSAGE_FIELDS if self.declares(name))

    def match_names(self, other_names: Collection[str]) -> None:
        """Translate this file's chromosome names to those of another file, such as 23, PAR1 and XY to X.

        `other_names` are the plain names of the other file. Call this method before `records`.
        """
        self._other_names = other_names
        self._plain.clear()

    def chromosome(self, name: str) -> str:
        """Return the plain name of a chromosome, translated as requested with `match_names`."""
        if name not in self._plain:
            plain = plain_chromosome(name)
            if plain not in self._other_names:
                names = [*self.contigs, name]
                possible = [other for other in self._other_names if same_chromosome(name, other)]
                plain = next((other for other in possible if name in chromosome_names(other, names)), plain)
            self._plain[name] = plain
        return self._plain[name]

    def records(self, region: str | None = None) -> Iterator[Record]:
        """Yield the records of a region, and close the file after the last one.

        Without `region`, the records of the regions of this object are read, or of the whole file if it has
        no regions. Raises `NoRecord` if the object has regions, and none of them has a record.
        """
        try:
            use_regions = region is None and self._regions
            for record in self._records_of_regions() if use_regions else super().records(region):
                position = record.POS
                chrom = self.chromosome(record.CHROM)
                first, last, count = self.ranges.get(chrom, (position, position, 0))
                self.ranges[chrom] = (min(first, position), max(last, position), count + 1)
                yield record
        finally:
            self.close()

    def _records_of_regions(self) -> Iterator[Record]:
        first: NoRecord | None = None
        for region in self._regions:
            try:
                with VariantFile(self.path, self.role) as file:  # a file can be read only once
                    yield from ChromosomeRecords(file, region, None)
            except NoRecord as error:
                self.empty.append(region)
                first = first or error
        if first is not None and len(self.empty) == len(self._regions):
            raise first

    def site_keys(self, record: Record) -> list[SiteKey]:
        """Return the site keys of a record, one for each ALT."""
        chrom = self.chromosome(record.CHROM)
        ref, alts = self.alleles(record)
        variants: Sequence[StructuralVariant | None] = [None] * len(alts)
        variants = self.structural(record, ref, alts) or variants
        pairs = zip(alts, variants, strict=True)
        return [(chrom, record.POS, ref.upper(), alt_key(alt, variant)) for alt, variant in pairs]

    def calls(self, record: Record, columns: np.ndarray) -> RecordCalls:
        """Return the genotypes (GT) of the samples with the indices `columns`.

        The record must have genotypes. Raises InputError if a sample has more than two alleles.
        """
        alleles = self.genotypes(record)[columns, :-1]
        ploidy = (alleles != -2).sum(1, dtype=np.int8)
        if alleles.shape[1] > 2 and (ploidy > 2).any():
            i = int(np.flatnonzero(ploidy > 2)[0])
            raise InputError(
                "content",
                f"{self.name}: sample {self.samples[columns[i]]} has {ploidy[i]} alleles at "
                f"{record.CHROM}:{record.POS}. Genotypes of one or two alleles can be compared.",
            )
        return RecordCalls(alleles, ploidy)


class RecordCalls(NamedTuple):
    """The genotypes of a record."""

    alleles: np.ndarray  # int16 (n_samples, 1 or 2 or more): -1 if missing, -2 beyond the ploidy
    ploidy: np.ndarray  # int8 (n_samples,)

    def copies(self, allele: int) -> np.ndarray:
        """Return the copies of an allele, int8 (n_samples,); MISSING if an allele is missing."""
        count = (self.alleles == allele).sum(1, dtype=np.int8)
        count[(self.alleles == -1).any(1)] = MISSING
        return count


def describe_ranges(ranges: Mapping[str, tuple[int, int, int]]) -> str:
    """Return a line of text for `GenotypeFile.ranges`, such as "20:1,000-2,000 (50 records)"."""
    if not ranges:
        return "no records"
    texts = [f"{chrom}:{first:,}-{last:,} ({n:,} records)" for chrom, (first, last, n) in ranges.items()]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more chromosomes" if len(texts) > 5 else "")
