"""`impute`: impute the typed sites of a target to all sites of a panel and write a file.

This module checks the arguments and runs one step per chromosome. `impute_target` computes and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoMatch
from spinimpute.genotypes.untyped_intervals import FAR_CM
from spinimpute.outputs.opening import check_stored_fields, choose_format
from spinimpute.panels.opening import get_panel_paths, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.impute_target import TargetImputer
from spinimpute.pipeline.matched_target import read_matched
from spinimpute.pipeline.output_steps import open_or_merge, open_outputs
from spinimpute.pipeline.regions import (
    RegionSelection,
    RegionTarget,
    choose_targets,
    count_targets,
    panel_intervals,
    part_to_read,
    unmatched_sites,
)
from spinimpute.pipeline.run_plan import Panel, get_site_tables, list_panels, plan_run
from spinimpute.pipeline.settings import (
    OutputSettings,
    PredictorSettings,
    RegionSettings,
    Resources,
    TargetSettings,
    check_settings,
)
from spinimpute.pipeline.verdicts import untyped_warning
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.loading import predictor_for
from spinimpute.predictors.registry import default_row, options_by_name
from spinimpute.quality.stored_sums import ER2_SUMS_LINE, SUMS_LINE
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.memory import within_budget
from spinimpute.runtime.output_files import atomic_write, check_outputs
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

    Several chromosomes are imputed one after the other, which needs no more memory than one. The records are
    the same as with one run per chromosome.

    Parameters
    ----------
    vcf : str or Path, or sequence of them
        The target: VCF, BCF, PLINK, consumer array text or Illumina FinalReport. Chromosomes without a panel
        are skipped. Or several VCF or BCF files of the same samples, one per chromosome.
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`, or "-" for standard output. Also `.pgen`, which adds `.pvar` and `.psam`,
        or `.bgen`, which adds `.sample`. The file is written under a temporary name and renamed when it is
        complete. "{chrom}" in the name is replaced by the chromosome, for one file per chromosome; `.pgen`
        and `.bgen` files cannot hold several.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` or `.spip` file, an open `Panel` or `InducingPanel`, or a VCF, BCF or M3VCF, from which
        a temporary panel is built. Or several panel files, or a folder of panel files. Panels of the same
        chromosome are merged with `merge_panels`, in the given order.
    genetic_map : str, Path or GeneticMap, optional
        The genetic map, if the panel is not a panel file.
    predictor : PredictorSettings
        The predictor; by default haplotype attention for panels of haplotypes.
    target : TargetSettings
        How to read the target.
    phasing : str
        "auto": phase unphased heterozygotes first, using the panel and the other samples. "never": raise an
        error if there are any. A panel without haplotypes cannot phase, so they are also an error.
    region : RegionSettings
        The panel sites to impute. Default: all.
    output : OutputSettings
        What to write.
    resources : Resources
        Threads, device and memory.
    min_typed_ratio : float, optional
        Smallest allowed share (0 to 1) of panel sites that are typed. The panel is cut into intervals of
        5 cM; each interval that overlaps the regions must have this share.
    force : bool
        Overwrite existing files. Impute even if the target does not fit the panel.
    progress : callable, optional
        Called with the completed fraction of the run.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input is invalid. Without `force`, also if `out` exists or the target does not fit the panel.
    """
    check_settings(
        predictor=(predictor, PredictorSettings),
        target=(target, TargetSettings),
        region=(region, RegionSettings),
        output=(output, OutputSettings),
        resources=(resources, Resources),
    )
    files = [vcf] if isinstance(vcf, str | Path) else list(vcf)
    panels = list_panels(panel)
    regions, buffer_cM = region.parsed()
    many_buffered_regions = buffer_cM is not None and len(regions) > 1
    _check_arguments(files, phasing, min_typed_ratio, output, resources, many_buffered_regions)
    summary, threads = ImputationSummary(), choose_threads(resources.threads)
    with summary.stage("open panel"):
        plan = plan_run(out, files, panels, regions, output.output_type, genetic_map)
    summary.warnings += plan.warnings
    tables = {table: Path(path) for table, path in output.leave_one_out_tables.items()}
    site_tables = get_site_tables(plan, out, output.sites)
    outs = [*plan.outputs, *site_tables.values(), *tables.values(), *output.label_tables]
    inputs = [*files, *get_panel_paths(panels), predictor.model, genetic_map, region.regions_file]
    report_paths = output.report_files.paths_to_check(outs)
    later = [*report_paths, *tables.values(), *output.label_tables]  # are renamed after the imputed files
    check_outputs([*outs, *report_paths], force, inputs, streamed=outs[0])
    output_format = choose_format(outs[0], output.output_type, output.mergeable)
    check_stored_fields(output_format, output.formats, output.split_multiallelic)
    load = partial(_load_predictor, predictor, resources, output.leave_one_out, summary)
    if plan.skip_absent:  # report a panel without a predictor before any target is read
        for chromosome in chain.from_iterable(plan.outputs.values()):
            with open_reference(chromosome.panels[0]) as parts:
                load(parts[0])
    with (
        ExitStack() as report_stack,
        open_outputs(plan, summary, output, threads, target.sexes, site_tables, later) as outputs,
    ):
        for step in outputs.steps(progress):
            file, panel_parts = step.chromosome.vcf, step.chromosome.panels
            selection = RegionSelection(step.regions, buffer_cM, target, min_typed_ratio)
            fits_panel = partial(_check_target, file, selection, phasing, resources.max_memory, force)
            with (
                outputs.skip_if_absent(step),
                open_or_merge(panel_parts, genetic_map, threads, fits_panel, summary, step.progress) as parts,
            ):
                model, options = load(parts[0])
                begin_stage(step.progress, "reading the target")
                with summary.stage("read target"):
                    intervals, warnings = panel_intervals(parts, step.regions)
                    part = None
                    if buffer_cM is not None:
                        part = part_to_read(file, parts, model, intervals, selection)
                    with within_budget(resources.max_memory, "reading the target"):
                        read = read_matched(
                            parts,
                            file,
                            target,
                            allow_unphased=phasing == "auto" and parts[0].haplotypes is not None,
                            only=None if part is None else part.region,
                            force=force,
                        )
                    targets = choose_targets(file, read, part, model, intervals, selection)
                summary.warnings += warnings
                count_targets(summary, read, targets, buffer_cM is not None)
                _collect_quality(summary, output, targets, file, model)
                unmatched = [np.empty(0, np.int64)] * len(targets)
                if output.keep_unmatched:
                    unmatched = [unmatched_sites(one, summary.warnings) for one in targets]
                n_records = sum(
                    step.record_rows(one.matched.panel).n_records(each.sites)
                    for one in targets
                    for each in one.intervals
                )
                n_unmatched = sum(map(len, unmatched))
                if not summary.notes:
                    summary.note_few_samples(summary.samples)
                first = targets[0].matched
                writer = step.open_writer(
                    first.target.samples,
                    first.target.ploidy,
                    parts,
                    n_records + n_unmatched,
                    model_lines=[f"##spinimpute_model={model.kind} {model.fingerprint} {model.device_name}"],
                    region_lines=step.region_lines(
                        first.panel.chrom,
                        n_records,
                        n_unmatched if output.keep_unmatched else None,
                        any(one.matched.target.unphased is not None for one in targets),
                        [one.resolved.haplotypes for one in read.matched],
                        "" if part is None else part.header,
                    ),
                    info_lines=[
                        *([ER2_LINE] if output.leave_one_out else []),
                        *([FAR_LINE] if first.panel.haplotypes is not None else []),
                        *([SUMS_LINE] if output.mergeable else []),
                        *([ER2_SUMS_LINE] if output.mergeable and output.leave_one_out else []),
                    ],
                )
                imputer = TargetImputer(
                    model,
                    options,
                    writer,
                    summary,
                    threads,
                    output.leave_one_out,
                    output.mergeable,
                    step.record_rows,
                )
                shares = split_progress(step.progress, [one.n_sites for one in targets])
                for number, one in enumerate(targets):
                    imputer.impute(one, unmatched[number], shares[number])
        summary.warnings += untyped_warning(summary.untyped)  # of all chromosomes
        _write_reports(summary, output, tables, files, panels, report_stack)
    return summary


def _check_arguments(
    files: Sequence[str | Path],
    phasing: str,
    min_typed_ratio: float | None,
    output: OutputSettings,
    resources: Resources,
    many_buffered_regions: bool,
) -> None:
    """Raise InputError for invalid arguments, and for arguments that exclude each other."""
    _ = output.record_filter  # checks its limits
    _ = output.label_tables  # checks the name
    if not files:
        raise InputError("arguments", "no target: give one file, or one for each chromosome")
    if phasing not in PHASING:
        raise InputError(
            "argument", f"{argument('phasing')} must be one of {', '.join(PHASING)}, got {phasing!r}"
        )
    if min_typed_ratio is not None and not 0 <= min_typed_ratio <= 1:
        raise InputError(
            "argument", f"{argument('min_typed_ratio')} must be between 0 and 1, got {min_typed_ratio}"
        )
    if not (output.leave_one_out or output.report_files.is_requested):
        return
    names = [argument("report"), argument("report_figures"), argument("multiqc")]
    quality = f"{argument('leave_one_out', True)}, {', '.join(names[:-1])} or {names[-1]}"
    if resources.max_memory is not None:
        raise InputError(
            "arguments",
            f"{argument('max_memory')} cannot be kept with {quality}. Omit the limit, or all of these",
        )
    if many_buffered_regions:
        raise InputError(
            "arguments",
            f"{argument('buffer_cM')} around several regions would count typed genotypes twice in "
            f"{quality}. Omit the buffer, or all of these",
        )


def _load_predictor(
    settings: PredictorSettings,
    resources: Resources,
    leave_one_out: bool,
    summary: ImputationSummary,
    panel: ReferencePanel,
) -> tuple[Predictor, dict[str, Any]]:
    """Return the predictor for a panel, and its options. Raises InputError if leave-one-out is impossible."""
    if leave_one_out and panel.haplotypes is None:
        raise InputError(
            "mismatch",
            f"panel {panel.path}: leave-one-out needs haplotypes, but the panel holds {panel.holds}. Give a "
            ".spin file, a VCF or a BCF",
        )
    with summary.stage("load model"):
        options = resources.predictor_options(settings)
        predictor, values = predictor_for(panel, settings.model, settings.name, options, resources.device)
    default = default_row(panel.holds, {})
    if settings.name is None and settings.model is None and predictor.kind != default.kind:
        rows = options_by_name()
        given = [argument(name) for name in settings.options if rows[name].selects_predictor]
        warning = (
            f"{', '.join(given)} selected the predictor spin in place of {default.name}, which is more "
            f"accurate. Leave the option out, or give {argument('predictor', 'spin')}"
        )
        if warning not in summary.warnings:
            summary.warnings.append(warning)
    return predictor, values


def _check_target(
    vcf: str | Path,
    selection: RegionSelection,
    phasing: str,
    max_memory: int | None,
    force: bool,
    panels: Sequence[ReferencePanel],
) -> None:
    """Raise InputError if the target cannot be imputed from `panels`. Called before panels are merged."""
    only = selection.part_to_check(vcf, panels)
    allow_unphased = phasing == "auto" and panels[0].haplotypes is not None
    try:
        with within_budget(max_memory, "reading the target"):
            read_matched(
                panels, vcf, selection.settings, allow_unphased=allow_unphased, only=only, force=force
            )
    except NoMatch:
        if only is None:  # if only a part was read, the rest of the target may match
            raise


def _collect_quality(
    summary: ImputationSummary,
    output: OutputSettings,
    targets: Sequence[RegionTarget],
    vcf: str | Path,
    predictor: Predictor,
) -> None:
    """Prepare the summary to collect the data of the report, of labels and of leave-one-out.

    Modules that few runs need are imported here.
    """
    reported, first = output.report_files.is_requested, targets[0].matched
    if reported:
        from spinimpute.quality.report_data import ReportData
        from spinimpute.quality.sample_quality import SampleQuality

        data = summary.report_data = summary.report_data or ReportData(SampleQuality(first.target.samples))
        provenance = data.provenance
        provenance.add_run(
            output.header_lines, f"{predictor.kind}, {predictor.fingerprint}, on {predictor.device_name}"
        )
        provenance.add("target", Path(vcf).name)
        provenance.add_build("target's genome build", first.target.contig_line, first.panel.chrom)
        for matched in (one.matched for one in targets):
            provenance.add_panel(matched.panel)
            data.frequencies.add(matched.panel, matched.target, matched.match)
            data.by_sample.add_calls(
                matched.target.alleles[matched.match.target_index], matched.target.ploidy
            )
    if output.labels is not None:
        summary.collect_labels(first.target.samples)
    wanted = output.leave_one_out or (reported and first.panel.haplotypes is not None)
    if wanted and summary.leave_one_out is None:
        from spinimpute.quality.leave_one_out import LeaveOneOutQuality

        summary.leave_one_out = LeaveOneOutQuality(list(first.target.samples))


def _write_reports(
    summary: ImputationSummary,
    output: OutputSettings,
    tables: Mapping[str, Path],
    files: Sequence[str | Path],
    panels: Sequence[Panel],
    stack: ExitStack,
) -> None:
    """Write report and tables under temporary names. They are renamed when `stack` closes."""
    if output.report_files.is_requested:
        from spinimpute.reports.imputation_report import imputation_report
        from spinimpute.reports.multiqc import typed_samples

        data = summary.report_data
        assert data is not None, "`_collect_quality` made them"
        target = Path(files[0]).name if len(files) == 1 else f"{len(files)} files"
        panel = Path(get_panel_paths(panels)[0]).name if len(panels) == 1 else f"{len(panels)} panels"
        output.report_files.write(
            imputation_report(summary, data, target, panel),
            typed_samples(data.by_sample, summary.leave_one_out),
            stack,
        )
    if summary.leave_one_out is not None:
        for table, path in tables.items():
            summary.leave_one_out.write(table, stack.enter_context(atomic_write(path)))
    for path in output.label_tables:
        summary.write_labels(stack.enter_context(atomic_write(path)), path)
