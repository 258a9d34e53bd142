"""Indexes of compressed VCF and BCF files: TBI, and CSI for BCF and for contigs longer than TBI can hold.

An index sorts the records into a tree of bins over the contig and lists for each bin where its records are in
the file. A query reads only the bins that overlap its region.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

TBI_MAX_LENGTH = 2**29  # last 1-based position that a TBI index can hold

MIN_SHIFT = 14  # a leaf bin covers 2**14 positions
TBI_DEPTH = 5
LEVEL_SHIFT = 3  # each bin has eight children

# tabix describes a VCF so: format 2, columns of contig, start, end (0: none), comment sign, lines to skip
_TABIX_VCF = struct.pack("<6i", 2, 1, 2, 0, ord("#"), 0)


@dataclass(frozen=True)
class ContigRecords:
    """The records of one contig in file order.

    `begin` and `end`, int64, are the 0-based first position, non-decreasing, and the position after the last.
    `offset` and `next_offset`, uint64, are virtual offsets of the record and of the byte after it.
    """

    name: str
    begin: np.ndarray
    end: np.ndarray
    offset: np.ndarray
    next_offset: np.ndarray


class RecordPlaces:
    """Collects where records are, on their contig and in the uncompressed stream, while a file is written."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[tuple[np.ndarray, ...]]] = {}

    @property
    def names(self) -> list[str]:
        """Contigs that have records, in the order of the file."""
        return list(self._blocks)

    def add(
        self, contig: str, position: np.ndarray, length: np.ndarray, start: np.ndarray, stop: np.ndarray
    ) -> None:
        """Append n records of a contig.

        `position` is 1-based, `length` is that of REF, and `start` and `stop` are the offsets of each record
        and of the byte after it in the uncompressed stream; all are integers of shape (n,).
        """
        begin = np.maximum(position - 1, 0)  # POS 0 is the telomere before the first base
        self._blocks.setdefault(contig, []).append((begin, begin + length, start, stop))

    def contigs(
        self, names: Sequence[str], virtual_offsets: Callable[[np.ndarray], np.ndarray]
    ) -> list[ContigRecords]:
        """The records of the named contigs; `virtual_offsets` converts offsets in the stream."""
        no_records = [(np.empty(0, dtype=np.int64),) * 4]
        contigs = []
        for name in names:
            blocks = self._blocks.get(name, no_records)
            begin, end, start, stop = (np.concatenate(column) for column in zip(*blocks, strict=True))
            contigs.append(ContigRecords(name, begin, end, virtual_offsets(start), virtual_offsets(stop)))
        return contigs


def csi_depth(length: int) -> int:
    """Levels below the root that a CSI index needs to cover `length` positions."""
    depth = 0
    while length > 1 << (MIN_SHIFT + LEVEL_SHIFT * depth):
        depth += 1
    return depth


def tbi_index(contigs: Sequence[ContigRecords]) -> bytes:
    """The uncompressed TBI index of a VCF; contigs in the order of the file, no end beyond TBI_MAX_LENGTH."""
    names = _joined_names(contigs)
    parts = [b"TBI\1", struct.pack("<i", len(contigs)), _TABIX_VCF, struct.pack("<i", len(names)), names]
    for contig in contigs:
        linear = _linear_index(contig)
        bins = _chunks_by_bin(contig, TBI_DEPTH)
        parts.append(struct.pack("<i", len(bins) + 1))
        for number, chunks in bins.items():
            parts.append(struct.pack("<Ii", number, len(chunks)))
            parts.extend(struct.pack("<2Q", *chunk) for chunk in chunks)
        parts.append(struct.pack("<Ii4Q", _statistics_bin(TBI_DEPTH), 2, *_statistics(contig)))
        parts += [struct.pack("<i", len(linear)), linear.astype("<u8").tobytes()]
    parts.append(struct.pack("<Q", 0))
    return b"".join(parts)


def csi_index(contigs: Sequence[ContigRecords], length: int, *, of_bcf: bool) -> bytes:
    """The uncompressed CSI index of a VCF or BCF; no record ends beyond `length`.

    Contigs are those of a VCF that have records, in the order of the file, or all of a BCF's header, because
    a BCF refers to contigs by their number there.
    """
    depth = csi_depth(length)
    names = _joined_names(contigs)
    auxiliary = b"" if of_bcf else _TABIX_VCF + struct.pack("<i", len(names)) + names
    parts = [
        b"CSI\1",
        struct.pack("<3i", MIN_SHIFT, depth, len(auxiliary)),
        auxiliary,
        struct.pack("<i", len(contigs)),
    ]
    for contig in contigs:
        if not len(contig.begin):
            parts.append(struct.pack("<i", 0))
            continue
        linear = _linear_index(contig)
        bins = _chunks_by_bin(contig, depth)
        parts.append(struct.pack("<i", len(bins) + 1))
        for number, chunks in bins.items():
            first_offset = int(linear[_first_window(number, depth)])
            parts.append(struct.pack("<IQi", number, first_offset, len(chunks)))
            parts.extend(struct.pack("<2Q", *chunk) for chunk in chunks)
        parts.append(struct.pack("<IQi4Q", _statistics_bin(depth), 0, 2, *_statistics(contig)))
    parts.append(struct.pack("<Q", 0))
    return b"".join(parts)


def _joined_names(contigs: Sequence[ContigRecords]) -> bytes:
    return b"".join(contig.name.encode() + b"\0" for contig in contigs)


def first_bin(level: int) -> int:
    """Number of the first bin of a level, which is also the number of bins above; level 0 is the root."""
    return ((1 << (LEVEL_SHIFT * level)) - 1) // 7


def _bins(begin: np.ndarray, end: np.ndarray, depth: int) -> np.ndarray:
    """The smallest bin that contains each interval [begin, end); int64 (n_records,)."""
    bins = np.zeros(len(begin), dtype=np.int64)
    for level in range(1, depth + 1):
        shift = MIN_SHIFT + LEVEL_SHIFT * (depth - level)
        fits = begin >> shift == (end - 1) >> shift
        bins = np.where(fits, first_bin(level) + (begin >> shift), bins)
    return bins


def _first_window(bin_number: int, depth: int) -> int:
    """The first leaf-sized window of a bin."""
    level = max(level for level in range(depth + 1) if first_bin(level) <= bin_number)
    return (bin_number - first_bin(level)) << (LEVEL_SHIFT * (depth - level))


def _chunks_by_bin(contig: ContigRecords, depth: int) -> dict[int, list[tuple[int, int]]]:
    """Virtual offsets, end exclusive, of the records of each bin; bins are in ascending order."""
    bins = _bins(contig.begin, contig.end, depth)
    run_start = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]]))
    run_last = np.concatenate([run_start[1:], [len(bins)]]) - 1
    chunks: dict[int, list[tuple[int, int]]] = {}
    for number, start, stop in zip(
        bins[run_start].tolist(),
        contig.offset[run_start].tolist(),
        contig.next_offset[run_last].tolist(),
        strict=True,
    ):
        of_bin = chunks.setdefault(number, [])
        if of_bin and of_bin[-1][1] >> 16 == start >> 16:
            # the block is decompressed for the earlier chunk anyway
            of_bin[-1] = (of_bin[-1][0], stop)
        else:
            of_bin.append((start, stop))
    return dict(sorted(chunks.items()))


def _linear_index(contig: ContigRecords) -> np.ndarray:
    """Offset, uint64, of the first record that overlaps each leaf-sized window, or of the next record."""
    none = np.iinfo(np.uint64).max
    first, last = contig.begin >> MIN_SHIFT, (contig.end - 1) >> MIN_SHIFT
    linear = np.full(int(last.max()) + 1, none, dtype=np.uint64)
    np.minimum.at(linear, first, contig.offset)
    for record in np.flatnonzero(last > first):
        windows = slice(first[record], last[record] + 1)
        linear[windows] = np.minimum(linear[windows], contig.offset[record])
    return np.minimum.accumulate(linear[::-1])[::-1]


def _statistics_bin(depth: int) -> int:
    """Number of the pseudo-bin with the offsets and the number of a contig's records."""
    return first_bin(depth + 1) + 1


def _statistics(contig: ContigRecords) -> tuple[int, int, int, int]:
    return int(contig.offset[0]), int(contig.next_offset[-1]), len(contig.begin), 0
