"""Reading of compressed files within bounds, so that a small file cannot fill the memory or take forever.

Compression reduces genotypes, maps and chains to a fifth or a twentieth. A file that expands far more is
damaged or malicious.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

GZIP_MAGIC = b"\x1f\x8b"
"""How every gzip file starts, in blocks or not."""

ENCODING = "utf-8-sig"
MAX_LINE = 2**20
MAX_RECORD = 2**26
MAX_EMPTY_LINES = 2**16
_MIN_LIMIT = 2**27
_MAX_RATIO = 100
_READ_BYTES = 2**16


class TooLong(OSError):
    """The content exceeds the bound in the message."""


def check_unpacked(unpacked: int, packed: int, times: int = _MAX_RATIO, least: int | None = None) -> None:
    """Raise TooLong if compressed bytes expand by more than a factor, and to more than `least` bytes."""
    most = max(_MIN_LIMIT if least is None else least, times * packed)
    if unpacked > most:
        raise TooLong(f"its {packed:,} bytes unpack to more than {most:,}")


def gunzip(content: bytes, times: int = _MAX_RATIO, least: int | None = None) -> bytes:
    """Return the content of a file, decompressed if it is gzip."""
    if not content.startswith(GZIP_MAGIC):
        return content
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while piece := file.read(_READ_BYTES):
            unpacked += piece
            check_unpacked(len(unpacked), len(content), times, least)
    return bytes(unpacked)


def open_text(path: Path, errors: str = "strict", newline: str | None = None) -> TextIO:
    """Open a UTF-8 text file, plain or gzip by its first bytes."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    if not packed:
        return path.open(encoding=ENCODING, errors=errors, newline=newline)
    return decompressed_text(gzip.GzipFile(path), path.stat().st_size, errors, newline)


def decompressed_text(
    unpacked: IO[bytes] | gzip.GzipFile,
    packed: int,
    errors: str = "strict",
    newline: str | None = None,
    times: int = _MAX_RATIO,
) -> TextIO:
    """A text file that is decompressed while it is read."""
    bounded = _Bounded(unpacked, packed, times)
    return io.TextIOWrapper(io.BufferedReader(bounded), ENCODING, errors, newline)


def text_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a text. Raises TooLong for a line that is too long to be text."""
    number = n_empty = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        n_empty = n_empty + 1 if line == "\n" else 0
        if n_empty > MAX_EMPTY_LINES:
            raise TooLong(f"line {number} is the last of {n_empty:,} empty lines")
        if len(line) > MAX_LINE:
            raise TooLong(f"line {number} has more than {MAX_LINE:,} letters")
        yield line


class _Bounded(io.RawIOBase):
    def __init__(self, unpacked: IO[bytes] | gzip.GzipFile, packed: int, times: int) -> None:
        self._unpacked, self._packed, self._times = unpacked, packed, times
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._unpacked.read(len(buffer))
        self._n_read += len(content)
        check_unpacked(self._n_read, self._packed, self._times)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._unpacked.close()
        super().close()
