"""Reading phased haplotypes from VCF, VCF.gz and BCF files.

A file passes through three steps: `VariantFile` (a whole file, records one by one), `ChromosomeRecords`
(those of one chromosome, in order and all of them) and `BlockBuilder` (biallelic sites with checked calls).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import (
    Calls,
    Haplotypes,
    haplotype_columns,
    select_haplotypes,
    to_haplotypes,
)
from spinimpute.genotypes.sites import NoRecord, Region, Sites, same_chromosome
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.record_blocks import BlockBuilder, CallBlock
from spinimpute.vcf.text_faults import NO_SAMPLES
from spinimpute.vcf.variant_file import VariantFile

BLOCK_BYTES = 8 * 2**20  # of genotypes held at once as int16; small enough to stay in the cache


class HaplotypeBlock(NamedTuple):
    """Consecutive sites of a file.

    Attributes
    ----------
    sites : Sites
        In file order.
    alleles : int8 (n_sites, n_haplotypes)
        As in `Haplotypes`.
    multiallelic : bool (n_sites,)
        True for a site that is one of several ALT alleles of its record.
    """

    sites: Sites
    alleles: np.ndarray
    multiallelic: np.ndarray


class HaplotypeReader:
    """Streams a file's haplotypes in blocks: `for block in reader`, once.

    Parameters
    ----------
    path, region, samples, chrom, role, allow_missing, allow_unphased
        As of `read_haplotypes`.
    mixed_ploidy : bool
        Whether a sample's ploidy may change; for `read_calls` alone.
    ploidy : uint8 (n_samples,) or None
        0, 1 or 2, what was seen in an earlier part of the file.
    without_alt : callable or None
        As of `read_haplotypes`.

    Attributes
    ----------
    samples : list of str
        Known from the start.
    skipped : dict of str to int
        What was not taken, by reason; complete at the end.

    Raises
    ------
    InputError
        As `read_haplotypes`.
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
                "content", f"the region {region} is not on chromosome {chrom}: give one of the two"
            )
        self._file = VariantFile(path, role)
        self.samples, order = _chosen_samples(self._file, samples)
        self._records = ChromosomeRecords(self._file, region, chrom)
        self.skipped = self._records.skipped
        # 0: no call seen yet that states the ploidy
        self._seen_ploidy = np.zeros(len(self.samples), np.uint8) if ploidy is None else ploidy.copy()
        self._builder = BlockBuilder(
            self._file,
            self.samples,
            order,
            block_size=min(max(BLOCK_BYTES // (6 * len(self.samples)), 16), 4096),
            ploidy=self._seen_ploidy,
            skipped=self.skipped,
            allow_missing=allow_missing,
            allow_unphased=allow_unphased,
            mixed_ploidy=mixed_ploidy,
            without_alt=without_alt,
        )

    @property
    def contig_line(self) -> str:
        """The chromosome's '##contig=<...>'; known from the first block on."""
        return self._records.contig_line

    @property
    def ploidy(self) -> np.ndarray:
        """uint8 (n_samples,), from the calls read so far.

        A sample without any call is diploid; haploid if another sample is and it has a "." for one allele.
        """
        among_haploid = (self._seen_ploidy == 1).any()
        unknown = np.where(self._builder.missing_one & among_haploid, 1, 2)
        return np.where(self._seen_ploidy == 0, unknown, self._seen_ploidy).astype(np.uint8)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes that the header, or an index, lists."""
        return self._file.contigs

    def close(self) -> None:
        """Nothing more will be read. Who reads to the end, or to an error, need not call it."""
        self._file.close()

    def __iter__(self) -> Iterator[HaplotypeBlock]:
        kept: np.ndarray | None = None
        for n_before, block in enumerate(self._blocks()):
            if not n_before:
                ploidy = self.ploidy
                kept = haplotype_columns(ploidy)
                self._seen_ploidy[:] = ploidy
            yield HaplotypeBlock(block.sites, select_haplotypes(block.calls, kept), block.multiallelic)

    def read_all(self) -> Haplotypes:
        """Everything at once; here a sample's ploidy may show late in the file."""
        return to_haplotypes(self.read_calls(), self.ploidy)

    def read_calls(self) -> Calls:
        """Everything at once, with the number of alleles that each call has."""
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
            self.contig_line,
            self.skipped,
            unphased,
            halved=halved,
        )

    def _blocks(self) -> Iterator[CallBlock]:
        usable = False
        try:
            for record in self._records:
                self._builder.add(record, self._records.chrom)
                if self._builder.full:
                    usable = True
                    yield self._builder.take()
            if not self._builder.empty:
                usable = True
                yield self._builder.take()
        finally:
            self._file.close()
        if not usable:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
            raise self._file.error(f"no usable record ({reasons})", NoRecord)


def check_samples(file: VariantFile, samples: Sequence[str]) -> None:
    """Check a list of samples to read.

    Parameters
    ----------
    file : VariantFile
        Where they are to be.
    samples : sequence of str
        Their names.

    Raises
    ------
    InputError
        The list is no list or is empty, a name is there twice, or is not in the file.
    """
    if isinstance(samples, str):
        raise InputError("content", f"samples must be a list of names: got the text {samples!r}")
    unknown = sorted(set(samples) - set(file.samples))
    if unknown:
        some = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        raise file.error(f"{len(unknown)} of the samples asked for are not in the file: {some}")
    if (twice := repeated(samples)) is not None:
        raise file.error(f"the sample {twice} is asked for more than once")
    if not samples:
        raise file.error("the list of samples to read is empty")


def _chosen_samples(file: VariantFile, wanted: Sequence[str] | None) -> tuple[list[str], np.ndarray | None]:
    """The samples to read, and their places among those that the file then gives; None: the same order."""
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
    Unphased homozygotes are taken as they are; of an unphased call with one missing allele both are missing.

    Parameters
    ----------
    path : str or Path
        The file.
    region : Region or None
        The sites to read: through the file's index if there is one that is not older than the file, else by
        reading all of it.
    samples : sequence of str or None
        The samples to read, in this order; None for all, in file order.
    chrom : str or None
        The chromosome to read of a file with several, with or without "chr". Records of the others, and those
        at position 0, are counted in `skipped`.
    role : str
        What the file is, for messages.
    allow_missing : bool
        Whether missing calls are accepted.
    allow_unphased : bool
        Whether unphased heterozygotes are accepted; `Haplotypes.unphased` then marks them.
    without_alt : callable or None
        (position, REF) -> whether a record without ALT is taken, as a site with the ALT "."; by default none.

    Returns
    -------
    Haplotypes
        All of them, in memory.

    Raises
    ------
    InputError
        The file is missing, damaged, truncated or no VCF, or its index is of another file; it has no samples,
        records or genotypes; it has unphased heterozygotes or missing calls that are not accepted, unsorted
        positions, a ploidy that changes or exceeds 2, or several chromosomes without `region` or `chrom`;
        or a sample is unknown.
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
    return reader.read_all()
