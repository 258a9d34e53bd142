"""`phase`: target file and panel in, the typed sites with phase out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.panel_file import Panel
from spinimpute.genotypes.vcf_writer import GenotypeWriter, choose_output_type
from spinimpute.imputation.engine import default_threads
from spinimpute.imputation.phasing import phase as phase_calls
from spinimpute.imputation.preparing import Prepared, Progress, Shares, open_panels, prepare
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
    sexes: dict[str, bool] | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
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
            panels = stack.enter_context(open_panels(panel, genetic_map))
        with summary.stage("read target"):
            prepared = prepare(panels, vcf, summary, sexes=sexes, ambiguous=ambiguous, force=force)
        opened = [_with_haplotypes(part) for part in prepared]
        writer = stack.enter_context(
            GenotypeWriter(
                out,
                prepared[0].target.samples,
                prepared[0].target.ploidy,
                [prepared[0].panel.contig_line],
                [
                    f"##source=spinimpute {version('spinimpute')}",
                    *(f"##spinimpute_panel={one.checksum}" for one in panels),
                    *header_lines,
                ],
                ("GT",),
                output_type,
                threads,
            )
        )
        shares = Shares(progress, [len(part.match.panel_index) for part in prepared])
        for number, (part, one) in enumerate(zip(prepared, opened, strict=True)):
            target, match = part.target, part.match
            alleles = target.alleles[match.target_index]
            unphased = (
                np.zeros((len(alleles), len(target.samples)), bool)
                if target.unphased is None
                else target.unphased[match.target_index]
            )
            summary.count_phased(unphased)
            with summary.stage("phase"):
                phased = phase_calls(
                    one,
                    match.panel_index,
                    alleles,
                    unphased,
                    target.ploidy,
                    threads,
                    shares.of(number),
                    fill=True,
                )
            with summary.stage("write"):
                writer.set_ploidy(target.ploidy)
                writer.write_block(
                    one.chrom,
                    one.sites.take(match.panel_index),
                    np.where(phased < 0, np.nan, phased).astype(np.float32),
                    {},
                    phased,
                    np.ones(len(phased), bool),
                )
            summary.written_sites += len(phased)
        writer.close()
    summary.peak_memory_mb = peak_memory_mb()
    return summary


def _with_haplotypes(part: Prepared) -> Panel:
    if not isinstance(part.panel, Panel):
        raise InputError(
            f"panel {part.panel.path}: inducing points have no haplotypes to phase against; give a .spin "
            "file, a VCF or a BCF"
        )
    return part.panel
