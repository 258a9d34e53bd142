"""Read the genetic map of a chromosome from a zip archive of PLINK maps, as published with Beagle."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TextIO

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import decompressed_text, text_lines

MAX_MAP_BYTES = 2**25
_X_PARTS = ("_par1", "", "_par2")  # in order of position
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    RuntimeError,
    EOFError,
)  # of a damaged archive


def read_archived_map(archive: Path, chrom: str, build: str, url: str) -> GeneticMap:
    """Read the map of a chromosome.

    Maps of the pseudo-autosomal regions of X are joined with the map of the rest of X. Only the content of
    the archive is used, never a path in it. `url` is the address of the archive, which messages name. Raises
    InputError if the archive is damaged, or has no map of the chromosome.
    """
    name = f"plink.chr{chrom}.{build}.map"
    try:
        with zipfile.ZipFile(archive) as file:
            members = {PurePosixPath(member.filename).name: member for member in file.infolist()}
            if name not in members:
                raise InputError("not-found", f"{url}: the archive has no file {name}")
            wanted = [f"plink.chr{chrom}{part}.{build}.map" for part in (_X_PARTS if is_x(chrom) else ("",))]
            found = [members[part] for part in wanted if part in members]
            rows, lines = _Rows(), list[str]()
            for member in found:
                if member.file_size > MAX_MAP_BYTES:
                    size = f"{member.file_size:,} bytes; a map has at most {MAX_MAP_BYTES:,}"
                    raise InputError("damaged", f"{url}: {member.filename} has {size}")
                with decompressed_text(file.open(member), member.compress_size) as text:
                    lines += rows.join(text, chrom)
    except UnicodeDecodeError as error:
        raise InputError("content", f"{url}: the genetic map of chromosome {chrom} is not text") from error
    except _DAMAGED as error:
        raise InputError("damaged", f"{url}: the archive of genetic maps is damaged ({error})") from error
    where = f"{url}: {', '.join(member.filename for member in found)}"
    return GeneticMap.parse("".join(lines).encode(), chrom, file=where, name=name)


class _Rows:
    """Joins the rows of consecutive maps. Each map continues at the end of the map before it."""

    def __init__(self) -> None:
        self._position, self._cM = 0, 0.0  # of the last row

    def join(self, text: TextIO, chrom: str) -> Iterator[str]:
        """Yield the rows of the next map with `chrom` as their chromosome."""
        shift: float | None = None
        start = self._position
        for line in text_lines(text):
            fields = line.split()
            try:
                _, name, cM, position = fields
                if start and int(position) <= start:
                    continue  # the map before this one covers the position
                if shift is None:
                    shift = self._cM - float(cM) if start else 0.0
                self._position, self._cM = int(position), float(cM) + shift
            except ValueError:
                yield line  # the reader of maps reports the wrong line
                continue
            yield f"{chrom} {name} {repr(self._cM) if shift else cM} {position}\n"
