"""Indexes of compressed VCF and BCF files: TBI, and CSI for BCF and for contigs longer than TBI can hold.

An index sorts the records into a tree of bins over the contig and lists for each bin where its records are in
the file. A query reads only the bins that overlap its region.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

TBI_MAX_LENGTH = 2**29  # last 1-based position that a TBI index can hold

MIN_SHIFT = 14  # a leaf bin covers 2**14 positions
TBI_DEPTH = 5
LEVEL_SHIFT = 3  # each bin has eight children

# tabix describes a VCF so: format 2, columns of contig, start, end (0: none), comment sign, lines to skip
_TABIX_SETTINGS = struct.pack("<6i", 2, 1, 2, 0, ord("#"), 0)


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


def encode_index(contigs: Sequence[ContigRecords], csi_length: int | None, *, is_bcf: bool = False) -> bytes:
    """The uncompressed CSI index for positions up to `csi_length`, or TBI index without that length.

    Contigs are those of a VCF that have records, in the order of the file, or all of a BCF's header, because
    a BCF refers to contigs by their number there. In a TBI index no record ends beyond TBI_MAX_LENGTH.
    """
    is_csi = csi_length is not None
    depth = TBI_DEPTH
    if csi_length is not None:  # as many levels as the positions need
        depth = next(levels for levels in count() if csi_length <= 1 << (MIN_SHIFT + LEVEL_SHIFT * levels))
    names = b"".join(contig.name.encode() + b"\0" for contig in contigs)
    description = b"" if is_bcf else _TABIX_SETTINGS + struct.pack("<i", len(names)) + names
    n_contigs = struct.pack("<i", len(contigs))
    if is_csi:
        parts = [b"CSI\1", struct.pack("<3i", MIN_SHIFT, depth, len(description)), description, n_contigs]
    else:
        parts = [b"TBI\1", n_contigs, description]
    pseudo_bin = first_bin(depth + 1) + 1  # a pseudo-bin
    for contig in contigs:
        if not len(contig.begin):
            parts.append(struct.pack("<i", 0))
            continue
        linear = _linear_index(contig)
        bins = _chunks_by_bin(contig, depth)
        bins[pseudo_bin] = [
            (int(contig.offset[0]), int(contig.next_offset[-1])),
            (len(contig.begin), 0),  # records with and without a position
        ]
        parts.append(struct.pack("<i", len(bins)))
        for bin_id, chunks in bins.items():
            parts.append(struct.pack("<I", bin_id))
            if is_csi:
                first = 0 if bin_id == pseudo_bin else int(linear[_first_window(bin_id, depth)])
                parts.append(struct.pack("<Q", first))
            parts.append(struct.pack("<i", len(chunks)))
            parts.extend(struct.pack("<2Q", *chunk) for chunk in chunks)
        if not is_csi:
            parts += [struct.pack("<i", len(linear)), linear.astype("<u8").tobytes()]
    parts.append(struct.pack("<Q", 0))
    return b"".join(parts)


def first_bin(level: int) -> int:
    """Number of the first bin of a level, which is also the number of bins above; level 0 is the root."""
    return ((1 << (LEVEL_SHIFT * level)) - 1) // 7


def _first_window(bin_id: int, depth: int) -> int:
    """The first leaf-sized window of a bin."""
    level = max(level for level in range(depth + 1) if first_bin(level) <= bin_id)
    return (bin_id - first_bin(level)) << (LEVEL_SHIFT * (depth - level))


def _chunks_by_bin(contig: ContigRecords, depth: int) -> dict[int, list[tuple[int, int]]]:
    """Virtual offsets, end exclusive, of the records in each bin; bins are in ascending order.

    A record is in the smallest bin that contains it.
    """
    bins = np.zeros(len(contig.begin), dtype=np.int64)
    for level in range(1, depth + 1):
        shift = MIN_SHIFT + LEVEL_SHIFT * (depth - level)
        fits = contig.begin >> shift == (contig.end - 1) >> shift
        bins = np.where(fits, first_bin(level) + (contig.begin >> shift), bins)
    run_start = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]]))
    run_last = np.concatenate([run_start[1:], [len(bins)]]) - 1
    chunks: dict[int, list[tuple[int, int]]] = {}
    for bin_id, start, stop in zip(
        bins[run_start].tolist(),
        contig.offset[run_start].tolist(),
        contig.next_offset[run_last].tolist(),
        strict=True,
    ):
        bin_chunks = chunks.setdefault(bin_id, [])
        if bin_chunks and bin_chunks[-1][1] >> 16 == start >> 16:
            # the block is decompressed for the earlier chunk anyway
            bin_chunks[-1] = (bin_chunks[-1][0], stop)
        else:
            bin_chunks.append((start, stop))
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
