"""The formats in which targets come. A format is a row of FORMATS, recognised by content, never by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import Sites
from spinimpute.targets.array_text import is_array_text, read_array_calls
from spinimpute.targets.final_report import is_final_report, read_final_report
from spinimpute.targets.liftover import Lift
from spinimpute.targets.plink import is_plink, read_plink
from spinimpute.targets.without_alt import records_wanted
from spinimpute.vcf.reader import HaplotypeReader
from spinimpute.vcf.variant_file import starts_as_variant_file


@dataclass(frozen=True)
class TargetFormat:
    """A format in which targets come.

    Attributes
    ----------
    name : str
        What users call it.
    recognises : callable
        (path) -> bool, of a file that exists.
    read : callable
        (path, sites of the panel, its contig line, lift to its build or None) -> `Calls` on the panel's
        chromosome. Raises InputError for what is wrong with the file.
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
    """Read a VCF or BCF, as of `TargetFormat.read`; samples: those to read, None for all."""
    # whether a heterozygote has a phase matters only where there are two copies: asked of the haplotypes
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
    """The first format that recognises a file, or VARIANTS, whose reader says what is wrong with the file."""
    if not path.is_file():
        return VARIANTS
    return next((one for one in FORMATS if one.recognises(path)), VARIANTS)
