"""`impute_sequenced`: impute sequenced samples from genotype likelihoods or reads, and write a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.outputs.opening import check_stored_fields, choose_format
from spinimpute.panels.opening import PanelArgument, get_panel_paths
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.genotypes import genotypes_by_window, threads_within
from spinimpute.pipeline.output_steps import Step, open_or_merge, open_outputs
from spinimpute.pipeline.run_plan import Panel, get_site_tables, list_panels, plan_run
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.intervals import SequencedInterval, check_inputs, read_intervals
from spinimpute.pipeline.sequenced.records import write_records
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources, check_settings
from spinimpute.quality.stored_sums import SUMS_LINE
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.memory import fewer_samples, within_budget
from spinimpute.runtime.output_files import atomic_write, check_outputs
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.sequencing.alignment_file import is_cram


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

    Each sample is imputed independently of the others. Several chromosomes are imputed one after the other,
    which needs no more memory than one. The records are the same as with one run per chromosome.

    Parameters
    ----------
    out : str or Path
        Output file, as for `impute`.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` file, an open `Panel`, or a VCF or BCF, from which a temporary panel is built. Or several
        panel files, or a folder of panel files. Panels of the same chromosome are merged with
        `merge_panels`, in the given order.
    sequencing : SequencingSettings
        Likelihoods, reads and array genotypes of the samples.
    genetic_map : str, Path or GeneticMap, optional
        The genetic map, if the panel is a VCF or BCF.
    region : RegionSettings
        The panel sites to impute. Default: all. The default buffer is 1 cM. Regions whose buffers overlap are
        imputed together, so their results depend on which other regions are given.
    output : OutputSettings
        Formats, decimals, type and header lines of the file, filters, the tables of sites and labels,
        `mergeable`, and a report. Other settings are ignored.
    resources : Resources
        Threads and memory. Fewer threads are used if the memory budget is too small for all.
    force : bool
        Overwrite existing files. Impute even if array genotypes do not fit the panel, or if likelihoods and
        reads cover the same sites of a sample.
    progress : callable, optional
        Called with the completed fraction of the run.

    Returns
    -------
    SequencedSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input is invalid, memory is too small for one thread, or `out` exists and `force` is not set.
    """
    check_settings(
        sequencing=(sequencing, SequencingSettings),
        region=(region, RegionSettings),
        output=(output, OutputSettings),
        resources=(resources, Resources),
    )
    _ = output.record_filter  # checks its limits
    files, panels = sequencing.likelihood_files, list_panels(panel)
    regions, buffer_cM = region.parsed()
    summary = SequencedSummary()
    with summary.stage("open panel"):
        plan = plan_run(out, files, panels, regions, output.output_type, genetic_map)
    summary.warnings += plan.warnings
    inputs = [*get_panel_paths(panels), genetic_map, *sequencing.paths, region.regions_file]
    site_tables = get_site_tables(plan, out, output.sites)
    outs = [*plan.outputs, *site_tables.values(), *output.label_tables]
    report_paths = output.report_files.paths_to_check(outs)
    later = [*report_paths, *output.label_tables]  # are renamed after the imputed files
    check_outputs([*outs, *report_paths], force, inputs, streamed=outs[0])
    output_format = choose_format(outs[0], output.output_type, output.mergeable)
    check_stored_fields(output_format, output.formats, output.split_multiallelic)
    if sequencing.reference is not None and not _any_cram(sequencing):
        summary.warnings.append(f"reference {sequencing.reference} is not used: no file of reads is a CRAM")
    threads, max_memory = choose_threads(resources.threads), resources.max_memory
    sexes = sequencing.sexes
    with (
        ExitStack() as reports,
        open_outputs(plan, summary, output, threads, sexes, site_tables, later) as outputs,
    ):
        for step in outputs.steps(progress):
            samples, panel_parts = sequencing, step.chromosome.panels
            if files:
                samples = replace(sequencing, likelihoods=step.chromosome.vcf)
            fits_panel = partial(_check_samples, samples, step.regions, buffer_cM, max_memory, force)
            with (
                outputs.skip_if_absent(step),
                open_or_merge(panel_parts, genetic_map, threads, fits_panel, summary, step.progress) as parts,
            ):
                begin_stage(step.progress, "reading the samples")
                with (
                    summary.stage("read samples"),
                    within_budget(max_memory, "reading the samples", fewer_samples()),
                ):
                    found = read_intervals(parts, samples, step.regions, buffer_cM, force=force)
                found.count(summary)
                _impute_intervals(step, parts, found.intervals, summary, resources, sequencing)
        summary.warnings += summary.coverage.warnings()  # of all chromosomes
        if output.report_files.is_requested:
            _write_report(summary, output, sequencing, panels, reports)
        for path in output.label_tables:
            summary.write_labels(reports.enter_context(atomic_write(path)), path)
    return summary


def _any_cram(sequencing: SequencingSettings) -> bool:
    try:
        return any(is_cram(Path(path)) for path in sequencing.alignments)
    except OSError:  # reported when the file is opened for reading
        return True


def _check_samples(
    sequencing: SequencingSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    max_memory: int | None,
    force: bool,
    panels: Sequence[ReferencePanel],
) -> None:
    """Raise InputError if the samples cannot be imputed from `panels`. Called before panels are merged."""
    with within_budget(max_memory, "reading the samples", fewer_samples()):
        check_inputs(panels, sequencing, regions, buffer_cM, force=force)


def _impute_intervals(
    step: Step,
    panels: Sequence[ReferencePanel],
    intervals: Sequence[SequencedInterval],
    summary: SequencedSummary,
    resources: Resources,
    sequencing: SequencingSettings,
) -> None:
    """Impute the samples in the intervals of a chromosome, and write their records."""
    first, n_samples, output = intervals[0].likelihoods, len(summary.samples), step.files.output
    if not summary.notes:
        summary.note_few_samples(n_samples)
    if output.report_files.is_requested:
        _collect_report_data(summary, output, sequencing, intervals)
    if output.labels is not None:
        summary.collect_labels(summary.samples)
    threads = min(
        threads_within(
            resources.max_memory, one.panel, one.sites, n_samples, step.files.threads, one.likelihoods.bases_X
        )
        for one in intervals
    )
    record_rows = [step.record_rows(one.panel) for one in intervals]
    n_records = sum(
        rows.n_records(written.sites)
        for one, rows in zip(intervals, record_rows, strict=True)
        for written in one.written
    )
    # Which haplotype of a sample comes first is arbitrary, like for targets that are phased in the run.
    region_lines = step.region_lines(intervals[0].panel.chrom, n_records, None, phased_here=True)
    info_lines = [SUMS_LINE] if output.mergeable else []
    writer = step.open_writer(
        first.samples, first.ploidy, panels, n_records, region_lines=region_lines, info_lines=info_lines
    )
    begin_stage(step.progress, "imputing")
    shares = split_progress(step.progress, [one.sites.n_sites for one in intervals])
    for number, interval in enumerate(intervals):
        windows = genotypes_by_window(
            interval.panel,
            interval.sites.start,
            interval.phred_SX3(),
            interval.likelihoods.ploidy == 1,
            threads,
            shares[number],
            interval.likelihoods.bases_X,
        )
        write_records(interval, windows, writer, summary, output.mergeable, record_rows[number])


def _collect_report_data(
    summary: SequencedSummary,
    output: OutputSettings,
    sequencing: SequencingSettings,
    intervals: Sequence[SequencedInterval],
) -> None:
    """Prepare the summary to collect the data of a report. Modules that few runs need are imported here."""
    from spinimpute.quality.report_data import ReportData
    from spinimpute.quality.sample_quality import SampleQuality

    data = summary.report_data = summary.report_data or ReportData(
        SampleQuality(intervals[0].likelihoods.samples)
    )
    provenance = data.provenance
    method = "two chains per sample that copy the panel (Li and Stephens); no network"
    provenance.add_run(output.header_lines, method)
    provenance.add("target", sequencing.description)
    for interval in intervals:
        provenance.add_panel(interval.panel)


def _write_report(
    summary: SequencedSummary,
    output: OutputSettings,
    sequencing: SequencingSettings,
    panels: Sequence[Panel],
    report_stack: ExitStack,
) -> None:
    """Write the report under a temporary name. It is renamed when `report_stack` closes."""
    from spinimpute.reports.multiqc import sequenced_samples
    from spinimpute.reports.sequenced_report import sequenced_report

    data = summary.report_data
    assert data is not None, "`_collect_report_data` made them"
    panel = Path(get_panel_paths(panels)[0]).name if len(panels) == 1 else f"{len(panels)} panels"
    output.report_files.write(
        sequenced_report(summary, data, sequencing.description, panel),
        sequenced_samples(data.by_sample, summary),
        report_stack,
    )
