"""What the index of a compressed VCF or BCF says: where in the file the records of each chromosome lie."""

from __future__ import annotations

import gzip
import os
import struct
import warnings
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from spinimpute.genotypes.sites import Region, chromosome_names
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import GZIP_MAGIC, gunzipped
from spinimpute.vcf.bcf_format import is_bcf, read_header
from spinimpute.vcf.bgzf import EOF_BLOCK, BgzfReader, DamagedFile
from spinimpute.vcf.header import header_numbers
from spinimpute.vcf.index_writer import LEVEL_SHIFT, MIN_SHIFT, TBI_DEPTH, first_bin

INTERVAL_BYTES = 4 * 2**20  # of the compressed file, at least

_TABIX_HEAD = struct.Struct("<7i")  # form, three columns, comment sign, lines to skip, bytes of the names
_CSI_HEAD_BYTES = 16
_MOST_SHIFT, _MOST_DEPTH = 31, 9  # the numbers of more bins do not fit their field
_CHUNK_BYTES, _WINDOW_BYTES = 16, 8
_BIN_OF_BAI, _BIN_OF_CSI = struct.Struct("<Ii"), struct.Struct("<I8xi")  # number, and how many chunks follow
_MOST_TIMES = 20  # as long as it is packed; usual is twice
_LEAST_BOUND = 2**24  # bytes that it may have in any case: all of it becomes objects, of six times the size
_CHUNKS_THAT_COUNT = 2  # in the bin behind the last: it counts records
_BLOCK_START = EOF_BLOCK[:4]  # of any block
_READ_START, _NO_CONTIG = struct.Struct("<2i"), -1  # bytes of a read in a BAM, and its contig
_UNREADABLE = (OSError, EOFError, zlib.error, struct.error, ValueError, LookupError)


class Run(NamedTuple):
    """Records in a row.

    Attributes
    ----------
    offset : int
        Virtual offset of the first of them.
    last : int
        The first of them begins at this position, 1-based, or before.
    """

    offset: int
    last: int


class Contig(NamedTuple):
    """A chromosome that has records.

    Attributes
    ----------
    name : str
        Its name in the file.
    number : int
        The number by which a BCF's records name it; in the index of a VCF its place.
    runs : list of Run
        Where its records are.
    end : int
        Virtual offset of the byte after its records.
    places : list of (int, int)
        0-based positions, increasing, each with the first byte of the compressed file from which on there are
        records that reach beyond it.
    """

    name: str
    number: int
    runs: list[Run]
    end: int
    places: list[tuple[int, int]]


def read_index(path: Path) -> list[Contig]:
    """The chromosomes that have records, as the index of a file lists them.

    An index that is older than the file, or of another one, is not used; there is a warning of it.

    Parameters
    ----------
    path : Path
        A compressed VCF or BCF.

    Returns
    -------
    list of Contig
        Empty if the index is missing, older than the file, of another file, or unreadable.
    """
    index = _index_of(path)
    if index is None or not path.is_file():
        return []
    if not fresh_index(path):
        _warn_of(index, path, "older than the file")
        return []
    try:
        names = _bcf_contigs(path)
        if (names is not None) != path.name.endswith(".bcf"):
            return []  # cyvcf2 goes by the name, and would read with the wrong kind of index
        contigs = _contigs(index)
        if names is not None:
            contigs = [contig._replace(name=names[contig.number]) for contig in contigs]
    except _UNREADABLE:
        return []
    if contigs and not _ends_at(path, max(contig.end for contig in contigs)):
        _warn_of(index, path, "of another file")
        return []
    return contigs


def check_index(path: Path) -> None:
    """Check what htslib takes for the index of a file, if there is one: a cut one makes it spoil its memory.

    Parameters
    ----------
    path : Path
        A VCF or BCF.

    Raises
    ------
    DamagedFile
        It is no index, or is cut.
    """
    index = _index_of(path)
    if index is None:
        return
    try:
        _contigs(index)
    except _UNREADABLE as error:
        raise DamagedFile(f"its index {index} is cut or damaged ({error})") from error


def check_bam_index(index: Path) -> int:
    """Check the index of a BAM: htslib crashes, or reads without end, on a damaged one.

    Parameters
    ----------
    index : Path
        A .bai or .csi file.

    Returns
    -------
    int
        The virtual offset behind the last read with a place; 0 if there is none.

    Raises
    ------
    DamagedFile
        The file is not an index of a BAM, is truncated, or has a bin that does not exist.
    """
    try:
        content = gunzipped(index.read_bytes(), _MOST_TIMES, _LEAST_BOUND)
        if content.startswith(b"BAI\1"):
            return _end_of_bins(content, 4, TBI_DEPTH, _BIN_OF_BAI, has_windows=True)
        _, depth, at = _csi_head(content)
        return _end_of_bins(content, at, depth, _BIN_OF_CSI, has_windows=False)
    except _UNREADABLE as error:
        raise DamagedFile(str(error)) from error


def placed_reads_end_at(path: Path, end: int) -> bool:
    """Whether the last read with a place may end at a virtual offset of a BAM, as its index says.

    Parameters
    ----------
    path : Path
        A BAM that ends with the block that BGZF files end with.
    end : int
        Virtual offset.

    Returns
    -------
    bool
        False if no block begins there, or what follows is neither a read without a place nor the end; True in
        all cases of doubt, such as a damaged block.
    """
    place, before = end >> 16, end & 0xFFFF
    with path.open("rb") as file:
        if end >= file.seek(0, os.SEEK_END) << 16:  # at the end itself: a writer had read the last block, too
            return end == file.tell() << 16
        file.seek(place)
        if file.read(len(_BLOCK_START)) != _BLOCK_START:
            return False
        file.seek(place)
        reader = BgzfReader(file)
        try:
            is_whole = len(reader.read(before)) == before
            follows = reader.read(_READ_START.size)
        except DamagedFile:
            return True
    if not is_whole or not follows:
        return True
    return len(follows) == _READ_START.size and _READ_START.unpack(follows)[1] == _NO_CONTIG


def index_error(role: str, path: Path, what: object) -> InputError:
    """What to raise if file and index do not agree.

    Parameters
    ----------
    role : str
        What the file is ("panel", "target").
    path : Path
        The file.
    what : object
        What was found.

    Returns
    -------
    InputError
        For the user.
    """
    return InputError(
        "damaged",
        f"{role} {path}: the file is damaged, or its index is of another file ({what}). Get the file "
        f"again, or write its index again: bcftools index -f {path}",
    )


def index_intervals(path: Path, header_contigs: list[str], region: Region | None) -> list[Region]:
    """Intervals that take about equal parts of the file, INTERVAL_BYTES or more, one behind the other.

    Parameters
    ----------
    path : Path
        A compressed VCF or BCF.
    header_contigs : list of str
        The header's names.
    region : Region or None
        What they are to cover; None for the file's only chromosome.

    Returns
    -------
    list of Region
        Empty where `read_index` gives nothing, where the file has several chromosomes and no region is given,
        and where the file is small.
    """
    contigs = read_index(path)
    if region is not None:
        meant = chromosome_names(region.chrom, [contig.name for contig in contigs])
        contigs = [contig for contig in contigs if contig.name in meant]
    if len(contigs) != 1:
        return []
    (contig,) = contigs
    if chromosome_names(contig.name, header_contigs) != {contig.name}:
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
        elif byte - begin >= INTERVAL_BYTES:
            regions.append(Region(contig.name, first, start))
            first, begin = start + 1, byte
    return [*regions, Region(contig.name, first, whole.end)] if regions else []


def fresh_index(path: Path) -> bool:
    """Whether there is a .csi or .tbi index not older than the file; an older one may be of other data."""
    index = _index_of(path)
    return index is not None and path.is_file() and index.stat().st_mtime >= path.stat().st_mtime


def _index_of(path: Path) -> Path | None:
    """What htslib takes for the index: it prefers .csi, and looks for the name without its suffix, too.

    None of a file that is not compressed.
    """
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                return None
    names = (name + suffix for suffix in (".csi", ".tbi") for name in (path.name, path.stem))
    return next((index for index in map(path.with_name, names) if index.is_file()), None)


def _bcf_contigs(path: Path) -> dict[int, str] | None:
    """The header's contigs by number; None of a VCF."""
    if not is_bcf(path):
        return None
    with gzip.open(path) as file:
        header = read_header(file).rstrip(b"\0").decode()
    return {number: name for name, number in header_numbers(header.splitlines()).contigs.items()}


def _ends_at(path: Path, end: int) -> bool:
    """Whether the records of a file end at a virtual offset."""
    with path.open("rb") as file:
        if end == file.seek(0, os.SEEK_END) << 16:  # a writer that had read the last block, too
            end -= len(EOF_BLOCK) << 16
        file.seek(end >> 16)
        reader = BgzfReader(file)
        before = end & 0xFFFF
        try:
            return len(reader.read(before)) == before and not reader.read(1)
        except DamagedFile:
            return False


def _warn_of(index: Path, path: Path, what: str) -> None:
    warnings.warn(
        f"{path}: its index {index.name} is {what}: the file is read without it. Write the index again: "
        f"bcftools index -f {path}",
        stacklevel=2,
    )


def _contigs(index: Path) -> list[Contig]:
    """The chromosomes of an index, without names in that of a BCF. Raises one of _UNREADABLE."""
    state = index.stat()
    return _contigs_of(index, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)  # a file is opened several times in a run, and its index takes half a second to read
def _contigs_of(index: Path, _changed: int, _size: int) -> list[Contig]:
    content = gunzipped(index.read_bytes(), _MOST_TIMES, _LEAST_BOUND)
    return _read_tbi(content) if content.startswith(b"TBI\1") else _read_csi(content)


def _csi_head(content: bytes) -> tuple[int, int, int]:
    """The size of the smallest bins as a power of two, the levels above them, and where the contigs begin."""
    if not content.startswith(b"CSI\1"):
        raise ValueError("it does not start like an index")
    shift, depth, n_auxiliary = struct.unpack_from("<3i", content, 4)
    if not 0 <= shift <= _MOST_SHIFT or not 0 <= depth <= _MOST_DEPTH or n_auxiliary < 0:
        raise ValueError("no such bins")
    return shift, depth, _CSI_HEAD_BYTES + n_auxiliary


def _end_of_bins(content: bytes, at: int, depth: int, head: struct.Struct, *, has_windows: bool) -> int:
    """Where the last chunk ends; raises one of _UNREADABLE for a wrong bin, or content that is cut."""
    n_existing, end = first_bin(depth + 1), 0
    n_contigs, at = _count(content, at)
    for _ in range(n_contigs):
        n_bins, at = _count(content, at)
        for _ in range(n_bins):
            number, n_chunks = head.unpack_from(content, at)
            is_counting = (number, n_chunks) == (n_existing + 1, _CHUNKS_THAT_COUNT)
            if n_chunks < 0 or (number >= n_existing and not is_counting):
                raise ValueError(f"bin {number} with {n_chunks} chunks does not exist")
            at += head.size
            if n_chunks and not is_counting:
                end = max(end, *struct.unpack_from(f"<{2 * n_chunks}Q", content, at)[1::2])
            at += n_chunks * _CHUNK_BYTES
        if has_windows:
            n_windows, at = _count(content, at)
            at += n_windows * _WINDOW_BYTES
    if at > len(content):
        raise ValueError("it is truncated")
    return end


def _read_csi(content: bytes) -> list[Contig]:
    shift, depth, at = _csi_head(content)
    auxiliary = content[_CSI_HEAD_BYTES:at]
    n_contigs, at = _count(content, at)
    names = _names(auxiliary, n_contigs) if auxiliary else [""] * n_contigs
    found = []
    for number in range(n_contigs):
        n_bins, at = _count(content, at)
        bins = _Bins(shift, depth)
        places: dict[int, int] = {}
        for _ in range(n_bins):
            bin_number, offset = struct.unpack_from("<IQ", content, at)
            at = bins.add(bin_number, content, at + 12)
            if offset and bin_number < bins.n_bins:
                places[bins.interval(bin_number)[0]] = offset >> 16
        if bins.runs:
            found.append(Contig(names[number], number, sorted(bins.runs), bins.end, sorted(places.items())))
    return found


def _read_tbi(content: bytes) -> list[Contig]:
    n_contigs, _ = _count(content, 4)
    n_names, at = _count(content, 4 + _TABIX_HEAD.size)
    at += n_names
    names = _names(content[8:at], n_contigs)
    found = []
    for number in range(n_contigs):
        n_bins, at = _count(content, at)
        bins = _Bins(MIN_SHIFT, TBI_DEPTH)
        for _ in range(n_bins):
            (bin_number,) = struct.unpack_from("<I", content, at)
            at = bins.add(bin_number, content, at + 4)
        n_windows, at = _count(content, at)
        offsets = struct.unpack_from(f"<{n_windows}Q", content, at)
        at += n_windows * _WINDOW_BYTES
        places = [(window << MIN_SHIFT, offset >> 16) for window, offset in enumerate(offsets) if offset]
        if bins.runs:
            found.append(Contig(names[number], number, sorted(bins.runs), bins.end, places))
    return found


class _Bins:
    """Collects the runs of a contig's bins, which are a tree where each has eight children."""

    def __init__(self, shift: int, depth: int) -> None:
        self._shift, self._depth = shift, depth
        self.n_bins = first_bin(depth + 1)
        self.runs: list[Run] = []
        self.end = 0

    def add(self, bin_number: int, content: bytes, at: int) -> int:
        """Take the chunks that are listed at a place; the place behind them."""
        n_chunks, at = _count(content, at)
        if bin_number > self.n_bins and (bin_number, n_chunks) != (self.n_bins + 1, _CHUNKS_THAT_COUNT):
            raise ValueError("a bin that there is not")
        ends = struct.unpack_from(f"<{2 * n_chunks}Q", content, at)
        if bin_number < self.n_bins:  # one more is no bin, but counts records
            last = self.interval(bin_number)[1]
            self.runs += [Run(offset, last) for offset in ends[::2]]
            self.end = max(self.end, *ends[1::2], 0)
        return at + n_chunks * _CHUNK_BYTES

    def interval(self, bin_number: int) -> tuple[int, int]:
        """First position and the one behind, 0-based."""
        level = next(level for level in range(self._depth + 1) if bin_number < first_bin(level + 1))
        width = self._shift + LEVEL_SHIFT * (self._depth - level)
        place = bin_number - first_bin(level)
        return place << width, (place + 1) << width


def _count(content: bytes, at: int) -> tuple[int, int]:
    (count,) = struct.unpack_from("<i", content, at)
    if not 0 <= count <= len(content) - at:
        raise ValueError("a count of what it cannot hold")
    return count, at + 4


def _names(head_and_names: bytes, n_contigs: int) -> list[str]:
    """The contigs' names in a tabix head."""
    n_bytes = _TABIX_HEAD.unpack_from(head_and_names)[-1]
    *names, rest = head_and_names[_TABIX_HEAD.size :].decode().split("\0")
    if n_bytes != len(head_and_names) - _TABIX_HEAD.size or rest or len(names) != n_contigs:
        raise ValueError("names of other chromosomes")
    return names
