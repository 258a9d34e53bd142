"""The BCF 2.2 format: typed values, record heads, and the start of a file.

VCF specification 4.3, section 6.3. All numbers are little endian. `header_indexes` numbers the names.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Protocol

BCF_MAGIC = b"BCF\2"

INT8, INT16, INT32, FLOAT, CHAR = 1, 2, 3, 5, 7  # types of values
SIZES = {INT8: 1, INT16: 2, INT32: 4, FLOAT: 4, CHAR: 1}  # bytes of one value

# "end of vector" fills up lists that are shorter than those of other samples
FLOAT_MISSING, FLOAT_END = 0x7F800001, 0x7F800002  # bits of a float
INT8_END = -127

PASS = b"\x11\x00"  # FILTER with the name number 0 alone

RECORD_LENGTHS = struct.Struct("<2I")  # bytes of what all samples share, and of the samples' values
RECORD_POSITION = struct.Struct("<2I2i")  # the lengths, number of the contig, 0-based position
RECORD_HEAD = struct.Struct("<2I3i3I")
"""Lengths and place, bases of REF, bits of QUAL, counts of alleles and INFO, counts of FORMAT and samples."""

START_BYTES = 9  # before the header: magic, minor version, and the length of the header

_START = BCF_MAGIC + b"\2"
_INTEGERS = {INT8: struct.Struct("<b"), INT16: struct.Struct("<h"), INT32: struct.Struct("<i")}


class BadRecord(Exception):
    """A record cannot be read; the message says why."""


class ByteStream(Protocol):
    """A source of bytes that are read in order."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes; fewer only at the end."""
        ...


def file_start(header: bytes) -> bytes:
    """Magic, version, length and header of a BCF; `header` is the header's lines with their newlines."""
    return _START + struct.pack("<I", len(header) + 1) + header + b"\0"


def is_bcf(path: Path) -> bool:
    """Whether a gzip file is a BCF 2.2. Raises OSError, EOFError or zlib.error if it cannot be read."""
    with gzip.open(path) as file:
        return file.read(len(_START)) == _START


def header_length(start: bytes) -> int:
    """Length in bytes of the header, from the first START_BYTES of a file."""
    return int.from_bytes(start[len(_START) : START_BYTES], "little")


def read_header(stream: ByteStream) -> bytes:
    """Read the header from the start of a BCF; shorter than the file states if the file is truncated."""
    return stream.read(header_length(stream.read(START_BYTES)))


def typed_descriptor(value_type: int, count: int) -> bytes:
    """Encode the type and number of the values that follow; a count above 14 needs an integer of its own."""
    if count < 15:
        return bytes([count << 4 | value_type])
    return bytes([0xF0 | value_type]) + typed_integer(count)


def typed_integer(value: int) -> bytes:
    """Encode one integer in as few bytes as it needs; the lowest eight values of each width are reserved."""
    if -120 <= value < 2**7:
        kind = INT8
    elif -(2**15) + 8 <= value < 2**15:
        kind = INT16
    else:
        kind = INT32
    return bytes([0x10 | kind]) + _INTEGERS[kind].pack(value)


def typed_text(text: str) -> bytes:
    """Encode a text."""
    encoded = text.encode()
    return typed_descriptor(CHAR, len(encoded)) + encoded


def read_descriptor(data: bytes, at: int) -> tuple[int, int, int]:
    """Decode the descriptor at `at`: type and number of the values, and the offset of the first value.

    Raises BadRecord if the number is not an integer.
    """
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        size = data[at] & 15
        if size not in _INTEGERS:
            raise BadRecord("a length in it is not an integer")
        count = read_integer(data, at + 1, size)
        at += 1 + SIZES[size]
    return kind, count, at


def read_integer(data: bytes, at: int, kind: int) -> int:
    """Decode the integer at `at`; `kind` is INT8, INT16 or INT32, other types raise KeyError."""
    (value,) = _INTEGERS[kind].unpack_from(data, at)
    return int(value)


def record_start(
    *,
    contig: int,
    position: int,
    name: str,
    ref: str,
    alt: str,
    n_info: int,
    info: bytes,
    n_formats: int,
    n_samples: int,
    sample_bytes: int,
) -> bytes:
    """Encode a biallelic record up to the values of its samples; QUAL is missing, FILTER is PASS.

    `contig` is the contig's number, `position` is 1-based, an empty `name` is a missing ID, `info` holds the
    `n_info` encoded INFO fields, and `sample_bytes` is the length of the values that follow.
    """
    rest = b"".join((typed_text(name), typed_text(ref), typed_text(alt), PASS, info))
    head = RECORD_HEAD.pack(
        RECORD_HEAD.size - RECORD_LENGTHS.size + len(rest),
        sample_bytes,
        contig,
        position - 1,
        len(ref),
        FLOAT_MISSING,
        2 << 16 | n_info,
        n_formats << 24 | n_samples,
    )
    return head + rest
