"""Opening VCF and BCF for an evaluation: every defect is an `InputError`, sites are keyed to be compared.

Sites are keyed by (plain chromosome, position, REF, ALT). Only biallelic records are compared, because
programs differ in how they write the others; they are counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cyvcf2 import VCF

from spinimpute.errors import InputError
from spinimpute.genotypes.sites import plain_chromosome
from spinimpute.vcf.check import check_variant_file

SiteKey = tuple[str, int, str, str]

DOSAGE_FIELDS = ("DS", "HDS", "GP", "GT")
MISSING = -1
FORMAT_HEADER_LINE = [2]  # htslib's number of ##FORMAT


class GenotypeFile:
    """An open VCF, VCF.gz or BCF; every defect of it is an `InputError` that names its role and place."""

    def __init__(self, path: str | os.PathLike[str], role: str) -> None:
        """Open the file and read its header.

        Args:
            path: VCF, VCF.gz or BCF.
            role: what the file is to the user, e.g. "truth"; it starts every message.

        Raises:
            InputError: there is no such file, it is no VCF or BCF, or its end is missing.
        """
        self.path = Path(path)
        self.name = f"{role} file {self.path}"
        self.spans: dict[str, tuple[int, int, int]] = {}  # plain chromosome -> first, last position, records
        check_variant_file(self.path, role)
        try:
            self._vcf = VCF(str(self.path))
        except Exception as error:  # cyvcf2 raises OSError or bare Exception, depending on the defect
            raise InputError(f"{self.name} cannot be read as VCF or BCF: {error}") from error
        self.samples: list[str] = list(self._vcf.samples)

    def fields(self) -> tuple[str, ...]:
        """Those of DS, HDS, GP and GT that the header declares, in that order."""
        return tuple(name for name in DOSAGE_FIELDS if self._declares(name))

    def _declares(self, name: str) -> bool:
        try:
            self._vcf.get_header_type(name, FORMAT_HEADER_LINE)
        except KeyError:
            return False
        return True

    def records(self) -> Iterator[Any]:
        """The records in file order, as cyvcf2 variants that are valid until the next one is asked for.

        Raises:
            InputError: the file is cut off or damaged within a record.
        """
        records = iter(self._vcf)
        last = "the header"
        n = 0
        try:
            while True:
                try:
                    record = next(records)
                except StopIteration:
                    return
                except Exception as error:  # a record cut in two is a bare Exception in cyvcf2
                    raise InputError(
                        f"{self.name} is truncated or damaged after {n:,} records (after {last}): {error}"
                    ) from error
                n += 1
                position = record.POS
                last = f"{record.CHROM}:{position}"
                chrom = plain_chromosome(record.CHROM)
                first, end, count = self.spans.get(chrom, (position, position, 0))
                self.spans[chrom] = (min(first, position), max(end, position), count + 1)
                yield record
        finally:
            self._vcf.close()

    def describe_spans(self) -> str:
        """The chromosomes and ranges that were read, for messages."""
        return describe_spans(self.spans)


def describe_spans(spans: Mapping[str, tuple[int, int, int]]) -> str:
    """One line for {chromosome: (first position, last position, records)}."""
    if not spans:
        return "no records"
    shown = [f"{chrom}:{first:,}-{last:,} ({n:,} records)" for chrom, (first, last, n) in spans.items()]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more chromosomes" if len(shown) > 5 else "")


def site_keys(record: Any) -> list[SiteKey]:
    """The keys of a cyvcf2 record, one per ALT."""
    chrom, ref = plain_chromosome(record.CHROM), record.REF.upper()
    return [(chrom, record.POS, ref, alt.upper()) for alt in record.ALT]


def allele_counts(record: Any, columns: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    """ALT count and ploidy of each sample of a biallelic cyvcf2 record.

    Args:
        columns: indices of the wanted samples, in the wanted order.

    Returns:
        count int8 (n_samples,), -1 where any allele of the sample is missing; ploidy int8 (n_samples,).
    """
    alleles = record.genotype.array()[columns, :-1]
    ploidy = (alleles != -2).sum(1, dtype=np.int8)
    count = (alleles > 0).sum(1, dtype=np.int8)
    count[(alleles == -1).any(1)] = MISSING
    return count, ploidy
