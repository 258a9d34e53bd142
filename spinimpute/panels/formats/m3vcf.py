"""Read M3VCF, the panel format of Minimac3 and of imputation servers, and panels exported from Minimac4.

A block lists its distinct haplotypes, and for each haplotype of the panel the number of the distinct
haplotype that it equals. Neighbouring blocks often share a variant: the last of one block is the first of the
next. The versions differ in how they write the numbers and the alleles:

=============================  ==============================  ============================================
version                        distinct haplotype of each      alleles of the distinct haplotypes
                               haplotype of the panel
=============================  ==============================  ============================================
1 (`M3VCF`)                    a column for each haplotype     `0110`
2 (`M3VCFv2.0`)                `3|0`, or `3` of haploid ones   `1,1`: number of the first with ALT, then
                                                               steps to the next; `-` if none. Or as in 1
3 (`MVCFv3.0`, as exported     `3,0`, or `3` of haploid ones   `UHA=0,1,1,0` in INFO
by `sav export` from .msav)
=============================  ==============================  ============================================

Axes: X records of a block, R distinct haplotypes, N haplotypes of the panel.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import NoRecord, Region, is_position
from spinimpute.panels.formats.text_lines import TextLines
from spinimpute.panels.formats.text_panel import SiteList, TextPanelReader, choose_rows, quote_start
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import GZIP_MAGIC
from spinimpute.vcf.reader import HaplotypeBlock, check_samples

_FORMAT_LINE = re.compile(rb"##(?:sub)?fileformat=(?:M3VCF|MVCF|OPTM)(?:v(\d)[\d.]*)?\s*$", re.M)
_START_BYTES = 2**9  # the format is in one of the first lines
_SEPARATORS = {1: b"\t", 2: b"|", 3: b","}  # between the two haplotypes of a sample, by version
_FIXED_COLUMNS = 9  # CHROM to FORMAT
_HAPLOTYPE_NAME = re.compile(r"(.+)_HAP_([12])")
_DIGITS = b"0123456789"
_MOST_DIGITS = 9  # of a number of a distinct haplotype
_LIST = re.compile(rb"\d{1,9}(?:,\d{1,9})*")


def m3vcf_version(path: Path) -> int | None:
    """Return the version of an M3VCF file, plain or gzip; None for other files. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(31).decompress(start, _START_BYTES)
        except zlib.error:
            return None
    match = _FORMAT_LINE.search(start) if start.startswith(b"##") else None
    return int(match[1] or 1) if match else None


class _Block(NamedTuple):
    """The first line of a block."""

    n_records: int
    n_distinct: int
    distinct_N: np.ndarray  # the distinct haplotype of each haplotype to read, int64


class M3vcfReader(TextPanelReader):
    """Reader of an M3VCF file. See `TextPanelReader`.

    `first_chrom` is the chromosome of the first record.
    """

    def __init__(self, path: Path, region: Region | None, samples: Sequence[str] | None) -> None:
        super().__init__(TextLines(path), region)
        self._version = m3vcf_version(path) or 0
        self._n_blocks: int | None = None  # according to the header
        self._n_read = 0  # blocks
        self._has_lists = self._version == 2  # until the first record with alleles as in version 1
        with self.closing_on_error():
            if self._version not in _SEPARATORS:
                raise self.error(f"M3VCF of version {self._version} cannot be read, only versions 1 to 3")
            columns = self._read_header()
            self._check_names(columns)
            pairs = self._pair_haplotypes(columns)
            self._first_line = self._seek_block()
            if not self._first_line:
                where = f" in {region}" if region else ""
                raise NoRecord("content", f"panel {path}: no record{where}")
            self.first_chrom = self._text(self._first_line.split(b"\t", 1)[0])
            # what is between the numbers shows the ploidy. It must be the same in all blocks
            self._between = self._map_text(self._first_line).translate(None, _DIGITS)
            counts = self._count_haplotypes(columns)
            names, ploidy = (columns, counts) if pairs is None or max(counts) > 1 else pairs
            if samples is not None:
                self.samples = names
                check_samples(self, samples)
            self._choose_samples(names, ploidy, samples)

    def _read_header(self) -> list[str]:
        """Read the header. Return the names of the columns after FORMAT."""
        while (line := self._lines.read_line()).startswith(b"##"):
            text = self._text(line.rstrip())
            if match := re.match(r"##contig=<ID=([^,>]+)", text):
                self.contig_lines[match[1]] = text
            if match := re.fullmatch(r"##n_blocks=(\d{1,9})", text):
                self._n_blocks = int(match[1])
        columns = self._text(line.rstrip(b"\r\n")).split("\t")
        if columns[0] != "#CHROM" or len(columns) <= _FIXED_COLUMNS:
            raise self.error(
                f"expected the line #CHROM with the names of the samples, got {quote_start(line)}. Get the "
                "file again",
                "damaged",
            )
        return columns[_FIXED_COLUMNS:]

    def _pair_haplotypes(self, columns: list[str]) -> tuple[list[str], list[int]] | None:
        """Return samples and their ploidy from columns SAMPLE_HAP_1, SAMPLE_HAP_2; None for other columns."""
        named = [_HAPLOTYPE_NAME.fullmatch(name) for name in columns]
        if self._version == 2 or not all(named):
            if self._version == 1:
                column = columns[named.index(None)]
                raise self.error(f"expected columns named SAMPLE_HAP_1 and SAMPLE_HAP_2, got {column!r}")
            return None
        names: list[str] = []
        ploidy: list[int] = []
        for match in filter(None, named):
            name, number = match[1], match[2]
            if number == "1":
                names.append(name)
                ploidy.append(1)
            elif names and names[-1] == name and ploidy[-1] == 1:
                ploidy[-1] = 2
            else:
                raise self.error(f"the column {name}_HAP_2 does not follow {name}_HAP_1. Get the file again")
        self._check_names(names)
        return names, ploidy

    def _count_haplotypes(self, columns: list[str]) -> list[int]:
        """Return the number of haplotypes in each column of the first block."""
        if other := self._between.strip(b"\t" + _SEPARATORS[self._version]):
            raise self.error(
                f"expected numbers of distinct haplotypes, got {quote_start(other)}. Get the file again",
                "damaged",
            )
        n_columns = 1 + self._between.count(b"\t")
        if n_columns != len(columns):
            raise self.error(f"expected numbers for {len(columns)} columns, got {n_columns}")
        counts = [1 + between.count(_SEPARATORS[self._version]) for between in self._between.split(b"\t")]
        if max(counts) > 2:
            raise self.error(
                f"sample {columns[int(np.argmax(counts))]} has {max(counts)} haplotypes. Only haploid and "
                "diploid samples can be imputed"
            )
        return counts

    def _blocks(self) -> Iterator[HaplotypeBlock]:
        most_rows = choose_rows(len(self._column_N))
        line = self._first_line
        last: tuple[list[bytes], np.ndarray] | None = None  # the last record of a block, and its haplotypes
        with closing(self):
            while line:
                block = self._parse_block(line)
                sites, rows = SiteList(), list[np.ndarray]()
                for number in range(block.n_records):
                    fields = self._read_record()
                    alleles_R = self._parse_alleles(fields, block.n_distinct)
                    if number in (0, block.n_records - 1):
                        this = (fields[:5], alleles_R[block.distinct_N])
                        if number == 0 and last is not None and _is_same_record(this, last):
                            continue
                        last = this
                    if self._add_sites(sites, len(rows), fields):
                        rows.append(alleles_R)
                    if len(rows) == most_rows:
                        yield self._expand(sites, rows, block)
                        sites, rows = SiteList(), []
                if rows:
                    yield self._expand(sites, rows, block)
                line = self._seek_block()
        if self._version == 1 and self._n_blocks not in (None, self._n_read):
            raise self.error(
                f"the file has {self._n_read:,} blocks, its header says {self._n_blocks:,}. Get the file "
                "again",
                "damaged",
            )

    def _seek_block(self) -> bytes:
        """Return the first line of the next block that overlaps the region; b"" at the end of the file."""
        while line := self._lines.read_line():
            self._n_read += 1
            if self._region is None:
                return line
            self._map_text(line)  # raises InputError if it is another line
            chrom, position, _, _, _, _, _, info, _ = line.split(b"\t", 8)
            start, _, end = position.partition(b"-")
            if self._version == 3:
                end = b"%d" % self._count(info, b"END")
            if not is_position(start) or not is_position(end):
                raise self.error(f"expected START-END of the block, got {quote_start(position)}", "damaged")
            if self._is_in_region(chrom, int(start), int(end)):
                return line
            for _ in range(self._count(info, b"VARIANTS")):
                chrom, position, *_ = self._read_record()
                if is_position(position) and self._is_in_region(chrom, int(position), int(position)):
                    raise self.error("the record is outside the positions of its block", "damaged")
        return b""

    def _is_in_region(self, chrom: bytes, start: int, end: int) -> bool:
        """Return whether an interval overlaps the region."""
        region = self._region
        assert region is not None
        return start <= region.end and end >= region.start and self._is_on_region(self._text(chrom))

    def _map_text(self, line: bytes) -> bytes:
        """Return the columns after FORMAT of the first line of a block."""
        fields = line.rstrip(b"\r\n").split(b"\t", _FIXED_COLUMNS)
        if len(fields) <= _FIXED_COLUMNS or not (fields[2].startswith(b"<BLOCK") or fields[4] == b"<BLOCK>"):
            raise self.error(
                f"expected the first line of a block, with <BLOCK>, got {quote_start(line)}. Get the file "
                "again",
                "damaged",
            )
        return fields[_FIXED_COLUMNS]

    def _parse_block(self, line: bytes) -> _Block:
        text = self._map_text(line)
        info = line.split(b"\t", 8)[7]
        n_records, n_distinct = self._count(info, b"VARIANTS"), self._count(info, b"REPS")
        if text.translate(None, _DIGITS) != self._between:
            raise self.error(
                "the columns of the block differ from those of the first block in number or ploidy. Choose a "
                f"region with one ploidy ({argument('region')}), or get the file again",
                "damaged",
            )
        words = text.replace(_SEPARATORS[self._version], b"\t").split(b"\t")
        if min(map(len, words)) > 0 and max(map(len, words)) <= _MOST_DIGITS:
            distinct_N = np.array(words).astype(np.int64)
            if distinct_N.max() < n_distinct <= len(distinct_N):
                return _Block(n_records, n_distinct, distinct_N[self._column_N])
        raise self.error(
            f"the numbers of the {n_distinct} distinct haplotypes (REPS) are not 0 to {n_distinct - 1}. Get "
            "the file again",
            "damaged",
        )

    def _count(self, info: bytes, key: bytes) -> int:
        """Return a count in the INFO of a block."""
        match = re.search(rb"(?:^|;)" + key + rb"=([1-9]\d{0,8})(?:;|$)", info)
        if match is None:
            raise self.error(
                f"expected {key.decode()}=NUMBER in INFO, got {quote_start(info)}. Get the file again",
                "damaged",
            )
        return int(match[1])

    def _read_record(self) -> list[bytes]:
        """Return the columns of the next record, up to FORMAT."""
        line = self._lines.read_line()
        fields = line.rstrip(b"\r\n").split(b"\t", _FIXED_COLUMNS)
        least = 8 if self._version == 3 else _FIXED_COLUMNS
        if len(fields) < least or (len(fields) > least and self._version < 3) or fields[4] == b"<BLOCK>":
            what = quote_start(line) if line else "the end of the file"
            raise self.error(
                f"expected a record of {least} columns, got {what}. The block has fewer records than its "
                "VARIANTS, or the record is damaged. Get the file again",
                "damaged",
            )
        return fields

    def _parse_alleles(self, fields: list[bytes], n_distinct: int) -> np.ndarray:
        """Return the alleles of the distinct haplotypes, uint8 (R,): 0 REF, 1 the first ALT ..."""
        n_alts = fields[4].count(b",") + 1
        if self._version == 3:
            match = re.search(rb"(?:^|;)UHA=([^;]*)", fields[7])
            text = match[1] if match else b""
            if len(text) % 2 == 0 or text[1::2].strip(b","):
                raise self._alleles_error(text, n_distinct)
            text = text[::2]
        else:
            text = fields[8]
            if self._version == 2 and not self._is_dense(text, n_distinct):
                return self._parse_list(text, n_distinct, n_alts)
        alleles_R = np.frombuffer(text, np.uint8) - ord("0")
        # Minimac4 names only the first ALT of a record: other alleles are not that ALT
        if len(alleles_R) != n_distinct or alleles_R.max() > (9 if self._version == 3 else n_alts):
            raise self._alleles_error(text, n_distinct)
        return alleles_R

    def _is_dense(self, text: bytes, n_distinct: int) -> bool:
        """Return whether alleles in a file of version 2 are written as in version 1."""
        if len(text) != n_distinct or text.strip(b"01"):
            return False
        if n_distinct > 1:  # as a list, the text would be a number that is too large
            self._has_lists = False
        return not self._has_lists or text == b"1"

    def _parse_list(self, text: bytes, n_distinct: int, n_alts: int) -> np.ndarray:
        """Return the alleles of a list in version 2."""
        alleles_R = np.zeros(n_distinct, np.uint8)
        if text == b"-":
            return alleles_R
        if n_alts > 1:
            raise self.error("version 2 of M3VCF cannot show which of several ALT alleles a haplotype has")
        if text.count(b",") >= n_distinct or not _LIST.fullmatch(text):
            raise self._alleles_error(text, n_distinct)
        steps = np.array(text.split(b","))
        index = np.cumsum(steps.astype(np.int64))
        if index[-1] >= n_distinct or (np.diff(index) <= 0).any():
            raise self._alleles_error(text, n_distinct)
        alleles_R[index] = 1
        return alleles_R

    def _alleles_error(self, text: bytes, n_distinct: int) -> InputError:
        if b"." in text:
            return self.error("a missing allele. Fill or remove missing calls first")
        return self.error(
            f"expected an allele of the record for each of the {n_distinct} distinct haplotypes, got "
            f"{quote_start(text)}. Get the file again",
            "damaged",
        )

    def _add_sites(self, sites: SiteList, row: int, fields: list[bytes]) -> bool:
        """Add the sites of a record to a list. Return whether there are any."""
        chrom, position, name, ref, alt = fields[:5]
        accepted = self._accept(self._text(chrom), position)
        if accepted is None:
            return False
        ref_text, alts = self._text(ref), self._text(alt).split(",")
        usable = self._usable_alts(ref_text, alts)
        for number, alt_text in usable:
            sites.add(row, accepted, ref_text, alt_text, self._text(name), number, len(alts))
        return bool(usable)

    def _expand(self, sites: SiteList, rows: list[np.ndarray], block: _Block) -> HaplotypeBlock:
        """Return the haplotypes of sites, whose records have the alleles `rows`, each uint8 (R,)."""
        alleles_XR = np.stack(rows)[sites.row]
        is_alt_XR = alleles_XR == np.array(sites.allele, np.uint8)[:, None]
        alleles_XN = is_alt_XR.view(np.int8)[:, block.distinct_N]
        return HaplotypeBlock(sites.take(self.chrom), alleles_XN, np.array(sites.multiallelic))


def _is_same_record(first: tuple[list[bytes], np.ndarray], second: tuple[list[bytes], np.ndarray]) -> bool:
    """Return whether two records have the same columns and haplotypes."""
    return first[0] == second[0] and bool((first[1] == second[1]).all())
