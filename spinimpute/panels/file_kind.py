"""Describe the kinds of panel files, and check the values in their headers.

A `FileKind` lists the magic bytes, versions, sections and header entries of a kind. `container` reads and
writes files of any kind. `panel` and `inducing_panel` define the two kinds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spinimpute.runtime.errors import InputError, printable
from spinimpute.runtime.output_files import check_output

CRC = struct.Struct("<I")
PANEL_MAGIC = b"\x89SPINPANEL\r\n\x1a\n"  # like the magic of PNG: a transfer in text mode changes it
JOINED_MAGIC = b"\x89SPINPARTS\r\n\x1a\n"
INDUCING_MAGIC = b"\x89SPININDUCE\r\n\x1a\n\0"
CONTIG_LINE_MISMATCH = "the header's entry 'contig_line' is not that of its chromosome"
SPIN, SPIP = ".spin", ".spip"  # suffixes of panels of haplotypes, and of inducing panels
# suffixes of other formats: a panel of such a name would be mistaken for one of them
_OTHER_SUFFIXES = (
    ".vcf", ".vcf.gz", ".vcf.bgz", ".bcf", ".pgen", ".bgen", ".m3vcf", ".m3vcf.gz", ".msav", ".bref3",
    ".imp5", ".hap", ".hap.gz", ".txt", ".txt.gz", ".tsv", ".tsv.gz", ".map", ".zip",
)  # fmt: skip
HAPLOTYPES, INDUCING_POINTS = "haplotypes", "inducing points"  # values of `ReferencePanel.holds`


@dataclass(frozen=True)
class FileKind:
    """A kind of container file.

    Some messages are functions, because the names in them depend on whether the command line or Python is
    used when the error is raised.
    """

    name: str  # what messages call the file
    magic: bytes  # the first bytes of every file
    version: int  # the version to write and read
    remedy: Callable[[], str]  # a sentence that says how to make such a file
    fields: Mapping[str, Callable[[Any], bool]]  # header entry -> function that checks its value
    sections: tuple[str, ...] = ()  # sections that every file must have
    # called with the open `Container`; raises InputError if entries and sections are inconsistent
    check: Callable[[Any], None] | None = None
    checksum_seed: bytes = b""  # bytes that are hashed before the content
    joined_magic: bytes = b""  # first bytes of a file that joins several of this kind; empty if none can
    joined_remedy: Callable[[], str] = str  # what the user should do if a joined file is not accepted
    # first bytes of files that users give by mistake -> sentence that says what the file is and what to give
    confused_with: Mapping[bytes, Callable[[], str]] = field(default_factory=dict)

    @cached_property
    def preamble(self) -> struct.Struct:
        """Magic, version, CRC, offset and length of the header, length of the file."""
        return struct.Struct(f"<{len(self.magic)}sIIQQQ")

    @property
    def preamble_bytes(self) -> int:
        """Length of the preamble with its CRC."""
        return self.preamble.size + CRC.size

    def damaged(self, path: Path, what: str) -> InputError:
        """Return the error for a damaged file. `what` describes the damage."""
        return InputError("damaged", f"{self.name} {path}: damaged: {what}. Make or copy it again")

    def wrong_size(self, path: Path, size: int, expected: int) -> InputError:
        """Return the error for a file whose length differs from the length in its preamble."""
        what = "truncated" if size < expected else "damaged"
        return InputError(
            "damaged", f"{self.name} {path}: {what}: {size} bytes, expected {expected}. Copy it again"
        )


def check_panel_output(path: str | Path, force: bool, inputs: Iterable[object], suffix: str = SPIN) -> Path:
    """Check that a panel file may be written, and return its path.

    `suffix` is the suffix of such files. Raises InputError like `check_output`, and if the name has the
    suffix of another format. Names without such a suffix are allowed.
    """
    path = check_output(path, force, inputs)
    if path.name.lower().endswith((*_OTHER_SUFFIXES, SPIP if suffix == SPIN else SPIN)):
        what = "a panel of haplotypes" if suffix == SPIN else "an inducing panel"
        raise InputError(
            "write", f"cannot write {path}: the name is that of another format. Name {what} {suffix}"
        )
    return path


def has_magic(path: str | Path, kind: FileKind) -> bool:
    """Return whether a file, single or joined, starts with the magic bytes of a kind.

    The result is False if the file cannot be read or is a pipe.
    """
    if not os.path.isfile(path):
        return False
    magics = [magic for magic in (kind.magic, kind.joined_magic) if magic]
    try:
        with open(path, "rb") as file:
            start = file.read(max(map(len, magics)))
    except OSError:
        return False
    return start.startswith(tuple(magics))


def is_line(value: object) -> bool:
    """Return whether a header entry is a string of one line. (The header of an output may contain it.)"""
    if not isinstance(value, str) or set(value) & set("\0\t\n\r"):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return False
    return True


def is_chromosome(value: object) -> bool:
    """Return whether a header entry is a valid chromosome name."""
    return isinstance(value, str) and is_line(value) and value.split() == [value]


def is_count(value: object) -> bool:
    """Return whether a header entry is a plausible count: a positive integer below 2**48."""
    return type(value) is int and 1 <= value < 2**48


def is_provenance(value: object) -> bool:
    """Return whether a header entry is a valid provenance: a dictionary, with dictionaries in three keys."""
    counted = ("skipped", "array sites not used", "rare alleles moved")
    return isinstance(value, dict) and all(isinstance(value.get(key, {}), dict) for key in counted)


def panel_repr(panel: Any) -> str:
    """Return the `repr` of a panel, without reading from its file."""
    return (
        f"<{type(panel).__name__} of {printable(panel.chrom)}: {panel.n_sites:,} sites, "
        f"{panel.n_haplotypes:,} haplotypes of {panel.n_samples:,} samples, {printable(str(panel.path))}>"
    )
