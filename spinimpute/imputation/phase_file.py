"""`phase`: target file and panel in, the typed sites with phase out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.repair import repair_and_match
from spinimpute.genotypes.sites import check_overlap
from spinimpute.genotypes.target_reader import read_target
from spinimpute.genotypes.vcf_writer import GenotypeWriter, choose_output_type
from spinimpute.imputation.engine import default_threads
from spinimpute.imputation.phasing import phase as phase_calls
from spinimpute.imputation.pipeline import count_target, open_panel
from spinimpute.imputation.summary import ImputationSummary, peak_memory_mb
from spinimpute.output_files import check_output


def phase(
    vcf: str | Path,
    out: str | Path,
    panel: str | Path | Panel,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    output_type: str | None = None,
    header_lines: Sequence[str] = (),
    ambiguous: str = "frequency",
    threads: int | None = None,
    force: bool = False,
    progress: Callable[[float], None] | None = None,
) -> ImputationSummary:
    """Phase the genotypes of `vcf` against `panel` and each other, and write them to `out` with its index.

    Written are the typed sites that the panel has, with REF and ALT as the panel's. What is phased already
    keeps its phase; missing calls of diploid samples are filled in.

    Parameters and errors: as of `impute`; header_lines: further lines of the header.
    Returns:
        counts and timings.
    """
    out = check_output(out, force, [vcf, panel if isinstance(panel, str | Path) else panel.path, genetic_map])
    output_type = choose_output_type(out, output_type)
    threads = default_threads() if threads is None else threads
    if threads < 1:
        raise InputError(f"the number of threads must be at least 1, found {threads}")
    summary = ImputationSummary()
    with ExitStack() as stack:
        with summary.stage("open panel"):
            opened = (
                stack.enter_context(open_panel(panel, genetic_map))
                if isinstance(panel, str | Path)
                else panel
            )
        if not isinstance(opened, Panel):
            raise InputError(
                f"panel {opened.path}: inducing points have no haplotypes to phase against; give a .spin "
                "file, a VCF or a BCF"
            )
        with summary.stage("read target"):
            target = read_target(vcf, opened.sites, opened.contig_line)
            repaired = repair_and_match(opened.sites, opened.frequency, target, ambiguous)
            target, match = repaired.target, repaired.match
            if not force:
                check_overlap(opened.sites, target.sites, match)
        summary.repaired = repaired.counts()
        count_target(summary, opened, target, match)
        writer = stack.enter_context(
            GenotypeWriter(
                out,
                target.samples,
                target.ploidy,
                [opened.contig_line],
                [
                    f"##source=spinimpute {version('spinimpute')}",
                    f"##spinimpute_panel={opened.checksum}",
                    *header_lines,
                ],
                ("GT",),
                output_type,
                threads,
            )
        )
        alleles = target.alleles[match.target_index]
        unphased = (
            np.zeros((len(alleles), len(target.samples)), bool)
            if target.unphased is None
            else target.unphased[match.target_index]
        )
        summary.phased_calls, summary.phased_samples = int(unphased.sum()), int(unphased.any(axis=0).sum())
        with summary.stage("phase"):
            phased = phase_calls(
                opened, match.panel_index, alleles, unphased, target.ploidy, threads, progress, fill=True
            )
        with summary.stage("write"):
            dosage = np.where(phased < 0, np.nan, phased).astype(np.float32)
            writer.write_block(
                opened.chrom,
                opened.sites.take(match.panel_index),
                dosage,
                {},
                phased,
                np.ones(len(phased), bool),
            )
            writer.close()
        summary.written_sites = len(phased)
    summary.peak_memory_mb = peak_memory_mb()
    return summary
