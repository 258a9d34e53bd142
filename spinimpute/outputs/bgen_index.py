"""The index of a BGEN file: FILE.bgen.bgi, an SQLite database with the tables that bgenix writes and reads.

The table Variant has a row for each record, and Metadata describes the BGEN file. bgenix compares only its
size and its first bytes, so the file may be renamed. We write 0 for both times, so that equal outputs have
equal indexes.
"""

import errno
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FIRST_BYTES = 1_000  # bytes of the BGEN file that the index contains
_TABLES = """
CREATE TABLE Metadata (
  filename TEXT NOT NULL,
  file_size INT NOT NULL,
  last_write_time INT NOT NULL,
  first_1000_bytes BLOB NOT NULL,
  index_creation_time INT NOT NULL
);
CREATE TABLE Variant (
  chromosome TEXT NOT NULL,
  position INT NOT NULL,
  rsid TEXT NOT NULL,
  number_of_alleles INT NOT NULL,
  allele1 TEXT NOT NULL,
  allele2 TEXT NULL,
  file_start_position INT NOT NULL,
  size_in_bytes INT NOT NULL,
  PRIMARY KEY (chromosome, position, rsid, allele1, allele2, file_start_position)
) WITHOUT ROWID;
"""

IndexRow = tuple[str, int, str, str, str, int, int]
"""A record: chromosome, position, ID, REF, ALT, its first byte in the file, and its number of bytes."""


class BgenIndex:
    """Writer of an index into an empty file. All methods raise OSError if it cannot be written."""

    def __init__(self, path: Path) -> None:
        with _os_errors(path):
            # The file is temporary and locked by its creator: it needs no lock and no journal of SQLite.
            uri = f"{path.absolute().as_uri()}?nolock=1"
            self._database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._path = path
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(_TABLES)
            self._database.execute("BEGIN")

    def append(self, rows: Iterable[IndexRow]) -> None:
        """Append records of the BGEN file."""
        with _os_errors(self._path):
            self._database.executemany("INSERT INTO Variant VALUES (?, ?, ?, 2, ?, ?, ?, ?)", rows)

    def finish(self, bgen: Path, name: str) -> None:
        """Describe the complete BGEN file, which will be called `name`, and close the index."""
        with bgen.open("rb") as file:
            first_bytes = file.read(_FIRST_BYTES)
        with _os_errors(self._path):
            row = (name, bgen.stat().st_size, 0, first_bytes, 0)
            self._database.execute("INSERT INTO Metadata VALUES (?, ?, ?, ?, ?)", row)
            self._database.execute("COMMIT")
        self.close()

    def close(self) -> None:
        """Close the database, complete or not."""
        with _os_errors(self._path):
            self._database.close()


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to OSError."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"SQLite: {error}", str(path)) from error
