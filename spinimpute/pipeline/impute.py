"""`impute`: target file and panel in, imputed file out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.genotypes.untyped_stretches import FAR_CM
from spinimpute.memory import peak_memory_mb
from spinimpute.output_files import check_outputs, written_whole
from spinimpute.outputs.opening import choose_form, open_writer
from spinimpute.panels.opening import open_panels, path_of
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE, region_line
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
from spinimpute.progress import Progress, Shares
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
    vcf: str | Path,
    out: str | Path,
    panel: ReferencePanel | str | Path,
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

    Parameters
    ----------
    vcf : str or Path
        The target, in any form of `read_target`; may hold other chromosomes too.
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`; `.pgen`, with `.pvar` and `.psam` beside it; or `.bgen`, with
        `.sample`. It appears only when it is complete.
    panel : ReferencePanel, str or Path
        A `.spin` or `.spip` file, an open `Panel` or `InducingPanel`, or a VCF or BCF, which is compiled
        first.
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
    inputs = [vcf, path_of(panel), predictor.model, genetic_map]
    out, page, tables = _checked_outputs(out, output, force, inputs)
    form = choose_form(out, output.output_type)
    threads = choose_threads(resources.threads)
    wanted, buffer_cM = region.parsed()
    summary = ImputationSummary()
    with ExitStack() as stack:
        with summary.stage("open panel"):
            panels = stack.enter_context(open_panels(panel, genetic_map))
        _check_leave_one_out(output, panels)
        with summary.stage("load model"):
            given = resources.predictor_options(predictor)
            loaded, options = predictor_for(
                panels[0], predictor.model, predictor.name, given, resources.device
            )
        chosen = read_region(
            vcf,
            panels,
            loaded,
            summary,
            target,
            wanted,
            buffer_cM,
            allow_unphased=phasing == "auto" and panels[0].haplotypes is not None,
            max_memory=resources.max_memory,
            force=force,
            min_typed_ratio=min_typed_ratio,
        )
        summary.note_few_samples(summary.samples)
        _collect_quality(summary, output, chosen)
        unmatched = [
            unmatched_sites(one.part.target, one.part.match, wanted, summary)
            if output.keep_unmatched
            else None
            for one in chosen
        ]
        first = chosen[0].part
        writer = stack.enter_context(
            open_writer(
                out,
                form,
                first.target.samples,
                first.target.ploidy,
                [first.panel.contig_line],
                [
                    *_header_lines(panels, loaded, output, summary.notes),
                    *_region_lines(wanted, chosen, unmatched),
                ],
                output.formats,
                sum(one.n_sites for one in chosen)
                + sum(len(index) for index in unmatched if index is not None),
                threads,
                sexes=target.sexes,
                extra_info_lines=[
                    *([ER2_LINE] if output.leave_one_out else []),
                    *([FAR_LINE] if flags_far(first.panel) else []),
                ],
                decimals=output.decimals,
            )
        )
        run = Run(loaded, options, writer, summary, threads, write_er2=output.leave_one_out)
        shares = Shares(progress, [one.n_sites for one in chosen])
        for number, one in enumerate(chosen):
            impute_part(run, one, unmatched[number], shares.of(number))
        with summary.stage("finish file and index"):
            writer.finish()
        summary.peak_memory_mb = peak_memory_mb()
        with ExitStack() as beside:  # all files get their names together: none where another one fails
            if page is not None:
                partial = beside.enter_context(written_whole(page))
                _write_report(partial, summary, vcf, path_of(panel))
            if summary.leave_one_out is not None:
                for table, path in tables.items():
                    summary.leave_one_out.write(table, beside.enter_context(written_whole(path)))
            writer.close()
    return summary


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
    out: str | Path, output: OutputSettings, force: bool, inputs: Sequence[object]
) -> tuple[Path, Path | None, dict[str, Path]]:
    """Where genotypes, report and tables go. Raises InputError if they cannot go there."""
    report, tables = output.report, output.leave_one_out_tables
    check_outputs([out, report, *tables.values()], force, inputs)
    page = None if report is None else Path(report)
    return Path(out), page, {table: Path(path) for table, path in tables.items()}


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
    if output.report is not None:
        from spinimpute.quality.imputed_sites import ImputedSites

        summary.imputed = ImputedSites()
    if output.leave_one_out or (output.report is not None and first.panel.haplotypes is not None):
        from spinimpute.quality.leave_one_out import LeaveOneOutQuality

        summary.leave_one_out = LeaveOneOutQuality(list(first.target.samples))


def _header_lines(
    panels: Sequence[ReferencePanel], predictor: Predictor, output: OutputSettings, notes: Sequence[str]
) -> list[str]:
    return [
        f"##source=spinimpute {version('spinimpute')}",
        f"##spinimpute_model={predictor.kind} {predictor.fingerprint} {predictor.device_name}",
        *(f"{PANEL_LINE}{panel.checksum}{panel.made_of}" for panel in panels),
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


def _write_report(partial: Path, summary: ImputationSummary, vcf: str | Path, panel: str | Path) -> None:
    from spinimpute.reports.imputation_report import write_imputation_report

    assert summary.imputed is not None, "`_collect_quality` made it"
    write_imputation_report(summary, summary.imputed, vcf, panel, partial)
