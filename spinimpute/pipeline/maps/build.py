"""Panel files with the genetic map that fits them best, and with the sites that are predicted badly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.hmm.maps.estimated import estimated_map
from spinimpute.panels import build, spin_files
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.trust.judging import find_doubts
from spinimpute.runtime.devices import default_threads


def refine_panel(
    panel: Panel,
    folder: Path,
    threads: int | None = None,
    *,
    keep_map: bool = False,
    judge_sites: bool = True,
) -> build.Refinement:
    """What a panel's own haplotypes say of its genetic map and of its sites.

    Parameters
    ----------
    panel : Panel
        Open.
    folder : Path
        For temporary files.
    threads : int, optional
        By default all processors. Results do not depend on it.
    keep_map : bool
        Do not estimate a map.
    judge_sites : bool
        Look for sites whose predictions are too certain.

    Returns
    -------
    Refinement
        See `estimated_map` and `find_doubts`.
    """
    threads = default_threads() if threads is None else max(1, threads)
    estimated = None if keep_map else estimated_map(panel, panel.frequency, threads)
    doubts = find_doubts(panel, folder, threads) if judge_sites else None
    panel.release_memory()
    if estimated is None:
        return build.Refinement(None, {}, doubts)
    description = {"sites": estimated.n_sites, "gain": round(estimated.gain, 4)}
    return build.Refinement(estimated.cM_X, description, doubts)


def map_only(panel: Panel, folder: Path) -> build.Refinement:
    """The refinement for a panel that is only looked at: its genetic map."""
    return refine_panel(panel, folder, judge_sites=False)


def build_panel(
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
    keep_map: bool = False,
) -> Panel:
    """Build a panel file from a phased VCF, VCF.gz or BCF of one chromosome and open it.

    The bytes depend only on the VCF and on the arguments, `threads` excepted. They are written to a temporary
    file beside `out` which takes its name when it is complete. Of several records with the same position and
    alleles one is kept, or none if they differ; provenance["skipped"] counts what is left out, by reason.

    Parameters
    ----------
    vcf : str or Path
        VCF, VCF.gz or BCF.
    out : str or Path
        By convention `.spin`.
    genetic_map : str, Path or GeneticMap, optional
        A map or its file; without one a constant rate is assumed, with a warning.
    region : Region, optional
        The part of the chromosome to take; by default all.
    samples : sequence of str, optional
        The samples to take; by default all.
    force : bool
        Overwrite `out`.
    command : str
        Kept in the provenance.
    threads : int
        That estimate the map. With more than one, a large VCF with an index is read by so many processes;
        they start by running the main script again, which must do its work under `if __name__ == "__main__"`.
    keep_phase : bool
        Keep rare alleles on the haplotypes that the VCF puts them on. By default those that are on the wrong
        haplotype of their carrier are moved; provenance["rare alleles moved"] says how many.
    keep_map : bool
        Keep the genetic map. By default it is estimated from the panel's haplotypes, and the estimate is
        taken if it explains haplotypes that were left out better; provenance["map estimated"] says so.

    Returns
    -------
    Panel
        Of the file that was written.

    Raises
    ------
    InputError
        The VCF or the map cannot be read or is not as it has to be, a call is missing, `out` exists without
        `force`, or its folder cannot be written to.
    """
    return build.compile_panel(
        vcf, out, genetic_map, region, samples, force, command, threads, keep_phase,
        refine=partial(refine_panel, threads=threads, keep_map=keep_map),
    )  # fmt: skip


def build_panels(
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
    keep_map: bool = False,
) -> None:
    """Build a panel file as `build_panel` does; of a chromosome X of known genome build, one of parts.

    Read it with `open_panels`.

    Parameters
    ----------
    vcf, out, genetic_map, region, samples, force, command, threads, keep_phase, keep_map
        As for `build_panel`.

    Raises
    ------
    InputError
        As `build_panel`.
    """
    spin_files.compile_panel_file(
        vcf, out, genetic_map, region, samples, force, command, threads, keep_phase,
        refine=partial(refine_panel, threads=threads, keep_map=keep_map),
    )  # fmt: skip
