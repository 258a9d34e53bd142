"""`impute` of sequenced samples: likelihoods or reads and a panel in, imputed file out.

Axes: S sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.outputs.opening import RecordWriter, choose_form, open_writer
from spinimpute.panels.opening import PanelArgument, get_panel_path
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.stretches import in_stretches, threads_within
from spinimpute.pipeline.chunk_file import REGIONS_LINE, region_line
from spinimpute.pipeline.genome.plan import panel_files
from spinimpute.pipeline.genome.run import GenomeRun, Step, impute_chromosomes, plan_run
from spinimpute.pipeline.merged_panels import open_or_merge
from spinimpute.pipeline.sequenced.columns import in_columns, likeliest_alleles
from spinimpute.pipeline.sequenced.inputs import SequencingSettings, at_all_sites
from spinimpute.pipeline.sequenced.parts import Part, check_inputs, read_parts
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources, check_settings
from spinimpute.quality.site_quality import dosage_variance, site_quality
from spinimpute.quality.summary import SequencedSummary
from spinimpute.reports.report_files import ReportFiles
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.memory import fewer_samples, within_budget
from spinimpute.runtime.output_files import check_outputs
from spinimpute.runtime.progress import Progress, Shares, begin_stage

if TYPE_CHECKING:
    from spinimpute.quality.report_data import ReportData

_WRITTEN = 2**18  # genotypes at once, and
_WRITTEN_SITES = 8_192  # sites


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
    memory of one, into the records of runs with one panel each.

    Parameters
    ----------
    out : str or Path
        As of `impute`, with "{chrom}" in its name one file for each chromosome.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` file, an open `Panel`, or a VCF or BCF, which is compiled first. Or panel files in any
        order, or a folder of such files: one for each chromosome, or several, which are merged as
        `merge_panels` does, in the order given.
    sequencing : SequencingSettings
        What is known of the samples.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    region : RegionSettings
        Which panel sites are imputed, by default all; the buffer is BUFFER_CM unless it is given. Regions
        whose buffers overlap are imputed as one stretch: their records depend on which others are given.
    output : OutputSettings
        Formats, decimals, type and header lines of the file, and a report; nothing else of it.
    resources : Resources
        Threads, and memory: fewer threads work where it is too little for all.
    force : bool
        Replace existing files, and go on though an array's calls do not fit the panel, or likelihoods and
        reads cover the same sites of a sample.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    SequencedSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input cannot be used, memory is too little for one thread, or `out` exists, without `force`.
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
    genome = plan_run(out, files, panels, regions, output.output_type, genetic_map, summary)
    inputs = [*map(get_panel_path, panels), genetic_map, *sequencing.paths, region.regions_file]
    report = output.report_files
    check_outputs([*genome.outs, *report.to_check(genome.outs)], force, inputs, streamed=genome.outs[0])
    choose_form(genome.outs[0], output.output_type)
    given = _Given(sequencing, genetic_map, regions, buffer_cM, output, resources, force, summary, genome)

    def impute_one(
        step: Step, writer: RecordWriter | None, stack: ExitStack, progress: Progress | None
    ) -> RecordWriter:
        return _impute_chromosome(given, step, writer, stack, progress)

    beside = _written_beside(report, summary, sequencing, panels)
    impute_chromosomes(genome, impute_one, summary, beside, progress)
    return summary


@dataclass(frozen=True)
class _Given:
    """What holds for all chromosomes; as of `impute_sequenced`."""

    sequencing: SequencingSettings
    genetic_map: str | Path | GeneticMap | None
    regions: Sequence[Region]
    buffer_cM: float | None
    output: OutputSettings
    resources: Resources
    force: bool
    summary: SequencedSummary
    genome: GenomeRun

    def budget_of_reading(self) -> AbstractContextManager[None]:
        """Keeps the budget of memory while samples are read."""
        return within_budget(self.resources.max_memory, "reading the samples", fewer_samples())

    def check_inputs(
        self, sequencing: SequencingSettings, step: Step, panels: Sequence[ReferencePanel]
    ) -> None:
        """Raise InputError if samples cannot be imputed from the parts of a panel."""
        regions, _ = step.regions(self.regions, panels[0].chrom)
        with self.budget_of_reading():
            check_inputs(panels, sequencing, regions, self.buffer_cM, force=self.force)


def _impute_chromosome(
    given: _Given, step: Step, writer: RecordWriter | None, stack: ExitStack, progress: Progress | None
) -> RecordWriter:
    """Write the records of a chromosome; the writer, which the stack keeps, is made with the file's first."""
    summary, output, resources = given.summary, given.output, given.resources
    threads = choose_threads(resources.threads)
    sequencing = given.sequencing
    if sequencing.likelihood_files:
        sequencing = replace(sequencing, likelihoods=step.one.vcf)
    with ExitStack() as opened:
        panels = opened.enter_context(
            open_or_merge(
                step.one.panels,
                given.genetic_map,
                threads,
                partial(given.check_inputs, sequencing, step),
                summary,
                progress,
            )
        )
        begin_stage(progress, "reading the samples")
        regions, in_file = step.regions(given.regions, panels[0].chrom)
        with summary.stage("read samples"), given.budget_of_reading():
            parts = read_parts(panels, sequencing, regions, given.buffer_cM, summary, force=given.force)
        summary.skipped = given.genome.add_skipped(summary.skipped)
        n_samples, budget = len(summary.samples), resources.max_memory
        threads_of_chains = min(
            threads_within(budget, one.panel, one.low, one.high, n_samples, threads, one.likelihoods.bases_X)
            for one in parts
        )
        if not summary.notes:
            summary.note_few_samples(len(summary.samples))
        if output.report_files.wanted:
            _collect_report_data(summary, output, parts, given.sequencing)
        if writer is None:
            first = parts[0].likelihoods
            contig_lines, of_panels = step.header_lines(panels)
            writer = stack.enter_context(
                open_writer(
                    step.path,
                    choose_form(step.path, output.output_type),
                    first.samples,
                    first.ploidy,
                    contig_lines,
                    [
                        *_header_lines(of_panels, output, summary.notes),
                        *_region_lines(regions, in_file, parts),
                    ],
                    output.formats,
                    sum(part.n_sites for part in parts),
                    threads,
                    sexes=sequencing.sexes,
                    decimals=output.decimals,
                )
            )
        begin_stage(progress, "imputing")
        shares = Shares(progress, [part.high - part.low for part in parts])
        for number, part in enumerate(parts):
            writer.set_ploidy(part.likelihoods.ploidy)
            _impute(part, writer, summary, threads_of_chains, shares.of(number))
    return writer


@contextmanager
def _written_beside(
    report: ReportFiles,
    summary: SequencedSummary,
    sequencing: SequencingSettings,
    panels: Sequence[ReferencePanel | str | Path],
) -> Iterator[None]:
    """Say what was known of the samples, and write the report, whose files get their names at the end."""
    summary.warnings += summary.coverage.warnings()  # of all chromosomes
    with ExitStack() as stack:
        if report.wanted:
            _write_report(report, stack, summary, sequencing, panels)
        yield


def _write_report(
    report: ReportFiles,
    beside: ExitStack,
    summary: SequencedSummary,
    sequencing: SequencingSettings,
    panels: Sequence[ReferencePanel | str | Path],
) -> None:
    from spinimpute.reports.multiqc import sequenced_samples
    from spinimpute.reports.sequenced_report import sequenced_report

    assert summary.report_data is not None, "they are there if a report was asked for"
    panel = Path(get_panel_path(panels[0])).name if len(panels) == 1 else f"{len(panels)} panels"
    report.write(
        sequenced_report(summary, summary.report_data, sequencing.named, panel),
        sequenced_samples(summary.report_data.by_sample, summary),
        beside,
    )


def _collect_report_data(
    summary: SequencedSummary, output: OutputSettings, parts: Sequence[Part], sequencing: SequencingSettings
) -> None:
    """Have the summary collect what a report tells; seldom wanted, so imported here."""
    from spinimpute.quality.report_data import ReportData
    from spinimpute.quality.sample_quality import SampleQuality

    data = summary.report_data = summary.report_data or ReportData(
        SampleQuality(parts[0].likelihoods.samples)
    )
    made = data.provenance
    made.add_run(output.header_lines, "two chains a sample that copy the panel (Li and Stephens); no network")
    made.add("target", sequencing.named)
    for part in parts:
        made.add_panel(part.panel)


def _impute(
    part: Part, writer: RecordWriter, summary: SequencedSummary, threads: int, progress: Progress | None
) -> None:
    likelihoods = part.likelihoods
    haploid_X = likelihoods.ploidy == 1
    phred_SX3 = at_all_sites(likelihoods, part.low, part.high)
    stretches = in_stretches(
        part.panel, part.low, phred_SX3, haploid_X, threads, progress, likelihoods.bases_X
    )
    while True:
        with summary.stage("impute"):
            start, p_S2X = next(stretches, (0, None))
        if p_S2X is None:
            return
        with summary.stage("write"):
            for low, high in part.written_of(start, start + len(p_S2X)):
                step = max(1, min(_WRITTEN_SITES, _WRITTEN // len(haploid_X)))
                for at in range(low, high, step):
                    rows = slice(at, min(at + step, high))
                    p_here_S2X = p_S2X[rows.start - start : rows.stop - start]
                    _write(writer, part.panel, rows, p_here_S2X, haploid_X, summary.report_data)
                summary.written_sites += high - low


def _write(
    writer: RecordWriter,
    panel: Panel,
    rows: slice,
    p_S2X: np.ndarray,
    haploid_X: np.ndarray,
    data: ReportData | None,
) -> None:
    p_SQ = in_columns(p_S2X, haploid_X)
    info, typed_S = site_quality(p_SQ), np.zeros(len(p_SQ), bool)
    if data is not None:
        r2, frequency_S = info["R2"], panel.frequency[rows]
        assert r2 is not None
        ploidy = np.where(haploid_X, 1, 2)
        variance_S2 = dosage_variance(p_SQ, frequency_S, ploidy)
        data.imputed.add(panel.chrom, panel.position[rows], frequency_S, r2, typed_S, variance_S2)
        data.by_sample.add_dosages(p_SQ, frequency_S, ploidy)
    alleles_SQ = in_columns(likeliest_alleles(p_S2X, haploid_X), haploid_X)
    writer.write_block(panel.chrom, panel.sites.take(rows), p_SQ, info, alleles_SQ, typed_S)


def _header_lines(of_panels: Sequence[str], output: OutputSettings, notes: Sequence[str]) -> list[str]:
    return [
        f"##source=spinimpute {version('spinimpute')}",
        *of_panels,
        *(f"##spinimpute_note={note}" for note in notes),
        *output.header_lines,
    ]


def _region_lines(regions: Sequence[Region], in_file: int, parts: Sequence[Part]) -> list[str]:
    """As of `impute`: which chain is a sample's first one is undetermined, as with calls phased here."""
    if in_file > 1:
        return [f"{REGIONS_LINE}{in_file}"]
    if not in_file:
        return []
    whole = Region(parts[0].panel.chrom, regions[0].start, regions[0].end)
    return [region_line(whole, sum(part.n_sites for part in parts), None, phased_here=True)]
