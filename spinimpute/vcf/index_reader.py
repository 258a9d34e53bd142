"""Indexes of compressed VCF, BCF and BAM files: checks, and where the records of a chromosome are."""

from __future__ import annotations

import gzip
import os
import struct
import warnings
import zlib
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from spinimpute.genotypes.sites import Region, chromosome_names
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import GZIP_MAGIC, gunzip
from spinimpute.vcf.bcf_format import is_bcf, read_header
from spinimpute.vcf.bgzf import EOF_BLOCK, BgzfReader, DamagedFile
from spinimpute.vcf.header import header_indexes
from spinimpute.vcf.index_writer import LEVEL_SHIFT, MIN_SHIFT, TBI_DEPTH, first_bin

INTERVAL_BYTES = 4 * 2**20  # least size of the compressed file for a region that a process reads

_TBI, _CSI, _BAI = b"TBI\1", b"CSI\1", b"BAI\1"
# format, three columns, comment character, lines to skip, length of the names
_TABIX_HEADER = struct.Struct("<7i")
_CSI_HEADER_BYTES = 16
_MAX_SHIFT, _MAX_DEPTH = 31, 9  # the numbers of more bins do not fit their field
_CHUNK_BYTES, _WINDOW_BYTES = 16, 8
_MAX_INFLATION = 20  # size of the decompressed index relative to the compressed one; usual is twice
_ALWAYS_ALLOWED = 2**24  # bytes that it may have in any case: parsed, it takes six times as much memory
_PSEUDO_BIN_CHUNKS = 2  # of the pseudo-bin that counts records
_BLOCK_START = EOF_BLOCK[:4]  # of any block
_READ_START, _NO_CONTIG = struct.Struct("<2i"), -1  # length of a BAM record, and its contig
_UNREADABLE = (OSError, EOFError, zlib.error, struct.error, ValueError, LookupError)


class BinStart(NamedTuple):
    """Virtual offset at which records of a bin start; the first starts at or before position `latest`."""

    offset: int
    latest: int


class IndexedContig(NamedTuple):
    """A chromosome that has records.

    `number` is the contig's number in a BCF, and its rank in the index of a VCF. `end` is the virtual offset
    after its records. `linear` lists 0-based positions, increasing, each with the offset in the compressed
    file of the first block with records that reach beyond the position.
    """

    name: str
    number: int
    starts: list[BinStart]
    end: int
    linear: list[tuple[int, int]]


def read_index(path: Path) -> list[IndexedContig]:
    """List the chromosomes with records, from the index of a compressed VCF or BCF.

    Empty if the index is missing, unreadable, older than the file, or of another file.
    """
    index = _find_index(path)
    if index is None:
        return []
    if not has_fresh_index(path):
        _warn_index_unused(index, path, "is older than the file")
        return []
    names = None
    try:
        if is_bcf(path):
            with gzip.open(path) as file:
                lines = read_header(file).rstrip(b"\0").decode().splitlines()
            names = {number: name for name, number in header_indexes(lines).contigs.items()}
        if (names is not None) != path.name.endswith(".bcf"):
            return []  # cyvcf2 goes by the name, and would read the wrong kind of index
        contigs = _read_contigs(index)
        if names is not None:
            contigs = [contig._replace(name=names[contig.number]) for contig in contigs]
    except _UNREADABLE:
        return []
    if contigs and not _records_end_at(path, max(contig.end for contig in contigs)):
        _warn_index_unused(index, path, "is of another file")
        return []
    return contigs


def check_index(path: Path, name: str) -> None:
    """Raise InputError if htslib would use a damaged index for this file: it corrupts memory with it.

    `name` is the file's role and path.
    """
    index = _find_index(path)
    if index is None:
        return
    try:
        _read_contigs(index)
    except _UNREADABLE as error:
        raise InputError(
            "damaged",
            f"{name}: its index {index} is damaged ({error}). Remove it, or write it again: "
            f"bcftools index -f {path}",
        ) from error


def check_bam_index(index: Path) -> int:
    """Return the virtual offset after the last placed read of a .bai or .csi file; 0 if there is none.

    Raises DamagedFile for a damaged index: htslib crashes on it, or reads without end.
    """
    try:
        content = gunzip(index.read_bytes(), _MAX_INFLATION, _ALWAYS_ALLOWED)
        return max((contig.end for contig in _parse(content, (_BAI, _CSI))), default=0)
    except _UNREADABLE as error:
        raise DamagedFile(str(error)) from error


def placed_reads_end_at(path: Path, end: int) -> bool:
    """Whether the placed reads of a complete BAM may end at a virtual offset.

    False if no block starts there, or the offset is followed by a placed read. True in cases of doubt, such
    as a damaged block.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if end >= size << 16:  # at the end itself: the writer had read the last block, too
            return end == size << 16
        file.seek(end >> 16)
        if file.read(len(_BLOCK_START)) != _BLOCK_START:
            return False
        try:
            following = _bytes_at(file, end)
        except DamagedFile:
            return True
    if not following:
        return True
    return len(following) == _READ_START.size and _READ_START.unpack(following)[1] == _NO_CONTIG


def _bytes_at(file: BufferedReader, offset: int) -> bytes | None:
    """The bytes at a virtual offset, as many as start a read; None if the stream ends before."""
    file.seek(offset >> 16)
    reader = BgzfReader(file)
    before = reader.read(offset & 0xFFFF)
    return reader.read(_READ_START.size) if len(before) == offset & 0xFFFF else None


def index_mismatch(role: str, path: Path, what: object) -> InputError:
    """The error for a file and an index that do not agree; `role` is "panel" or "target"."""
    return InputError(
        "damaged",
        f"{role} {path}: the file is damaged, or its index is of another file ({what}). Get the file "
        f"again, or write its index again: bcftools index -f {path}",
    )


def split_by_size(path: Path, header_contigs: list[str], region: Region | None) -> list[Region]:
    """Split a region into regions that take about INTERVAL_BYTES of the compressed file each.

    Without a region the file's only chromosome is split. Empty for a small file, without a usable index, and
    for a file with several chromosomes and no region.
    """
    contigs = read_index(path)
    if region is not None:
        matching_names = chromosome_names(region.chrom, [contig.name for contig in contigs])
        contigs = [contig for contig in contigs if contig.name in matching_names]
    if len(contigs) != 1:
        return []
    (contig,) = contigs
    if chromosome_names(contig.name, header_contigs) != {contig.name}:
        return []  # such a file is read as a whole
    whole = Region(contig.name, region.start, region.end) if region else Region(contig.name)
    regions = []
    first, first_byte = whole.start, None
    for position, byte in contig.linear:
        if position < first:
            first_byte = byte
        elif position >= whole.end:
            break
        elif first_byte is None:
            first_byte = byte
        elif byte - first_byte >= INTERVAL_BYTES:
            regions.append(Region(contig.name, first, position))
            first, first_byte = position + 1, byte
    return [*regions, Region(contig.name, first, whole.end)] if regions else []


def has_fresh_index(path: Path) -> bool:
    """Whether there is a .csi or .tbi index that is not older than the file."""
    index = _find_index(path)
    return index is not None and index.stat().st_mtime >= path.stat().st_mtime


def _find_index(path: Path) -> Path | None:
    """The index that htslib uses for a compressed file.

    It prefers .csi, and also looks for the file's name without its suffix.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return None
    names = (name + suffix for suffix in (".csi", ".tbi") for name in (path.name, path.stem))
    return next((index for index in map(path.with_name, names) if index.is_file()), None)


def _records_end_at(path: Path, end: int) -> bool:
    """Whether the records of a VCF or BCF end at a virtual offset."""
    with path.open("rb") as file:
        if end == file.seek(0, os.SEEK_END) << 16:  # the writer had read the last block, too
            end -= len(EOF_BLOCK) << 16
        try:
            return _bytes_at(file, end) == b""
        except DamagedFile:
            return False


def _warn_index_unused(index: Path, path: Path, what: str) -> None:
    warnings.warn(
        f"{path}: its index {index.name} {what}. The file is read without the index. Write the index again: "
        f"bcftools index -f {path}",
        stacklevel=2,
    )


def _read_contigs(index: Path) -> list[IndexedContig]:
    """The chromosomes in the index of a VCF or BCF; raises one of _UNREADABLE."""
    state = index.stat()
    return _read_contigs_cached(index, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)  # a file is opened several times in a run, and parsing its index takes half a second
def _read_contigs_cached(index: Path, _mtime_ns: int, _size: int) -> list[IndexedContig]:
    return _parse(gunzip(index.read_bytes(), _MAX_INFLATION, _ALWAYS_ALLOWED), (_TBI, _CSI))


def _parse(content: bytes, formats: tuple[bytes, ...]) -> list[IndexedContig]:
    """Parse an index; without names where it has none, as in BAI and in CSI of BCF.

    Raises one of _UNREADABLE for an index that is damaged or of none of the formats.
    """
    magic = content[:4]
    if magic not in formats:
        raise ValueError("it does not start like an index")
    shift, depth, at, tabix_header = MIN_SHIFT, TBI_DEPTH, 4, b""
    if magic == _CSI:
        shift, depth, n_auxiliary = struct.unpack_from("<3i", content, at)
        if not 0 <= shift <= _MAX_SHIFT or not 0 <= depth <= _MAX_DEPTH or n_auxiliary < 0:
            raise ValueError("its bins are impossible")
        at = _CSI_HEADER_BYTES + n_auxiliary
        tabix_header = content[_CSI_HEADER_BYTES:at]
    n_contigs, at = _read_count(content, at)
    if magic == _TBI:
        n_names, stop = _read_count(content, 4 + _TABIX_HEADER.size)
        at = stop + n_names
        tabix_header = content[8:at]
    names = _parse_names(tabix_header, n_contigs) if tabix_header else [""] * n_contigs
    bin_header = struct.Struct("<IQ" if magic == _CSI else "<I")  # number, and in CSI the linear index
    n_bins = first_bin(depth + 1)
    contigs = []
    for number, name in enumerate(names):
        starts: list[BinStart] = []
        linear: dict[int, int] = {}
        end = 0
        n_bins_listed, at = _read_count(content, at)
        for _ in range(n_bins_listed):
            bin_id, linear_offset = (*bin_header.unpack_from(content, at), 0)[:2]
            n_chunks, at = _read_count(content, at + bin_header.size)
            offsets = struct.unpack_from(f"<{2 * n_chunks}Q", content, at)
            at += n_chunks * _CHUNK_BYTES
            if bin_id >= n_bins:
                if (bin_id, n_chunks) != (n_bins + 1, _PSEUDO_BIN_CHUNKS):
                    raise ValueError(f"bin {bin_id} with {n_chunks} chunks does not exist")
                continue
            first, last = _bin_interval(bin_id, shift, depth)
            starts += [BinStart(offset, last) for offset in offsets[::2]]
            end = max(end, *offsets[1::2], 0)
            if linear_offset:
                linear[first] = linear_offset >> 16
        if magic != _CSI:
            n_windows, at = _read_count(content, at)
            offsets = struct.unpack_from(f"<{n_windows}Q", content, at)
            at += n_windows * _WINDOW_BYTES
            linear = {window << shift: offset >> 16 for window, offset in enumerate(offsets) if offset}
        if starts:
            contigs.append(IndexedContig(name, number, sorted(starts), end, sorted(linear.items())))
    return contigs


def _bin_interval(bin_id: int, shift: int, depth: int) -> tuple[int, int]:
    """First 0-based position of a bin, and the position after it; each bin has eight children."""
    level = next(level for level in range(depth + 1) if bin_id < first_bin(level + 1))
    width = shift + LEVEL_SHIFT * (depth - level)
    rank = bin_id - first_bin(level)
    return rank << width, (rank + 1) << width


def _read_count(content: bytes, at: int) -> tuple[int, int]:
    """Read a count that the rest of the content can hold, and the offset after the count."""
    (count,) = struct.unpack_from("<i", content, at)
    if not 0 <= count <= len(content) - at:
        raise ValueError("a count exceeds its size")
    return count, at + 4


def _parse_names(tabix_header: bytes, n_contigs: int) -> list[str]:
    """Names of the contigs, from the head that tabix writes."""
    n_bytes = _TABIX_HEADER.unpack_from(tabix_header)[-1]
    *names, rest = tabix_header[_TABIX_HEADER.size :].decode().split("\0")
    if n_bytes != len(tabix_header) - _TABIX_HEADER.size or rest or len(names) != n_contigs:
        raise ValueError("its names are of other chromosomes")
    return names
