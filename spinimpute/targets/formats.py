"""Formats of targets, detected from file contents, and targets from standard input."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import STANDARD, CannotWrite, temporary_folder
from spinimpute.targets.array_text import is_array_text, read_array_calls
from spinimpute.targets.final_report import is_final_report, read_final_report
from spinimpute.targets.liftover import Lift
from spinimpute.targets.plink import is_plink, read_plink
from spinimpute.targets.repair import records_wanted
from spinimpute.vcf.reader import HaplotypeReader
from spinimpute.vcf.variant_file import starts_as_variant_file

NAME = "standard_input"  # of the temporary file, for messages and reports


@dataclass(frozen=True)
class TargetFormat:
    """A format of targets, a row of FORMATS.

    `name` is the users' name. `recognises(path)` says whether an existing file has the format. `read(path,
    sites of the panel, its contig line, lift to its build or None)` returns the `Calls` on the panel's
    chromosome, and raises InputError for defects of the file.
    """

    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, Sites, str, Lift | None], Calls]


def read_variants(
    path: Path,
    panel: Sites,
    contig_line: str,
    lift: Lift | None,
    samples: Sequence[str] | None = None,
) -> Calls:
    """Read the calls of all or some samples of a VCF or BCF, as `TargetFormat.read`."""
    # phase matters only where there are two copies, and is checked later
    reader = HaplotypeReader(
        path,
        samples=samples,
        chrom=panel.chrom,
        allow_unphased=True,
        mixed_ploidy=True,
        without_alt=records_wanted(panel, lift),
    )
    calls = reader.read_calls()
    return calls if lift is None else lift.calls(calls)


VARIANTS = TargetFormat("VCF, VCF.gz or BCF", starts_as_variant_file, read_variants)

FORMATS = (
    VARIANTS,
    TargetFormat("PLINK .bed or .pgen", is_plink, read_plink),
    TargetFormat("Illumina FinalReport", is_final_report, read_final_report),
    TargetFormat("text of a consumer array", is_array_text, read_array_calls),
)


def format_of(path: Path) -> TargetFormat:
    """The first format that recognises a file, else VARIANTS, whose reader reports what is wrong."""
    if not path.is_file():
        return VARIANTS
    return next((known for known in FORMATS if known.recognises(path)), VARIANTS)


@contextmanager
def standard_input_as_file(option: str) -> Iterator[Path]:
    """Copy standard input to a temporary file: detecting its format requires reading it more than once.

    `option` names the input in messages. Raises InputError if standard input is closed, a terminal or
    unreadable, or if the disk is full.
    """
    if sys.stdin is None:
        raise InputError("read", f"{option} {STANDARD}: standard input is closed. Pipe a file into it")
    if sys.stdin.isatty():
        raise InputError("read", f"{option} {STANDARD}: standard input is a terminal. Pipe a file into it")
    with temporary_folder() as folder:
        path = folder / NAME
        # unbuffered so far: bytes in another reader's buffer would be lost
        with open(os.dup(sys.stdin.fileno()), "rb") as piped:
            try:
                with path.open("wb") as file:
                    shutil.copyfileobj(piped, file, 1 << 20)
            except IsADirectoryError as error:
                raise InputError("read", f"{option} {STANDARD}: standard input is a folder") from error
            except OSError as error:
                raise CannotWrite(path, error) from error
        yield path
