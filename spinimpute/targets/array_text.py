"""Read the genotypes of one sample from the text file of a consumer array, such as 23andMe or AncestryDNA.

Each line is a call: identifier, chromosome, position, and the two alleles as letters, in one column or two.
For example: `rs3094315  1  752566  AG`. The columns are separated by tabs, commas or semicolons, with or
without quotes and a header. The file is plain text, gzip or a zip archive of one file. The format is detected
from the content.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import (
    ON_ANOTHER_CHROMOSOME,
    NoRecord,
    Sites,
    choose_alleles,
    complement,
    is_position,
    plain_chromosome,
    same_chromosome,
    snp_alleles,
)
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.unpacking import decompressed_text, open_text, text_lines
from spinimpute.targets.liftover import NOT_IN_CHAIN, Lift

MAX_CALLS = 5_000_000  # calls in a file; the largest arrays have 4.3 million, which take a gigabyte of memory
NO_ALLELES = "insertion or deletion without its alleles"
NO_POSITION = "without a position in the genome"

_LETTERS = frozenset("ACGT")
_MISSING = frozenset("-0?.N")
_INDEL = frozenset("DI")  # deletion and insertion
_EMPTY_FIELDS = frozenset({"", "-", "--"})  # an unknown chromosome or position
# zipfile raises RuntimeError if an archive needs a password
_UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)
_HEADER_NAMES = frozenset({"rsid", "snpid", "name", "marker"})
_COMMENTED_HEADER = re.compile(r"#\s*rsid\s", re.IGNORECASE)
_BUILDS = (
    ("GRCh36", re.compile(r"build\s*36|hg18|ncbi\s*36|grch36", re.IGNORECASE)),
    (
        "GRCh37",
        re.compile(r"build\s*37|hg19|grch37|GCF_000001405\.1[3-9]|GCF_000001405\.2[0-5]", re.IGNORECASE),
    ),
    ("GRCh38", re.compile(r"build\s*38|hg38|grch38|GCF_000001405\.(2[6-9]|3\d)", re.IGNORECASE)),
)

_UCSC_NAMES = {"GRCh36": "hg18", "GRCh37": "hg19", "GRCh38": "hg38"}


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A line of the file.

    `id` is "." if it is missing, `chrom` has no "chr", and `position` counts from 1. `letters` are the two
    alleles, such as "AG". A haploid call has one letter, and a missing call none.
    """

    id: str
    chrom: str
    position: int
    letters: str


@dataclass(frozen=True)
class ArrayText:
    """Content of a file.

    `name` is the sample's name, taken from the file name. `build` is the genome build that the comments
    state, or "". `unplaced` is the number of lines without a position in the genome.
    """

    name: str
    build: str
    calls: list[ArrayCall]
    unplaced: int


def is_array_text(path: Path) -> bool:
    """Return whether a file is the text of a consumer array: it has the header, or starts with a call.

    Return False for an unreadable file. Raises InputError for a zip archive that is encrypted, has an unusual
    compression, or does not have exactly one file.
    """
    try:
        with _open(path) as file:
            for _ in range(2_000):
                line = file.readline(4_096)
                if not line or line.startswith("##fileformat=VCF"):
                    return False
                if _COMMENTED_HEADER.match(line):
                    return True
                fields = _fields(line)
                if fields is None:
                    continue
                looks_like_a_call = (
                    len(fields) in (4, 5) and fields[2].isdecimal() and _letters(fields) is not None
                )
                return _is_header(fields) or looks_like_a_call
    except _UNREADABLE:
        return False
    return False


def read_array_text(path: Path) -> ArrayText:
    """Read all calls of a file that `is_array_text` accepts.

    The calls of the last file are kept, because a run reads the file again for each chromosome. Raises
    InputError if the file is unreadable, truncated or without calls, or if a line has another format.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise InputError("read", f"target {path}: cannot be read ({error}). Get it again") from error
    return _read_cached(path, state.st_mtime_ns, state.st_size)


def array_chromosomes(path: Path) -> list[str]:
    """Return the chromosomes of a file's calls. Raises the errors of `read_array_text`."""
    return list(dict.fromkeys(call.chrom for call in read_array_text(path).calls))


@lru_cache(maxsize=1)  # time and size identify a version of the file
def _read_cached(path: Path, _mtime_ns: int, _size: int) -> ArrayText:
    calls = []
    build = ""
    unplaced = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(text_lines(file), start=1):
                if line.startswith("#"):
                    build = build or next((name for name, pattern in _BUILDS if pattern.search(line)), "")
                fields = _fields(line)
                if fields is None or _is_header(fields):
                    continue
                if len(fields) > 2 and (fields[1] in {*_EMPTY_FIELDS, "0"} or fields[2] in _EMPTY_FIELDS):
                    unplaced += 1
                    continue
                calls.append(_call(path, number, fields))
                if len(calls) > MAX_CALLS:
                    raise InputError(
                        "content",
                        f"target {path}: it has more than {MAX_CALLS:,} calls, the limit for such a file. "
                        "Give its genotypes as VCF",
                    )
    except _UNREADABLE as error:
        raise InputError(
            "read", f"target {path}: cannot be read to its end ({error}). Get it again"
        ) from error
    if not calls:
        raise InputError("content", f"target {path}: the file has no genotypes")
    # a VCF cannot have a sample name that is not valid UTF-8
    name = os.fsencode(path.name.split(".")[0]).decode("utf-8", "backslashreplace")
    return ArrayText(re.sub(r"\s+", "_", name) or "sample", build, calls, unplaced)


def read_array_calls(path: Path, panel: Sites, contig_line: str, lift: Lift | None = None) -> Calls:
    """Read the calls on the panel's chromosome, sorted by position. REF and ALT are the panel's.

    If the file reports the other strand, REF and ALT are complemented; `repair_and_match` later corrects
    the strand. A call with an allele that the panel lacks becomes a site that matches no panel site.
    `panel` are the sites of all parts of the panel. `lift` converts positions to the panel's build.

    Warns if the file states another genome build than the panel's and there is no `lift`. Raises the errors
    of `read_array_text`, and InputError if no call on the chromosome has alleles.
    """
    text = read_array_text(path)
    panel_build = infer_build(contig_line, panel.chrom)
    chrom = plain_chromosome(panel.chrom)
    here = [call for call in text.calls if same_chromosome(call.chrom, chrom)]  # these arrays are human
    if not here:
        names = ", ".join(array_chromosomes(path))
        raise NoRecord("content", f"target {path}: no call on chromosome {chrom}. The file has {names}")
    if lift is None and text.build and panel_build and text.build != panel_build:
        warnings.warn(
            f"{path}: its comments state {text.build}, the panel is on {panel_build}. Lift the file over "
            f"({argument('chain')}) with UCSC's chain file {_chain_file(text.build, panel_build)}",
            stacklevel=2,
        )
    skipped = Counter({ON_ANOTHER_CHROMOSOME: len(text.calls) - len(here), NO_POSITION: text.unplaced})
    rows: list[tuple[int, str, str, str]] = []
    calls: list[tuple[int, int]] = []
    panel_alleles = snp_alleles(panel)
    if lift is not None:
        lifted = [(lift.convert(call.position), call) for call in here]
        skipped[NOT_IN_CHAIN] = sum(found is None for found, _ in lifted)
        here = [
            replace(call, position=found[0], letters=complement(call.letters) if found[1] else call.letters)
            for found, call in lifted
            if found is not None
        ]
    for call in sorted(here, key=lambda call: call.position):
        if set(call.letters) & _INDEL:
            skipped[NO_ALLELES] += 1
            continue
        ref, alt = choose_alleles(call.letters, panel_alleles.get(call.position, []))
        rows.append((call.position, ref, alt, call.id))
        coded = sorted(int(letter == alt) for letter in call.letters) or [-1, -1]
        calls.append((coded[0], coded[1] if len(coded) > 1 else -2))
    if not rows:
        raise NoRecord("content", f"target {path}: no call on chromosome {chrom} has alleles")
    positions, *texts = (list(column) for column in zip(*rows, strict=True))
    calls_SX2 = np.array(calls, np.int8)[:, None]
    unphased = (calls_SX2[:, :, 0] != calls_SX2[:, :, 1]) & (calls_SX2[:, :, 1] >= 0)
    return Calls(
        Sites(panel.chrom, np.array(positions, np.int64), texts[0], texts[1], texts[2]),
        calls_SX2,
        [text.name],
        contig_line,
        dict(+skipped),
        unphased if unphased.any() else None,
    )


def _chain_file(build: str, panel_build: str) -> str:
    """Return the name of UCSC's chain file from one genome build to another."""
    return f"{_UCSC_NAMES[build]}To{_UCSC_NAMES[panel_build].capitalize()}.over.chain.gz"


def _open(path: Path) -> TextIO:
    """Open a file, gzip or zip archive as text. Raises InputError unless an archive has one readable file."""
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        return open_text(path, errors="replace")
    with zipfile.ZipFile(path) as archive:  # closing the archive does not close the file opened from it
        files = [
            info
            for info in archive.infolist()
            if not info.is_dir() and not info.filename.startswith("__MACOSX/")  # macOS keeps attributes there
        ]
        what = ""
        if len(files) != 1:
            what = f"holds {len(files)} files"
        elif files[0].flag_bits & 1:
            what = "is encrypted"
        elif files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            what = "is compressed with another method than Deflate"
        if what:
            raise InputError(
                "content", f"target {path}: the archive {what}. Unpack the file with the genotypes"
            )
        return decompressed_text(archive.open(files[0]), files[0].compress_size, errors="replace")


def _fields(line: str) -> list[str] | None:
    """Return the columns of a line, or None for a comment or an empty line."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    separator = next((sign for sign in "\t,;" if sign in text), None)
    return [field.strip().strip('"').strip() for field in text.split(separator)]


def _is_header(fields: list[str]) -> bool:
    return fields[0].lower() in _HEADER_NAMES


def _letters(fields: list[str]) -> str | None:
    """Return the alleles as one or two letters, or "" if one is missing. Return None for an invalid call."""
    letters = "".join(fields[3:]).upper()
    if len(letters) > 2 or set(letters) - _LETTERS - _MISSING - _INDEL:
        return None
    return "" if set(letters) & _MISSING else letters


def _call(path: Path, number: int, fields: list[str]) -> ArrayCall:
    if len(fields) not in (4, 5):
        raise InputError(
            "content",
            f"target {path}, line {number}: {len(fields)} columns, expected identifier, chromosome, position "
            "and genotype (in one column or two)",
        )
    letters = _letters(fields)
    if letters is None:
        raise InputError(
            "content",
            f"target {path}, line {number}: {' '.join(fields[3:])!r} is not a genotype. Genotypes are "
            "letters of ACGT, D or I, or -- where there is no call",
        )
    if not is_position(fields[2]):
        raise InputError(
            "content", f"target {path}, line {number}: the position {fields[2]!r} is not a number"
        )
    chrom = plain_chromosome(fields[1])
    # interning saves memory: millions of calls have only a few different chromosomes and genotypes
    return ArrayCall(fields[0] or ".", sys.intern(chrom), int(fields[2]), sys.intern(letters))
