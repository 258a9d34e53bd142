"""Read the haplotypes of IMPUTE and SHAPEIT: files .hap, .legend and .sample.

A line of the .hap file has the alleles of a site, 0 or 1, separated by spaces: two columns for each sample.
On chromosome X the second column of a male is "-", or each male has only one column; the .sample file then
shows who is male. The line of the .legend file with the same number, after the header, has ID, position and
the alleles 0 and 1. Further columns are ignored.

Axes: X sites, C columns of the .hap file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.genotypes.ploidy import is_male
from spinimpute.genotypes.sites import Region, is_position, same_chromosome
from spinimpute.panels.formats.text_lines import TextLines
from spinimpute.panels.formats.text_panel import SiteList, TextPanelReader, choose_rows, quote_start
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import MAX_LINE
from spinimpute.vcf.reader import HaplotypeBlock, check_samples

# first words of the header of a .sample file, in lower case
_SAMPLE_HEADERS = ("id", "id_1", "id1", "sample", "sample_id", "sampleid", "iid", "name")
_SECOND_NAMES = ("id_2", "id2")  # in files of Oxford format, the second column has the sample's name
_SEX_HEADERS = ("sex", "gender")
_LEGEND_COLUMNS = 4
_SPACE, _NEWLINE, _ABSENT = b" \n-"
_MISSING = b".?"


@dataclass(frozen=True)
class HapLegend:
    """The files of a panel in the format of IMPUTE and SHAPEIT, plain or gzip.

    Attributes
    ----------
    hap : str or Path
        Haplotypes: a line per site, two columns per sample.
    legend : str or Path
        Sites: a header, then ID, position and the alleles 0 and 1 of each site.
    sample : str or Path
        Samples: a header, then a line per sample.
    chrom : str
        Name of the chromosome, which the files do not contain.
    """

    hap: str | Path
    legend: str | Path
    sample: str | Path
    chrom: str


class HapLegendReader(TextPanelReader):
    """Reader of the haplotypes of IMPUTE. See `TextPanelReader`."""

    def __init__(self, files: HapLegend, region: Region | None, samples: Sequence[str] | None) -> None:
        hap, legend, sample = Path(files.hap), Path(files.legend), Path(files.sample)
        if region is not None and not same_chromosome(files.chrom, region.chrom):
            raise InputError(
                "arguments", f"the region {region} is not on chromosome {files.chrom}. Give one of the two"
            )
        with closing(TextLines(sample, MAX_LINE)) as lines:
            super().__init__(lines, region)
            self._names, self._males = self._read_samples()
            self.samples, self._chosen = self._names, samples
            if samples is not None:
                check_samples(self, samples)
        n_samples, most_bytes = len(self._names), MAX_LINE + 64 * len(self._names)
        with closing(TextLines(hap, most_bytes)) as lines:
            self._n_columns = len(lines.read_line().split())
            if self._n_columns not in (2 * n_samples, 2 * n_samples - sum(self._males)):
                raise lines.error(
                    f"expected {2 * n_samples} columns for the {n_samples} samples of {sample}, got "
                    f"{self._n_columns}. Give the .sample file that belongs to these haplotypes"
                )
        self._is_absent_C: np.ndarray | None = None  # see `_find_absent`
        self._chrom = files.chrom
        self._lines = TextLines(legend)
        with self.closing_on_error():
            self._read_legend_header()
            self._hap = TextLines(hap, most_bytes)

    def close(self) -> None:
        """Close the files. They close themselves after the last batch and after an error."""
        super().close()
        if hasattr(self, "_hap"):
            self._hap.close()

    def _read_samples(self) -> tuple[list[str], list[bool]]:
        """Return the names of the samples, and which of them are male."""
        header = self._text(self._lines.read_line()).lower().split()
        if not header or header[0] not in _SAMPLE_HEADERS:
            raise self.error(
                "expected a header, such as 'sample population group sex', got "
                f"{quote_start(' '.join(header).encode())}. Insert one"
            )
        name_column = int(len(header) > 1 and header[1] in _SECOND_NAMES)
        sex_column = next((i for i, word in enumerate(header) if word in _SEX_HEADERS), None)
        names: list[str] = []
        males: list[bool] = []
        while line := self._lines.read_line():
            words = self._text(line).split()
            if self._lines.number == 2 and name_column and words[:2] == ["0", "0"]:
                continue  # types of the columns
            if len(words) <= max(name_column, sex_column or 0):
                raise self.error(f"expected {len(header)} columns as in the header, got {len(words)}")
            names.append(words[name_column])
            males.append(sex_column is not None and bool(is_male(words[sex_column])))
        if not names:
            raise self.error("the file has no samples")
        self._check_names(names)
        return names, males

    def _read_legend_header(self) -> None:
        line = self._lines.read_line()
        words = line.split()
        if len(words) < _LEGEND_COLUMNS or is_position(words[1]):
            raise self.error(
                f"expected a header, such as 'id position a0 a1', got {quote_start(line)}. Give the .legend "
                "file of the panel, or insert a header"
            )

    def _blocks(self) -> Iterator[HaplotypeBlock]:
        most_rows = choose_rows(self._n_columns)
        n_rows = most_rows
        with closing(self):
            while n_rows == most_rows:
                n_rows, sites = self._read_sites(most_rows)
                lines = self._hap.read_lines(n_rows)
                if len(lines) < n_rows:
                    raise self._count_error("fewer")
                if sites.row:
                    yield self._expand(sites, lines)
            if self._hap.read_line():
                raise self._count_error("more")

    def _read_sites(self, most_rows: int) -> tuple[int, SiteList]:
        """Read lines of the legend. Return their number, and the sites to read."""
        sites = SiteList()
        for row in range(most_rows):
            if not (line := self._lines.read_line()):
                return row, sites
            words = line.split(None, _LEGEND_COLUMNS)
            if len(words) < _LEGEND_COLUMNS:
                raise self.error(
                    f"expected ID, position and two alleles, got {quote_start(line)}. Correct the line"
                )
            name, _, ref, alt = map(self._text, words[:_LEGEND_COLUMNS])
            accepted = self._accept(self._chrom, words[1])
            if accepted is not None and self._usable_alts(ref, [alt]):
                sites.add(row, accepted, ref, alt, name, 1, 1)
        return most_rows, sites

    def _count_error(self, what: str) -> InputError:
        return InputError(
            "mismatch",
            f"panel {self._hap.path}: it has {what} lines than {self._lines.path} has sites. Give files that "
            "belong together, or get them again",
        )

    def _expand(self, sites: SiteList, lines: list[bytes]) -> HaplotypeBlock:
        chars_XC = self._split_columns(lines)[sites.row]
        if self._is_absent_C is None:
            self._is_absent_C = self._find_absent(chars_XC[0])
        is_wrong_XC = (chars_XC | 1) != ord("1")
        if (is_wrong_XC != self._is_absent_C).any() or (chars_XC[:, self._is_absent_C] != _ABSENT).any():
            raise self._allele_error(chars_XC, self._hap.number - len(lines) + 1 + np.array(sites.row))
        alleles_XN = (chars_XC & 1).view(np.int8)
        if not np.array_equal(self._column_N, np.arange(self._n_columns)):
            alleles_XN = alleles_XN[:, self._column_N]
        return HaplotypeBlock(sites.take(self._chrom), alleles_XN, np.array(sites.multiallelic))

    def _find_absent(self, first_C: np.ndarray) -> np.ndarray:
        """Return which columns have "-" for the second allele of a haploid sample, bool (C,).

        `first_C` are the columns of the first site. Also set the ploidy of the samples.
        """
        is_absent_C = np.zeros(self._n_columns, bool)
        if self._n_columns == 2 * len(self._names):
            is_absent_C[1::2] = first_C[1::2] == _ABSENT
            ploidy = [2 - is_absent for is_absent in is_absent_C[1::2].tolist()]
        else:
            ploidy = [2 - is_male for is_male in self._males]
        self._choose_samples(self._names, ploidy, self._chosen)
        self._column_N = np.flatnonzero(~is_absent_C)[self._column_N]
        return is_absent_C

    def _split_columns(self, lines: list[bytes]) -> np.ndarray:
        """Return the columns of lines, which have one character each, uint8 (X, C)."""
        joined = np.frombuffer(b"".join(lines), np.uint8)
        if len(joined) == len(lines) * 2 * self._n_columns:
            chars_XC2 = joined.reshape(len(lines), self._n_columns, 2)
            if (chars_XC2[:, :-1, 1] == _SPACE).all() and (chars_XC2[:, -1, 1] == _NEWLINE).all():
                return chars_XC2[:, :, 0]
        rows = []
        for number, line in enumerate(lines, self._hap.number - len(lines) + 1):
            words = line.split()
            if len(words) != self._n_columns:
                raise self._hap.error(
                    f"expected {self._n_columns} columns as in the first line, got {len(words)}", line=number
                )
            if longer := [word for word in words if len(word) > 1]:
                raise self._hap.error(
                    f"expected alleles 0 and 1, got {quote_start(longer[0])}. Phase the file first, or "
                    "correct the line",
                    line=number,
                )
            rows.append(b"".join(words))
        return np.frombuffer(b"".join(rows), np.uint8).reshape(len(lines), self._n_columns)

    def _allele_error(self, chars_XC: np.ndarray, line_X: np.ndarray) -> InputError:
        """Return the error for the first wrong allele. `line_X` are the numbers of the lines."""
        is_wrong_XC = (chars_XC | 1) != ord("1")
        is_wrong_XC[:, self._is_absent_C] = chars_XC[:, self._is_absent_C] != _ABSENT
        row, column = map(int, np.unravel_index(int(np.argmax(is_wrong_XC)), is_wrong_XC.shape))
        char = int(chars_XC[row, column])
        assert self._is_absent_C is not None
        if self._is_absent_C[column] or char == _ABSENT:
            what = (
                "has '-' in some lines and an allele in others. Choose a region with one ploidy "
                f"({argument('region')})"
            )
        elif char in _MISSING:
            what = "has a missing allele. Fill or remove missing alleles first"
        else:
            what = f"has {chr(char)!r}, but alleles are 0 and 1. Correct the line"
        return self._hap.error(f"column {column + 1} {what}", line=int(line_X[row]))
