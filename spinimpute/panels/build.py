"""Build a panel file (.spin) from a phased VCF.

The VCF is read in batches and written to a panel file. Then rare alleles with wrong phase are moved to
the other haplotype of their sample. If the job asks for it, the genetic map and the evidence against sites
(their doubts) are estimated. `spin_files` does this for each part of X.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.genetic_map import DEFAULT_RATE, GeneticMap
from spinimpute.genotypes.sites import Region, Sites, same_chromosome
from spinimpute.genotypes.structural import covers_reference
from spinimpute.panels.file_kind import check_panel_output, is_chromosome, is_line
from spinimpute.panels.formats.detection import AnyBatchReader, PanelSource, open_batch_reader, source_files
from spinimpute.panels.panel import MOVED, Panel
from spinimpute.panels.site_table import SiteTable, encode_site_table
from spinimpute.panels.trust.rare_phase import find_moves
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.panels.writer import PanelWriter, package_version, rewrite_panel
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.vcf.header import is_contig_line

MAP_ESTIMATED = "map estimated"  # key of the provenance
# shares of the panel's sites within the genetic map, below which a warning or an error is given
WARN_BELOW, REFUSE_BELOW = 0.9, 0.05


class Refinement(NamedTuple):
    """Improvements of a panel that were estimated from its haplotypes."""

    cM: np.ndarray | None  # a better genetic map, float64 (n_sites,); None keeps the map of the job
    map_description: dict[str, Any]  # provenance of the better map
    doubts: SiteDoubts | None  # evidence against sites; None trusts all sites


PanelRefiner = Callable[[Panel, Path], Refinement]  # called with an open panel and a temporary folder


@dataclass(frozen=True)
class BuildJob:
    """The arguments of `build_panel`, and a function that refines the panel."""

    vcf: PanelSource
    out: str | Path
    genetic_map: str | Path | GeneticMap | None = None
    region: Region | None = None
    samples: Sequence[str] | None = None
    force: bool = False
    command: str = ""
    threads: int = 1
    keep_phase: bool = False
    refine: PanelRefiner | None = None
    split_multiallelic: bool = False


def compile_panel(job: BuildJob) -> Panel:
    """Build a panel file and open it. Raises InputError like `build_panel`."""
    out = check_panel_output(job.out, job.force, [*source_files(job.vcf), job.genetic_map])
    reader = open_batch_reader(job.vcf, job.region, job.samples, job.threads)
    with atomic_write(out) as partial, temporary_folder_in(out.parent, f".{out.name}.") as folder:
        with partial.open("wb") as file:
            _write_panel(file, reader, job)
            file.flush()
            os.fsync(file.fileno())
        _refine_panel(partial, folder, job)
    return Panel.open(out)


def _refine_panel(built: Path, folder: Path, job: BuildJob) -> None:
    """Rewrite a panel file with misphased rare alleles moved, and with its refined map and doubts."""
    changes: dict[str, Any] = {}
    refined = Refinement(None, {}, None)
    with Panel.open(built) as panel:
        moves = None if job.keep_phase else find_moves(panel)
        if moves is not None and len(moves.site_M):
            wrong = list(moves.wrong_share.items())
            changes[MOVED] = {"alleles": len(moves.site_M), "estimated wrong": wrong}
        else:
            moves = None
        if job.refine is not None:
            refined = job.refine(panel, folder)
            if refined.cM is not None:
                changes[MAP_ESTIMATED] = refined.map_description
    if not changes and (refined.doubts is None or not refined.doubts.discordance.any()):
        return
    before = folder / "before.spin"
    shutil.copyfile(built, before)  # overwrite `built`: it is locked and cannot be replaced
    with Panel.open(before) as panel:
        rewrite_panel(panel, built, changes, refined.cM, moves, refined.doubts)


def _write_panel(file: BinaryIO, reader: AnyBatchReader, job: BuildJob) -> None:
    haplotypes = source_files(job.vcf)[0]
    writer: PanelWriter | None = None
    chosen_map: GeneticMap | None = None
    blocks: list[Sites] = []
    counts: list[np.ndarray] = []
    multiallelic: list[np.ndarray] = []
    for batch in reader.batches():
        if chosen_map is None or writer is None:  # the first batch shows chromosome and ploidy
            chrom = batch.sites.chrom
            if not is_chromosome(chrom):
                what = (
                    "is not a line of text" if not is_line(chrom) else "has a space" if chrom else "is empty"
                )
                raise InputError("content", f"panel {haplotypes}: chromosome {chrom!r} {what}; rename it")
            chosen_map = choose_map(job.genetic_map, chrom)
            writer = PanelWriter(file, int(reader.ploidy.sum()))
        blocks.append(batch.sites)
        counts.append(batch.allele_count)
        multiallelic.append(batch.multiallelic & (not job.split_multiallelic))
        writer.add_rows(batch.stored, batch.allele_count)
    assert chosen_map is not None  # a reader yields a batch or raises
    assert writer is not None
    sites = Sites.concatenate(blocks)
    _check_coverage(chosen_map, sites)
    _check_ends(sites)
    table = SiteTable(sites, chosen_map.cM(sites.position), np.concatenate(counts))
    header = {
        "chrom": sites.chrom,
        "contig_line": _contig_line(haplotypes, sites.chrom, reader.contig_line),
        "samples": reader.samples,
        "ploidy": "".join(map(str, reader.ploidy.tolist())),
        "n_sites": len(sites),
        "provenance": {
            "spinimpute": package_version(),
            "source": haplotypes.name,
            "source_bytes": haplotypes.stat().st_size,
            "map": chosen_map.description,
            "command": job.command,
            "skipped": reader.skipped,
        },
    }
    writer.finish(encode_site_table(table, np.concatenate(multiallelic)), SiteDoubts.none(len(sites)), header)


def choose_map(genetic_map: str | Path | GeneticMap | None, chrom: str) -> GeneticMap:
    """Return the genetic map with which to build a panel. Without a map, warn and assume a constant rate.

    Raises InputError if the map cannot be read or belongs to another chromosome.
    """
    if genetic_map is None:
        constant = GeneticMap.constant()
        warnings.warn(
            f"no genetic map: {constant.description} is assumed on chromosome {chrom}", stacklevel=5
        )
        return constant
    if not isinstance(genetic_map, GeneticMap):
        return GeneticMap.read(genetic_map, chrom)
    if genetic_map.chrom is not None and not same_chromosome(genetic_map.chrom, chrom):
        raise InputError(
            "content", f"the genetic map is of chromosome {genetic_map.chrom}, the panel of {chrom}"
        )
    return genetic_map


def _contig_line(vcf: Path, chrom: str, line: str) -> str:
    """Return the chromosome's header line, or a minimal one if `line` is not a valid definition."""
    for defining in (line, f"##contig=<ID={chrom}>"):
        if is_contig_line(defining, chrom):
            return defining
    raise InputError(
        "content", f"panel {vcf}: no header can define a chromosome of the name {chrom!r}; rename it"
    )


def _check_ends(sites: Sites) -> None:
    """Warn of structural variants that must be longer than REF, but end with it."""
    rows = [
        row
        for row, variant in sites.structural.items()
        if covers_reference(sites.alt[row]) and variant.end < sites.position[row] + len(sites.ref[row])
    ]
    if rows:
        warnings.warn(
            f"structural variants without a valid END or SVLEN: {len(rows)}, the first {sites.alt[rows[0]]} "
            f"at {sites.chrom}:{sites.position[rows[0]]}. Their END is the last position of REF",
            stacklevel=5,
        )


def _check_coverage(genetic_map: GeneticMap, sites: Sites) -> None:
    """Warn if a map covers only part of the panel. Raise InputError if it covers almost nothing of it.

    On X there is only a warning: maps often lack the pseudo-autosomal regions, which are separate panels.
    """
    if genetic_map.chrom is None:
        return
    start, end, position = genetic_map.first_position, genetic_map.last_position, sites.position
    n_covered = int(((position >= start) & (position <= end)).sum())
    if n_covered >= WARN_BELOW * len(position):
        return
    text = (
        f"genetic map {genetic_map.description} covers {sites.chrom}:{start}-{end}, the panel lies at "
        f"{position[0]}-{position[-1]}: {n_covered:,} of the {len(position):,} sites are within the map"
    )
    if n_covered < REFUSE_BELOW * len(position) and not is_x(sites.chrom):
        raise InputError(
            "mismatch",
            f"{text}. Give a map of the whole region in the panel's genome build, or none: without a map "
            f"{DEFAULT_RATE:g} cM/Mb is assumed",
        )
    warnings.warn(f"{text}; the map's mean rate is assumed beyond it", stacklevel=5)
