"""`impute`: target file and panel in, imputed file out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.genotypes.untyped_stretches import FAR_CM
from spinimpute.memory import peak_memory_mb
from spinimpute.output_files import check_outputs, written_whole
from spinimpute.outputs.opening import BGEN, PGEN, RecordWriter, choose_form, open_writer
from spinimpute.panels.opening import PANELS_HAVE_MAPS, open_panels, path_of
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import region_line
from spinimpute.pipeline.genome.merging import merged_panels
from spinimpute.pipeline.genome.plan import (
    PLACEHOLDER,
    Chromosome,
    Panel,
    outputs,
    panel_files,
    panel_lines,
    plan_genome,
    target_files,
)
from spinimpute.pipeline.impute_part import Run, impute_part
from spinimpute.pipeline.regions import RegionPart, read_region, unmatched_sites
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
from spinimpute.progress import Progress, Shares, begin_stage
from spinimpute.quality.summary import ImputationSummary

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
        `fixed_stretches` that the region touches, 0 to 1.
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
    wanted, _ = region.parsed()
    summary = ImputationSummary()
    several = len(files) > 1 or len(panels) > 1 or PLACEHOLDER in str(out)
    if several:
        if genetic_map is not None:
            raise InputError(PANELS_HAVE_MAPS)
        with summary.stage("open panel"):
            plan, warned = plan_genome(files, panels, wanted)
        summary.warnings += warned
        planned = outputs(out, plan)
        for path, chromosomes in planned:
            if len(chromosomes) > 1 and choose_form(path, output.output_type) in (BGEN, PGEN):
                raise InputError(
                    f"{path} would hold {len(chromosomes)} chromosomes: write {path.suffix} for each, with "
                    "{chrom} in its name"
                )
    else:
        planned = [(Path(out), [Chromosome("", panels[0], files[0])])]
    inputs = [*files, *map(path_of, panels), predictor.model, genetic_map]
    page, tables = _checked_outputs([path for path, _ in planned], output, force, inputs)
    given = _Given(
        genetic_map, predictor, target, phasing, region, output, resources, min_typed_ratio, force, summary,
        shares_file=len(files) == 1 and sum(len(chromosomes) for _, chromosomes in planned) > 1,
    )  # fmt: skip
    shares = Shares(progress, [1.0] * sum(len(chromosomes) for _, chromosomes in planned))
    done, absent, waiting = 0, None, None
    with ExitStack() as stack:
        with summary.stage("open panel"):
            merged = merged_panels(planned, choose_threads(resources.threads), progress)
            planned = stack.enter_context(merged)
        for path, chromosomes in planned:
            if waiting is not None:
                waiting.close()
            writer: RecordWriter | None = None
            for one in chromosomes:
                try:
                    writer = _impute_chromosome(given, stack, path, chromosomes, one, writer, shares.of(done))
                except NoRecord as error:
                    if not several:
                        raise
                    absent = error
                    summary.warnings.append(f"chromosome {one.name} is left out: {error}")
                done += 1
            if writer is not None:
                with summary.stage("finish file and index"):
                    writer.finish()
                waiting = writer
        if waiting is None:
            assert absent is not None, "what is imputed is written"
            raise absent
        summary.peak_memory_mb = peak_memory_mb()
        with ExitStack() as beside:  # all files get their names together: none where another one fails
            if page is not None:
                partial = beside.enter_context(written_whole(page))
                _write_report(partial, summary, files, panels)
            if summary.leave_one_out is not None:
                for table, path in tables.items():
                    summary.leave_one_out.write(table, beside.enter_context(written_whole(path)))
            waiting.close()
    return summary


@dataclass(frozen=True)
class _Given:
    """What holds for all chromosomes; as of `impute`.

    Attributes
    ----------
    shares_file : bool
        Several chromosomes are read of one target file: what is skipped on one is read on another.
    skipped : dict of str to int
        Records of the chromosomes so far that were not read, by reason.
    """

    genetic_map: str | Path | GeneticMap | None
    predictor: PredictorSettings
    target: TargetSettings
    phasing: str
    region: RegionSettings
    output: OutputSettings
    resources: Resources
    min_typed_ratio: float | None
    force: bool
    summary: ImputationSummary
    shares_file: bool
    skipped: dict[str, int] = field(default_factory=dict)


def _impute_chromosome(
    given: _Given,
    stack: ExitStack,
    path: Path,
    chromosomes: Sequence[Chromosome],
    one: Chromosome,
    writer: RecordWriter | None,
    progress: Progress | None,
) -> RecordWriter:
    """Write the records of a chromosome; the writer is made with the first one of a file.

    stack: keeps the writer. path, chromosomes: the output, and all that go into it.
    """
    summary, output, resources = given.summary, given.output, given.resources
    threads = choose_threads(resources.threads)
    wanted, buffer_cM = given.region.parsed()
    with ExitStack() as opened:
        begin_stage(progress, "opening the panel")
        with summary.stage("open panel"):
            panels = opened.enter_context(open_panels(one.panel, given.genetic_map))
        _check_leave_one_out(output, panels)
        with summary.stage("load model"):
            loaded, options = predictor_for(
                panels[0],
                given.predictor.model,
                given.predictor.name,
                resources.predictor_options(given.predictor),
                resources.device,
            )
        begin_stage(progress, "reading the target")
        chosen = read_region(
            one.vcf,
            panels,
            loaded,
            summary,
            given.target,
            wanted,
            buffer_cM,
            allow_unphased=given.phasing == "auto" and panels[0].haplotypes is not None,
            max_memory=resources.max_memory,
            force=given.force,
            min_typed_ratio=given.min_typed_ratio,
        )
        for reason, count in given.skipped.items():
            summary.skipped[reason] = summary.skipped.get(reason, 0) + count
        if given.shares_file:
            summary.skipped.pop(ON_ANOTHER_CHROMOSOME, None)
        given.skipped.update(summary.skipped)
        _collect_quality(summary, output, chosen)
        unmatched = [
            unmatched_sites(part.part.target, part.part.match, wanted, summary)
            if output.keep_unmatched
            else None
            for part in chosen
        ]
        first = chosen[0].part
        if not summary.notes:
            summary.note_few_samples(summary.samples)
        if writer is None:
            one_only = len(chromosomes) == 1
            writer = stack.enter_context(
                open_writer(
                    path,
                    choose_form(path, output.output_type),
                    first.target.samples,
                    first.target.ploidy,
                    [first.panel.contig_line] if one_only else [each.contig_line for each in chromosomes],
                    [
                        *_header_lines(
                            panel_lines(panels)
                            if one_only
                            else [line for each in chromosomes for line in each.panel_lines],
                            loaded,
                            output,
                            summary.notes,
                        ),
                        *_region_lines(wanted, chosen, unmatched),
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
        raise InputError(f"unknown phasing {phasing!r}: give one of {', '.join(PHASING)}")
    if min_typed_ratio is not None and not 0 <= min_typed_ratio <= 1:
        raise InputError(f"the least ratio of typed sites must lie between 0 and 1: got {min_typed_ratio}")
    if resources.max_memory is not None and (output.leave_one_out or output.report is not None):
        raise InputError("a budget of memory is not kept with --loo or --report: leave one of them out")


def _checked_outputs(
    outs: Sequence[Path], output: OutputSettings, force: bool, inputs: Sequence[object]
) -> tuple[Path | None, dict[str, Path]]:
    """Where report and tables go. Raises InputError if they, or the genotypes, cannot go there."""
    report, tables = output.report, output.leave_one_out_tables
    check_outputs([*outs, report, *tables.values()], force, inputs, streamed=outs[0])
    choose_form(outs[0], output.output_type)
    page = None if report is None else Path(report)
    return page, {table: Path(path) for table, path in tables.items()}


def _check_leave_one_out(output: OutputSettings, panels: Sequence[ReferencePanel]) -> None:
    if output.leave_one_out and panels[0].haplotypes is None:
        raise InputError(
            f"panel {panels[0].path}: no call can be left out with {panels[0].holds}, which are for all "
            "sites of an array; give a .spin file, a VCF or a BCF"
        )


def _collect_quality(
    summary: ImputationSummary, output: OutputSettings, chosen: Sequence[RegionPart]
) -> None:
    """Have the summary collect what the output needs; seldom wanted, so imported here."""
    first = chosen[0].part
    if output.report is not None and summary.imputed is None:
        from spinimpute.quality.imputed_sites import ImputedSites

        summary.imputed = ImputedSites()
    wanted = output.leave_one_out or (output.report is not None and first.panel.haplotypes is not None)
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
    region: Region | None, chosen: Sequence[RegionPart], unmatched: Sequence[np.ndarray | None]
) -> list[str]:
    """The header line that makes the output a chunk; none without a region."""
    if region is None:
        return []
    kept = [index for index in unmatched if index is not None]
    return [
        region_line(
            Region(chosen[0].part.panel.chrom, region.start, region.end),
            sum(one.n_sites for one in chosen),
            sum(map(len, kept)) if kept else None,
            any(one.part.target.unphased is not None for one in chosen),
        )
    ]


def _write_report(
    partial: Path, summary: ImputationSummary, files: Sequence[str | Path], panels: Sequence[Panel]
) -> None:
    from spinimpute.reports.imputation_report import write_imputation_report

    assert summary.imputed is not None, "`_collect_quality` made it"
    target = files[0] if len(files) == 1 else f"{len(files)} files"
    panel = path_of(panels[0]) if len(panels) == 1 else f"{len(panels)} panels"
    write_imputation_report(summary, summary.imputed, target, panel, partial)
