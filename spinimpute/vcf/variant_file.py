"""Open a VCF, VCF.gz or BCF, and read its header and records.

This is the only module that uses cyvcf2. cyvcf2 (with htslib) opens truncated files without complaint, and
its error messages are hard to understand. This module turns every defect of a file into an `InputError` that
names the file, its role ("panel", "target") and the record.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import cyvcf2
import numpy as np

from spinimpute.genotypes.builds import contig_length
from spinimpute.genotypes.sites import label_parts
from spinimpute.genotypes.structural import Variants, describe_variant
from spinimpute.runtime.errors import Code, InputError, repeated
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.unpacking import GZIP_MAGIC, MAX_RECORD, open_unpacked
from spinimpute.vcf.bcf_format import BCF_MAGIC, FLOAT_END, RECORD_LENGTHS, START_BYTES, header_length, is_bcf
from spinimpute.vcf.bgzf import EOF_BLOCK, DamagedFile, starts_as_bgzf
from spinimpute.vcf.header import FileStart, read_start
from spinimpute.vcf.index_reader import check_index

NO_SAMPLES = "the file has sites without samples. Give a file with genotypes"

_VCF_MAGIC = b"##fileformat=VCF"
_BGEN_MAGIC = b"bgen"  # at byte 16
_FIXED_COLUMNS = 9  # CHROM to FORMAT
_SMALL_FILE_BYTES = 2**23  # compressed files up to this size are searched for huge records
_MIN_BLOCK_BYTES = 655  # mean size of a BGZF block (64 KiB) that is compressed to a hundredth
_READ_BYTES = 2**22
_IDX = re.compile(rb"IDX=0*(\d+)")
_MAX_IDX = 1_000_000  # htslib allocates a table as long as the largest IDX of the header
_FORMAT_LINE_TYPE = [2]  # htslib's code for ##FORMAT lines
_INTEGER_MISSING, _INTEGER_END = -(2**31), -(2**31) + 1  # htslib's codes
_UNREADABLE = (OSError, EOFError, zlib.error)

_EXPORT = "bcf vcf-dosage=DS-force"  # without "-force", PLINK omits dosages that are whole numbers
# first bytes of other files that users mistake for a VCF or BCF -> what the file is, and what to do
_OTHER_FORMATS = {
    b"BZh": "packed with bzip2. Unpack it (bunzip2)",
    b"\xfd7zXZ": "packed with xz. Unpack it (unxz)",
    b"\x28\xb5\x2f\xfd": "packed with Zstandard. Unpack it (unzstd)",
    b"PK\x03\x04": "a zip archive. Unpack it (unzip)",
    b"\x6c\x1b": f"a file of PLINK. Export it (plink2 --pfile or --bfile PREFIX --export {_EXPORT})",
    b"\xff\xfe": "text in UTF-16. Convert it with: iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "text in UTF-16. Convert it with: iconv -f utf-16 -t utf-8",
}
_NOT_UTF8 = "is not valid UTF-8. Is the file damaged?"
_TRUNCATED = "the compressed file is truncated. Get it again"

Record = Any  # a cyvcf2.Variant; cyvcf2 has no type annotations


class FormatNumbers(NamedTuple):
    """The values of one numeric FORMAT field of a record.

    `values` has shape (n_samples, width) and type int32 or float32. Missing values are NaN. The rows of
    samples with fewer values than `width` are filled up with NaN. `n_values`, int64 (n_samples,), is the
    number of values of each sample (1 for a missing field); None for integers if no value is NaN.
    """

    values: np.ndarray
    n_values: np.ndarray | None


class VariantFile:
    """An open VCF, VCF.gz or BCF; a context manager that closes it.

    `role` is what the user calls the file ("panel", "target"); every message starts with it. `samples` are
    all samples in the order of the file, `header` is the text of the header, and `n_read` is the number of
    records read. Raises InputError if the file is missing, truncated or not a VCF, or its header unreadable.
    """

    def __init__(self, path: str | Path, role: str) -> None:
        self.path, self.role = Path(path), role
        self._name = f"{role} {self.path}"
        self.n_read = 0
        self._contig_lengths: dict[str, int | None] = {}
        start = check_variant_file(self.path, role)
        self._is_text = start is not None and not start.is_bcf
        try:
            str(self.path).encode()
        except UnicodeEncodeError as error:  # cyvcf2 encodes the name as UTF-8
            raise self.error(
                "the name of the file, or of a folder, is not valid UTF-8. Rename it", "argument"
            ) from error
        if self._is_text:  # htslib reads the index of a VCF as soon as it opens the file
            check_index(self.path, self._name)
        opened("read", self._name)
        try:
            self._vcf = cyvcf2.VCF(str(self.path))
            self.samples: list[str] = list(self._vcf.samples)
            self.header: str = self._vcf.raw_header
        except UnicodeDecodeError as error:
            closed("read", self._name)
            raise self.error(f"the header {_NOT_UTF8}", "damaged") from error
        except Exception as error:  # OSError or a bare Exception, depending on the defect
            closed("read", self._name)
            if start is None:
                raise self.error(
                    "the content of this pipe is not VCF or BCF, and other formats cannot be read from a "
                    "pipe. Copy it to a file"
                ) from error
            if _is_truncated_gzip(self.path):
                raise self.error(_TRUNCATED, "damaged") from error
            if problem := _header_problem(start.header):
                raise self.error(problem) from error
            raise self.error(
                f"the header cannot be read ({error}). Is the file damaged?", "damaged"
            ) from error
        if start is not None and not start.is_bcf and (problem := _wrong_columns(start)):
            self.close()
            raise self.error(problem)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes in the header or the index. Raises InputError for invalid UTF-8."""
        try:
            return list(self._vcf.seqnames)
        except UnicodeDecodeError as error:
            raise self.error(
                f"the name of a chromosome in the header or the index {_NOT_UTF8}", "damaged"
            ) from error

    @property
    def n_records(self) -> int:
        """Number of records according to the index. Raises InputError without a readable index."""
        check_index(self.path, self._name)
        try:
            return int(self._vcf.num_records)
        except Exception as error:
            raise self.error(
                f"its index cannot be read ({error}). Write it again: bcftools index -f {self.path}",
                "damaged",
            ) from error

    def contig_line(self, chrom: str) -> str:
        """Return the "##contig=<...>" line of a chromosome. Without one, make a line with only the name."""
        for line in self.header.splitlines():
            if line.startswith((f"##contig=<ID={chrom},", f"##contig=<ID={chrom}>")):
                return line
        return f"##contig=<ID={chrom}>"

    def declares(self, format_key: str) -> bool:
        """Return whether the header defines a FORMAT field."""
        try:
            self._vcf.get_header_type(format_key, _FORMAT_LINE_TYPE)
        except KeyError:
            return False
        return True

    def choose_samples(self, names: Sequence[str]) -> None:
        """Read only the genotypes of these samples, in file order. Call this before `records`."""
        # cyvcf2 encodes text in the encoding of the locale, in which a name may have no bytes
        self._vcf.set_samples(",".join(names).encode())

    def records(self, region: str | None = None) -> Iterator[Record]:
        """Iterate over the records in file order.

        A region ("20:1000-2000" or "20") is looked up in the index. Raises InputError for a record that is
        truncated, malformed or empty.
        """
        if region is not None:
            check_index(self.path, self._name)
        source = iter(self._vcf) if region is None else self._vcf(region)
        previous = "the header"
        while True:
            try:
                record = next(source)
                chrom, position = record.CHROM, record.POS
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise self.error(
                    f"the chromosome of record {self.n_read + 1}, after {previous}, {_NOT_UTF8}", "damaged"
                ) from error
            except Exception as error:  # cyvcf2 raises a bare Exception for a truncated record
                raise self._malformed_error(region, previous) from error
            if not chrom:
                raise self._malformed_error(region, previous)
            if chrom.startswith("#"):
                raise self.error(
                    f"record {self.n_read + 1}, after {previous}, is a header line: this is several files, "
                    "one after the other. Join chunks with 'spinimpute ligate', and other files with "
                    "'bcftools concat'",
                    "damaged",
                )
            self.n_read += 1
            previous = f"{chrom}:{position}"
            yield record

    def _malformed_error(self, region: str | None, previous: str) -> InputError:
        """Return the error for the record after `n_read` records, the last of which is at `previous`."""
        line = _line_of_record(self.path, self.n_read + 1) if region is None and self._is_text else ""
        return self.error(
            f"the file is truncated or malformed at record {self.n_read + 1}, after {previous}{line}. "
            "Correct the record, or get the file again. bcftools view may show what is wrong",
            "damaged",
        )

    def alleles(self, record: Record) -> tuple[str, list[str]]:
        """Return REF and the ALT alleles of a record. Raises InputError for invalid UTF-8."""
        try:
            return record.REF, record.ALT
        except UnicodeDecodeError as error:
            raise self.error(f"the record at {record.CHROM}:{record.POS} {_NOT_UTF8}", "damaged") from error

    def structural(self, record: Record, ref: str, alts: list[str]) -> Variants | None:
        """Return the structural variant of each ALT allele; None if no ALT is symbolic, except labels.

        Raises InputError for invalid UTF-8.
        """
        if all(alt.isalpha() or label_parts(alt) is not None for alt in alts):
            return None
        if record.CHROM not in self._contig_lengths:
            self._contig_lengths[record.CHROM] = contig_length(self.contig_line(record.CHROM))
        try:
            return describe_variant(
                record.POS, ref, alts, record.INFO.get, self._contig_lengths[record.CHROM]
            )
        except UnicodeDecodeError as error:
            raise self.error(f"the record at {record.CHROM}:{record.POS} {_NOT_UTF8}", "damaged") from error

    def formats(self, record: Record) -> list[str]:
        """Return the names of a record's FORMAT fields. Raises InputError for invalid UTF-8."""
        try:
            return list(record.FORMAT)
        except UnicodeDecodeError as error:
            raise self.error(f"the record at {record.CHROM}:{record.POS} {_NOT_UTF8}", "damaged") from error

    def genotypes(self, record: Record) -> np.ndarray:
        """Return the calls of a record, int16 (n_samples, ploidy + 1).

        Alleles are -1 if missing, and -2 if the sample has a lower ploidy. The last column is 1 for phased
        calls. Raises InputError if the record has no genotypes.
        """
        try:
            genotypes: np.ndarray = record.genotype.array()
        except MemoryError:  # not a defect of the file
            raise
        except Exception as error:
            if "GT" in self.formats(record):  # GT is there: htslib ran out of memory
                raise MemoryError from error
            raise self.error(
                f"no genotypes (GT) at {record.CHROM}:{record.POS}. Every record must have them"
            ) from error
        return genotypes

    def numbers(self, record: Record, key: str) -> FormatNumbers:
        """Return the values of a numeric FORMAT field that the record has.

        If some integers are missing, all are converted to floats. Raises InputError if the header does not
        define the field as numbers.
        """
        try:
            raw: np.ndarray | None = record.format(key)
        except Exception:  # cyvcf2 raises various types if the definition is text, or wrong
            raw = None
        if raw is None or raw.dtype.kind not in "if":
            raise self.error(
                f"the values of {key} at {record.CHROM}:{record.POS} are not numbers. The header must define "
                f"them as such: ##FORMAT=<ID={key},Number=...,Type=Integer or Float,..."
            )
        if raw.dtype.kind == "f":
            absent = raw.view(np.uint32) == FLOAT_END
            return FormatNumbers(raw, raw.shape[1] - absent.sum(axis=1))
        if raw.min() > _INTEGER_END:
            return FormatNumbers(raw, None)
        absent = raw == _INTEGER_END
        values = np.where(absent | (raw == _INTEGER_MISSING), np.nan, raw).astype(np.float32)
        return FormatNumbers(values, raw.shape[1] - absent.sum(axis=1))

    def error(self, what: str, code: Code = "content", kind: type[InputError] = InputError) -> InputError:
        """Return the error for a defect of the file."""
        return kind(code, f"{self._name}: {what}")

    def close(self) -> None:
        """Close the file."""
        self._vcf.close()
        closed("read", self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_variant_file(path: Path, role: str) -> FileStart | None:
    """Check that a file starts and ends like a VCF, VCF.gz or BCF. Return its start, or None for a pipe.

    If the header cannot be read, `header` of the result is empty. Raises InputError if the path is missing or
    a folder, if the file is empty, truncated or in another format, or if a small file has a huge record.
    """

    def error(code: Code, what: str) -> InputError:
        return InputError(code, f"{role} {path}: {what}")

    if not path.exists():
        raise error("not-found", "there is no such file")
    if path.is_dir():
        raise error("not-found", "this is a folder. Give a VCF, VCF.gz or BCF file")
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = file.read(20)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(EOF_BLOCK), 0))
            tail = file.read()
    except OSError as failure:
        raise error("read", f"cannot be read: {failure.strerror}") from failure
    if not head:
        raise error("damaged", "the file is empty")
    content, is_gzip = head, head.startswith(GZIP_MAGIC)
    if is_gzip:
        try:
            with gzip.open(path) as decompressed:
                content = decompressed.read(len(_VCF_MAGIC))
        except _UNREADABLE as failure:
            what = f"the compressed file is damaged ({failure}). Get it again"
            raise error("damaged", _TRUNCATED if isinstance(failure, EOFError) else what) from failure
    if not content.startswith((_VCF_MAGIC, BCF_MAGIC)):
        if other := next((what for start, what in _OTHER_FORMATS.items() if content.startswith(start)), None):
            raise error("content", f"this is {other}")
        if head[16:].startswith(_BGEN_MAGIC):
            raise error(
                "content", f"this is BGEN. Export it (plink2 --bgen FILE ref-first --export {_EXPORT})"
            )
        if content.startswith(b"\xef\xbb\xbf"):
            raise error("content", "it starts with a byte-order mark (BOM). Save it as UTF-8 without BOM")
        if is_gzip and _is_truncated_gzip(path):
            raise error("damaged", _TRUNCATED)
        kind = "a compressed file, but not of a VCF or BCF" if is_gzip else "no VCF or BCF file"
        raise error(
            "content",
            f"this is {kind}: it starts with {content[:16]!r}, but a VCF starts with '##fileformat=VCF'",
        )
    start = None
    with suppress(DamagedFile, *_UNREADABLE), open_unpacked(path) as stream:  # cyvcf2 reports it
        start = read_start(stream)
    start = start or FileStart(content.startswith(BCF_MAGIC), b"", 0, b"")
    for number in map(bytes.decode, _IDX.findall(start.header)):
        if len(number) > len(str(_MAX_IDX)) or int(number) > _MAX_IDX:
            what = f"the number of a header line, IDX={number}, is too large. Get the file again"
            raise error("damaged", what)
    # htslib would accept a last line that is truncated inside a genotype ("0|1" to "0")
    if head.startswith(_VCF_MAGIC) and not tail.endswith(b"\n"):
        raise error(
            "damaged",
            "the file is truncated: its last line has no newline. Get the file again; if it is complete, add "
            "a newline",
        )
    is_bgzf = starts_as_bgzf(head)
    if is_bgzf and tail != EOF_BLOCK:
        raise error(
            "damaged",
            "the file is truncated: the block that ends a BGZF file is missing. Copy the file again",
        )
    # htslib allocates the memory for a record of any length, even if the length is damaged
    if (
        is_gzip
        and size <= _SMALL_FILE_BYTES
        and (length := _oversized_record(path, is_bgzf, path.stat().st_mtime_ns))
    ):
        raise error(
            "damaged",
            f"its {size:,} bytes unpack to a line or record of at least {length:,} bytes, more than the "
            f"{MAX_RECORD:,} that are allowed in so small a file",
        )
    return start


def starts_as_variant_file(path: Path) -> bool:
    """Return whether a file, plain or gzip, starts like a VCF or BCF. False if it cannot be read."""
    with suppress(*_UNREADABLE), open_unpacked(path) as file:
        return file.read(len(_VCF_MAGIC)).startswith((_VCF_MAGIC, BCF_MAGIC))
    return False


def _header_problem(header: bytes) -> str:
    """Describe a common mistake in the #CHROM line of a header, for a message; "" if there is none."""
    line = header.decode(errors="replace").rstrip("\r\n\0").rpartition("\n")[2]
    columns = line.split("\t")
    if len(columns) < _FIXED_COLUMNS - 1 and len(line.split()) > len(columns):
        return "the line #CHROM has spaces between its columns. Use tabs there, and in the records"
    if duplicate := repeated(columns[_FIXED_COLUMNS:]):
        return f"two samples are named {duplicate}. Rename one of them"
    return NO_SAMPLES if len(columns) == _FIXED_COLUMNS else ""


def _is_truncated_gzip(path: Path) -> bool:
    """Return whether a gzip file ends before its end marker."""
    try:
        with suppress(OSError, zlib.error), gzip.open(path) as file:
            while file.read(_READ_BYTES):
                pass
    except EOFError:
        return True
    return False


def _wrong_columns(start: FileStart) -> str:
    """Describe a record with more columns than the header, or with spaces, for a message; "" if none has.

    htslib silently ignores additional columns. It suffices to check the records that were read with the
    header, because a program writes all records with equally many columns.
    """
    lines = start.header.rstrip(b"\n").split(b"\n")
    if not lines[-1].startswith(b"#CHROM\t"):
        return ""
    n_columns = lines[-1].count(b"\t") + 1
    for number, line in enumerate(start.rest.split(b"\n"), start=len(lines) + 1):
        n_here = line.rstrip(b"\r\t").count(b"\t") + 1  # tabs at the end are harmless
        if n_here > n_columns:
            return (
                f"line {number} has {n_here} columns, the header {n_columns}. Name the missing samples, or "
                "correct the record"
            )
        if n_here < n_columns == len(line.split()):
            return f"line {number} has spaces between its columns. Use tabs"
    return ""


def _line_of_record(path: Path, record: int) -> str:
    """Return the line number and the start of a record (counted from 1), for a message; "" if not found."""
    with suppress(*_UNREADABLE), open_unpacked(path) as file:
        lines = dropwhile(lambda numbered: not numbered[1].startswith(b"#CHROM"), enumerate(file, start=1))
        for number, line in islice(lines, record, record + 1):
            return f" (line {number}: {line[:60].decode(errors='replace')!r})"
    return ""


@lru_cache(maxsize=16)  # a file is opened several times in a run
def _oversized_record(path: Path, is_bgzf: bool, _mtime_ns: int) -> int:
    """Search a compressed file for a record of more than the allowed length.

    Return the length read so far when the limit is exceeded, or 0 if no record exceeds it.
    """
    with suppress(*_UNREADABLE, struct.error):
        compressed = path.read_bytes()
        if is_bgzf and len(compressed) > _MIN_BLOCK_BYTES * compressed.count(EOF_BLOCK[:4]):
            return 0
        length = 0
        with gzip.open(path) as file:
            if is_bcf(path):
                length = header_length(file.read(START_BYTES))
                while length <= MAX_RECORD:
                    file.seek(length, os.SEEK_CUR)
                    lengths = file.read(RECORD_LENGTHS.size)
                    if not lengths:
                        return 0
                    length = sum(RECORD_LENGTHS.unpack(lengths))
                return length
            while data := file.read(_READ_BYTES):
                last = data.rfind(b"\n")
                length = length + len(data) if last < 0 else len(data) - last - 1  # of the unfinished line
                if length > MAX_RECORD:
                    return length
    return 0
