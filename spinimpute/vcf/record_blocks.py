"""Blocks of records: genotypes are checked, and each ALT allele becomes a site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import NO_ALT, Sites, unusable_alt
from spinimpute.runtime.errors import argument, call
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import Record, VariantFile


class CallBlock(NamedTuple):
    """Consecutive biallelic sites of a file, in file order.

    `calls`, int8 (n_sites, n_samples, 2), are 0 REF, 1 ALT, -1 missing, and -2 for the second allele of a
    haploid call. `multiallelic`, bool (n_sites,), marks sites that are one of several ALT alleles of their
    record. `unphased`, bool (n_sites, n_samples), marks unphased heterozygotes, None if there are none.
    `halved`, int64 (n_sites,) or None, is that of `Haplotypes`.
    """

    sites: Sites
    calls: np.ndarray
    multiallelic: np.ndarray
    unphased: np.ndarray | None
    halved: np.ndarray | None


class AcceptedCalls(NamedTuple):
    """Which calls a reader accepts.

    `missing`, `unphased` and `mixed_ploidy` accept missing calls, unphased heterozygotes and samples whose
    ploidy changes. `without_alt`, given position and REF, says whether a record without ALT makes a site with
    the ALT "."; None accepts no such record.
    """

    missing: bool = True
    unphased: bool = False
    mixed_ploidy: bool = False
    without_alt: Callable[[int, str], bool] | None = None


@dataclass
class _BlockColumns:
    """Number of ALT alleles of each record; record, number of the ALT, and columns of each site."""

    chrom: str = ""
    n_alts: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    allele: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    ref: list[str] = field(default_factory=list)
    alt: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)

    def place(self, row: int) -> str:
        """Chromosome and position of a record, for messages."""
        return f"{self.chrom}:{self.position[self.row.index(row)]}"


class BlockBuilder:
    """Collects records of a file and makes blocks of them.

    `samples` are those that are read, and `order` their ranks among the samples that the file gives (None if
    these are the same). `ploidy`, uint8 (n_samples,), is 1, 2, or 0 for unknown, and is updated in place.
    `skipped` counts ALT alleles that make no site, by reason. `missing_one`, bool (n_samples,), marks samples
    with a missing call of one allele, "."; it is not kept with mixed ploidy.
    """

    def __init__(
        self,
        file: VariantFile,
        samples: list[str],
        order: np.ndarray | None,
        accepted: AcceptedCalls,
        *,
        block_size: int,
        ploidy: np.ndarray,
        skipped: Counter[str],
    ) -> None:
        self._file, self._samples, self._order, self._accepted = file, samples, order, accepted
        self._seen_ploidy, self._skipped = ploidy, skipped
        self.missing_one = np.zeros(len(samples), bool)
        self._genotypes = np.empty((block_size, len(samples), 3), dtype=np.int16)

    def blocks(self, records: ChromosomeRecords) -> Iterator[CallBlock]:
        """Yield blocks of sites, one for each usable ALT allele; records without one are only counted.

        Raises InputError for a record without genotypes, a call of more than two alleles or of an allele that
        the record lacks, and for calls that are not accepted.
        """
        columns = _BlockColumns()
        for record in records:
            ref, alleles = self._file.alleles(record)
            alts = self._usable_alts(record, ref, alleles)
            if not alts:
                continue
            row = len(columns.n_alts)
            self._store_genotypes(record, self._genotypes[row])
            columns.chrom = records.chrom
            columns.n_alts.append(len(alleles))
            for number, alt in alts:
                columns.row.append(row)
                columns.allele.append(number)
                columns.position.append(record.POS)
                columns.ref.append(ref)
                columns.alt.append(alt)
                columns.name.append(record.ID or ".")
            if row + 1 == len(self._genotypes):
                yield self._block(columns)
                columns = _BlockColumns()
        if columns.row:
            yield self._block(columns)

    def _usable_alts(self, record: Record, ref: str, alts: list[str]) -> list[tuple[int, str]]:
        """(number, allele) of the ALT alleles that are sequences; the others are counted in `skipped`."""
        if len(alts) == 1 and alts[0].isalpha():
            return [(1, alts[0])]
        without_alt = self._accepted.without_alt
        if not alts and without_alt is not None and without_alt(record.POS, ref):
            return [(1, ".")]
        usable = []
        for number, alt in enumerate(alts, start=1):
            if not (reason := unusable_alt(alt)):
                usable.append((number, alt))
            else:
                self._skipped[reason] += 1
        if not alts:
            self._skipped[NO_ALT] += 1
        return usable

    def _store_genotypes(self, record: Record, out: np.ndarray) -> None:
        """Fill `out`, int16 (n_samples, 3): first allele, second allele (-2: haploid), phased."""
        genotypes = self._file.genotypes(record)
        width = genotypes.shape[1] - 1
        if self._order is not None:
            genotypes = genotypes[self._order]
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
                f"sample {self._samples[worst]} has a call of {width} alleles at {where}. "
                "Only haploid and diploid samples can be imputed"
            )

    def _block(self, columns: _BlockColumns) -> CallBlock:
        """Check the genotypes of a block and split its records into biallelic sites."""
        genotypes = self._genotypes[: len(columns.n_alts)]
        # over all three columns, because numpy is slow where the last axis is short and has gaps
        peak, least = int(genotypes.max()), int(genotypes.min())
        if peak > min(columns.n_alts):
            over = genotypes[:, :, :2].max(axis=2) > np.array(columns.n_alts, dtype=np.int16)[:, None]
            self._raise_at(over, columns, "a genotype with an ALT allele that the record lacks")
        unphased, halved = self._check_phase(genotypes, columns)
        calls = np.empty((*genotypes.shape[:2], 2), dtype=np.int8 if peak <= 127 else np.int16)
        calls[:, :, 0] = genotypes[:, :, 0]
        calls[:, :, 1] = genotypes[:, :, 1]
        has_missing = least < 0
        if not self._accepted.mixed_ploidy and (has_missing or self._seen_ploidy.min() < 2):
            self._check_ploidy(calls, columns)
        if not self._accepted.missing and has_missing:
            missing = (calls == -1).any(axis=2)
            self._raise_at(missing, columns, "a missing genotype. Fill or remove missing calls first")
        multiallelic = np.array([columns.n_alts[row] > 1 for row in columns.row])
        if multiallelic.any():
            calls = calls[columns.row]
            is_alt = calls == np.array(columns.allele, dtype=calls.dtype)[:, None, None]
            calls = np.where(np.greater_equal(calls, 0), is_alt, calls).astype(np.int8)
            if unphased is not None:
                unphased = unphased[columns.row] & (calls[:, :, 0] != calls[:, :, 1])
            if halved is not None:  # a call counts at the first ALT of its record
                halved = np.where(np.diff(columns.row, prepend=-1) > 0, halved[columns.row], 0)
        position = np.array(columns.position, dtype=np.int64)
        sites = Sites(columns.chrom, position, columns.ref, columns.alt, columns.name)
        return CallBlock(sites, calls, multiallelic, unphased, halved)

    def _raise_at(self, bad: np.ndarray, columns: _BlockColumns, what: str) -> None:
        """Raise for the first True of `bad`, bool (n_records, n_samples), if there is one."""
        if bad.any():
            row, sample = np.unravel_index(int(np.argmax(bad)), bad.shape)
            where = columns.place(int(row))
            raise self._file.error(f"sample {self._samples[sample]} has, at {where}, {what}")

    def _check_phase(
        self, genotypes: np.ndarray, columns: _BlockColumns
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Find unphased heterozygotes, bool (n_records, n_samples), and raise InputError if not accepted.

        Unphased half-missing calls become missing, in place; their number, int64 (n_records,), comes second.
        Either is None if there are none.
        """
        first, second = genotypes[:, :, 0], genotypes[:, :, 1]
        unphased = genotypes[:, :, 2] == 0
        if not unphased.any():
            return None, None
        unphased &= (first != second) & (second > -2)
        half = unphased & ((first == -1) | (second == -1))
        first[half] = -1
        second[half] = -1
        unphased &= ~half
        if not self._accepted.unphased:
            self._raise_at(
                unphased,
                columns,
                f"an unphased heterozygote. Phase the file first ({call('phase')}, Beagle, Eagle or SHAPEIT)",
            )
        return unphased if unphased.any() else None, half.sum(axis=1) if half.any() else None

    def _check_ploidy(self, calls: np.ndarray, columns: _BlockColumns) -> None:
        first, second = calls[:, :, 0], calls[:, :, 1]
        haploid = (first >= 0) & (second == -2)
        # "./." is also written for haploid samples, and "." for diploid ones: neither shows the ploidy
        diploid = (second >= 0) | ((first >= 0) & (second == -1))
        known = self._seen_ploidy
        now_haploid, now_diploid = haploid.any(axis=0), diploid.any(axis=0)
        changed = (now_haploid & now_diploid) | (now_haploid & (known == 2)) | (now_diploid & (known == 1))
        if changed.any():
            sample = int(np.argmax(changed))
            per_record = np.where(haploid[:, sample], 1, np.where(diploid[:, sample], 2, 0))
            expected = int(known[sample]) or int(per_record[per_record > 0][0])
            row = int(np.argmax((per_record > 0) & (per_record != expected)))
            words, place = {1: "haploid", 2: "diploid"}, columns.place(row)
            raise self._file.error(
                f"sample {self._samples[sample]} is {words[int(per_record[row])]} at {place} but "
                f"{words[expected]} before. Choose a region with one ploidy ({argument('region')}). "
                "Chromosome X is split automatically if the header has its length: ##contig=<ID=X,length=...>"
            )
        known[now_haploid] = 1
        known[now_diploid] = 2
        self.missing_one |= ((first == -1) & (second == -2)).any(axis=0)
