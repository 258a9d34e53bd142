"""Cuts what a compressed VCF or BCF holds of a chromosome into stretches of equal size, by its index."""

from __future__ import annotations

from pathlib import Path

from spinimpute.genotypes.sites import Region, plain_chromosome
from spinimpute.vcf.bgzf import DamagedFile
from spinimpute.vcf.index_reader import index_error, read_index

STRETCH_BYTES = 4 * 2**20  # of the compressed file, at least


def stretches_of(path: Path, header_contigs: list[str], region: Region | None) -> list[Region]:
    """Regions that hold all records of `region`, or of the file's only chromosome, one behind the other.

    header_contigs: the header's names. Empty where the index is missing, older than the file or unreadable,
    where the file has several chromosomes and no region is given, and where the file is small. Raises
    InputError if the index is of another file.
    """
    try:
        contigs = read_index(path)
    except DamagedFile as error:
        raise index_error("panel", path, error) from error
    if region is not None:
        wanted = plain_chromosome(region.chrom)
        contigs = [contig for contig in contigs if plain_chromosome(contig.name) == wanted]
    if len(contigs) != 1:
        return []
    (contig,) = contigs
    same = plain_chromosome(contig.name)
    if [name for name in header_contigs if plain_chromosome(name) == same] != [contig.name]:
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
