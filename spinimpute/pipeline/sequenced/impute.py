"""`impute` of sequenced samples: likelihoods or reads and a panel in, imputed file out.

Axes: S sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.memory import FEWER_SAMPLES, peak_memory_mb, within_budget
from spinimpute.output_files import check_outputs, written_whole
from spinimpute.outputs.opening import RecordWriter, choose_form, open_writer
from spinimpute.panels.opening import OneOrSeveral, open_panels, paths_of
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.stretches import in_stretches, threads_within
from spinimpute.pipeline.chunk_file import PANEL_LINE, region_line
from spinimpute.pipeline.sequenced.columns import in_columns, likeliest_alleles
from spinimpute.pipeline.sequenced.inputs import SequencingSettings, at_all_sites
from spinimpute.pipeline.sequenced.parts import Part, read_parts
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources, check_settings
from spinimpute.progress import Progress, Shares, begin_stage
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.sequenced_summary import SequencedSummary
from spinimpute.quality.site_quality import site_quality

_WRITTEN = 2**18  # genotypes at once, and
_WRITTEN_SITES = 8_192  # sites


def impute_sequenced(
    out: str | Path,
    panel: OneOrSeveral,
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

    No sample's result depends on the others.

    Parameters
    ----------
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`; appears only when it is complete.
    panel : ReferencePanel, str or Path, or sequence of them
        A `.spin` file, an open `Panel`, or a VCF or BCF, which is compiled first. Several panel files of one
        chromosome are merged, in the order given.
    sequencing : SequencingSettings
        What is known of the samples.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    region : RegionSettings
        Which panel sites are imputed, by default all; the buffer is BUFFER_CM unless it is given.
    output : OutputSettings
        Formats, decimals, type and header lines of the file, and a report; nothing else of it.
    resources : Resources
        Threads, and memory: fewer threads work where it is too little for all.
    force : bool
        Replace existing files.
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
    check_outputs(
        [out, output.report], force, [*paths_of(panel), genetic_map, *sequencing.paths], streamed=out
    )
    form = choose_form(Path(out), output.output_type)
    threads = choose_threads(resources.threads)
    wanted, buffer_cM = region.parsed()
    summary = SequencedSummary()
    with ExitStack() as stack:
        begin_stage(progress, "opening the panel")
        with summary.stage("open panel"):
            panels = stack.enter_context(open_panels(panel, genetic_map, threads))
        begin_stage(progress, "reading the samples")
        reading = within_budget(resources.max_memory, "reading the samples", FEWER_SAMPLES)
        with summary.stage("read samples"), reading:
            parts = read_parts(panels, sequencing, wanted, buffer_cM, summary, force=force)
        threads_of_chains = min(
            threads_within(resources.max_memory, one.panel, one.low, one.high, len(summary.samples), threads)
            for one in parts
        )
        summary.note_few_samples(len(summary.samples))
        if output.report is not None:
            summary.imputed = ImputedSites()
        first = parts[0]
        writer = stack.enter_context(
            open_writer(
                Path(out),
                form,
                first.likelihoods.samples,
                first.likelihoods.ploidy,
                [first.panel.contig_line],
                _header_lines(panels, output, wanted, parts, summary.notes),
                output.formats,
                sum(part.high - part.low for part in parts),
                threads,
                sexes=sequencing.sexes,
                decimals=output.decimals,
            )
        )
        begin_stage(progress, "imputing")
        shares = Shares(progress, [part.high - part.low for part in parts])
        for number, part in enumerate(parts):
            if number > 0:
                writer.set_ploidy(part.likelihoods.ploidy)
            _impute(part, writer, summary, threads_of_chains, shares.of(number))
        with summary.stage("finish file and index"):
            writer.finish()
        summary.peak_memory_mb = peak_memory_mb()
        with ExitStack() as beside:  # both files get their names together
            if output.report is not None:
                partial = beside.enter_context(written_whole(Path(output.report)))
                paths = paths_of(panel)
                named = paths[0] if len(paths) == 1 else f"{len(paths)} panels"
                _write_report(partial, summary, sequencing, named)
            writer.close()
    return summary


def _impute(
    part: Part, writer: RecordWriter, summary: SequencedSummary, threads: int, progress: Progress | None
) -> None:
    likelihoods = part.likelihoods
    haploid_X = likelihoods.ploidy == 1
    phred_SX3 = at_all_sites(likelihoods, part.low, part.high)
    stretches = in_stretches(part.panel, part.low, phred_SX3, haploid_X, threads, progress)
    while True:
        with summary.stage("impute"):
            start, p_S2X = next(stretches, (0, None))
        if p_S2X is None:
            return
        with summary.stage("write"):
            low, high = max(start, part.first), min(start + len(p_S2X), part.last)
            step = max(1, min(_WRITTEN_SITES, _WRITTEN // len(haploid_X)))
            for at in range(low, high, step):
                rows = slice(at, min(at + step, high))
                p_here_S2X = p_S2X[rows.start - start : rows.stop - start]
                _write(writer, part.panel, rows, p_here_S2X, haploid_X, summary.imputed)
            summary.written_sites += max(0, high - low)


def _write(
    writer: RecordWriter,
    panel: Panel,
    rows: slice,
    p_S2X: np.ndarray,
    haploid_X: np.ndarray,
    collected: ImputedSites | None,
) -> None:
    p_SQ = in_columns(p_S2X, haploid_X)
    info, typed_S = site_quality(p_SQ), np.zeros(len(p_SQ), bool)
    if collected is not None:
        r2 = info["R2"]
        assert r2 is not None
        collected.add(panel.chrom, panel.position[rows], panel.frequency[rows], r2, typed_S)
    alleles_SQ = in_columns(likeliest_alleles(p_S2X, haploid_X), haploid_X)
    writer.write_block(panel.chrom, panel.sites.take(rows), p_SQ, info, alleles_SQ, typed_S)


def _write_report(
    partial: Path, summary: SequencedSummary, sequencing: SequencingSettings, panel: str | Path
) -> None:
    from spinimpute.reports.sequenced_report import write_sequenced_report

    assert summary.imputed is not None, "it is there if a report was asked for"
    write_sequenced_report(summary, summary.imputed, sequencing.named, panel, partial)


def _header_lines(
    panels: Sequence[ReferencePanel],
    output: OutputSettings,
    region: Region | None,
    parts: Sequence[Part],
    notes: Sequence[str],
) -> list[str]:
    lines = [
        f"##source=spinimpute {version('spinimpute')}",
        *(f"{PANEL_LINE}{panel.checksum}{panel.made_of}" for panel in panels),
        *(f"##spinimpute_note={note}" for note in notes),
        *output.header_lines,
    ]
    if region is not None:
        whole = Region(parts[0].panel.chrom, region.start, region.end)
        # which chain is a sample's first one is undetermined, as with calls that are phased here
        lines.append(
            region_line(whole, sum(part.last - part.first for part in parts), None, phased_here=True)
        )
    return lines
