"""Chunks: files that `impute` wrote for one region of a chromosome.

`impute` marks these files by header lines that this module makes. `ligate` reads the files, checks every
record, and copies records as bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import LAST_POSITION, Region
from spinimpute.outputs.selection import FILTER_LINE
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.bcf_format import BadRecord, ByteStream, file_start
from spinimpute.vcf.bgzf import DamagedFile, open_decompressed
from spinimpute.vcf.header import FORMAT_LINES, PIECE_BYTES, FileStart, definition, read_start
from spinimpute.vcf.raw_records import BcfRecords, RawRecords, RecordTable, TextRecords
from spinimpute.vcf.variant_file import VariantFile, check_variant_file

PANEL_LINE = "##spinimpute_panel="  # followed by the panel's checksum
TARGET_LINE = "##spinimpute_target="  # followed by positions and checksums, such as 1000:0123abcd
REGIONS_LINE = "##spinimpute_regions="  # followed by a count; a file with several regions is not a chunk

_REGION = re.compile(
    r"##spinimpute_region=(.+):([0-9]{1,10})-([0-9]{1,10}) "
    r"sites=([0-9]{1,10})(?: unmatched=([0-9]{1,10}))?( phased_here)?"
)
# Number of positions with checksums. Two people have equal genotypes at all of them with probability 1e-7.
TARGET_POSITIONS = 32

_TARGET_LINE_REGEX = re.compile(rf"^{TARGET_LINE}[0-9a-f:,]+$", re.MULTILINE)
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads hashes evenly
_ALLELE_CODES = np.array([0, 1, 4], np.int8)  # missing, REF, ALT; sums of two identify unphased genotypes
_CHECKSUM = re.compile(r"([0-9]{1,10}):([0-9a-f]+)")
_COMMAND = "##spinimpute_command="
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
    common positions. The checksums do not depend on phase or file format. `targets` are the parts of the
    target before repairs. `header` is the header of a file that `phase` or `convert` wrote and of which only
    a part was read: the line is copied from it. Otherwise it is "", and the checksums are computed from the
    genotypes, because other programs keep the line in a header when they change genotypes.
    """
    written = _TARGET_LINE_REGEX.search(header)
    if written is not None:
        return written[0]
    position = np.concatenate([np.unique(target.sites.position) for target in targets])
    hashes = position.astype(np.uint64) * _HASH_FACTOR
    chosen = np.sort(position[np.argsort(hashes, kind="stable")[:TARGET_POSITIONS]])
    checksums = []
    for at in chosen.tolist():
        digest = hashlib.blake2b(digest_size=4)
        for target in targets:
            sites = target.sites
            start, stop = np.searchsorted(sites.position, [at, at + 1]).tolist()
            first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
            codes_TQ = _ALLELE_CODES[target.alleles[start:stop] + 1]
            genotype_codes_TX = np.add.reduceat(codes_TQ, first_X, axis=1, dtype=np.int8)
            for row, genotype_codes_X in zip(range(start, stop), genotype_codes_TX, strict=True):
                digest.update(f"{sites.ref[row]}>{sites.alt[row]}>".encode())
                digest.update(genotype_codes_X.tobytes())
        checksums.append(f"{at}:{digest.hexdigest()}")
    return TARGET_LINE + ",".join(checksums)


@dataclass(frozen=True, eq=False)
class Chunk:
    """A complete chunk. Its int64 arrays have one entry per record."""

    path: Path
    lines: list[str]  # header lines except those of the region and the target
    samples: list[str]
    formats: list[str]  # names of FORMAT fields
    region: Region
    sites: int  # number of panel sites
    unmatched: int | None  # number of sites that the panel lacks; None if they are not written
    phased_here: bool  # whether genotypes were phased in the run
    filtered: bool  # whether sites were left out by R2 or MAF
    target: dict[int, str]  # checksum of the target's genotypes at each position; may be empty
    is_bcf: bool
    records: RawRecords
    data_start: int  # number of bytes before the first record
    position: np.ndarray
    ref_length: np.ndarray
    length: np.ndarray  # number of bytes of the record
    key: np.ndarray  # hash of the site (`site_key`)

    def __len__(self) -> int:
        return len(self.position)

    def common_lines(self) -> list[str]:
        """Return the header as if without regions; --buffer remains if results depend on it."""
        options = ["--region", "--regions-file", *([] if self.phased_here else ["--buffer"])]
        return [_remove_options(options, line) if line.startswith(_COMMAND) else line for line in self.lines]

    def output_start(self) -> bytes:
        """Return `common_lines` as the bytes before the first record."""
        text = ("\n".join(self.common_lines()) + "\n").encode()
        return file_start(text) if self.is_bcf else text

    @contextmanager
    def open_records(self, threads: int, first: int = 0) -> Iterator[ChunkStream]:
        """Open the file at record number `first`."""
        with _open_file(self.path, threads) as stream:
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
    check_variant_file(path, "chunk")
    with _open_file(path, threads) as stream:
        start = read_start(stream)
        if start is None:
            raise InputError(
                "damaged",
                f"chunk {path}: the file is truncated in its header; impute it again, or copy it again",
            )
        chunk = _parse_header(path, start)
        table = _scan(chunk, stream, start.rest)
    position, ref_length, length, key = (
        np.array(column, dtype=np.int64)
        for column in (table.position, table.ref_length, table.length, table.key)
    )
    _check_records(chunk, position)
    with VariantFile(path, "chunk"):
        pass  # htslib must be able to read the header
    return replace(chunk, position=position, ref_length=ref_length, length=length, key=key)


@contextmanager
def _open_file(path: Path, threads: int) -> Iterator[ByteStream]:
    try:
        with open_decompressed(path, threads) as stream:
            yield stream
    except DamagedFile as error:
        raise InputError("damaged", f"chunk {path}: {error}; impute it again, or copy it again") from error


def _parse_header(path: Path, start: FileStart) -> Chunk:
    """Parse the header of a chunk; its arrays of records are empty."""

    def error(what: str) -> InputError:
        return InputError("content", f"chunk {path}: {what}")

    try:
        lines = start.header.rstrip(b"\0").decode().rstrip("\n").split("\n")
    except UnicodeDecodeError as failure:
        raise error("the header is not valid UTF-8") from failure
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#CHROM\t" if number == len(lines) else "##"):
            what = f"is not a header line: {line[:40]!r}" if line else "is empty"
            raise error(f"line {number} of the header {what}; impute it again, or copy it again")
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
    lines = [line for line in lines if line not in (region_lines[0], *targets)]
    formats = [name for kind, name in filter(None, map(definition, lines)) if kind == "FORMAT"]
    if unknown := [name for name in formats if name not in FORMAT_LINES]:
        raise error(f"FORMAT has fields that impute does not write: {', '.join(unknown)}")
    samples = lines[-1].split("\t")[9:]
    record_class = BcfRecords if start.is_bcf else TextRecords
    empty = np.empty(0, np.int64)
    return Chunk(
        path=path,
        lines=lines,
        samples=samples,
        formats=formats,
        region=region,
        sites=int(match[4]),
        unmatched=None if match[5] is None else int(match[5]),
        phased_here=match[6] is not None,
        filtered=any(line.startswith(FILTER_LINE) for line in lines),
        target={int(at): checksum for line in targets for at, checksum in _CHECKSUM.findall(line)},
        is_bcf=start.is_bcf,
        records=record_class(region.chrom, formats, len(samples), lines),
        data_start=start.n_bytes,
        position=empty,
        ref_length=empty,
        length=empty,
        key=empty,
    )


def _scan(chunk: Chunk, stream: ByteStream, unread_bytes: bytes) -> RecordTable:
    table = RecordTable()
    while True:
        # Each read at least doubles the unread bytes. So a long record is scanned only a few times.
        piece = stream.read(max(PIECE_BYTES, len(unread_bytes)))
        data = unread_bytes + piece
        try:
            done = chunk.records.scan(data, table)
        except (BadRecord, struct.error, IndexError, KeyError) as error:
            what = error if isinstance(error, BadRecord) else "it is invalid"
            raise InputError(
                "content", f"chunk {chunk.path}: record {len(table.position) + 1} cannot be used: {what}"
            ) from error
        unread_bytes = data[done:]
        if not piece:
            break
    if unread_bytes:
        raise InputError(
            "damaged",
            f"chunk {chunk.path}: the file is truncated: it ends within record {len(table.position) + 1}",
        )
    return table


def _check_records(chunk: Chunk, position: np.ndarray) -> None:
    region = chunk.region
    expected = chunk.sites + (chunk.unmatched or 0)
    if len(position) > expected or (len(position) < expected and not chunk.filtered):
        raise InputError(
            "damaged",
            f"chunk {chunk.path}: the file has {len(position)} records, but its header says {expected}; "
            "impute it again, or copy it again",
        )
    if (np.diff(position) < 0).any():
        row = int(np.argmax(np.diff(position) < 0))
        raise InputError(
            "content",
            f"chunk {chunk.path}: the positions go backwards at record {row + 2}, "
            f"{region.chrom}:{position[row + 1]} after {position[row]}",
        )
    outside = (position < region.start) | (position > region.end)
    if outside.any():
        raise InputError(
            "content",
            f"chunk {chunk.path}: {region.chrom}:{position[np.argmax(outside)]} is outside of the region in "
            f"the header, {region}",
        )


def _remove_options(options: Sequence[str], command_line: str) -> str:
    words = _COMMAND_WORD.findall(command_line)
    for option in options:
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join(words)
