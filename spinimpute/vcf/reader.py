"""Reading phased haplotypes from VCF, VCF.gz and BCF files.

A file passes through three steps: `VariantFile` opens it and reads records, `ChromosomeRecords` selects those
of one chromosome and checks that they are complete, and `BlockBuilder` makes biallelic sites of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import (
    Calls,
    Haplotypes,
    select_haplotypes,
    to_haplotypes,
)
from spinimpute.genotypes.sites import NoRecord, Region, Sites, same_chromosome
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.record_blocks import AcceptedCalls, BlockBuilder, CallBlock
from spinimpute.vcf.variant_file import NO_SAMPLES, VariantFile

BLOCK_BYTES = 8 * 2**20  # of int16 genotypes at once; few enough to stay in the cache


class HaplotypeBlock(NamedTuple):
    """Consecutive sites of a file: `alleles` as in `Haplotypes`, `multiallelic` as in `CallBlock`."""

    sites: Sites
    alleles: np.ndarray
    multiallelic: np.ndarray


class HaplotypeReader:
    """Streams a file's haplotypes in blocks: `for block in reader`, once.

    Parameters and errors are those of `read_haplotypes`. In addition, `mixed_ploidy` lets a sample's ploidy
    change (for `read_calls` only), and `ploidy`, uint8 (n_samples,), is that of an earlier part of the file:
    1, 2, or 0 for unknown. `skipped` counts what was not taken, by reason; complete at the end.
    """

    def __init__(
        self,
        path: str | Path,
        region: Region | None = None,
        *,
        samples: Sequence[str] | None = None,
        chrom: str | None = None,
        role: str = "target",
        allow_missing: bool = True,
        allow_unphased: bool = False,
        mixed_ploidy: bool = False,
        ploidy: np.ndarray | None = None,
        without_alt: Callable[[int, str], bool] | None = None,
    ) -> None:
        if region and chrom and not same_chromosome(region.chrom, chrom):
            raise InputError(
                "arguments", f"the region {region} is not on chromosome {chrom}. Give one of the two"
            )
        self._file = VariantFile(path, role)
        self.samples, order = _chosen_samples(self._file, samples)
        self._records = ChromosomeRecords(self._file, region, chrom)
        self.skipped = self._records.skipped
        # 0: no call so far shows the ploidy
        self._seen_ploidy = np.zeros(len(self.samples), np.uint8) if ploidy is None else ploidy.copy()
        self._builder = BlockBuilder(
            self._file,
            self.samples,
            order,
            AcceptedCalls(allow_missing, allow_unphased, mixed_ploidy, without_alt),
            block_size=min(max(BLOCK_BYTES // (6 * len(self.samples)), 16), 4096),
            ploidy=self._seen_ploidy,
            skipped=self.skipped,
        )

    @property
    def contig_line(self) -> str:
        """The chromosome's header line; available from the first block on."""
        return self._records.contig_line

    @property
    def ploidy(self) -> np.ndarray:
        """Ploidy by the calls read so far, uint8 (n_samples,).

        A sample without any call is diploid; haploid if another sample is and it has a "." for one allele.
        """
        among_haploid = (self._seen_ploidy == 1).any()
        unknown = np.where(self._builder.missing_one & among_haploid, 1, 2)
        return np.where(self._seen_ploidy == 0, unknown, self._seen_ploidy).astype(np.uint8)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes in the header or the index."""
        return self._file.contigs

    def close(self) -> None:
        """Close the file; not needed after reading to the end, or to an error."""
        self._file.close()

    def __iter__(self) -> Iterator[HaplotypeBlock]:
        for n_before, block in enumerate(self._blocks()):
            if not n_before:
                ploidy = self.ploidy
                self._seen_ploidy[:] = ploidy
            yield HaplotypeBlock(block.sites, select_haplotypes(block.calls, ploidy), block.multiallelic)

    def read_calls(self) -> Calls:
        """Read all calls, each with its own number of alleles."""
        blocks = list(self._blocks())
        unphased = halved = None
        if any(block.halved is not None for block in blocks):
            halved = np.concatenate(
                [np.zeros(len(b.sites), np.int64) if b.halved is None else b.halved for b in blocks]
            )
        if any(block.unphased is not None for block in blocks):
            shape = (len(self.samples),)
            unphased = np.concatenate(
                [np.zeros((len(b.sites), *shape), bool) if b.unphased is None else b.unphased for b in blocks]
            )
        return Calls(
            Sites.concatenate([block.sites for block in blocks]),
            np.concatenate([block.calls for block in blocks]),
            self.samples,
            self._records.contig_line,
            dict(self.skipped),
            unphased,
            halved=halved,
        )

    def _blocks(self) -> Iterator[CallBlock]:
        block = None
        try:
            for block in self._builder.blocks(self._records):
                yield block
        finally:
            self._file.close()
        if block is None:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
            raise self._file.error(f"no usable record ({reasons})", kind=NoRecord)


def check_samples(file: VariantFile, samples: Sequence[str]) -> None:
    """Raise InputError if a list of samples is empty, repeats a name, or has one that the file lacks."""
    if isinstance(samples, str):
        raise InputError("argument", f"samples must be a list of names, got the text {samples!r}")
    unknown = sorted(set(samples) - set(file.samples))
    if unknown:
        some = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        raise file.error(f"{len(unknown)} of the requested samples are not in the file: {some}", "not-found")
    if (twice := repeated(samples)) is not None:
        raise file.error(f"the sample {twice} is requested more than once", "argument")
    if not samples:
        raise file.error("the list of samples to read is empty", "argument")


def _chosen_samples(file: VariantFile, wanted: Sequence[str] | None) -> tuple[list[str], np.ndarray | None]:
    """The samples to read, and their ranks among those that the file then gives; None for the same order."""
    if not file.samples:
        raise file.error(NO_SAMPLES)
    if wanted is None:
        return file.samples, None
    check_samples(file, wanted)
    samples = list(wanted)
    file.choose_samples(samples)
    chosen = set(samples)
    place = {name: i for i, name in enumerate(name for name in file.samples if name in chosen)}
    return samples, np.array([place[name] for name in samples])


def read_haplotypes(
    path: str | Path,
    region: Region | None = None,
    *,
    samples: Sequence[str] | None = None,
    chrom: str | None = None,
    role: str = "target",
    allow_missing: bool = True,
    allow_unphased: bool = False,
    without_alt: Callable[[int, str], bool] | None = None,
) -> Haplotypes:
    """Read the phased haplotypes of one chromosome from a VCF, VCF.gz or BCF file.

    A multi-allelic record becomes one site per ALT, in ALT order, where every other allele is coded 0.
    Unphased homozygotes are accepted; an unphased call with one missing allele becomes missing.

    `region` is read through the file's index if there is one that is not older than the file. `samples` are
    the samples to read, in this order. `chrom` chooses the chromosome of a file with several, with or without
    "chr"; records on others and at position 0 are counted in `skipped`. `role` names the file in messages.
    `allow_unphased` accepts unphased heterozygotes, which `Haplotypes.unphased` then marks. `without_alt` is
    that of `AcceptedCalls`.

    Raises InputError if the file is missing, damaged or not a VCF, its index is of another file, a sample is
    unknown, calls are not accepted, positions are unsorted, or the ploidy changes or exceeds 2.
    """
    reader = HaplotypeReader(
        path,
        region,
        samples=samples,
        chrom=chrom,
        role=role,
        allow_missing=allow_missing,
        allow_unphased=allow_unphased,
        without_alt=without_alt,
    )
    calls = reader.read_calls()
    return to_haplotypes(calls, reader.ploidy)  # a sample's ploidy may show late in the file
