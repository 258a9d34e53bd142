"""Write the TBI or CSI index of a compressed VCF or BCF.

CSI is used for BCF files, and for VCF files with contigs that are too long for TBI. Both formats divide a
contig into a tree of bins. The root bin covers the whole contig, and each bin has eight children of equal
length. The index lists where in the file the records of each bin are, as virtual offsets (see `bgzf`). A
query reads only the bins that overlap its region.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

TBI_MAX_LENGTH = 2**29  # last 1-based position that a TBI index can hold

MIN_SHIFT = 14  # a leaf bin covers 2**14 positions
TBI_DEPTH = 5  # levels below the root
LEVEL_SHIFT = 3  # each bin has 2**3 children

# tabix settings for VCF: format 2; columns of contig, start, end (0: none); comment character; lines to skip
_TABIX_SETTINGS = struct.pack("<6i", 2, 1, 2, 0, ord("#"), 0)


@dataclass(frozen=True)
class ContigRecords:
    """The records of one contig, in file order."""

    name: str
    begin: np.ndarray  # 0-based first position of each record, non-decreasing, int64
    end: np.ndarray  # 0-based position after the last base of each record, int64
    offset: np.ndarray  # virtual offset of each record, uint64
    next_offset: np.ndarray  # virtual offset of the byte after each record, uint64


def encode_index(contigs: Sequence[ContigRecords], csi_length: int | None, *, is_bcf: bool = False) -> bytes:
    """Return an index, not yet compressed: CSI for positions up to `csi_length`, or TBI if it is None.

    For a VCF, `contigs` are the contigs with records, in file order. For a BCF, they are all contigs of the
    header, because BCF records refer to them by index. For TBI, no record may end beyond TBI_MAX_LENGTH.
    """
    is_csi = csi_length is not None
    depth = TBI_DEPTH
    if csi_length is not None:  # the fewest levels that cover all positions
        depth = next(levels for levels in count() if csi_length <= 1 << (MIN_SHIFT + LEVEL_SHIFT * levels))
    names = b"".join(contig.name.encode() + b"\0" for contig in contigs)
    description = b"" if is_bcf else _TABIX_SETTINGS + struct.pack("<i", len(names)) + names
    n_contigs = struct.pack("<i", len(contigs))
    if is_csi:
        parts = [b"CSI\1", struct.pack("<3i", MIN_SHIFT, depth, len(description)), description, n_contigs]
    else:
        parts = [b"TBI\1", n_contigs, description]
    pseudo_bin = first_bin(depth + 1) + 1  # ID of the extra bin with a contig's file offsets and record count
    for contig in contigs:
        if not len(contig.begin):
            parts.append(struct.pack("<i", 0))
            continue
        linear = _linear_index(contig)
        bins = _chunks_by_bin(contig, depth)
        bins[pseudo_bin] = [
            (int(contig.offset[0]), int(contig.next_offset[-1])),
            (len(contig.begin), 0),  # number of mapped and of unmapped records; a VCF has no unmapped ones
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
    """Return the ID of the first bin of a level, which equals the number of bins on the levels above.

    Level 0 is the root.
    """
    return ((1 << (LEVEL_SHIFT * level)) - 1) // 7


def _first_window(bin_id: int, depth: int) -> int:
    """Return the index of the first leaf-sized window that a bin covers."""
    level = max(level for level in range(depth + 1) if first_bin(level) <= bin_id)
    return (bin_id - first_bin(level)) << (LEVEL_SHIFT * (depth - level))


def _chunks_by_bin(contig: ContigRecords, depth: int) -> dict[int, list[tuple[int, int]]]:
    """Return the chunks (start and end virtual offsets) of each bin, by ascending bin ID.

    A record belongs to the smallest bin that contains the whole record.
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
            # both chunks need the same BGZF block: make them one
            bin_chunks[-1] = (bin_chunks[-1][0], stop)
        else:
            bin_chunks.append((start, stop))
    return dict(sorted(chunks.items()))


def _linear_index(contig: ContigRecords) -> np.ndarray:
    """Return for each leaf-sized window the offset (uint64) of the first record that overlaps it.

    If no record overlaps a window, the offset is that of the next record.
    """
    none = np.iinfo(np.uint64).max
    first, last = contig.begin >> MIN_SHIFT, (contig.end - 1) >> MIN_SHIFT
    linear = np.full(int(last.max()) + 1, none, dtype=np.uint64)
    np.minimum.at(linear, first, contig.offset)
    for record in np.flatnonzero(last > first):
        windows = slice(first[record], last[record] + 1)
        linear[windows] = np.minimum(linear[windows], contig.offset[record])
    return np.minimum.accumulate(linear[::-1])[::-1]
