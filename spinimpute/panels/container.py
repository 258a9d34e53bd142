"""The container of all panel files: named sections and small blocks, each with its checksum.

Layout (little endian):

    preamble   magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    blocks     for kinds with blocks: many small contents, one after the other
    sections   each at a multiple of the kind's alignment: uncompressed for memory maps, or as LZMA2 streams.
               Kinds with blocks have their table in the last section: u64 offset, u32 length, u32 CRC of each
    header     JSON: the entries of the kind, and offset, length and CRC of every section

The header comes last because blocks and sections are written as they are computed, in one pass and little
memory. The preamble is written when everything else is complete, so that no truncated file seems valid.

A file that joins several files of one kind has the layout

    ranges     magic, u32 number of files, u64 start and u64 size of each, u32 CRC of all before
    files      each a whole file as above, at a multiple of 64 bytes

`FileKind` describes a kind of file. Reading returns the content that was written or raises InputError:
preamble, header, and bounds of sections and blocks are checked when the file is opened, a section or block
when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import mmap
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spinimpute.panels.file_kind import CRC, FileKind, is_line
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.unpacking import TooLong, check_unpacked

_BLOCK_TABLE = "parts"  # name of the section
_BLOCK = np.dtype([("offset", "<u8"), ("nbytes", "<u4"), ("crc", "<u4")])
# the contents are unaligned bytes (pb=0); blocks are small, and so is the dictionary
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**20, "pb": 0}]

_COUNT = struct.Struct("<I")
_FILE_RANGE = struct.Struct("<QQ")
_MAX_JOINED = 3
_DECOMPRESS_BYTES = 2**22
_JOINED_ALIGNMENT = 64


def compress(content: bytes) -> bytes:
    """Compress a content as files of compressed kinds store it."""
    return lzma.compress(content, lzma.FORMAT_RAW, filters=_FILTERS)


def _decompress(stored: bytes) -> bytes:
    """Undo `compress`. Raises lzma.LZMAError, or TooLong."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
    content = bytearray()
    while not stream.eof and (data := stream.decompress(b"" if content else stored, _DECOMPRESS_BYTES)):
        content += data
        check_unpacked(len(content), len(stored))
    if not stream.eof or stream.unused_data:
        raise lzma.LZMAError("its stream has a wrong length")
    return bytes(content)


class ContainerWriter:
    """Writes blocks and sections as they come; `finish` makes the file valid.

    file: empty, open for writing. Attribute `checksum`: SHA-256 of blocks, sections and identifying entries.
    """

    def __init__(self, file: BinaryIO, kind: FileKind) -> None:
        self._file, self._kind = file, kind
        self._sections: dict[str, dict[str, int]] = {}
        self._blocks: list[tuple[int, int, int]] = []
        self.checksum = hashlib.sha256(kind.checksum_seed)
        file.write(b"\0" * kind.preamble_bytes)  # the file is invalid until `finish`

    def add_block(self, stored: bytes) -> None:
        """Append a block, which `compress` has compressed if the kind is compressed (threads can do that)."""
        self._blocks.append((self._file.tell(), len(stored), zlib.crc32(stored)))
        self.checksum.update(stored)
        self._file.write(stored)

    def add_section(self, name: str, content: bytes, *, in_checksum: bool = True) -> None:
        """Append a section, which is compressed here if the kind is; the checksum of the file may omit it."""
        stored = compress(content) if self._kind.compressed else content
        if in_checksum:
            self.checksum.update(name.encode() + stored)
        self.start_section(name)
        self.extend_section(name, stored)

    def start_section(self, name: str) -> None:
        """Start a section that is written in several steps and is not in the checksum."""
        self._sections[name] = {"offset": self._align(), "nbytes": 0, "crc": 0}

    def extend_section(self, name: str, stored: bytes) -> None:
        """Append to the section that was started last."""
        section = self._sections[name]
        section["nbytes"] += len(stored)
        section["crc"] = zlib.crc32(stored, section["crc"])
        self._file.write(stored)

    def finish(self, identity: dict[str, Any], other_entries: dict[str, Any]) -> None:
        """Write the table of blocks, the header and the preamble.

        The header has the entries of `identity`, which the checksum covers, and of `other_entries`.
        """
        if self._kind.has_blocks:
            self.add_section(_BLOCK_TABLE, np.array(self._blocks, dtype=_BLOCK).tobytes())
        self.checksum.update(json.dumps(identity, sort_keys=True).encode())
        header = (
            identity | other_entries | {"checksum": self.checksum.hexdigest(), "sections": self._sections}
        )
        # the name of a file may hold bytes that are not UTF-8
        encoded = json.dumps(header, sort_keys=True, ensure_ascii=False).encode(errors="replace")
        offset = self._align()
        self._file.write(encoded)
        preamble = self._kind.preamble.pack(
            self._kind.magic, self._kind.version, zlib.crc32(encoded), offset, len(encoded), self._file.tell()
        )
        self._file.seek(0)
        self._file.write(preamble + CRC.pack(zlib.crc32(preamble)))

    def _align(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % self._kind.alignment))
        return self._file.tell()


class ByteRange(NamedTuple):
    """Bytes of a file, counted from its start, and their CRC."""

    offset: int
    nbytes: int
    crc: int


class Container:
    """An open file, read through a memory map, by several threads if need be.

    start, size: the bytes of the file that are the container, see `read_joined_ranges`; by default all.
    Attributes: `header`, its entries, validated by the kind; `version` of the file; `checksum`, computed when
    the file was written; `sections`, their byte ranges. Raises InputError if the file cannot be opened, is of
    another kind or version, truncated or damaged, or joins several containers.
    """

    def __init__(self, path: str | Path, kind: FileKind, start: int = 0, size: int | None = None) -> None:
        self.path, self.kind, self._start = Path(path), kind, start
        try:
            with self.path.open("rb") as file:
                self._size = file.seek(0, os.SEEK_END) - start if size is None else size
                file.seek(start)
                self.version, header_range = self._read_preamble(file.read(kind.preamble_bytes))
                self._content: mmap.mmap | None = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError("read", f"{kind.name} {path}: cannot be opened: {error.strerror}") from error
        self._name_in_log = f"{kind.name} {path}"
        opened("mapped", self._name_in_log)
        try:
            self.sections: dict[str, ByteRange] = {}
            self._views: dict[str, np.ndarray] = {}
            header = self._read_header(header_range)
            self.checksum: str = header["checksum"]
            self.header = {name: header[name] for name in kind.fields}
            self._blocks = self._read_block_table() if kind.has_blocks else np.empty(0, dtype=_BLOCK)
            if kind.check is not None:
                kind.check(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the file. Arrays of `view` stay valid and keep the map open."""
        if self._content is not None:
            self._views.clear()
            # the caller may still have arrays of the map, which then keep it open
            with contextlib.suppress(BufferError):
                self._content.close()
            self._content = None
            closed("mapped", self._name_in_log)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def map(self) -> mmap.mmap:
        """The memory map of the whole file. Raises ValueError if the file is closed."""
        if self._content is None:
            raise ValueError(f"{self._name_in_log} is closed")
        return self._content

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def block(self, number: int) -> bytes:
        """The content of a block, 0-based. Raises InputError if it is damaged."""
        at = ByteRange(*self._blocks[number].tolist())
        return self._read(at, f"block {number + 1} of {self.n_blocks}", self.kind.compressed)

    def section(self, name: str) -> bytes:
        """The content of a section. Raises InputError if it is damaged."""
        return self._read(self.sections[name], f"section {name}", self.kind.compressed)

    def view(self, name: str) -> np.ndarray:
        """A section as it is stored, uint8 (nbytes,), read-only, unchecked, and not in memory yet."""
        content = self.map
        if name not in self._views:
            at = self.sections[name]
            self._views[name] = np.frombuffer(content, np.uint8, at.nbytes, self._start + at.offset)
        return self._views[name]

    def require(self, fits: bool, what: str) -> None:
        """Raise InputError, for a damaged file, unless a condition holds; `what` is wrong if it does not."""
        if not fits:
            raise self.kind.damaged(self.path, what)

    @contextmanager
    def decoding(self, what: str) -> Iterator[None]:
        """Turn errors of decoding a content with a correct checksum into InputError."""
        _ = self.map  # ValueError if it is closed, which is the caller's mistake
        try:
            yield
        except (ValueError, struct.error, lzma.LZMAError, TooLong) as error:
            raise self.kind.damaged(self.path, f"the {what} cannot be read ({error})") from error

    def _read(self, at: ByteRange, what: str, compressed: bool) -> bytes:
        start = self._start + at.offset
        stored = self.map[start : start + at.nbytes]
        self.require(zlib.crc32(stored) == at.crc, f"the {what} does not match its checksum")
        if not compressed:
            return stored
        with self.decoding(what):
            return _decompress(stored)

    def _read_preamble(self, preamble: bytes) -> tuple[int, ByteRange]:
        """The version of the file, and the byte range of its header."""
        kind, path = self.kind, self.path
        if kind.joined_magic and preamble.startswith(kind.joined_magic):
            raise InputError("argument", f"{kind.name} {path}: {kind.joined_remedy()}")
        for magic, what in kind.confused_with.items():
            if preamble.startswith(magic):
                raise InputError("content", f"{path}: this is {what()}")
        if not preamble.startswith(kind.magic):
            raise InputError(
                "content",
                f"{path}: not a spinimpute {kind.name} (it starts with {preamble[:16]!r}). {kind.remedy()}",
            )
        if len(preamble) < kind.preamble_bytes:
            raise InputError("damaged", f"{kind.name} {path}: truncated: {self._size} bytes. Copy it again")
        _, version, crc, offset, length, total = kind.preamble.unpack_from(preamble)
        (crc_of_preamble,) = CRC.unpack_from(preamble, kind.preamble.size)
        is_whole = zlib.crc32(preamble[: kind.preamble.size]) == crc_of_preamble
        self.require(is_whole, "the preamble does not match its checksum")
        if version > kind.version:
            raise InputError(
                "content",
                f"{kind.name} {path}: made by a newer version of spinimpute (file version {version}, this "
                f"one reads {kind.version}). Update spinimpute",
            )
        if 1 <= version < kind.version and version not in kind.older_versions:
            raise InputError(
                "content",
                f"{kind.name} {path}: made by an earlier version of spinimpute (file version {version}, this "
                f"one reads {kind.version}). {kind.remedy()}",
            )
        if self._size != total:
            raise kind.wrong_size(path, self._size, total)
        is_inside = kind.preamble_bytes <= offset <= self._size - length
        self.require(version >= 1 and is_inside, "its preamble is invalid")
        return version, ByteRange(offset, length, crc)

    def _read_header(self, at: ByteRange) -> dict[str, Any]:
        """The header; checks its entries, and fills `sections`."""
        try:
            header = json.loads(self._read(at, "header", compressed=False))
            json.dumps(header, ensure_ascii=False).encode()  # JSON can hold half of a surrogate pair
        except (ValueError, RecursionError) as error:
            raise self.kind.damaged(self.path, "the header is not JSON in UTF-8") from error
        self.require(isinstance(header, dict), "the header is not a JSON object")
        for name in ("checksum", "sections", *self.kind.fields):
            self.require(name in header, f"the header has no entry {name!r}")
        fits = {"checksum": is_line(header["checksum"]), "sections": isinstance(header["sections"], dict)}
        fits |= {name: is_valid(header[name]) for name, is_valid in self.kind.fields.items()}
        for name, is_right in fits.items():
            self.require(is_right, f"the header's entry {name!r} is invalid")
        for name in (*self.kind.sections, *([_BLOCK_TABLE] if self.kind.has_blocks else [])):
            self.require(name in header["sections"], f"it has no section {name!r}")
        least = self.kind.preamble_bytes
        for name, section in header["sections"].items():
            numbers = [section.get(key) for key in ByteRange._fields] if isinstance(section, dict) else [None]
            self.require(all(type(number) is int for number in numbers), f"section {name!r} has no offset")
            found = self.sections[name] = ByteRange(*numbers)
            is_inside = found.nbytes >= 0 and least <= found.offset <= self._size - found.nbytes
            self.require(is_inside, f"section {name!r} lies outside of the file")
        return header

    def _read_block_table(self) -> np.ndarray:
        table = self.section(_BLOCK_TABLE)
        self.require(len(table) % _BLOCK.itemsize == 0, "the table of blocks has an incomplete row")
        blocks = np.frombuffer(table, dtype=_BLOCK)
        offset, nbytes = blocks["offset"], blocks["nbytes"].astype(np.uint64)
        size = np.uint64(self._size)
        inside = (
            (offset >= self.kind.preamble_bytes)
            & (offset <= size)
            & (nbytes <= size - np.minimum(offset, size))
        )
        self.require(bool(inside.all()), "a block lies outside of the file")
        return blocks


def join_files(paths: Sequence[Path], out: Path, kind: FileKind) -> None:
    """Write one file that joins several files of a kind, at most three, in this order."""
    head = len(kind.joined_magic) + _COUNT.size + len(paths) * _FILE_RANGE.size + CRC.size
    start = head + -head % _JOINED_ALIGNMENT
    ranges = b""
    for path in paths:
        size = path.stat().st_size
        ranges += _FILE_RANGE.pack(start, size)
        start += size + -size % _JOINED_ALIGNMENT
    written = kind.joined_magic + _COUNT.pack(len(paths)) + ranges
    with out.open("wb") as file:
        file.write(written + CRC.pack(zlib.crc32(written)))
        for path in paths:
            file.write(b"\0" * (-file.tell() % _JOINED_ALIGNMENT))
            with path.open("rb") as one:
                shutil.copyfileobj(one, file)
        file.flush()
        os.fsync(file.fileno())


def read_joined_ranges(path: Path, kind: FileKind) -> list[tuple[int, int]] | None:
    """Start and size of each file in a joined file, for `Container`; None if the file is not a joined file.

    Raises InputError if the file is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(len(kind.joined_magic) + _COUNT.size + _MAX_JOINED * _FILE_RANGE.size + CRC.size)
    except OSError:
        return None  # opening it as one file gives the reason
    if not head.startswith(kind.joined_magic):
        return None
    mismatch = kind.damaged(path, "the preamble does not match its checksum")
    first = len(kind.joined_magic) + _COUNT.size
    if len(head) < first:
        raise mismatch
    (count,) = _COUNT.unpack_from(head, len(kind.joined_magic))
    end = first + count * _FILE_RANGE.size
    if not 1 <= count <= _MAX_JOINED or len(head) < end + CRC.size:
        raise mismatch
    if zlib.crc32(head[:end]) != CRC.unpack_from(head, end)[0]:
        raise mismatch
    ranges = [_FILE_RANGE.unpack_from(head, first + number * _FILE_RANGE.size) for number in range(count)]
    before = end + CRC.size
    for start, length in ranges:
        if start < before:
            raise kind.damaged(path, "its preamble is invalid")
        before = start + length
    if size != before:
        raise kind.wrong_size(path, size, before)
    return ranges
