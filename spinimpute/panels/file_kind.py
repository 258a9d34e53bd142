"""What is particular to one kind of container file: its first bytes, version, sections and header entries."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from spinimpute.runtime.errors import InputError, printable

CRC = struct.Struct("<I")
PANEL_MAGIC = b"\x89SPINPANEL\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
PARTS_MAGIC = b"\x89SPINPARTS\r\n\x1a\n"
INDUCING_MAGIC = b"\x89SPININDUCE\r\n\x1a\n\0"
HAPLOTYPES, INDUCING_POINTS = "haplotypes", "inducing points"  # what panels hold, see `ReferencePanel.holds`


@dataclass(frozen=True)
class FileKind:
    """What is particular to one kind of file.

    Attributes
    ----------
    name : str
        What messages call it.
    magic : bytes
        The first bytes of every file.
    version : int
        The version that is written, and the newest that is read.
    remedy : str
        How to get such a file, for messages.
    fields : mapping of str to callable
        The header's entries, and whether a value is one that the entry may have.
    sections : tuple of str
        Those that every file has.
    check : callable, optional
        Given the opened `Container`, raises InputError if entries and sections do not fit one another.
    alignment : int
        Sections and header begin at multiples of it.
    compressed : bool
        Whether sections and parts are LZMA2 streams.
    has_parts : bool
        Whether there is a table of parts.
    checksum_seed : bytes
        What the checksum of the content begins with.
    first_version : int
        The oldest version that is read.
    joined_magic : bytes
        Of a file that holds several of these; empty where there is none.
    joined_remedy : str
        What to do with such a file where one content is needed, for messages.
    mistaken : mapping of bytes to str
        First bytes of files that are taken for these: what such a file is, and what to give in its place.
    """

    name: str
    magic: bytes
    version: int
    remedy: str
    fields: Mapping[str, Callable[[Any], bool]]
    sections: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None
    alignment: int = 1
    compressed: bool = False
    has_parts: bool = False
    checksum_seed: bytes = b""
    first_version: int = 1
    joined_magic: bytes = b""
    joined_remedy: str = ""
    mistaken: Mapping[bytes, str] = field(default_factory=dict)

    @cached_property
    def preamble(self) -> struct.Struct:
        """Magic, version, CRC, offset and length of the header, length of the file."""
        return struct.Struct(f"<{len(self.magic)}sIIQQQ")

    @property
    def preamble_bytes(self) -> int:
        """The length of the preamble with its CRC."""
        return self.preamble.size + CRC.size

    def damaged(self, path: Path, what: str) -> InputError:
        """The error that a file is damaged.

        Parameters
        ----------
        path : Path
            The file.
        what : str
            What is wrong with it.

        Returns
        -------
        InputError
            For the user.
        """
        return InputError("damaged", f"{self.name} {path}: damaged: {what}. Make or copy it again")

    def wrong_size(self, path: Path, size: int, expected: int) -> InputError:
        """The error that a file does not have the length that it states."""
        what = "truncated" if size < expected else "damaged"
        return InputError(
            "damaged", f"{self.name} {path}: {what}: {size} bytes, the file states {expected}. Copy it again"
        )


def has_magic(path: str | Path, kind: FileKind) -> bool:
    """Whether a file starts as those of a kind do, or as one of several; False if it cannot be read.

    Of a pipe, which reading consumes, it is not asked.
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


def is_text(value: object) -> bool:
    """Whether an entry of a header is a text that can be written to a file."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can hold half of a surrogate pair
        return False
    return True


def is_line(value: object) -> bool:
    """Whether an entry of a header is a text of one line, for the header of an output."""
    return isinstance(value, str) and is_text(value) and not set(value) & set("\0\t\n\r")


def is_chromosome(value: object) -> bool:
    """Whether an entry of a header is a name that a chromosome may have."""
    return isinstance(value, str) and is_line(value) and value.split() == [value]


def require_contig_line(container: Any) -> None:
    """Raise InputError unless the header's line of the chromosome, which outputs copy, defines it."""
    from spinimpute.vcf.header import is_contig_line  # loads numpy, which no help text needs

    header = container.header
    fits = is_contig_line(header["contig_line"], header["chrom"])
    container.require(fits, "the header's entry 'contig_line' is not that of its chromosome")


def is_object(value: object) -> bool:
    """Whether an entry of a header is a JSON object."""
    return isinstance(value, dict)


def is_count(value: object) -> bool:
    """Whether an entry of a header is a positive number of things that may be in a file."""
    return type(value) is int and 1 <= value < 2**48


def is_provenance(value: object) -> bool:
    """Whether an entry of a header is the origin of a panel, with what was skipped counted by reason."""
    counted = ("skipped", "array sites not used", "rare alleles moved")
    return isinstance(value, dict) and all(is_object(value.get(key, {})) for key in counted)


class _Panel(Protocol):
    path: Path
    chrom: str
    n_sites: int
    n_haplotypes: int
    n_samples: int


def in_one_line(panel: _Panel) -> str:
    """A panel as Python shows it; nothing of its file is read for that."""
    return (
        f"<{type(panel).__name__} of {printable(panel.chrom)}: {panel.n_sites:,} sites, "
        f"{panel.n_haplotypes:,} haplotypes of {panel.n_samples:,} samples, {printable(str(panel.path))}>"
    )
