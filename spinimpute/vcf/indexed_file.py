"""A VCF, VCF.gz or BCF file that is written record by record, with the index beside it.

A file appears at its path only when it is complete; until then it is a hidden file in the same folder.
Standard output gets its last byte only then.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import STANDARD, FilesTogether
from spinimpute.vcf.bgzf import BgzfWriter
from spinimpute.vcf.index_writer import TBI_MAX_LENGTH, RecordPlaces, csi_index, tbi_index

OUTPUT_TYPES = {".vcf.gz": "z", ".bcf": "b", ".vcf": "v"}
"""Output type by file suffix: compressed VCF, BCF, plain VCF (which has no index)."""

_INDEX_SUFFIXES = (".tbi", ".csi")


class IndexedFile(FilesTogether):
    """Writes encoded records; a context manager that leaves nothing at `path` after an exception.

    The bytes of the file depend neither on `threads` nor on how the records are cut into calls.

    Parameters
    ----------
    path : path
        Of the output; an existing file is replaced when the writer is closed. "-" is standard output, which
        has no index.
    output_type : str
        "z", "b" or "v", as `choose_output_type` gives it.
    file_start : bytes
        The header, as bytes of the output's form.
    contigs : mapping
        Name -> length where the header states one, in the order of the header.
    threads : int
        Threads that compress.

    Raises
    ------
    InputError
        The path cannot be written.
    BrokenPipeError
        Here and later: whoever reads standard output has closed it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        output_type: str,
        file_start: bytes,
        contigs: Mapping[str, int | None],
        threads: int = 2,
    ) -> None:
        """Open the file and write its start."""
        self._output_type = output_type
        self._piped = os.fspath(path) == STANDARD
        self._contigs = contigs
        self._places = RecordPlaces()
        self._position = 0  # bytes written, before compression
        self._file: BinaryIO | _StandardOutput | None = None
        self._bgzf: BgzfWriter | None = None
        super().__init__(Path(path), [] if self._piped else [Path(path)])
        with self.errors_named():
            self._file = _StandardOutput() if self._piped else self.partial(0).open("wb")
            self._bgzf = BgzfWriter(self._file, threads) if self._output_type != "v" else None
            self._write(file_start)

    @property
    def temporary_folder(self) -> Path:
        """Where files may be put that are not needed after the run: beside the output, if that is a file."""
        return Path(tempfile.gettempdir()) if self._piped else super().temporary_folder

    def append(
        self, chrom: str, position: np.ndarray, ref_length: np.ndarray, length: np.ndarray, data: bytes
    ) -> None:
        """Append r records, which follow those written before.

        Parameters
        ----------
        chrom : str
            Contig, one of the header.
        position, ref_length, length : int (r,)
            1-based position, letters of REF, bytes of a record.
        data : bytes
            The records.

        Raises
        ------
        InputError
            The file cannot be written (any longer), such as on a full disk.
        """
        stop = self._position + np.cumsum(length)
        self._places.add(chrom, position, ref_length, stop - length, stop)
        self._write(data)

    def write_ends(self) -> None:
        """Complete the file, and write its index."""
        assert self._file is not None
        if self._bgzf is not None:
            self._bgzf.finish()
        if not self._piped:
            self._file.close()
            if self._bgzf is not None:
                self._write_index(self._bgzf)

    def give_names(self) -> None:
        """Give the file and its index their names, or standard output its last byte."""
        if isinstance(self._file, _StandardOutput):
            self._file.complete()
        else:
            super().give_names()

    @property
    def obsolete(self) -> Sequence[Path]:
        """Indexes of an earlier file, of either kind."""
        return [_beside(self.path, suffix) for suffix in _INDEX_SUFFIXES]

    def drop(self) -> None:
        """Close the file."""
        if self._bgzf is not None:
            self._bgzf.abandon()
        with contextlib.suppress(OSError):  # a full disk shows once more at the last flush
            if self._file is not None:
                self._file.close()

    def _write(self, data: bytes) -> None:
        self._position += len(data)
        with self.errors_named():
            (self._bgzf or self._file).write(data)  # type: ignore[union-attr]

    def _write_index(self, bgzf: BgzfWriter) -> None:
        """Write the index of the finished stream to a temporary file."""
        of_bcf = self._output_type == "b"
        names = list(self._contigs) if of_bcf else self._places.names
        contigs = self._places.contigs(names, bgzf.virtual_offsets)
        ends = [int(contig.end.max()) for contig in contigs if len(contig.end)]
        length = max([*ends, *(self._contigs[name] or 0 for name in names)], default=0)
        if of_bcf or length > TBI_MAX_LENGTH:
            suffix, content = ".csi", csi_index(contigs, length, of_bcf=of_bcf)
        else:
            suffix, content = ".tbi", tbi_index(contigs)
        with self.add_file(_beside(self.path, suffix)).open("wb") as file:
            index = BgzfWriter(file)
            index.write(content)
            index.finish()


class _StandardOutput:
    """Standard output as a file whose last byte is kept back until it is complete.

    So what is cut by an error never looks whole: a line, or the block that ends a BGZF file, lacks its end.

    Raises
    ------
    InputError
        Standard output is closed.
    """

    def __init__(self) -> None:
        if sys.stdout is None:
            raise InputError("write", "cannot write standard output: it is closed; give the name of a file")
        self._file = open(os.dup(sys.stdout.fileno()), "wb", buffering=0)  # noqa: SIM115
        self._kept = b""

    def write(self, data: bytes) -> None:
        """Write all but the last byte. Raises OSError."""
        if data:
            self._write_all(self._kept + data[:-1])
            self._kept = data[-1:]

    def complete(self) -> None:
        """Write the last byte, and close. Raises OSError."""
        self._write_all(self._kept)
        self._file.close()

    def close(self) -> None:
        """Close; what was written stays without its last byte."""
        self._file.close()

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:  # a pipe may take less at once
            left = left[self._file.write(left) :]


def choose_output_type(path: Path, output_type: str | None, others: Sequence[str] = ()) -> str:
    """The type of an output: as asked for, or else by its suffix.

    Parameters
    ----------
    path : Path
        Of the output; "-" is standard output, by default VCF.
    output_type : str or None
        "z" (VCF.gz), "b" (BCF) or "v" (VCF), if the user gave one.
    others : sequence of str
        Suffixes that name other forms, which the output may have, too; for the message.

    Returns
    -------
    str
        "z", "b" or "v".

    Raises
    ------
    InputError
        The type is unknown, contradicts the suffix, or is given by neither; or standard output is a terminal
        and the type is not text.
    """
    if output_type is not None and output_type not in OUTPUT_TYPES.values():
        raise InputError(
            "content", f"unknown output type {output_type!r}: give z (VCF.gz), b (BCF) or v (VCF)"
        )
    for suffix, by_suffix in OUTPUT_TYPES.items():
        if path.name.lower().endswith(suffix):
            if output_type not in (None, by_suffix):
                raise InputError(
                    "content",
                    f"output type {output_type!r} contradicts the name {path}, which means {by_suffix!r}: "
                    "change one of the two",
                )
            return by_suffix
    if os.fspath(path) == STANDARD:
        if output_type in ("z", "b") and sys.stdout is not None and sys.stdout.isatty():
            raise InputError(
                "content",
                f"{'BCF' if output_type == 'b' else 'a compressed VCF'} is not for a terminal: redirect "
                f"standard output into a file or a pipe, or write text with {argument('output_type', 'v')}",
            )
        return output_type or "v"
    if output_type is not None:
        return output_type
    raise InputError(
        "mismatch",
        f"cannot tell the format of {path} from its name: it must end with "
        f"{', '.join([*OUTPUT_TYPES, *others])}, or give the output type (z, b or v)",
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
