"""Read tab-separated tables with a header line, plain or gzip."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from spinimpute.runtime.errors import InputError, why_no_file
from spinimpute.runtime.unpacking import open_text, text_lines, why_unreadable


class TextTable:
    """A tab-separated table. `what` describes it in messages, such as "table of labels".

    The names of columns are not case-sensitive. Empty lines are skipped. Before the header, lines that begin
    with "#" are skipped, too. The header itself may begin with "#". Quotes around a whole value are removed.
    """

    def __init__(self, path: str | Path, what: str) -> None:
        self.path, self._what = Path(path), what

    def error(self, text: str, line: int | None = None) -> InputError:
        """Return the error for a defect of the table, in a line or of the whole table."""
        where = "" if line is None else f", line {line}"
        return InputError("content", f"{self._what} {self.path}{where}: {text}")

    def rows(self, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the values of the columns of each row.

        Other columns are ignored. The values of `optional` columns follow; they are empty if the table lacks
        the column. The header is the first line with the name of the first of the columns, or without "#".
        Raises InputError if the table cannot be read, lacks a column, or has a row that is too short.
        """
        if not self.path.is_file():  # a pipe can be opened only once
            raise InputError("not-found", f"{self._what} {self.path}: {why_no_file(self.path)}")
        try:
            with open_text(self.path, newline="") as file:
                reader = csv.reader(text_lines(file), delimiter="\t", quoting=csv.QUOTE_NONE)
                header = next((names for fields in reader if (names := _header(fields, columns[0]))), [])
                if not reader.line_num:
                    raise self.error("the file is empty")
                if absent := [name for name in columns if name not in header]:
                    raise self.error(
                        f"it has no column {', '.join(absent)}. It must be tab-separated, with a header line "
                        f"and the columns {', '.join(columns)}"
                    )
                indices = [header.index(name) if name in header else None for name in (*columns, *optional)]
                for fields in reader:
                    if not any(map(str.strip, fields)):
                        continue
                    if len(fields) <= max(index for index in indices if index is not None):
                        raise self.error(f"{len(fields)} columns, expected {len(header)}", reader.line_num)
                    yield reader.line_num, ["" if i is None else _unquoted(fields[i]) for i in indices]
        except (OSError, UnicodeError, csv.Error, EOFError) as error:
            raise InputError("read", f"{self._what} {self.path}: {why_unreadable(error)}") from error


def _header(fields: Sequence[str], first_column: str) -> list[str]:
    """Return the names of the columns, or an empty list for an empty line or a comment."""
    names = [_unquoted(name).lower() for name in fields]
    if not any(names):
        return []
    is_comment = names[0].startswith("#")
    names[0] = names[0].removeprefix("#").strip()
    return [] if is_comment and first_column not in names else names


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1].strip() if len(value) > 1 and value[0] == value[-1] == '"' else value
