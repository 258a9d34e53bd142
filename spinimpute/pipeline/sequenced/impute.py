"""`impute` for sequenced samples: likelihoods or reads and a panel in, imputed file out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.outputs.opening import choose_format
from spinimpute.panels.opening import PanelArgument, get_panel_path
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.genotypes import genotypes_by_window, threads_within
from spinimpute.pipeline.chunk_file import REGIONS_LINE, region_line
from spinimpute.pipeline.merged_panels import open_or_merge
from spinimpute.pipeline.output_steps import OutputFiles, Step
from spinimpute.pipeline.run_plan import Panel, panel_files, plan_run
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.intervals import SequencedInterval, check_inputs, read_intervals
from spinimpute.pipeline.sequenced.records import SequencedRecords
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources, check_settings
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.memory import fewer_samples, within_budget
from spinimpute.runtime.output_files import check_outputs
from spinimpute.runtime.progress import Progress, begin_stage, split_progress


def impute_sequenced(
    out: str | Path,
    panel: PanelArgument,
    sequencing: SequencingSettings,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    region: RegionSettings = RegionSettings(),
    output: OutputSettings = OutputSettings(),
    resources: Resources = Resources(),
    force: bool = False,
    progress: Progress | None = None,
) -> SequencedSummary:
    """Impute sequenced samples at all sites of a panel, with phase, and write them with an index.

    No sample's result depends on the others. Several chromosomes are imputed one after the other, with the
    memory of one. Their records are those of runs with one panel each.

    Parameters
    ----------
    out : str or Path
        Output file, as for `impute`.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` file, an open `Panel`, or a VCF or BCF, which is compiled first. Or panel files in any
        order, or a folder of them: one per chromosome; several of a chromosome are merged as by
        `merge_panels`, in the given order.
    sequencing : SequencingSettings
        Likelihoods, reads and array genotypes of the samples.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    region : RegionSettings
        Which panel sites are imputed, by default all. The default buffer is 1 cM. Regions whose buffers
        overlap are imputed together: their records depend on which other regions are given.
    output : OutputSettings
        Formats, decimals, type and header lines of the file, and a report; other settings are ignored.
    resources : Resources
        Threads and memory: fewer threads are used where memory is too small for all.
    force : bool
        Overwrite existing files; continue even if an array's genotypes do not fit the panel, or likelihoods
        and reads cover the same sites of a sample.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    SequencedSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input cannot be used; memory is too small for one thread; or, without `force`, `out` exists.
    """
    check_settings(
        sequencing=(sequencing, SequencingSettings),
        region=(region, RegionSettings),
        output=(output, OutputSettings),
        resources=(resources, Resources),
    )
    files, panels = sequencing.likelihood_files, panel_files(panel)
    regions, buffer_cM = region.parsed()
    summary = SequencedSummary()
    with summary.stage("open panel"):
        plan = plan_run(out, files, panels, regions, output.output_type, genetic_map)
    summary.warnings += plan.warnings
    inputs = [*map(get_panel_path, panels), genetic_map, *sequencing.paths, region.regions_file]
    reports = output.report_files.to_check(plan.paths)
    check_outputs([*plan.paths, *reports], force, inputs, streamed=plan.paths[0])
    choose_format(plan.paths[0], output.output_type)
    run = _RunConfig(sequencing, genetic_map, regions, buffer_cM, output, resources, force, summary)
    with OutputFiles(plan, summary) as outputs:
        for step in outputs.steps(progress):
            with step:
                _impute_chromosome(run, step)
        summary.warnings += summary.coverage.warnings()  # of all chromosomes
        with _report(run, panels):
            outputs.finish()
    return summary


@dataclass(frozen=True)
class _RunConfig:
    """Settings that hold for all chromosomes: the parameters of `impute_sequenced`."""

    sequencing: SequencingSettings
    genetic_map: str | Path | GeneticMap | None
    regions: Sequence[Region]
    buffer_cM: float | None
    output: OutputSettings
    resources: Resources
    force: bool
    summary: SequencedSummary

    def budget_of_reading(self) -> AbstractContextManager[None]:
        """Return a context that keeps the memory budget while samples are read."""
        return within_budget(self.resources.max_memory, "reading the samples", fewer_samples())

    def sequencing_of(self, step: Step) -> SequencingSettings:
        """Return the samples' files for one chromosome."""
        if not self.sequencing.likelihood_files:
            return self.sequencing
        return replace(self.sequencing, likelihoods=step.chromosome.vcf)

    def check_inputs(self, step: Step, panels: Sequence[ReferencePanel]) -> None:
        """Raise InputError, before panels are merged, if samples cannot be imputed from one of them."""
        regions, _ = step.regions(self.regions, panels[0].chrom)
        with self.budget_of_reading():
            check_inputs(panels, self.sequencing_of(step), regions, self.buffer_cM, force=self.force)


def _impute_chromosome(run: _RunConfig, step: Step) -> None:
    """Open the panel, read the samples, impute them, and write their records."""
    summary, output, progress = run.summary, run.output, step.progress
    threads = choose_threads(run.resources.threads)
    sequencing = run.sequencing_of(step)
    with open_or_merge(
        step.chromosome.panels, run.genetic_map, threads, partial(run.check_inputs, step), summary, progress
    ) as panels:
        begin_stage(progress, "reading the samples")
        regions, n_in_file = step.regions(run.regions, panels[0].chrom)
        with summary.stage("read samples"), run.budget_of_reading():
            found = read_intervals(panels, sequencing, regions, run.buffer_cM, force=run.force)
        found.count(summary)
        first = found.intervals[0].likelihoods
        n_samples = len(summary.samples)
        if not summary.notes:
            summary.note_few_samples(n_samples)
        if output.report_files.wanted:
            _collect_report_data(run, found.intervals)
        threads_of_chains = min(
            threads_within(
                run.resources.max_memory, one.panel, one.sites, n_samples, threads, one.likelihoods.bases_X
            )
            for one in found.intervals
        )
        writer = step.writer(
            first.samples,
            first.ploidy,
            panels,
            output,
            [],
            _region_lines(regions, n_in_file, found.intervals),
            sum(interval.n_sites for interval in found.intervals),
            threads,
            sexes=sequencing.sexes,
        )
        begin_stage(progress, "imputing")
        shares = split_progress(progress, [one.sites.n_sites for one in found.intervals])
        for number, interval in enumerate(found.intervals):
            records = SequencedRecords(interval, writer, summary)
            windows = genotypes_by_window(
                interval.panel,
                interval.sites.start,
                interval.phred_SX3(),
                records.haploid_X,
                threads_of_chains,
                shares[number],
                interval.likelihoods.bases_X,
            )
            records.write_all(windows)


def _collect_report_data(run: _RunConfig, intervals: Sequence[SequencedInterval]) -> None:
    """Have the summary collect what a report needs; rarely needed modules are imported here."""
    from spinimpute.quality.report_data import ReportData
    from spinimpute.quality.sample_quality import SampleQuality

    summary = run.summary
    data = summary.report_data = summary.report_data or ReportData(
        SampleQuality(intervals[0].likelihoods.samples)
    )
    made = data.provenance
    made.add_run(
        run.output.header_lines, "two chains a sample that copy the panel (Li and Stephens); no network"
    )
    made.add("target", run.sequencing.named)
    for interval in intervals:
        made.add_panel(interval.panel)


@contextmanager
def _report(run: _RunConfig, panels: Sequence[Panel]) -> Iterator[None]:
    """Write the report under a temporary name; it gets its name at the end of the block."""
    summary, report = run.summary, run.output.report_files
    with ExitStack() as stack:
        if report.wanted:
            from spinimpute.reports.multiqc import sequenced_samples
            from spinimpute.reports.sequenced_report import sequenced_report

            assert summary.report_data is not None, "`_collect_report_data` made them"
            panel = Path(get_panel_path(panels[0])).name if len(panels) == 1 else f"{len(panels)} panels"
            report.write(
                sequenced_report(summary, summary.report_data, run.sequencing.named, panel),
                sequenced_samples(summary.report_data.by_sample, summary),
                stack,
            )
        yield


def _region_lines(
    regions: Sequence[Region], n_in_file: int, intervals: Sequence[SequencedInterval]
) -> list[str]:
    """Header lines that make an output of one region a chunk, or count its regions.

    As for genotypes that are phased in the run, the order of a sample's haplotypes is arbitrary.
    """
    if n_in_file != 1:
        return [f"{REGIONS_LINE}{n_in_file}"] if n_in_file else []
    whole = Region(intervals[0].panel.chrom, regions[0].start, regions[0].end)
    return [region_line(whole, sum(one.n_sites for one in intervals), None, phased_here=True)]
