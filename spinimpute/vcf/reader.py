"""Read phased haplotypes from VCF, VCF.gz and BCF files.

Three classes build on one another. `VariantFile` opens the file and reads records. `ChromosomeRecords`
selects the records of one chromosome and checks that none is missing. `HaplotypeReader`, in this module,
splits the records into biallelic sites and checks the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from spinimpute.genotypes.haplotypes import Calls, Haplotypes, select_haplotypes, to_haplotypes
from spinimpute.genotypes.sites import NO_ALT, NoRecord, Region, Sites, alt_key, same_chromosome, unusable_alt
from spinimpute.genotypes.structural import StructuralVariant, Variants
from spinimpute.runtime.errors import Code, InputError, argument, call, repeated
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import NO_SAMPLES, Record, VariantFile

BLOCK_BYTES = 8 * 2**20  # size of a block of int16 genotypes; small enough for the processor's cache


class CallBlock(NamedTuple):
    """The calls of consecutive biallelic sites, in file order."""

    sites: Sites
    # 0 REF, 1 ALT, -1 missing, -2 for the second allele of a haploid call; int8 (n_sites, n_samples, 2)
    calls: np.ndarray
    multiallelic: np.ndarray  # sites that were split from a multi-allelic record, bool (n_sites,)
    unphased: np.ndarray | None  # unphased heterozygotes, bool (n_sites, n_samples); None if there are none
    half_missing: np.ndarray | None  # int64 (n_sites,), number of unphased calls with one missing allele


class HaplotypeBlock(NamedTuple):
    """The haplotypes of consecutive sites, in file order."""

    sites: Sites
    alleles: np.ndarray  # see `Haplotypes`
    multiallelic: np.ndarray  # see `CallBlock`


@dataclass
class _PendingSites:
    """The records that were read for the next block, and their biallelic sites."""

    chrom: str = ""
    n_alts: list[int] = field(default_factory=list)  # number of ALT alleles of each record
    row: list[int] = field(default_factory=list)  # index of each site's record; the lists below are per site
    allele: list[int] = field(default_factory=list)  # number of the ALT within its record, from 1
    position: list[int] = field(default_factory=list)
    ref: list[str] = field(default_factory=list)
    alt: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    structural: dict[int, StructuralVariant] = field(default_factory=dict)  # by index of the site

    def location(self, row: int) -> str:
        """Return the chromosome and position of a record, for messages."""
        return f"{self.chrom}:{self.position[self.row.index(row)]}"


class HaplotypeReader:
    """Iterator over the haplotypes of a file, in blocks. It can be used once.

    Parameters and errors are those of `read_haplotypes`, with two more. `mixed_ploidy` allows a sample's
    ploidy to change (for `read_calls` only). `ploidy`, uint8 (n_samples,), is the ploidy in an earlier part
    of the file: 1, 2, or 0 if unknown. At the end, `skipped` maps reasons to numbers of skipped records.
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
        symbolic: Collection[tuple[int, str, str]] = (),
    ) -> None:
        if region and chrom and not same_chromosome(region.chrom, chrom):
            raise InputError(
                "arguments", f"the region {region} is not on chromosome {chrom}. Give one of the two"
            )
        self._allow_missing, self._allow_unphased = allow_missing, allow_unphased
        self._mixed_ploidy, self._without_alt, self._symbolic = mixed_ploidy, without_alt, symbolic
        self._file = VariantFile(path, role)
        self.samples, self._sample_order = _choose_samples(self._file, samples)
        self._records = ChromosomeRecords(self._file, region, chrom)
        self.skipped = self._records.skipped
        n_samples = len(self.samples)
        # 0: unknown from the calls read so far
        self._seen_ploidy = np.zeros(n_samples, np.uint8) if ploidy is None else ploidy.copy()
        self._missing_one = np.zeros(n_samples, bool)  # samples with a missing call of one allele: "."
        block_size = min(max(BLOCK_BYTES // (6 * n_samples), 16), 4096)
        self._genotypes = np.empty((block_size, n_samples, 3), dtype=np.int16)

    @property
    def contig_line(self) -> str:
        """The chromosome's header line. It is available after the first block."""
        return self._records.contig_line

    @property
    def ploidy(self) -> np.ndarray:
        """Ploidy according to the calls read so far, uint8 (n_samples,).

        A sample whose calls are all missing is diploid, with one exception. If another sample is haploid and
        this one has missing calls of one allele ("."), it is haploid.
        """
        among_haploid = (self._seen_ploidy == 1).any()
        unknown = np.where(self._missing_one & among_haploid, 1, 2)
        return np.where(self._seen_ploidy == 0, unknown, self._seen_ploidy).astype(np.uint8)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes in the header or the index."""
        return self._file.contigs

    def close(self) -> None:
        """Close the file. It closes itself after the last block and after an error."""
        self._file.close()

    def __iter__(self) -> Iterator[HaplotypeBlock]:
        for n_before, block in enumerate(self._blocks()):
            if not n_before:
                ploidy = self.ploidy
                self._seen_ploidy[:] = ploidy
            yield HaplotypeBlock(block.sites, select_haplotypes(block.calls, ploidy), block.multiallelic)

    def read_calls(self) -> Calls:
        """Read all calls. Haploid and diploid calls of one sample are not made equal."""
        blocks = list(self._blocks())
        unphased = half_missing = None
        if any(block.half_missing is not None for block in blocks):
            half_missing = np.concatenate(
                [np.zeros(len(b.sites), "i8") if b.half_missing is None else b.half_missing for b in blocks]
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
            half_missing=half_missing,
        )

    def _blocks(self) -> Iterator[CallBlock]:
        """Yield blocks with one site per usable ALT allele. Other alleles are counted in `skipped`."""
        pending, is_usable = _PendingSites(), False
        try:
            for record in self._records:
                ref, alleles = self._file.alleles(record)
                is_sequence = len(alleles) == 1 and alleles[0].isalpha()
                variants = None if is_sequence else self._file.structural(record, ref, alleles)
                alts = self._usable_alts(record, ref, alleles, variants)
                if not alts:
                    continue
                row = len(pending.n_alts)
                self._store_genotypes(record, self._genotypes[row])
                pending.chrom = self._records.chrom
                pending.n_alts.append(len(alleles))
                for number, alt in alts:
                    if variants is not None:
                        pending.structural[len(pending.row)] = variants[number - 1]
                    pending.row.append(row)
                    pending.allele.append(number)
                    pending.position.append(record.POS)
                    pending.ref.append(ref)
                    pending.alt.append(alt)
                    pending.name.append(record.ID or ".")
                if row + 1 == len(self._genotypes):
                    is_usable = True
                    yield self._block(pending)
                    pending = _PendingSites()
            if pending.row:
                is_usable = True
                yield self._block(pending)
        finally:
            self._file.close()
        if not is_usable:
            raise self._no_usable_record()

    def _no_usable_record(self) -> InputError:
        """Return the error for a file whose records were all skipped."""
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
        return self._file.error(f"no usable record ({reasons})", kind=NoRecord)

    def _usable_alts(
        self, record: Record, ref: str, alts: list[str], variants: Variants | None
    ) -> list[tuple[int, str]]:
        """Return (index, allele) of the ALT alleles to read. Count the others in `skipped`."""
        if len(alts) == 1 and alts[0].isalpha():
            return [(1, alts[0])]
        if not alts and self._without_alt is not None and self._without_alt(record.POS, ref):
            return [(1, ".")]
        usable = []
        for number, alt in enumerate(alts, start=1):
            reason = unusable_alt(alt)
            variant = None if variants is None else variants[number - 1]
            if not reason or self._is_known(record, ref, alt, variant):
                usable.append((number, alt))
            else:
                self.skipped[reason] += 1
        if not alts:
            self.skipped[NO_ALT] += 1
        return usable

    def _is_known(self, record: Record, ref: str, alt: str, variant: StructuralVariant | None) -> bool:
        """Return whether an ALT that is no sequence is one of the alleles to read."""
        return (record.POS, ref.upper(), alt_key(alt, variant)) in self._symbolic

    def _store_genotypes(self, record: Record, out: np.ndarray) -> None:
        """Fill `out`, int16 (n_samples, 3): first allele, second allele (-2 if haploid), 1 if phased."""
        genotypes = self._file.genotypes(record)
        width = genotypes.shape[1] - 1
        if self._sample_order is not None:
            genotypes = genotypes[self._sample_order]
        if width == 2:
            out[:] = genotypes
        elif width == 1:
            out[:, 0] = genotypes[:, 0]
            out[:, 1] = -2
            out[:, 2] = 1
        else:
            worst = int(np.argmax((genotypes[:, :width] > -2).sum(axis=1)))
            where = f"{record.CHROM}:{record.POS}"
            raise self._file.error(
                f"sample {self.samples[worst]} has a call of {width} alleles at {where}. "
                "Only haploid and diploid samples can be imputed"
            )

    def _block(self, pending: _PendingSites) -> CallBlock:
        """Check the genotypes of a block and split its records into biallelic sites."""
        genotypes = self._genotypes[: len(pending.n_alts)]
        # include the column "phased": numpy is slow on a short last axis that is not contiguous
        largest, smallest = int(genotypes.max()), int(genotypes.min())
        if largest > min(pending.n_alts):
            too_large = genotypes[:, :, :2].max(axis=2) > np.array(pending.n_alts, dtype=np.int16)[:, None]
            self._raise_at_first(too_large, pending, "a genotype with an ALT allele that the record lacks")
        unphased, half_missing = self._check_phase(genotypes, pending)
        calls = np.empty((*genotypes.shape[:2], 2), dtype=np.int8 if largest <= 127 else np.int16)
        calls[:, :, 0] = genotypes[:, :, 0]
        calls[:, :, 1] = genotypes[:, :, 1]
        has_missing = smallest < 0
        if not self._mixed_ploidy and (has_missing or self._seen_ploidy.min() < 2):
            self._check_ploidy(calls, pending)
        if not self._allow_missing and has_missing:
            missing = (calls == -1).any(axis=2)
            self._raise_at_first(missing, pending, "a missing genotype. Fill or remove missing calls first")
        multiallelic = np.array([pending.n_alts[row] > 1 for row in pending.row])
        if multiallelic.any():
            calls = calls[pending.row]
            is_alt = calls == np.array(pending.allele, dtype=calls.dtype)[:, None, None]
            calls = np.where(np.greater_equal(calls, 0), is_alt, calls).astype(np.int8)
            if unphased is not None:
                unphased = unphased[pending.row] & (calls[:, :, 0] != calls[:, :, 1])
            if half_missing is not None:  # count a call only once, at the first ALT of its record
                half_missing = np.where(np.diff(pending.row, prepend=-1) > 0, half_missing[pending.row], 0)
        position = np.array(pending.position, dtype=np.int64)
        sites = Sites(pending.chrom, position, pending.ref, pending.alt, pending.name, pending.structural)
        return CallBlock(sites, calls, multiallelic, unphased, half_missing)

    def _raise_at_first(self, bad: np.ndarray, pending: _PendingSites, what: str) -> None:
        """Raise InputError for the first True in `bad`, bool (n_records, n_samples), if there is one."""
        if bad.any():
            row, sample = np.unravel_index(int(np.argmax(bad)), bad.shape)
            where = pending.location(int(row))
            raise self._file.error(f"sample {self.samples[sample]} has, at {where}, {what}")

    def _check_phase(
        self, genotypes: np.ndarray, pending: _PendingSites
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Find unphased heterozygotes and unphased calls with one missing allele.

        Return the unphased heterozygotes, bool (n_records, n_samples). Calls with one missing allele are set
        to missing, in place; return their number per record, int64 (n_records,). Each result is None if there
        are no such calls. Raises InputError for unphased heterozygotes unless they are allowed.
        """
        first, second = genotypes[:, :, 0], genotypes[:, :, 1]
        unphased = genotypes[:, :, 2] == 0
        if not unphased.any():
            return None, None
        unphased &= (first != second) & (second > -2)
        half_missing = unphased & ((first == -1) | (second == -1))
        first[half_missing] = -1
        second[half_missing] = -1
        unphased &= ~half_missing
        if not self._allow_unphased:
            self._raise_at_first(
                unphased,
                pending,
                f"an unphased heterozygote. Phase the file first ({call('phase')}, Beagle, Eagle or SHAPEIT)",
            )
        return unphased if unphased.any() else None, half_missing.sum(axis=1) if half_missing.any() else None

    def _check_ploidy(self, calls: np.ndarray, pending: _PendingSites) -> None:
        first, second = calls[:, :, 0], calls[:, :, 1]
        haploid = (first >= 0) & (second == -2)
        # some programs write "./." for haploid samples, or "." for diploid ones: neither shows the ploidy
        diploid = (second >= 0) | ((first >= 0) & (second == -1))
        known = self._seen_ploidy
        now_haploid, now_diploid = haploid.any(axis=0), diploid.any(axis=0)
        changed = (now_haploid & now_diploid) | (now_haploid & (known == 2)) | (now_diploid & (known == 1))
        if changed.any():
            sample = int(np.argmax(changed))
            per_record = np.where(haploid[:, sample], 1, np.where(diploid[:, sample], 2, 0))
            expected = int(known[sample]) or int(per_record[per_record > 0][0])
            row = int(np.argmax((per_record > 0) & (per_record != expected)))
            words, location = {1: "haploid", 2: "diploid"}, pending.location(row)
            raise self._file.error(
                f"sample {self.samples[sample]} is {words[int(per_record[row])]} at {location} but "
                f"{words[expected]} before. Choose a region with one ploidy ({argument('region')}). "
                "Chromosome X is split automatically if the header has its length: ##contig=<ID=X,length=...>"
            )
        known[now_haploid] = 1
        known[now_diploid] = 2
        self._missing_one |= ((first == -1) & (second == -2)).any(axis=0)


class SampleFile(Protocol):
    """A file with named samples, such as a `VariantFile`."""

    samples: list[str]

    def error(self, what: str, code: Code = "content") -> InputError:
        """Return the error for a defect of the file."""


def check_samples(file: SampleFile, samples: Sequence[str]) -> None:
    """Raise InputError if a list of samples is empty, repeats a name, or names a sample not in the file."""
    if isinstance(samples, str):
        raise InputError("argument", f"samples must be a list of names, got the text {samples!r}")
    unknown = sorted(set(samples) - set(file.samples))
    if unknown:
        some = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        raise file.error(f"{len(unknown)} of the requested samples are not in the file: {some}", "not-found")
    if (duplicate := repeated(samples)) is not None:
        raise file.error(f"the sample {duplicate} is requested more than once", "argument")
    if not samples:
        raise file.error("the list of samples to read is empty", "argument")


def _choose_samples(file: VariantFile, wanted: Sequence[str] | None) -> tuple[list[str], np.ndarray | None]:
    """Select the samples to read. Return their names, and how to reorder the columns of the file.

    The reordering is None if the samples are in file order.
    """
    if not file.samples:
        raise file.error(NO_SAMPLES)
    if wanted is None:
        return file.samples, None
    check_samples(file, wanted)
    samples = list(wanted)
    file.choose_samples(samples)
    chosen = set(samples)
    rank = {name: i for i, name in enumerate(name for name in file.samples if name in chosen)}
    return samples, np.array([rank[name] for name in samples])


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
    symbolic: Collection[tuple[int, str, str]] = (),
) -> Haplotypes:
    """Read the phased haplotypes of one chromosome from a VCF, VCF.gz or BCF file.

    A multi-allelic record becomes one site per ALT, in ALT order. All other alleles are coded 0 at that site.
    An unphased call with one missing allele becomes missing. Unphased homozygotes are accepted.

    `region` is read through the file's index if the index is not older than the file. `samples` are the
    samples to read, in the order of the result. `chrom` (with or without "chr") chooses the chromosome if the
    file has several; records on other chromosomes and at position 0 are counted in `skipped`. `role` is what
    messages call the file. `allow_missing` accepts missing calls. `allow_unphased` accepts unphased
    heterozygotes, and `Haplotypes.unphased` marks them. `without_alt(position, ref)` decides whether a record
    without ALT becomes a site with the ALT "."; by default no such record does. `symbolic` are the keys
    (`Sites.keys`) of the symbolic ALT alleles, and of alleles *, that become sites; others are skipped.

    Raises InputError if the file is missing, damaged or not a VCF, its index belongs to another file, a
    sample is unknown, a call is not accepted, positions are unsorted, or a ploidy changes or is above 2.
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
        symbolic=symbolic,
    )
    calls = reader.read_calls()
    return to_haplotypes(calls, reader.ploidy)  # the ploidy may be known only at the end of the file
