"""`phase` and `convert`: write the typed sites of a target that are in the panel, phased or unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.recombination_scale import scale_line
from spinimpute.outputs.opening import RecordWriter, choose_format
from spinimpute.panels.opening import PanelArgument, get_panel_paths
from spinimpute.phasing.phase import phase_haplotypes
from spinimpute.pipeline.chunk_file import target_line
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.output_steps import open_or_merge, open_outputs
from spinimpute.pipeline.run_plan import list_panels, plan_run
from spinimpute.pipeline.settings import FileSettings, OutputSettings, TargetSettings, check_settings
from spinimpute.predictors.typed_tiles import starts_line
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_outputs
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.vcf.record_block import RecordBlock


def phase(
    vcf: str | Path | Sequence[str | Path],
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
    """Phase the genotypes of a target, using a panel and the other samples, and write them with an index.

    The output contains the typed sites that are in the panel, with the panel's REF and ALT. Phased genotypes
    keep their phase. Missing genotypes of diploid samples are imputed.

    Parameters
    ----------
    vcf, out, panel, genetic_map, target
        As in `impute`.
    output : FileSettings
        Format and header lines of the output.
    threads : int, optional
        Number of threads. Default: all processors. Results do not depend on it.
    force, progress
        As in `impute`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As in `impute`, and if the panel has no haplotypes.
    """

    def phase_calls(
        one: MatchedTarget, summary: ImputationSummary, share: Progress | None
    ) -> tuple[np.ndarray, np.ndarray]:
        haplotypes = one.panel.haplotypes
        if haplotypes is None:
            raise InputError(
                "mismatch",
                f"panel {one.panel.path}: phasing needs haplotypes, but the panel holds "
                f"{one.panel.holds}. Give a .spin file, a VCF or a BCF",
            )
        alleles_TQ, unphased_TX = _typed_calls(one)
        summary.count_phased(unphased_TX)
        begin_stage(share, "phasing")
        with summary.stage("phase"):
            phased_TQ = phase_haplotypes(
                haplotypes,
                one.match.panel_index,
                alleles_TQ,
                unphased_TX,
                one.target.ploidy,
                n_threads,
                share,
                fill=True,
                jumps_per_cM=one.jumps_per_cM,
            )
        return phased_TQ, np.zeros_like(unphased_TX)

    n_threads = choose_threads(threads)
    job = _TypedFileJob(vcf, out, panel, genetic_map, target, output, n_threads, force)
    return job.run(phase_calls, progress)


def convert(
    vcf: str | Path | Sequence[str | Path],
    out: str | Path,
    panel: PanelArgument,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    target: TargetSettings = TargetSettings(),
    output: FileSettings = FileSettings(),
    force: bool = False,
) -> ImputationSummary:
    """Convert a target of any format to VCF, BCF, PLINK 2 or BGEN, matched to a panel.

    The output contains the typed sites that are in the panel, with the panel's REF and ALT. Alleles of the
    other strand and exchanged alleles are repaired. Phased and unphased genotypes remain as they are.

    Parameters
    ----------
    vcf, out, panel, genetic_map, target, output, force
        As in `phase`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As in `impute`.
    """
    job = _TypedFileJob(vcf, out, panel, genetic_map, target, output, choose_threads(None), force)
    summary = job.run(lambda one, *_: _typed_calls(one), None)
    summary.missing_calls = 0  # unlike in `impute` and `phase`, missing calls are not imputed
    return summary


# returns alleles (T, Q) and unphased genotypes (T, X) to write, like `_typed_calls`
_MakeCalls = Callable[[MatchedTarget, ImputationSummary, Progress | None], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _TypedFileJob:
    """The parameters of `phase` or `convert`."""

    vcf: str | Path | Sequence[str | Path]
    out: str | Path
    panel: PanelArgument
    genetic_map: str | Path | GeneticMap | None
    target: TargetSettings
    output: FileSettings
    threads: int
    force: bool

    def run(self, make_calls: _MakeCalls, progress: Progress | None) -> ImputationSummary:
        """Read the target on each chromosome of the panels, and write the calls that `make_calls` returns."""
        check_settings(target=(self.target, TargetSettings), output=(self.output, FileSettings))
        files = [self.vcf] if isinstance(self.vcf, str | Path) else list(self.vcf)
        panels, summary = list_panels(self.panel), ImputationSummary()
        output = OutputSettings(
            ("GT",),
            output_type=self.output.output_type,
            header_lines=self.output.header_lines,
            split_multiallelic=True,
        )
        with summary.stage("open panel"):
            plan = plan_run(self.out, files, panels, (), output.output_type, self.genetic_map)
        summary.warnings += plan.warnings
        outs = list(plan.outputs)
        check_outputs(
            outs, self.force, [*files, *get_panel_paths(panels), self.genetic_map], streamed=outs[0]
        )
        choose_format(outs[0], output.output_type)
        with open_outputs(plan, summary, output, self.threads, self.target.sexes) as outputs:
            for step in outputs.steps(progress):
                chromosome = step.chromosome
                read_matching = partial(
                    read_matched, vcf=chromosome.vcf, settings=self.target, force=self.force
                )
                with (
                    outputs.skip_if_absent(step),
                    open_or_merge(
                        chromosome.panels,
                        self.genetic_map,
                        self.threads,
                        read_matching,
                        summary,
                        step.progress,
                    ) as parts,
                ):
                    begin_stage(step.progress, "reading the target")
                    with summary.stage("read target"):
                        read = read_matching(parts)
                    read.count(summary)
                    for one in read.matched:
                        one.panel.check_typed(one.match.panel_index)
                    matched = [one.with_recombination_scale() for one in read.matched]
                    first, n_sites = matched[0].target, [len(one.match.panel_index) for one in matched]
                    writer = step.open_writer(
                        first.samples,
                        first.ploidy,
                        parts,
                        sum(n_sites),
                        region_lines=_header_lines(matched) if len(step.chromosomes) == 1 else (),
                    )
                    shares = split_progress(step.progress, n_sites)
                    for one, share in zip(matched, shares, strict=True):
                        _write_records(one, *make_calls(one, summary, share), writer, summary)
        return summary


def _header_lines(matched: Sequence[MatchedTarget]) -> list[str]:
    """Return header lines of a chromosome by which `impute` can read only a part of the file."""
    scales = [
        scale_line(one.panel.haplotypes, one.jumps_per_cM)
        for one in matched
        if one.panel.haplotypes is not None and one.jumps_per_cM is not None
    ]
    # `starts_line` allows `impute` to read only a part of the file. We omit it if the chromosome has parts
    # or if only some samples are haploid, because all calls are needed to recognize haploid samples.
    first = matched[0]
    starts = []
    if len(matched) == 1 and (first.target.ploidy == first.target.ploidy[0]).all():
        starts = [starts_line(first.panel.position[first.match.panel_index])]
    return [*scales, *starts, target_line([one.resolved.haplotypes for one in matched])]


def _typed_calls(matched: MatchedTarget) -> tuple[np.ndarray, np.ndarray]:
    """Return alleles at the matched sites, int8 (T, Q), and which genotypes are unphased, bool (T, X)."""
    target, index_T = matched.target, matched.match.target_index
    alleles_TQ = target.alleles[index_T]
    if target.unphased is None:
        return alleles_TQ, np.zeros((len(alleles_TQ), len(target.samples)), bool)
    return alleles_TQ, target.unphased[index_T]


def _write_records(
    matched: MatchedTarget,
    alleles_TQ: np.ndarray,
    unphased_TX: np.ndarray,
    writer: RecordWriter,
    summary: ImputationSummary,
) -> None:
    with summary.stage("write"):
        writer.set_ploidy(matched.target.ploidy)
        writer.write_block(
            RecordBlock(
                matched.panel.chrom,
                matched.panel.sites.take(matched.match.panel_index),
                np.where(alleles_TQ < 0, np.nan, alleles_TQ).astype(np.float32),
                {},
                alleles_TQ,
                np.ones(len(alleles_TQ), bool),
                unphased_TX,
            )
        )
    summary.written_sites += len(alleles_TQ)
