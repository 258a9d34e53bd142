"""`impute`: target file and panel in, imputed file out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoMatch, Region
from spinimpute.genotypes.untyped_intervals import FAR_CM
from spinimpute.outputs.opening import choose_format
from spinimpute.panels.opening import get_panel_path, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import REGIONS_LINE, region_line
from spinimpute.pipeline.impute_target import TargetImputer, flags_far
from spinimpute.pipeline.matched_target import read_matched
from spinimpute.pipeline.merged_panels import open_or_merge
from spinimpute.pipeline.output_steps import OutputFiles, Step
from spinimpute.pipeline.regions import (
    RegionSelection,
    RegionTarget,
    RegionTargets,
    read_regions,
    unmatched_sites,
)
from spinimpute.pipeline.run_plan import Panel, RunPlan, panel_files, plan_run, target_files
from spinimpute.pipeline.settings import (
    OutputSettings,
    PredictorSettings,
    RegionSettings,
    Resources,
    TargetSettings,
    check_settings,
)
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.loading import predictor_for
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.memory import within_budget
from spinimpute.runtime.output_files import check_outputs, written_whole
from spinimpute.runtime.progress import Progress, begin_stage, split_progress

PHASING = ("auto", "never")
ER2_LINE = (
    '##INFO=<ID=ER2,Number=1,Type=Float,Description="Typed sites: squared correlation of the genotypes and '
    'what the other typed sites of the same haplotypes predict (leave one out)">'
)
FAR_LINE = (
    f'##INFO=<ID=FAR,Number=0,Type=Flag,Description="Further than {FAR_CM} cM from any typed site: little '
    'more than a guess by frequency">'
)


def impute(
    vcf: str | Path | Sequence[str | Path],
    out: str | Path,
    panel: ReferencePanel | str | Path | Sequence[ReferencePanel | str | Path],
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    predictor: PredictorSettings = PredictorSettings(),
    target: TargetSettings = TargetSettings(),
    phasing: str = "auto",
    region: RegionSettings = RegionSettings(),
    output: OutputSettings = OutputSettings(),
    resources: Resources = Resources(),
    min_typed_ratio: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ImputationSummary:
    """Impute the haplotypes of a target at all sites of a panel, and write them with an index.

    Several chromosomes are imputed one after the other, with the memory of one. Their records are those of
    runs with one panel each.

    Parameters
    ----------
    vcf : str or Path, or sequence of them
        The target: VCF, BCF, PLINK, consumer array text or Illumina FinalReport; may contain other
        chromosomes too. Or several VCF or BCF files of the same samples, one per chromosome.
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`, or "-" for standard output; `.pgen`, with `.pvar` and `.psam` beside it;
        or `.bgen`, with `.sample`. The file appears when it is complete. "{chrom}" in the name stands for the
        chromosome: one file for each, as `.pgen` and `.bgen` require.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` or `.spip` file, an open `Panel` or `InducingPanel`, or a VCF or BCF, which is compiled
        first. Or panel files in any order, or a folder of them: one per chromosome; several of a chromosome
        are merged as by `merge_panels`, in the given order.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    predictor : PredictorSettings
        The predictor; by default haplotype attention for panels of haplotypes.
    target : TargetSettings
        How the target is read.
    phasing : str
        "auto" phases unphased heterozygotes first, against the panel and the other samples; "never" refuses
        them. A panel without haplotypes also refuses them.
    region : RegionSettings
        Which panel sites are imputed; by default all.
    output : OutputSettings
        What is written.
    resources : Resources
        Threads, device and memory.
    min_typed_ratio : float, optional
        Refuse a target in which a smaller share of panel sites is typed, in any 5 cM of the panel that the
        region touches; 0 to 1.
    force : bool
        Overwrite existing files; continue even if the target does not fit the panel.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input cannot be used; without `force`, also if `out` exists or the target does not fit the panel.
    """
    check_settings(
        predictor=(predictor, PredictorSettings),
        target=(target, TargetSettings),
        region=(region, RegionSettings),
        output=(output, OutputSettings),
        resources=(resources, Resources),
    )
    files, panels = target_files(vcf), panel_files(panel)
    regions, buffer_cM = region.parsed()
    selection = RegionSelection(regions, buffer_cM, target, min_typed_ratio)
    summary = ImputationSummary()
    run = _RunConfig(genetic_map, predictor, phasing, selection, output, resources, force, summary)
    run.check()
    with summary.stage("open panel"):
        plan = plan_run(out, files, panels, regions, output.output_type, genetic_map)
    summary.warnings += plan.warnings
    inputs = [*files, *map(get_panel_path, panels), predictor.model, genetic_map, region.regions_file]
    run.check_outputs(plan, inputs)
    if plan.several:
        run.check_panels(plan)
    with OutputFiles(plan, summary) as outputs:
        for step in outputs.steps(progress):
            with step:
                _impute_chromosome(run, step)
        with _reports(run, files, panels):
            outputs.finish()
    return summary


@dataclass(frozen=True)
class _RunConfig:
    """Settings that hold for all chromosomes: the parameters of `impute`."""

    genetic_map: str | Path | GeneticMap | None
    predictor: PredictorSettings
    phasing: str
    selection: RegionSelection
    output: OutputSettings
    resources: Resources
    force: bool
    summary: ImputationSummary

    @property
    def tables(self) -> dict[str, Path]:
        """Output files of the leave-one-out tables."""
        return {table: Path(path) for table, path in self.output.leave_one_out_tables.items()}

    @property
    def collects_quality(self) -> bool:
        """Whether the quality of typed genotypes is collected during the run."""
        return self.output.leave_one_out or self.output.report_files.wanted

    def check(self) -> None:
        """Raise InputError for settings that cannot be used, or not together."""
        least, buffer_cM = self.selection.min_typed_ratio, self.selection.buffer_cM
        if self.phasing not in PHASING:
            raise InputError(
                "argument", f"{argument('phasing')} must be one of {', '.join(PHASING)}, got {self.phasing!r}"
            )
        if least is not None and not 0 <= least <= 1:
            raise InputError(
                "argument", f"{argument('min_typed_ratio')} must be between 0 and 1, got {least}"
            )
        names = [argument("report"), argument("report_figures"), argument("multiqc")]
        quality = f"{argument('leave_one_out', True)}, {', '.join(names[:-1])} or {names[-1]}"
        if self.resources.max_memory is not None and self.collects_quality:
            raise InputError(
                "arguments",
                f"{argument('max_memory')} cannot be kept with {quality}. Leave it out, or leave these out",
            )
        if buffer_cM is not None and len(self.selection.regions) > 1 and self.collects_quality:
            raise InputError(
                "arguments",
                f"{argument('buffer_cM')} around several regions would count typed genotypes twice in "
                f"{quality}. Leave it out, or leave these out",
            )

    def check_outputs(self, plan: RunPlan, inputs: Sequence[object]) -> None:
        """Raise InputError if genotypes, tables or the report cannot be written."""
        outs = plan.paths
        others = [*outs, *self.tables.values()]
        reports = self.output.report_files.to_check(others)
        check_outputs([*others, *reports], self.force, inputs, streamed=outs[0])
        choose_format(outs[0], self.output.output_type)

    def check_panels(self, plan: RunPlan) -> None:
        """Raise InputError, before any target is read, if the predictor cannot read one of the panels."""
        for chromosome in plan.chromosomes:
            with open_reference(chromosome.panels[0]) as panels:
                self.check_leave_one_out(panels)
                self.load_predictor(panels)

    def check_leave_one_out(self, panels: Sequence[ReferencePanel]) -> None:
        """Raise InputError if genotypes are to be left out and the panel has no haplotypes."""
        if self.output.leave_one_out and panels[0].haplotypes is None:
            raise InputError(
                "mismatch",
                f"panel {panels[0].path}: leave-one-out needs haplotypes, but the panel holds "
                f"{panels[0].holds}. Give a .spin file, a VCF or a BCF",
            )

    def load_predictor(self, panels: Sequence[ReferencePanel]) -> tuple[Predictor, dict[str, Any]]:
        """Return the predictor for a panel, and its options."""
        with self.summary.stage("load model"):
            return predictor_for(
                panels[0],
                self.predictor.model,
                self.predictor.name,
                self.resources.predictor_options(self.predictor),
                self.resources.device,
            )

    def selection_for(self, step: Step, panels: Sequence[ReferencePanel]) -> RegionSelection:
        """Return the selection with the regions on one chromosome."""
        regions, _ = step.regions(self.selection.regions, panels[0].chrom)
        return RegionSelection(
            regions, self.selection.buffer_cM, self.selection.settings, self.selection.min_typed_ratio
        )

    def allow_unphased(self, panels: Sequence[ReferencePanel]) -> bool:
        """Whether unphased heterozygotes can be phased against the parts of a panel."""
        return self.phasing == "auto" and panels[0].haplotypes is not None

    def check_target(self, step: Step, panels: Sequence[ReferencePanel]) -> None:
        """Raise InputError, before panels are merged, if the target cannot be imputed from one of them."""
        vcf, selection = step.chromosome.vcf, self.selection_for(step, panels)
        only = selection.part_to_check(vcf, panels)
        try:
            with within_budget(self.resources.max_memory, "reading the target"):
                read_matched(
                    panels,
                    vcf,
                    selection.settings,
                    allow_unphased=self.allow_unphased(panels),
                    only=only,
                    force=self.force,
                )
        except NoMatch:
            if only is None:  # otherwise the rest of the target may fit
                raise


def _impute_chromosome(run: _RunConfig, step: Step) -> None:
    """Open the panel, read the target, phase and impute it, and write its records."""
    summary, output, progress = run.summary, run.output, step.progress
    threads = choose_threads(run.resources.threads)
    with open_or_merge(
        step.chromosome.panels, run.genetic_map, threads, partial(run.check_target, step), summary, progress
    ) as panels:
        run.check_leave_one_out(panels)
        predictor, options = run.load_predictor(panels)
        begin_stage(progress, "reading the target")
        with summary.stage("read target"):
            targets = read_regions(
                step.chromosome.vcf,
                panels,
                predictor,
                run.selection_for(step, panels),
                allow_unphased=run.allow_unphased(panels),
                max_memory=run.resources.max_memory,
                force=run.force,
            )
        targets.count(summary)
        _collect_quality(run, targets.chosen, step.chromosome.vcf, predictor)
        unmatched: list[np.ndarray | None] = [None] * len(targets.chosen)
        if output.keep_unmatched:
            for number, target in enumerate(targets.chosen):
                unmatched[number], warnings = unmatched_sites(target)
                summary.warnings += warnings
        first = targets.chosen[0].matched
        if not summary.notes:
            summary.note_few_samples(summary.samples)
        n_unmatched = sum(len(rows) for rows in unmatched if rows is not None)
        writer = step.writer(
            first.target.samples,
            first.target.ploidy,
            panels,
            output,
            [f"##spinimpute_model={predictor.kind} {predictor.fingerprint} {predictor.device_name}"],
            _region_lines(run, step, targets, n_unmatched),
            sum(target.n_sites for target in targets.chosen) + n_unmatched,
            threads,
            sexes=run.selection.settings.sexes,
            info_lines=[
                *([ER2_LINE] if output.leave_one_out else []),
                *([FAR_LINE] if flags_far(first.panel) else []),
            ],
        )
        imputer = TargetImputer(predictor, options, writer, summary, threads, write_er2=output.leave_one_out)
        shares = split_progress(progress, [target.n_sites for target in targets.chosen])
        for number, target in enumerate(targets.chosen):
            imputer.impute(target, unmatched[number], shares[number])


def _collect_quality(
    run: _RunConfig, chosen: Sequence[RegionTarget], vcf: str | Path, predictor: Predictor
) -> None:
    """Have the summary collect what the output needs; rarely needed modules are imported here."""
    summary, output, first = run.summary, run.output, chosen[0].matched
    reported = output.report_files.wanted
    if reported:
        from spinimpute.quality.report_data import ReportData
        from spinimpute.quality.sample_quality import SampleQuality

        data = summary.report_data = summary.report_data or ReportData(SampleQuality(first.target.samples))
        made = data.provenance
        made.add_run(
            output.header_lines, f"{predictor.kind}, {predictor.fingerprint}, on {predictor.device_name}"
        )
        made.add_target(Path(vcf).name, first.target.contig_line, first.panel.chrom)
        for one in chosen:
            matched = one.matched
            made.add_panel(matched.panel)
            data.frequencies.add(matched.panel, matched.target, matched.match)
            data.by_sample.add_calls(
                matched.target.alleles[matched.match.target_index], matched.target.ploidy
            )
    wanted = output.leave_one_out or (reported and first.panel.haplotypes is not None)
    if wanted and summary.leave_one_out is None:
        from spinimpute.quality.leave_one_out import LeaveOneOutQuality

        summary.leave_one_out = LeaveOneOutQuality(list(first.target.samples))


def _region_lines(run: _RunConfig, step: Step, targets: RegionTargets, n_unmatched: int) -> list[str]:
    """Header lines that make an output of one region a chunk, or count its regions."""
    chosen = targets.chosen
    panel = chosen[0].matched.panel
    regions, n_in_file = step.regions(run.selection.regions, panel.chrom)
    if n_in_file != 1:
        return [f"{REGIONS_LINE}{n_in_file}"] if n_in_file else []
    return [
        region_line(
            Region(panel.chrom, regions[0].start, regions[0].end),
            sum(one.n_sites for one in chosen),
            n_unmatched if run.output.keep_unmatched else None,
            any(one.matched.target.unphased is not None for one in chosen),
        ),
        targets.target_line,
    ]


@contextmanager
def _reports(run: _RunConfig, files: Sequence[str | Path], panels: Sequence[Panel]) -> Iterator[None]:
    """Write report and tables under temporary names; they get their names at the end of the block."""
    summary, report = run.summary, run.output.report_files
    with ExitStack() as stack:
        if report.wanted:
            from spinimpute.reports.imputation_report import imputation_report
            from spinimpute.reports.multiqc import typed_samples

            data = summary.report_data
            assert data is not None, "`_collect_quality` made them"
            target = Path(files[0]).name if len(files) == 1 else f"{len(files)} files"
            panel = Path(get_panel_path(panels[0])).name if len(panels) == 1 else f"{len(panels)} panels"
            report.write(
                imputation_report(summary, data, target, panel),
                typed_samples(data.by_sample, summary.leave_one_out),
                stack,
            )
        if summary.leave_one_out is not None:
            for table, path in run.tables.items():
                summary.leave_one_out.write(table, stack.enter_context(written_whole(path)))
        yield
