"""Read and check the indexes of compressed VCF, BCF and BAM files.

`chromosome_records` uses the parsed index to find the records of a chromosome, and `panels.build` uses it
to split a large file among processes. Damaged indexes are refused, because htslib crashes on them.
`index_writer` explains bins and windows, `bgzf` explains virtual offsets.
"""

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

INTERVAL_BYTES = 4 * 2**20  # minimum compressed bytes per region when a file is split among processes

_TBI, _CSI, _BAI = b"TBI\1", b"CSI\1", b"BAI\1"
_TABIX_HEADER = struct.Struct("<7i")  # format, 3 columns, comment character, lines to skip, bytes of names
_CSI_HEADER_BYTES = 16
_MAX_SHIFT, _MAX_DEPTH = 31, 9  # with a larger depth, the bin IDs would not fit into 32 bits
_CHUNK_BYTES, _WINDOW_BYTES = 16, 8
_MAX_INFLATION = 20  # maximum ratio of decompressed to compressed size; about 2 is usual
_ALWAYS_ALLOWED = 2**24  # decompressed bytes allowed at any ratio; the parsed index takes 6 times this memory
_PSEUDO_BIN_CHUNKS = 2  # entries of the pseudo-bin, which holds a contig's file offsets and record count
_BLOCK_START = EOF_BLOCK[:4]  # every BGZF block starts with these bytes
_READ_START, _NO_CONTIG = struct.Struct("<2i"), -1  # a BAM record starts with its length and contig index
_UNREADABLE = (OSError, EOFError, zlib.error, struct.error, ValueError, LookupError)


class BinStart(NamedTuple):
    """Start of a chunk of records that belong to one bin."""

    offset: int  # virtual offset
    latest: int  # last position of the bin, 1-based; the chunk's first record starts at or before it


class IndexedContig(NamedTuple):
    """A chromosome with records, as listed in an index."""

    name: str
    number: int  # contig index in a BCF header; in a VCF's index, the rank of the contig
    starts: list[BinStart]
    end: int  # virtual offset after its last record
    # increasing 0-based positions, each with the file offset of the first block with a record that ends later
    linear: list[tuple[int, int]]


def read_index(path: Path) -> list[IndexedContig]:
    """List the chromosomes with records from the index of a compressed VCF or BCF.

    The list is empty if the index is missing, unreadable, older than the file, or belongs to another file.
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
            return []  # cyvcf2 chooses the kind of index by the file name, and would choose the wrong one
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
    """Raise InputError if the index that htslib would use for this file is damaged.

    htslib corrupts its memory when it reads a damaged index. `name` is the file's role and path.
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
    """Return the virtual offset after the last placed (mapped) read, from a .bai or .csi index.

    The offset is 0 if there is no placed read. Raises DamagedFile for a damaged index, because htslib crashes
    on it or never stops reading.
    """
    try:
        content = gunzip(index.read_bytes(), _MAX_INFLATION, _ALWAYS_ALLOWED)
        return max((contig.end for contig in _parse(content, (_BAI, _CSI))), default=0)
    except _UNREADABLE as error:
        raise DamagedFile(str(error)) from error


def placed_reads_end_at(path: Path, end: int) -> bool:
    """Return whether the placed reads of a complete BAM may end at a virtual offset.

    The result is False if no BGZF block starts at the offset, or if a placed read follows it. In case of
    doubt, for example if the block is damaged, the result is True.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if end >= size << 16:  # the indexer had also read the end-of-file block
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
    """Read a _READ_START at a virtual offset. Return None if the stream ends before the offset."""
    file.seek(offset >> 16)
    reader = BgzfReader(file)
    before = reader.read(offset & 0xFFFF)
    return reader.read(_READ_START.size) if len(before) == offset & 0xFFFF else None


def index_mismatch(role: str, path: Path, what: object) -> InputError:
    """Return the error for an index that does not match its file. `role` is "panel" or "target"."""
    return InputError(
        "damaged",
        f"{role} {path}: the file is damaged, or its index is of another file ({what}). Get the file "
        f"again, or write its index again: bcftools index -f {path}",
    )


def split_by_size(path: Path, header_contigs: list[str], region: Region | None) -> list[Region]:
    """Split a region into parts that each take at least INTERVAL_BYTES of the compressed file.

    Without a region, the file's only chromosome is split. The list is empty if the file is small or has no
    usable index, or if it has several chromosomes and no region is given.
    """
    contigs = read_index(path)
    if region is not None:
        matching_names = chromosome_names(region.chrom, [contig.name for contig in contigs])
        contigs = [contig for contig in contigs if contig.name in matching_names]
    if len(contigs) != 1:
        return []
    (contig,) = contigs
    if chromosome_names(contig.name, header_contigs) != {contig.name}:
        return []  # the header has other names of the chromosome: read the file in one piece
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
    """Return whether a file has a .csi or .tbi index that is not older than the file itself."""
    index = _find_index(path)
    return index is not None and index.stat().st_mtime >= path.stat().st_mtime


def _find_index(path: Path) -> Path | None:
    """Return the index that htslib would use for a compressed file, or None.

    htslib prefers .csi. It looks for the index both with and without the file's own suffix.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return None
    names = (name + suffix for suffix in (".csi", ".tbi") for name in (path.name, path.stem))
    return next((index for index in map(path.with_name, names) if index.is_file()), None)


def _records_end_at(path: Path, end: int) -> bool:
    """Return whether the records of a VCF or BCF end at a virtual offset."""
    with path.open("rb") as file:
        if end == file.seek(0, os.SEEK_END) << 16:  # the indexer had also read the end-of-file block
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
    """List the chromosomes in the index of a VCF or BCF. Raises one of _UNREADABLE."""
    state = index.stat()
    return _read_contigs_cached(index, state.st_mtime_ns, state.st_size)


# a run opens a file several times, and parsing an index takes half a second; time and size identify a version
@lru_cache(maxsize=4)
def _read_contigs_cached(index: Path, _mtime_ns: int, _size: int) -> list[IndexedContig]:
    return _parse(gunzip(index.read_bytes(), _MAX_INFLATION, _ALWAYS_ALLOWED), (_TBI, _CSI))


def _parse(content: bytes, formats: tuple[bytes, ...]) -> list[IndexedContig]:
    """Parse an index. The contigs have no names in a BAI, or in a CSI of a BCF.

    Raises one of _UNREADABLE if the index is damaged or has none of the formats.
    """
    magic = content[:4]
    if magic not in formats:
        raise ValueError("it does not start like an index")
    shift, depth, at, tabix_header = MIN_SHIFT, TBI_DEPTH, 4, b""
    if magic == _CSI:
        shift, depth, n_auxiliary = struct.unpack_from("<3i", content, at)
        if not 0 <= shift <= _MAX_SHIFT or not 0 <= depth <= _MAX_DEPTH or n_auxiliary < 0:
            raise ValueError("its bin sizes are invalid")
        at = _CSI_HEADER_BYTES + n_auxiliary
        tabix_header = content[_CSI_HEADER_BYTES:at]
    n_contigs, at = _read_count(content, at)
    if magic == _TBI:
        n_names, stop = _read_count(content, 4 + _TABIX_HEADER.size)
        at = stop + n_names
        tabix_header = content[8:at]
    names = _parse_names(tabix_header, n_contigs) if tabix_header else [""] * n_contigs
    bin_header = struct.Struct("<IQ" if magic == _CSI else "<I")  # bin ID; in CSI also its linear index
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
    """Return the first 0-based position of a bin, and the position after its last one."""
    level = next(level for level in range(depth + 1) if bin_id < first_bin(level + 1))
    width = shift + LEVEL_SHIFT * (depth - level)
    rank = bin_id - first_bin(level)
    return rank << width, (rank + 1) << width


def _read_count(content: bytes, at: int) -> tuple[int, int]:
    """Read a count of items. Return it with the offset after it.

    Raises ValueError if the rest of the content is too short for so many items.
    """
    (count,) = struct.unpack_from("<i", content, at)
    if not 0 <= count <= len(content) - at:
        raise ValueError("a count of items exceeds its length")
    return count, at + 4


def _parse_names(tabix_header: bytes, n_contigs: int) -> list[str]:
    """Read the contig names that follow the tabix header."""
    n_bytes = _TABIX_HEADER.unpack_from(tabix_header)[-1]
    *names, rest = tabix_header[_TABIX_HEADER.size :].decode().split("\0")
    if n_bytes != len(tabix_header) - _TABIX_HEADER.size or rest or len(names) != n_contigs:
        raise ValueError("its list of chromosome names is inconsistent")
    return names
