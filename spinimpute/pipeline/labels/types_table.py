"""Read a table of labels that are known per person, not per haplotype: HLA types, blood groups, star alleles.

A label may be known at a lower resolution: 01 stands for any of 01:01 and 01:02. Fields are separated by
colons. The alleles of a locus are the labels of the table that are not the beginning of a longer one.

Axes: X samples, M distinct texts of a locus, K alleles of a locus.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.records import MAX_LABELS
from spinimpute.genotypes.sites import LAST_POSITION, is_position, label_alt, label_parts
from spinimpute.runtime.text_tables import TextTable

COLUMNS = ("sample", "locus", "position", "allele1", "allele2")
UNKNOWN = ""
_HLA = "HLA-"  # may be left out before the name of a gene
MISSING = (UNKNOWN, ".", "NA", "NaN")


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


class TypesRow(NamedTuple):
    """A row of a table of labels."""

    line: int
    sample: str
    position: int  # 0 if positions are not read
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
    table = TextTable(path, "table of labels")
    index = {name: x for x, name in enumerate(samples)}
    loci, unknown = [], set()
    for name, rows in read_type_rows(table).items():
        found = [row for row in rows if row.sample in index]
        unknown |= {row.sample for row in rows if row.sample not in index}
        if found:
            loci.append(_locus(table, name, found, index, ploidy))
    if not loci:
        raise table.error(
            f"none of its {len(unknown)} samples is in the panel ({', '.join(sorted(unknown)[:3])})"
            if unknown
            else "it has no row"
        )
    return TypesTable(sorted(loci, key=lambda locus: (locus.position, locus.name)), sorted(unknown))


def read_type_rows(table: TextTable, *, positions: bool = True) -> dict[str, list[TypesRow]]:
    """Return the rows of each locus. Without `positions`, the column is not needed and not read.

    Raises InputError for what is wrong in a single row, and for two names of a locus.
    """
    rows: dict[str, list[TypesRow]] = {}
    names: dict[str, str] = {}
    columns = COLUMNS if positions else tuple(name for name in COLUMNS if name != "position")
    for line, (sample, locus, *position, first, second) in table.rows(columns):
        if position and (not is_position(position[0]) or not 1 <= int(position[0]) <= LAST_POSITION):
            raise table.error(f"the position is {position[0]!r}, expected 1 to {LAST_POSITION:,}", line)
        alleles = parse_alleles(table, line, locus, (first, second))
        other = names.setdefault(plain_locus(locus), locus)
        if other != locus:
            raise table.error(f"{locus} is the same locus as {other}. Use one of the two names", line)
        row = TypesRow(line, sample, int(position[0]) if position else 0, alleles)
        rows.setdefault(locus, []).append(row)
    return rows


def parse_alleles(table: TextTable, line: int, locus: str, texts: tuple[str, str]) -> tuple[str, str]:
    """Return two alleles without the name of the locus; UNKNOWN for a missing one.

    Raises InputError if an allele is of another locus, or if a name is not valid.
    """
    for text in texts:
        prefix, star, _ = text.rpartition("*")
        if star and prefix and plain_locus(prefix) != plain_locus(locus):
            raise table.error(f"the allele {text} does not belong to the locus {locus}", line)
    first, second = (UNKNOWN if text in MISSING else text.rpartition("*")[2] for text in texts)
    for allele in (first, second, "1"):  # "1": the locus must be valid also if both alleles are missing
        if allele != UNKNOWN and label_parts(label_alt(locus, allele)) != (locus, allele):
            locus_is_valid = label_parts(label_alt(locus, "1")) is not None
            what = f"the allele {allele!r}" if locus_is_valid else f"the locus {locus!r}"
            raise table.error(
                f"{what} is not a valid name. Names have letters, digits and _ . + ( ) -, begin with a "
                "letter or digit, and alleles may have colons between fields. If several alleles are "
                "possible, give the fields that they share, or none",
                line,
            )
    return first, second


def combine_rows(
    table: TextTable, locus: str, rows: list[TypesRow]
) -> dict[str, tuple[int, tuple[str, str]]]:
    """Return the last line and the two labels of each sample. Raises InputError for contradictions."""
    pairs: dict[str, tuple[int, tuple[str, str]]] = {}
    for row in rows:
        line, before = pairs.get(row.sample, (row.line, (UNKNOWN, UNKNOWN)))
        combined = _combine(before, row.alleles)
        if combined is None:
            raise table.error(
                f"sample {row.sample} has {_pair_text(row.alleles)} at {locus}, which contradicts "
                f"{_pair_text(before)} in line {line}",
                row.line,
            )
        pairs[row.sample] = row.line, combined
    return pairs


def single_label(
    table: TextTable, line: int, sample: str, locus: str, pair: tuple[str, str], where: str
) -> str:
    """Return the label of a haploid sample, which is in either column or in both.

    Raises InputError for two labels. `where` is where the sample has a single copy, for the message.
    """
    label = _finer(*pair)
    if label is None:
        raise table.error(f"sample {sample} has {_pair_text(pair)} at {locus}, but one copy {where}", line)
    return label


def _locus(
    table: TextTable, name: str, rows: list[TypesRow], index: dict[str, int], ploidy: np.ndarray
) -> Locus:
    first = rows[0]
    for row in rows:
        if row.position != first.position:
            raise table.error(
                f"{name} is at {row.position}, but at {first.position} in line {first.line}. A locus has one "
                "position",
                row.line,
            )
    pairs: dict[int, tuple[str, str]] = {}
    for sample, (line, pair) in combine_rows(table, name, rows).items():
        if ploidy[index[sample]] == 1:
            pair = single_label(table, line, sample, name, pair, "of the chromosome"), UNKNOWN
        pairs[index[sample]] = pair
    texts = sorted({text for pair in pairs.values() for text in pair} | {UNKNOWN})
    alleles = [text for text in texts if text and not any(is_part(text, longer) for longer in texts)]
    if len(alleles) < 2:
        raise table.error(
            f"the panel's samples have {len(alleles)} allele of {name}. At least two are needed"
        )
    if len(alleles) > MAX_LABELS:
        raise table.error(f"{name} has {len(alleles)} alleles; at most {MAX_LABELS} are possible")
    allowed_MK = np.array([[_fits(text, allele) for allele in alleles] for text in texts])
    number = {text: m for m, text in enumerate(texts)}
    text_X2 = np.zeros((len(index), 2), np.int64)
    for x, pair in pairs.items():
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
