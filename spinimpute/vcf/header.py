"""Headers of VCF and BCF files: read the header of an input, and compose the header of an output.

A BCF record refers to contigs and to FILTER, INFO and FORMAT fields by index. The index of a header line is
its IDX entry, as in "##INFO=<ID=AF,...,IDX=3>", or else the number of names before it. Contigs are numbered
separately from fields.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.builds import contig_length
from spinimpute.genotypes.structural import alt_lines
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.runtime.unpacking import MAX_RECORD
from spinimpute.vcf.bcf_format import BCF_MAGIC, START_BYTES, ByteStream, header_length
from spinimpute.vcf.bgzf import DamagedFile

PIECE_BYTES = 4 * 2**20  # bytes of a text header to read per call; limits the memory use

DEFAULT_DECIMALS = 3
"""Default decimals of DS, HDS and GP. More decimals do not change the first four digits of pooled r2."""

_INFO_LINES = (  # MAF comes before AF: deflate then reuses its digits for AF, and files are 0.7 % smaller
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

_STRUCTURAL_LINES = (
    '##INFO=<ID=END,Number=1,Type=Integer,Description="Last position of the variant">',
    '##INFO=<ID=SVTYPE,Number=1,Type=String,Description="Type of structural variant">',
    '##INFO=<ID=SVLEN,Number=A,Type=Integer,Description="Difference in length between REF and ALT">',
)

PER_ALLELE_START = "##INFO=<ID=MAF,Number=A,"  # start of a line in files with multi-allelic records
_PER_ALLELE = ("MAF", "AVG_CS", "R2", "ER2", "SUMS", "ER2_SUMS")  # INFO with Number=1 if all are biallelic

FORMAT_LINES = {
    "GT": '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
    "DS": '##FORMAT=<ID=DS,Number=1,Type=Float,Description="Dosage: expected number of alternative alleles, '
    'in steps of {step}">',
    "HDS": '##FORMAT=<ID=HDS,Number=.,Type=Float,Description="Dosage of each haplotype: '
    'probability of its alternative allele, in steps of {step}">',
    "GP": '##FORMAT=<ID=GP,Number=G,Type=Float,Description="Probability of each genotype, '
    'in steps of {step}">',
    "ML": '##FORMAT=<ID=ML,Number=1,Type=Float,Description="Expected mean length of the alleles of a sample, '
    'in bases, if the alleles of the record are sequences of different lengths">',
}
"""Definitions of the FORMAT fields that can be written. {step} becomes one unit of the last decimal."""

_DEFINITION = re.compile(r"##(FILTER|INFO|FORMAT|contig)=<(?:[^\"]*,)?ID=([^,>]+)")
_CONTIG_LINE = re.compile(r'##contig=<ID=[^<>,"]+(?:,[A-Za-z_][\w.]*=(?:"(?:[^"\\]|\\.)*"|[^<>,"]*))*>')
_INFO_TYPE = re.compile(r"[<,]Type=(\w+)")
_IDX = re.compile(r",IDX=(\d{1,15})(?!\d)")


class FileStart(NamedTuple):
    """The start of a VCF or BCF, decompressed."""

    is_bcf: bool
    header: bytes
    n_bytes: int  # length up to the first record
    rest: bytes  # bytes after the header that have been read already


def read_start(stream: ByteStream, piece_bytes: int = PIECE_BYTES) -> FileStart | None:
    """Read the header of a decompressed VCF or BCF. Return None if the header is truncated.

    A text is read in pieces of `piece_bytes`. Raises DamagedFile if the header exceeds MAX_RECORD bytes.
    """
    start = stream.read(START_BYTES)
    if start.startswith(BCF_MAGIC):
        size = header_length(start)
        _check_length(size)
        header = stream.read(size)
        is_whole = len(start) == START_BYTES and len(header) == size
        return FileStart(True, header, START_BYTES + size, b"") if is_whole else None
    lines, seen = bytearray(start), 0
    while data := stream.read(piece_bytes):
        lines += data
        columns = lines.find(b"\n#CHROM", seen)
        stop = lines.find(b"\n", max(columns + 1, len(lines) - len(data))) + 1 if columns >= 0 else 0
        if stop > 0:
            return FileStart(False, bytes(lines[:stop]), stop, bytes(lines[stop:]))
        seen = columns if columns >= 0 else max(0, len(lines) - len(b"#CHROM"))
        _check_length(len(lines))
    return None


def _check_length(n_bytes: int) -> None:
    if n_bytes > MAX_RECORD:
        raise DamagedFile(f"its header has more than {MAX_RECORD:,} bytes")


class HeaderIndexes(NamedTuple):
    """The indexes by which BCF records refer to the names in a header."""

    contigs: dict[str, int]
    fields: dict[str, int]  # FILTER, INFO and FORMAT together; PASS is 0


@dataclass(frozen=True)
class OutputHeader:
    """The header of an output file. The dictionaries are in the order of the header lines."""

    text: str  # all lines with their newlines
    contigs: dict[str, int | None]  # name -> length, or None if the header does not have the length
    info_types: dict[str, str]  # INFO key -> "Float", "Integer", "Flag" ...
    indexes: HeaderIndexes


class OutputLayout(NamedTuple):
    """Samples, header lines and fields of an output file."""

    samples: Sequence[str]
    ploidy: np.ndarray  # 1 or 2 for each sample
    contig_lines: Sequence[str]  # "##contig=<ID=...>", one per contig; their order gives the BCF indexes
    header_lines: Sequence[str] = ()  # further lines, written after all others
    formats: Sequence[str] = ("GT", "DS")  # FORMAT fields: GT first, then the others in any order
    extra_info_lines: Sequence[str] = ()  # definitions of additional INFO fields
    decimals: int = DEFAULT_DECIMALS  # of DS, HDS and GP
    multiallelic: bool = False  # whether records may have several ALT alleles
    symbolic_alts: Sequence[str] = ()  # symbolic ALT alleles of the structural variants, such as <DEL>


def make_header(layout: OutputLayout) -> OutputHeader:
    """Compose the header of an output file.

    Raises InputError if a sample name is invalid or repeated, and ValueError if a header line is.
    """
    if not layout.samples:
        raise ValueError("there are no samples to write")
    for name in layout.samples:
        if not name.strip() or any(character in name for character in "\t\n\r\0"):
            raise InputError(
                "content",
                f"a sample is named {name!r}. A name must not be blank or contain tabs or line breaks. "
                "Rename the sample",
            )
    if (duplicate := repeated(layout.samples)) is not None:
        raise InputError("content", f"two samples are named {duplicate!r}. Rename one of them")
    step = f"{10**-layout.decimals:.{layout.decimals}f}"
    lines = [
        "##fileformat=VCFv4.2",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        *alt_lines(layout.symbolic_alts),
        # an IDX copied from a source BCF would contradict the order of the lines here
        *map(without_idx, layout.contig_lines),
        *_INFO_LINES,
        *(_STRUCTURAL_LINES if layout.symbolic_alts else ()),
        *layout.extra_info_lines,
        *(FORMAT_LINES[key].format(step=step) for key in layout.formats),
        *layout.header_lines,
    ]
    if layout.multiallelic:
        lines = [_per_allele(line) for line in lines]
    for line in lines:
        if not line.startswith("##") or "\n" in line or "\r" in line:
            raise ValueError(f"not a line of a VCF header: {line!r}")
    defined = [definition(line) or ("", "") for line in lines]
    if duplicate := repeated(f"{kind}/{name}" for kind, name in defined if kind in ("contig", "INFO")):
        raise ValueError(f"{duplicate} is defined twice")
    return header_of_lines(lines, layout.samples)


def _per_allele(line: str) -> str:
    """Return a header line with Number=A if it defines a field that has a value for each ALT allele."""
    kind, name = definition(line) or ("", "")
    is_per_allele = (kind, name) == ("FORMAT", "DS") or (kind == "INFO" and name in _PER_ALLELE)
    return line.replace("Number=1,", "Number=A,", 1) if is_per_allele else line


def header_of_lines(lines: Sequence[str], samples: Sequence[str]) -> OutputHeader:
    """Return the header with these lines and a line of column names for these samples."""
    defined = [(definition(line) or ("", ""), line) for line in lines]
    contigs = {name: contig_length(line) for (kind, name), line in defined if kind == "contig"}
    info_types = {name: info_type(line) for (kind, name), line in defined if kind == "INFO"}
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]
    text = "\n".join([*lines, "\t".join(columns)]) + "\n"
    return OutputHeader(text, contigs, info_types, header_indexes(lines))


def header_indexes(lines: Iterable[str]) -> HeaderIndexes:
    """Return the BCF index of every name: IDX if the line has one, else the number of earlier names."""
    contigs: dict[str, int] = {}
    fields = {"PASS": 0}
    for line in lines:
        if (defined := definition(line)) is None:
            continue
        kind, name = defined
        indexes = contigs if kind == "contig" else fields
        explicit = _IDX.search(line)
        indexes.setdefault(name, int(explicit[1]) if explicit else len(indexes))
    return HeaderIndexes(contigs, fields)


def definition(line: str) -> tuple[str, str] | None:
    """Return the kind and name that a header line defines, such as ("INFO", "AF"), or None."""
    match = _DEFINITION.match(line)
    return None if match is None else (match[1], match[2])


def without_idx(line: str) -> str:
    """Return a header line with its IDX entry removed."""
    return _IDX.sub("", line, count=1) if definition(line) else line


def is_contig_line(line: str, chrom: str) -> bool:
    """Return whether a line is a well-formed "##contig" definition of this chromosome."""
    return definition(line) == ("contig", chrom) and _CONTIG_LINE.fullmatch(line) is not None


def info_type(line: str) -> str:
    """Return the Type of a "##INFO=<...>" line, or "String" if the line has none."""
    match = _INFO_TYPE.search(line)
    return match[1] if match else "String"
