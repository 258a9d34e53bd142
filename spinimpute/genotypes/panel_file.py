"""The panel file: phased reference haplotypes, one bit each, read through a memory map.

Layout (little endian), version 1:

    preamble   magic, u32 version, u32 CRC of the header, u64 offset and u64 length of the header,
               u64 length of the file, u32 CRC of the preamble before it
    sections   each at a multiple of 64 bytes; haplotypes first (packed bits, site by site, every site starts
               a byte), then the site table and a CRC of each block of 256 sites of haplotypes
    header     JSON: names, numbers and provenance, and offset, length and CRC of every section

The header is last because the number of sites is known only when the VCF has been read: so a panel is built
in one pass, in memory that does not grow with the number of haplotypes times sites.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import mmap
import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region, Sites, plain_chromosome
from spinimpute.genotypes.vcf_reader import HaplotypeReader
from spinimpute.output_files import check_output, written_whole

FORMAT_VERSION = 1
BLOCK_SITES = 256  # haplotypes are checked in blocks of so many sites
TABLE_SECTIONS = ("position", "cM", "allele_count", "ref", "alt", "id", "multiallelic")

DUPLICATE_RECORD = "duplicate of an earlier record"

_MAGIC = b"\x89SPINPANEL\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
PARTS_MAGIC = b"\x89SPINPARTS\r\n\x1a\n"  # of a file of several panels, see `panel_parts`
_PREAMBLE = struct.Struct(f"<{len(_MAGIC)}sIIQQQ")
_CRC = struct.Struct("<I")
_ALIGNMENT = 64


def is_panel_file(path: str | Path) -> bool:
    """Whether a file starts as panel files do; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) in (_MAGIC, PARTS_MAGIC)
    except OSError:
        return False


class Panel:
    """A panel file, opened by `Panel.open`.

    path: Path. chrom, contig_line: as in the VCF. n_sites, n_samples, n_haplotypes: numbers. samples: names.
    ploidy: uint8 (n_samples,). checksum: hex, the same for the same sites, haplotypes, samples and map.
    provenance: where the panel comes from. Sites and haplotypes are read when they are asked for.
    """

    def __init__(self, path: Path, content: mmap.mmap, header: dict[str, Any], start: int = 0) -> None:
        self.path = path
        self._start = start
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
                preamble = file.read(_PREAMBLE.size + _CRC.size)
                offset, length, crc = _read_preamble(path, preamble, size)
                file.seek(start + offset)
                encoded = file.read(length)
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"panel {path}: cannot be opened: {error.strerror}") from error
        if zlib.crc32(encoded) != crc:
            content.close()
            raise _damaged(path, "header")
        return cls(path, content, json.loads(encoded), start)

    def close(self) -> None:
        """Release the file. Arrays taken from the panel by `packed` stay valid and keep the map alive."""
        for name in ("_rows", "_crc_table"):
            self.__dict__.pop(name, None)
        if self._content is not None:
            # an array of the caller's may still show the file; then the map goes with the array
            with contextlib.suppress(BufferError):
                self._content.close()
            self._content = None

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

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Alleles 0 REF, 1 ALT of the sites [start, stop): uint8 (stop - start, n_haplotypes).

        Raises InputError if the haplotypes are damaged there, ValueError if the sites do not exist.
        """
        return np.unpackbits(self.packed(start, stop), axis=1, count=self.n_haplotypes)

    def packed(self, start: int, stop: int) -> np.ndarray:
        """The same as bits in the order of `numpy.packbits`: uint8 (stop - start, ceil(n_haplotypes / 8)).

        A read-only view on the file. Raises as `alleles`.
        """
        if not 0 <= start <= stop <= self.n_sites:
            raise ValueError(f"sites [{start}, {stop}) must lie in [0, {self.n_sites})")
        first, last = start // BLOCK_SITES, -(-stop // BLOCK_SITES)
        for block in np.flatnonzero(~self._block_is_good[first:last]) + first:
            rows = self._rows[block * BLOCK_SITES : (block + 1) * BLOCK_SITES]
            if zlib.crc32(rows.data) != self._crc_table[block]:
                end = min((block + 1) * BLOCK_SITES, self.n_sites)
                raise _damaged(self.path, f"haplotypes of the sites {block * BLOCK_SITES + 1} to {end}")
            self._block_is_good[block] = True
        return self._rows[start:stop]

    @cached_property
    def _rows(self) -> np.ndarray:
        section = self._sections["haplotypes"]
        offset = self._start + section["offset"]
        flat = np.frombuffer(self._map, dtype=np.uint8, count=section["nbytes"], offset=offset)
        return flat.reshape(self.n_sites, -1)

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


def _read_preamble(path: Path, preamble: bytes, size: int) -> tuple[int, int, int]:
    """Offset, length and CRC of the header."""
    if preamble.startswith(PARTS_MAGIC):
        raise InputError(
            f"panel {path}: it holds chromosome X in parts of different ploidy, which only imputing, "
            "phasing, tuning and checking know; build a panel of one part with --region"
        )
    if not preamble.startswith(_MAGIC):
        raise InputError(
            f"{path}: not a spinimpute panel (it starts with {preamble[:16]!r}); "
            "build one with 'spinimpute panel build'"
        )
    if len(preamble) < _PREAMBLE.size + _CRC.size:
        raise InputError(f"panel {path}: truncated: {size} bytes, less than any panel. Copy it again")
    _, version, crc, offset, length, total = _PREAMBLE.unpack_from(preamble)
    if zlib.crc32(preamble[: _PREAMBLE.size]) != _CRC.unpack_from(preamble, _PREAMBLE.size)[0]:
        raise _damaged(path, "preamble")
    if version > FORMAT_VERSION:
        raise InputError(
            f"panel {path}: made by a newer version of spinimpute (panel version {version}, this one reads "
            f"{FORMAT_VERSION}). Update spinimpute"
        )
    if size != total:
        what = "truncated" if size < total else "damaged"
        raise InputError(f"panel {path}: {what}: {size} bytes, the file says {total}. Copy it again")
    return offset, length, crc


class _PanelWriter:
    """Writes haplotypes as they come, the rest at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sections: dict[str, dict[str, int]] = {}
        self._content_hash = hashlib.sha256()
        self._block_crc: list[int] = []
        self._rows_in_block = 0
        self._crc = self._nbytes = 0
        file.write(b"\0" * (_PREAMBLE.size + _CRC.size))  # written last: until then this is no panel
        self._haplotypes_offset = self._align()

    def add_haplotypes(self, packed: np.ndarray) -> None:
        """Append packed rows, uint8 (n, ceil(n_haplotypes / 8))."""
        done = 0
        while done < len(packed):
            if self._rows_in_block == 0:
                self._block_crc.append(0)
            rows = packed[done : done + BLOCK_SITES - self._rows_in_block]
            self._block_crc[-1] = zlib.crc32(rows.data, self._block_crc[-1])
            self._rows_in_block = (self._rows_in_block + len(rows)) % BLOCK_SITES
            done += len(rows)
        content = packed.tobytes()
        self._crc = zlib.crc32(content, self._crc)
        self._nbytes += len(content)
        self._content_hash.update(content)
        self._file.write(content)

    def finish(self, table: dict[str, bytes], header: dict[str, Any]) -> None:
        """Write the site table, the header and the preamble."""
        self._sections["haplotypes"] = {
            "offset": self._haplotypes_offset,
            "nbytes": self._nbytes,
            "crc": self._crc,
        }
        for name, content in table.items():
            self._content_hash.update(name.encode() + content)
            self._add_section(name, content)
        self._add_section("block_crc", np.array(self._block_crc, dtype="<u4").tobytes())
        identity = {key: header[key] for key in ("chrom", "contig_line", "samples", "ploidy", "n_sites")}
        self._content_hash.update(json.dumps(identity, sort_keys=True).encode())
        checksum = self._content_hash.hexdigest()
        encoded = json.dumps(
            header | {"checksum": checksum, "sections": self._sections}, sort_keys=True, ensure_ascii=False
        ).encode()
        offset = self._align()
        self._file.write(encoded)
        preamble = _PREAMBLE.pack(
            _MAGIC, FORMAT_VERSION, zlib.crc32(encoded), offset, len(encoded), self._file.tell()
        )
        self._file.seek(0)
        self._file.write(preamble + _CRC.pack(zlib.crc32(preamble)))

    def _add_section(self, name: str, content: bytes) -> None:
        self._sections[name] = {"offset": self._align(), "nbytes": len(content), "crc": zlib.crc32(content)}
        self._file.write(content)

    def _align(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        return self._file.tell()


def build_panel(
    vcf: str | Path,
    out: str | Path,
    genetic_map: str | Path | GeneticMap | None = None,
    region: Region | None = None,
    samples: Sequence[str] | None = None,
    force: bool = False,
    command: str = "",
) -> Panel:
    """Build a panel file from a phased VCF, VCF.gz or BCF of one chromosome and open it.

    genetic_map: a map or its file; without one a constant rate is assumed, with a warning. region, samples:
    the part of the VCF to take. force: overwrite `out`. command: kept in the provenance. Of several records
    with the same position and alleles the first is kept; provenance["skipped"] counts what was left out.

    The bytes depend only on the arguments and the VCF. They are written to a temporary file beside `out`
    which takes its name when it is complete.

    Raises InputError for whatever `read_haplotypes` and `GeneticMap.read` refuse, for missing calls, an
    existing `out` without `force`, and a folder that cannot be written to.
    """
    out = check_output(out, force, [vcf, genetic_map])
    reader = HaplotypeReader(vcf, region, samples=samples, role="panel", allow_missing=False)
    with written_whole(out) as partial, partial.open("wb") as file:
        _write_panel(file, reader, genetic_map, command)
        file.flush()
        os.fsync(file.fileno())
    return Panel.open(out)


def _write_panel(
    file: BinaryIO, reader: HaplotypeReader, genetic_map: str | Path | GeneticMap | None, command: str
) -> None:
    writer = _PanelWriter(file)
    blocks: list[Sites] = []
    counts: list[np.ndarray] = []
    multiallelic: list[np.ndarray] = []
    here = 0  # the last position
    seen_here: set[tuple[int, str, str]] = set()
    n_duplicates = 0
    chosen_map: GeneticMap | None = None
    for sites, alleles, split in reader:
        if chosen_map is None:
            chosen_map = choose_map(genetic_map, sites.chrom)
        fresh = []
        keys = sites.keys()
        for key in keys:
            if key[0] != here:
                here = key[0]
                seen_here.clear()
            fresh.append(key not in seen_here)
            seen_here.add(key)
        if not all(fresh):
            kept = np.array(fresh)
            n_duplicates += int((~kept).sum())
            sites, alleles, split = sites.take(kept), alleles[kept], split[kept]
        blocks.append(sites)
        counts.append(alleles.sum(axis=1, dtype=np.uint32))
        multiallelic.append(split)
        # a choice of columns may lie in memory the other way round
        writer.add_haplotypes(np.ascontiguousarray(np.packbits(alleles.view(np.uint8), axis=1)))
    assert chosen_map is not None  # a reader yields a block or raises
    sites = Sites.concatenate(blocks)
    _warn_if_elsewhere(chosen_map, sites)
    skipped = reader.skipped | ({DUPLICATE_RECORD: n_duplicates} if n_duplicates else {})
    table = {
        "position": sites.position.astype("<i8").tobytes(),
        "cM": chosen_map.cM(sites.position).astype("<f8").tobytes(),
        "allele_count": np.concatenate(counts).astype("<u4").tobytes(),
        "ref": "\n".join(sites.ref).encode(),
        "alt": "\n".join(sites.alt).encode(),
        "id": "\n".join(sites.id).encode(),
        "multiallelic": np.packbits(np.concatenate(multiallelic)).tobytes(),
    }
    header = {
        "chrom": sites.chrom,
        "contig_line": reader.contig_line,
        "samples": reader.samples,
        "ploidy": "".join(map(str, reader.ploidy.tolist())),
        "n_sites": len(sites),
        "provenance": {
            "spinimpute": package_version(),
            "source": reader.path.name,
            "source_bytes": reader.path.stat().st_size,
            "map": chosen_map.description,
            "command": command,
            "skipped": skipped,
        },
    }
    writer.finish(table, header)


def write_with_map(panel: Panel, out: Path, cM: np.ndarray, provenance: dict[str, Any]) -> None:
    """Write a panel again with other genetic positions, float64 (n_sites,), never decreasing.

    provenance: added to the panel's own. Raises InputError if the panel is damaged, OSError if `out` cannot
    be written.
    """
    with out.open("wb") as file:
        writer = _PanelWriter(file)
        for start in range(0, panel.n_sites, BLOCK_SITES):
            writer.add_haplotypes(panel.packed(start, min(start + BLOCK_SITES, panel.n_sites)))
        table = {name: panel._section(name) for name in TABLE_SECTIONS}
        table["cM"] = cM.astype("<f8").tobytes()
        header = {
            "chrom": panel.chrom,
            "contig_line": panel.contig_line,
            "samples": panel.samples,
            "ploidy": "".join(map(str, panel.ploidy.tolist())),
            "n_sites": panel.n_sites,
            "provenance": panel.provenance | provenance,
        }
        writer.finish(table, header)
        file.flush()
        os.fsync(file.fileno())


def choose_map(genetic_map: str | Path | GeneticMap | None, chrom: str) -> GeneticMap:
    """The map of a chromosome; a constant rate, with a warning, if none is given."""
    if genetic_map is None:
        constant = GeneticMap.constant()
        warnings.warn(
            f"no genetic map: {constant.description} is assumed on chromosome {chrom}", stacklevel=4
        )
        return constant
    if not isinstance(genetic_map, GeneticMap):
        return GeneticMap.read(genetic_map, chrom)
    if genetic_map.chrom is not None and plain_chromosome(genetic_map.chrom) != plain_chromosome(chrom):
        raise InputError(f"the genetic map is of chromosome {genetic_map.chrom}, the panel of {chrom}")
    return genetic_map


def _warn_if_elsewhere(genetic_map: GeneticMap, sites: Sites) -> None:
    if genetic_map.chrom is None:
        return
    first, last = int(sites.position[0]), int(sites.position[-1])
    if last < genetic_map.first_position or first > genetic_map.last_position:
        warnings.warn(
            f"the genetic map covers {sites.chrom}:{genetic_map.first_position}-{genetic_map.last_position} "
            f"but the panel lies at {first}-{last}; is the map of the same genome build?",
            stacklevel=4,
        )


def package_version() -> str:
    """Of spinimpute."""
    try:
        return importlib.metadata.version("spinimpute")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
