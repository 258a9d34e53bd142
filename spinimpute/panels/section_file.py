"""A file of named, compressed and checksummed sections, and of many small parts that are read one by one.

Layout (little endian):

    preamble   16 bytes of magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    parts      LZMA2 streams, one behind the other
    sections   LZMA2 streams; one of them is the table of the parts: u64 offset, u32 length, u32 CRC of each
    header     JSON: what the owner of the format wants to say, and offset, length and CRC of every section

The header is last because parts are written as they come, and the preamble is written when all else is: a
file that was cut off anywhere is never taken for a whole one.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import mmap
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spinimpute.errors import InputError

MAGIC_BYTES = 16
_PREAMBLE = struct.Struct(f"<{MAGIC_BYTES}sIIQQQ")
_CRC = struct.Struct("<I")
_PARTS = "parts"
_PART = np.dtype([("offset", "<u8"), ("nbytes", "<u4"), ("crc", "<u4")])
# what is compressed are bytes without any alignment; parts are small, so is the dictionary
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**20, "pb": 0}]


class FileKind(NamedTuple):
    """magic: 16 bytes; version: the newest that is read here; name: for messages; remedy: how to get one."""

    magic: bytes
    version: int
    name: str
    remedy: str


def compress(content: bytes) -> bytes:
    return lzma.compress(content, lzma.FORMAT_RAW, filters=_FILTERS)


class SectionWriter:
    """Writes to a file that is open for writing; see `SectionFile` for reading.

    `finish` makes the file valid. The checksum covers everything but the header's free entries.
    """

    def __init__(self, file: BinaryIO, kind: FileKind) -> None:
        self._file, self._kind = file, kind
        self._sections: dict[str, dict[str, int]] = {}
        self._parts: list[tuple[int, int, int]] = []
        self._hash = hashlib.sha256(kind.magic)
        file.write(b"\0" * (_PREAMBLE.size + _CRC.size))

    def add_part(self, compressed: bytes) -> None:
        """Append a part: what `compress` gave, so that parts can be compressed in threads."""
        self._parts.append((self._file.tell(), len(compressed), zlib.crc32(compressed)))
        self._hash.update(compressed)
        self._file.write(compressed)

    def add_section(self, name: str, content: bytes) -> None:
        compressed = compress(content)
        self._sections[name] = {
            "offset": self._file.tell(),
            "nbytes": len(compressed),
            "crc": zlib.crc32(compressed),
        }
        self._hash.update(name.encode() + compressed)
        self._file.write(compressed)

    def finish(self, identity: dict[str, Any], more: dict[str, Any]) -> None:
        """Write the table of parts, the header (identity, more, checksum) and the preamble.

        identity: JSON entries that the checksum covers; more: those that it does not.
        """
        self.add_section(_PARTS, np.array(self._parts, dtype=_PART).tobytes())
        self._hash.update(json.dumps(identity, sort_keys=True).encode())
        header = identity | more | {"checksum": self._hash.hexdigest(), "sections": self._sections}
        encoded = json.dumps(header, sort_keys=True, ensure_ascii=False).encode()
        offset = self._file.tell()
        self._file.write(encoded)
        preamble = _PREAMBLE.pack(
            self._kind.magic, self._kind.version, zlib.crc32(encoded), offset, len(encoded), self._file.tell()
        )
        self._file.seek(0)
        self._file.write(preamble + _CRC.pack(zlib.crc32(preamble)))


class SectionFile:
    """An opened file; header: its JSON. Parts and sections are read, checked and kept by nobody here.

    Raises InputError if the file is of another kind, truncated, damaged, or made by a newer version: for
    the preamble, the header and the table of parts now, for the rest when it is read.
    """

    def __init__(self, path: str | Path, kind: FileKind) -> None:
        self.path, self.kind = Path(path), kind
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(0)
                offset, length, crc = self._read_preamble(file.read(_PREAMBLE.size + _CRC.size), size)
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"{kind.name} {path}: cannot be opened: {error.strerror}") from error
        try:
            encoded = self._content[offset : offset + length]
            if zlib.crc32(encoded) != crc:
                raise self.damaged("header")
            self.header: dict[str, Any] = json.loads(encoded)
            self._table = np.frombuffer(self.section(_PARTS), dtype=_PART)
        except BaseException:
            self._content.close()
            raise

    def close(self) -> None:
        self._content.close()

    def __enter__(self) -> SectionFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def n_parts(self) -> int:
        return len(self._table)

    def part(self, number: int) -> bytes:
        """A part's content; several threads may read at the same time."""
        row = self._table[number]
        return self._read(
            int(row["offset"]), int(row["nbytes"]), int(row["crc"]), f"part {number + 1} of {self.n_parts}"
        )

    def section(self, name: str) -> bytes:
        place = self.header["sections"][name]
        return self._read(place["offset"], place["nbytes"], place["crc"], f"section {name}")

    def damaged(self, what: str) -> InputError:
        return InputError(
            f"{self.kind.name} {self.path}: damaged: the {what} does not match its checksum. "
            "Make or copy it again"
        )

    def _read(self, offset: int, nbytes: int, crc: int, what: str) -> bytes:
        if self._content.closed:
            raise ValueError(f"{self.kind.name} {self.path} is closed")
        stored = self._content[offset : offset + nbytes]
        if zlib.crc32(stored) != crc:
            raise self.damaged(what)
        return lzma.decompress(stored, lzma.FORMAT_RAW, filters=_FILTERS)

    def _read_preamble(self, preamble: bytes, size: int) -> tuple[int, int, int]:
        """Offset, length and CRC of the header."""
        kind, path = self.kind, self.path
        if not preamble.startswith(kind.magic):
            raise InputError(
                f"{path}: not a spinimpute {kind.name} (it starts with {preamble[:16]!r}); {kind.remedy}"
            )
        if len(preamble) < _PREAMBLE.size + _CRC.size:
            raise InputError(f"{kind.name} {path}: truncated: {size} bytes, less than any has. Copy it again")
        _, version, crc, offset, length, total = _PREAMBLE.unpack_from(preamble)
        if zlib.crc32(preamble[: _PREAMBLE.size]) != _CRC.unpack_from(preamble, _PREAMBLE.size)[0]:
            raise self.damaged("preamble")
        if version > kind.version:
            raise InputError(
                f"{kind.name} {path}: made by a newer version of spinimpute (file version {version}, this "
                f"one reads {kind.version}). Update spinimpute"
            )
        if size != total:
            what = "truncated" if size < total else "damaged"
            raise InputError(
                f"{kind.name} {path}: {what}: {size} bytes, the file says {total}. Copy it again"
            )
        return offset, length, crc
