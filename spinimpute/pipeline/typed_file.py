"""Target file and panel in, the typed sites out: with phase (`phase`), or as they are (`convert`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.devices import default_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.recombination_scale import scale_line
from spinimpute.output_files import check_output
from spinimpute.panels.panel import Panel
from spinimpute.phasing.phase import phase as phase_calls
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.prepare import AnyPanel, Prepared, open_panels, prepare
from spinimpute.predictors.haplotype_attention.chunk_starts import starts_line
from spinimpute.progress import Progress, Shares
from spinimpute.quality.summary import ImputationSummary, peak_memory_mb
from spinimpute.vcf.indexed_file import choose_output_type
from spinimpute.vcf.writer import GenotypeWriter

Treatment = Callable[[Prepared, np.ndarray, np.ndarray, Progress | None], tuple[np.ndarray, np.ndarray]]


def phase(
    vcf: str | Path,
    out: str | Path,
    panel: AnyPanel | str | Path,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    output_type: str | None = None,
    header_lines: Sequence[str] = (),
    ambiguous: str = "frequency",
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
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
    threads = default_threads() if threads is None else threads
    if threads < 1:
        raise InputError(f"the number of threads must be at least 1, found {threads}")
    summary = ImputationSummary()

    def treat(
        part: Prepared, alleles_TQ: np.ndarray, unphased_TX: np.ndarray, progress: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        if not isinstance(part.panel, Panel):
            raise InputError(
                f"panel {part.panel.path}: inducing points have no haplotypes to phase against; give a .spin "
                "file, a VCF or a BCF"
            )
        summary.count_phased(unphased_TX)
        index, ploidy = part.match.panel_index, part.target.ploidy
        with summary.stage("phase"):
            phased_TQ = phase_calls(
                part.panel,
                index,
                alleles_TQ,
                unphased_TX,
                ploidy,
                threads,
                progress,
                fill=True,
                jumps_per_cM=part.jumps_per_cM,
            )
        return phased_TQ, np.zeros_like(unphased_TX)

    job = _Job(vcf, out, panel, genetic_map, output_type, header_lines, ambiguous, sexes, chain, force)
    job.run(treat, threads, summary, progress)
    return summary


def convert(
    vcf: str | Path,
    out: str | Path,
    panel: AnyPanel | str | Path,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    output_type: str | None = None,
    header_lines: Sequence[str] = (),
    ambiguous: str = "frequency",
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
    force: bool = False,
) -> ImputationSummary:
    """Write a target of whatever form to a VCF or BCF with its index: the panel's typed sites, with its REF
    and ALT, strands and swaps repaired, and phase only where there was one.

    Parameters and errors: as of `impute`; header_lines: further lines of the header.
    Returns:
        counts and timings.
    """
    summary = ImputationSummary()
    job = _Job(vcf, out, panel, genetic_map, output_type, header_lines, ambiguous, sexes, chain, force)
    job.run(lambda _, alleles, unphased, __: (alleles, unphased), default_threads(), summary, None)
    return summary


@dataclass(frozen=True)
class _Job:
    """From file to file; parameters as of `phase`."""

    vcf: str | Path
    out: str | Path
    panel: AnyPanel | str | Path
    genetic_map: str | Path | GeneticMap | None
    output_type: str | None
    header_lines: Sequence[str]
    ambiguous: str
    sexes: dict[str, bool] | None
    chain: str | Path | None
    force: bool

    def run(
        self, treat: Treatment, threads: int, summary: ImputationSummary, progress: Progress | None
    ) -> None:
        """Read, treat and write the matched sites of all parts of the chromosome."""
        panel_path = self.panel if isinstance(self.panel, str | Path) else self.panel.path
        out = check_output(self.out, self.force, [self.vcf, panel_path, self.genetic_map])
        output_type = choose_output_type(out, self.output_type)
        with ExitStack() as stack:
            with summary.stage("open panel"):
                panels = stack.enter_context(open_panels(self.panel, self.genetic_map))
            with summary.stage("read target"):
                prepared = prepare(
                    panels,
                    self.vcf,
                    summary,
                    sexes=self.sexes,
                    chain=self.chain,
                    ambiguous=self.ambiguous,
                    force=self.force,
                )
            for part in prepared:
                part.check_array()
            prepared = [part.with_rate() for part in prepared]
            shares = Shares(progress, [len(part.match.panel_index) for part in prepared])
            writer = stack.enter_context(
                GenotypeWriter(
                    out,
                    prepared[0].target.samples,
                    prepared[0].target.ploidy,
                    [panels[0].contig_line],
                    [
                        f"##source=spinimpute {version('spinimpute')}",
                        *(f"{PANEL_LINE}{part.panel.checksum}" for part in prepared),
                        *(
                            scale_line(part.panel, part.jumps_per_cM)
                            for part in prepared
                            if isinstance(part.panel, Panel) and part.jumps_per_cM is not None
                        ),
                        *([starts_line(_positions(prepared[0]))] if _may_be_read_in_part(prepared) else []),
                        *self.header_lines,
                    ],
                    ("GT",),
                    output_type,
                    threads,
                )
            )
            for number, part in enumerate(prepared):
                _treat_and_write(part, treat, writer, summary, shares.of(number))
            writer.close()
        summary.peak_memory_mb = peak_memory_mb()


def _may_be_read_in_part(prepared: Sequence[Prepared]) -> bool:
    """Not of a chromosome with parts, nor where some samples are haploid: which, a part without their calls
    does not tell."""
    ploidy = prepared[0].target.ploidy
    return len(prepared) == 1 and bool((ploidy == ploidy[0]).all())


def _positions(part: Prepared) -> np.ndarray:
    """int64 (T,), of the typed sites that are written."""
    return part.panel.position[part.match.panel_index]


def _treat_and_write(
    part: Prepared,
    treat: Treatment,
    writer: GenotypeWriter,
    summary: ImputationSummary,
    progress: Progress | None,
) -> None:
    target, match = part.target, part.match
    alleles_TQ = target.alleles[match.target_index]
    unphased_TX = (
        np.zeros((len(alleles_TQ), len(target.samples)), bool)
        if target.unphased is None
        else target.unphased[match.target_index]
    )
    alleles_TQ, unphased_TX = treat(part, alleles_TQ, unphased_TX, progress)
    with summary.stage("write"):
        writer.set_ploidy(target.ploidy)
        writer.write_block(
            part.panel.chrom,
            part.panel.sites.take(match.panel_index),
            np.where(alleles_TQ < 0, np.nan, alleles_TQ).astype(np.float32),
            {},
            alleles_TQ,
            np.ones(len(alleles_TQ), bool),
            unphased_TX,
        )
    summary.written_sites += len(alleles_TQ)
