"""Reader of BAM and CRAM files, which checks their integrity, index and genome build.

The files are read with pysam (htslib). Only this module imports pysam, and only when a file is opened. Every
defect of a file raises an `InputError` that contains the file name.
"""

import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import md5
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from spinimpute.genotypes.builds import contig_length, infer_build
from spinimpute.genotypes.sites import chromosome_names, plain_chromosome
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, argument, why_no_file
from spinimpute.runtime.open_files import closed, opened
from spinimpute.runtime.output_files import temporary_folder
from spinimpute.runtime.unpacking import GZIP_MAGIC
from spinimpute.vcf.bgzf import DamagedFile
from spinimpute.vcf.index_reader import check_bam_index, placed_reads_end_at

_BAM_INDEXES, _CRAM_INDEXES = (".csi", ".bai"), (".crai",)  # in the order in which htslib looks for them
_CRAM_MAGIC = b"CRAM"
_MAX_LISTED_NAMES = 10  # names of chromosomes in messages
# If the file and the panel state different lengths of the chromosome, the bases of the reads are compared
# with the panel's alleles. Reads of another genome build have a panel allele at about half of the sites.
_MIN_AGREEMENT, _MIN_COMPARED_SITES = 0.9, 20
# Builds often agree at the start of a chromosome and differ later, so each of these intervals must agree,
# too. If 5 % of the bases are wrong, fewer than 80 % of 30 sites agree in less than 0.1 % of cases.
_COMPARED_INTERVALS, _MIN_INTERVAL_AGREEMENT = 10, 0.8
_MAX_COMPARED_SITES, _MAX_COMPARED_READS = 30, 5_000  # in each interval
_MAX_READS_WITHOUT_SITE = 200  # an interval with more reads than this must have a compared site
_DAMAGED = (OSError, ValueError, EOFError)  # exceptions that pysam raises for damaged files
_INVALID_UTF8 = "is not valid UTF-8. The file may be damaged."

Read = Any  # a pysam.AlignedSegment; pysam has no types for mypy


class _ComparedInterval(NamedTuple):
    """Comparison of reads with the panel's alleles between two positions."""

    start: int
    end: int
    n_agreeing: int  # number of compared sites at which the read has REF or ALT of the panel
    n_sites: int  # number of compared sites; each is compared with the first read that covers it
    n_reads: int

    @property
    def agrees(self) -> bool:
        """Whether the reads can be on the panel's build. One disagreeing site is always accepted."""
        if self.n_sites == 0:
            return self.n_reads <= _MAX_READS_WITHOUT_SITE
        return self.n_agreeing >= min(self.n_sites - 1, _MIN_INTERVAL_AGREEMENT * self.n_sites)


class AlignmentFile:
    """An open, indexed BAM or CRAM file of one sample, for reading the panel's chromosome.

    Use it as a context manager. `reference` is the genome with which a CRAM was written (FASTA with .fai). It
    is not needed if the CRAM contains its reference or all bases. `sample` is the sample name in the read
    groups (SM). Without one, it is the file name without suffix, with invalid UTF-8 as \\xNN. `contig` is the
    name of the chromosome in the file.

    Raises InputError if

    - the file, its index or the reference is missing, damaged or of another format,
    - the file has several samples,
    - the file lacks the chromosome, or
    - the chromosome's length differs from the panel's, and the reads do not have the panel's alleles.
    """

    def __init__(self, path: str | Path, panel: ReferencePanel, reference: str | Path | None = None) -> None:
        import pysam

        self.path = Path(path)
        if not self.path.is_file():
            raise self.error(why_no_file(self.path))
        with ExitStack() as stack:
            # silence htslib: this class raises its own errors and warnings
            stack.callback(pysam.set_verbosity, pysam.set_verbosity(0))
            opened("read", self._title)
            stack.callback(closed, "read", self._title)
            is_cram = self._is_cram()
            self._index, end = self._find_index(is_cram)
            self._reference = Path(reference) if is_cram and reference is not None else None
            lengths = None if self._reference is None else _read_lengths(self._reference)
            self._file = self._open(self._reference)
            stack.callback(self._close)
            try:
                if is_cram and self._reference is None:
                    self._file = self._open_without_reference()
                self.sample = self._sample()
                self._tid = self._contig_index(panel.chrom)
                self.contig: str = self._file.references[self._tid]
                self._length: int = self._file.lengths[self._tid]
            except UnicodeDecodeError as error:
                raise self.error(f"its header {_INVALID_UTF8}") from error
            if lengths is not None:
                self._check_reference(lengths)
            self._check_index(end)
            if is_cram:  # read a record now: a wrong reference is noticed only when a record is read
                next(self.reads(*panel.position[[0, -1]].tolist()), None)
            self._check_length(panel)
            self._stack = stack.pop_all()

    def _is_cram(self) -> bool:
        try:
            return is_cram(self.path)
        except OSError as error:
            raise self.error(f"it cannot be read: {error.strerror}") from error

    def _open(self, reference: Path | None) -> Any:
        import pysam

        try:
            with _ignore_closing_errors():
                file = pysam.AlignmentFile(
                    str(self.path), "r", reference_filename=None if reference is None else str(reference)
                )
        except NotImplementedError as error:
            raise self.error(
                "it is compressed by gzip, not in blocks (BGZF). Write it again: samtools view -b -o x.bam; "
                "samtools index x.bam"
            ) from error
        except _DAMAGED as error:
            raise self.error(
                f"it cannot be read as BAM or CRAM ({error}). Get the file again, or check it with samtools "
                "quickcheck"
            ) from error
        if not (file.is_bam or file.is_cram):
            file.close()
            raise self.error(
                "it is SAM text. Convert it to BAM (samtools sort -o x.bam; samtools index x.bam)."
            )
        return file

    def _open_without_reference(self) -> Any:
        """Open the CRAM again with an empty reference, to keep htslib from searching for the real one.

        Otherwise htslib would look for it where the header and environment variables say, even in the
        network, and would write an index for it.
        """
        listed = zip(self._file.references, self._file.lengths, strict=True)
        self._close()
        with temporary_folder() as folder:
            empty = folder / "none.fa"
            empty.touch()
            index = "".join(f"{name}\t{length}\t0\t60\t61\n" for name, length in listed)
            Path(f"{empty}.fai").write_text(index, encoding="utf-8")
            return self._open(empty)

    def _header_lines(self, kind: str) -> list[list[str]]:
        """Return the fields of header lines such as "@RG". pysam rejects headers that samtools accepts."""
        lines = [line.rstrip("\r").split("\t") for line in str(self._file.header).split("\n")]
        return [line for line in lines if line[0] == kind]

    def _sample(self) -> str:
        fields = [field for line in self._header_lines("@RG") for field in line if field.startswith("SM:")]
        names = list(dict.fromkeys(field[3:] for field in fields if field[3:].strip()))
        if len(names) > 1:
            raise self.error(
                f"it has reads of {len(names)} samples ({_list_names(names)}). Give a file for each "
                "(samtools split), or give all read groups one name (SM) if they are of one person "
                "(samtools reheader)."
            )
        return names[0] if names else os.fsencode(self.path.stem).decode(errors="backslashreplace")

    def _contig_index(self, chrom: str) -> int:
        """Return the index of a chromosome in the file's header. htslib's own search needs a valid header."""
        listed: Sequence[str] = self._file.references
        aliases = chromosome_names(chrom, listed)
        same_name = [name for name in aliases if plain_chromosome(name) == plain_chromosome(chrom)]
        matches = sorted(same_name or aliases)
        if len(matches) != 1:
            what = f"has several names of {chrom}, {_list_names(matches)}" if matches else f"has no {chrom}"
            raise self.error(
                f"its header {what}. Its chromosomes are {_list_names(listed)}. Align the reads to the "
                "panel's genome."
            )
        return listed.index(matches[0])

    def _check_length(self, panel: ReferencePanel) -> None:
        length = self._length
        expected, last = contig_length(panel.contig_line), int(panel.position[-1])
        if length == expected or (expected is None and length >= last):
            return
        build = infer_build(f"##contig=<ID={self.contig},length={length}>", panel.chrom)
        panel_build = infer_build(panel.contig_line, panel.chrom)
        lengths = f"the file's header says {self.contig} has {length:,} bases{_in_brackets(build)}, but " + (
            f"the panel reaches position {last:,}"
            if expected is None
            else f"the panel's header line ({panel.contig_line}) says {expected:,}{_in_brackets(panel_build)}"
        )
        intervals = self._compare_intervals(panel) if length >= last else []
        n_agreeing, n_sites = sum(one.n_agreeing for one in intervals), sum(one.n_sites for one in intervals)
        differing = [one for one in intervals if not one.agrees]
        if n_sites < _MIN_COMPARED_SITES or n_agreeing < _MIN_AGREEMENT * n_sites or differing:
            compared = f"; reads have panel alleles at {n_agreeing} of {n_sites} sites" if n_sites else ""
            if differing:
                one = differing[0]
                compared += (
                    f", at {one.n_agreeing} of {one.n_sites} between positions {one.start:,} and {one.end:,}"
                )
            raise self.error(
                f"its reads are aligned to another genome build: {lengths}{compared}. Align them to the "
                "panel's genome, or use a panel of their build."
            )
        warnings.warn(
            f"{self._title}: {lengths}. The panel's header line seems to be wrong: the reads have the "
            f"panel's alleles at {n_agreeing} of {n_sites} sites.",
            stacklevel=4,
        )

    def _compare_intervals(self, panel: ReferencePanel) -> list[_ComparedInterval]:
        """Compare reads with the panel's alleles at some SNPs of each of several intervals."""
        keys = panel.sites.keys()
        intervals = np.array_split(np.unique(panel.position), _COMPARED_INTERVALS)
        return [
            self._compare(panel.position, keys, int(position[0]), int(position[-1]))
            for position in intervals
            if len(position)
        ]

    def _compare(
        self, position: np.ndarray, keys: Sequence[tuple[int, str, str]], start: int, end: int
    ) -> _ComparedInterval:
        """Compare the first reads between two positions with the panel's alleles."""
        agrees_at: dict[int, bool] = {}
        n_reads = 0
        for read in islice(self.reads(start, end), _MAX_COMPARED_READS):
            bases = read.query_sequence
            if bases is None or read.reference_end is None:
                continue
            n_reads += 1
            bounds = [max(read.reference_start + 1, start), min(read.reference_end, end) + 1]
            first, stop = np.searchsorted(position, bounds)
            if first == stop:
                continue
            index_in_read = {at + 1: place for place, at in read.get_aligned_pairs(matches_only=True)}
            alleles: dict[int, set[str]] = defaultdict(set)
            for at, ref, alt in keys[first:stop]:
                if len(ref) == len(alt) == 1 and at in index_in_read and at not in agrees_at:
                    alleles[at] |= {ref.upper(), alt.upper(), "="}
            agrees_at |= {at: bases[index_in_read[at]] in accepted for at, accepted in alleles.items()}
            if len(agrees_at) >= _MAX_COMPARED_SITES:
                break
        return _ComparedInterval(start, end, sum(agrees_at.values()), len(agrees_at), n_reads)

    def _check_reference(self, lengths: dict[str, int]) -> None:
        if lengths.get(self.contig) != self._length:
            there = f"has {lengths[self.contig]:,} bases" if self.contig in lengths else "is missing"
            raise InputError(
                "mismatch",
                f"reference {self._reference}: {self.contig} {there} in it, and has {self._length:,} in "
                f"{self.path}. Give the FASTA with which the CRAM was written.",
            )

    def _find_index(self, is_cram: bool) -> tuple[Path | None, int]:
        """Return the index that htslib will load, and the virtual offset after the last placed read in it.

        The offset is 0 for a CRAM, and if there is no index or no placed read.
        """
        suffixes = _CRAM_INDEXES if is_cram else _BAM_INDEXES
        names = [name for end in suffixes for name in (Path(f"{self.path}{end}"), self.path.with_suffix(end))]
        index = next((name for name in names if name.is_file()), None)
        if index is None or is_cram:
            return index, 0
        try:
            return index, check_bam_index(index)
        except DamagedFile as error:
            raise self._index_error(index) from error

    def _index_error(self, index: Path) -> InputError:
        return self.error(f"its index {index} cannot be read. Write it again: samtools index {self.path}")

    def _check_index(self, end: int) -> None:
        """Raise InputError if the index is missing or belongs to another file.

        `end` is the offset from `_find_index`. If it is 0, no placed read may follow the header.
        """
        index = self._index
        if index is None:
            raise self.error(f"its index is missing. Write it: samtools index {self.path}")
        if not self._file.has_index():
            raise self._index_error(index)
        if self._file.is_bam and not placed_reads_end_at(self.path, end or self._file.tell()):
            raise self.error(
                f"its index {index} is of another file: reads would be missed. Write it again: samtools "
                f"index {self.path}"
            )
        if index.stat().st_mtime < self.path.stat().st_mtime:
            warnings.warn(
                f"the index {index} is older than its file: reads are missed if the file changed. Write the "
                f"index again: samtools index {self.path}",
                stacklevel=4,
            )

    def reads(self, start: int, end: int) -> Iterator[Read]:
        """Yield the reads that overlap the 1-based positions from start to end, in the order of the file.

        Raises InputError if the file is damaged, or if a CRAM was written with another reference.
        """
        place = f"{self.contig}:{start}"
        try:
            for read in self._file.fetch(tid=self._tid, start=start - 1, stop=end):
                place = f"{self.contig}:{read.reference_start + 1}"
                yield read
        except _DAMAGED as error:
            if self._file.is_cram:
                self._check_reference_bases()
            raise self.error(
                f"the file is damaged, or its index {self._index} is of another file: it cannot be read from "
                f"{place} ({error}). Check the file with samtools quickcheck, get it again, or write its "
                f"index again: samtools index {self.path}"
            ) from error

    def _check_reference_bases(self) -> None:
        """Raise InputError if a CRAM cannot be read because its reference is missing or another one."""
        if self._reference is None:
            raise self.error(
                "its reads are stored as differences from a reference genome. Give its FASTA "
                f"({argument('reference')}). If the file contains its reference, it is damaged: get it again."
            )
        lines = [line for line in self._header_lines("@SQ") if f"SN:{self.contig}" in line]
        expected_md5 = next((field[3:] for line in lines for field in line if field.startswith("M5:")), "")
        actual_md5 = _contig_md5(self._reference, self.contig)
        if expected_md5 and actual_md5 and actual_md5 != expected_md5.lower():
            raise InputError(
                "mismatch",
                f"reference {self._reference}: its {self.contig} is not that of {self.path}: its MD5 is "
                f"{actual_md5}, and {expected_md5} in the header of the CRAM. Give the FASTA that the CRAM "
                "was written with.",
            )

    def fragment(self, read: Read) -> str:
        """Return an identifier of the read's fragment, which is equal for both mates.

        It consists of the read's name and the start positions of both mates, because names may repeat in
        merged files. If the read is not paired, or its mate is unmapped or on another chromosome, only its
        own position is added; if the chromosome of a mapped mate is not stated, none is. A missing name (*)
        is replaced by the fragment's length, or by CIGAR and bases. Raises InputError for invalid UTF-8.
        """
        try:
            name = read.query_name
        except UnicodeDecodeError as error:
            place = f"{self.contig}:{read.reference_start + 1}"
            raise self.error(f"the name of a read at {place} {_INVALID_UTF8}") from error
        start, named = read.reference_start, name not in (None, "", "*")
        if read.is_paired and not read.mate_is_unmapped:
            if read.next_reference_id == read.reference_id:
                low, high = sorted((start, read.next_reference_start))
                return f"{name} {low} {high}" if named else f"{low} {high} {abs(read.template_length)}"
            if read.next_reference_id < 0 and named:
                return str(name)
        return f"{name} {start}" if named else f"{start} {read.cigarstring} {read.query_sequence}"

    def error(self, what: str) -> InputError:
        """Return the exception to raise for a defect of the file."""
        return InputError("content", f"{self._title}: {what}")

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def _close(self) -> None:
        with suppress(OSError):  # raised for a damaged file, which was already reported
            self._file.close()

    @property
    def _title(self) -> str:
        return f"reads {self.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def is_cram(path: Path) -> bool:
    """Return whether a file starts like a CRAM. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(_CRAM_MAGIC)) == _CRAM_MAGIC


@contextmanager
def _ignore_closing_errors() -> Iterator[None]:
    """Suppress the messages that are printed if pysam fails to open a file and then fails to close it.

    Cython reports such an error of closing through both hooks of `sys`.
    """
    excepthook, unraisablehook = sys.excepthook, sys.unraisablehook

    def call_for_others(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, OSError):
            unraisablehook(unraisable)

    sys.excepthook, sys.unraisablehook = lambda *_: None, call_for_others
    try:
        yield
    finally:
        sys.excepthook, sys.unraisablehook = excepthook, unraisablehook


def _read_lengths(reference: Path) -> dict[str, int]:
    """Return chromosome lengths from a FASTA's index. Raises InputError if missing: htslib would write it."""
    if not reference.is_file():
        raise InputError("not-found", f"reference {reference}: {why_no_file(reference)}")
    index = Path(f"{reference}.fai")
    advice = f"Write it: samtools faidx {reference}"
    try:
        fields = [line.split("\t") for line in index.read_text(encoding="utf-8").splitlines()]
        numbers = {name: tuple(map(int, places)) for name, *places in fields}
        for length, offset, line_bases, line_bytes in numbers.values():
            # htslib corrupts memory if a line has more bases than bytes
            if length and not (offset >= 0 and 0 < line_bases < line_bytes):
                raise ValueError
        lengths = {name: length for name, (length, *_) in numbers.items()}
        with reference.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        if packed:
            index = Path(f"{reference}.gzi")
            index.open("rb").close()
    except OSError as error:
        raise InputError(
            "read",
            f"reference {reference}: its index {index.name} cannot be read ({error.strerror}). {advice}",
        ) from error
    except ValueError as error:
        raise InputError(
            "content", f"reference {reference}: {index.name} is not its index. {advice}"
        ) from error
    return lengths


def _contig_md5(reference: Path, contig: str) -> str:
    """Return the MD5 of a chromosome as in CRAM headers (M5), or "" if the reference cannot be read."""
    import pysam

    try:
        with pysam.FastaFile(str(reference)) as fasta:
            bases = fasta.fetch(contig)
    except _DAMAGED:
        return ""
    return md5(bases.upper().encode(), usedforsecurity=False).hexdigest()


def _in_brackets(build: str) -> str:
    return f" ({build})" if build else ""


def _list_names(names: Sequence[str]) -> str:
    """Join names for a message; only the first ones if there are many."""
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    return ", ".join(names[:_MAX_LISTED_NAMES]) + more
