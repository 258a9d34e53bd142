"""Genetic maps: conversion of base-pair positions to centimorgans, and a reader of common file formats."""

import gzip
import io
import math
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from spinimpute.genotypes.sites import chromosome_names
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import GZIP_MAGIC, TooLong, decompressed_text, text_lines

# Maximum length of a chromosome. The longest human chromosome has less than 300 cM, wheat less than 400 cM.
MAX_CM = 1_000
# The unit of maps up to this length (base pairs) is not checked: a short map may lie in a recombination hot
# spot or in a region without recombination.
MIN_CHECKED_BASES = 1_000_000
_WHOLE = re.compile(r"-?[0-9]{1,18}")  # a position in a map
# Longer maps (base pairs) with an implausible rate are refused; shorter ones cause a warning, because small
# genomes can have high rates (yeast: 350 cM/Mb).
MIN_REFUSED_BASES = 20_000_000
# Plausible mean rates of a chromosome in cM/Mb. Conifers and wheat have 0.1 to 0.3, honeybees about 25.
MIN_RATE, MAX_RATE = 0.05, 50
DEFAULT_RATE = 1.0  # cM per Mb, about the human genome's average

_FORMATS = (
    "known formats: PLINK (chromosome id cM position, no header), SHAPEIT (header 'pos chr cM') and "
    "HapMap (header 'Chromosome Position(bp) Rate(cM/Mb) Map(cM)')"
)


@dataclass(frozen=True)
class _Columns:
    """Column numbers of a map format."""

    name: str
    count: int
    chrom: int
    position: int
    cM: int


_PLINK = _Columns("PLINK", 4, chrom=0, position=3, cM=2)
_SHAPEIT = _Columns("SHAPEIT", 3, chrom=1, position=0, cM=2)
_HAPMAP = _Columns("HapMap", 4, chrom=0, position=1, cM=3)


class GeneticMap:
    """Genetic position as a piecewise linear function of the position on one chromosome.

    position: base pairs, strictly increasing. cM: non-decreasing, with the last value above the first. chrom:
    name of the chromosome; None for a constant rate, which fits every chromosome. description: one line for
    logs and provenance.
    """

    def __init__(
        self,
        position: np.ndarray,
        cM: np.ndarray,
        *,
        chrom: str | None = None,
        description: str = "genetic map",
    ) -> None:
        self.chrom = chrom
        self.description = description
        self._position = np.asarray(position, dtype=np.float64)
        self._cM = np.asarray(cM, dtype=np.float64)
        self._mean_rate = (self._cM[-1] - self._cM[0]) / (self._position[-1] - self._position[0])

    @classmethod
    def constant(cls, rate_cM_per_Mb: float = DEFAULT_RATE) -> "GeneticMap":
        """Return a map with the same rate everywhere and 0 cM at position 0.

        Raises InputError unless the rate is positive.
        """
        if not (math.isfinite(rate_cM_per_Mb) and rate_cM_per_Mb > 0):
            raise InputError(
                "argument",
                f"the recombination rate must be a positive number of cM per Mb, got {rate_cM_per_Mb}",
            )
        description = f"constant {rate_cM_per_Mb:g} cM/Mb"
        return cls(np.array([0, 10**6]), np.array([0.0, rate_cM_per_Mb]), description=description)

    @classmethod
    def read(cls, path: str | Path, chrom: str) -> "GeneticMap":
        """Read one chromosome of a PLINK, SHAPEIT or HapMap map, uncompressed or gzip.

        The format is detected from the content. Raises InputError, with file and line, for invalid files.
        """
        path = Path(path)
        try:
            content = path.read_bytes()  # in one piece: the rows are read twice, and a pipe cannot be reread
        except OSError as error:
            raise InputError("read", f"{path}: cannot read the genetic map: {error.strerror}") from error
        return cls.parse(content, chrom, file=str(path), name=path.name)

    @classmethod
    def parse(cls, content: bytes, chrom: str, *, file: str, name: str) -> "GeneticMap":
        """Return the map of one chromosome from the content of a file. Raises InputError as `read` does.

        `file` names the content in messages, and `name` in the description of the map.
        """
        columns, first_row = _detect_format(file, next(_rows(file, content), None))
        fail = _failure(file)
        positions: list[int] = []
        cMs: list[float] = []
        other_chromosomes: dict[str, int] = {}
        file_names = {
            fields[columns.chrom]
            for number, line in _rows(file, content)
            if number >= first_row and len(fields := line.split()) == columns.count
        }
        matching_names = chromosome_names(chrom, file_names)
        for number, line in _rows(file, content):
            if number < first_row:
                continue
            fields = line.split()
            if len(fields) != columns.count:
                raise fail(number, f"{len(fields)} columns, but a {columns.name} map has {columns.count}")
            position, cM = _numbers(fields, columns, fail, number)
            row_chrom = fields[columns.chrom]
            if row_chrom not in matching_names:
                other_chromosomes[row_chrom] = other_chromosomes.get(row_chrom, 0) + 1
                continue
            if positions and position <= positions[-1]:
                raise fail(
                    number, f"position {position} after {positions[-1]}: positions must strictly increase"
                )
            if cMs and cM < cMs[-1]:
                raise fail(number, f"{cM:g} cM after {cMs[-1]:g} cM: genetic positions must not decrease")
            positions.append(position)
            cMs.append(cM)
        if not positions:
            names_found = ", ".join(list(other_chromosomes)[:10]) or "none"
            raise InputError(
                "mismatch",
                f"{file}: no row of chromosome {chrom}, only of {names_found}. Give the map of {chrom}",
            )
        if len(positions) < 2:
            raise InputError("content", f"{file}: chromosome {chrom} has one row, a map needs at least two")
        if cMs[-1] == cMs[0]:
            raise InputError(
                "content",
                f"{file}: every row of chromosome {chrom} has the genetic position {cMs[0]:g} cM. Give a "
                "genetic map",
            )
        if cMs[-1] - cMs[0] > MAX_CM:
            raise InputError(
                "mismatch",
                f"{file}: chromosome {chrom} is {cMs[-1] - cMs[0]:g} cM long, more than any chromosome "
                f"({MAX_CM} cM). Give genetic positions in cM",
            )
        _check_unit(file, chrom, positions[-1] - positions[0], cMs[-1] - cMs[0])
        description = f"{name} ({columns.name}, chromosome {chrom}, {len(positions)} points)"
        return cls(np.array(positions), np.array(cMs), chrom=chrom, description=description)

    @property
    def first_position(self) -> int:
        """First position of the map."""
        return int(self._position[0])

    @property
    def last_position(self) -> int:
        """Last position of the map."""
        return int(self._position[-1])

    def cM(self, position: np.ndarray) -> np.ndarray:
        """Return genetic positions in cM, float64, of an array of base-pair positions.

        The map is linear between its points. Beyond its ends it continues at its mean rate, because a
        constant genetic position would mean that sites never recombine.
        """
        x = np.asarray(position, dtype=np.float64)
        inside = np.interp(x, self._position, self._cM)
        before = np.minimum(x - self._position[0], 0)
        after = np.maximum(x - self._position[-1], 0)
        return inside + (before + after) * self._mean_rate


def _check_unit(file: str, chrom: str, bases: int, cM: float) -> None:
    rate = cM / bases * 10**6
    if bases <= MIN_CHECKED_BASES or MIN_RATE <= rate <= MAX_RATE:
        return
    advice = (
        "If the map is in Morgans, multiply its genetic positions by 100"
        if rate < MIN_RATE
        else "If its genetic positions are 100 times too large, divide them by 100"
    )
    text = (
        f"{file}: chromosome {chrom} is {cM:g} cM long by this map, {rate:.3g} cM/Mb; the human genome has "
        f"about {DEFAULT_RATE:g}. {advice}"
    )
    if bases > MIN_REFUSED_BASES:
        raise InputError("content", text)
    warnings.warn(text, stacklevel=5)


def _failure(file: str) -> Callable[[int, str], InputError]:
    return lambda number, what: InputError(
        "content", f"{file}, line {number}: {what}. Check the genetic map; {_FORMATS}"
    )


def _numbers(
    fields: list[str], columns: _Columns, fail: Callable[[int, str], InputError], number: int
) -> tuple[int, float]:
    if not _WHOLE.fullmatch(fields[columns.position]):
        raise fail(number, f"the position {fields[columns.position]!r} is not a whole number")
    try:
        cM = float(fields[columns.cM])
    except ValueError:
        cM = math.nan
    if not math.isfinite(cM) or "_" in fields[columns.cM]:  # Python reads 1_2 as 12
        raise fail(number, f"the genetic position {fields[columns.cM]!r} is not a number")
    return int(fields[columns.position]), cM


def _rows(file: str, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank, with its line number."""
    stream: IO[bytes] | gzip.GzipFile = io.BytesIO(content)
    if content.startswith(GZIP_MAGIC):
        stream = gzip.GzipFile(fileobj=stream)
    try:
        with decompressed_text(stream, len(content)) as text:
            for number, line in enumerate(text_lines(text), start=1):
                if not line.isspace():
                    yield number, line
    except TooLong as error:
        raise InputError("content", f"{file}: this is not a genetic map: {error}; {_FORMATS}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            "damaged", f"{file}: the genetic map is damaged gzip ({error}). Copy it again"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError("content", f"{file}: the genetic map is not text; {_FORMATS}") from error


def _detect_format(file: str, first: tuple[int, str] | None) -> tuple[_Columns, int]:
    """Return the format of the map and the line number of its first row, judging by its first line."""
    if first is None:
        raise InputError("content", f"{file}: the genetic map is empty; {_FORMATS}")
    number, line = first
    fields = [field.lower() for field in line.split()]
    if fields == ["pos", "chr", "cm"]:
        return _SHAPEIT, number + 1
    if len(fields) == 4 and fields[0].startswith("chr") and fields[1].startswith("position"):
        return _HAPMAP, number + 1
    if len(fields) == 4 and fields[3].lstrip("-").isdecimal():
        return _PLINK, number
    raise InputError(
        "content", f"{file}, line {number}: this is not a genetic map: {line.rstrip()[:60]!r}; {_FORMATS}"
    )
