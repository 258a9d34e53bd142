"""Reading a target in whatever form it comes: VCF, VCF.gz, BCF, PLINK, or the file of an array.

Forms are told apart by content, never by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.builds import build_of
from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.ploidy import Settled, expected_heterozygosity, settle
from spinimpute.genotypes.sites import Region, plain_chromosome
from spinimpute.genotypes.x_chromosome import HAPLOID_CHROMOSOMES, NON_PAR, is_x
from spinimpute.panels.parts import PanelSites, all_sites, part_of
from spinimpute.targets.array_text import array_calls, is_array_text, read_array_text
from spinimpute.targets.liftover import Lift
from spinimpute.targets.plink import is_plink, read_plink
from spinimpute.vcf.reader import HaplotypeReader, read_haplotypes
from spinimpute.vcf.variant_file import starts_as_variant_file


def read_target(
    path: str | Path,
    panels: Sequence[PanelSites],
    *,
    allow_unphased: bool = True,
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
    stretch: Region | None = None,
) -> list[Settled | None]:
    """The target's haplotypes on the chromosome of the panels, one part for each of them.

    path: a VCF, VCF.gz, BCF, .bed, .pgen, FinalReport or consumer array's text. None stands for a part of
    chromosome X in which the target has no site. sexes: sample -> male, for X; they go before the file's.
    chain: a chain file from the target's genome build to the panel's. stretch: more is not needed of the
    target; a VCF or BCF of an autosome is read no further.
    Raises InputError as the reader of each form; for unphased heterozygotes unless `allow_unphased`.
    """
    path = Path(path)
    chrom = panels[0].chrom
    lift = None if chain is None else Lift(chain, chrom)
    other_form = _in_another_form(path, panels, lift)
    if (
        other_form is None
        and lift is None
        and not is_x(chrom)
        and plain_chromosome(chrom) not in HAPLOID_CHROMOSOMES
    ):
        haplotypes = read_haplotypes(path, stretch, chrom=chrom, allow_unphased=allow_unphased)
        return [Settled(haplotypes, {}, np.full(len(haplotypes.samples), np.nan), [])]
    if other_form is None:
        # whether a heterozygote has a phase matters only where there are two copies: asked below
        reader = HaplotypeReader(path, chrom=chrom, allow_unphased=True, mixed_ploidy=True)
        calls = reader.read_calls()
        other_form = calls if lift is None else lift.calls(calls), {}
    calls, sexes_of_file = other_form
    if sexes and is_x(chrom) and not set(sexes) & set(calls.samples):
        warnings.warn(f"none of the samples of {path} is in the list of sexes", stacklevel=2)
    sexes = sexes_of_file | (sexes or {})
    settled = [_part(calls, panel, sexes) for panel in panels]
    if not allow_unphased:
        _refuse_unphased(path, settled)
    if all(part is None for part in settled):
        first, last = int(calls.sites.position[0]), int(calls.sites.position[-1])
        raise InputError(
            f"target {path}: its sites, {chrom}:{first}-{last}, lie in other parts of {chrom} than the panel"
        )
    return settled


def _in_another_form(
    path: Path, panels: Sequence[PanelSites], lift: Lift | None
) -> tuple[Calls, dict[str, bool]] | None:
    """Calls and known sexes of a file that is no VCF."""
    if not path.is_file() or starts_as_variant_file(path):
        return None
    contig_line = panels[0].contig_line
    if is_plink(path):
        made = read_plink(path, all_sites(panels), contig_line, lift)
        return made.calls, made.sexes
    if _is_final_report(path):
        from spinimpute.targets.final_report import read_final_report  # its pandas takes its time

        return read_final_report(path, all_sites(panels), contig_line, lift), {}
    if is_array_text(path):
        build = build_of(contig_line, panels[0].chrom)
        text = read_array_text(path)
        return array_calls(text, path, all_sites(panels), contig_line, build, lift), {}
    return None


def _is_final_report(path: Path) -> bool:
    """Whether the first line is that of Illumina's FinalReport."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf").startswith(b"[Header]")
    except OSError:
        return False


def _part(calls: Calls, panel: PanelSites, sexes: dict[str, bool]) -> Settled | None:
    part = part_of(panel)
    if part is not None:
        position = calls.sites.position
        first, stop = np.searchsorted(position, [part.region.start, part.region.end + 1])
        if first == stop:
            return None
        calls = calls.part(slice(int(first), int(stop)))
    return settle(
        calls,
        expected_heterozygosity(calls.sites, panel.sites, panel.frequency),
        sexes,
        haploid=plain_chromosome(panel.chrom) in HAPLOID_CHROMOSOMES,
        sexed=is_x(panel.chrom) and (part is None or part.name == NON_PAR),
    )


def _refuse_unphased(path: Path, settled: Sequence[Settled | None]) -> None:
    for part in settled:
        if part is not None and part.haplotypes.unphased is not None:
            row, sample = np.argwhere(part.haplotypes.unphased)[0]
            sites, name = part.haplotypes.sites, part.haplotypes.samples[sample]
            raise InputError(
                f"target {path}: sample {name} has, at {sites.chrom}:{sites.position[row]}, an unphased "
                "heterozygote; phase the file first (spinimpute phase)"
            )
