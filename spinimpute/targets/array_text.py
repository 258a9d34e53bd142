"""Genotypes of one sample as consumer arrays are delivered: a text file with a site in each line.

23andMe, AncestryDNA, FamilyTreeDNA, MyHeritage, LivingDNA and what looks like them: identifier, chromosome,
position, and the two alleles as letters, together or apart; tabs, commas or semicolons, with or without
quotes and a head; plain, gzip or a zip archive with one file in it. Recognised by content, never by name.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import (
    ON_ANOTHER_CHROMOSOME,
    Sites,
    choose_alleles,
    complement,
    is_position,
    plain_chromosome,
    same_chromosome,
    snp_alleles,
)
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import open_text, text_lines, unpacked_text
from spinimpute.targets.liftover import NOT_IN_CHAIN, Lift

MOST_CALLS = 5_000_000  # the largest arrays have 4.3 million sites; a gigabyte is taken
NO_ALLELES = "insertion or deletion without its alleles"
NO_PLACE = "without a place in the genome"

_LETTERS = frozenset("ACGT")
_MISSING = frozenset("-0?.N")
_INDEL = frozenset("DI")
_NO_PLACE = frozenset({"", "-", "--"})
_HEADS = frozenset({"rsid", "snpid", "name", "marker"})
_COMMENTED_HEAD = re.compile(r"#\s*rsid\s", re.IGNORECASE)
_BUILDS = (
    ("GRCh36", re.compile(r"build\s*36|hg18|ncbi\s*36|grch36", re.IGNORECASE)),
    (
        "GRCh37",
        re.compile(r"build\s*37|hg19|grch37|GCF_000001405\.1[3-9]|GCF_000001405\.2[0-5]", re.IGNORECASE),
    ),
    ("GRCh38", re.compile(r"build\s*38|hg38|grch38|GCF_000001405\.(2[6-9]|3\d)", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A line of a file.

    Attributes
    ----------
    id : str
        The site's identifier, "." if it has none.
    chrom : str
        Without "chr".
    position : int
        1-based.
    letters : str
        Of the alleles: "" if missing, one if haploid.
    """

    id: str
    chrom: str
    position: int
    letters: str


@dataclass(frozen=True)
class ArrayText:
    """The content of a file.

    Attributes
    ----------
    name : str
        Of the sample, by the file's name.
    build : str
        The genome build that the comments state, or "".
    calls : list of ArrayCall
        In the order of the file.
    unplaced : int
        Lines without a place in the genome.
    """

    name: str
    build: str
    calls: list[ArrayCall]
    unplaced: int


def is_array_text(path: Path) -> bool:
    """Whether a file has the head of such a file, or its first line that is no comment is a call.

    Parameters
    ----------
    path : Path
        Of any file.

    Returns
    -------
    bool
        False if the file cannot be read.

    Raises
    ------
    InputError
        It is an archive that is not of one file, encrypted, or packed in an unusual way.
    """
    try:
        with _opened(path) as file:
            for _ in range(2_000):
                line = file.readline(4_096)
                if not line:
                    return False
                if line.startswith("##fileformat=VCF"):
                    return False
                if _COMMENTED_HEAD.match(line):
                    return True
                fields = _fields(line)
                if fields is None:
                    continue
                return _is_head(fields) or _looks_like_a_call(fields)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        return False
    return False


def read_array_text(path: Path) -> ArrayText:
    """Read all calls of a file.

    Parameters
    ----------
    path : Path
        A file that `is_array_text` accepts.

    Returns
    -------
    ArrayText
        With at least one call.

    Raises
    ------
    InputError
        The file cannot be read or is cut, or a line of it has another form, a position that is no number, or
        alleles that are no letters of DNA.
    """
    calls = []
    build = ""
    unplaced = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(text_lines(file), start=1):
                if line.startswith("#"):
                    build = build or next((name for name, form in _BUILDS if form.search(line)), "")
                fields = _fields(line)
                if fields is None or _is_head(fields):
                    continue
                if len(fields) > 2 and (fields[1] in {*_NO_PLACE, "0"} or fields[2] in _NO_PLACE):
                    unplaced += 1
                    continue
                calls.append(_call(path, number, fields))
                if len(calls) > MOST_CALLS:
                    raise InputError(
                        "content",
                        f"target {path}: it has more than {MOST_CALLS:,} calls, the most that are read from "
                        "such a file: give its genotypes as VCF",
                    )
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:  # e.g. a password
        raise InputError(
            "read", f"target {path}: cannot be read to its end ({error}); get it again"
        ) from error
    if not calls:
        raise InputError("content", f"target {path}: the file has no genotypes")
    # bytes that are no text, of a disk with another encoding, could not be written as a sample's name
    name = os.fsencode(path.name.split(".")[0]).decode("utf-8", "backslashreplace")
    return ArrayText(re.sub(r"\s+", "_", name) or "sample", build, calls, unplaced)


def read_array_calls(path: Path, panel: Sites, contig_line: str, lift: Lift | None = None) -> Calls:
    """The calls of a file on the panel's chromosome, see `array_calls`.

    Parameters
    ----------
    path, panel, contig_line, lift
        As of `plink.read_plink`; the panel's build is that of its contig line.

    Returns
    -------
    Calls
        Of one sample.

    Raises
    ------
    InputError
        As `read_array_text` and `array_calls`.
    """
    build = infer_build(contig_line, panel.chrom)
    return array_calls(read_array_text(path), path, panel, contig_line, build, lift)


def array_calls(
    text: ArrayText,
    path: Path,
    panel: Sites,
    contig_line: str,
    panel_build: str,
    lift: Lift | None = None,
) -> Calls:
    """The calls on the panel's chromosome, with REF and ALT as the panel has them.

    Where the letters are those of the other strand, REF and ALT are, too; `repair_and_match` then exchanges
    them. Letters that the panel lacks make a site that matches none. Warns if the file states another build
    than the panel's and there is no `lift`.

    Parameters
    ----------
    text : ArrayText
        What was read.
    path : Path
        The file, for messages.
    panel : Sites
        Of all parts of the panel.
    contig_line : str
        The panel's.
    panel_build : str
        The panel's genome build, or "".
    lift : Lift or None
        To the panel's build.

    Returns
    -------
    Calls
        Of one sample, sorted by position.

    Raises
    ------
    InputError
        No call is on the chromosome, or none states its alleles.
    """
    chrom = plain_chromosome(panel.chrom)
    here = [call for call in text.calls if same_chromosome(call.chrom, chrom)]  # these are of people
    if not here:
        found = ", ".join(dict.fromkeys(call.chrom for call in text.calls))
        raise InputError("content", f"target {path}: no call on chromosome {chrom}; the file has {found}")
    if lift is None and text.build and panel_build and text.build != panel_build:
        warnings.warn(
            f"{path} says that its positions are of {text.build}, the panel is of {panel_build}: lift it "
            f"over ({argument('chain')})",
            stacklevel=2,
        )
    lost = {ON_ANOTHER_CHROMOSOME: len(text.calls) - len(here), NO_PLACE: text.unplaced}
    skipped = {reason: count for reason, count in lost.items() if count}
    rows: list[tuple[int, str, str, str]] = []
    calls: list[tuple[int, int]] = []
    places = snp_alleles(panel)
    if lift is not None:
        here = _lifted(here, lift, skipped)
    for call in sorted(here, key=lambda call: call.position):
        if set(call.letters) & _INDEL:
            skipped[NO_ALLELES] = skipped.get(NO_ALLELES, 0) + 1
            continue
        ref, alt = choose_alleles(call.letters, places.get(call.position, []))
        rows.append((call.position, ref, alt, call.id))
        coded = sorted(int(letter == alt) for letter in call.letters) or [-1, -1]
        calls.append((coded[0], coded[1] if len(coded) > 1 else -2))
    if not rows:
        raise InputError("content", f"target {path}: no call on chromosome {chrom} states its alleles")
    calls_SX2 = np.array(calls, np.int8)[:, None]
    unphased = (calls_SX2[:, :, 0] != calls_SX2[:, :, 1]) & (calls_SX2[:, :, 1] >= 0)
    return Calls(
        Sites(
            panel.chrom,
            np.array([row[0] for row in rows], np.int64),
            [row[1] for row in rows],
            [row[2] for row in rows],
            [row[3] for row in rows],
        ),
        calls_SX2,
        [text.name],
        contig_line,
        skipped,
        unphased if unphased.any() else None,
    )


def _lifted(calls: list[ArrayCall], lift: Lift, skipped: dict[str, int]) -> list[ArrayCall]:
    """The calls in the panel's build; those that have no place in it are counted."""
    out = []
    for call in calls:
        place = lift.place(call.position)
        if place is None:
            skipped[NOT_IN_CHAIN] = skipped.get(NOT_IN_CHAIN, 0) + 1
            continue
        position, other_strand = place
        letters = complement(call.letters) if other_strand else call.letters
        out.append(replace(call, position=position, letters=letters))
    return out


def _opened(path: Path) -> TextIO:
    """The text, unpacked. Raises InputError for a zip archive that is not of one file which can be read."""
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        return open_text(path, errors="replace")
    with zipfile.ZipFile(path) as archive:  # what is open of it stays open
        files = [info for info in archive.infolist() if not info.is_dir()]
        what = ""
        if len(files) != 1:
            what = f"holds {len(files)} files"
        elif files[0].flag_bits & 1:
            what = "is encrypted"
        elif files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            what = "is not packed with Deflate, as others of such archives are"
        if what:
            raise InputError(
                "content", f"target {path}: the archive {what}; unpack the file with the genotypes"
            )
        return unpacked_text(archive.open(files[0]), files[0].compress_size, errors="replace")


def _fields(line: str) -> list[str] | None:
    """The columns of a line; None of a comment or an empty line."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    separator = next((one for one in "\t,;" if one in text), None)
    return [field.strip().strip('"').strip() for field in text.split(separator)]


def _is_head(fields: list[str]) -> bool:
    return fields[0].lower() in _HEADS


def _looks_like_a_call(fields: list[str]) -> bool:
    return len(fields) in (4, 5) and fields[2].isdecimal() and _letters(fields) is not None


def _letters(fields: list[str]) -> str | None:
    """The alleles without missing ones: none, one or two letters; None if there is anything else."""
    letters = "".join(fields[3:]).upper()
    if len(letters) > 2 or set(letters) - _LETTERS - _MISSING - _INDEL:
        return None
    return "" if set(letters) & _MISSING else letters


def _call(path: Path, number: int, fields: list[str]) -> ArrayCall:
    if len(fields) not in (4, 5):
        raise InputError(
            "content",
            f"target {path}, line {number}: {len(fields)} columns, expected identifier, chromosome, position "
            "and genotype, or two alleles",
        )
    letters = _letters(fields)
    if letters is None:
        raise InputError(
            "content",
            f"target {path}, line {number}: {' '.join(fields[3:])!r} is no genotype; expected letters of "
            "ACGT, D or I, or -- where there is no call",
        )
    if not is_position(fields[2]):
        raise InputError("content", f"target {path}, line {number}: the position {fields[2]!r} is no number")
    chrom = plain_chromosome(fields[1])
    # the same few texts millions of times
    return ArrayCall(fields[0] or ".", sys.intern(chrom), int(fields[2]), sys.intern(letters))
