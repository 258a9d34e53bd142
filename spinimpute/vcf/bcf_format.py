"""Encode and decode parts of the BCF 2.2 format: the start of a file, record headers and typed values.

See section 6.3 of the VCF 4.3 specification. All numbers are little-endian. A *typed value* is stored after a
descriptor: the type and the number of values, usually in one byte. Records refer to contigs and fields by
the indexes that `header.header_indexes` returns.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

BCF_MAGIC = b"BCF\2"

INT8, INT16, INT32, FLOAT, CHAR = 1, 2, 3, 5, 7  # types of values
INTEGER_TYPES = (INT8, INT16, INT32)
SIZES = {INT8: 1, INT16: 2, INT32: 4, FLOAT: 4, CHAR: 1}  # bytes of one value

# "end of vector" (END) pads the values of a sample that has fewer values than other samples
FLOAT_MISSING, FLOAT_END = 0x7F800001, 0x7F800002  # as the bits of a float32
INT8_END, INT16_END = -127, -32767
INT32_MISSING = -(2**31)

MAX_ALTS_IN_BYTE = 62  # ALT alleles of a record whose genotypes have one byte for each allele

PASS = b"\x11\x00"  # encoded FILTER column with the value PASS, whose index is 0

RECORD_LENGTHS = struct.Struct("<2I")  # bytes of the site part (CHROM to INFO) and of the sample part
RECORD_POSITION = struct.Struct("<2I2i")  # both lengths, contig index, 0-based position
RECORD_HEAD = struct.Struct("<2I3i3I")
"""RECORD_POSITION, then: number of bases from POS to END, bits of QUAL, numbers of alleles << 16 | INFO
fields, numbers of FORMAT fields << 24 | samples."""

START_BYTES = 9  # bytes before the header text: magic, minor version, and the length of the header text

_START = BCF_MAGIC + b"\2"
_INTEGERS = {INT8: struct.Struct("<b"), INT16: struct.Struct("<h"), INT32: struct.Struct("<i")}


class BadRecord(Exception):
    """Raised for a record that cannot be read. The message says why."""


class ByteStream(Protocol):
    """A file, or a decompressed stream, that is read from start to end."""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        ...


def file_start(header: bytes) -> bytes:
    """Return the bytes before the first record of a BCF; `header` is the header text with its newlines."""
    return _START + struct.pack("<I", len(header) + 1) + header + b"\0"


def is_bcf(path: Path) -> bool:
    """Return whether a gzip file contains BCF 2.2. Raises OSError, EOFError or zlib.error if unreadable."""
    with gzip.open(path) as file:
        return file.read(len(_START)) == _START


def header_length(start: bytes) -> int:
    """Return the length of the header text, in bytes, from the first START_BYTES of a BCF."""
    return int.from_bytes(start[len(_START) : START_BYTES], "little")


def read_header(stream: ByteStream) -> bytes:
    """Read the header text from the start of a BCF. It is incomplete if the file is truncated."""
    return stream.read(header_length(stream.read(START_BYTES)))


@lru_cache(1_024)
def allele_kind(n_alts: int) -> int:
    """Return the type of the alleles of genotypes at a record with so many ALT alleles."""
    return INT8 if n_alts <= MAX_ALTS_IN_BYTE else INT16


def typed_descriptor(value_type: int, count: int) -> bytes:
    """Encode the type and number of the values that follow. A count above 14 is stored as another integer."""
    if count < 15:
        return bytes([count << 4 | value_type])
    return bytes([0xF0 | value_type]) + typed_integer(count)


def typed_integer(value: int) -> bytes:
    """Encode one integer in the smallest type that holds it. The lowest 8 values of a type are reserved."""
    if -120 <= value < 2**7:
        kind = INT8
    elif -(2**15) + 8 <= value < 2**15:
        kind = INT16
    else:
        kind = INT32
    return bytes([0x10 | kind]) + _INTEGERS[kind].pack(value)


def typed_text(text: str) -> bytes:
    """Encode a string."""
    encoded = text.encode()
    return typed_descriptor(CHAR, len(encoded)) + encoded


def read_descriptor(data: bytes, at: int) -> tuple[int, int, int]:
    """Decode the descriptor at offset `at`. Return type and number of the values, and the first one's offset.

    Raises BadRecord if the number of values is not stored as an integer.
    """
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        count_type = data[at] & 15
        if count_type not in _INTEGERS:
            raise BadRecord("a number of values in it is not an integer")
        count = read_integer(data, at + 1, count_type)
        at += 1 + SIZES[count_type]
    return kind, count, at


def read_integer(data: bytes, at: int, kind: int) -> int:
    """Decode the integer at offset `at`. Raises KeyError if `kind` is not INT8, INT16 or INT32."""
    (value,) = _INTEGERS[kind].unpack_from(data, at)
    return int(value)


def record_start(
    *,
    contig: int,
    position: int,
    length: int,
    name: str,
    ref: str,
    alts: Sequence[str],
    n_info: int,
    info: bytes,
    n_formats: int,
    n_samples: int,
    sample_bytes: int,
) -> bytes:
    """Encode the header and the site part of a record with missing QUAL and with FILTER PASS.

    `contig` is the contig's index and `position` is 1-based, and `length` is the number of bases
    from there to END. An empty `name` is a missing ID. `info` are the
    `n_info` encoded INFO fields. `sample_bytes` is the length of the sample part, which the caller appends.
    """
    rest = b"".join((typed_text(name), typed_text(ref), *map(typed_text, alts), PASS, info))
    head = RECORD_HEAD.pack(
        RECORD_HEAD.size - RECORD_LENGTHS.size + len(rest),
        sample_bytes,
        contig,
        position - 1,
        length,
        FLOAT_MISSING,
        len(alts) + 1 << 16 | n_info,
        n_formats << 24 | n_samples,
    )
    return head + rest
