"""The choice of the records to write, and the table of all sites that is written beside them.

Axes: r records, n samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.bgen_writer import BgenWriter
from spinimpute.outputs.plink_writer import PlinkWriter
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import CannotWrite, OutputGroup, check_writable
from spinimpute.runtime.partial_files import PartialFile
from spinimpute.vcf.bgzf import BgzfWriter
from spinimpute.vcf.header import OutputHeader
from spinimpute.vcf.multiallelic import record_intervals
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.record_fields import InfoColumns, info_columns
from spinimpute.vcf.writer import GenotypeWriter

FILTER_LINE = "##spinimpute_filter="  # followed by the filters of the records
TABLE_SUFFIX = ".sites.tsv.gz"
_INFO = ("AF", "MAF", "AVG_CS", "R2", "ER2")
TABLE_COLUMNS = ("CHROM", "POS", "ID", "REF", "ALT", *_INFO, "TYPED")


@dataclass(frozen=True)
class RecordFilter:
    """The smallest R2 and MAF of the records to write, as they are rounded in INFO.

    `min_r2` applies to imputed sites only: the genotypes of typed sites were measured. `min_maf` applies to
    all sites. Raises InputError unless `min_r2` is between 0 and 1 and `min_maf` between 0 and 0.5.
    """

    min_r2: float = 0.0
    min_maf: float = 0.0

    def __post_init__(self) -> None:
        for name, value, most in (("min_r2", self.min_r2, 1), ("min_maf", self.min_maf, 0.5)):
            if not 0 <= value <= most:
                raise InputError("argument", f"{argument(name)} must be between 0 and {most}, got {value}")

    def __bool__(self) -> bool:
        return self.min_r2 > 0 or self.min_maf > 0

    @property
    def header_lines(self) -> list[str]:
        """The header line that lists the filters; none without filters."""
        limits = {"R2": self.min_r2, "MAF": self.min_maf}
        texts = [f"{name}>={limit:g}" for name, limit in limits.items() if limit > 0]
        return [FILTER_LINE + ",".join(texts)] if texts else []

    def keeps(self, columns: InfoColumns, typed: np.ndarray) -> np.ndarray:
        """Return whether each record is written, bool (r,). `columns` are the texts of its INFO fields."""
        kept = np.ones(len(typed), bool)
        if self.min_r2 > 0:
            kept &= typed | (_numbers(columns["R2"]) >= self.min_r2)
        if self.min_maf > 0:
            kept &= _numbers(columns["MAF"]) >= self.min_maf
        return kept


NO_FILTER = RecordFilter()


def _numbers(texts: list[str | None]) -> np.ndarray:
    return np.array([np.nan if text is None else float(text) for text in texts])


def any_of_record(flag: np.ndarray, records: Sequence[Interval]) -> np.ndarray:
    """Return for each row whether any row of its record has a flag, bool (r,)."""
    starts, counts = [rows.start for rows in records], [rows.n_sites for rows in records]
    return np.repeat(np.logical_or.reduceat(flag, starts), counts) if len(flag) else flag


def filtered_merge_error() -> InputError:
    """Return the error for an output that is to be filtered, and to be merged later."""
    limits = f"{argument('min_r2')} and {argument('min_maf')}"
    return InputError(
        "arguments",
        f"{argument('mergeable', True)}: files with filters cannot be merged, because merging changes R2 and "
        f"MAF. Give {limits} when you merge all files",
    )


def check_table_name(path: str | Path) -> None:
    """Raise InputError unless the name of a table of sites ends with .gz."""
    if not str(path).endswith(".gz"):
        raise InputError(
            "argument", f"{path}: the table of sites is compressed. Give a name that ends with .tsv.gz"
        )


class SiteTableWriter:
    """A table with one line for each record: TABLE_COLUMNS, tab-separated and compressed with bgzip.

    It is one of the files of `output` and gets its name together with them. Raises InputError if it cannot be
    written.
    """

    def __init__(self, path: Path, output: OutputGroup) -> None:
        """Open the table, and write the names of the columns."""
        self._path, self._output = path, output
        with self._convert_errors():
            check_writable(path)
            output.files.append(PartialFile(path))
            self._file = output.files[-1].path.open("wb")
            self._bgzf: BgzfWriter | None = BgzfWriter(self._file)
            self._bgzf.write(("\t".join(TABLE_COLUMNS) + "\n").encode())

    def append(self, chrom: str, sites: Sites, columns: InfoColumns) -> None:
        """Append records. `columns` are the texts of their INFO fields."""
        absent: list[str | None] = [None] * len(sites)
        info = [[value or "NA" for value in columns.get(key, absent)] for key in _INFO]
        typed = ["0" if flag is None else "1" for flag in columns["TYPED"]]
        positions = map(str, sites.position.tolist())
        names = [name or "." for name in sites.id]
        rows = zip([chrom] * len(sites), positions, names, sites.ref, sites.alt, *info, typed, strict=True)
        assert self._bgzf is not None, "the table is not finished"
        with self._convert_errors():
            self._bgzf.write("".join("\t".join(row) + "\n" for row in rows).encode())

    def finish(self) -> None:
        """Write the end of the table. A second call does nothing."""
        if self._bgzf is not None:
            with self._convert_errors():
                self._bgzf.finish()
                self._file.close()
            self._bgzf = None

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Remove all files of the output if the `with` block fails. Name the table in write errors."""
        with self._output.convert_errors():
            try:
                yield
            except OSError as error:
                raise CannotWrite(self._path, error) from error

    def drop(self) -> None:
        """Close the table without finishing it."""
        with suppress(OSError):
            self._file.close()


class SelectingWriter:
    """A context manager that passes the records of a filter to another writer, and lists all in a table.

    The `SiteTableWriter` also has the records that the filter leaves out. It has a line for each ALT allele
    of a record. A multi-allelic record is written if the filter keeps any of its ALT alleles.

    Attributes
    ----------
    writer : GenotypeWriter, PlinkWriter or BgenWriter
        Writer of the selected records.
    temporary_folder : Path
        Folder for scratch files.
    left_out : int
        Number of sites that were not written.
    """

    def __init__(
        self,
        writer: GenotypeWriter | PlinkWriter | BgenWriter,
        header: OutputHeader,
        record_filter: RecordFilter,
        table: Path | None = None,
    ) -> None:
        """Open the table. Raises InputError if it cannot be written."""
        self.writer, self._header, self._filter = writer, header, record_filter
        self.temporary_folder, self.left_out = writer.temporary_folder, 0
        self._table = None if table is None else SiteTableWriter(table, writer)

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the samples in the following blocks. It differs between the parts of X."""
        self.writer.set_ploidy(ploidy)

    def write_block(self, block: RecordBlock) -> None:
        """Write those records that the filter keeps. Raises the errors of `GenotypeWriter.write_block`."""
        typed = np.asarray(block.typed, bool)
        records = None if block.continues is None else record_intervals(block.continues)
        if records is not None:
            typed = any_of_record(typed, records)
        columns = info_columns(self._header, block.info, typed)
        if self._table is not None:
            self._table.append(block.chrom, block.sites, columns)
        kept = self._filter.keeps(columns, typed)
        if records is not None:
            kept = any_of_record(kept, records)
        rows = np.flatnonzero(kept)
        self.left_out += len(block) - len(rows)
        if len(rows):
            self.writer.write_block(block.take(rows))

    def finish(self) -> None:
        """Write the end of each file. The files keep their temporary names until `close`."""
        if self._table is not None:
            self._table.finish()
        self.writer.finish()

    def close(self) -> None:
        """Finish the files and rename them. A second call does nothing."""
        self.finish()
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        if self._table is not None:
            self._table.drop()
        self.writer.abandon()
