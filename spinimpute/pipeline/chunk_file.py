"""Chunks: files that `impute` wrote for one region of a chromosome.

`impute` marks these files by header lines that this module makes. `ligate` reads the files, checks every
record, and copies records as bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import LAST_POSITION, Region
from spinimpute.outputs.selection import FILTER_LINE
from spinimpute.runtime.errors import InputError, refuse_pipe
from spinimpute.runtime.unpacking import GZIP_MAGIC
from spinimpute.vcf.bcf_format import BadRecord, ByteStream, file_start
from spinimpute.vcf.bgzf import EOF_BLOCK, BgzfReader, DamagedFile, open_decompressed, starts_as_bgzf
from spinimpute.vcf.header import (
    FORMAT_LINES,
    PER_ALLELE_START,
    PIECE_BYTES,
    FileStart,
    definition,
    read_start,
)
from spinimpute.vcf.raw_records import BcfRecords, RawRecords, RecordTable, TextRecords
from spinimpute.vcf.variant_file import VariantFile, check_variant_file

PANEL_LINE = "##spinimpute_panel="  # followed by the panel's checksum
TARGET_LINE = "##spinimpute_target="  # followed by positions and checksums, such as 1000:0123abcd
SAMPLES_LINE = "##spinimpute_samples="  # followed by the number of samples; only in files for `merge`
RECORDS_LINE = "##spinimpute_records="  # followed by their number; in files for `merge` that are not chunks
REGIONS_LINE = "##spinimpute_regions="  # followed by a count; a file with several regions is not a chunk

_REGION = re.compile(
    r"##spinimpute_region=(.+):([0-9]{1,10})-([0-9]{1,10}) "
    r"sites=([0-9]{1,10})(?: unmatched=([0-9]{1,10}))?( phased_here)?"
)
# Number of positions with checksums. Two people have equal genotypes at all of them with probability 1e-7.
TARGET_POSITIONS = 32

_TARGET_LINE_REGEX = re.compile(rf"^{TARGET_LINE}[0-9a-f:,]+$", re.MULTILINE)
_MODULUS = 2**32  # of sums of hashes
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads hashes evenly
_ALLELE_CODES = np.array([0, 1, 4], np.int8)  # missing, REF, ALT; sums of two identify unphased genotypes
_CHECKSUM = re.compile(r"([0-9]{1,10}):([0-9a-f]+)")
COMMAND_LINE = "##spinimpute_command="
_COMMAND_WORD = re.compile(r"(?:[^ '\"]|'[^']*'|\"[^\"]*\")+")


def region_line(region: Region, sites: int, unmatched: int | None, phased_here: bool) -> str:
    """Return the header line that marks a file as a chunk.

    unmatched: number of sites that the panel lacks, or None if they are not written. phased_here: whether
    genotypes were phased in the run; if so, results depend on the buffer.
    """
    others = "" if unmatched is None else f" unmatched={unmatched}"
    others += " phased_here" if phased_here else ""
    return f"##spinimpute_region={region.chrom}:{region.start}-{region.end} sites={sites}{others}"


def target_line(targets: Sequence[Haplotypes], header: str = "") -> str:
    """Return the header line with checksums of a target's genotypes at some positions.

    `ligate` uses it to check that chunks have the same target: it compares the checksums at common positions.
    The positions with the smallest hashes are chosen, so chunks of overlapping parts of a target usually have
    common positions. The checksums do not depend on phase or file format. A checksum is a sum over samples:
    `merge` adds those of its files. `targets` are the parts of the target before repairs. `header` is the
    header of a file that `phase` or `convert` wrote and of which only a part was read: the line is copied
    from it. Otherwise it is "", and the checksums are computed from the genotypes, because other programs
    keep the line in a header when they change genotypes.
    """
    written = _TARGET_LINE_REGEX.search(header)
    if written is not None:
        return written[0]
    position = np.concatenate([np.unique(target.sites.position) for target in targets])
    hashes = position.astype(np.uint64) * _HASH_FACTOR
    chosen = np.sort(position[np.argsort(hashes, kind="stable")[:TARGET_POSITIONS]])
    name_hash_X = np.array([_hash_name(name) for name in targets[0].samples], np.uint64)
    checksums: dict[int, int] = {}
    for at in chosen.tolist():
        hash_X = name_hash_X
        for target in targets:
            start, stop = np.searchsorted(target.sites.position, [at, at + 1]).tolist()
            first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
            codes_TQ = _ALLELE_CODES[target.alleles[start:stop] + 1]
            for codes_X in np.add.reduceat(codes_TQ, first_X, axis=1, dtype=np.int8):
                hash_X = (hash_X ^ codes_X.astype(np.uint64)) * _HASH_FACTOR
                hash_X ^= hash_X >> np.uint64(32)
        checksums[at] = int((hash_X >> np.uint64(32)).sum()) % _MODULUS
    return checksum_line(checksums)


def _hash_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def checksum_line(checksums: Mapping[int, int]) -> str:
    """Return the header line of the checksums at some positions."""
    return TARGET_LINE + ",".join(f"{at}:{checksum:08x}" for at, checksum in checksums.items())


def read_checksums(lines: Iterable[str]) -> dict[int, int]:
    """Return the checksum of the target's genotypes at each position, from lines of `target_line`."""
    return {int(at): int(checksum, 16) for line in lines for at, checksum in _CHECKSUM.findall(line)}


def add_checksums(parts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Return the checksums of all samples from those of disjoint samples, at the positions of all."""
    return {
        at: sum(part[at] for part in parts) % _MODULUS for at in parts[0] if all(at in part for part in parts)
    }


@dataclass(frozen=True, eq=False)
class Chunk:
    """A complete chunk. Its int64 arrays have one entry per record."""

    path: Path
    lines: list[str]  # header lines except those of the region and the target
    region_at: int  # number of `lines` before the line of the region
    samples: list[str]
    formats: list[str]  # names of FORMAT fields
    region: Region
    sites: int  # number of records of panel sites
    unmatched: int | None  # number of sites that the panel lacks; None if they are not written
    phased_here: bool  # whether genotypes were phased in the run
    filtered: bool  # whether sites were left out by R2 or MAF
    target: dict[int, int]  # checksum of the target's genotypes at each position; may be empty
    is_bcf: bool
    records: RawRecords
    data_start: int  # number of bytes before the first record
    position: np.ndarray
    last: np.ndarray  # position of END, or of the last base of REF
    length: np.ndarray  # number of bytes of the record
    key: np.ndarray  # hash of the site (`site_key`)

    def __len__(self) -> int:
        return len(self.position)

    @property
    def joins_records(self) -> bool:
        """Whether multi-allelic records of the panel are one record."""
        return any(line.startswith(PER_ALLELE_START) for line in self.lines)

    def common_lines(self) -> list[str]:
        """Return the header as if without regions; --buffer remains if results depend on it."""
        options = ["--region", "--regions-file", *([] if self.phased_here else ["--buffer"])]
        return [
            remove_options(options, line) if line.startswith(COMMAND_LINE) else line for line in self.lines
        ]

    def output_start(self, n_records: int) -> bytes:
        """Return `common_lines` as the bytes before the first of `n_records` records.

        If the chunk is for `merge`, the number of records replaces the line of the region.
        """
        lines = self.common_lines()
        if any(line.startswith(SAMPLES_LINE) for line in lines):
            lines.insert(self.region_at, f"{RECORDS_LINE}{n_records}")
        text = ("\n".join(lines) + "\n").encode()
        return file_start(text) if self.is_bcf else text

    @contextmanager
    def open_records(self, threads: int, first: int = 0) -> Iterator[ChunkStream]:
        """Open the file at record number `first`."""
        with open_imputed(self.path, "chunk", threads) as stream:
            stream.read(self.data_start)
            records = ChunkStream(self, stream)
            for _, stop in self.batches(0, first):
                records.read_until(stop)
            yield records

    def batches(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cut records [first, stop) into intervals of about PIECE_BYTES."""
        ends = np.cumsum(self.length[first:stop])
        begin = 0
        while begin < len(ends):
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + PIECE_BYTES, side="right")))
            yield first + begin, first + end
            begin = end


@dataclass
class ChunkStream:
    """Reader of the records of a chunk as bytes. `row` is the number of the next record."""

    chunk: Chunk
    stream: ByteStream
    row: int = 0

    def read_until(self, stop: int) -> bytes:
        """Return the bytes of the next records, up to but not including number `stop`."""
        size = int(self.chunk.length[self.row : stop].sum())
        self.row = stop
        data = self.stream.read(size)
        if len(data) != size:
            raise InputError("content", f"chunk {self.chunk.path}: the file has changed while it was read")
        return data


def read_chunk(path: str | Path, threads: int) -> Chunk:
    """Read a whole file and return it as a Chunk. Raises InputError if it is not a complete chunk."""
    path = Path(path)
    refuse_pipe(path, "chunk")
    check_variant_file(path, "chunk")
    with open_imputed(path, "chunk", threads) as stream:
        start, lines = read_lines(path, "chunk", stream)
        chunk = _parse_header(path, start, lines)
        table = _scan(chunk, stream, start.rest)
    position, last, length, key = (
        np.array(column, dtype=np.int64) for column in (table.position, table.last, table.length, table.key)
    )
    _check_records(chunk, position)
    with VariantFile(path, "chunk"):
        pass  # htslib must be able to read the header
    return replace(chunk, position=position, last=last, length=length, key=key)


@contextmanager
def open_imputed(path: Path, role: str, threads: int) -> Iterator[BufferedReader | BgzfReader]:
    """Open a file that `impute` wrote. `role` names the file in messages. Raises InputError if damaged."""
    with path.open("rb") as file:
        head = file.read(len(EOF_BLOCK))
    if head.startswith(GZIP_MAGIC) and not starts_as_bgzf(head):
        raise InputError(
            "content",
            f"{role} {path}: the file is compressed with gzip, not with bgzip. Compress it again: "
            "gunzip -c OLD | bgzip > NEW",
        )
    try:
        with open_decompressed(path, threads) as stream:
            yield stream
    except DamagedFile as error:
        raise InputError("damaged", f"{role} {path}: {error}; impute it again, or copy it again") from error


def read_lines(
    path: Path, role: str, stream: ByteStream, piece_bytes: int = PIECE_BYTES
) -> tuple[FileStart, list[str]]:
    """Read the header of an imputed file, and return it also as lines. Raises InputError if it is damaged."""
    start = read_start(stream, piece_bytes)
    if start is None:
        raise InputError(
            "damaged",
            f"{role} {path}: the file is truncated in its header; impute it again, or copy it again",
        )
    try:
        lines = start.header.rstrip(b"\0").decode().rstrip("\n").split("\n")
    except UnicodeDecodeError as failure:
        raise InputError("content", f"{role} {path}: the header is not valid UTF-8") from failure
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#CHROM\t" if number == len(lines) else "##"):
            what = f"is not a header line: {line[:40]!r}" if line else "is empty"
            raise InputError(
                "content",
                f"{role} {path}: line {number} of the header {what}; impute it again, or copy it again",
            )
    return start, lines


def format_names(path: Path, role: str, lines: Sequence[str]) -> list[str]:
    """Return the FORMAT fields that a header defines. Raises InputError for fields that `impute` lacks."""
    names = [name for kind, name in filter(None, map(definition, lines)) if kind == "FORMAT"]
    if unknown := [name for name in names if name not in FORMAT_LINES]:
        raise InputError(
            "content", f"{role} {path}: FORMAT has fields that impute does not write: {', '.join(unknown)}"
        )
    return names


def _parse_header(path: Path, start: FileStart, lines: list[str]) -> Chunk:
    """Parse the header of a chunk; its arrays of records are empty."""

    def error(what: str) -> InputError:
        return InputError("content", f"chunk {path}: {what}")

    if any(line.startswith(REGIONS_LINE) for line in lines):
        raise error("it holds several regions; give files of 'spinimpute impute' with one region each")
    region_lines = [line for line in lines if line.startswith("##spinimpute_region=")]
    match = _REGION.fullmatch(region_lines[0]) if len(region_lines) == 1 else None
    if match is None or int(match[3]) > LAST_POSITION:
        raise error(
            "the header does not give one region (##spinimpute_region=...); give files of 'spinimpute impute "
            "--region' that no other program has changed"
        )
    region = Region(match[1], int(match[2]), int(match[3]))
    targets = [line for line in lines if line.startswith(TARGET_LINE)]
    region_at = lines.index(region_lines[0])
    region_at -= sum(line in targets for line in lines[:region_at])
    lines = [line for line in lines if line not in (region_lines[0], *targets)]
    formats = format_names(path, "chunk", lines)
    samples = lines[-1].split("\t")[9:]
    record_class = BcfRecords if start.is_bcf else TextRecords
    empty = np.empty(0, np.int64)
    return Chunk(
        path=path,
        lines=lines,
        region_at=region_at,
        samples=samples,
        formats=formats,
        region=region,
        sites=int(match[4]),
        unmatched=None if match[5] is None else int(match[5]),
        phased_here=match[6] is not None,
        filtered=any(line.startswith(FILTER_LINE) for line in lines),
        target=read_checksums(targets),
        is_bcf=start.is_bcf,
        records=record_class(region.chrom, formats, len(samples), lines),
        data_start=start.n_bytes,
        position=empty,
        last=empty,
        length=empty,
        key=empty,
    )


def _scan(chunk: Chunk, stream: ByteStream, unread_bytes: bytes) -> RecordTable:
    table = RecordTable()
    while True:
        # Each read at least doubles the unread bytes. So a long record is scanned only a few times.
        piece = stream.read(max(PIECE_BYTES, len(unread_bytes)))
        data = unread_bytes + piece
        done = scan_records(chunk.records, data, table, f"chunk {chunk.path}", len(table.position))
        unread_bytes = data[done:]
        if not piece:
            break
    if unread_bytes:
        raise InputError(
            "damaged",
            f"chunk {chunk.path}: the file is truncated: it ends within record {len(table.position) + 1}",
        )
    return table


def scan_records(records: RawRecords, data: bytes, table: RecordTable, file: str, n_before: int) -> int:
    """Append the complete records at the start of `data` to the table; return their length in bytes.

    `file` names the file in messages, and `n_before` is the number of records before those of `data`. Raises
    InputError if a record is invalid.
    """
    n_in_table = len(table.position)
    try:
        return records.scan(data, table)
    except (BadRecord, struct.error, IndexError, KeyError) as error:
        what = error if isinstance(error, BadRecord) else "it is invalid"
        number = n_before + len(table.position) - n_in_table + 1
        raise InputError("content", f"{file}: record {number} cannot be used: {what}") from error


def _check_records(chunk: Chunk, position: np.ndarray) -> None:
    region = chunk.region
    expected = chunk.sites + (chunk.unmatched or 0)
    if len(position) > expected or (len(position) < expected and not chunk.filtered):
        raise InputError(
            "damaged",
            f"chunk {chunk.path}: the file has {len(position)} records, but its header says {expected}; "
            "impute it again, or copy it again",
        )
    check_order(f"chunk {chunk.path}", region.chrom, position, 1)
    outside = (position < region.start) | (position > region.end)
    if outside.any():
        raise InputError(
            "content",
            f"chunk {chunk.path}: {region.chrom}:{position[np.argmax(outside)]} is outside of the region in "
            f"the header, {region}",
        )


def check_order(file: str, chrom: str, position: np.ndarray, first: int) -> None:
    """Raise InputError if positions decrease. `file` names the file, `first` is the number of the record."""
    if (backwards := np.diff(position) < 0).any():
        row = int(np.argmax(backwards))
        raise InputError(
            "content",
            f"{file}: the positions go backwards at record {first + row + 1}, "
            f"{chrom}:{position[row + 1]} after {position[row]}",
        )


def remove_options(options: Sequence[str], command_line: str, flags: Sequence[str] = ()) -> str:
    """Return a command line without these options and their values, and without these flags.

    An option may be repeated.
    """
    words = [word for word in _COMMAND_WORD.findall(command_line) if word not in flags]
    for option in options:
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join(words)
