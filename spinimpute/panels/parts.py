"""A panel of a whole chromosome X: one file that holds the panels of its parts, one behind the other.

Layout (little endian): magic, u32 number of panels, u64 start and u64 size of each, u32 CRC of all before;
then the panels, each a whole panel file at a multiple of 64 bytes. Any other chromosome is one panel file.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.builds import build_of
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoRecord, Region, Sites
from spinimpute.genotypes.x_chromosome import Part, is_x, parts_of_x
from spinimpute.output_files import check_output, written_whole
from spinimpute.panels.build import build_panel, choose_map
from spinimpute.panels.panel import PARTS_MAGIC, Panel, is_panel_file
from spinimpute.vcf.variant_file import VariantFile

_COUNT = struct.Struct("<I")
_PLACE = struct.Struct("<QQ")
_MOST_PARTS = 3
_ALIGNMENT = 64


class PanelSites(Protocol):
    """What panels of haplotypes and of inducing points have in common."""

    chrom: str
    contig_line: str
    n_sites: int

    @property
    def cM(self) -> np.ndarray: ...
    @property
    def position(self) -> np.ndarray: ...
    @property
    def frequency(self) -> np.ndarray: ...
    @property
    def sites(self) -> Sites: ...


@contextmanager
def open_panels(path: str | Path) -> Iterator[list[Panel]]:
    """The panels of a panel file, by position; most files hold one.

    Raises InputError as `Panel.open`.
    """
    path = Path(path)
    with ExitStack() as stack:
        places = _places(path)
        if places is None:
            yield [stack.enter_context(Panel.open(path))]
        else:
            yield [stack.enter_context(Panel.open(path, start, size)) for start, size in places]


def part_of(panel: PanelSites) -> Part | None:
    """Which part of X a panel lies in; None for other chromosomes, and where nobody can tell."""
    build = build_of(panel.contig_line, panel.chrom)
    if not is_x(panel.chrom) or not build:
        return None
    first, last = int(panel.position[0]), int(panel.position[-1])
    return next((part for part in parts_of_x(panel.chrom, build) if part.reaches(first, last)), None)


def all_sites(panels: Sequence[PanelSites]) -> Sites:
    """The sites of all parts."""
    if len(panels) == 1:
        return panels[0].sites
    return Sites.concatenate([panel.sites for panel in panels])


def build_panels(
    vcf: str | Path,
    out: str | Path,
    genetic_map: str | Path | GeneticMap | None = None,
    region: Region | None = None,
    samples: Sequence[str] | None = None,
    force: bool = False,
    command: str = "",
    threads: int = 1,
) -> None:
    """Build a panel file as `build_panel` does; of a chromosome X whose build its header tells, one of parts.

    Raises InputError as `build_panel`. Read it with `open_panels`.
    """
    out = check_output(out, force, [vcf, genetic_map])
    parts = _parts_in(vcf, region)
    if len(parts) < 2:
        chosen = parts[0].region if parts else region
        build_panel(vcf, out, genetic_map, chosen, samples, force, command, threads).close()
        return
    genetic_map = choose_map(genetic_map, parts[0].region.chrom)
    with (
        written_whole(out) as partial,
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder,
    ):
        made: list[Path] = []
        for part in parts:
            path = Path(folder) / f"{part.name}.spin"
            try:
                build_panel(
                    vcf, path, genetic_map, part.region, samples, command=command, threads=threads
                ).close()
            except NoRecord:
                continue
            made.append(path)
        if not made:
            raise NoRecord(f"panel {vcf}: no usable record in {region or parts[0].region.chrom}")
        whole = made[0]
        if len(made) > 1:
            whole = Path(folder) / "parts"
            join_panels(made, whole)
        os.replace(whole, partial)


def _parts_in(vcf: str | Path, region: Region | None) -> list[Part]:
    """The parts of X that a region overlaps, cut to it; none for other chromosomes and unknown builds."""
    with VariantFile(vcf, "panel") as file:
        try:
            chrom = region.chrom if region else next(file.records()).CHROM
        except (InputError, StopIteration):  # what is wrong with it, the reader says better
            return []
        if not is_x(chrom):
            return []
        chrom = next((name for name in file.contigs if is_x(name)), chrom)
        build = build_of(file.contig_line(chrom), chrom)
    if not build:
        return []
    wanted = region or Region(chrom)
    parts = []
    for part in parts_of_x(chrom, build):
        start, end = max(part.region.start, wanted.start), min(part.region.end, wanted.end)
        if start <= end:
            parts.append(Part(part.name, Region(chrom, start, end)))
    return parts


def join_panels(panels: list[Path], out: Path) -> None:
    """One file of parts from the panel files of the parts."""
    head = len(PARTS_MAGIC) + _COUNT.size + len(panels) * _PLACE.size + 4
    start = head + -head % _ALIGNMENT
    places = b""
    for path in panels:
        size = path.stat().st_size
        places += _PLACE.pack(start, size)
        start += size + -size % _ALIGNMENT
    written = PARTS_MAGIC + _COUNT.pack(len(panels)) + places
    with out.open("wb") as file:
        file.write(written + _COUNT.pack(zlib.crc32(written)))
        for path in panels:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            with path.open("rb") as part:
                shutil.copyfileobj(part, file)
        file.flush()
        os.fsync(file.fileno())


def _places(path: Path) -> list[tuple[int, int]] | None:
    """Start and size of the panels in a file of parts; None of any other file."""
    if not is_panel_file(path):
        return None
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(len(PARTS_MAGIC) + _COUNT.size + _MOST_PARTS * _PLACE.size + 4)
    if not head.startswith(PARTS_MAGIC):
        return None
    damaged = InputError(f"panel {path}: its first bytes are damaged or missing. Build or copy it again")
    body = len(PARTS_MAGIC) + _COUNT.size
    if len(head) < body:
        raise damaged
    (count,) = _COUNT.unpack_from(head, len(PARTS_MAGIC))
    end = body + count * _PLACE.size
    if not 1 <= count <= _MOST_PARTS or len(head) < end + 4:
        raise damaged
    if zlib.crc32(head[:end]) != _COUNT.unpack_from(head, end)[0]:
        raise damaged
    places = [_PLACE.unpack_from(head, body + i * _PLACE.size) for i in range(count)]
    total = sum(places[-1])
    if size != total:
        what = "truncated" if size < total else "damaged"
        raise InputError(f"panel {path}: {what}: {size} bytes, the file says {total}. Copy it again")
    return places
