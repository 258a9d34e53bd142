"""Reading phased haplotypes from VCF, VCF.gz and BCF files.

A file passes through three steps: `check_variant_file` (is it a whole VCF?), `_records` (records of one
chromosome, in order) and `HaplotypeReader` (blocks of biallelic sites with the alleles of each haplotype).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cyvcf2
import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.haplotypes import Calls, Haplotypes, columns_of, one_ploidy, select_haplotypes
from spinimpute.genotypes.sites import Region, Sites, plain_chromosome
from spinimpute.vcf.bgzf import DamagedFile
from spinimpute.vcf.check import check_variant_file, repeated_sample
from spinimpute.vcf.index_reader import Contig, index_error, read_index
from spinimpute.vcf.record_count import count_records

BLOCK_BYTES = 8 * 2**20  # of genotypes held at once as int16; small enough to stay in the cache

ON_ANOTHER_CHROMOSOME = "on another chromosome"
NO_ALT = "no ALT allele"
SPANNING_DELETION = "ALT * (spanning deletion)"
SYMBOLIC = "symbolic ALT"
AT_POSITION_0 = "at position 0, the telomere"

_PHASE_FIRST = "phase the file first (spinimpute phase, Beagle, Eagle or SHAPEIT)"


class HaplotypeBlock(NamedTuple):
    """Consecutive sites of a file.

    alleles: int8 (n_sites, n_haplotypes) as in `Haplotypes`. multiallelic: bool (n_sites,), True for a site
    that is one of several ALT alleles of its record.
    """

    sites: Sites
    alleles: np.ndarray
    multiallelic: np.ndarray


class NoRecord(InputError):
    """A file holds nothing of what was asked for."""


class _RawBlock(NamedTuple):
    sites: Sites
    calls: np.ndarray  # int8 (n_sites, n_samples, 2): 0, 1, -1 missing, -2 no second haplotype
    multiallelic: np.ndarray
    unphased: np.ndarray | None  # bool (n_sites, n_samples)


class HaplotypeReader:
    """Streams a file's haplotypes in blocks: `for block in reader`, once.

    `samples` is known from the start; `contig_line` and `ploidy` from the first block on; `skipped` is
    complete at the end. Parameters and errors as for `read_haplotypes`; mixed_ploidy: a sample's ploidy may
    change, for `read_calls` alone. ploidy: uint8 (n_samples,), 0, 1 or 2, what was seen in an earlier part.
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
    ) -> None:
        self.path = Path(path)
        self.role = role
        self.skipped: dict[str, int] = {}
        self.contig_line = ""
        self._region = region
        self._chrom = region.chrom if region else chrom
        self._allow_missing, self._allow_unphased = allow_missing, allow_unphased
        self._mixed_ploidy = mixed_ploidy
        if region and chrom and plain_chromosome(region.chrom) != plain_chromosome(chrom):
            raise InputError(f"the region {region} is not on chromosome {chrom}: give one of the two")
        check_variant_file(self.path, role)
        try:
            self._vcf = cyvcf2.VCF(str(self.path), lazy=True)
            self._in_file, self._header = list(self._vcf.samples), self._vcf.raw_header
        except UnicodeDecodeError as error:
            raise self._error(
                "the header holds bytes that are no text (UTF-8); is the file damaged?"
            ) from error
        except Exception as error:
            if twice := repeated_sample(self.path):
                raise self._error(f"two samples are named {twice}; rename one of them") from error
            raise self._error(f"the header cannot be read ({error}); is the file damaged?") from error
        self._choose_samples(samples)
        # 0: no call seen yet that tells the ploidy
        self._seen_ploidy = np.zeros(len(self.samples), np.uint8) if ploidy is None else ploidy.copy()

    @property
    def ploidy(self) -> np.ndarray:
        """uint8 (n_samples,), from the calls read so far.

        A sample without any call is haploid if any other sample is, else diploid.
        """
        unknown = 1 if (self._seen_ploidy == 1).any() else 2
        return np.where(self._seen_ploidy == 0, unknown, self._seen_ploidy).astype(np.uint8)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes that the header, or an index, lists."""
        return list(self._vcf.seqnames)

    def close(self) -> None:
        """Nothing more will be read. Who reads to the end, or to an error, need not call it."""
        self._vcf.close()

    def __iter__(self) -> Iterator[HaplotypeBlock]:
        kept = None
        for raw in self._raw_blocks():
            if kept is None:
                ploidy = self.ploidy
                kept = columns_of(ploidy)
                self._seen_ploidy = ploidy
            yield HaplotypeBlock(raw.sites, select_haplotypes(raw.calls, kept), raw.multiallelic)

    def read_all(self) -> Haplotypes:
        """Everything at once; here a sample's ploidy may show late in the file."""
        return one_ploidy(self.read_calls(), self.ploidy)

    def read_calls(self) -> Calls:
        """Everything at once, with the number of alleles that each call has."""
        raw = list(self._raw_blocks())
        unphased = None
        if any(block.unphased is not None for block in raw):
            shape = (len(self.samples),)
            unphased = np.concatenate(
                [np.zeros((len(b.sites), *shape), bool) if b.unphased is None else b.unphased for b in raw]
            )
        return Calls(
            Sites.concatenate([block.sites for block in raw]),
            np.concatenate([block.calls for block in raw]),
            self.samples,
            self.contig_line,
            self.skipped,
            unphased,
        )

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.role} {self.path}: {what}")

    def _choose_samples(self, wanted: Sequence[str] | None) -> None:
        in_file = self._in_file
        if not in_file:
            raise self._error("the file holds sites without samples; give a file with genotypes")
        self.samples = in_file if wanted is None else list(wanted)
        self._order: np.ndarray | None = None
        if wanted is None:
            return
        unknown = sorted(set(self.samples) - set(in_file))
        if unknown:
            some = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
            raise self._error(f"{len(unknown)} of the samples asked for are not in the file: {some}")
        if len(set(self.samples)) < len(self.samples):
            twice = next(name for name in self.samples if self.samples.count(name) > 1)
            raise self._error(f"the sample {twice} is asked for more than once")
        if not self.samples:
            raise self._error("the list of samples to read is empty")
        self._vcf.set_samples(self.samples)  # keeps the file's order
        chosen = set(self.samples)
        place = {name: i for i, name in enumerate(name for name in in_file if name in chosen)}
        self._order = np.array([place[name] for name in self.samples])

    # records

    def _records(self) -> Iterator[Any]:
        """The records of one chromosome and region, checked to be in order."""
        wanted = None if self._chrom is None else plain_chromosome(self._chrom)
        contigs = self._index() if wanted is not None else []
        indexed = [contig for contig in contigs if plain_chromosome(contig.name) == wanted]
        names = {name for name in self._vcf.seqnames if plain_chromosome(name) == wanted}
        if names != {contig.name for contig in indexed}:
            indexed = []  # one of its names is in the header, or in the records, alone
        if len(indexed) == 1:
            region = self._region
            (contig,) = indexed
            source = self._vcf(f"{contig.name}:{region.start}-{region.end}" if region else contig.name)
        else:
            source = iter(self._vcf)
            indexed = []
        n_read = n_kept = last = 0
        where = "the header"
        chrom = ""
        others: dict[str, int] = {}
        while True:
            try:
                record = next(source)
                name, position = record.CHROM, record.POS
            except StopIteration:
                break
            except Exception as error:
                raise self._error(
                    f"the file is truncated or malformed at record {n_read + 1}, after {where}. "
                    "Get the file again, or check it with bcftools view"
                ) from error
            n_read += 1
            if not name:
                raise self._error(f"record {n_read}, after {where}, is an empty line; remove it")
            where = f"{name}:{position}"
            if wanted is not None and plain_chromosome(name) != wanted:
                others[name] = others.get(name, 0) + 1
                continue
            if self._region and not self._region.start <= position <= self._region.end:
                continue
            if not chrom:
                chrom = name
                self.contig_line = contig_line_of(self._header, chrom)
            elif name != chrom:
                raise self._error(
                    f"more than one chromosome, {chrom} and {name} (record {n_read}); "
                    "choose one with --region"
                )
            if position < 1:
                self.skipped[AT_POSITION_0] = self.skipped.get(AT_POSITION_0, 0) + 1
                continue
            if position < last:
                raise self._error(
                    f"the positions go backwards at record {n_read}, {where} after {chrom}:{last}; "
                    "sort the file (bcftools sort)"
                )
            last = position
            n_kept += 1
            yield record
        if indexed:
            self._count_again(contigs, indexed[0], n_kept)
        if not n_kept:
            raise NoRecord(f"{self.role} {self.path}: {self._no_records(n_read, list(others))}")
        if not self._region and wanted is not None:
            here = n_kept + self.skipped.get(AT_POSITION_0, 0)
            elsewhere = self._vcf.num_records - here if indexed else sum(others.values())
            if elsewhere > 0:
                self.skipped[ON_ANOTHER_CHROMOSOME] = elsewhere

    def _index(self) -> list[Contig]:
        try:
            return read_index(self.path)
        except DamagedFile as error:
            raise index_error(self.role, self.path, error) from error

    def _count_again(self, contigs: list[Contig], contig: Contig, n_kept: int) -> None:
        """Raise unless the records that the index led to are all there are."""
        try:
            there = count_records(self.path, contigs, contig, self._region)
        except DamagedFile as error:
            raise index_error(self.role, self.path, error) from error
        if there.inside != n_kept:
            what = f"{self._region or contig.name} has {there.inside} records, of which {n_kept} are found"
            raise index_error(self.role, self.path, what)
        if there.at_zero and not self._region:  # the index leads to none of them
            self.skipped[AT_POSITION_0] = there.at_zero

    def _no_records(self, n_read: int, others: list[str]) -> str:
        if self._chrom is None:
            return "the file has no records"
        wanted = self._region or self._chrom
        if others:
            return f"no record in {wanted}; the file holds chromosome {', '.join(others[:10])}"
        return f"no record in {wanted}" + ("" if n_read or self._region else "; the file may be empty")

    # blocks

    def _raw_blocks(self) -> Iterator[_RawBlock]:
        n_samples = len(self.samples)
        block_size = min(max(BLOCK_BYTES // (6 * n_samples), 16), 4096)
        genotypes = np.empty((block_size, n_samples, 3), dtype=np.int16)
        rows = _Rows()
        n_sites = 0
        try:
            for record in self._records():
                try:
                    alts = self._usable_alts(record.ALT)
                    if not alts:
                        continue
                    self._store_genotypes(record, genotypes[len(rows.position)])
                    rows.add(record, alts)
                except UnicodeDecodeError as error:
                    raise self._error(
                        f"the record at {record.CHROM}:{record.POS} holds bytes that are no text "
                        "(UTF-8); is the file damaged?"
                    ) from error
                if len(rows.position) == block_size:
                    n_sites += len(rows.row)
                    yield self._finish_block(rows, genotypes)
                    rows = _Rows()
            if rows.position:
                n_sites += len(rows.row)
                yield self._finish_block(rows, genotypes)
        finally:
            self._vcf.close()
        if not n_sites:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
            raise NoRecord(f"{self.role} {self.path}: no usable record ({reasons})")

    def _usable_alts(self, alts: list[str]) -> list[tuple[int, str]]:
        """(number, allele) of the ALT alleles that are sequences; the others are counted in `skipped`."""
        if len(alts) == 1 and alts[0].isalpha():
            return [(1, alts[0])]
        usable = []
        for number, alt in enumerate(alts, start=1):
            if alt.isalpha():
                usable.append((number, alt))
            else:
                reason = {"*": SPANNING_DELETION, ".": NO_ALT}.get(alt, SYMBOLIC)
                self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if not alts:
            self.skipped[NO_ALT] = self.skipped.get(NO_ALT, 0) + 1
        return usable

    def _store_genotypes(self, record: Any, out: np.ndarray) -> None:
        """Fill `out`, int16 (n_samples, 3): first allele, second allele (-2: haploid), phased."""
        where = f"{record.CHROM}:{record.POS}"
        try:
            genotypes = record.genotype.array()
        except Exception as error:
            raise self._error(f"no genotypes (GT) at {where}; every record must have them") from error
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
            raise self._error(
                f"sample {self.samples[worst]} has a call of {width} alleles at {where}; "
                "only haploid and diploid samples can be imputed"
            )

    def _finish_block(self, rows: "_Rows", genotypes: np.ndarray) -> _RawBlock:
        """Check the genotypes of a block and split its records into biallelic sites."""
        genotypes = genotypes[: len(rows.position)]
        chrom = rows.chrom
        # over phases, too, which are 0 or 1: numpy is slow where the last axis is short and has gaps
        peak, least = int(genotypes.max()), int(genotypes.min())
        if peak > 1:
            over = genotypes[:, :, :2].max(axis=2) > np.array(rows.n_alts, dtype=np.int16)[:, None]
            self._raise_at(over, rows, "a genotype that names an ALT allele which the record does not have")
        unphased = self._check_phase(genotypes, rows)
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
        position = np.array([rows.position[row] for row in rows.row], dtype=np.int64)
        ref = [rows.ref[row] for row in rows.row]
        name = [rows.name[row] for row in rows.row]
        return _RawBlock(Sites(chrom, position, ref, rows.alt, name), calls, multiallelic, unphased)

    def _raise_at(self, bad: np.ndarray, rows: "_Rows", what: str) -> None:
        """Raise for the first True of `bad`, bool (n_records, n_samples), if there is one."""
        if bad.any():
            row, sample = np.unravel_index(int(np.argmax(bad)), bad.shape)
            where = f"{rows.chrom}:{rows.position[row]}"
            raise self._error(f"sample {self.samples[sample]} has, at {where}, {what}")

    def _check_phase(self, genotypes: np.ndarray, rows: "_Rows") -> np.ndarray | None:
        """Which calls are unphased heterozygotes, bool (n_records, n_samples); raise for them if there must
        be none. An unphased half-missing call becomes missing, in place."""
        first, second = genotypes[:, :, 0], genotypes[:, :, 1]
        unphased = genotypes[:, :, 2] == 0
        if not unphased.any():
            return None
        unphased &= (first != second) & (second > -2)
        half = unphased & ((first == -1) | (second == -1))
        first[half] = -1
        second[half] = -1
        unphased &= ~half
        if not self._allow_unphased:
            self._raise_at(unphased, rows, f"an unphased heterozygote; {_PHASE_FIRST}")
        return unphased if unphased.any() else None

    def _check_ploidy(self, calls: np.ndarray, rows: "_Rows") -> None:
        first, second = calls[:, :, 0], calls[:, :, 1]
        haploid = (first >= 0) & (second == -2)
        # "./." is also written for haploid samples, and "." for diploid ones: neither tells the ploidy
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
            raise self._error(
                f"sample {self.samples[sample]} is {words[int(per_record[row])]} at "
                f"{rows.chrom}:{rows.position[row]} but {words[expected]} before; choose a part of the "
                "chromosome with one ploidy with --region. Chromosome X is parted by itself if the header "
                "states its length: ##contig=<ID=X,length=...>"
            )
        known[now_haploid] = 1
        known[now_diploid] = 2


def contig_line_of(header: str, chrom: str) -> str:
    """The '##contig=<...>' line of a chromosome; one with its name alone if the header has none."""
    for line in header.splitlines():
        if line.startswith((f"##contig=<ID={chrom},", f"##contig=<ID={chrom}>")):
            return line
    return f"##contig=<ID={chrom}>"


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

    def add(self, record: Any, alts: list[tuple[int, str]]) -> None:
        row = len(self.position)
        self.chrom = record.CHROM
        self.position.append(record.POS)
        self.ref.append(record.REF)
        self.name.append(record.ID or ".")
        self.n_alts.append(len(record.ALT))
        for number, alt in alts:
            self.row.append(row)
            self.allele.append(number)
            self.alt.append(alt)


def read_haplotypes(
    path: str | Path,
    region: Region | None = None,
    *,
    samples: Sequence[str] | None = None,
    chrom: str | None = None,
    role: str = "target",
    allow_missing: bool = True,
    allow_unphased: bool = False,
) -> Haplotypes:
    """Read the phased haplotypes of one chromosome from a VCF, VCF.gz or BCF file.

    region: the sites to read; through the file's index if there is one that is not older than the file, else
    by reading all of it. chrom: read this chromosome of a file with several; records of the others, and those
    at position 0, are counted in `skipped`. Names match with or without "chr". samples: the samples to read,
    in this order (default: all, in file order). role: what the file is, for messages. allow_missing: accept
    missing calls; allow_unphased: accept unphased heterozygotes, which `Haplotypes.unphased` then marks.

    A multi-allelic record becomes one site per ALT, in ALT order, where every other allele is coded 0.
    Unphased homozygotes are taken as they are; of an unphased call with one missing allele both are missing.

    Raises InputError if the file is missing, damaged, truncated or no VCF, or its index of another file; if
    it has no samples, records or genotypes; for unphased heterozygotes and missing calls unless allowed,
    unsorted positions, a ploidy that changes or exceeds 2, several chromosomes without `region` or `chrom`,
    and unknown samples.
    """
    reader = HaplotypeReader(
        path,
        region,
        samples=samples,
        chrom=chrom,
        role=role,
        allow_missing=allow_missing,
        allow_unphased=allow_unphased,
    )
    return reader.read_all()
