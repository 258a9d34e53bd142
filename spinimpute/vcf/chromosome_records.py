"""The records of one chromosome of a file, or of a region of it: in order, and all of them.

The library that reads through an index takes a damaged block for the end of the records, and lacks records
that a wrong index does not list; the records it gave are therefore counted again in the file itself. The
index is used there, too, to skip most of what comes before, but the place is checked to be the one that it
states.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
from spinimpute.vcf import bcf_format
from spinimpute.vcf.bcf_format import RECORD_LENGTHS, RECORD_PLACE, is_bcf
from spinimpute.vcf.bgzf import BgzfReader, DamagedFile
from spinimpute.vcf.index_reader import Contig, Run, index_error, read_index
from spinimpute.vcf.variant_file import Record, VariantFile

_PIECE_BYTES = 1 << 20


class ChromosomeRecords:
    """Records of a file: `for record in records`, once.

    Parameters
    ----------
    file : VariantFile
        It is read through its index if there is one that is not older than the file, else from its beginning.
    region : Region or None
        The records that begin in it.
    chrom : str or None
        Their chromosome, with or without "chr"; None for a file of one chromosome.

    Attributes
    ----------
    chrom : str
        What the file calls the chromosome; records of parts of X may have other names. Known from the first
        record on.
    contig_line : str
        Its line of the header; known from the first record on.
    skipped : dict of str to int
        Records that were not taken, by reason; complete at the end.

    Raises
    ------
    InputError
        The file or its index is damaged, the positions go backwards, there are several chromosomes, or no
        record (`NoRecord`).
    """

    def __init__(self, file: VariantFile, region: Region | None, chrom: str | None) -> None:
        self.chrom = self.contig_line = ""
        self.skipped: dict[str, int] = {}
        self._file, self._region = file, region
        self._wanted = region.chrom if region else chrom

    def __iter__(self) -> Iterator[Record]:
        file, region = self._file, self._region
        wanted = self._wanted
        contigs = read_index(file.path) if wanted is not None else []
        indexed = None if wanted is None else self._indexed(contigs, wanted)
        listed = file.contigs  # of the header; records may have other names
        meant = {}
        through = None
        if indexed is not None:
            through = f"{indexed.name}:{region.start}-{region.end}" if region else indexed.name
        chrom = ""
        n_kept = last = 0
        others: dict[str, int] = {}
        for record in file.records(through):
            name, position = record.CHROM, record.POS
            if name not in meant:
                meant[name] = wanted is None or name in chromosome_names(wanted, [*listed, name])
            if not meant[name]:
                others[name] = others.get(name, 0) + 1
                continue
            if record.start >= LAST_POSITION:  # POS is cut to 32 bits
                if not region:
                    self.skipped[BEYOND_LAST] = self.skipped.get(BEYOND_LAST, 0) + 1
                continue
            if region and not region.start <= position <= region.end:
                continue
            if not chrom:
                chrom = name
                self.chrom = _own_name(wanted, listed, chrom)
                self.contig_line = file.contig_line(self.chrom)
            elif name != chrom and wanted is None:
                raise file.error(
                    f"more than one chromosome, {chrom} and {name} (record {file.n_read}); "
                    f"choose one with {argument('region')}"
                )
            if position < 1:
                self.skipped[AT_POSITION_0] = self.skipped.get(AT_POSITION_0, 0) + 1
                continue
            if name != chrom and (position < last or plain_chromosome(name) == plain_chromosome(chrom)):
                raise file.error(
                    f"chromosome {plain_chromosome(wanted or name)} has two names, {chrom} and {name} "
                    f"(record {file.n_read}); give it one (bcftools annotate --rename-chrs) and sort "
                    "the file (bcftools sort)"
                )
            if position < last:
                raise file.error(
                    f"the positions go backwards at record {file.n_read}, {name}:{position} after "
                    f"{chrom}:{last}; sort the file (bcftools sort)"
                )
            chrom, last = name, position
            n_kept += 1
            yield record
        if indexed is not None:
            self._count_again(contigs, indexed, n_kept)
        if not n_kept:
            raise file.error(self._no_records(list(others)), NoRecord)
        if not region and wanted is not None:
            here = n_kept + sum(self.skipped.get(why, 0) for why in (AT_POSITION_0, BEYOND_LAST))
            elsewhere = sum(others.values()) if indexed is None else file.n_records - here
            if elsewhere > 0:
                self.skipped[ON_ANOTHER_CHROMOSOME] = elsewhere

    def _indexed(self, contigs: list[Contig], wanted: str) -> Contig | None:
        """The contig to be read through the index; None if the file is read from its beginning."""
        meant = chromosome_names(wanted, [contig.name for contig in contigs])
        indexed = [contig for contig in contigs if contig.name in meant]
        if len(indexed) != 1 or chromosome_names(wanted, self._file.contigs) != meant:
            return None  # one of its names is in the header, or in the records, alone
        return indexed[0]

    def _count_again(self, contigs: list[Contig], contig: Contig, n_kept: int) -> None:
        """Raise unless the records that the index led to are all there are."""
        role, path = self._file.role, self._file.path
        try:
            there = count_records(path, contigs, contig, self._region)
        except DamagedFile as error:
            raise index_error(role, path, error) from error
        if there.inside != n_kept:
            what = f"{self._region or contig.name} has {there.inside} records, of which {n_kept} are found"
            raise index_error(role, path, what)
        if there.at_zero and not self._region:  # the index leads to none of them
            self.skipped[AT_POSITION_0] = there.at_zero

    def _no_records(self, others: list[str]) -> str:
        if self._wanted is None:
            return "the file has no records"
        wanted = self._region or self._wanted
        if others:
            return f"no record in {wanted}; the file holds chromosome {', '.join(others[:10])}"
        empty = not self._file.n_read and not self._region
        return f"no record in {wanted}" + ("; the file may be empty" if empty else "")


def _own_name(wanted: str | None, listed: list[str], first: str) -> str:
    """What the header calls the whole chromosome of which the first record's name may mean a part."""
    own = plain_chromosome(first if wanted is None else wanted)
    return next((name for name in (first, *listed) if plain_chromosome(name) == own), first)


class RecordCount(NamedTuple):
    """Records of a contig or a region.

    Attributes
    ----------
    inside : int
        Those that begin in it.
    at_zero : int
        Those at position 0, the telomere; no region holds them.
    """

    inside: int
    at_zero: int


def count_records(path: Path, contigs: list[Contig], contig: Contig, region: Region | None) -> RecordCount:
    """Count the records that begin in a region, or on a whole contig.

    Parameters
    ----------
    path : Path
        A compressed VCF or BCF.
    contigs : list of Contig
        All that the index lists.
    contig : Contig
        The contig to be counted.
    region : Region or None
        The region; None for the whole contig.

    Returns
    -------
    RecordCount
        As found in the file itself.

    Raises
    ------
    DamagedFile
        The file is damaged, or the index is of another file.
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
        for found, position in _bcf_records(reader, not run.offset) if of_bcf else _text_records(reader):
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


def _bcf_records(reader: BgzfReader, from_start: bool) -> Iterator[tuple[int, int]]:
    """Number of the contig and 1-based position."""
    if from_start:
        bcf_format.read_header(reader)
    data, at = b"", 0
    while piece := reader.read(_PIECE_BYTES):
        data, at = data[at:] + piece, 0
        while at + RECORD_PLACE.size <= len(data):
            shared, of_samples, number, position = RECORD_PLACE.unpack_from(data, at)
            stop = at + RECORD_LENGTHS.size + shared + of_samples
            if stop > len(data):
                break
            yield number, position + 1
            at = stop
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
    if first < 0 or not is_position(position):
        raise DamagedFile(f"a line is no record: {data[at : min(stop, at + 40)]!r}")
    return data[at:first].decode(errors="replace"), int(position)
