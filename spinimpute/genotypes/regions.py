"""Regions of a genome, from the command line or a BED file. Overlapping and adjacent regions are merged."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from spinimpute.genotypes.sites import LAST_POSITION, Region, is_position, plain_chromosome, same_chromosome
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import ENCODING, gunzip, why_unreadable

_BROWSER_LINES = ("track", "browser")
_PLINK_BED = b"\x6c\x1b\x01"


def parse_regions(
    regions: Iterable[str | Region] | str | Region | None, regions_file: str | Path | None = None
) -> list[Region]:
    """Parse regions such as "20:1000-2000", or read them from a BED file, and merge and sort them.

    Regions are sorted by position; chromosomes keep the order of their first region. If both arguments are
    None, the list is empty and means the whole genome. Raises InputError for an invalid region, an empty
    argument `regions`, or if both arguments are given.
    """
    if regions_file is not None:
        if regions is not None:
            raise InputError(
                "arguments",
                f"regions are given twice. Give {argument('region')} or {argument('regions_file')}, not "
                "both; a BED file holds any number of regions",
            )
        return _merge(read_bed(regions_file))
    if regions is None:
        return []
    given = [regions] if isinstance(regions, str | Region) else list(regions)
    if not given:
        raise InputError(
            "argument", "the list of regions is empty. Give a region, or omit the argument to use all sites"
        )
    return _merge([Region.parse(one) if isinstance(one, str) else one for one in given])


def regions_on_chromosome(regions: Sequence[Region], chrom: str) -> list[Region]:
    """Return the regions on a chromosome, renamed to `chrom` and merged; "23" may stand for "X"."""
    return _merge([Region(chrom, one.start, one.end) for one in regions if same_chromosome(one.chrom, chrom)])


def _merge(regions: Sequence[Region]) -> list[Region]:
    """Sort the regions of each chromosome; merge those that overlap or are adjacent."""
    by_chromosome: dict[str, list[Region]] = {}
    for region in regions:
        by_chromosome.setdefault(plain_chromosome(region.chrom), []).append(region)
    merged: list[Region] = []
    for group in by_chromosome.values():
        first, *others = sorted(group, key=lambda region: region.start)
        merged.append(first)
        for region in others:
            last = merged[-1]
            if region.start <= last.end + 1:
                merged[-1] = Region(last.chrom, last.start, max(last.end, region.end))
            else:
                merged.append(region)
    return merged


def summarize_regions(regions: Sequence[Region]) -> str:
    """Return a text for messages: the first region and how many more there are."""
    more = len(regions) - 1
    return f"{regions[0]} and {more} more region{'s' if more > 1 else ''}" if more else str(regions[0])


def read_bed(path: str | Path) -> list[Region]:
    """Read the regions of a BED file, uncompressed or gzip: chromosome, start and end, 0-based and half-open.

    Further columns and `track` and `browser` lines are ignored. Raises InputError for invalid lines, or if
    the file has no regions.
    """
    what = f"regions file {path}"
    regions: list[Region] = []
    for number, line in enumerate(_text_of(Path(path), what).splitlines(), start=1):
        fields = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or line.startswith("#") or fields[0] in _BROWSER_LINES:
            continue
        line_name = f"{what}, line {number}"
        if len(fields) < 3 or not fields[0].strip():
            raise InputError(
                "content",
                f"{line_name}: {line[:60]!r} is not a line of a BED file. Give chromosome, start and end, "
                "separated by tabs",
            )
        chrom, start, end = (field.strip() for field in fields[:3])
        if not (is_position(start) and is_position(end)) or int(end) > LAST_POSITION:
            raise InputError(
                "content",
                f"{line_name}: start and end must be numbers from 0 to {LAST_POSITION}, got {start[:20]!r} "
                f"and {end[:20]!r}",
            )
        if int(start) >= int(end):
            raise InputError(
                "content",
                f"{line_name}: the interval from {start} to {end} is empty. Positions start at 0, and the "
                "end is exclusive",
            )
        regions.append(Region(chrom, int(start) + 1, int(end)))
    if not regions:
        raise InputError("content", f"{what}: it has no regions. Give chromosome, start and end in each line")
    return regions


def _text_of(path: Path, what: str) -> str:
    try:
        content = gunzip(path.read_bytes())  # in one piece, because a pipe can be read only once
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("read", f"{what}: {why_unreadable(error)}") from error
    if content.startswith(_PLINK_BED):
        raise InputError("content", f"{what}: this is a PLINK genotype file. Give a BED file of regions")
    try:
        if b"\0" not in content:
            return content.decode(ENCODING)
    except UnicodeDecodeError:
        pass
    raise InputError("content", f"{what}: it is not text. Give a BED file: chromosome, start and end")
