"""Cuts what a compressed VCF or BCF holds of a chromosome into stretches of equal size, by its index."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from spinimpute.genotypes.sites import Region, plain_chromosome
from spinimpute.genotypes.vcf_check import fresh_index

STRETCH_BYTES = 4 * 2**20  # of the compressed file, at least

_TABIX_HEAD = struct.Struct("<7i")  # form, three columns, comment sign, lines to skip, bytes of the names
_CHUNK_BYTES = 16
_TBI_WINDOW = 2**14  # positions of an entry of the linear index


class _Contig(NamedTuple):
    """places: 0-based positions, increasing, with the byte of the compressed file from which on the records
    lie that reach beyond them."""

    name: str
    places: list[tuple[int, int]]


def stretches_of(path: Path, header_contigs: list[str], region: Region | None) -> list[Region]:
    """Regions that hold all records of `region`, or of the file's only chromosome, one behind the other.

    header_contigs: names in the order of the header. Empty where the index is missing, older than the file
    or damaged, where the file has several chromosomes and no region is given, and where the file is small.
    """
    if not fresh_index(path):
        return []
    try:
        contigs = _read_index(path, header_contigs)
    except (OSError, EOFError, zlib.error, struct.error, UnicodeDecodeError, IndexError):
        return []
    if region is not None:
        wanted = plain_chromosome(region.chrom)
        contigs = [contig for contig in contigs if plain_chromosome(contig.name) == wanted]
    if len(contigs) != 1:
        return []
    (contig,) = contigs
    if [plain_chromosome(name) for name in header_contigs].count(plain_chromosome(contig.name)) != 1:
        return []  # a reader goes through all of such a file
    whole = Region(contig.name, region.start, region.end) if region else Region(contig.name)
    regions = []
    first, begin = whole.start, None
    for start, byte in contig.places:
        if start < first:
            begin = byte
        elif start >= whole.end:
            break
        elif begin is None:
            begin = byte
        elif byte - begin >= STRETCH_BYTES:
            regions.append(Region(contig.name, first, start))
            first, begin = start + 1, byte
    return [*regions, Region(contig.name, first, whole.end)] if regions else []


def _read_index(path: Path, header_contigs: list[str]) -> list[_Contig]:
    """The contigs that hold records. Raises one of many errors if the index is damaged."""
    index = path.with_name(path.name + ".csi")
    if not index.is_file():  # htslib prefers it, too
        index = path.with_name(path.name + ".tbi")
    content = gzip.decompress(index.read_bytes())
    if content.startswith(b"CSI\1"):
        return _read_csi(content, header_contigs)
    return _read_tbi(content) if content.startswith(b"TBI\1") else []


def _read_csi(content: bytes, header_contigs: list[str]) -> list[_Contig]:
    shift, depth, n_auxiliary = struct.unpack_from("<3i", content, 4)
    # of a BCF the names are the header's
    names = _names(content[16 : 16 + n_auxiliary]) or header_contigs
    (n_contigs,) = struct.unpack_from("<i", content, 16 + n_auxiliary)
    at = 20 + n_auxiliary
    n_all_bins = ((1 << 3 * (depth + 1)) - 1) // 7
    found = []
    for number in range(n_contigs):
        (n_bins,) = struct.unpack_from("<i", content, at)
        at += 4
        places: dict[int, int] = {}
        for _ in range(n_bins):
            bin_number, offset, n_chunks = struct.unpack_from("<IQi", content, at)
            at += 16 + n_chunks * _CHUNK_BYTES
            if offset and bin_number < n_all_bins:  # one more is no bin, but counts records
                places[_first_position(bin_number, depth) << shift] = offset >> 16
        if places:
            found.append(_Contig(names[number], sorted(places.items())))
    return found


def _first_position(bin_number: int, depth: int) -> int:
    """Of a bin, in widths of the smallest bins."""
    level, first = 0, 0
    while bin_number >= first + (1 << 3 * level):
        first += 1 << 3 * level
        level += 1
    return (bin_number - first) << 3 * (depth - level)


def _read_tbi(content: bytes) -> list[_Contig]:
    (n_contigs,) = struct.unpack_from("<i", content, 4)
    n_names = _TABIX_HEAD.unpack_from(content, 8)[-1]
    at = 8 + _TABIX_HEAD.size + n_names
    names = _names(content[8:at])
    found = []
    for number in range(n_contigs):
        (n_bins,) = struct.unpack_from("<i", content, at)
        at += 4
        for _ in range(n_bins):
            _, n_chunks = struct.unpack_from("<Ii", content, at)
            at += 8 + n_chunks * _CHUNK_BYTES
        (n_windows,) = struct.unpack_from("<i", content, at)
        offsets = struct.unpack_from(f"<{n_windows}Q", content, at + 4)
        at += 4 + 8 * n_windows
        places = [(window * _TBI_WINDOW, offset >> 16) for window, offset in enumerate(offsets) if offset]
        if places:
            found.append(_Contig(names[number], places))
    return found


def _names(head_and_names: bytes) -> list[str]:
    """The contigs' names in a tabix head."""
    return head_and_names[_TABIX_HEAD.size :].decode().split("\0")[:-1]
