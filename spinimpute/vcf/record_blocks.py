"""Records of phased haplotypes, a block at a time: their calls are checked, and each ALT becomes a site."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import NO_ALT, Sites, unusable_alt
from spinimpute.runtime.errors import argument
from spinimpute.vcf.variant_file import Record, VariantFile

_PHASE_FIRST = "phase the file first (spinimpute phase, Beagle, Eagle or SHAPEIT)"


class CallBlock(NamedTuple):
    """Consecutive biallelic sites of a file.

    Attributes
    ----------
    sites : Sites
        In file order.
    calls : int8 (n_sites, n_samples, 2)
        0 REF, 1 ALT, -1 missing, -2 for the second allele of a call with one allele.
    multiallelic : bool (n_sites,)
        True for a site that is one of several ALT alleles of its record.
    unphased : bool (n_sites, n_samples) or None
        Heterozygotes without phase; None if there is none.
    halved : int64 (n_sites,) or None
        As in `Haplotypes`.
    """

    sites: Sites
    calls: np.ndarray
    multiallelic: np.ndarray
    unphased: np.ndarray | None
    halved: np.ndarray | None


class BlockBuilder:
    """Collects records and makes blocks of them.

    Parameters
    ----------
    file : VariantFile
        Where the records come from.
    samples : list of str
        Those that are read, in the order wanted.
    order : int64 (n_samples,) or None
        Their places among the samples that the file gives; None if these are the same.
    block_size : int
        Records of a block.
    ploidy : uint8 (n_samples,)
        What was seen earlier: 1, 2, or 0 where no call states it; updated in place.
    skipped : dict of str to int
        Counts ALT alleles that make no site, by reason.
    allow_missing, allow_unphased, mixed_ploidy : bool
        Whether missing calls, unphased heterozygotes and samples that change their ploidy are accepted.
    without_alt : callable or None
        (position, REF) -> whether a record without ALT makes a site, with the ALT "."; None: it never does.

    Attributes
    ----------
    missing_one : bool (n_samples,)
        Whether a missing call of the sample was written for one allele, "."; not kept with `mixed_ploidy`.
    """

    def __init__(
        self,
        file: VariantFile,
        samples: list[str],
        order: np.ndarray | None,
        *,
        block_size: int,
        ploidy: np.ndarray,
        skipped: dict[str, int],
        allow_missing: bool,
        allow_unphased: bool,
        mixed_ploidy: bool,
        without_alt: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._file, self._samples, self._order = file, samples, order
        self._without_alt = without_alt
        self._seen_ploidy, self._skipped = ploidy, skipped
        self._allow_missing, self._allow_unphased = allow_missing, allow_unphased
        self._mixed_ploidy = mixed_ploidy
        self.missing_one = np.zeros(len(samples), bool)
        self._genotypes = np.empty((block_size, len(samples), 3), dtype=np.int16)
        self._rows = _Rows()

    @property
    def full(self) -> bool:
        """Whether `take` must be called before another record is added."""
        return len(self._rows.position) == len(self._genotypes)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._rows.position

    def add(self, record: Record, chrom: str) -> None:
        """Add a record; one without a usable ALT is only counted.

        Parameters
        ----------
        record : Record
            The next of the file.
        chrom : str
            What its chromosome is called.

        Raises
        ------
        InputError
            It has no genotypes, or a call of more than two alleles.
        """
        ref, alleles = self._file.alleles(record)
        if not alleles and self._without_alt is not None and self._without_alt(record.POS, ref):
            alts = [(1, ".")]
        else:
            alts = self._usable_alts(alleles)
        if alts:
            self._store_genotypes(record, self._genotypes[len(self._rows.position)])
            self._rows.add(record, chrom, ref, len(alleles), alts)

    def take(self) -> CallBlock:
        """The records since the last block, of which there must be one, as sites.

        Returns
        -------
        CallBlock
            Checked, one site for each usable ALT allele.

        Raises
        ------
        InputError
            A call names an allele that the record lacks; it has no phase, is missing, or changes its sample's
            ploidy, where that is not accepted.
        """
        rows, self._rows = self._rows, _Rows()
        return self._block(rows, self._genotypes[: len(rows.position)])

    def _usable_alts(self, alts: list[str]) -> list[tuple[int, str]]:
        """(number, allele) of the ALT alleles that are sequences; the others are counted in `skipped`."""
        if len(alts) == 1 and alts[0].isalpha():
            return [(1, alts[0])]
        usable = []
        for number, alt in enumerate(alts, start=1):
            if not (reason := unusable_alt(alt)):
                usable.append((number, alt))
            else:
                self._skipped[reason] = self._skipped.get(reason, 0) + 1
        if not alts:
            self._skipped[NO_ALT] = self._skipped.get(NO_ALT, 0) + 1
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
                f"sample {self._samples[worst]} has a call of {width} alleles at {where}; "
                "only haploid and diploid samples can be imputed"
            )

    def _block(self, rows: _Rows, genotypes: np.ndarray) -> CallBlock:
        """Check the genotypes of a block and split its records into biallelic sites."""
        chrom = rows.chrom
        # over phases, too, which are 0 or 1: numpy is slow where the last axis is short and has gaps
        peak, least = int(genotypes.max()), int(genotypes.min())
        if peak > min(rows.n_alts):
            over = genotypes[:, :, :2].max(axis=2) > np.array(rows.n_alts, dtype=np.int16)[:, None]
            self._raise_at(over, rows, "a genotype that names an ALT allele which the record does not have")
        unphased, halved = self._check_phase(genotypes, rows)
        calls = np.empty((*genotypes.shape[:2], 2), dtype=np.int8 if peak <= 127 else np.int16)
        calls[:, :, 0] = genotypes[:, :, 0]
        calls[:, :, 1] = genotypes[:, :, 1]
        has_missing = least < 0
        if not self._mixed_ploidy and (has_missing or self._seen_ploidy.min() < 2):
            self._check_ploidy(calls, rows)
        if not self._allow_missing and has_missing:
            self._raise_at(
                (calls == -1).any(axis=2), rows, "a missing genotype; fill or remove missing calls first"
            )
        multiallelic = np.array([rows.n_alts[row] > 1 for row in rows.row])
        if multiallelic.any():
            calls = calls[rows.row]
            is_alt = calls == np.array(rows.allele, dtype=calls.dtype)[:, None, None]
            calls = np.where(np.greater_equal(calls, 0), is_alt, calls).astype(np.int8)
            if unphased is not None:
                unphased = unphased[rows.row] & (calls[:, :, 0] != calls[:, :, 1])
            if halved is not None:  # a call is counted at the first ALT of its record
                halved = np.where(np.diff(rows.row, prepend=-1) > 0, halved[rows.row], 0)
        position = np.array([rows.position[row] for row in rows.row], dtype=np.int64)
        ref = [rows.ref[row] for row in rows.row]
        name = [rows.name[row] for row in rows.row]
        return CallBlock(Sites(chrom, position, ref, rows.alt, name), calls, multiallelic, unphased, halved)

    def _raise_at(self, bad: np.ndarray, rows: _Rows, what: str) -> None:
        """Raise for the first True of `bad`, bool (n_records, n_samples), if there is one."""
        if bad.any():
            row, sample = np.unravel_index(int(np.argmax(bad)), bad.shape)
            where = f"{rows.chrom}:{rows.position[row]}"
            raise self._file.error(f"sample {self._samples[sample]} has, at {where}, {what}")

    def _check_phase(self, genotypes: np.ndarray, rows: _Rows) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Which calls are unphased heterozygotes, bool (n_records, n_samples); None if there is none.

        Raises for them if they are not accepted. An unphased half-missing call becomes missing, in place; how
        many there were, int64 (n_records,), comes second, or None.
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
        if not self._allow_unphased:
            self._raise_at(unphased, rows, f"an unphased heterozygote; {_PHASE_FIRST}")
        return unphased if unphased.any() else None, half.sum(axis=1) if half.any() else None

    def _check_ploidy(self, calls: np.ndarray, rows: _Rows) -> None:
        first, second = calls[:, :, 0], calls[:, :, 1]
        haploid = (first >= 0) & (second == -2)
        # "./." is also written for haploid samples, and "." for diploid ones: neither states the ploidy
        diploid = (second >= 0) | ((first >= 0) & (second == -1))
        known = self._seen_ploidy
        now_haploid, now_diploid = haploid.any(axis=0), diploid.any(axis=0)
        changed = (now_haploid & now_diploid) | (now_haploid & (known == 2)) | (now_diploid & (known == 1))
        if changed.any():
            sample = int(np.argmax(changed))
            per_record = np.where(haploid[:, sample], 1, np.where(diploid[:, sample], 2, 0))
            expected = int(known[sample]) or int(per_record[per_record > 0][0])
            row = int(np.argmax((per_record > 0) & (per_record != expected)))
            words = {1: "haploid", 2: "diploid"}
            raise self._file.error(
                f"sample {self._samples[sample]} is {words[int(per_record[row])]} at "
                f"{rows.chrom}:{rows.position[row]} but {words[expected]} before; choose a part of the "
                f"chromosome with one ploidy ({argument('region')}). Chromosome X is parted "
                f"by itself if the header "
                "states its length: ##contig=<ID=X,length=...>"
            )
        known[now_haploid] = 1
        known[now_diploid] = 2
        self.missing_one |= ((first == -1) & (second == -2)).any(axis=0)


class _Rows:
    """The text columns of the records of a block, and which biallelic site comes from which record."""

    def __init__(self) -> None:
        self.chrom = ""
        self.position: list[int] = []
        self.ref: list[str] = []
        self.name: list[str] = []
        self.n_alts: list[int] = []
        self.row: list[int] = []  # per biallelic site: its record in this block
        self.allele: list[int] = []  # per biallelic site: the number of its ALT
        self.alt: list[str] = []

    def add(self, record: Record, chrom: str, ref: str, n_alts: int, alts: list[tuple[int, str]]) -> None:
        row = len(self.position)
        self.chrom = chrom
        self.position.append(record.POS)
        self.ref.append(ref)
        self.name.append(record.ID or ".")
        self.n_alts.append(n_alts)
        for number, alt in alts:
            self.row.append(row)
            self.allele.append(number)
            self.alt.append(alt)
