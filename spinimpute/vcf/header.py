"""Headers: of a file that is read, of an output; what their lines define, and how BCF numbers names."""

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spinimpute.genotypes.builds import contig_length
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.runtime.unpacking import GZIP_MAGIC, LONGEST_RECORD
from spinimpute.vcf.bcf_format import BCF_MAGIC, START_BYTES, ByteStream, header_length
from spinimpute.vcf.bgzf import DamagedFile

PIECE_BYTES = 4 * 2**20  # of a file that are read at once; bounds the memory

DEFAULT_DECIMALS = 3
"""Decimals of the numbers of samples: pooled r2 is the same to four digits as with more."""

_INFO_LINES = (  # MAF stands before AF because deflate then finds AF's digits again: 0.7 % of a file
    '##INFO=<ID=MAF,Number=1,Type=Float,Description="Estimated minor allele frequency: AF or 1-AF, '
    'whichever is less">',
    '##INFO=<ID=AF,Number=A,Type=Float,Description="Estimated frequency of the alternative allele: '
    'mean of the haplotype dosages">',
    '##INFO=<ID=AVG_CS,Number=1,Type=Float,Description="Average call score: mean over the haplotypes of the '
    'probability of their likelier allele">',
    '##INFO=<ID=R2,Number=1,Type=Float,Description="Squared correlation to be expected between imputed and '
    'true dosages, if any of the samples carries the minor allele; 0 where the dosages do not vary">',
    '##INFO=<ID=TYPED,Number=0,Type=Flag,Description="The site was typed in the target">',
    '##INFO=<ID=IMPUTED,Number=0,Type=Flag,Description="The site was not typed in the target">',
)

FORMAT_LINES = {
    "GT": '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
    "DS": '##FORMAT=<ID=DS,Number=1,Type=Float,Description="Dosage: expected number of alternative alleles, '
    'in steps of {step}">',
    "HDS": '##FORMAT=<ID=HDS,Number=.,Type=Float,Description="Dosage of each haplotype: '
    'probability of its alternative allele, in steps of {step}">',
    "GP": '##FORMAT=<ID=GP,Number=G,Type=Float,Description="Probability of each genotype, '
    'in steps of {step}">',
}
"""The definitions of the FORMAT fields that can be written; {step} stands for a unit of the last decimal."""

_DEFINITION = re.compile(r"##(FILTER|INFO|FORMAT|contig)=<(?:[^\"]*,)?ID=([^,>]+)")
_CONTIG_LINE = re.compile(r'##contig=<ID=[^<>,"]+(?:,[A-Za-z_][\w.]*=(?:"(?:[^"\\]|\\.)*"|[^<>,"]*))*>')
_INFO_TYPE = re.compile(r"[<,]Type=(\w+)")
_EXPLICIT_NUMBER = re.compile(r",IDX=(\d{1,15})(?!\d)")
_ANY_NUMBER = re.compile(rb"IDX=0*(\d+)")
LARGEST_NUMBER = 1_000_000  # IDX of a header's line: htslib makes a table as long


class FileStart(NamedTuple):
    """Beginning of a file, unpacked.

    Whether it is a BCF, its header's lines, the bytes before the first record, and what was read beyond them.
    """

    is_bcf: bool
    header: bytes
    n_bytes: int
    rest: bytes


def read_start(stream: ByteStream) -> FileStart | None:
    """Read a VCF's or BCF's header from the beginning of the file; None if it is cut.

    Raises
    ------
    DamagedFile
        It is longer than any.
    """
    start = stream.read(START_BYTES)
    if start.startswith(BCF_MAGIC):
        size = header_length(start)
        _check_length(size)
        header = stream.read(size)
        whole = len(start) == START_BYTES and len(header) == size
        return FileStart(True, header, START_BYTES + size, b"") if whole else None
    lines, seen = bytearray(start), 0
    while piece := stream.read(PIECE_BYTES):
        lines += piece
        columns = lines.find(b"\n#CHROM", seen)
        stop = lines.find(b"\n", max(columns + 1, len(lines) - len(piece))) + 1 if columns >= 0 else 0
        if stop > 0:
            return FileStart(False, bytes(lines[:stop]), stop, bytes(lines[stop:]))
        seen = columns if columns >= 0 else max(0, len(lines) - len(b"#CHROM"))
        _check_length(len(lines))
    return None


def too_large_number(path: Path) -> str:
    """Return the first IDX beyond LARGEST_NUMBER in a file's header; "" if there is none, or no header."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        with gzip.open(path) if packed else path.open("rb") as stream:
            found = read_start(stream)
    except (DamagedFile, OSError, EOFError, zlib.error):  # whoever reads the file says what is wrong with it
        return ""
    numbers = () if found is None else _ANY_NUMBER.findall(found.header)
    return next((n.decode() for n in numbers if len(n) > 9 or int(n) > LARGEST_NUMBER), "")


def _check_length(n_bytes: int) -> None:
    if n_bytes > LONGEST_RECORD:
        raise DamagedFile(f"its header has more than {LONGEST_RECORD:,} bytes")


class HeaderNumbers(NamedTuple):
    """The numbers by which a BCF's records name contigs, and fields: those of FILTER, INFO and FORMAT."""

    contigs: dict[str, int]
    fields: dict[str, int]


@dataclass(frozen=True)
class OutputHeader:
    """The header and what it defines."""

    text: str  # all lines, each ending with a newline
    contigs: dict[str, int | None]  # name -> length where the header states one, in order
    info_types: dict[str, str]  # INFO key -> "Float", "Integer", "Flag" ..., in order
    numbers: HeaderNumbers


def make_header(
    samples: Sequence[str],
    contig_lines: Sequence[str],
    header_lines: Sequence[str],
    formats: Sequence[str],
    extra_info_lines: Sequence[str] = (),
    decimals: int = DEFAULT_DECIMALS,
) -> OutputHeader:
    """Compose the header of an output file.

    Parameters
    ----------
    samples : sequence of str
        Names in column order; any text without tabs and line breaks.
    contig_lines : sequence of str
        "##contig=<ID=...>" lines; their order numbers the contigs.
    header_lines : sequence of str
        Further lines ("##source=..."), put last.
    formats : sequence of str
        Keys of FORMAT_LINES.
    extra_info_lines : sequence of str
        Definitions of INFO fields beyond AF, MAF, AVG_CS, R2, TYPED and IMPUTED.
    decimals : int
        Of the numbers of samples.

    Returns
    -------
    OutputHeader
        The text and what it defines.

    Raises
    ------
    InputError
        A sample name is empty, repeated, or would break the columns of the file.
    ValueError
        A line is not a header line, or a contig or INFO field is defined twice.
    """
    _check_samples(samples)
    lines = [
        "##fileformat=VCFv4.2",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        # A number copied from the header of a BCF would contradict the order here.
        *map(without_number, contig_lines),
        *_INFO_LINES,
        *extra_info_lines,
        *(FORMAT_LINES[key].format(step=f"{10**-decimals:.{decimals}f}") for key in formats),
        *header_lines,
    ]
    contigs: dict[str, int | None] = {}
    info_types: dict[str, str] = {}
    for line in lines:
        if not line.startswith("##") or "\n" in line or "\r" in line:
            raise ValueError(f"not a line of a VCF header: {line!r}")
        defined = definition(line)
        if defined is None:
            continue
        kind, name = defined
        if kind == "contig":
            if name in contigs:
                raise ValueError(f"contig {name} is defined twice")
            contigs[name] = contig_length(line)
            continue
        if kind == "INFO":
            if name in info_types:
                raise ValueError(f"INFO/{name} is defined twice")
            info_types[name] = info_type(line)
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]
    text = "\n".join([*lines, "\t".join(columns)]) + "\n"
    return OutputHeader(text, contigs, info_types, header_numbers(lines))


def header_numbers(lines: Iterable[str]) -> HeaderNumbers:
    """The numbers that a header gives: those it states (IDX), else in the order of its lines."""
    contigs: dict[str, int] = {}
    fields = {"PASS": 0}
    for line in lines:
        if (defined := definition(line)) is None:
            continue
        kind, name = defined
        of_kind = contigs if kind == "contig" else fields
        explicit = _EXPLICIT_NUMBER.search(line)
        of_kind.setdefault(name, int(explicit[1]) if explicit else len(of_kind))
    return HeaderNumbers(contigs, fields)


def definition(line: str) -> tuple[str, str] | None:
    """What a header line defines: ("INFO", "AF"), or FILTER, FORMAT, contig; None for other lines."""
    match = _DEFINITION.match(line)
    return None if match is None else (match[1], match[2])


def without_number(line: str) -> str:
    """A line without the number that the headers of other programs' BCF state (IDX)."""
    return _EXPLICIT_NUMBER.sub("", line, count=1) if definition(line) else line


def is_contig_line(line: str, chrom: str) -> bool:
    """Whether a header line defines this chromosome such that all programs can read it."""
    return definition(line) == ("contig", chrom) and _CONTIG_LINE.fullmatch(line) is not None


def info_type(line: str) -> str:
    """The type that a "##INFO=<...>" line states; "String" if it states none."""
    stated = _INFO_TYPE.search(line)
    return stated[1] if stated else "String"


def _check_samples(samples: Sequence[str]) -> None:
    if not samples:
        raise ValueError("there are no samples to write")
    for name in samples:
        if not name.strip() or any(character in name for character in "\t\n\r\0"):
            raise InputError(
                "content",
                f"a sample is named {name!r}: a name must not be blank or contain tabs or line breaks; "
                "rename the sample",
            )
    if (twice := repeated(samples)) is not None:
        raise InputError("content", f"two samples are named {twice!r}; rename one of them")
