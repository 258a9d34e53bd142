"""A VCF, VCF.gz or BCF that is opened to be read: whether it is whole, its header, its records.

The library that reads, cyvcf2, opens truncated files without complaint and reports defects in its own terms.
It is used here alone, and every defect becomes an `InputError` that names the file's role and the place.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import cyvcf2
import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.unpacking import GZIP_MAGIC, LONGEST_RECORD
from spinimpute.vcf.bcf_format import BCF_MAGIC, FLOAT_END, RECORD_LENGTHS, START_BYTES, header_length, is_bcf
from spinimpute.vcf.bgzf import EOF_BLOCK, DamagedFile
from spinimpute.vcf.header import too_large_number
from spinimpute.vcf.index_reader import check_index
from spinimpute.vcf.text_faults import fault_of_columns, fault_of_record, surplus_columns

_VCF_MAGIC = b"##fileformat=VCF"
_BGEN_MAGIC = b"bgen"  # behind two numbers of the file and two of the header
_SMALL = 2**23  # bytes of a file
_LEAST_PACKED = 655  # bytes that blocks of 65,536 take on average, packed to no less than a hundredth
_BLOCK_START = EOF_BLOCK[:4]
_PIECE_BYTES = 2**22
_FORMAT_LINE = [2]  # htslib's number of ##FORMAT
_INTEGER_MISSING, _INTEGER_END = -(2**31), -(2**31) + 1  # as htslib gives them

_EXPORT = "bcf vcf-dosage=DS-force"  # DS alone leaves out dosages that are whole numbers
# how files start that people have in the place of a VCF or BCF, what such a file is, and what to do
_OTHERS = {
    b"BZh": "packed with bzip2; unpack it (bunzip2)",
    b"\xfd7zXZ": "packed with xz; unpack it (unxz)",
    b"\x28\xb5\x2f\xfd": "packed with Zstandard; unpack it (unzstd)",
    b"PK\x03\x04": "a zip archive; unpack it (unzip)",
    b"\x6c\x1b": f"a file of PLINK; export it (plink2 --pfile or --bfile PREFIX --export {_EXPORT})",
    b"\xff\xfe": "text in UTF-16; convert it with: iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "text in UTF-16; convert it with: iconv -f utf-16 -t utf-8",
}
_NO_TEXT = "holds bytes that are no text (UTF-8); is the file damaged?"

Record = Any  # a cyvcf2.Variant, which has no types


class FormatNumbers(NamedTuple):
    """The numbers of one FORMAT field of a record.

    Attributes
    ----------
    values : int32 or float32 (n_samples, n_values)
        NaN where one is missing, and behind a sample's last one.
    n_values : int64 (n_samples,) or None
        How many values each sample has; a missing field is one missing value. None where no sample lacks any.
    """

    values: np.ndarray
    n_values: np.ndarray | None


class VariantFile:
    """An open VCF, VCF.gz or BCF; a context manager that closes it.

    Parameters
    ----------
    path : str or Path
        Any of the three forms.
    role : str
        What the file is to the user ("panel", "target"); every message starts with it.

    Attributes
    ----------
    samples : list of str
        All samples, in the order of the file.
    header : str
        The lines of the header.
    n_read : int
        Records that have been read so far.

    Raises
    ------
    InputError
        There is no such file, it is truncated, it is no VCF or BCF, or its header cannot be read.
    """

    def __init__(self, path: str | Path, role: str) -> None:
        self.path, self.role = Path(path), role
        self.n_read = 0
        check_variant_file(self.path, role)
        self._check_name()
        if not _is_bcf(self.path):  # htslib reads the index of a VCF as soon as it opens it
            self._check_index()
        opened("read", self._named)
        try:
            self._vcf = cyvcf2.VCF(str(self.path))
            self.samples: list[str] = list(self._vcf.samples)
            self.header: str = self._vcf.raw_header
        except UnicodeDecodeError as error:
            closed("read", self._named)
            raise self.error(f"the header {_NO_TEXT}") from error
        except Exception as error:  # OSError or a bare Exception, depending on the defect
            closed("read", self._named)
            if not self.path.is_file():
                raise self.error(
                    "what comes through this pipe is no VCF or BCF, and nothing else is read from one; copy "
                    "it to a file"
                ) from error
            if wrong := fault_of_columns(self.path):
                raise self.error(wrong) from error
            raise self.error(f"the header cannot be read ({error}); is the file damaged?") from error
        if self._is_text() and (wrong := surplus_columns(self.path)):
            self.close()
            raise self.error(wrong)

    @property
    def contigs(self) -> list[str]:
        """Names of the chromosomes that the header, or an index, lists.

        Raises
        ------
        InputError
            One of them is no text.
        """
        try:
            return list(self._vcf.seqnames)
        except UnicodeDecodeError as error:
            raise self.error(f"the header, or an index, names a chromosome that {_NO_TEXT}") from error

    def _check_name(self) -> None:
        try:
            str(self.path).encode()
        except UnicodeEncodeError as error:  # cyvcf2 encodes it so
            raise self.error(
                "its name, or a folder's, holds bytes that are no text (UTF-8): it cannot be read; rename it"
            ) from error

    def _check_index(self) -> None:
        if not self.path.is_file():
            return
        try:
            check_index(self.path)
        except DamagedFile as error:
            raise self.error(
                f"{error}. Remove it, or write it again: bcftools index -f {self.path}"
            ) from error

    @property
    def n_records(self) -> int:
        """Records of the whole file, as its index counts them.

        Raises
        ------
        InputError
            The file has no index that can be read.
        """
        self._check_index()
        try:
            return int(self._vcf.num_records)
        except Exception as error:
            raise self.error(
                f"its index cannot be read ({error}); write it again: bcftools index -f"
            ) from error

    def contig_line(self, chrom: str) -> str:
        """The '##contig=<...>' line of a chromosome; one with its name alone if the header has none."""
        for line in self.header.splitlines():
            if line.startswith((f"##contig=<ID={chrom},", f"##contig=<ID={chrom}>")):
                return line
        return f"##contig=<ID={chrom}>"

    def declares(self, format_key: str) -> bool:
        """Whether the header defines a FORMAT field."""
        try:
            self._vcf.get_header_type(format_key, _FORMAT_LINE)
        except KeyError:
            return False
        return True

    def choose_samples(self, names: Sequence[str]) -> None:
        """Read the genotypes of these samples alone, in the order of the file; call it before `records`."""
        self._vcf.set_samples(list(names))

    def records(self, region: str | None = None) -> Iterator[Record]:
        """The records in file order.

        Parameters
        ----------
        region : str or None
            "20:1000-2000" or "20": only the records to which the index leads; None for all.

        Yields
        ------
        Record
            One after the other.

        Raises
        ------
        InputError
            The file is cut off or damaged within a record, or has an empty line.
        """
        if region is not None:
            self._check_index()
        source = iter(self._vcf) if region is None else self._vcf(region)
        place = "the header"
        while True:
            try:
                record = next(source)
                chrom, position = record.CHROM, record.POS
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise self.error(
                    f"the chromosome of record {self.n_read + 1}, after {place}, {_NO_TEXT}"
                ) from error
            except Exception as error:  # a record cut in two is a bare Exception in cyvcf2
                if fault := self._fault(region):
                    raise self.error(fault) from error
                raise self.error(
                    f"the file is truncated or malformed at record {self.n_read + 1}, after {place}. "
                    "Get the file again, or check it with bcftools view"
                ) from error
            if not chrom:
                raise self.error(
                    self._fault(region)
                    or f"record {self.n_read + 1}, after {place}, is empty or lacks its chromosome; mend it"
                )
            self.n_read += 1
            place = f"{chrom}:{position}"
            yield record

    def _fault(self, region: str | None) -> str:
        """What is wrong with the text of the record behind those that have been read; "" if unknown."""
        return fault_of_record(self.path, self.n_read + 1) if region is None and self._is_text() else ""

    def _is_text(self) -> bool:
        return self.path.is_file() and not _is_bcf(self.path)

    def alleles(self, record: Record) -> tuple[str, list[str]]:
        """REF and the ALT alleles of a record.

        Parameters
        ----------
        record : Record
            Of this file.

        Returns
        -------
        ref : str
            REF.
        alts : list of str
            The ALT alleles.

        Raises
        ------
        InputError
            They are no text.
        """
        try:
            return record.REF, record.ALT
        except UnicodeDecodeError as error:
            raise self.error(f"the record at {record.CHROM}:{record.POS} {_NO_TEXT}") from error

    def formats(self, record: Record) -> list[str]:
        """Names of a record's FORMAT fields; raises InputError if they are no text."""
        try:
            return list(record.FORMAT)
        except UnicodeDecodeError as error:
            raise self.error(f"the record at {record.CHROM}:{record.POS} {_NO_TEXT}") from error

    def genotypes(self, record: Record) -> np.ndarray:
        """The calls of a record.

        Parameters
        ----------
        record : Record
            Of this file.

        Returns
        -------
        int16 (n_samples, ploidy + 1)
            Alleles, -1 missing and -2 absent, and in the last column whether they are phased.

        Raises
        ------
        InputError
            The record has no genotypes.
        """
        try:
            genotypes: np.ndarray = record.genotype.array()
        except MemoryError:  # the file is not to blame
            raise
        except Exception as error:
            if "GT" in self.formats(record):  # htslib had no memory to unpack them
                raise MemoryError from error
            raise self.error(
                f"no genotypes (GT) at {record.CHROM}:{record.POS}; every record must have them"
            ) from error
        return genotypes

    def numbers(self, record: Record, key: str) -> FormatNumbers:
        """The numbers of a FORMAT field.

        Parameters
        ----------
        record : Record
            Of this file, which has the field.
        key : str
            Its name.

        Returns
        -------
        FormatNumbers
            Integers as floats where some are missing.

        Raises
        ------
        InputError
            The header defines the field as something else, or not at all.
        """
        try:
            found: np.ndarray | None = record.format(key)
        except Exception:  # cyvcf2 raises various types if the header defines the field as text or wrongly
            found = None
        if found is None or found.dtype.kind not in "if":
            raise self.error(
                f"the values of {key} at {record.CHROM}:{record.POS} are no numbers; the header is to define "
                f"them as such: ##FORMAT=<ID={key},Number=...,Type=Integer or Float,..."
            )
        if found.dtype.kind == "f":
            absent = found.view(np.uint32) == FLOAT_END
            return FormatNumbers(found, found.shape[1] - absent.sum(axis=1))
        if found.min() > _INTEGER_END:
            return FormatNumbers(found, None)
        absent = found == _INTEGER_END
        values = np.where(absent | (found == _INTEGER_MISSING), np.nan, found).astype(np.float32)
        return FormatNumbers(values, found.shape[1] - absent.sum(axis=1))

    def error(self, what: str, kind: type[InputError] = InputError) -> InputError:
        """What to raise for a defect of the file."""
        return kind("content", f"{self._named}: {what}")

    def close(self) -> None:
        """Nothing more will be read."""
        self._vcf.close()
        closed("read", self._named)

    @property
    def _named(self) -> str:
        return f"{self.role} {self.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def check_variant_file(path: Path, role: str) -> None:
    """Check that a file starts and ends like a VCF, VCF.gz or BCF.

    A pipe is not checked: reading consumes it.

    Parameters
    ----------
    path : Path
        The file.
    role : str
        What it is ("panel", "target"), for the message.

    Raises
    ------
    InputError
        It is missing, a folder, empty, truncated, of another kind, or small with a record that is huge.
    """

    def error(what: str) -> InputError:
        return InputError("content", f"{role} {path}: {what}")

    if not path.exists():
        raise error("there is no such file")
    if path.is_dir():
        raise error("this is a folder; give a VCF, VCF.gz or BCF file")
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(20)
            size = file.seek(0, 2)
            file.seek(max(size - len(EOF_BLOCK), 0))
            tail = file.read()
    except OSError as failure:
        raise error(f"cannot be read: {failure.strerror}") from failure
    if not head:
        raise error("the file is empty")
    content = head
    if head.startswith(GZIP_MAGIC):
        try:
            with gzip.open(path) as decompressed:
                content = decompressed.read(len(_VCF_MAGIC))
        except (OSError, EOFError, zlib.error) as failure:
            raise error(f"the compressed file is damaged ({failure}); get it again") from failure
    if not content.startswith((_VCF_MAGIC, BCF_MAGIC)):
        if other := next((what for start, what in _OTHERS.items() if content.startswith(start)), None):
            raise error(f"this is {other}")
        if head[16:].startswith(_BGEN_MAGIC):
            raise error(f"this is BGEN; export it (plink2 --bgen FILE ref-first --export {_EXPORT})")
        kind = "a compressed file, but not of a VCF" if content is not head else "no VCF or BCF file"
        raise error(f"this is {kind}: it starts with {content[:16]!r}, a VCF with '##fileformat=VCF'")
    if number := too_large_number(path):
        raise error(f"its header numbers a line {number} (IDX), which is too large; get the file again")
    # htslib takes a last line that is cut inside a genotype ("0|1" to "0") for a whole one
    if head.startswith(_VCF_MAGIC) and not tail.endswith(b"\n"):
        raise error(
            "the file is truncated: its last line has no end. Get it again; if it is whole, add a newline"
        )
    if _is_bgzf(head) and tail != EOF_BLOCK:
        raise error("the file is truncated: the block that ends a BGZF file is missing; copy the file again")
    # a reader takes all the memory that a record needs, however long it says that it is
    if size <= _SMALL and (length := _long_record(path, path.stat().st_mtime_ns)):
        raise error(
            f"its {size:,} bytes unpack to a line or record of {length:,} bytes and more: more than the "
            f"{LONGEST_RECORD:,} that there may be in so small a file"
        )


def starts_as_variant_file(path: Path) -> bool:
    """Whether the content, unpacked if need be, starts as a VCF or BCF does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(len(_VCF_MAGIC))
        if content.startswith(GZIP_MAGIC):
            with gzip.open(path) as decompressed:
                content = decompressed.read(len(_VCF_MAGIC))
    except (OSError, EOFError, zlib.error):
        return False
    return content.startswith((_VCF_MAGIC, BCF_MAGIC))


@lru_cache(maxsize=16)  # a file is opened several times in a run
def _long_record(path: Path, _changed: int) -> int:
    """Bytes of a line or record of a compressed file that has more than LONGEST_RECORD, as far as it is read.

    0 where there is none, or the file cannot be read: who reads it says why.
    """
    try:
        with path.open("rb") as file:
            packed = file.read()
        if not packed.startswith(GZIP_MAGIC) or (
            _is_bgzf(packed) and len(packed) > _LEAST_PACKED * packed.count(_BLOCK_START)
        ):
            return 0
        with gzip.open(path) as unpacked:
            return _long_record_of_bcf(unpacked) if is_bcf(path) else _long_line(unpacked)
    except (OSError, EOFError, zlib.error, struct.error):
        return 0


def _long_line(file: gzip.GzipFile) -> int:
    length = 0  # of the line that has not ended yet
    while piece := file.read(_PIECE_BYTES):
        last = piece.rfind(b"\n")
        length = length + len(piece) if last < 0 else len(piece) - last - 1
        if length > LONGEST_RECORD:
            return length
    return 0


def _long_record_of_bcf(file: gzip.GzipFile) -> int:
    length = header_length(file.read(START_BYTES))
    while length <= LONGEST_RECORD:
        file.seek(length, os.SEEK_CUR)
        lengths = file.read(RECORD_LENGTHS.size)
        if not lengths:
            return 0
        length = sum(RECORD_LENGTHS.unpack(lengths))
    return length


def _is_bcf(path: Path) -> bool:
    try:
        return path.is_file() and is_bcf(path)
    except (OSError, EOFError, zlib.error):  # a VCF that is not compressed
        return False


def _is_bgzf(head: bytes) -> bool:
    """A gzip member with the extra field "BC"; plain gzip has no block that ends the file."""
    return head[:4] == GZIP_MAGIC + b"\x08\x04" and head[12:14] == b"BC"
