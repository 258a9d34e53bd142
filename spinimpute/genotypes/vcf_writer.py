"""Writes imputed genotypes to VCF, VCF.gz or BCF, with the index beside it.

A file appears at its path only when it is complete; until then it is a hidden file in the same folder.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.bcf_encoder import BcfEncoder
from spinimpute.genotypes.bgzf import BgzfWriter
from spinimpute.genotypes.record_info import InfoValues
from spinimpute.genotypes.sample_fields import SampleLayout
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.vcf_header import FORMAT_LINES, make_header
from spinimpute.genotypes.vcf_index import TBI_MAX_LENGTH, RecordPlaces, csi_index, tbi_index
from spinimpute.genotypes.vcf_text import VcfTextEncoder
from spinimpute.output_files import check_writable

OUTPUT_TYPES = {".vcf.gz": "z", ".bcf": "b", ".vcf": "v"}
"""Output type by file suffix: compressed VCF, BCF, plain VCF (which has no index)."""

_INDEX_SUFFIXES = (".tbi", ".csi")
_ENCODED_BYTES = 4 * 2**20  # how much of a block is encoded at once; bounds the memory


class GenotypeWriter:
    """Writes blocks of records; a context manager that leaves nothing at `path` after an exception.

    The bytes of the file depend neither on `threads` nor on how the records are cut into blocks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        samples: Sequence[str],
        ploidy: np.ndarray,
        contig_lines: Sequence[str],
        header_lines: Sequence[str] = (),
        formats: Sequence[str] = ("GT", "DS"),
        output_type: str | None = None,
        threads: int = 2,
        extra_info_lines: Sequence[str] = (),
    ) -> None:
        """Check everything that can be checked and write the header.

        Parameters:
            path: of the output; an existing file is replaced when the writer is closed.
            samples: sample names (n_samples,).
            ploidy: 1 or 2 for each sample (n_samples,).
            contig_lines: "##contig=<ID=...>" lines, one for each contig of the output.
            header_lines: further header lines, such as "##source=...".
            formats: which of GT, DS, HDS and GP to write, in this order; GT, if any, comes first.
            output_type: "z" (VCF.gz), "b" (BCF) or "v" (VCF); None goes by the suffix of the path.
            threads: threads that compress.
            extra_info_lines: "##INFO=<...>" lines of numeric fields beyond AF and R2.
        Raises:
            InputError: the suffix is unknown, the path cannot be written, or a sample name is unusable.
            ValueError: the arguments contradict each other.
        """
        self.path = Path(path)
        ploidy = np.asarray(ploidy)
        if ploidy.shape != (len(samples),) or not np.isin(ploidy, (1, 2)).all():
            raise ValueError(f"ploidy must be 1 or 2 for each of {len(samples)} samples, however: {ploidy!r}")
        if not formats or len(set(formats)) < len(formats) or not FORMAT_LINES.keys() >= set(formats):
            raise ValueError(
                f"formats must be distinct names out of {', '.join(FORMAT_LINES)}, however: {formats!r}"
            )
        if "GT" in formats[1:]:
            raise ValueError(f"GT must be the first of the formats, however: {formats!r}")
        self._output_type = choose_output_type(self.path, output_type)
        check_writable(self.path)

        self._header = make_header(samples, contig_lines, header_lines, formats, extra_info_lines)
        self._formats = tuple(formats)
        self.set_ploidy(ploidy)
        self._places = RecordPlaces()
        self._last_position = 0
        self._position = 0  # bytes written, before compression
        self._closed = False

        self._files: list[tuple[Path, Path]] = []  # temporary and final path of each file
        self._bgzf: BgzfWriter | None = None
        try:
            self._file = self._open_temporary(self.path)
            self._bgzf = BgzfWriter(self._file, threads) if self._output_type != "v" else None
            self._write(self._encoder.file_start)
        except BaseException:  # an interrupt here would leave the temporary file: nobody has the writer yet
            self.abandon()
            raise

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """The ploidy of the blocks that follow: chromosome X has parts in which it differs."""
        self._layout = SampleLayout(np.asarray(ploidy), self._formats)
        encoder = BcfEncoder if self._output_type == "b" else VcfTextEncoder
        self._encoder: BcfEncoder | VcfTextEncoder = encoder(self._header, self._layout)

    def write_block(
        self,
        chrom: str,
        sites: Sites,
        hap_dosage: np.ndarray,
        info: Mapping[str, np.ndarray | None],
        haplotypes: np.ndarray | None,
        typed: np.ndarray,
        unphased: np.ndarray | None = None,
    ) -> None:
        """Append r records, which follow those written before.

        Parameters:
            chrom: contig, one of the header.
            sites: r sites by position; their own `chrom` is not used.
            hap_dosage: float32 (r, n_haplotypes), P(ALT) of each haplotype, clipped to 0..1; NaN is missing.
            info: numbers (r,) per INFO key, of which those that are not finite are left out, or None.
            haplotypes: int8 (r, n_haplotypes), hard calls: 0, 1, or -1 (missing); None calls ALT from 0.5 on.
            typed: bool (r,).
            unphased: bool (r, n_samples), calls to be written with "/"; None if all have their phase.
        Raises:
            InputError: the file cannot be written (any longer), such as on a full disk.
            ValueError: shapes disagree, the contig is unknown, or the records are not sorted.
        """
        hap_dosage = np.asarray(hap_dosage, dtype=np.float32)
        typed = np.asarray(typed, dtype=bool)
        self._check_block(chrom, sites, hap_dosage, haplotypes, typed)
        values = InfoValues.from_arrays(self._header, info, typed)
        if not len(sites):
            return
        step = max(1, _ENCODED_BYTES // self._encoder.bytes_per_record)
        for start in range(0, len(sites), step):
            part = slice(start, start + step)
            self._write_records(
                chrom,
                sites.take(part),
                hap_dosage[part],
                values.part(part),
                None if haplotypes is None else haplotypes[part],
                None if unphased is None else unphased[part],
            )
        self._last_position = int(sites.position[-1])

    def close(self) -> None:
        """Complete the file, write its index, and give both their names. Nothing happens the second time.

        Raises InputError if the file cannot be completed, such as on a full disk; nothing is left then.
        """
        if self._closed:
            return
        try:
            if self._bgzf is not None:
                self._bgzf.finish()
            self._file.close()
            if self._bgzf is not None:
                self._write_index(self._bgzf)
            # An index of an earlier file, whatever its kind, must not be taken for one of this file.
            for suffix in _INDEX_SUFFIXES:
                _beside(self.path, suffix).unlink(missing_ok=True)
            for temporary, final in self._files:
                os.replace(temporary, final)
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError):
                raise self._cannot_write(error) from error
            raise
        self._closed = True

    def abandon(self) -> None:
        """Stop and remove the temporary files; nothing happens after `close`."""
        if self._closed:
            return
        self._closed = True
        if self._bgzf is not None:
            self._bgzf.abandon()
        # without a file the constructor was interrupted; a full disk shows once more at the last flush
        with contextlib.suppress(OSError, AttributeError):
            self._file.close()
        for temporary, _ in self._files:
            temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _check_block(
        self,
        chrom: str,
        sites: Sites,
        hap_dosage: np.ndarray,
        haplotypes: np.ndarray | None,
        typed: np.ndarray,
    ) -> None:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if chrom not in self._header.contigs:
            raise ValueError(
                f"no contig line was given for {chrom}, only for {', '.join(self._header.contigs)}"
            )
        shape = (len(sites), self._layout.n_haplotypes)
        if hap_dosage.shape != shape:
            raise ValueError(f"hap_dosage must have shape {shape}, however: {hap_dosage.shape}")
        if haplotypes is not None and haplotypes.shape != shape:
            raise ValueError(f"haplotypes must have shape {shape}, however: {haplotypes.shape}")
        if haplotypes is not None and haplotypes.size and (haplotypes.min() < -1 or haplotypes.max() > 1):
            raise ValueError("haplotypes must be 0, 1 or -1")
        if typed.shape != shape[:1]:
            raise ValueError(f"typed must have shape {shape[:1]}, however: {typed.shape}")
        previous = 0
        if chrom in self._places.names:
            if chrom != self._places.names[-1]:
                raise ValueError(f"the records of {chrom} are not all together")
            previous = self._last_position
        if (np.diff(sites.position, prepend=previous) < 0).any():
            raise ValueError(f"the positions on {chrom} go backwards")

    def _write_records(
        self,
        chrom: str,
        sites: Sites,
        hap_dosage: np.ndarray,
        info: InfoValues,
        haplotypes: np.ndarray | None,
        unphased: np.ndarray | None,
    ) -> None:
        pieces, lengths = self._encoder.encode(
            sites, chrom, info, self._layout.fields(hap_dosage, haplotypes, unphased)
        )
        stop = self._position + np.cumsum(lengths)
        self._places.add(
            chrom, sites.position, np.array([len(ref) for ref in sites.ref]), stop - lengths, stop
        )
        self._write(b"".join(pieces))

    def _write(self, data: bytes) -> None:
        self._position += len(data)
        try:
            if self._bgzf is not None:
                self._bgzf.write(data)
            else:
                self._file.write(data)
        except OSError as error:
            self.abandon()
            raise self._cannot_write(error) from error

    def _write_index(self, bgzf: BgzfWriter) -> None:
        """Write the index of the finished stream to a temporary file."""
        of_bcf = self._output_type == "b"
        names = list(self._header.contigs) if of_bcf else self._places.names
        contigs = self._places.contigs(names, bgzf.virtual_offsets)
        ends = [int(contig.end.max()) for contig in contigs if len(contig.end)]
        length = max([*ends, *(self._header.contigs[name] or 0 for name in names)], default=0)
        if of_bcf or length > TBI_MAX_LENGTH:
            suffix, content = ".csi", csi_index(contigs, length, of_bcf=of_bcf)
        else:
            suffix, content = ".tbi", tbi_index(contigs)
        with self._open_temporary(_beside(self.path, suffix)) as file:
            index = BgzfWriter(file)
            index.write(content)
            index.finish()

    def _open_temporary(self, final: Path) -> BinaryIO:
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
        self._files.append((temporary, final))
        try:
            return temporary.open("xb")
        except OSError as error:
            self._files.pop()  # there is nothing to remove
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> InputError:
        return InputError(
            f"cannot write {self.path}: {error.strerror or error}. "
            "Check the space and the permissions of the folder, or choose another one"
        )


def choose_output_type(path: Path, output_type: str | None) -> str:
    """ "z", "b" or "v", as asked for or else by the suffix of `path`.

    Raises InputError if the type is unknown, contradicts the suffix, or is given by neither.
    """
    if output_type is not None and output_type not in OUTPUT_TYPES.values():
        raise InputError(f"unknown output type {output_type!r}: give z (VCF.gz), b (BCF) or v (VCF)")
    for suffix, by_suffix in OUTPUT_TYPES.items():
        if path.name.lower().endswith(suffix):
            if output_type not in (None, by_suffix):
                raise InputError(
                    f"output type {output_type!r} contradicts the name {path}, which means {by_suffix!r}: "
                    "change one of the two"
                )
            return by_suffix
    if output_type is not None:
        return output_type
    raise InputError(
        f"cannot tell the format of {path} from its name: it must end with {', '.join(OUTPUT_TYPES)}, "
        "or give the output type (z, b or v)"
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
