"""The binary form of BCF 2.2: typed values, the heads of records, and where the header stands.

VCF specification 4.3, section 6.3. All numbers are little endian. How names are numbered: `header_numbers`.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Protocol

BCF_MAGIC = b"BCF\2"
"""How every BCF 2 file starts."""

INT8, INT16, INT32, FLOAT, CHAR = 1, 2, 3, 5, 7
"""Types of values."""

SIZES = {INT8: 1, INT16: 2, INT32: 4, FLOAT: 4, CHAR: 1}
"""Bytes of a value of each type."""

FLOAT_MISSING, FLOAT_END = 0x7F800001, 0x7F800002
"""Bits of a float that is missing, and of one that a shorter list of values lacks."""

INT8_END = -127
"""An integer that a shorter list of values lacks."""

PASS = b"\x11\x00"
"""FILTER of a record: the name number 0 alone."""

RECORD_LENGTHS = struct.Struct("<2I")
"""Before each record: bytes of what all samples share, and of the values of the samples."""

RECORD_PLACE = struct.Struct("<2I2i")
"""The beginning of a record: its lengths, number of the contig, 0-based position."""

RECORD_HEAD = struct.Struct("<2I3i3I")
"""The place, letters of REF, bits of QUAL, counts of alleles and INFO, counts of FORMAT and samples."""

START_BYTES = 9
"""Before the header: magic, minor version, and how many bytes the header takes."""

_START = BCF_MAGIC + b"\2"
_INTEGERS = {INT8: struct.Struct("<b"), INT16: struct.Struct("<h"), INT32: struct.Struct("<i")}


class BadRecord(Exception):
    """A record cannot be read; the message says why."""


class ByteStream(Protocol):
    """What bytes can be read from, one after the other."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes; fewer only at the end."""
        ...


def file_start(header: bytes) -> bytes:
    """What a file begins with.

    Parameters
    ----------
    header : bytes
        The header's lines, each with its newline.

    Returns
    -------
    bytes
        Magic, minor version, length and header.
    """
    return _START + struct.pack("<I", len(header) + 1) + header + b"\0"


def is_bcf(path: Path) -> bool:
    """Whether a compressed file is a BCF 2.2.

    Parameters
    ----------
    path : Path
        A gzip or BGZF file.

    Returns
    -------
    bool
        False for a file of other content.

    Raises
    ------
    OSError, EOFError, zlib.error
        The file cannot be read.
    """
    with gzip.open(path) as file:
        return file.read(len(_START)) == _START


def header_length(start: bytes) -> int:
    """Bytes of the header that follows the first START_BYTES of a file."""
    return int.from_bytes(start[len(_START) : START_BYTES], "little")


def read_header(stream: ByteStream) -> bytes:
    """The header of a BCF that is read from its beginning; shorter than the file says if that is cut."""
    return stream.read(header_length(stream.read(START_BYTES)))


def typed_descriptor(value_type: int, count: int) -> bytes:
    """The type and number of the values that follow; a count above 14 needs an integer of its own."""
    if count < 15:
        return bytes([count << 4 | value_type])
    return bytes([0xF0 | value_type]) + typed_integer(count)


def typed_integer(value: int) -> bytes:
    """One integer, in as few bytes as it needs."""
    # The lowest eight values of each width are reserved.
    if -120 <= value < 2**7:
        kind = INT8
    elif -(2**15) + 8 <= value < 2**15:
        kind = INT16
    else:
        kind = INT32
    return bytes([0x10 | kind]) + _INTEGERS[kind].pack(value)


def typed_float(value: float) -> bytes:
    """One float."""
    return struct.pack("<Bf", 0x10 | FLOAT, value)


def typed_text(text: str) -> bytes:
    """A text."""
    encoded = text.encode()
    return typed_descriptor(CHAR, len(encoded)) + encoded


def read_descriptor(data: bytes, at: int) -> tuple[int, int, int]:
    """What is described at a place of a record.

    Parameters
    ----------
    data : bytes
        Records.
    at : int
        Where the descriptor begins.

    Returns
    -------
    kind, count, begin : int
        Type and number of the values, and where they begin.

    Raises
    ------
    BadRecord
        The number of values is not an integer.
    """
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        size = data[at] & 15
        if size not in _INTEGERS:
            raise BadRecord("a length in it is no integer")
        count = read_integer(data, at + 1, size)
        at += 1 + SIZES[size]
    return kind, count, at


def read_integer(data: bytes, at: int, kind: int) -> int:
    """One integer of a record.

    Parameters
    ----------
    data : bytes
        Records.
    at : int
        Where the integer begins.
    kind : int
        INT8, INT16 or INT32.

    Returns
    -------
    int
        Its value.

    Raises
    ------
    KeyError
        The type is another one.
    """
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
    """A biallelic record up to the values of its samples; QUAL is missing, FILTER is PASS.

    Parameters
    ----------
    contig, position : int
        Number of the contig, 1-based position.
    name, ref, alt : str
        ID ("" where there is none) and the alleles.
    n_info, info : int, bytes
        How many INFO fields there are, and these.
    n_formats, n_samples, sample_bytes : int
        How many FORMAT fields and samples there are, and how many bytes they take.
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
