"""Writes the typed sites of a target that the panel has: phased (`phase`), or as they are (`convert`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.recombination_scale import scale_line
from spinimpute.outputs.opening import RecordWriter, choose_form, open_writer
from spinimpute.panels.opening import PanelArgument, get_panel_paths
from spinimpute.phasing.phase import phase_haplotypes
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.merged_panels import open_or_merge
from spinimpute.pipeline.prepare import Prepared, prepare
from spinimpute.pipeline.settings import FileSettings, TargetSettings, check_settings
from spinimpute.pipeline.target_checksums import target_line
from spinimpute.predictors.typed_tiles import starts_line
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import peak_memory_mb
from spinimpute.runtime.output_files import check_outputs
from spinimpute.runtime.progress import Progress, Shares, begin_stage

Treatment = Callable[[Prepared, np.ndarray, np.ndarray, Progress | None], tuple[np.ndarray, np.ndarray]]


def phase(
    vcf: str | Path,
    out: str | Path,
    panel: PanelArgument,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    target: TargetSettings = TargetSettings(),
    output: FileSettings = FileSettings(),
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ImputationSummary:
    """Phase the genotypes of a target against a panel and each other, and write them with an index.

    Written are the typed sites that the panel has, with the panel's REF and ALT. Calls that are phased
    already keep their phase; missing calls of diploid samples are filled in.

    Parameters
    ----------
    vcf, out : str or Path
        As of `impute`.
    panel : ReferencePanel, str or Path, or sequence of them
        As of `impute`, of one chromosome.
    genetic_map, target
        As of `impute`.
    output : FileSettings
        The form of the output.
    threads : int, optional
        By default all processors; results do not depend on it.
    force, progress
        As of `impute`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As of `impute`, and for a panel without haplotypes.
    """
    threads = choose_threads(threads)
    summary = ImputationSummary()

    def treat(
        part: Prepared, alleles_TQ: np.ndarray, unphased_TX: np.ndarray, progress: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        panel = part.panel.haplotypes
        if panel is None:
            raise InputError(
                "content",
                f"panel {part.panel.path}: {part.panel.holds} have no haplotypes to phase against; give a "
                ".spin file, a VCF or a BCF",
            )
        summary.count_phased(unphased_TX)
        index, ploidy = part.match.panel_index, part.target.ploidy
        begin_stage(progress, "phasing")
        with summary.stage("phase"):
            phased_TQ = phase_haplotypes(
                panel,
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

    job = _Job(vcf, out, panel, genetic_map, target, output, force)
    job.run(treat, threads, summary, progress)
    return summary


def convert(
    vcf: str | Path,
    out: str | Path,
    panel: PanelArgument,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    target: TargetSettings = TargetSettings(),
    output: FileSettings = FileSettings(),
    force: bool = False,
) -> ImputationSummary:
    """Write a target of any form as a VCF or BCF with its index, matched to a panel.

    Written are the typed sites that the panel has, with the panel's REF and ALT, repaired strands and swaps,
    and phase only where there was one.

    Parameters
    ----------
    vcf, out, panel, genetic_map, target, output, force
        As of `phase`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As of `impute`.
    """
    summary = ImputationSummary()
    job = _Job(vcf, out, panel, genetic_map, target, output, force)
    job.run(lambda _, alleles, unphased, __: (alleles, unphased), choose_threads(None), summary, None)
    return summary


@dataclass(frozen=True)
class _Job:
    """From file to file; fields as the parameters of `phase`."""

    vcf: str | Path
    out: str | Path
    panel: PanelArgument
    genetic_map: str | Path | GeneticMap | None
    target: TargetSettings
    output: FileSettings
    force: bool

    def run(
        self, treat: Treatment, threads: int, summary: ImputationSummary, progress: Progress | None
    ) -> None:
        """Read, treat and write the matched sites of all parts of the chromosome."""
        check_settings(target=(self.target, TargetSettings), output=(self.output, FileSettings))
        inputs = [self.vcf, *get_panel_paths(self.panel), self.genetic_map]
        check_outputs([self.out], self.force, inputs, streamed=self.out)
        out = Path(self.out)
        form = choose_form(out, self.output.output_type)
        with ExitStack() as stack:
            panels = stack.enter_context(
                open_or_merge(
                    self.panel,
                    self.genetic_map,
                    threads,
                    lambda parts: prepare(
                        parts, self.vcf, ImputationSummary(), self.target, force=self.force
                    ),
                    summary,
                    progress,
                )
            )
            begin_stage(progress, "reading the target")
            with summary.stage("read target"):
                prepared = prepare(panels, self.vcf, summary, self.target, force=self.force)
            for part in prepared:
                part.panel.check_typed(part.match.panel_index)
            prepared = [part.with_rate() for part in prepared]
            shares = Shares(progress, [len(part.match.panel_index) for part in prepared])
            writer = stack.enter_context(
                open_writer(
                    out,
                    form,
                    prepared[0].target.samples,
                    prepared[0].target.ploidy,
                    [panels[0].contig_line],
                    [
                        f"##source=spinimpute {version('spinimpute')}",
                        *(f"{PANEL_LINE}{part.panel.checksum}" for part in prepared),
                        *(
                            scale_line(part.panel.haplotypes, part.jumps_per_cM)
                            for part in prepared
                            if part.panel.haplotypes is not None and part.jumps_per_cM is not None
                        ),
                        *([starts_line(_positions(prepared[0]))] if _may_be_read_in_part(prepared) else []),
                        target_line(prepared),
                        *self.output.header_lines,
                    ],
                    ("GT",),
                    sum(len(part.match.panel_index) for part in prepared),
                    threads,
                    sexes=self.target.sexes,
                )
            )
            for number, part in enumerate(prepared):
                _treat_and_write(part, treat, writer, summary, shares.of(number))
            writer.close()
        summary.peak_memory_mb = peak_memory_mb()


def _may_be_read_in_part(prepared: Sequence[Prepared]) -> bool:
    """Whether a part of the written file can be read alone.

    Not on a chromosome with parts, nor where some samples are haploid: their calls elsewhere show which ones.
    """
    ploidy = prepared[0].target.ploidy
    return len(prepared) == 1 and bool((ploidy == ploidy[0]).all())


def _positions(part: Prepared) -> np.ndarray:
    """Positions of the typed sites that are written, int64 (T,)."""
    return part.panel.position[part.match.panel_index]


def _treat_and_write(
    part: Prepared,
    treat: Treatment,
    writer: RecordWriter,
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
