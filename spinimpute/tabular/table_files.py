"""Tables as files: CSV and TSV, gzipped too, and Parquet.

Cells of CSV and TSV remain text until their column is used as numbers or as categories: the categories "007"
and "7" differ. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from spinimpute.runtime.errors import InputError, repeated, why_no_file
from spinimpute.runtime.unpacking import ENCODING, TooLong, check_unpacked, unpacked_text

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = ".parquet"
MISSING_TEXTS = frozenset(
    ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "NaT"]
)
ROW_NUMBERS = re.compile(r"__index_level_\d+__")  # pandas' name for an index without a name
MAX_CELLS = 2**28
MAX_UNPACKED_RATIO = 60  # largest ratio of unpacked to packed size
MAX_SHARED_TEXTS = 100_000  # distinct cells whose text is shared
MAX_NUMBER = 1e36  # neither squares nor predictions overflow


def table_suffix(path: str | Path) -> str:
    """Suffix of a table's name, in lower case, ".gz" included; raises InputError for an unknown one."""
    name = Path(path).name.lower()
    for suffix in (*SEPARATORS, PARQUET):
        if name.endswith(suffix):
            return suffix
    raise InputError(
        "argument", f"table {path}: the name must end with one of {', '.join((*SEPARATORS, PARQUET))}"
    )


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table of named columns; raises InputError if it is missing or damaged.

    Cells of CSV and TSV are text. Columns of Parquet are numbers, or else text.
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
    """Suffix of a table to write; raises InputError if it is unknown, or if Parquet cannot be written."""
    suffix = table_suffix(path)
    if suffix == PARQUET:
        _require_pyarrow()
    return suffix


def write_table(table: pd.DataFrame, path: Path | IO[str], suffix: str) -> None:
    """Write a table without its index, in the format of this suffix, which may differ from the path's."""
    if suffix == PARQUET:
        assert isinstance(path, Path)
        table.to_parquet(path, index=False)
        return
    options: dict[str, Any] = {"index": False, "lineterminator": "\n", "sep": SEPARATORS[suffix]}
    if any("\r" in cell for name in table for cell in table[name] if isinstance(cell, str)):
        options["quoting"] = csv.QUOTE_NONNUMERIC  # the csv module leaves \r unquoted, which ends a line
    if suffix.endswith(".gz"):
        options["compression"] = {"method": "gzip", "mtime": 0}  # same predictions, same bytes
    table.to_csv(path, **options)


def missing_cells(column: pd.Series) -> np.ndarray:
    """Whether each cell is missing, bool (N,)."""
    if column.dtype.kind in "iuf":
        return np.asarray(column.isna())
    return np.array([cell is None or cell.strip() in MISSING_TEXTS for cell in column], bool)


def is_numeric(column: pd.Series) -> bool:
    """Whether every cell is a number or missing."""
    values, missing = _parse_cells(column)
    return bool((~np.isnan(values) | missing).all())


def parse_numbers(column: pd.Series, path: str | Path) -> np.ndarray:
    """Numbers of a column, float64, NaN where missing; raises InputError for text and too large numbers."""
    values, missing = _parse_cells(column)
    invalid = np.flatnonzero(~missing & ~(np.abs(values) <= MAX_NUMBER))
    if len(invalid):
        problem = "is not a number" if np.isnan(values[invalid[0]]) else f"is not within ±{MAX_NUMBER:g}"
        row, cell = column.index[invalid[0]] + 1, quote_cell(column.iloc[invalid[0]])
        raise InputError("content", f"table {path}: row {row}, column {column.name!r}: {cell} {problem}")
    return values


def parse_categories(column: pd.Series) -> pd.Series:
    """Names of categories, None where missing; whole numbers have no decimal point."""
    cells = zip(column.tolist(), missing_cells(column), strict=True)
    return text_column(None if is_missing else _category_name(cell) for cell, is_missing in cells)


def text_column(cells: Iterable[str | None]) -> pd.Series:
    """A column of objects: pandas' own type of text has no None."""
    return pd.Series(list(cells), dtype=object)


def quote_cell(cell: object) -> str:
    """A cell in a message."""
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _parse_cells(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, NaN where there is none, and which cells are missing."""
    missing = missing_cells(column)
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64, na_value=np.nan), missing
    cells = zip(column, missing, strict=True)
    return np.array(
        [math.nan if is_missing else _parse_number(cell) for cell, is_missing in cells], np.float64
    ), missing


def _category_name(cell: object) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _parse_number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _check_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names, 1):
        if any(ord(character) < 32 for character in name):
            raise InputError(
                "content",
                f"table {path}: the name of column {number} has control characters: {quote_cell(name)}",
            )
    if (duplicate := repeated(names)) is not None:
        raise InputError("content", f"table {path}: two columns are named {duplicate!r}; rename one")


def _check_text(path: Path, column: pd.Series) -> None:
    """Refuse NUL bytes: NumPy ends text there, and would confuse two names."""
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
            unpacked_text(unpacked, path.stat().st_size, newline="", times=MAX_UNPACKED_RATIO) as file,
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
    """Parse the lines of a csv.reader."""
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
    """Turn all errors of reading into InputError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(
            "content", f"table {path}: it is not UTF-8 text{_explain_not_utf8(path, error)}"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("read", f"table {path}: it cannot be read: {error}") from error


def _explain_not_utf8(path: Path, error: UnicodeDecodeError) -> str:
    """Explain what a file that is not UTF-8 is, and what to do."""
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"\x1f\x8b" and not path.name.lower().endswith(".gz"):
        return ". It is gzipped, so its name must end with .gz"
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return ", but UTF-16. Convert it with: iconv -f utf-16 -t utf-8"
    byte = f" (byte 0x{error.object[error.start]:02x})"
    return f"{byte}. Convert it, for example with: iconv -f latin1 -t utf-8"


def _require_pyarrow() -> None:
    try:
        import_module("pyarrow")
    except ImportError as error:
        raise InputError("package", "Parquet needs pyarrow: pip install pyarrow") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    _require_pyarrow()
    from pyarrow import ArrowException, parquet

    try:
        # names of folders are not columns; integers stay integers where some are missing; pandas' metadata,
        # for instance that a column is the index, are ignored
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
    """Raise TooLong if the lengths in a file's metadata are far larger than the file."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = path.stat().st_size
    check_unpacked(sum(group.total_byte_size for group in groups), size)
    # a column of one value takes no bytes in the file
    if metadata.num_rows * metadata.num_columns > max(MAX_CELLS, size):
        raise TooLong(
            f"its {size:,} bytes hold {metadata.num_rows:,} rows of {metadata.num_columns:,} columns"
        )


def _integer_types() -> dict[Any, Any]:
    """pandas' types with missing values for Parquet's integers."""
    import pyarrow

    names = [f"{prefix}nt{bits}" for prefix in ("I", "UI") for bits in (8, 16, 32, 64)]
    return {getattr(pyarrow, name.lower())(): pd.api.types.pandas_dtype(name) for name in names}


def _column_values(column: pd.Series) -> Any:
    """Floating-point numbers and integers without missing values unchanged; everything else as CSV's text."""
    if isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        if column.dtype.kind in "iu" and not column.isna().any():
            return column.to_numpy(column.dtype.type)
    elif column.dtype.kind in "iuf":
        return column.to_numpy()
    return text_column(
        None if is_missing else str(cell) for cell, is_missing in zip(column, column.isna(), strict=True)
    )
