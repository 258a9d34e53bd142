"""Read a table of labels that are known per person, not per haplotype: HLA types, blood groups, star alleles.

A label may be known at a lower resolution: 01 stands for any of 01:01 and 01:02. Fields are separated by
colons. The alleles of a locus are the labels of the table that are not the beginning of a longer one.

Axes: X samples, M distinct texts of a locus, K alleles of a locus.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.records import MAX_LABELS
from spinimpute.genotypes.sites import LAST_POSITION, is_position, label_alt, label_parts
from spinimpute.runtime.errors import InputError, why_no_file
from spinimpute.runtime.unpacking import open_text, text_lines, why_unreadable

COLUMNS = ("sample", "locus", "position", "allele1", "allele2")
UNKNOWN = ""
_HLA = "HLA-"  # may be left out before the name of a gene
_MISSING = (UNKNOWN, ".", "NA", "NaN")


class Locus(NamedTuple):
    """The labels of a locus."""

    name: str
    position: int
    alleles: list[str]  # sorted (K)
    allowed_MK: np.ndarray  # bool, which alleles a text of the table can stand for; row 0, unknown: all
    text_X2: np.ndarray  # int64, texts of the two labels of each sample of the panel; 0 if unknown


class TypesTable(NamedTuple):
    """The content of a table of labels."""

    loci: list[Locus]  # by position
    unknown_samples: list[str]  # samples that are not in the panel, sorted


class _Row(NamedTuple):
    line: int
    sample: str
    locus: str
    position: int
    alleles: tuple[str, str]


def read_types(path: str | Path, samples: Sequence[str], ploidy: np.ndarray) -> TypesTable:
    """Read a tab-separated table with the columns COLUMNS, plain or gzip.

    Parameters
    ----------
    path : str or Path
        The table. Lines that begin with "#" may precede the header. Further columns are ignored. An allele
        may be missing: empty, ".", "NA". It may begin with its locus: "HLA-A*01:01" or "A*01:01". A sample
        may have several rows of a locus, for example of different resolutions.
    samples : sequence of str
        The samples of the panel. Other samples are ignored.
    ploidy : integer (n_samples,)
        1 or 2. A haploid sample has one label, in either column or in both.

    Returns
    -------
    TypesTable
        The loci.

    Raises
    ------
    InputError
        The table cannot be read, has no such columns, an invalid position or allele, several positions or
        names of a locus, rows that contradict each other, no sample of the panel, two labels of a haploid
        sample, or a locus with a single allele or more than MAX_LABELS.
    """
    path = Path(path)
    index = {name: x for x, name in enumerate(samples)}
    rows: dict[str, list[_Row]] = {}
    unknown: set[str] = set()
    for row in _rows(path):
        if row.sample in index:
            rows.setdefault(row.locus, []).append(row)
        else:
            unknown.add(row.sample)
    if not rows:
        raise _error(
            path,
            f"none of its {len(unknown)} samples is in the panel ({', '.join(sorted(unknown)[:3])})"
            if unknown
            else "it has no row",
        )
    names: dict[str, str] = {}
    for name, found in rows.items():
        other = names.setdefault(plain_locus(name), name)
        if other != name:
            raise _error(
                path, f"{name} is the same locus as {other}. Use one of the two names", found[0].line
            )
    loci = [_locus(path, name, found, index, ploidy) for name, found in rows.items()]
    return TypesTable(sorted(loci, key=lambda locus: (locus.position, locus.name)), sorted(unknown))


def _error(path: Path, what: str, line: int | None = None) -> InputError:
    where = "" if line is None else f", line {line}"
    return InputError("content", f"table of labels {path}{where}: {what}")


def _rows(path: Path) -> Iterator[_Row]:
    if not path.is_file():  # a pipe can be opened only once
        raise InputError("not-found", f"table of labels {path}: {why_no_file(path)}")
    try:
        with open_text(path, newline="") as file:
            reader = csv.reader(text_lines(file), delimiter="\t")
            header = next(filter(None, map(_header, reader)), None)
            if header is None and not reader.line_num:
                raise _error(path, "the file is empty")
            header = header or []
            absent = [name for name in COLUMNS if name not in header]
            if absent:
                raise _error(
                    path,
                    f"it has no column {', '.join(absent)}. It must be tab-separated, with a header line and "
                    f"the columns {', '.join(COLUMNS)}",
                )
            column = [header.index(name) for name in COLUMNS]
            for fields in reader:
                if not any(map(str.strip, fields)):
                    continue
                line = reader.line_num
                if len(fields) <= max(column):
                    raise _error(path, f"{len(fields)} columns, expected {len(header)}", line)
                yield _row(path, line, *(fields[i].strip() for i in column))
    except (OSError, UnicodeError, csv.Error, EOFError) as error:
        raise InputError("read", f"table of labels {path}: {why_unreadable(error)}") from error


def _header(fields: Sequence[str]) -> list[str] | None:
    """Return the names of the columns, or None for an empty line and a comment before the header.

    The header, too, may begin with "#".
    """
    names = [name.strip().lower() for name in fields]
    if not any(names):
        return None
    is_comment = names[0].startswith("#")
    names[0] = names[0].removeprefix("#").strip()
    return None if is_comment and COLUMNS[0] not in names else names


def _row(path: Path, line: int, sample: str, locus: str, position: str, first: str, second: str) -> _Row:
    if not is_position(position) or not 1 <= int(position) <= LAST_POSITION:
        raise _error(path, f"the position is {position!r}, expected 1 to {LAST_POSITION:,}", line)
    for text in (first, second):
        prefix, star, _ = text.rpartition("*")
        if star and prefix and plain_locus(prefix) != plain_locus(locus):
            raise _error(path, f"the allele {text} does not belong to the locus {locus}", line)
    alleles = tuple(UNKNOWN if text in _MISSING else text.rpartition("*")[2] for text in (first, second))
    for allele in (*alleles, "1"):  # "1": the locus must be valid also if both alleles are missing
        if allele != UNKNOWN and label_parts(label_alt(locus, allele)) != (locus, allele):
            locus_is_valid = label_parts(label_alt(locus, "1")) is not None
            what = f"the allele {allele!r}" if locus_is_valid else f"the locus {locus!r}"
            raise _error(
                path,
                f"{what} is not a valid name. Names have letters, digits and _ . + ( ) -, begin with a "
                "letter or digit, and alleles may have colons between fields. If several alleles are "
                "possible, give the fields that they share, or none",
                line,
            )
    return _Row(line, sample, locus, int(position), (alleles[0], alleles[1]))


def _locus(path: Path, name: str, rows: list[_Row], index: dict[str, int], ploidy: np.ndarray) -> Locus:
    first = rows[0]
    for row in rows:
        if row.position != first.position:
            raise _error(
                path,
                f"{name} is at {row.position}, but at {first.position} in line {first.line}. A locus has one "
                "position",
                row.line,
            )
    pairs: dict[int, tuple[int, tuple[str, str]]] = {}  # sample -> line and labels
    for row in rows:
        x = index[row.sample]
        line, before = pairs.get(x, (row.line, (UNKNOWN, UNKNOWN)))
        combined = _combine(before, row.alleles)
        if combined is None:
            raise _error(
                path,
                f"sample {row.sample} has {_pair_text(row.alleles)} at {name}, which contradicts "
                f"{_pair_text(before)} in line {line}",
                row.line,
            )
        if ploidy[x] == 1:
            label = _finer(*combined)
            if label is None:
                raise _error(
                    path,
                    f"sample {row.sample} has {_pair_text(combined)} at {name}, but one copy of "
                    "the chromosome",
                    row.line,
                )
            combined = label, UNKNOWN
        pairs[x] = row.line, combined
    texts = sorted({text for _, pair in pairs.values() for text in pair} | {UNKNOWN})
    alleles = [text for text in texts if text and not any(is_part(text, longer) for longer in texts)]
    if len(alleles) < 2:
        raise _error(
            path, f"the panel's samples have {len(alleles)} allele of {name}. At least two are needed"
        )
    if len(alleles) > MAX_LABELS:
        raise _error(path, f"{name} has {len(alleles)} alleles; at most {MAX_LABELS} are possible")
    allowed_MK = np.array([[_fits(text, allele) for allele in alleles] for text in texts])
    number = {text: m for m, text in enumerate(texts)}
    text_X2 = np.zeros((len(index), 2), np.int64)
    for x, (_, pair) in pairs.items():
        text_X2[x] = number[pair[0]], number[pair[1]]
    return Locus(name, first.position, alleles, allowed_MK, text_X2)


def plain_locus(name: str) -> str:
    """Return the name of a locus without "HLA-"."""
    return name.removeprefix(_HLA)


def is_part(short: str, long: str) -> bool:
    """Return whether a label is the beginning of a longer one: 01 of 01:02."""
    return long.startswith(f"{short}:")


def _fits(text: str, allele: str) -> bool:
    return text in (UNKNOWN, allele) or is_part(text, allele)


def _finer(first: str, second: str) -> str | None:
    """Return the more precise one of two texts of one label, or None if they contradict each other."""
    return second if _fits(first, second) else first if _fits(second, first) else None


def _combine(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str] | None:
    """Combine two rows of a sample. Return None if they contradict each other, in either order."""
    for ordered in (second, second[::-1]):
        finer = [_finer(*pair) for pair in zip(first, ordered, strict=True)]
        if finer[0] is not None and finer[1] is not None:
            return finer[0], finer[1]
    return None


def _pair_text(pair: tuple[str, str]) -> str:
    return " and ".join(text or "a missing allele" for text in pair)
