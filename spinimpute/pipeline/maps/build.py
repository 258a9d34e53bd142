"""Build panel files from VCF or BCF, with an estimated genetic map and a list of poorly predicted sites."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.hmm.maps.estimated import estimated_map
from spinimpute.panels import build, spin_files
from spinimpute.panels.formats.detection import PanelSource
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.trust.doubts import find_doubts
from spinimpute.runtime.devices import choose_threads


def refine_panel(
    panel: Panel,
    folder: Path,
    threads: int | None = None,
    *,
    keep_map: bool = False,
    find_bad_sites: bool = True,
) -> build.Refinement:
    """Estimate a genetic map, and find poorly predicted sites, from the haplotypes of a panel.

    Temporary files are written to `folder`. Results do not depend on `threads`.
    """
    threads = choose_threads(None) if threads is None else max(1, threads)
    estimated = None if keep_map else estimated_map(panel, panel.frequency, threads)
    doubts = find_doubts(panel, folder, threads) if find_bad_sites else None
    panel.release_memory()
    if estimated is None:
        return build.Refinement(None, {}, doubts)
    description = {"sites": estimated.n_sites, "gain": round(estimated.gain, 4)}
    return build.Refinement(estimated.cM_X, description, doubts)


def estimate_map_only(panel: Panel, folder: Path) -> build.Refinement:
    """Estimate only the genetic map of a panel; `check` needs no list of poorly predicted sites."""
    return refine_panel(panel, folder, find_bad_sites=False)


def build_panel(
    vcf: PanelSource,
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
    split_multiallelic: bool = False,
) -> Panel:
    """Build a panel file from the phased haplotypes of one chromosome and open it.

    The content depends only on the haplotypes and the arguments, but not on `threads`. The file is written
    under a temporary name and renamed when complete. Records with the same position and alleles are merged if
    their genotypes are equal, otherwise dropped. provenance["skipped"] counts dropped records by reason.

    Parameters
    ----------
    vcf : str, Path or HapLegend
        VCF, VCF.gz, BCF or M3VCF, or the haplotypes of IMPUTE.
    out : str or Path
        Panel file (`.spin`).
    genetic_map : str, Path or GeneticMap, optional
        Genetic map. Without a map, 1 cM/Mb is assumed and a warning is issued.
    region : Region, optional
        Part of the chromosome to include. Default: all.
    samples : sequence of str, optional
        Samples to include. Default: all.
    force : bool
        Overwrite `out` if it exists.
    command : str
        Recorded in the provenance.
    threads : int
        Number of threads that estimate the map, and of processes that read a large indexed VCF. Each process
        imports the main script, so this script must do its work under `if __name__ == "__main__"`.
    keep_phase : bool
        Keep the phase of rare alleles. By default, rare alleles on the wrong haplotype of their carrier are
        switched; provenance["rare alleles moved"] counts them.
    keep_map : bool
        Keep the given genetic map. By default, a map is estimated from the panel's haplotypes. It replaces
        the given map if it explains held-out haplotypes better; provenance["map estimated"] records this.
    split_multiallelic : bool
        Treat each ALT of a multi-allelic record as a biallelic site. By default, the probabilities of its
        alleles add up to 1, and `impute` writes one record.

    Returns
    -------
    Panel
        The opened panel file.

    Raises
    ------
    InputError
        The VCF or map is invalid, a genotype is missing, `out` cannot be written, or, without `force`, `out`
        exists.
    """
    refine = partial(refine_panel, threads=threads, keep_map=keep_map)
    return build.compile_panel(
        build.BuildJob(
            vcf,
            out,
            genetic_map,
            region,
            samples,
            force,
            command,
            threads,
            keep_phase,
            refine,
            split_multiallelic,
        )
    )


def build_panels(
    vcf: PanelSource,
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
    split_multiallelic: bool = False,
) -> None:
    """Build a panel file as `build_panel` does, but split chromosome X at the pseudo-autosomal boundaries.

    Open the file with `open_panels`.

    Parameters
    ----------
    vcf, out, genetic_map, region, samples, force, command, threads, keep_phase, keep_map, split_multiallelic
        See `build_panel`.

    Raises
    ------
    InputError
        See `build_panel`.
    """
    refine = partial(refine_panel, threads=threads, keep_map=keep_map)
    spin_files.compile_panel_file(
        build.BuildJob(
            vcf,
            out,
            genetic_map,
            region,
            samples,
            force,
            command,
            threads,
            keep_phase,
            refine,
            split_multiallelic,
        )
    )
