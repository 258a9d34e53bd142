"""The panel file: phased reference haplotypes, at most one bit each, read through a memory map.

Layout (little endian), version 2:

    preamble   magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    sections   each at a multiple of 64 bytes; haplotypes first (site by site, each as bits or as the list of
               those with the minor allele: `stored_rows`), then the site table and a CRC of each block of 256
               sites of haplotypes
    header     JSON: names, numbers and provenance, and offset, length and CRC of every section

The header is last because the number of sites is known only when the VCF has been read: so a panel is built
in one pass, in memory that does not grow with the number of haplotypes times sites.

In version 1, which can still be read, all haplotypes are bits. `panel_writer` writes panel files,
`panel_build` makes them of a VCF.
"""

import contextlib
import json
import mmap
import struct
import zlib
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.stored_rows import RowLayout

FORMAT_VERSION = 2
FIRST_WITH_LISTS = 2  # the version since which rows of rare alleles are lists
BLOCK_SITES = 256  # haplotypes are checked in blocks of so many sites
TABLE_SECTIONS = ("position", "cM", "allele_count", "ref", "alt", "id", "multiallelic")

MAGIC = b"\x89SPINPANEL\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
PARTS_MAGIC = b"\x89SPINPARTS\r\n\x1a\n"  # of a file of several panels, see `panel_parts`
PREAMBLE = struct.Struct(f"<{len(MAGIC)}sIIQQQ")
CRC = struct.Struct("<I")


class Panel:
    """A panel file, opened by `Panel.open`.

    path: Path. chrom, contig_line: as in the VCF. n_sites, n_samples, n_haplotypes: numbers. samples: names.
    ploidy: uint8 (n_samples,). checksum: hex, the same for the same sites, haplotypes, samples and map.
    provenance: where the panel comes from. Sites and haplotypes are read when they are asked for.
    It is a `ReferencePanel`.
    """

    holds = "haplotypes"
    array_index = None  # it serves any array
    made_of = ""

    def __init__(
        self, path: Path, content: mmap.mmap, header: dict[str, Any], version: int, start: int = 0
    ) -> None:
        self.path = path
        self._version, self._start = version, start
        self._content: mmap.mmap | None = content
        self._sections: dict[str, dict[str, int]] = header["sections"]
        self.chrom: str = header["chrom"]
        self.contig_line: str = header["contig_line"]
        self.samples: list[str] = header["samples"]
        self.ploidy = np.frombuffer(header["ploidy"].encode(), dtype=np.uint8) - np.uint8(ord("0"))
        self.n_sites: int = header["n_sites"]
        self.n_samples = len(self.samples)
        self.n_haplotypes = int(self.ploidy.sum())
        self.checksum: str = header["checksum"]
        self.provenance: dict[str, Any] = header["provenance"]
        self._block_is_good = np.zeros(-(-self.n_sites // BLOCK_SITES), dtype=bool)

    @classmethod
    def open(cls, path: str | Path, start: int = 0, size: int | None = None) -> "Panel":
        """Open a panel file; its header and length are checked now, the rest when it is used.

        start, size: bytes of the file that are the panel, for a file that holds several (`panel_parts`).
        Raises InputError if the file is no panel, truncated, damaged, or made by a newer version.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2) - start if size is None else size
                file.seek(start)
                preamble = file.read(PREAMBLE.size + CRC.size)
                found = _read_preamble(path, preamble, size)
                file.seek(start + found.offset)
                encoded = file.read(found.length)
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"panel {path}: cannot be opened: {error.strerror}") from error
        if zlib.crc32(encoded) != found.crc:
            content.close()
            raise _damaged(path, "header")
        return cls(path, content, json.loads(encoded), found.version, start)

    def close(self) -> None:
        """Release the file. Arrays taken from the panel by `packed` stay valid and keep the map alive."""
        for name in ("_stored", "_crc_table"):
            self.__dict__.pop(name, None)
        if self._content is not None:
            # an array of the caller's may still show the file; then the map goes with the array
            with contextlib.suppress(BufferError):
                self._content.close()
            self._content = None

    def release_memory(self) -> None:
        """What was read may leave this process's memory; it is read again when it is asked for."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> "Panel":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def haplotype_sample(self) -> np.ndarray:
        """int64 (n_haplotypes,): the index of each haplotype's sample."""
        return np.repeat(np.arange(self.n_samples), self.ploidy)

    @cached_property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing."""
        return np.frombuffer(self._section("position"), dtype="<i8").astype(np.int64)

    @cached_property
    def cM(self) -> np.ndarray:
        """float64 (n_sites,): genetic position, by the map that the panel was built with or tuned to."""
        return np.frombuffer(self._section("cM"), dtype="<f8").astype(np.float64)

    @cached_property
    def allele_count(self) -> np.ndarray:
        """int64 (n_sites,): how many haplotypes carry the ALT allele."""
        return np.frombuffer(self._section("allele_count"), dtype="<u4").astype(np.int64)

    @cached_property
    def frequency(self) -> np.ndarray:
        """float64 (n_sites,): the ALT allele's frequency among the panel's haplotypes."""
        return self.allele_count / self.n_haplotypes

    @cached_property
    def multiallelic(self) -> np.ndarray:
        """bool (n_sites,): True for sites split from a multi-allelic record."""
        packed = np.frombuffer(self._section("multiallelic"), dtype=np.uint8)
        return np.unpackbits(packed, count=self.n_sites).astype(bool)

    @cached_property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs."""
        ref, alt, name = (self._section(key).decode().split("\n") for key in ("ref", "alt", "id"))
        return Sites(self.chrom, self.position, ref, alt, name)

    @property
    def haplotypes(self) -> "Panel":
        """As of `ReferencePanel`."""
        return self

    def check_typed(self, typed_index: np.ndarray) -> None:
        """As of `ReferencePanel`: any sites will do."""

    def described(self) -> dict[str, object]:
        """As of `ReferencePanel`."""
        return {}

    def verify(self) -> None:
        """As of `ReferencePanel`."""
        _ = self.sites, self.cM, self.allele_count, self.multiallelic
        step = 16 * BLOCK_SITES
        for start in range(0, self.n_sites, step):
            self.packed(start, min(start + step, self.n_sites))

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Alleles 0 REF, 1 ALT of the sites [start, stop): uint8 (stop - start, n_haplotypes).

        Raises InputError if the haplotypes are damaged there, ValueError if the sites do not exist.
        """
        return np.unpackbits(self.packed(start, stop), axis=1, count=self.n_haplotypes)

    def packed(self, start: int, stop: int) -> np.ndarray:
        """The same as bits in the order of `numpy.packbits`: uint8 (stop - start, ceil(n_haplotypes / 8)).

        Read-only; a view on the file where it holds bits alone. Raises as `alleles`.
        """
        if not 0 <= start <= stop <= self.n_sites:
            raise ValueError(f"sites [{start}, {stop}) must lie in [0, {self.n_sites})")
        self._check_blocks(np.arange(start // BLOCK_SITES, -(-stop // BLOCK_SITES)))
        layout = self._layout
        if not layout.listed_X[start:stop].any():
            bits = self._stored[layout.start_X1[start] : layout.start_X1[stop]]
            return bits.reshape(stop - start, -(-self.n_haplotypes // 8))
        rows = layout.expand(self._stored, np.arange(start, stop))
        rows.flags.writeable = False
        return rows

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Some sites only, as bits like `packed`: uint8 (n, ceil(n_haplotypes / 8)), the caller's own.

        index: int64 (n,), sites, each larger than the one before. Raises as `alleles`.
        """
        if len(index) and not (index[0] >= 0 and index[-1] < self.n_sites and (np.diff(index) > 0).all()):
            raise ValueError(f"sites must increase and lie in [0, {self.n_sites})")
        self._check_blocks(np.unique(index // BLOCK_SITES))
        return self._layout.expand(self._stored, index)

    def _check_blocks(self, blocks: np.ndarray) -> None:
        """Raise InputError if one of these blocks of sites, int64, is damaged."""
        for block in blocks[~self._block_is_good[blocks]].tolist():
            first, end = block * BLOCK_SITES, min((block + 1) * BLOCK_SITES, self.n_sites)
            start, stop = self._layout.start_X1[[first, end]]
            if zlib.crc32(self._stored[start:stop].data) != self._crc_table[block]:
                raise _damaged(self.path, f"haplotypes of the sites {first + 1} to {end}")
            self._block_is_good[block] = True

    @cached_property
    def _layout(self) -> RowLayout:
        lists = self._version >= FIRST_WITH_LISTS
        layout = RowLayout.of(self.allele_count, self.n_haplotypes, lists)
        most = self.allele_count.max(initial=0)
        if most > self.n_haplotypes or layout.n_bytes != self._sections["haplotypes"]["nbytes"]:
            raise InputError(
                f"panel {self.path}: damaged: its haplotypes do not have the length that follows from its "
                "allele counts. Build or copy it again"
            )
        return layout

    @cached_property
    def _stored(self) -> np.ndarray:
        """uint8: all rows, in the form in which they are stored."""
        section = self._sections["haplotypes"]
        offset = self._start + section["offset"]
        return np.frombuffer(self._map, dtype=np.uint8, count=section["nbytes"], offset=offset)

    @cached_property
    def _crc_table(self) -> np.ndarray:
        return np.frombuffer(self._section("block_crc"), dtype="<u4")

    @property
    def _map(self) -> mmap.mmap:
        if self._content is None:
            raise ValueError(f"panel {self.path} is closed")
        return self._content

    def _section(self, name: str) -> bytes:
        section = self._sections[name]
        offset = self._start + section["offset"]
        content = self._map[offset : offset + section["nbytes"]]
        if zlib.crc32(content) != section["crc"]:
            raise _damaged(self.path, f"section {name}")
        return content


def _damaged(path: Path, what: str) -> InputError:
    return InputError(
        f"panel {path}: damaged: the {what} does not match its checksum. Build or copy it again"
    )


class _Preamble(NamedTuple):
    """version: of the file; offset, length, crc: of its header."""

    version: int
    offset: int
    length: int
    crc: int


def _read_preamble(path: Path, preamble: bytes, size: int) -> _Preamble:
    if preamble.startswith(PARTS_MAGIC):
        raise InputError(
            f"panel {path}: it holds chromosome X in parts of different ploidy, which only imputing, "
            "phasing, tuning and checking know; build a panel of one part with --region"
        )
    if not preamble.startswith(MAGIC):
        raise InputError(
            f"{path}: not a spinimpute panel (it starts with {preamble[:16]!r}); "
            "build one with 'spinimpute panel build'"
        )
    if len(preamble) < PREAMBLE.size + CRC.size:
        raise InputError(f"panel {path}: truncated: {size} bytes, less than any panel. Copy it again")
    _, version, crc, offset, length, total = PREAMBLE.unpack_from(preamble)
    if zlib.crc32(preamble[: PREAMBLE.size]) != CRC.unpack_from(preamble, PREAMBLE.size)[0]:
        raise _damaged(path, "preamble")
    if version > FORMAT_VERSION:
        raise InputError(
            f"panel {path}: made by a newer version of spinimpute (panel version {version}, this one reads "
            f"{FORMAT_VERSION}). Update spinimpute"
        )
    if size != total:
        what = "truncated" if size < total else "damaged"
        raise InputError(f"panel {path}: {what}: {size} bytes, the file says {total}. Copy it again")
    return _Preamble(version, offset, length, crc)
