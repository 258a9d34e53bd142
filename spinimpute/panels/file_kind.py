"""Descriptions of kinds of container files: magic bytes, versions, sections and header entries."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spinimpute.runtime.errors import InputError, printable

CRC = struct.Struct("<I")
PANEL_MAGIC = b"\x89SPINPANEL\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
JOINED_MAGIC = b"\x89SPINPARTS\r\n\x1a\n"
INDUCING_MAGIC = b"\x89SPININDUCE\r\n\x1a\n\0"
CONTIG_LINE_MISMATCH = (
    "the header's entry 'contig_line' is not that of its chromosome"  # outputs copy that line
)
HAPLOTYPES, INDUCING_POINTS = "haplotypes", "inducing points"  # what panels hold, see `ReferencePanel.holds`


@dataclass(frozen=True)
class FileKind:
    """A kind of file. Texts that name functions or arguments are made when an error is raised."""

    name: str  # in messages
    magic: bytes  # the first bytes of every file
    version: int  # the version to write, and the newest to read
    remedy: Callable[[], str]  # sentence: how to make such a file
    fields: Mapping[str, Callable[[Any], bool]]  # entries of the header, and whether a value is valid
    sections: tuple[str, ...] = ()  # those that every file has
    # called with the open `Container`; raises InputError if entries and sections are inconsistent
    check: Callable[[Any], None] | None = None
    alignment: int = 1  # sections and header start at multiples of it
    compressed: bool = False  # whether sections and blocks are LZMA2 streams
    has_blocks: bool = False  # whether the file has a table of blocks
    checksum_seed: bytes = b""  # bytes that the checksum of the content starts with
    older_versions: tuple[int, ...] = ()  # further versions to read
    joined_magic: bytes = b""  # of a file that joins several; empty if there are no such files
    joined_remedy: Callable[[], str] = str  # what to do with a joined file where one content is needed
    # magic bytes of files often given instead: a sentence on the file and what to give
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
        """The error for a damaged file; `what` is wrong with it."""
        return InputError("damaged", f"{self.name} {path}: damaged: {what}. Make or copy it again")

    def wrong_size(self, path: Path, size: int, expected: int) -> InputError:
        """The error for a file without the length in its preamble."""
        what = "truncated" if size < expected else "damaged"
        return InputError(
            "damaged", f"{self.name} {path}: {what}: {size} bytes, expected {expected}. Copy it again"
        )


def has_magic(path: str | Path, kind: FileKind) -> bool:
    """Whether a file starts like those of a kind, single or joined.

    False if it cannot be read, or is a pipe.
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
    """Whether a header entry is a text of one line, which the header of an output can contain."""
    if not isinstance(value, str) or set(value) & set("\0\t\n\r"):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def is_chromosome(value: object) -> bool:
    """Whether a header entry is a valid name of a chromosome."""
    return isinstance(value, str) and is_line(value) and value.split() == [value]


def is_count(value: object) -> bool:
    """Whether a header entry is a positive number of things that a file can contain."""
    return type(value) is int and 1 <= value < 2**48


def is_provenance(value: object) -> bool:
    """Whether a header entry is the provenance of a panel, with skipped records counted by reason."""
    counted = ("skipped", "array sites not used", "rare alleles moved")
    return isinstance(value, dict) and all(isinstance(value.get(key, {}), dict) for key in counted)


def panel_repr(panel: Any) -> str:
    """The `repr` of a panel, which reads nothing of its file."""
    return (
        f"<{type(panel).__name__} of {printable(panel.chrom)}: {panel.n_sites:,} sites, "
        f"{panel.n_haplotypes:,} haplotypes of {panel.n_samples:,} samples, {printable(str(panel.path))}>"
    )
