"""Panel files with the genetic map that is best for them: the given one, or one estimated from the panel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from spinimpute.devices import default_threads
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.hmm.maps.estimated import estimated_map
from spinimpute.panels import build, parts
from spinimpute.panels.panel import Panel


def better_map(panel: Panel, threads: int | None = None) -> build.BetterMap | None:
    """A panel's map as its own haplotypes show it, if it is better than the one that it has.

    Parameters
    ----------
    panel : Panel
        Open.
    threads : int, optional
        By default all processors.

    Returns
    -------
    BetterMap or None
        As of `estimated_map`.
    """
    found = estimated_map(panel, panel.frequency, default_threads() if threads is None else max(1, threads))
    panel.release_memory()
    if found is None:
        return None
    return build.BetterMap(found.cM_X, {"sites": found.n_sites, "gain": round(found.gain, 4)})


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
    alleles the first is kept; provenance["skipped"] has the numbers of records not taken, by reason.

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
    return build.build_panel(
        vcf, out, genetic_map, region, samples, force, command, threads, keep_phase,
        estimate_map=None if keep_map else partial(better_map, threads=threads),
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
    parts.build_panels(
        vcf, out, genetic_map, region, samples, force, command, threads, keep_phase,
        estimate_map=None if keep_map else partial(better_map, threads=threads),
    )  # fmt: skip
