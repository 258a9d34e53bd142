"""Detect a target's file format from its content, and read its haplotypes.

`read_target` reads the calls on the panel's chromosome, lifts them over if there is a chain file, and
resolves the ploidy on X, Y and MT.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.genotypes.builds import HAPLOID_CHROMOSOMES, is_x
from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.ploidy import HALF_MISSING, ResolvedPloidy, expected_heterozygosity, resolve_ploidy
from spinimpute.genotypes.sites import Region, Sites, plain_chromosome
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import concatenate_sites, find_x_region, haploid_in_males
from spinimpute.runtime.errors import InputError, call
from spinimpute.runtime.output_files import STANDARD, CannotWrite, temporary_folder
from spinimpute.targets.array_text import array_chromosomes, is_array_text, read_array_calls
from spinimpute.targets.final_report import is_final_report, read_final_report
from spinimpute.targets.liftover import Lift
from spinimpute.targets.plink import is_plink, read_plink
from spinimpute.targets.repair import select_without_alt
from spinimpute.vcf.index_reader import has_fresh_index, read_index
from spinimpute.vcf.reader import HaplotypeReader, read_haplotypes
from spinimpute.vcf.variant_file import starts_as_variant_file

STDIN_NAME = "standard_input"  # name of the file with the content of standard input, quoted in messages


@dataclass(frozen=True)
class TargetFormat:
    """A file format of targets.

    `name` is its name in messages. `recognises(path)` returns whether an existing file has the format.
    `read(path, panel_sites, contig_line, lift)` returns the calls on the panel's chromosome, and raises
    InputError for a defective file. `lift` converts positions to the panel's genome build, or is None.
    `chromosomes(path)`, if given, returns the chromosomes of the file, or none if this takes long.
    """

    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, Sites, str, Lift | None], Calls]
    chromosomes: Callable[[Path], Sequence[str]] | None = None


def read_variants(
    path: Path, panel: Sites, contig_line: str, lift: Lift | None, samples: Sequence[str] | None = None
) -> Calls:
    """Read the calls of a VCF or BCF. `samples` selects samples; for the rest see `TargetFormat`."""
    # unphased calls are accepted here: phase matters only in diploid calls, which `read_target` checks later
    reader = HaplotypeReader(
        path,
        samples=samples,
        chrom=panel.chrom,
        allow_unphased=True,
        mixed_ploidy=True,
        without_alt=select_without_alt(panel, lift),
        symbolic=panel.symbolic_keys() if lift is None else (),
    )
    calls = reader.read_calls()
    return calls if lift is None else lift.convert_calls(calls)


def indexed_chromosomes(path: Path) -> list[str]:
    """Return the chromosomes with records in a VCF or BCF; none if it has no current index."""
    return [contig.name for contig in read_index(path)] if has_fresh_index(path) else []


VARIANTS = TargetFormat(
    "VCF, VCF.gz or BCF", starts_as_variant_file, read_variants, chromosomes=indexed_chromosomes
)

FORMATS = (
    VARIANTS,
    TargetFormat("PLINK .bed or .pgen", is_plink, read_plink),
    TargetFormat("Illumina FinalReport", is_final_report, read_final_report),
    TargetFormat("text of a consumer array", is_array_text, read_array_calls, array_chromosomes),
)


def detect_format(path: Path) -> TargetFormat:
    """Return the format of a file. For an unknown format return VARIANTS: its reader reports the error."""
    if not path.is_file():
        return VARIANTS
    return next((known for known in FORMATS if known.recognises(path)), VARIANTS)


def read_target(
    path: str | Path,
    panels: Sequence[ReferencePanel],
    *,
    allow_unphased: bool = True,
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
    region: Region | None = None,
    samples: Sequence[str] | None = None,
) -> list[ResolvedPloidy | None]:
    """Read the target's haplotypes on the chromosome of the panel.

    `panels` has one panel, or for X one for each part (PAR1, PAR2, the rest). `sexes` maps names of samples
    to whether they are male; on X it overrides the sexes in the file. `chain` is a chain file from the
    target's genome build to the panel's. `region`: read only this region (only of an autosome in a VCF or BCF
    without chain file, otherwise ignored). `samples`: samples to read from a VCF or BCF, in this order.

    Returns a result for each panel. It is None if the target has no site in this part of X. Raises the errors
    of the format's reader, and InputError for unphased heterozygotes unless `allow_unphased` is set.
    """
    path = Path(path)
    chrom = panels[0].chrom
    lift = None if chain is None else Lift(chain, chrom)
    target_format = detect_format(path)
    diploid = not is_x(chrom) and plain_chromosome(chrom) not in HAPLOID_CHROMOSOMES
    if target_format is VARIANTS and lift is None and diploid:
        haplotypes = read_haplotypes(
            path,
            region,
            samples=samples,
            chrom=chrom,
            allow_unphased=allow_unphased,
            without_alt=select_without_alt(panels[0].sites, None),
            symbolic=panels[0].sites.symbolic_keys(),
        )
        half_missing = haplotypes.half_missing
        set_missing = {} if half_missing is None else {HALF_MISSING: int(half_missing.sum())}
        return [ResolvedPloidy(haplotypes, set_missing, np.full(len(haplotypes.samples), np.nan), [])]
    if target_format is VARIANTS:
        calls = read_variants(path, concatenate_sites(panels), panels[0].contig_line, lift, samples)
    elif samples is not None:
        raise InputError(
            "arguments",
            f"target {path}: samples can be chosen from VCF and BCF only. Convert it ({call('convert')})",
        )
    else:
        calls = target_format.read(path, concatenate_sites(panels), panels[0].contig_line, lift)
    if sexes and is_x(chrom) and not set(sexes) & set(calls.samples):
        warnings.warn(f"none of the samples of {path} is in the list of sexes", stacklevel=2)
    known_sexes = calls.sexes | (sexes or {})
    parts = [_part(calls, panel, known_sexes) for panel in panels]
    if not allow_unphased:
        _refuse_unphased(path, parts)
    if all(part is None for part in parts):
        first, last = int(calls.sites.position[0]), int(calls.sites.position[-1])
        raise InputError(
            "mismatch",
            f"target {path}: its sites, {chrom}:{first}-{last}, lie in other parts of {chrom} than "
            "the panel. Give the panel of these parts",
        )
    return parts


def _part(calls: Calls, panel: ReferencePanel, sexes: dict[str, bool]) -> ResolvedPloidy | None:
    """Return the haplotypes of one part of the panel, or None if the part has no call."""
    part = find_x_region(panel)
    if part is not None:
        position = calls.sites.position
        first, stop = np.searchsorted(position, [part.region.start, part.region.end + 1])
        if first == stop:
            return None
        calls = calls.part(slice(int(first), int(stop)))
    return resolve_ploidy(
        calls,
        expected_heterozygosity(calls.sites, panel.sites, panel.frequency),
        sexes,
        all_haploid=plain_chromosome(panel.chrom) in HAPLOID_CHROMOSOMES,
        haploid_in_males=haploid_in_males(panel),
    )


def _refuse_unphased(path: Path, parts: Sequence[ResolvedPloidy | None]) -> None:
    """Raise InputError if there is an unphased heterozygote."""
    for part in parts:
        if part is not None and part.haplotypes.unphased is not None:
            row, sample = np.argwhere(part.haplotypes.unphased)[0]
            sites, name = part.haplotypes.sites, part.haplotypes.samples[sample]
            raise InputError(
                "content",
                f"target {path}: sample {name} has, at {sites.chrom}:{sites.position[row]}, an unphased "
                f"heterozygote. Phase the file first ({call('phase')})",
            )


@contextmanager
def standard_input_as_file(option: str) -> Iterator[Path]:
    """Copy standard input to a temporary file and yield its path.

    The copy is needed because a target is read more than once, first to detect its format. `option` names the
    input in messages. Raises InputError if standard input is closed, a terminal or unreadable, or if the disk
    is full.
    """
    if sys.stdin is None:
        raise InputError("read", f"{option} {STANDARD}: standard input is closed. Pipe a file into it")
    if sys.stdin.isatty():
        raise InputError("read", f"{option} {STANDARD}: standard input is a terminal. Pipe a file into it")
    with temporary_folder() as folder:
        path = folder / STDIN_NAME
        # nothing was read from sys.stdin before, so its buffer holds no bytes
        with open(os.dup(sys.stdin.fileno()), "rb") as piped:
            try:
                with path.open("wb") as file:
                    shutil.copyfileobj(piped, file, 1 << 20)
            except IsADirectoryError as error:
                raise InputError("read", f"{option} {STANDARD}: standard input is a folder") from error
            except OSError as error:
                raise CannotWrite(path, error) from error
        yield path
