"""Read the records of one chromosome or region of a VCF or BCF, and check that none is missing.

If htslib reads through an index, it takes a damaged block for the end of the records, and misses records that
a wrong index does not list. `count_records` therefore counts the records in the file itself. It uses the
index only to skip earlier records, and checks that the index led to the right offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from spinimpute.genotypes.sites import (
    AT_POSITION_0,
    BEYOND_LAST,
    LAST_POSITION,
    ON_ANOTHER_CHROMOSOME,
    NoRecord,
    Region,
    chromosome_names,
    is_position,
    plain_chromosome,
)
from spinimpute.runtime.errors import argument
from spinimpute.vcf.bcf_format import RECORD_LENGTHS, RECORD_POSITION, is_bcf, read_header
from spinimpute.vcf.bgzf import BgzfReader, DamagedFile
from spinimpute.vcf.index_reader import BinStart, IndexedContig, index_mismatch, read_index
from spinimpute.vcf.variant_file import Record, VariantFile

_READ_BYTES = 1 << 20


class ChromosomeRecords:
    """Iterator over the records of a chromosome or region. It can be used once.

    The file is read through its index if the index is not older than the file, otherwise from the start.
    The argument `chrom` names the chromosome, with or without "chr". None means that the file has only one.

    After the first record, the attributes `chrom` and `contig_line` are the chromosome's name in the file and
    its header line. (Records of the pseudo-autosomal regions of X may have another name.) After the last
    record, `skipped` maps reasons to the number of records that were skipped.

    Raises InputError if the file or its index is damaged, positions decrease, or no chromosome was chosen and
    the file has several; and NoRecord if there is no record.
    """

    def __init__(self, file: VariantFile, region: Region | None, chrom: str | None) -> None:
        self.chrom = self.contig_line = ""
        self.skipped: Counter[str] = Counter()
        self._file, self._region = file, region
        self._wanted = region.chrom if region else chrom

    def __iter__(self) -> Iterator[Record]:
        file, region, wanted = self._file, self._region, self._wanted
        contigs = read_index(file.path) if wanted is not None else []
        indexed = None if wanted is None else self._indexed_contig(contigs, wanted)
        header_names = file.contigs  # records may also have names that the header lacks
        is_wanted = {}
        query = None
        if indexed is not None:
            query = f"{indexed.name}:{region.start}-{region.end}" if region else indexed.name
        chrom = ""
        n_kept = last = 0
        other_names: Counter[str] = Counter()
        for record in file.records(query):
            name, position = record.CHROM, record.POS
            if name not in is_wanted:
                is_wanted[name] = wanted is None or name in chromosome_names(wanted, [*header_names, name])
            if not is_wanted[name]:
                other_names[name] += 1
                continue
            if record.start >= LAST_POSITION:  # POS is truncated to 32 bits
                if not region:
                    self.skipped[BEYOND_LAST] += 1
                continue
            if region and not region.start <= position <= region.end:
                continue
            if not chrom:
                chrom = name
                # prefer the name of the whole chromosome: the first record may have the name of a part of X
                own = plain_chromosome(wanted or chrom)
                self.chrom = next((c for c in (chrom, *header_names) if plain_chromosome(c) == own), chrom)
                self.contig_line = file.contig_line(self.chrom)
            elif name != chrom and wanted is None:
                raise file.error(
                    f"more than one chromosome, {chrom} and {name} (record {file.n_read}). "
                    f"Choose one with {argument('region')}"
                )
            if position < 1:
                self.skipped[AT_POSITION_0] += 1
                continue
            if name != chrom and (position < last or plain_chromosome(name) == plain_chromosome(chrom)):
                raise file.error(
                    f"chromosome {plain_chromosome(wanted or name)} has two names, {chrom} and {name} "
                    f"(record {file.n_read}). Give it one (bcftools annotate --rename-chrs) and sort "
                    "the file (bcftools sort)"
                )
            if position < last:
                raise file.error(
                    f"the positions go backwards at record {file.n_read}, {name}:{position} after "
                    f"{chrom}:{last}. Sort the file (bcftools sort)"
                )
            chrom, last = name, position
            n_kept += 1
            yield record
        if indexed is not None:
            self._check_count(contigs, indexed, n_kept)
        if not n_kept:
            raise file.error(self._no_records_text(list(other_names)), kind=NoRecord)
        if not region and wanted is not None:
            here = n_kept + self.skipped[AT_POSITION_0] + self.skipped[BEYOND_LAST]
            elsewhere = sum(other_names.values()) if indexed is None else file.n_records - here
            if elsewhere > 0:
                self.skipped[ON_ANOTHER_CHROMOSOME] = elsewhere

    def _indexed_contig(self, contigs: list[IndexedContig], wanted: str) -> IndexedContig | None:
        """Return the contig to read through the index, or None if the file must be read from the start."""
        matching = chromosome_names(wanted, [contig.name for contig in contigs])
        indexed = [contig for contig in contigs if contig.name in matching]
        if len(indexed) != 1 or chromosome_names(wanted, self._file.contigs) != matching:
            return None  # the chromosome has several names, or header and index have different ones
        return indexed[0]

    def _check_count(self, contigs: list[IndexedContig], contig: IndexedContig, n_kept: int) -> None:
        """Count the records in the file itself. Raises InputError if the index led to another number."""
        role, path = self._file.role, self._file.path
        try:
            inside, at_zero = count_records(path, contigs, contig, self._region)
        except DamagedFile as error:
            raise index_mismatch(role, path, error) from error
        if inside != n_kept:
            what = f"{self._region or contig.name} has {inside} records, the index leads to {n_kept}"
            raise index_mismatch(role, path, what)
        if at_zero and not self._region:  # a query through the index does not return these records
            self.skipped[AT_POSITION_0] = at_zero

    def _no_records_text(self, other_names: list[str]) -> str:
        if self._wanted is None:
            return "the file has no records"
        wanted = self._region or self._wanted
        if other_names:
            return f"no record in {wanted}. The file has chromosome {', '.join(other_names[:10])}"
        is_empty = not self._file.n_read and not self._region
        return f"no record in {wanted}" + (". The file may be empty" if is_empty else "")


def count_records(
    path: Path, contigs: list[IndexedContig], contig: IndexedContig, region: Region | None
) -> tuple[int, int]:
    """Count the records of a contig, or those that start in a region of it, by reading the file itself.

    Return this count, and the number of records at position 0 (the telomere), which belong to no region.
    `contigs` are all contigs of the index. Raises DamagedFile if the file or its index is damaged.
    """
    start, end = (region.start, region.end) if region else (0, LAST_POSITION)
    start_offset, start_contig = _offset_before(contigs, contig, start)
    file_is_bcf = is_bcf(path)
    wanted = contig.number if file_is_bcf else contig.name
    expected = start_contig.number if file_is_bcf else start_contig.name
    inside = at_zero = 0
    is_first, in_contig = start_offset.offset > 0, False
    with path.open("rb") as file:
        file.seek(start_offset.offset >> 16)
        reader = BgzfReader(file)
        reader.read(start_offset.offset & 0xFFFF)
        for name_or_index, position in (
            _bcf_positions(reader, not start_offset.offset) if file_is_bcf else _text_positions(reader)
        ):
            if is_first and (name_or_index != expected or position > start_offset.latest):
                raise DamagedFile(
                    f"the record at byte {start_offset.offset >> 16} is not the one that the index lists"
                )
            is_first = False
            if name_or_index != wanted:
                if in_contig:
                    break
                continue
            in_contig = True
            if position > end:
                break
            inside += position >= start and position > 0
            at_zero += position == 0
    return inside, at_zero


def _offset_before(
    contigs: list[IndexedContig], contig: IndexedContig, start: int
) -> tuple[BinStart, IndexedContig]:
    """Return the last offset in the index whose record precedes all wanted records, and its contig.

    Wanted are the records of `contig` at position `start` and later. If no record precedes them, the result
    is the start of the file.
    """
    first = contig.starts[0].offset
    starts = [(bin_start, contig) for bin_start in contig.starts if bin_start.latest < start]
    starts += [(earlier, other) for other in contigs for earlier in other.starts if earlier.offset < first]
    return max(starts, default=(BinStart(0, 0), contig), key=lambda pair: pair[0].offset)


def _bcf_positions(reader: BgzfReader, from_start: bool) -> Iterator[tuple[int, int]]:
    """Yield the contig index and the 1-based position of each record of a BCF."""
    if from_start:
        read_header(reader)
    data, at = b"", 0
    while more := reader.read(_READ_BYTES):
        data, at = data[at:] + more, 0
        while at + RECORD_POSITION.size <= len(data):
            shared_bytes, sample_bytes, number, position = RECORD_POSITION.unpack_from(data, at)
            stop = at + RECORD_LENGTHS.size + shared_bytes + sample_bytes
            if stop > len(data):
                break
            yield number, position + 1
            at = stop
    if at < len(data):
        raise DamagedFile("the last record is truncated")


def _text_positions(reader: BgzfReader) -> Iterator[tuple[str, int]]:
    """Yield the contig name and the position of each record of a VCF."""
    rest = b""
    while more := reader.read(_READ_BYTES):
        *lines, rest = (rest + more).split(b"\n")
        yield from map(_parse_position, (line for line in lines if not line.startswith(b"#")))
    if rest:
        yield _parse_position(rest)


def _parse_position(line: bytes) -> tuple[str, int]:
    name, *columns = line.split(b"\t", 2)
    if not columns or not is_position(columns[0]):
        raise DamagedFile(f"a line is not a record: {line[:40]!r}")
    return name.decode(errors="replace"), int(columns[0])
