"""Reader and writer of tables as files: CSV, TSV (both may be gzipped) and Parquet.

Cells of CSV and TSV stay text until `parse_numbers` or `parse_categories` converts their column. So the
categories "007" and "7" differ. Messages count rows from 1, without the header.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from spinimpute.runtime.errors import InputError, repeated, why_no_file
from spinimpute.runtime.packages import check_package
from spinimpute.runtime.unpacking import ENCODING, TooLong, check_unpacked, decompressed_text

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = ".parquet"
MISSING_TEXTS = frozenset(
    ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "NaT"]
)
ROW_NUMBERS = re.compile(r"__index_level_\d+__")  # how pandas names an unnamed index in Parquet
MAX_CELLS = 2**28  # maximum number of cells of a Parquet file; or its size in bytes, if that is larger
MAX_UNPACKED_RATIO = 60  # maximum unpacked size of a gzipped file, divided by its size
MAX_SHARED_TEXTS = 100_000  # number of texts that are stored once for all equal cells, to save memory
MAX_NUMBER = 1e36  # squares and predictions of larger numbers might overflow


def table_suffix(path: str | Path) -> str:
    """Return the suffix of a name in lower case, such as ".csv.gz". Raise InputError if it is unknown."""
    name = Path(path).name.lower()
    for suffix in (*SEPARATORS, PARQUET):
        if name.endswith(suffix):
            return suffix
    raise InputError(
        "argument", f"table {path}: the name must end with one of {', '.join((*SEPARATORS, PARQUET))}"
    )


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table with named columns. Raise InputError if the file is missing or damaged.

    All cells of CSV and TSV are text. Columns of Parquet are numbers or text.
    """
    path = Path(path)
    suffix = table_suffix(path)
    if not path.is_file():
        raise InputError("not-found", f"table {path}: {why_no_file(path)}")
    table = _read_parquet(path) if suffix == PARQUET else _read_text(path, SEPARATORS[suffix])
    _check_names(path, list(table.columns))
    for name in table:
        _check_text(path, table[name])
    if not len(table):
        raise InputError("content", f"table {path}: it has a header and no rows")
    return table


def output_suffix(path: str | Path) -> str:
    """Return the suffix of an output. Raise InputError if it is unknown, or for Parquet without pyarrow."""
    suffix = table_suffix(path)
    if suffix == PARQUET:
        check_package("pyarrow", "Parquet")
    return suffix


def write_table(table: pd.DataFrame, path: Path | IO[str], suffix: str) -> None:
    """Write a table without its index; `suffix` determines the format, whatever the path ends with."""
    if suffix == PARQUET:
        assert isinstance(path, Path)
        table.to_parquet(path, index=False)
        return
    options: dict[str, Any] = {"index": False, "lineterminator": "\n", "sep": SEPARATORS[suffix]}
    if any("\r" in cell for name in table for cell in table[name] if isinstance(cell, str)):
        options["quoting"] = csv.QUOTE_NONNUMERIC  # csv does not quote \r, which would end the line
    if suffix.endswith(".gz"):
        options["compression"] = {"method": "gzip", "mtime": 0}  # without a timestamp
    table.to_csv(path, **options)


def missing_cells(column: pd.Series) -> np.ndarray:
    """Return whether each cell is missing, bool (N,)."""
    if column.dtype.kind in "iuf":
        return np.asarray(column.isna())
    return np.array([cell is None or cell.strip() in MISSING_TEXTS for cell in column], bool)


def is_numeric(column: pd.Series) -> bool:
    """Return whether every cell is a number or missing."""
    values, missing = _parse_cells(column)
    return bool((~np.isnan(values) | missing).all())


def parse_numbers(column: pd.Series, path: str | Path) -> np.ndarray:
    """Convert a column to float64, NaN if missing. Raise InputError for other text or |x| > MAX_NUMBER."""
    values, missing = _parse_cells(column)
    invalid = np.flatnonzero(~missing & ~(np.abs(values) <= MAX_NUMBER))
    if len(invalid):
        problem = "is not a number" if np.isnan(values[invalid[0]]) else f"is not within ±{MAX_NUMBER:g}"
        row, cell = column.index[invalid[0]] + 1, quote(column.iloc[invalid[0]])
        raise InputError("content", f"table {path}: row {row}, column {column.name!r}: {cell} {problem}")
    return values


def parse_categories(column: pd.Series) -> pd.Series:
    """Convert a column to names of categories, None if missing; the name of 1.0 is "1"."""
    cells = zip(column.tolist(), missing_cells(column), strict=True)
    return text_column(None if absent else _category_name(cell) for cell, absent in cells)


def text_column(cells: Iterable[str | None]) -> pd.Series:
    """Make a column of Python objects, because pandas' own type of text cannot hold None."""
    return pd.Series(list(cells), dtype=object)


def quote(cell: object) -> str:
    """Quote a cell for a message, cut to 40 characters."""
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _parse_cells(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells as numbers (NaN if text or missing), and whether each cell is missing."""
    missing = missing_cells(column)
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64, na_value=np.nan), missing
    cells = zip(column, missing, strict=True)
    return np.array([math.nan if absent else _number(cell) for cell, absent in cells], np.float64), missing


def _category_name(cell: object) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _check_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names, 1):
        if any(ord(character) < 32 for character in name):
            raise InputError(
                "content", f"table {path}: the name of column {number} has control characters: {quote(name)}"
            )
    if (duplicate := repeated(names)) is not None:
        raise InputError("content", f"table {path}: two columns are named {duplicate!r}; rename one")


def _check_text(path: Path, column: pd.Series) -> None:
    """Raise InputError for NUL bytes: NumPy drops them at the end of text, which can make two texts equal."""
    if column.dtype.kind != "O" or "\0" not in "".join(cell for cell in column if cell is not None):
        return
    row = next(number for number, cell in enumerate(column, 1) if cell is not None and "\0" in cell)
    raise InputError(
        "content", f"table {path}: row {row}, column {column.name!r}: the cell holds a NUL byte; remove it"
    )


def _read_text(path: Path, separator: str) -> pd.DataFrame:
    with _read_errors_as_input_errors(path):
        if not path.name.lower().endswith(".gz"):
            with path.open(encoding=ENCODING, newline="") as file:
                return _parse_text(path, file, separator)
        with (
            gzip.open(path) as unpacked,
            decompressed_text(unpacked, path.stat().st_size, newline="", times=MAX_UNPACKED_RATIO) as file,
        ):
            return _parse_text(path, file, separator)


def _parse_text(path: Path, file: IO[str], separator: str) -> pd.DataFrame:
    lines = csv.reader(file, delimiter=separator, strict=True)
    try:
        return _parse_lines(path, lines)
    except csv.Error as error:
        raise InputError(
            "content",
            f"table {path}: line {lines.line_num}: {error}. Look for an unclosed quotation mark "
            "there or before.",
        ) from error


def _parse_lines(path: Path, lines: Any) -> pd.DataFrame:
    """Make a table from the lines of a csv.reader."""
    header = next((line for line in lines if line), None)
    if header is None:
        raise InputError("content", f"table {path}: it is empty. Its first line must name the columns.")
    names = [name or f"Unnamed: {number}" for number, name in enumerate(header)]
    _check_names(path, names)
    cells: list[list[str]] = [[] for _ in names]
    shared_texts: dict[str, str] = {}
    rows, blank_line = 0, 0
    for line in lines:
        if not line:
            blank_line = blank_line or lines.line_num
            continue
        if blank_line and len(names) == 1:
            raise InputError(
                "content",
                f'table {path}: line {blank_line} is blank. Write "" where the only column has no value.',
            )
        rows += 1
        if len(line) != len(names):
            raise InputError(
                "content",
                f"table {path}: row {rows} (line {lines.line_num}) has {len(line)} cells, the header has "
                f"{len(names)}",
            )
        for column, cell in zip(cells, line, strict=True):
            if len(shared_texts) < MAX_SHARED_TEXTS:
                shared_texts.setdefault(cell, cell)
            column.append(shared_texts.get(cell, cell))
    return pd.DataFrame({name: text_column(column) for name, column in zip(names, cells, strict=True)})


@contextmanager
def _read_errors_as_input_errors(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into InputError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError("content", f"table {path}: it is not UTF-8 text{_diagnose(path, error)}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("read", f"table {path}: it cannot be read: {error}") from error


def _diagnose(path: Path, error: UnicodeDecodeError) -> str:
    """Describe a file that is not UTF-8, and say what to do."""
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"\x1f\x8b" and not path.name.lower().endswith(".gz"):
        return ". It is gzipped, so its name must end with .gz"
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return ", but UTF-16. Convert it with: iconv -f utf-16 -t utf-8"
    byte = f" (byte 0x{error.object[error.start]:02x})"
    return f"{byte}. Convert it, for example with: iconv -f latin1 -t utf-8"


def _read_parquet(path: Path) -> pd.DataFrame:
    check_package("pyarrow", "Parquet")
    from pyarrow import ArrowException, parquet

    try:
        # partitioning=None: names of folders do not become columns. Without pandas' metadata, no column
        # becomes the index. Nullable types keep integers as integers if some are missing.
        _check_parquet(path, parquet.read_metadata(path))
        content = parquet.read_table(path, partitioning=None).replace_schema_metadata()
        table = content.to_pandas(types_mapper=_integer_types().get)
    except (OSError, ValueError, TypeError, ArrowException) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError("damaged", f"table {path}: it is not a readable Parquet file: {reason}") from error
    keep = [not ROW_NUMBERS.fullmatch(str(name)) for name in table.columns]
    table = table.loc[:, keep]
    table.columns = [str(name) for name in table.columns]
    columns = [table.iloc[:, number] for number in range(table.shape[1])]
    _check_names(path, list(table.columns))
    try:
        return pd.DataFrame({column.name: _column_values(column) for column in columns})
    except UnicodeDecodeError as error:
        raise InputError("content", f"table {path}: a cell is not valid UTF-8") from error


def _check_parquet(path: Path, metadata: Any) -> None:
    """Raise TooLong if a file's metadata declare far more data than the file can hold."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = path.stat().st_size
    check_unpacked(sum(group.total_byte_size for group in groups), size)
    # a column that repeats one value takes almost no bytes in the file, so the number of cells is limited
    if metadata.num_rows * metadata.num_columns > max(MAX_CELLS, size):
        raise TooLong(
            f"its {size:,} bytes hold {metadata.num_rows:,} rows of {metadata.num_columns:,} columns"
        )


def _integer_types() -> dict[Any, Any]:
    """Return the nullable pandas type for each integer type of Parquet."""
    import pyarrow

    names = [f"{prefix}nt{bits}" for prefix in ("I", "UI") for bits in (8, 16, 32, 64)]
    return {getattr(pyarrow, name.lower())(): pd.api.types.pandas_dtype(name) for name in names}


def _column_values(column: pd.Series) -> Any:
    """Return floats, and integers without missing values, unchanged; convert all other columns to text."""
    if isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        if column.dtype.kind in "iu" and not column.isna().any():
            return column.to_numpy(column.dtype.type)
    elif column.dtype.kind in "iuf":
        return column.to_numpy()
    return text_column(
        None if absent else str(cell) for cell, absent in zip(column, column.isna(), strict=True)
    )
