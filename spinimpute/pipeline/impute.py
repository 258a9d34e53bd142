"""`impute`: target file and panel in, imputed file out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoMatch, Region
from spinimpute.genotypes.untyped_intervals import FAR_CM
from spinimpute.outputs.opening import RecordWriter, choose_form, open_writer
from spinimpute.panels.opening import get_panel_path, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import REGIONS_LINE, region_line
from spinimpute.pipeline.genome.plan import Panel, panel_files, target_files
from spinimpute.pipeline.genome.run import GenomeRun, Step, impute_chromosomes, plan_run
from spinimpute.pipeline.impute_part import Run, impute_part
from spinimpute.pipeline.merged_panels import open_or_merge
from spinimpute.pipeline.prepare import prepare
from spinimpute.pipeline.regions import RegionPart, part_to_check, read_regions, unmatched_sites
from spinimpute.pipeline.settings import (
    OutputSettings,
    PredictorSettings,
    RegionSettings,
    Resources,
    TargetSettings,
    check_settings,
)
from spinimpute.pipeline.window_records import flags_far
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.loading import predictor_for
from spinimpute.quality.summary import ImputationSummary
from spinimpute.reports.report_files import ReportFiles
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.memory import within_budget
from spinimpute.runtime.output_files import check_outputs, written_whole
from spinimpute.runtime.progress import Progress, Shares, begin_stage

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

    Several chromosomes are imputed one after the other, with the memory of one, into the records of runs with
    one panel each.

    Parameters
    ----------
    vcf : str or Path, or sequence of them
        The target, in any form of `read_target`; may hold other chromosomes too. Or several VCF or BCF of the
        same samples, one for each chromosome.
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`, or "-" for standard output; `.pgen`, with `.pvar` and `.psam` beside it;
        or `.bgen`, with `.sample`. It appears only when it is complete. With "{chrom}" in its name, one file
        for each chromosome, as `.pgen` and `.bgen` need it.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` or `.spip` file, an open `Panel` or `InducingPanel`, or a VCF or BCF, which is compiled
        first. Or panel files in any order, or a folder of such files: one for each chromosome, or several,
        which are merged as `merge_panels` does, in the order given.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    predictor : PredictorSettings
        Which predictor imputes; by default attention to the panel's haplotypes, if it has any.
    target : TargetSettings
        How the target is read.
    phasing : str
        "auto" phases unphased heterozygotes first, against the panel and the other samples; "never" refuses
        them, as a panel without haplotypes does.
    region : RegionSettings
        Which panel sites are imputed; by default all.
    output : OutputSettings
        What is written.
    resources : Resources
        Threads, device and memory.
    min_typed_ratio : float, optional
        Refuse a target that has typed a smaller share of the panel's sites in one of the panel's
        `cut_equal_lengths` that the region touches, 0 to 1.
    force : bool
        Replace existing files; continue even if the target does not fit the panel.
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
    _check_choices(phasing, output, resources, min_typed_ratio)
    files, panels = target_files(vcf), panel_files(panel)
    regions, buffer_cM = region.parsed()
    if buffer_cM is not None and len(regions) > 1 and _tells_quality(output):
        raise InputError(
            "arguments",
            f"typed calls around several regions would count twice with {_quality_arguments()}: leave "
            f"{argument('buffer_cM')} "
            "out, or these",
        )
    summary = ImputationSummary()
    genome = plan_run(out, files, panels, regions, output.output_type, genetic_map, summary)
    inputs = [*files, *map(get_panel_path, panels), predictor.model, genetic_map, region.regions_file]
    tables = _checked_outputs(genome.outs, output, force, inputs)
    given = _Given(
        genetic_map, predictor, target, phasing, regions, buffer_cM, output, resources, min_typed_ratio,
        force, summary, genome,
    )  # fmt: skip
    if genome.several:
        _check_panels(given)

    def impute_one(
        step: Step, writer: RecordWriter | None, stack: ExitStack, progress: Progress | None
    ) -> RecordWriter:
        return _impute_chromosome(given, step, writer, stack, progress)

    beside = _written_beside(output.report_files, tables, summary, files, panels)
    impute_chromosomes(genome, impute_one, summary, beside, progress)
    return summary


@contextmanager
def _written_beside(
    report: ReportFiles,
    tables: Mapping[str, Path],
    summary: ImputationSummary,
    files: Sequence[str | Path],
    panels: Sequence[Panel],
) -> Iterator[None]:
    """Write report and tables, which get their names at the end."""
    with ExitStack() as stack:
        if report.wanted:
            _write_report(report, stack, summary, files, panels)
        if summary.leave_one_out is not None:
            for table, path in tables.items():
                summary.leave_one_out.write(table, stack.enter_context(written_whole(path)))
        yield


@dataclass(frozen=True)
class _Given:
    """What holds for all chromosomes; as of `impute`."""

    genetic_map: str | Path | GeneticMap | None
    predictor: PredictorSettings
    target: TargetSettings
    phasing: str
    regions: Sequence[Region]
    buffer_cM: float | None
    output: OutputSettings
    resources: Resources
    min_typed_ratio: float | None
    force: bool
    summary: ImputationSummary
    genome: GenomeRun

    def predictor_of(self, panel: ReferencePanel) -> tuple[Predictor, dict[str, Any]]:
        """The predictor for a panel, and its options. Raises InputError if it cannot read it."""
        return predictor_for(
            panel,
            self.predictor.model,
            self.predictor.name,
            self.resources.predictor_options(self.predictor),
            self.resources.device,
        )

    def allow_unphased(self, panels: Sequence[ReferencePanel]) -> bool:
        """Whether unphased heterozygotes can be phased against the parts of a panel."""
        return self.phasing == "auto" and panels[0].haplotypes is not None

    def check_target(self, step: Step, panels: Sequence[ReferencePanel]) -> None:
        """Raise InputError if a target cannot be imputed from the parts of a panel."""
        regions, _ = step.regions(self.regions, panels[0].chrom)
        only = part_to_check(step.one.vcf, panels, self.target, regions, self.buffer_cM)
        with within_budget(self.resources.max_memory, "reading the target"):
            try:
                prepare(
                    panels,
                    step.one.vcf,
                    ImputationSummary(),
                    self.target,
                    allow_unphased=self.allow_unphased(panels),
                    only=only,
                    force=self.force,
                )
            except NoMatch:
                if only is None:  # else the rest of it may fit
                    raise


def _check_panels(given: _Given) -> None:
    """Raise InputError, before any target is read, if the predictor cannot read one of the panels."""
    for one in given.genome.plan:
        with open_reference(one.panel) as panels:
            _check_leave_one_out(given.output, panels)
            with given.summary.stage("load model"):
                given.predictor_of(panels[0])


def _impute_chromosome(
    given: _Given, step: Step, writer: RecordWriter | None, stack: ExitStack, progress: Progress | None
) -> RecordWriter:
    """Write the records of a chromosome; the writer, which the stack keeps, is made with the file's first."""
    summary, output, resources = given.summary, given.output, given.resources
    threads = choose_threads(resources.threads)
    with ExitStack() as opened:
        panels = opened.enter_context(
            open_or_merge(
                step.one.panels,
                given.genetic_map,
                threads,
                partial(given.check_target, step),
                summary,
                progress,
            )
        )
        _check_leave_one_out(output, panels)
        with summary.stage("load model"):
            loaded, options = given.predictor_of(panels[0])
        begin_stage(progress, "reading the target")
        regions, in_file = step.regions(given.regions, panels[0].chrom)
        chosen, line_of_target = read_regions(
            step.one.vcf,
            panels,
            loaded,
            summary,
            given.target,
            regions,
            given.buffer_cM,
            allow_unphased=given.allow_unphased(panels),
            max_memory=resources.max_memory,
            force=given.force,
            min_typed_ratio=given.min_typed_ratio,
        )
        summary.skipped = given.genome.add_skipped(summary.skipped)
        _collect_quality(summary, output, chosen, step.one.vcf, loaded)
        unmatched = [unmatched_sites(part, summary) if output.keep_unmatched else None for part in chosen]
        first = chosen[0].part
        if not summary.notes:
            summary.note_few_samples(summary.samples)
        if writer is None:
            contig_lines, of_panels = step.header_lines(panels)
            writer = stack.enter_context(
                open_writer(
                    step.path,
                    choose_form(step.path, output.output_type),
                    first.target.samples,
                    first.target.ploidy,
                    contig_lines,
                    [
                        *_header_lines(of_panels, loaded, output, summary.notes),
                        *_region_lines(regions, in_file, chosen, unmatched, line_of_target),
                    ],
                    output.formats,
                    sum(part.n_sites for part in chosen)
                    + sum(len(index) for index in unmatched if index is not None),
                    threads,
                    sexes=given.target.sexes,
                    extra_info_lines=[
                        *([ER2_LINE] if output.leave_one_out else []),
                        *([FAR_LINE] if flags_far(first.panel) else []),
                    ],
                    decimals=output.decimals,
                )
            )
        run = Run(loaded, options, writer, summary, threads, write_er2=output.leave_one_out)
        shares = Shares(progress, [part.n_sites for part in chosen])
        for number, part in enumerate(chosen):
            impute_part(run, part, unmatched[number], shares.of(number))
    return writer


def _check_choices(
    phasing: str, output: OutputSettings, resources: Resources, min_typed_ratio: float | None
) -> None:
    if phasing not in PHASING:
        raise InputError("content", f"unknown phasing {phasing!r}: give one of {', '.join(PHASING)}")
    if min_typed_ratio is not None and not 0 <= min_typed_ratio <= 1:
        raise InputError(
            "content", f"the least ratio of typed sites must lie between 0 and 1: got {min_typed_ratio}"
        )
    if resources.max_memory is not None and _tells_quality(output):
        raise InputError(
            "memory",
            f"a budget of memory is not kept with {_quality_arguments()}: leave {argument('max_memory')} "
            "out, or these",
        )


def _tells_quality(output: OutputSettings) -> bool:
    return output.leave_one_out or output.report_files.wanted


def _checked_outputs(
    outs: Sequence[Path], output: OutputSettings, force: bool, inputs: Sequence[object]
) -> dict[str, Path]:
    """Where tables go. Raises InputError if they, the report or the genotypes cannot go there."""
    tables = {table: Path(path) for table, path in output.leave_one_out_tables.items()}
    others = [*outs, *tables.values()]
    check_outputs([*others, *output.report_files.to_check(others)], force, inputs, streamed=outs[0])
    choose_form(outs[0], output.output_type)
    return tables


def _check_leave_one_out(output: OutputSettings, panels: Sequence[ReferencePanel]) -> None:
    if output.leave_one_out and panels[0].haplotypes is None:
        raise InputError(
            "content",
            f"panel {panels[0].path}: no call can be left out with {panels[0].holds}, which are for all "
            "sites of an array; give a .spin file, a VCF or a BCF",
        )


def _collect_quality(
    summary: ImputationSummary,
    output: OutputSettings,
    chosen: Sequence[RegionPart],
    vcf: str | Path,
    predictor: Predictor,
) -> None:
    """Have the summary collect what the output needs; seldom wanted, so imported here."""
    first, reported = chosen[0].part, output.report_files.wanted
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
            part = one.part
            made.add_panel(part.panel)
            data.frequencies.add(part.panel, part.target, part.match)
            data.by_sample.add_calls(part.target.alleles[part.match.target_index], part.target.ploidy)
    wanted = output.leave_one_out or (reported and first.panel.haplotypes is not None)
    if wanted and summary.leave_one_out is None:
        from spinimpute.quality.leave_one_out import LeaveOneOutQuality

        summary.leave_one_out = LeaveOneOutQuality(list(first.target.samples))


def _header_lines(
    of_panels: Sequence[str], predictor: Predictor, output: OutputSettings, notes: Sequence[str]
) -> list[str]:
    return [
        f"##source=spinimpute {version('spinimpute')}",
        f"##spinimpute_model={predictor.kind} {predictor.fingerprint} {predictor.device_name}",
        *of_panels,
        *(f"##spinimpute_note={note}" for note in notes),
        *output.header_lines,
    ]


def _region_lines(
    regions: Sequence[Region],
    in_file: int,
    chosen: Sequence[RegionPart],
    unmatched: Sequence[np.ndarray | None],
    line_of_target: str,
) -> list[str]:
    """The header lines that make an output of one region a chunk, or tell of several; none without any.

    in_file: regions of all chromosomes in the output.
    """
    if not in_file:
        return []
    if in_file > 1:
        return [f"{REGIONS_LINE}{in_file}"]
    kept = [index for index in unmatched if index is not None]
    return [
        region_line(
            Region(chosen[0].part.panel.chrom, regions[0].start, regions[0].end),
            sum(one.n_sites for one in chosen),
            sum(map(len, kept)) if kept else None,
            any(one.part.target.unphased is not None for one in chosen),
        ),
        line_of_target,
    ]


def _write_report(
    report: ReportFiles,
    beside: ExitStack,
    summary: ImputationSummary,
    files: Sequence[str | Path],
    panels: Sequence[Panel],
) -> None:
    from spinimpute.reports.imputation_report import imputation_report
    from spinimpute.reports.multiqc import typed_samples

    data = summary.report_data
    assert data is not None, "`_collect_quality` made them"
    target = Path(files[0]).name if len(files) == 1 else f"{len(files)} files"
    panel = Path(get_panel_path(panels[0])).name if len(panels) == 1 else f"{len(panels)} panels"
    report.write(
        imputation_report(summary, data, target, panel),
        typed_samples(data.by_sample, summary.leave_one_out),
        beside,
    )


def _quality_arguments() -> str:
    """Name the arguments for which all typed genotypes are kept."""
    names = [argument("report"), argument("report_figures"), argument("multiqc")]
    return f"{argument('leave_one_out', True)}, {', '.join(names[:-1])} or {names[-1]}"
