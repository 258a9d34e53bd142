"""How many records a compressed VCF or BCF has in a region, counted in the file itself.

The library that reads through an index takes a damaged block for the end of the records, and finds nothing
where an index of another file leads astray; the records it gave are therefore counted again. The index is
used here, too, to skip most of what lies in front, but at a place that turns out to be what it says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spinimpute.genotypes.sites import Region
from spinimpute.vcf.bgzf import BgzfReader, DamagedFile
from spinimpute.vcf.index_reader import Contig, Run, is_bcf

_PIECE_BYTES = 1 << 20
_BCF_HEAD = struct.Struct("<2I2i")  # bytes of both parts of a record, contig, 0-based position


class RecordCount(NamedTuple):
    inside: int
    at_zero: int  # position 0, the telomere: a region holds none of them


def count_records(path: Path, contigs: list[Contig], contig: Contig, region: Region | None) -> RecordCount:
    """Count those that begin in a region of `contig`, or on all of it.

    contigs: all that the index lists. Raises DamagedFile if the file is, or if the index is of another one.
    """
    start, end = (region.start, region.end) if region else (0, None)
    by, run = _before(contigs, contig, start)
    of_bcf = is_bcf(path)
    inside = at_zero = n_read = 0
    seen = False
    with path.open("rb") as file:
        file.seek(run.offset >> 16)
        reader = BgzfReader(file)
        reader.read(run.offset & 0xFFFF)
        name = contig.number if of_bcf else contig.name
        expected = by.number if of_bcf else by.name
        for found, position in _bcf_records(reader, run) if of_bcf else _text_records(reader):
            n_read += 1
            if n_read == 1 and run.offset and (found != expected or position > run.last):
                raise DamagedFile(f"another record than the index says is at byte {run.offset >> 16}")
            if found != name:
                if seen:
                    break
                continue
            seen = True
            if end is not None and position > end:
                break
            inside += position >= start and position > 0
            at_zero += position == 0
    return RecordCount(inside, at_zero)


def _before(contigs: list[Contig], contig: Contig, start: int) -> tuple[Contig, Run]:
    """The last run that begins before `start`, or else before the contig, or else the file's beginning."""
    first = contig.runs[0].offset
    runs = [(run, contig) for run in contig.runs if run.last < start]
    runs += [(run, other) for other in contigs for run in other.runs if run.offset < first]
    run, by = max(runs, default=(Run(0, 0), contig), key=lambda pair: pair[0].offset)
    return by, run


def _bcf_records(reader: BgzfReader, run: Run) -> Iterator[tuple[int, int]]:
    """Number of the contig and 1-based position."""
    if not run.offset:
        (n_header,) = struct.unpack("<I", reader.read(9)[5:])
        reader.read(n_header)
    data, at = b"", 0
    while piece := reader.read(_PIECE_BYTES):
        data, at = data[at:] + piece, 0
        while at + _BCF_HEAD.size <= len(data):
            shared, of_samples, number, position = _BCF_HEAD.unpack_from(data, at)
            if at + 8 + shared + of_samples > len(data):
                break
            yield number, position + 1
            at += 8 + shared + of_samples
    if at < len(data):
        raise DamagedFile("the last record is cut")


def _text_records(reader: BgzfReader) -> Iterator[tuple[str, int]]:
    """Name of the contig and position."""
    data, at = b"", 0
    while piece := reader.read(_PIECE_BYTES):
        data, at = data[at:] + piece, 0
        while (stop := data.find(b"\n", at)) >= 0:
            if data[at] != ord("#"):
                yield _named_place(data, at, stop)
            at = stop + 1
    if at < len(data):
        yield _named_place(data, at, len(data))


def _named_place(data: bytes, at: int, stop: int) -> tuple[str, int]:
    first = data.find(b"\t", at, stop)
    second = data.find(b"\t", first + 1, stop)
    position = data[first + 1 : second]
    if first < 0 or not position.isdigit():
        raise DamagedFile(f"a line is no record: {data[at : min(stop, at + 40)]!r}")
    return data[at:first].decode(errors="replace"), int(position)
