"""The container of all panel files: named sections and small parts, each with its checksum.

Layout (little endian):

    preamble   magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    parts      of kinds that have them: many small contents, one behind the other
    sections   each at a multiple of the kind's alignment: as they are, for memory maps, or as LZMA2 streams.
               The last one of a kind with parts is their table: u64 offset, u32 length, u32 CRC of each
    header     JSON: the entries of the kind, and offset, length and CRC of every section

The header comes last because rows and parts are written as they are made, in one pass and little memory. The
preamble is written when all else is: a file that was cut off anywhere is never taken for a whole one.

A file that holds several files of one kind is laid out as

    places     magic, u32 number of files, u64 start and u64 size of each, u32 CRC of all before
    files      each a whole file as above, at a multiple of 64 bytes

`FileKind` has what is particular to a kind of file. Whatever a file holds, reading it gives what was
written or raises InputError: preamble, header, bounds of sections and parts are checked when it is opened, a
section or part when it is read.
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
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spinimpute.panels.file_kind import CRC, FileKind, is_line, is_object
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.unpacking import TooLong, check_unpacked

_PARTS = "parts"
_PART = np.dtype([("offset", "<u8"), ("nbytes", "<u4"), ("crc", "<u4")])
# what is compressed are bytes without any alignment; parts are small, so is the dictionary
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**20, "pb": 0}]

_COUNT = struct.Struct("<I")
_PLACE = struct.Struct("<QQ")
_MOST_JOINED = 3
_PIECE_BYTES = 2**22
_JOINED_ALIGNMENT = 64


def compress(content: bytes) -> bytes:
    """A content as it is stored in files of compressed kinds."""
    return lzma.compress(content, lzma.FORMAT_RAW, filters=_FILTERS)


def _decompress(stored: bytes) -> bytes:
    """What `compress` was given. Raises lzma.LZMAError, or TooLong."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
    content = bytearray()
    while not stream.eof and (piece := stream.decompress(b"" if content else stored, _PIECE_BYTES)):
        content += piece
        check_unpacked(len(content), len(stored))
    if not stream.eof or stream.unused_data:
        raise lzma.LZMAError("its stream does not end where it ends")
    return bytes(content)


class ContainerWriter:
    """Writes a file: parts and sections as they come, `finish` makes it valid.

    Parameters
    ----------
    file : binary file
        Empty, open for writing.
    kind : FileKind
        What is particular to the file.

    Attributes
    ----------
    checksum
        SHA-256 of the content, written to the header: of parts, sections and entries that identify it.
    """

    def __init__(self, file: BinaryIO, kind: FileKind) -> None:
        self._file, self._kind = file, kind
        self._sections: dict[str, dict[str, int]] = {}
        self._parts: list[tuple[int, int, int]] = []
        self.checksum = hashlib.sha256(kind.checksum_seed)
        file.write(b"\0" * kind.preamble_bytes)  # until the end this is no file of the kind

    def add_part(self, stored: bytes) -> None:
        """Append a part, as `compress` made it if the kind is compressed: that may be done in threads."""
        self._parts.append((self._file.tell(), len(stored), zlib.crc32(stored)))
        self.checksum.update(stored)
        self._file.write(stored)

    def add_section(self, name: str, content: bytes, *, in_checksum: bool = True) -> None:
        """Append a section.

        Parameters
        ----------
        name : str
            Its name in the header.
        content : bytes
            It is compressed here if the kind is compressed.
        in_checksum : bool
            Whether the checksum of the file covers it.
        """
        stored = compress(content) if self._kind.compressed else content
        if in_checksum:
            self.checksum.update(name.encode() + stored)
        self.start_section(name)
        self.extend_section(name, stored)

    def start_section(self, name: str) -> None:
        """Begin a section that is written piece by piece, and is not in the checksum."""
        self._sections[name] = {"offset": self._align(), "nbytes": 0, "crc": 0}

    def extend_section(self, name: str, stored: bytes) -> None:
        """Append to the section that was started last."""
        section = self._sections[name]
        section["nbytes"] += len(stored)
        section["crc"] = zlib.crc32(stored, section["crc"])
        self._file.write(stored)

    def finish(self, identity: dict[str, Any], more: dict[str, Any]) -> None:
        """Write the table of parts, the header and the preamble.

        Parameters
        ----------
        identity, more : dict
            Entries of the header. The checksum covers those of `identity`.
        """
        if self._kind.has_parts:
            self.add_section(_PARTS, np.array(self._parts, dtype=_PART).tobytes())
        self.checksum.update(json.dumps(identity, sort_keys=True).encode())
        header = identity | more | {"checksum": self.checksum.hexdigest(), "sections": self._sections}
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


class Place(NamedTuple):
    """Bytes of a file, counted from its start, and their CRC."""

    offset: int
    nbytes: int
    crc: int


class Container:
    """An opened file, read through a memory map. Several threads may read at the same time.

    Parameters
    ----------
    path : str or Path
        The file.
    kind : FileKind
        What the file must be.
    start, size : int
        Bytes of the file that are the container, see `places_of_joined`; by default all.

    Attributes
    ----------
    header : dict
        Its entries, of the types that the kind demands.
    version : int
        Of the file.
    checksum : str
        Of the content, as it was computed when the file was written.
    sections : dict of str to Place
        Where they are.

    Raises
    ------
    InputError
        The file cannot be opened, is of another kind, truncated, damaged, made by an earlier or a newer
        version, or holds several containers.
    """

    def __init__(self, path: str | Path, kind: FileKind, start: int = 0, size: int | None = None) -> None:
        self.path, self.kind, self._start = Path(path), kind, start
        try:
            with self.path.open("rb") as file:
                self._size = file.seek(0, os.SEEK_END) - start if size is None else size
                file.seek(start)
                self.version, place = self._read_preamble(file.read(kind.preamble_bytes))
                self._content: mmap.mmap | None = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError("content", f"{kind.name} {path}: cannot be opened: {error.strerror}") from error
        opened("mapped", self._named)
        try:
            header = self._read_header(place)
            self.checksum: str = header["checksum"]
            self.sections = self._places_of_sections(header["sections"])
            self.header = {name: header[name] for name in kind.fields}
            self._parts = self._read_parts() if kind.has_parts else np.empty(0, dtype=_PART)
            if kind.check is not None:
                kind.check(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the file. Arrays that `view` gave stay valid and keep the map alive."""
        if self._content is not None:
            # an array of the caller's may still show the file; then the map goes with the array
            with contextlib.suppress(BufferError):
                self._content.close()
            self._content = None
            closed("mapped", self._named)

    @property
    def _named(self) -> str:
        return f"{self.kind.name} {self.path}"

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def release_memory(self) -> None:
        """Let what was read leave this process's memory; it is read again when it is needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        return len(self._parts)

    def part(self, number: int) -> bytes:
        """The content of a part, 0-based; raises InputError if it is damaged."""
        place = Place(*self._parts[number].tolist())
        return self._read(place, f"part {number + 1} of {self.n_parts}")

    def section(self, name: str) -> bytes:
        """The content of a section; raises InputError if it is damaged."""
        return self._read(self.sections[name], f"section {name}")

    def view(self, name: str) -> np.ndarray:
        """A section as it is stored, uint8 (nbytes,), read-only and not checked: it is not in memory yet."""
        place = self.sections[name]
        return np.frombuffer(self._map, dtype=np.uint8, count=place.nbytes, offset=self._start + place.offset)

    def check_crc(self, stored: np.ndarray, crc: int, what: str) -> None:
        """Check bytes of the file.

        Parameters
        ----------
        stored : uint8 (n,)
            The bytes.
        crc : int
            The CRC that they must have.
        what : str
            What they are, for the message.

        Raises
        ------
        InputError
            The CRC is another one.
        """
        if zlib.crc32(stored.data) != crc:
            raise self._mismatch(what)

    def require(self, fits: bool, what: str) -> None:
        """Raise InputError unless a condition holds.

        Parameters
        ----------
        fits : bool
            The condition.
        what : str
            What is wrong if it does not hold, for the message.

        Raises
        ------
        InputError
            The file is damaged.
        """
        if not fits:
            raise self.kind.damaged(self.path, what)

    @contextmanager
    def decoding(self, what: str) -> Iterator[None]:
        """Turn errors of decoding a content into InputError: its checksum is right, what it holds is not."""
        _ = self._map  # ValueError if it is closed, which is the caller's mistake
        try:
            yield
        except (ValueError, struct.error, lzma.LZMAError, TooLong) as error:
            raise self.kind.damaged(self.path, f"the {what} cannot be read ({error})") from error

    @property
    def _map(self) -> mmap.mmap:
        if self._content is None:
            raise ValueError(f"{self.kind.name} {self.path} is closed")
        return self._content

    def _read(self, place: Place, what: str) -> bytes:
        stored = self._stored(place, what)
        if not self.kind.compressed:
            return stored
        with self.decoding(what):
            return _decompress(stored)

    def _stored(self, place: Place, what: str) -> bytes:
        start = self._start + place.offset
        stored = self._map[start : start + place.nbytes]
        if zlib.crc32(stored) != place.crc:
            raise self._mismatch(what)
        return stored

    def _mismatch(self, what: str) -> InputError:
        return self.kind.damaged(self.path, f"the {what} does not match its checksum")

    def _read_preamble(self, preamble: bytes) -> tuple[int, Place]:
        """The version of the file, and where its header is."""
        kind, path = self.kind, self.path
        if kind.joined_magic and preamble.startswith(kind.joined_magic):
            raise InputError("content", f"{kind.name} {path}: {kind.joined_remedy}")
        for magic, what in kind.mistaken.items():
            if preamble.startswith(magic):
                raise InputError("content", f"{path}: this is {what}")
        if not preamble.startswith(kind.magic):
            raise InputError(
                "content",
                f"{path}: not a spinimpute {kind.name} (it starts with {preamble[:16]!r}); {kind.remedy}",
            )
        if len(preamble) < kind.preamble_bytes:
            raise InputError(
                "damaged",
                f"{kind.name} {path}: truncated: {self._size} bytes, less than any has. Copy it again",
            )
        _, version, crc, offset, length, total = kind.preamble.unpack_from(preamble)
        if zlib.crc32(preamble[: kind.preamble.size]) != CRC.unpack_from(preamble, kind.preamble.size)[0]:
            raise self._mismatch("preamble")
        if version > kind.version:
            raise InputError(
                "content",
                f"{kind.name} {path}: made by a newer version of spinimpute (file version {version}, this "
                f"one reads {kind.version}). Update spinimpute",
            )
        if 1 <= version < kind.first_version:
            raise InputError(
                "content",
                f"{kind.name} {path}: made by an earlier version of spinimpute (file version {version}, this "
                f"one reads {kind.first_version}): {kind.remedy}",
            )
        if self._size != total:
            raise kind.wrong_size(path, self._size, total)
        place = Place(offset, length, crc)
        self.require(version >= 1 and self._is_inside(place), "its preamble is not one that is written")
        return version, place

    def _read_header(self, place: Place) -> dict[str, Any]:
        """The header, its entries checked."""
        try:
            header = json.loads(self._stored(place, "header"))
            json.dumps(header, ensure_ascii=False).encode()  # JSON can hold half of a surrogate pair
        except (ValueError, RecursionError) as error:
            raise self.kind.damaged(self.path, "the header is not JSON in UTF-8") from error
        self.require(isinstance(header, dict), "the header is not a JSON object")
        for name, is_valid in ({"checksum": is_line, "sections": is_object} | dict(self.kind.fields)).items():
            self.require(name in header, f"the header has no entry {name!r}")
            self.require(is_valid(header[name]), f"the header's entry {name!r} is not as it must be")
        return header

    def _places_of_sections(self, sections: dict[str, Any]) -> dict[str, Place]:
        needed = (*self.kind.sections, *([_PARTS] if self.kind.has_parts else []))
        for name in needed:
            self.require(name in sections, f"it has no section {name!r}")
        places = {}
        for name, section in sections.items():
            numbers = [section.get(key) for key in Place._fields] if isinstance(section, dict) else [None]
            self.require(all(type(number) is int for number in numbers), f"section {name!r} has no place")
            places[name] = Place(*numbers)
            self.require(self._is_inside(places[name]), f"section {name!r} lies outside of the file")
        return places

    def _is_inside(self, place: Place) -> bool:
        return place.nbytes >= 0 and self.kind.preamble_bytes <= place.offset <= self._size - place.nbytes

    def _read_parts(self) -> np.ndarray:
        table = self.section(_PARTS)
        self.require(len(table) % _PART.itemsize == 0, "the table of parts has no whole number of rows")
        parts = np.frombuffer(table, dtype=_PART)
        offset, nbytes = parts["offset"], parts["nbytes"].astype(np.uint64)
        size = np.uint64(self._size)
        inside = (
            (offset >= self.kind.preamble_bytes)
            & (offset <= size)
            & (nbytes <= size - np.minimum(offset, size))
        )
        self.require(bool(inside.all()), "a part lies outside of the file")
        return parts


def join_files(paths: Sequence[Path], out: Path, kind: FileKind) -> None:
    """Write one file that holds several files of a kind.

    Parameters
    ----------
    paths : sequence of Path
        The files, at most three, in the order in which they are to be read.
    out : Path
        The file to write.
    kind : FileKind
        Of the files; it has a `joined_magic`.
    """
    head = len(kind.joined_magic) + _COUNT.size + len(paths) * _PLACE.size + CRC.size
    start = head + -head % _JOINED_ALIGNMENT
    places = b""
    for path in paths:
        size = path.stat().st_size
        places += _PLACE.pack(start, size)
        start += size + -size % _JOINED_ALIGNMENT
    written = kind.joined_magic + _COUNT.pack(len(paths)) + places
    with out.open("wb") as file:
        file.write(written + CRC.pack(zlib.crc32(written)))
        for path in paths:
            file.write(b"\0" * (-file.tell() % _JOINED_ALIGNMENT))
            with path.open("rb") as part:
                shutil.copyfileobj(part, file)
        file.flush()
        os.fsync(file.fileno())


def places_of_joined(path: Path, kind: FileKind) -> list[tuple[int, int]] | None:
    """Where the files lie in a file of several.

    Parameters
    ----------
    path : Path
        The file.
    kind : FileKind
        Of the files in it.

    Returns
    -------
    list of (int, int), or None
        Start and size of each, in bytes, for `Container`. None if the file does not start as one of several.

    Raises
    ------
    InputError
        It is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(len(kind.joined_magic) + _COUNT.size + _MOST_JOINED * _PLACE.size + CRC.size)
    except OSError:
        return None  # opening it as one file gives the reason
    if not head.startswith(kind.joined_magic):
        return None
    mismatch = kind.damaged(path, "the preamble does not match its checksum")
    first = len(kind.joined_magic) + _COUNT.size
    if len(head) < first:
        raise mismatch
    (count,) = _COUNT.unpack_from(head, len(kind.joined_magic))
    end = first + count * _PLACE.size
    if not 1 <= count <= _MOST_JOINED or len(head) < end + CRC.size:
        raise mismatch
    if zlib.crc32(head[:end]) != CRC.unpack_from(head, end)[0]:
        raise mismatch
    places = [_PLACE.unpack_from(head, first + number * _PLACE.size) for number in range(count)]
    before = end + CRC.size
    for start, length in places:
        if start < before:
            raise kind.damaged(path, "its preamble is not one that is written")
        before = start + length
    if size != before:
        raise kind.wrong_size(path, size, before)
    return places
