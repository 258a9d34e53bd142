"""What is wrong with the text of a VCF that the library which reads it refuses without a reason."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from spinimpute.runtime.errors import repeated
from spinimpute.runtime.unpacking import GZIP_MAGIC

NO_SAMPLES = "the file holds sites without samples; give a file with genotypes"

_SHOWN = 60  # letters of a text that may be long
LOOKED_AT = 2**22  # bytes of text
_FIXED_COLUMNS = 8  # before FORMAT and samples
# FORMAT fields whose values are looked at, what these must be, and that in words
_FORMS = {
    "GT": (
        re.compile(r"[|/]?(\.|\d+)([|/](\.|\d+))*"),
        "genotypes are numbers of alleles, such as 0/1, or ./. where there is none",
    ),
    "GL": (
        re.compile(r"%s(,%s)*" % ((r"(\.|[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf|nan)",) * 2)),
        "likelihoods are logarithms to base 10, such as 0,-3.2,-25.5, or . where there are none",
    ),
    "PL": (
        re.compile(r"(\.|-?\d+)(,(\.|-?\d+))*"),
        "Phred-scaled likelihoods are whole numbers, such as 0,30,255, or . where there are none",
    ),
}
_TYPE_OF_GT = re.compile(rb"##FORMAT=<(?:[^\"]*,)?ID=GT,(?:[^\"]*,)?Type=(?!String\b)(\w+)")


def fault_of_columns(path: Path) -> str:
    """What is wrong with the line of the header that names the columns.

    Parameters
    ----------
    path : Path
        A VCF, compressed or not.

    Returns
    -------
    str
        For a message; "" if it is nothing that is known here.
    """
    try:
        number, line = next((n, line) for n, line in _lines(path) if not line.startswith(b"##"))
    except (OSError, EOFError, zlib.error, StopIteration):
        return ""
    if not line.startswith(b"#CHROM"):
        return ""
    names = _fields(line)
    if len(names) < _FIXED_COLUMNS and len(line.split()) > len(names):
        return f"line {number}, #CHROM, has spaces between its columns; put tabs there, and in the records"
    if twice := repeated(names[_FIXED_COLUMNS + 1 :]):
        return f"two samples are named {twice}; rename one of them"
    return NO_SAMPLES if len(names) == _FIXED_COLUMNS + 1 else ""


def fault_of_record(path: Path, record: int) -> str:
    """Where a record is and what is wrong with its columns, position or genotypes.

    Parameters
    ----------
    path : Path
        A VCF, compressed or not.
    record : int
        The number of the record, from 1.

    Returns
    -------
    str
        For a message; "" if it is nothing that is known here, and where the file may be cut.
    """
    columns: list[str] = []
    last = False
    try:
        lines = _lines(path)
        for number, line in lines:
            if line.startswith(b"#") or not columns:  # htslib passes over an empty line of the header
                if kind := _TYPE_OF_GT.match(line):
                    return f"line {number} defines GT as Type={kind[1].decode()}; it is to be Type=String"
                if line.startswith(b"#CHROM\t"):
                    columns = _fields(line)
                continue
            record -= 1
            if not record:
                last = next(lines, None) is None
                break
        else:
            return ""
    except (OSError, EOFError, zlib.error):
        return ""
    if not line.strip(b"\r\n"):
        return f"line {number} is empty; remove it"
    what = _fault_of_fields(_fields(line), columns, last)
    return f"line {number}, {what}" if what else ""


def surplus_columns(path: Path) -> str:
    """Whether a record has more columns than the header names, which the library passes over.

    Parameters
    ----------
    path : Path
        A VCF, compressed or not. Its first LOOKED_AT bytes are looked at: files of one program have the same
        columns throughout.

    Returns
    -------
    str
        Where it is, for a message; "" if there is none.
    """
    n_read, n_columns = 0, 0
    try:
        for number, line in _lines(path):
            n_read += len(line)
            if n_read > LOOKED_AT:
                break
            if line.startswith(b"#CHROM\t"):
                n_columns = len(_fields(line))
            elif n_columns and line.count(b"\t") >= n_columns:
                fields = _fields(line)
                if any(fields[n_columns:]):  # not a tab at the end alone
                    return (
                        f"line {number}, record {':'.join(fields[:2])[:_SHOWN]}: it has {len(fields)} "
                        f"columns, the line #CHROM names {n_columns}; name the samples that it lacks, or "
                        "mend the record"
                    )
    except (OSError, EOFError, zlib.error):
        return ""
    return ""


def _fault_of_fields(fields: list[str], columns: list[str], last: bool) -> str:
    place = f"record {':'.join(fields[:2])[:_SHOWN]}"
    if len(fields) < len(columns) and last:
        return ""
    if len(fields) != len(columns):
        return (
            f"{place}: it has {len(fields)} columns, the line #CHROM names {len(columns)}; mend the line, or "
            "get the file again if it is cut there"
        )
    if not fields[0]:
        return f"{place}: the chromosome (CHROM) is empty; mend the line"
    if not (fields[1].isascii() and fields[1].isdigit()):
        return f"{place}: the position {fields[1][:_SHOWN]!r} is no whole number; mend it"
    formats = fields[_FIXED_COLUMNS].split(":") if len(fields) > _FIXED_COLUMNS else []
    for key, (form, rule) in _FORMS.items():
        if key not in formats:
            continue
        column = formats.index(key)
        for name, value in zip(columns[_FIXED_COLUMNS + 1 :], fields[_FIXED_COLUMNS + 1 :], strict=True):
            said = (value.split(":") + ["."] * column)[column]
            if not form.fullmatch(said):
                return f"{place}: {key} of sample {name} is {said[:_SHOWN]!r}; {rule}"
    return ""


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    with gzip.open(path) if packed else path.open("rb") as text:
        yield from enumerate(text, start=1)


def _fields(line: bytes) -> list[str]:
    return line.decode(errors="replace").rstrip("\r\n").split("\t")
