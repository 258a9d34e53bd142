"""VCF and BCF files for evaluation, with keys to compare sites, and counts of ALT alleles.

Sites are keyed by (plain chromosome, position, REF, ALT). Only biallelic records are compared, because
programs differ in how they write the others; they are counted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from spinimpute.genotypes.sites import (
    NoRecord,
    Region,
    names_of_chromosome,
    plain_chromosome,
    same_chromosome,
)
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.chromosome_records import ChromosomeRecords
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
    regions : sequence of Region
        The records to read, those that begin in one of these, which do not overlap; none for all records.

    Raises
    ------
    InputError
        As `VariantFile`.
    """

    def __init__(self, path: str | os.PathLike[str], role: str, regions: Sequence[Region] = ()) -> None:
        super().__init__(os.fspath(path), role)
        self._regions = regions
        self.name = f"{role} file {self.path}"
        self.empty: list[Region] = []  # regions without a record
        self.spans: dict[str, tuple[int, int, int]] = {}  # plain chromosome -> first, last position, records
        self._others: Collection[str] = ()
        self._plain: dict[str, str] = {}  # what the file calls a chromosome -> its plain name

    def fields(self) -> tuple[str, ...]:
        """The fields of DS, HDS, GP and GT that the header declares, in that order."""
        return tuple(name for name in DOSAGE_FIELDS if self.declares(name))

    def match_names(self, others: Collection[str]) -> None:
        """Call chromosomes as another file does where this one has other names; call it before `records`.

        Parameters
        ----------
        others : collection of str
            Plain names of the other file's chromosomes: "X" for what this one calls 23, PAR1 or XY.
        """
        self._others = others
        self._plain.clear()

    def chromosome(self, name: str) -> str:
        """The plain name of a chromosome, the other file's where that has another one."""
        if name not in self._plain:
            plain = plain_chromosome(name)
            if plain not in self._others:
                names = [*self.contigs, name]
                possible = [other for other in self._others if same_chromosome(name, other)]
                plain = next(
                    (other for other in possible if name in names_of_chromosome(other, names)), plain
                )
            self._plain[name] = plain
        return self._plain[name]

    def records(self, region: str | None = None) -> Iterator[Record]:
        """Records of the file, or of its regions; the file is closed at the end.

        Parameters
        ----------
        region : str or None
            As of `VariantFile.records`; None for all, or for the file's regions.

        Yields
        ------
        Record
            One after the other.

        Raises
        ------
        InputError
            As `VariantFile.records`; of regions as `ChromosomeRecords`, `NoRecord` if none has a record.
        """
        try:
            of_regions = region is None and self._regions
            for record in self._of_regions() if of_regions else super().records(region):
                position = record.POS
                chrom = self.chromosome(record.CHROM)
                first, end, count = self.spans.get(chrom, (position, position, 0))
                self.spans[chrom] = (min(first, position), max(end, position), count + 1)
                yield record
        finally:
            self.close()

    def _of_regions(self) -> Iterator[Record]:
        first: NoRecord | None = None
        for region in self._regions:
            try:
                with VariantFile(self.path, self.role) as file:  # which is read once
                    yield from ChromosomeRecords(file, region, None)
            except NoRecord as error:
                self.empty.append(region)
                first = first or error
        if first is not None and len(self.empty) == len(self._regions):
            raise first

    def site_keys(self, record: Record) -> list[SiteKey]:
        """The keys of a record, one per ALT."""
        chrom = self.chromosome(record.CHROM)
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
            Ploidy, 1 or 2.

        Raises
        ------
        InputError
            A sample has more than two alleles.
        """
        alleles = self.genotypes(record)[columns, :-1]
        ploidy = (alleles != -2).sum(1, dtype=np.int8)
        if alleles.shape[1] > 2 and (ploidy > 2).any():
            i = int(np.flatnonzero(ploidy > 2)[0])
            name = self.samples[np.arange(len(self.samples))[columns][i]]
            raise InputError(
                "content",
                f"{self.name}: sample {name} has {ploidy[i]} alleles at {record.CHROM}:{record.POS}; one or "
                "two can be compared",
            )
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
