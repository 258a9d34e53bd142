"""Read compressed files with a limit on their decompressed size, against "zip bombs".

Genotypes, genetic maps and chain files usually compress by a factor of 5 to 20. A file of more than 128 MiB
that expands by more than a factor of 100 is damaged or malicious. Reading it raises TooLong.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, TextIO

GZIP_MAGIC = b"\x1f\x8b"  # first bytes of every gzip file, including BGZF (block gzip)
ENCODING = "utf-8-sig"  # UTF-8, with or without a byte-order mark
MAX_LINE = 2**20  # characters of a line of text
MAX_RECORD = 2**26  # bytes of a VCF or BCF record or header
MAX_EMPTY_LINES = 2**16  # consecutive empty lines
_MIN_LIMIT = 2**27  # bytes; decompressed size that is always accepted
_MAX_RATIO = 100  # decompressed size / compressed size
_READ_BYTES = 2**16  # bytes to decompress in one step


class TooLong(OSError):
    """A decompressed file, or a line, is longer than allowed."""


def why_unreadable(error: Exception) -> str:
    """Return why a text file cannot be read, for messages, and what to do if it is not valid UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8. Save it as UTF-8 text"
    return f"it cannot be read ({getattr(error, 'strerror', None) or error})"


def check_unpacked(
    unpacked_bytes: int, packed_bytes: int, times: int = _MAX_RATIO, always_allowed: int | None = None
) -> None:
    """Raise TooLong for more bytes than `times` * `packed_bytes` and `always_allowed` (default: 128 MiB)."""
    most = max(_MIN_LIMIT if always_allowed is None else always_allowed, times * packed_bytes)
    if unpacked_bytes > most:
        raise TooLong(f"{packed_bytes:,} compressed bytes unpack to more than {most:,} bytes")


def gunzip(content: bytes, times: int = _MAX_RATIO, always_allowed: int | None = None) -> bytes:
    """Return a file's content, decompressed if it is gzip. Other parameters: see `check_unpacked`."""
    if not content.startswith(GZIP_MAGIC):
        return content
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while piece := file.read(_READ_BYTES):
            unpacked += piece
            check_unpacked(len(unpacked), len(content), times, always_allowed)
    return bytes(unpacked)


def open_unpacked(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file, plain or gzip, to read its decompressed bytes, without a limit on their number."""
    with path.open("rb") as file:
        is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.GzipFile(path) if is_gzip else path.open("rb")


def open_text(path: Path, errors: str = "strict", newline: str | None = None) -> TextIO:
    """Open a UTF-8 text file, plain or gzip. The first bytes decide which it is."""
    stream = open_unpacked(path)
    if isinstance(stream, gzip.GzipFile):
        return decompressed_text(stream, path.stat().st_size, errors, newline)
    return io.TextIOWrapper(stream, ENCODING, errors, newline)


def decompressed_text(
    stream: IO[bytes] | gzip.GzipFile,
    packed_bytes: int,
    errors: str = "strict",
    newline: str | None = None,
    times: int = _MAX_RATIO,
) -> TextIO:
    """Return a text file over a stream of decompressed bytes. `packed_bytes` is the compressed size.

    Reading raises TooLong if the stream expands by more than the factor `times`.
    """
    bounded = _Bounded(stream, packed_bytes, times)
    return io.TextIOWrapper(io.BufferedReader(bounded), ENCODING, errors, newline)


def text_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a text. Raise TooLong for an overlong line or too many consecutive empty lines."""
    number = n_empty = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        n_empty = n_empty + 1 if line == "\n" else 0
        if n_empty > MAX_EMPTY_LINES:
            raise TooLong(f"more than {MAX_EMPTY_LINES:,} empty lines in a row, up to line {number:,}")
        if len(line) > MAX_LINE:
            raise TooLong(f"line {number} has more than {MAX_LINE:,} characters")
        yield line


class _Bounded(io.RawIOBase):
    """A stream of decompressed bytes that calls `check_unpacked` while it is read."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, packed_bytes: int, times: int) -> None:
        self._stream, self._packed_bytes, self._times = stream, packed_bytes, times
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._stream.read(len(buffer))
        self._n_read += len(content)
        check_unpacked(self._n_read, self._packed_bytes, self._times)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()
