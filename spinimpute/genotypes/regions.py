"""Several regions of a genome: from texts or a BED file, those that overlap or touch as one."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from spinimpute.genotypes.sites import (
    LAST_POSITION,
    Region,
    is_position,
    plain_chromosome,
    same_chromosome,
)
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import ENCODING, gunzipped

_NO_REGION = ("#", "track", "browser")  # how lines of a BED file begin that are for viewers
_PLINK_BED = b"\x6c\x1b\x01"


def parse_regions(
    regions: Iterable[str | Region] | str | Region | None, regions_file: str | Path | None = None
) -> list[Region]:
    """Regions by position, those that overlap or touch as one.

    Parameters
    ----------
    regions : iterable of str or Region, str, Region or None
        As users write them; None for everywhere.
    regions_file : str, Path or None
        A BED file, see `read_bed`, in place of them.

    Returns
    -------
    list of Region
        Chromosomes in the order in which they are first named; empty for everywhere.

    Raises
    ------
    InputError
        One cannot be read, there is none, or both are given.
    """
    if regions_file is not None:
        if regions is not None:
            raise InputError(
                "arguments",
                f"regions are given twice: give {argument('region')} or "
                f"{argument('regions_file')}, not both; a BED file holds "
                "any number of them",
            )
        return _joined(read_bed(regions_file))
    if regions is None:
        return []
    given = [regions] if isinstance(regions, str | Region) else list(regions)
    if not given:
        raise InputError(
            "arguments", "the list of regions is empty: give regions, or leave it out for all sites"
        )
    return _joined([Region.parse(one) if isinstance(one, str) else one for one in given])


def regions_on_chromosome(regions: Sequence[Region], chrom: str) -> list[Region]:
    """Those that are on a chromosome, by its name, joined: "X" and "23" may mean the same one."""
    return _joined(
        [Region(chrom, one.start, one.end) for one in regions if same_chromosome(one.chrom, chrom)]
    )


def _joined(regions: Sequence[Region]) -> list[Region]:
    of_chromosome: dict[str, list[Region]] = {}
    for region in regions:
        of_chromosome.setdefault(plain_chromosome(region.chrom), []).append(region)
    joined: list[Region] = []
    for of_one in of_chromosome.values():
        first, *others = sorted(of_one, key=lambda region: region.start)
        joined.append(first)
        for region in others:
            last = joined[-1]
            if region.start <= last.end + 1:
                joined[-1] = Region(last.chrom, last.start, max(last.end, region.end))
            else:
                joined.append(region)
    return joined


def summarize_regions(regions: Sequence[Region]) -> str:
    """The first of some regions, and how many more there are, for messages."""
    more = len(regions) - 1
    return f"{regions[0]} and {more} more region{'s' if more > 1 else ''}" if more else str(regions[0])


def read_bed(path: str | Path) -> list[Region]:
    """Read a BED file: chromosome, start and end in each line, 0-based and half-open.

    Parameters
    ----------
    path : str or Path
        Text, plain or gzip. Further columns, and lines for viewers, do not count.

    Returns
    -------
    list of Region
        In the file's order.

    Raises
    ------
    InputError
        The file cannot be read, is no text, or has no region; a line has another form, or an empty interval.
    """
    what = f"regions file {path}"
    regions: list[Region] = []
    for number, line in enumerate(_text_of(Path(path), what).splitlines(), start=1):
        fields = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or line.startswith("#") or fields[0] in _NO_REGION:
            continue
        place = f"{what}, line {number}"
        if len(fields) < 3 or not fields[0].strip():
            raise InputError(
                "content",
                f"{place}: {line[:60]!r} is no line of a BED file: give chromosome, start and end, with tabs "
                "between them",
            )
        chrom, start, end = (field.strip() for field in fields[:3])
        if not (is_position(start) and is_position(end)) or int(end) > LAST_POSITION:
            raise InputError(
                "content",
                f"{place}: start {start[:20]!r} and end {end[:20]!r} are to be numbers from 0 to "
                f"{LAST_POSITION}",
            )
        if int(start) >= int(end):
            raise InputError(
                "content",
                f"{place}: the interval from {start} to {end} holds no position: positions count from 0, and "
                "the end, which does not belong to it, is larger than the start",
            )
        regions.append(Region(chrom, int(start) + 1, int(end)))
    if not regions:
        raise InputError(
            "content", f"{what}: there is no region in it; give chromosome, start and end in each line"
        )
    return regions


def _text_of(path: Path, what: str) -> str:
    try:
        content = gunzipped(path.read_bytes())  # in one go: it may be a pipe
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("read", f"{what}: cannot be read ({error})") from error
    if content.startswith(_PLINK_BED):
        raise InputError(
            "content", f"{what}: these are genotypes of PLINK, not regions; give a BED file of intervals"
        )
    try:
        text = content.decode(ENCODING)
    except UnicodeDecodeError as error:
        raise InputError(
            "content", f"{what}: it is no text; give a BED file: chromosome, start and end"
        ) from error
    if "\0" in text:
        raise InputError("content", f"{what}: it is no text; give a BED file: chromosome, start and end")
    return text
