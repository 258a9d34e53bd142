"""What the readers of panels in text formats have in common: samples, sites, and the checks of records.

The readers have the interface of `vcf_reading.BatchReader` and give the same batches as a VCF of the same
haplotypes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from spinimpute.genotypes.sites import (
    AT_POSITION_0,
    BEYOND_LAST,
    LAST_POSITION,
    NoRecord,
    Region,
    Sites,
    chromosome_names,
    is_position,
    unusable_alt,
    unusable_ref,
)
from spinimpute.genotypes.structural import SPANNED
from spinimpute.panels.formats.text_lines import TextLines
from spinimpute.panels.vcf_reading import SiteBatch, encode_batches
from spinimpute.runtime.errors import Code, InputError, argument, repeated
from spinimpute.vcf.reader import BLOCK_BYTES, HaplotypeBlock


class SiteList:
    """Sites that wait for their haplotypes, and the row of the file's alleles that each one has."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.allele: list[int] = []  # number of the ALT within its record, from 1
        self.multiallelic: list[bool] = []
        self._position: list[int] = []
        self._ref: list[str] = []
        self._alt: list[str] = []
        self._id: list[str] = []

    def add(self, row: int, position: int, ref: str, alt: str, name: str, allele: int, n_alts: int) -> None:
        """Add a site."""
        self.row.append(row)
        self.allele.append(allele)
        self.multiallelic.append(n_alts > 1)
        self._position.append(position)
        self._ref.append(ref)
        self._alt.append(alt)
        self._id.append(name or ".")

    def take(self, chrom: str) -> Sites:
        """Return the sites."""
        return Sites(chrom, np.array(self._position, np.int64), self._ref, self._alt, self._id)


class TextPanelReader(ABC):
    """Reader of a panel in a text format, with the attributes and the method `batches` of `BatchReader`.

    Raises InputError for the defects for which `BatchReader` raises it.
    """

    def __init__(self, lines: TextLines, region: Region | None) -> None:
        self.chrom = ""  # known after the first record
        self.contig_lines: dict[str, str] = {}  # the "##contig" lines of the header, by chromosome
        self.samples: list[str] = []
        self.ploidy = np.empty(0, np.uint8)
        self.skipped: Counter[str] = Counter()
        self._lines, self._region = lines, region
        self._last_position = 0
        self._is_wanted: dict[str, bool] = {}  # by the name of a chromosome
        self._column_N = np.empty(0, np.int64)  # the haplotypes to read, by their number in the file

    @property
    def contig_line(self) -> str:
        """The chromosome's header line. It is available after the first batch."""
        return self.contig_lines.get(self.chrom, f"##contig=<ID={self.chrom}>")

    def error(self, what: str, code: Code = "content") -> InputError:
        """Return the error for a defect of the file."""
        return self._lines.error(what, code)

    def batches(self) -> Iterator[SiteBatch]:
        """Yield all batches. This works only once."""
        n_batches = 0
        for batch in encode_batches(self._blocks(), self.skipped, self):
            n_batches += 1
            yield batch
        if not n_batches:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
            where = f" in {self._region}" if self._region else ""
            message = f"panel {self._lines.path}: no usable record{where}"
            raise NoRecord("content", f"{message} ({reasons})" if reasons else message)

    def close(self) -> None:
        """Close the file. It closes itself after the last batch and after an error."""
        self._lines.close()

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Close the file if the `with` block fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _blocks(self) -> Iterator[HaplotypeBlock]:
        """Yield the haplotypes of the chosen samples and region, in file order."""

    def _check_names(self, names: Sequence[str]) -> None:
        """Raise InputError if two samples have the same name."""
        if (duplicate := repeated(names)) is not None:
            raise self.error(f"two samples are named {duplicate}. Rename one of them")

    def _choose_samples(self, names: list[str], ploidy: Sequence[int], chosen: Sequence[str] | None) -> None:
        """Set `samples` and `ploidy`, and find the haplotypes of the chosen samples, which must exist."""
        first = dict(zip(names, np.cumsum([0, *ploidy]).tolist(), strict=False))
        count = dict(zip(names, ploidy, strict=True))
        self.samples = names if chosen is None else list(chosen)
        self.ploidy = np.array([count[name] for name in self.samples], np.uint8)
        self._column_N = np.concatenate(
            [np.arange(first[name], first[name] + count[name]) for name in self.samples]
        )

    def _accept(self, chrom: str, position: bytes) -> int | None:
        """Return the position of a record that is to be read; None if the record is skipped.

        Raises InputError if the position is not a number or goes backwards, or the chromosome changes.
        """
        if not is_position(position):
            raise self.error(f"the position {quote_start(position)} is not a whole number")
        if self._region is not None:
            if not self._is_on_region(chrom):
                return None
        elif self.chrom and chrom != self.chrom:
            raise self.error(
                f"the chromosome is {chrom}, but {self.chrom} before. Choose one with {argument('region')}"
            )
        number = int(position)
        if number > LAST_POSITION:
            self.skipped[BEYOND_LAST] += 1
            return None
        if number == 0:
            self.skipped[AT_POSITION_0] += 1
            return None
        self.chrom = self.chrom or chrom
        if number < self._last_position:
            raise self.error(
                f"the positions go backwards, {number} after {self._last_position}. Sort the panel by "
                "position"
            )
        self._last_position = number
        if self._region is not None and not self._region.start <= number <= self._region.end:
            return None
        return number

    def _is_on_region(self, chrom: str) -> bool:
        """Return whether a chromosome's name stands for that of the region, if there is one."""
        if chrom not in self._is_wanted:
            region = self._region
            self._is_wanted[chrom] = region is None or bool(chromosome_names(region.chrom, [chrom]))
        return self._is_wanted[chrom]

    def _usable_alts(self, ref: str, alts: Sequence[str]) -> list[tuple[int, str]]:
        """Return (number from 1, ALT) of the ALT alleles that can be used. Count the others in `skipped`.

        Symbolic alleles cannot be used: these files do not have their END.
        """
        usable = []
        for number, alt in enumerate(alts, 1):
            is_usable = alt == SPANNED and len(alts) > 1
            if reason := (not is_usable and unusable_alt(alt)) or unusable_ref(ref, alt):
                self.skipped[reason] += 1
            else:
                usable.append((number, alt))
        return usable

    def _text(self, value: bytes) -> str:
        """Return a name or an allele as text. Raises InputError if it is not valid UTF-8."""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise self.error(
                f"{quote_start(value)} is not valid UTF-8. Is the file damaged?", "damaged"
            ) from error


def choose_rows(n_haplotypes: int) -> int:
    """Return the maximum number of records to keep in memory together."""
    return min(max(BLOCK_BYTES // n_haplotypes, 16), 4096)


def quote_start(value: bytes) -> str:
    """Quote the start of a word for a message."""
    return repr(value[:40].decode(errors="replace"))
