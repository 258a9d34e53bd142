"""Building a panel file from a phased VCF."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.genetic_map import DEFAULT_RATE, GeneticMap
from spinimpute.genotypes.sites import Region, Sites, same_chromosome
from spinimpute.panels.file_kind import is_chromosome, is_line
from spinimpute.panels.panel import MOVED, Panel
from spinimpute.panels.site_table import SiteTable, encode_raw_table
from spinimpute.panels.trust.rare_phase import find_moves
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.panels.vcf_reading import BatchReader, ParallelBatchReader
from spinimpute.panels.writer import PanelWriter, package_version, rewrite_panel
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_output, written_whole
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.vcf.header import is_contig_line
from spinimpute.vcf.index_reader import split_by_size

MAP_ESTIMATED = "map estimated"  # in the provenance
MOSTLY_COVERED, HARDLY_COVERED = 0.9, 0.05  # shares of a panel's sites that its genetic map covers


class Refinement(NamedTuple):
    """What a panel's own haplotypes say of it.

    Attributes
    ----------
    cM : float64 (n_sites,), optional
        A better genetic map; None to keep the given one.
    map_description : dict
        The provenance of that map.
    doubts : SiteDoubts, optional
        What is known against the sites; None if it was not looked for, and all sites are trusted.
    """

    cM: np.ndarray | None
    map_description: dict[str, Any]
    doubts: SiteDoubts | None


PanelRefiner = Callable[[Panel, Path], Refinement]  # of an open panel, with a folder for temporary files


def compile_panel(
    vcf: str | Path,
    out: str | Path,
    genetic_map: str | Path | GeneticMap | None = None,
    region: Region | None = None,
    samples: Sequence[str] | None = None,
    force: bool = False,
    command: str = "",
    threads: int = 1,
    keep_phase: bool = False,
    *,
    refine: PanelRefiner | None = None,
) -> Panel:
    """Build a panel file and open it; `spinimpute.build_panel` is this with `refine_panel`.

    Parameters
    ----------
    vcf, out, genetic_map, region, samples, force, command, threads, keep_phase
        As for `spinimpute.build_panel`.
    refine : callable, optional
        Called with the open panel and a folder for temporary files.

    Returns
    -------
    Panel
        Of the file that was written.

    Raises
    ------
    InputError
        Whatever `read_haplotypes` and `GeneticMap.read` refuse, a call is missing, `out` exists without
        `force`, or its folder cannot be written to.
    """
    out = check_output(out, force, [vcf, genetic_map])
    reader = _reader(vcf, region, samples, threads)
    with written_whole(out) as partial, temporary_folder_in(out.parent, f".{out.name}.") as folder:
        with partial.open("wb") as file:
            _write_panel(file, reader, Path(vcf), genetic_map, command)
            file.flush()
            os.fsync(file.fileno())
        _improve(partial, folder, keep_phase, refine)
    return Panel.open(out)


def _improve(built: Path, folder: Path, keep_phase: bool, refine: PanelRefiner | None) -> None:
    """Write a panel again, into the same file, with rare alleles moved and its refinement."""
    changes: dict[str, Any] = {}
    refined = Refinement(None, {}, None)
    with Panel.open(built) as panel:
        moves = None if keep_phase else find_moves(panel)
        if moves is not None and len(moves.site_M):
            wrong = list(moves.wrong_share.items())
            changes[MOVED] = {"alleles": len(moves.site_M), "estimated wrong": wrong}
        else:
            moves = None
        if refine is not None:
            refined = refine(panel, folder)
            if refined.cM is not None:
                changes[MAP_ESTIMATED] = refined.map_description
    if not changes and (refined.doubts is None or not refined.doubts.discordance.any()):
        return
    before = folder / "before.spin"
    shutil.copyfile(built, before)  # not a file of another name in its place: this one is locked
    with Panel.open(before) as panel:
        rewrite_panel(panel, built, changes, refined.cM, moves, refined.doubts)


def _reader(
    vcf: str | Path, region: Region | None, samples: Sequence[str] | None, threads: int
) -> BatchReader | ParallelBatchReader:
    one = BatchReader(vcf, region, samples)
    if threads > 1 and (regions := split_by_size(Path(vcf), one.contigs, region)):
        one.close()
        return ParallelBatchReader(vcf, region, samples, regions, threads)
    return one


def _write_panel(
    file: BinaryIO,
    reader: BatchReader | ParallelBatchReader,
    vcf: Path,
    genetic_map: str | Path | GeneticMap | None,
    command: str,
) -> None:
    writer: PanelWriter | None = None
    blocks: list[Sites] = []
    counts: list[np.ndarray] = []
    multiallelic: list[np.ndarray] = []
    chosen_map: GeneticMap | None = None
    for piece in reader:
        if chosen_map is None or writer is None:  # the reader knows samples and chromosome from now on
            _check_name(vcf, piece.sites.chrom)
            chosen_map = choose_map(genetic_map, piece.sites.chrom)
            writer = PanelWriter(file, int(reader.ploidy.sum()))
        blocks.append(piece.sites)
        counts.append(piece.allele_count)
        multiallelic.append(piece.multiallelic)
        writer.add_rows(piece.stored, piece.allele_count)
    assert chosen_map is not None  # a reader yields a piece or raises
    assert writer is not None
    sites = Sites.concatenate(blocks)
    _check_coverage(chosen_map, sites)
    table = SiteTable(sites, chosen_map.cM(sites.position), np.concatenate(counts))
    header = {
        "chrom": sites.chrom,
        "contig_line": _contig_line(vcf, sites.chrom, reader.contig_line),
        "samples": reader.samples,
        "ploidy": "".join(map(str, reader.ploidy.tolist())),
        "n_sites": len(sites),
        "provenance": {
            "spinimpute": package_version(),
            "source": vcf.name,
            "source_bytes": vcf.stat().st_size,
            "map": chosen_map.description,
            "command": command,
            "skipped": reader.skipped,
        },
    }
    not_looked_for = SiteDoubts.none(len(sites))
    writer.finish(encode_raw_table(table, np.concatenate(multiallelic)), not_looked_for, header)


def choose_map(genetic_map: str | Path | GeneticMap | None, chrom: str) -> GeneticMap:
    """The genetic map that a panel is built with.

    Parameters
    ----------
    genetic_map : str, Path or GeneticMap, optional
        A map or its file; without one a constant rate is taken, with a warning.
    chrom : str
        The panel's chromosome.

    Returns
    -------
    GeneticMap
        Of the panel's chromosome.

    Raises
    ------
    InputError
        The map cannot be read or is of another chromosome.
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


def _check_name(vcf: Path, chrom: str) -> None:
    """Raises InputError for a name that no panel file has."""
    if not is_chromosome(chrom):
        what = "has a space" if is_line(chrom) else "is no text of one line"
        raise InputError("content", f"panel {vcf}: chromosome {chrom!r} {what}; rename it")


def _contig_line(vcf: Path, chrom: str, line: str) -> str:
    """The file's line of the chromosome, or one that defines its name."""
    for defining in (line, f"##contig=<ID={chrom}>"):
        if is_contig_line(defining, chrom):
            return defining
    raise InputError(
        "content", f"panel {vcf}: no header can define a chromosome of the name {chrom!r}; rename it"
    )


def _check_coverage(genetic_map: GeneticMap, sites: Sites) -> None:
    """Warn of a map that lacks part of the panel, where its mean rate is assumed; refuse one that lacks most.

    Maps of X often lack its pseudo-autosomal regions, which are panels of their own: they get a warning.
    """
    if genetic_map.chrom is None:
        return
    start, end, position = genetic_map.first_position, genetic_map.last_position, sites.position
    n_covered = int(((position >= start) & (position <= end)).sum())
    if n_covered >= MOSTLY_COVERED * len(position):
        return
    text = (
        f"genetic map {genetic_map.description} covers {sites.chrom}:{start}-{end}, the panel lies at "
        f"{position[0]}-{position[-1]}: {n_covered:,} of the {len(position):,} sites are within the map"
    )
    if n_covered < HARDLY_COVERED * len(position) and not is_x(sites.chrom):
        raise InputError(
            "mismatch",
            f"{text}. Give a map of the whole region in the panel's genome build, or none: without a map "
            f"{DEFAULT_RATE:g} cM/Mb is assumed",
        )
    warnings.warn(f"{text}; the map's mean rate is assumed beyond it", stacklevel=5)
