"""Read the lines of a panel's text file, plain or gzip, with their numbers for messages."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spinimpute.runtime.errors import Code, InputError, why_no_file
from spinimpute.runtime.unpacking import MAX_RECORD, open_unpacked
from spinimpute.vcf.bgzf import EOF_BLOCK, starts_as_bgzf

_BUFFER_BYTES = 2**18


class TextLines:
    """The lines of a text file, as bytes.

    `number` is the number of the last line that was read, from 1. Raises InputError if the file cannot be
    read, is truncated or damaged, or has a line of more than `max_bytes` bytes.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_RECORD) -> None:
        self.path, self.max_bytes, self.number = path, max_bytes, 0
        if not path.is_file():
            raise self.error(why_no_file(path), "not-found")
        with self._convert_errors():
            self._check_end()
            stream = open_unpacked(path)
            # GzipFile reads lines slowly
            self._stream = (
                io.BufferedReader(stream, _BUFFER_BYTES) if isinstance(stream, gzip.GzipFile) else stream
            )

    def error(self, what: str, code: Code = "content", line: int | None = None) -> InputError:
        """Return the error for a defect of a line, by default the last line that was read."""
        line = self.number if line is None else line
        where = f", line {line}" if line else ""
        return InputError(code, f"panel {self.path}{where}: {what}")

    def read_line(self) -> bytes:
        r"""Return the next line, with "\n" at its end; b"" at the end of the file."""
        with self._convert_errors():
            line = self._stream.readline(self.max_bytes + 1)
        if not line:
            return line
        self.number += 1
        if self.number == 1:
            line = line.removeprefix(BOM_UTF8)
        if not line.endswith(b"\n"):
            if len(line) > self.max_bytes:
                raise self.error(f"the line is longer than {self.max_bytes:,} bytes", "damaged")
            raise self.error(
                "the file is truncated: its last line has no newline. Get the file again; if it is complete, "
                "add a newline",
                "damaged",
            )
        return line

    def read_lines(self, n: int) -> list[bytes]:
        """Return the next `n` lines, or fewer at the end of the file."""
        lines: list[bytes] = []
        while len(lines) < n and (line := self.read_line()):
            lines.append(line)
        return lines

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _check_end(self) -> None:
        """Raise InputError if the file is empty, or a BGZF file without its last block."""
        with self.path.open("rb") as file:
            head = file.read(14)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(EOF_BLOCK), 0))
            tail = file.read()
        if not head:
            raise self.error("the file is empty", "damaged")
        if starts_as_bgzf(head) and tail != EOF_BLOCK:
            raise self.error(
                "the file is truncated: the block that ends a BGZF file is missing. Copy the file again",
                "damaged",
            )

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.error(f"the compressed file is damaged ({error}). Get it again", "damaged") from error
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}", "read") from error
