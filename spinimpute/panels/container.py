"""Read and write the container format of all panel files: named sections and small blocks with checksums.

Layout (little endian):

    preamble   magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    blocks     many small LZMA2 streams, one after another
    sections   named LZMA2 streams. The last section is the table of blocks: u64 offset, u32 length and u32
               CRC of each
    header     JSON: the entries of the kind, and offset, length and CRC of every section

The header comes last, so that blocks and sections can be written as they are computed, with little memory.
The preamble is filled in when everything else is complete. A truncated file is therefore never valid.

A file that joins several files of one kind has the layout

    ranges     magic, u32 number of files, u64 start and u64 size of each, u32 CRC of all this
    files      whole files in the layout above, each at a multiple of 64 bytes

`FileKind` describes a kind of file. Damage is detected: opening a file checks the preamble, the header and
the bounds of sections and blocks; reading a section or block checks its CRC. Both raise InputError.
"""

from __future__ import annotations

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
from spinimpute.runtime.errors import InputError, printable
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.unpacking import TooLong, check_unpacked

_BLOCK_TABLE = "parts"  # name of the section with the table of blocks
_BLOCK = np.dtype([("offset", "<u8"), ("nbytes", "<u4"), ("crc", "<u4")])
# pb=0, because the contents are unaligned bytes; blocks are small, so a small dictionary suffices
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**20, "pb": 0}]

_COUNT = struct.Struct("<I")
_FILE_RANGE = struct.Struct("<QQ")
_MAX_JOINED = 3  # files: PAR1, the rest of X, PAR2
_DECOMPRESS_BYTES = 2**22  # bytes to decompress before the size is checked again
_JOINED_ALIGNMENT = 64  # bytes


def compress(content: bytes) -> bytes:
    """Compress the content of a section or block."""
    return lzma.compress(content, lzma.FORMAT_RAW, filters=_FILTERS)


def _decompress(stored: bytes) -> bytes:
    """Decompress the result of `compress`. Raises lzma.LZMAError, or TooLong if it is suspiciously large."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
    content = bytearray()
    while not stream.eof and (data := stream.decompress(b"" if content else stored, _DECOMPRESS_BYTES)):
        content += data
        check_unpacked(len(content), len(stored))
    if not stream.eof or stream.unused_data:
        raise lzma.LZMAError("its stream has a wrong length")
    return bytes(content)


class ContainerWriter:
    """Writer of a container file. The file is invalid until `finish` is called.

    `file` must be empty and open for writing. The attribute `checksum` is the SHA-256 of blocks, sections and
    identifying header entries.
    """

    def __init__(self, file: BinaryIO, kind: FileKind) -> None:
        self._file, self._kind = file, kind
        self._sections: dict[str, dict[str, int]] = {}
        self._blocks: list[tuple[int, int, int]] = []
        self.checksum = hashlib.sha256(kind.checksum_seed)
        file.write(b"\0" * kind.preamble_bytes)  # the file is invalid until `finish`

    def add_block(self, stored: bytes) -> None:
        """Append a block. The caller calls `compress` first, for example in threads."""
        self._blocks.append((self._file.tell(), len(stored), zlib.crc32(stored)))
        self.checksum.update(stored)
        self._file.write(stored)

    def add_section(self, name: str, content: bytes) -> None:
        """Compress and append a section."""
        stored = compress(content)
        self.checksum.update(name.encode() + stored)
        self._sections[name] = {"offset": self._file.tell(), "nbytes": len(stored), "crc": zlib.crc32(stored)}
        self._file.write(stored)

    def finish(self, identity: dict[str, Any], other_entries: dict[str, Any]) -> None:
        """Write the table of blocks, the header and the preamble.

        The header gets the entries `identity`, which the checksum covers, and `other_entries`.
        """
        self.add_section(_BLOCK_TABLE, np.array(self._blocks, dtype=_BLOCK).tobytes())
        self.checksum.update(json.dumps(identity, sort_keys=True).encode())
        header = (
            identity | other_entries | {"checksum": self.checksum.hexdigest(), "sections": self._sections}
        )
        # file names in the provenance may contain bytes that are not UTF-8
        encoded = json.dumps(header, sort_keys=True, ensure_ascii=False).encode(errors="replace")
        offset = self._file.tell()
        self._file.write(encoded)
        preamble = self._kind.preamble.pack(
            self._kind.magic, self._kind.version, zlib.crc32(encoded), offset, len(encoded), self._file.tell()
        )
        self._file.seek(0)
        self._file.write(preamble + CRC.pack(zlib.crc32(preamble)))


class ByteRange(NamedTuple):
    """The location and the CRC of some bytes of a file."""

    offset: int
    nbytes: int
    crc: int


class Container:
    """An open container file. It is read through a memory map, and several threads may read it.

    `start` and `size` locate the container within a joined file (see `read_joined_ranges`). By default the
    container is the whole file. Attributes: `header` has the validated entries of the kind, `checksum` was
    computed when the file was written, and `sections` maps names to byte ranges. Raises InputError if the
    file cannot be opened, has another kind or version, is truncated or damaged, or joins several containers.
    """

    def __init__(self, path: str | Path, kind: FileKind, start: int = 0, size: int | None = None) -> None:
        self.path, self.kind, self._start = Path(path), kind, start
        try:
            with self.path.open("rb") as file:
                self._size = file.seek(0, os.SEEK_END) - start if size is None else size
                file.seek(start)
                header_range = self._read_preamble(file.read(kind.preamble_bytes))
                self._content: mmap.mmap | None = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError("read", f"{kind.name} {path}: cannot be opened: {error.strerror}") from error
        self._name_in_log = f"{kind.name} {path}"
        opened("mapped", self._name_in_log)
        try:
            self.sections: dict[str, ByteRange] = {}
            header = self._read_header(header_range)
            self.checksum: str = header["checksum"]
            self.header = {name: header[name] for name in kind.fields}
            self._blocks = self._read_block_table()
            if kind.check is not None:
                kind.check(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        if self._content is not None:
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

    @property
    def bytes_of_blocks(self) -> int:
        """Number of bytes that all blocks take in the file."""
        return int(self._blocks["nbytes"].sum(dtype=np.int64))

    def block(self, number: int) -> bytes:
        """Return the content of a block, numbered from 0. Raises InputError if it is damaged."""
        location = ByteRange(*self._blocks[number].tolist())
        return self._read(location, f"block {number + 1} of {self.n_blocks}")

    def section(self, name: str) -> bytes:
        """Return the content of a section, b"" if the file has none. Raises InputError if it is damaged."""
        if name not in self.sections:
            return b""
        return self._read(self.sections[name], f"section {printable(name)}")

    def require(self, fits: bool, what: str) -> None:
        """Raise InputError for a damaged file if `fits` is false. `what` describes the damage."""
        if not fits:
            raise self.kind.damaged(self.path, what)

    @contextmanager
    def decoding(self, what: str) -> Iterator[None]:
        """Convert decoding errors to InputError. Even content with a correct checksum may be invalid."""
        _ = self.map  # a closed file is the caller's mistake: ValueError, which is not converted
        try:
            yield
        except (ValueError, struct.error, lzma.LZMAError, TooLong) as error:
            raise self.kind.damaged(self.path, f"the {what} cannot be read ({error})") from error

    def _read(self, location: ByteRange, what: str) -> bytes:
        with self.decoding(what):
            return _decompress(self._read_stored(location, what))

    def _read_stored(self, location: ByteRange, what: str) -> bytes:
        start = self._start + location.offset
        stored = self.map[start : start + location.nbytes]
        self.require(zlib.crc32(stored) == location.crc, f"the {what} does not match its checksum")
        return stored

    def _read_preamble(self, preamble: bytes) -> ByteRange:
        """Check the preamble, and return the byte range of the header."""
        kind, path = self.kind, self.path
        if kind.joined_magic and preamble.startswith(kind.joined_magic):
            raise InputError("argument", f"{kind.name} {path}: {kind.joined_remedy()}")
        for magic, what in kind.confused_with.items():
            if preamble.startswith(magic):
                raise InputError("content", f"{path}: this is {what()}")
        magics = [kind.magic, kind.joined_magic or kind.magic, *kind.confused_with]
        if any(len(preamble) < len(magic) and magic.startswith(preamble) for magic in magics):
            raise InputError("damaged", f"{kind.name} {path}: truncated: {self._size} bytes. Copy it again")
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
        if 1 <= version < kind.version:
            raise InputError(
                "content",
                f"{kind.name} {path}: made by an earlier version of spinimpute (file version {version}, this "
                f"one reads {kind.version}). {kind.remedy()}",
            )
        if self._size != total:
            raise kind.wrong_size(path, self._size, total)
        is_inside = kind.preamble_bytes <= offset <= self._size - length
        self.require(version >= 1 and is_inside, "its preamble is invalid")
        return ByteRange(offset, length, crc)

    def _read_header(self, location: ByteRange) -> dict[str, Any]:
        """Read the header, check its entries, and fill `sections`."""
        try:
            header = json.loads(self._read_stored(location, "header"))
            json.dumps(header, ensure_ascii=False).encode()  # fails for an unpaired surrogate
        except (ValueError, RecursionError) as error:
            raise self.kind.damaged(self.path, "the header is not JSON in UTF-8") from error
        self.require(isinstance(header, dict), "the header is not a JSON object")
        for name in ("checksum", "sections", *self.kind.fields):
            self.require(name in header, f"the header has no entry {name!r}")
        fits = {"checksum": is_line(header["checksum"]), "sections": isinstance(header["sections"], dict)}
        fits |= {name: is_valid(header[name]) for name, is_valid in self.kind.fields.items()}
        for name, is_right in fits.items():
            self.require(is_right, f"the header's entry {name!r} is invalid")
        for name in (*self.kind.sections, _BLOCK_TABLE):
            self.require(name in header["sections"], f"it has no section {name!r}")
        first_offset = self.kind.preamble_bytes
        for name, section in header["sections"].items():
            numbers = [section.get(key) for key in ByteRange._fields] if isinstance(section, dict) else [None]
            self.require(all(type(number) is int for number in numbers), f"section {name!r} has no offset")
            found = self.sections[name] = ByteRange(*numbers)
            is_inside = found.nbytes >= 0 and first_offset <= found.offset <= self._size - found.nbytes
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
    """Write one file that joins up to three files of a kind, in the given order."""
    head = len(kind.joined_magic) + _COUNT.size + len(paths) * _FILE_RANGE.size + CRC.size
    start = head + -head % _JOINED_ALIGNMENT
    ranges = b""
    for path in paths:
        size = path.stat().st_size
        ranges += _FILE_RANGE.pack(start, size)
        start += size + -size % _JOINED_ALIGNMENT
    preamble = kind.joined_magic + _COUNT.pack(len(paths)) + ranges
    with out.open("wb") as file:
        file.write(preamble + CRC.pack(zlib.crc32(preamble)))
        for path in paths:
            file.write(b"\0" * (-file.tell() % _JOINED_ALIGNMENT))
            with path.open("rb") as source:
                shutil.copyfileobj(source, file)
        file.flush()
        os.fsync(file.fileno())


def read_joined_ranges(path: Path, kind: FileKind) -> list[tuple[int, int]] | None:
    """Return the start and size of each file within a joined file; None if the file is not a joined file.

    Raises InputError if the joined file is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(len(kind.joined_magic) + _COUNT.size + _MAX_JOINED * _FILE_RANGE.size + CRC.size)
    except OSError:
        return None  # the caller then opens it as a single file, which reports the reason
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
