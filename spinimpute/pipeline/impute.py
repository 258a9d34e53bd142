"""`impute`: target file and panel in, imputed file out, window by window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.devices import default_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import Region, SiteMatch
from spinimpute.genotypes.windows import DEFAULT_LENGTH_CM, DEFAULT_OVERLAP_CM, Window, cut_windows
from spinimpute.hmm.leave_one_out import leave_one_out_probabilities
from spinimpute.output_files import check_output, written_whole
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel import Panel
from spinimpute.phasing.phase import phase
from spinimpute.pipeline.chunk_file import PANEL_LINE, region_line
from spinimpute.pipeline.prepare import AnyPanel, Prepared, open_panels, prepare
from spinimpute.pipeline.regions import check_buffer, panel_ranges, stretch_of, unmatched_sites, within
from spinimpute.pipeline.window_records import WindowRecords
from spinimpute.predictors.engine import Engine
from spinimpute.predictors.engines import engine_for, predictor_for
from spinimpute.predictors.haplotype_attention.chunk import ChunkSizes, windows_of_chunks
from spinimpute.predictors.haplotype_attention.memory import (
    DEFAULT,
    Limits,
    check_phasing,
    limits_within,
    resident_bytes,
    within_budget,
)
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.progress import Progress, Shares
from spinimpute.quality.summary import ImputationSummary, WindowSummary, peak_memory_mb
from spinimpute.vcf.indexed_file import choose_output_type
from spinimpute.vcf.writer import GenotypeWriter

DEFAULT_FORMATS = ("GT", "DS")
WINDOW_ENTRIES = 50_000_000  # of inducing points, sites x haplotypes computed before they are written
WINDOW_SITES = 20_000
PHASING = ("auto", "never")
ER2_LINE = (
    '##INFO=<ID=ER2,Number=1,Type=Float,Description="Typed sites: squared correlation of the genotypes and '
    'what the other typed sites of the same haplotypes predict (leave one out)">'
)
RELIABLE_SAMPLES = 50  # the standard error of a correlation of 0.9 is 0.03 then

if TYPE_CHECKING:
    from spinimpute.predictors.loading import Predictor
    from spinimpute.quality.leave_one_out import LeftOutQuality


@dataclass(frozen=True)
class OutputSettings:
    """formats: FORMAT fields in order; output_type: "z", "b", "v" or None (by suffix); keep_unmatched: write
    typed sites that the panel does not have; header_lines: further lines of the header."""

    formats: Sequence[str] = DEFAULT_FORMATS
    output_type: str | None = None
    keep_unmatched: bool = False
    header_lines: Sequence[str] = ()


def impute(
    vcf: str | Path,
    out: str | Path,
    panel: AnyPanel | str | Path,
    *,
    model: str | Path | Predictor | None = None,
    predictor: str | None = None,
    genetic_map: str | Path | GeneticMap | None = None,
    region: str | Region | None = None,
    buffer_cM: float | None = None,
    output: OutputSettings = OutputSettings(),
    inducing_points: int | None = None,
    window_cM: float | None = None,
    overlap_cM: float = DEFAULT_OVERLAP_CM,
    phasing: str = "auto",
    ambiguous: str = "frequency",
    threads: int | None = None,
    device: str = "auto",
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
    loo: bool = False,
    report: str | Path | None = None,
    max_memory: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ImputationSummary:
    """Impute the haplotypes of `vcf` at all sites of `panel` and write them to `out` with its index.

    Parameters:
        vcf: the target, in any form of `read_target`; may hold other chromosomes too.
        out: `.vcf.gz`, `.bcf` or `.vcf`; appears only when it is complete.
        panel: a `.spin` or `.spip` file, an open `Panel` or `InducingPanel`, or a VCF or BCF which is
            compiled first (with `genetic_map`).
        model: a checkpoint or a loaded predictor; by default a shipped one.
        predictor: "haplotype" (attention to the panel's haplotypes, the default) or "inducing" (points).
        region: impute these panel sites only; typed sites around them are still used. The output is a
            chunk, which `ligate` joins with others.
        buffer_cM: with `region`, use no typed sites but those this near to its panel sites, and those that
            chunks of a phased target need to give what they give in a single run; by default all of the
            chromosome. Of a file that `phase` or `convert` wrote for this panel no more is read.
        inducing_points: h of every block, at most; by default 1,024. For inducing points only.
        window_cM, overlap_cM: windows that are computed and written one after the other; by default 2 cM long
            for inducing points, which see nothing beyond the overlaps, and what memory allows for haplotype
            attention, whose results do not depend on windows.
        phasing: "auto" phases unphased heterozygotes first, against the panel and the other samples; "never"
            refuses them, as an inducing panel does, which has no haplotypes.
        ambiguous: what is done with A/T and C/G sites, see `repair_and_match`.
        sexes: sample -> whether male, for chromosome X (`read_sexes`); by default the calls tell.
        chain: a chain file from the target's genome build to the panel's: positions are lifted over.
        loo: predict each typed call from the others of its haplotype: INFO/ER2, and `left_out` of what is
            returned. For panels of haplotypes.
        report: write a page (HTML) about the run there; implies `loo` where that can be.
        max_memory: bytes that are not exceeded, for panels of haplotypes and without `loo` or `report`: less
            is worked on at the same time. Results do not depend on it.
        threads: by default all processors; results do not depend on it.
        progress: called with the fraction that is done.
    Returns:
        counts and timings.
    Raises:
        InputError: the input cannot be used; without `force`, if `out` exists or hardly any site matches.
    """
    panel_path = panel if isinstance(panel, str | Path) else panel.path
    out = check_output(out, force, [vcf, panel_path, model, genetic_map])
    page = None if report is None else check_output(report, force, [vcf, panel_path, model, genetic_map, out])
    if page is not None and page.resolve() == out.resolve():
        raise InputError(f"the report and the imputed genotypes cannot both be {out}; give two names")
    output_type = choose_output_type(out, output.output_type)
    threads = default_threads() if threads is None else threads
    if threads < 1:
        raise InputError(f"the number of threads must be at least 1, found {threads}")
    if phasing not in PHASING:
        raise InputError(f"unknown phasing {phasing!r}: give one of {', '.join(PHASING)}")
    region = Region.parse(region) if isinstance(region, str) else region
    check_buffer(buffer_cM, region)
    if max_memory is not None and (loo or report is not None):
        raise InputError("a budget of memory is not kept with --loo or --report: leave one of them out")
    summary = ImputationSummary()
    with ExitStack() as stack:
        with summary.stage("open panel"):
            panels = stack.enter_context(open_panels(panel, genetic_map))
        if loo and not isinstance(panels[0], Panel):
            raise InputError(
                f"panel {panels[0].path}: no call can be left out with inducing points, which are for all "
                "sites of an array; give a .spin file, a VCF or a BCF"
            )
        ranges = panel_ranges(panels, region)
        with summary.stage("load model"):
            loaded = predictor_for(panels[0], model, device, inducing_points, predictor)
        if max_memory is not None and not isinstance(loaded, HaplotypePredictor):
            raise InputError(
                "a budget of memory is kept with haplotype attention only, not with inducing points"
            )
        # a part of a file of ours will do only if the same sites are used as when it was written
        as_written = ambiguous == "frequency" and chain is None
        stretch = stretch_of(vcf, panels, region, buffer_cM) if as_written else None
        with summary.stage("read target"), within_budget(max_memory, "reading the target"):
            prepared = prepare(
                panels,
                vcf,
                summary,
                allow_unphased=phasing == "auto" and isinstance(panels[0], Panel),
                sexes=sexes,
                chain=chain,
                stretch=None if stretch is None else stretch.region,
                ambiguous=ambiguous,
                force=force,
            )
        if stretch is None:  # of a file of which a part will do this was asked when it was written
            for part in prepared:
                part.check_array()
        chosen = [(part, ranges[part.panel.checksum]) for part in prepared if part.panel.checksum in ranges]
        if not chosen:
            raise InputError(f"the target has no site in the part of the chromosome that {region} lies in")
        if stretch is not None:
            chosen = [(replace(part, jumps_per_cM=stretch.jumps_per_cM), span) for part, span in chosen]
        if buffer_cM is not None:
            chosen = [(within(part, *span, buffer_cM), span) for part, span in chosen]
            summary.used_sites = sum(len(part.match.panel_index) for part, _ in chosen)
        if summary.samples < RELIABLE_SAMPLES:
            summary.notes.append(
                f"R2 is estimated from {summary.samples} samples: of fewer than {RELIABLE_SAMPLES} it says "
                "little"
            )
        if page is not None:
            from spinimpute.quality.imputed_sites import ImputedSites

            summary.imputed = ImputedSites()
        if loo or (page is not None and isinstance(panels[0], Panel)):
            from spinimpute.quality.leave_one_out import LeftOutQuality  # seldom wanted

            summary.left_out = LeftOutQuality(list(chosen[0][0].target.samples))
        shares = Shares(progress, [last - first for _, (first, last) in chosen])
        first_part = chosen[0][0]
        unmatched = [
            unmatched_sites(part.target, part.match, region, summary) if output.keep_unmatched else None
            for part, _ in chosen
        ]
        header_lines = _header_lines(panels, loaded, output, summary.notes)
        if region is not None:
            n_sites = sum(last - first for _, (first, last) in chosen)
            n_unmatched = sum(map(len, kept)) if (kept := [u for u in unmatched if u is not None]) else None
            phased_here = any(part.target.unphased is not None for part, _ in chosen)
            named = replace(region, chrom=panels[0].chrom)
            header_lines.append(region_line(named, n_sites, n_unmatched, phased_here))
        writer = stack.enter_context(
            GenotypeWriter(
                out,
                first_part.target.samples,
                first_part.target.ploidy,
                [first_part.panel.contig_line],
                header_lines,
                output.formats,
                output_type,
                threads,
                extra_info_lines=[ER2_LINE] if loo else [],
            )
        )
        run = _Run(loaded, writer, summary, window_cM, overlap_cM, threads, loo, max_memory)
        for number, (part, span) in enumerate(chosen):
            _impute_part(run, part, *span, unmatched[number], shares.of(number))
        with summary.stage("finish file and index"):
            writer.close()
    summary.peak_memory_mb = peak_memory_mb()
    if page is not None:
        from spinimpute.reports.imputation_report import write_imputation_report

        assert summary.imputed is not None, "made above"
        with written_whole(page) as partial:
            write_imputation_report(summary, summary.imputed, vcf, panel_path, partial)
    return summary


@dataclass(frozen=True)
class _Run:
    """What all parts of a chromosome share."""

    predictor: Predictor
    writer: GenotypeWriter
    summary: ImputationSummary
    window_cM: float | None
    overlap_cM: float
    threads: int
    write_er2: bool
    max_memory: int | None


def _impute_part(
    run: _Run,
    part: Prepared,
    first: int,
    last: int,
    unmatched: np.ndarray | None,
    progress: Progress | None,
) -> None:
    """Phase what has no phase and impute the panel sites [first, last) of one part of the chromosome.

    unmatched: the target's sites that are written beside them, if any.
    """
    panel, target, match, summary = part.panel, part.target, part.match, run.summary
    run.writer.set_ploidy(target.ploidy)
    left_out = summary.left_out
    shares = Shares(progress, [target.unphased is not None, left_out is not None, 1])
    if target.unphased is not None:
        _limits(run, panel, match, target.alleles.shape[1])  # too little memory is said now, not later
        target = _phased(part, run.threads, run.max_memory, summary, shares.of(0))
    er2_T = None
    if left_out is not None:
        with summary.stage("leave one out"):
            er2_T = _left_out(part, target, left_out, run.threads, shares.of(1))
    n_haplotypes = target.alleles.shape[1]
    limits = _limits(run, panel, match, n_haplotypes)
    windows = _windows(
        panel, run.predictor, match, first, last, run.window_cM, run.overlap_cM, n_haplotypes, limits
    )
    written = er2_T if run.write_er2 else None
    records = WindowRecords(panel, target, match, unmatched, windows, written, summary.imputed)
    if isinstance(panel, InducingPanel):
        array = panel.typed_index
        summary.array_sites = len(array)
        summary.outside_array = int(np.isin(match.panel_index, array, invert=True).sum())
    scratch = run.writer.path.parent
    with engine_for(
        panel, run.predictor, match.panel_index, run.threads, limits, scratch, part.jumps_per_cM
    ) as engine:
        _stream(engine, records, run.writer, summary, shares.of(2))


def _limits(run: _Run, panel: AnyPanel, match: SiteMatch, n_haplotypes: int) -> Limits:
    """What is worked on at the same time. Raises InputError if that cannot be as little as is asked for."""
    if not isinstance(run.predictor, HaplotypePredictor) or not len(match.panel_index):
        return DEFAULT
    # calls are put into the panel's order, too
    held = 0 if run.max_memory is None else resident_bytes() + match.panel_index.size * n_haplotypes
    sizes = ChunkSizes.of(panel.cM, match.panel_index)
    return limits_within(run.max_memory, held, panel.n_haplotypes, n_haplotypes, run.threads, sizes)


def _windows(
    panel: AnyPanel,
    predictor: Predictor,
    match: SiteMatch,
    first: int,
    last: int,
    length_cM: float | None,
    overlap_cM: float,
    n_haplotypes: int,
    limits: Limits,
) -> list[Window]:
    """Windows over the panel sites [first, last); their overlaps may reach beyond."""
    if isinstance(predictor, HaplotypePredictor):
        length_cM = math.inf if length_cM is None else length_cM
        if not length_cM > 0 or not overlap_cM >= 0:
            raise InputError(
                "a window must have a positive length, and an overlap of at least 0 cM: "
                f"got {length_cM} cM, overlap {overlap_cM} cM"
            )
        return windows_of_chunks(
            panel.cM,
            match.panel_index,
            first,
            last,
            length_cM,
            limits.window // n_haplotypes,
        )
    length_cM = DEFAULT_LENGTH_CM if length_cM is None else length_cM
    most = max(1, min(WINDOW_SITES, WINDOW_ENTRIES // n_haplotypes))
    span = slice(first, last)
    cut = cut_windows(panel.cM[span], panel.position[span], length_cM, overlap_cM, most)
    windows = []
    for w in cut:
        start, stop = w.start + first, w.stop + first
        left = int(np.searchsorted(panel.cM, panel.cM[start] - overlap_cM, side="left"))
        right = int(np.searchsorted(panel.cM, panel.cM[stop - 1] + overlap_cM, side="right"))
        windows.append(Window(w.index, start, stop, left, right))
    return windows


def _phased(
    part: Prepared,
    threads: int,
    max_memory: int | None,
    summary: ImputationSummary,
    progress: Progress | None,
) -> Haplotypes:
    """The target with the phase of its matched sites; the others' stays unknown."""
    panel, target, match = part.panel, part.target, part.match
    assert isinstance(panel, Panel), "only a panel's haplotypes can phase"
    assert target.unphased is not None
    unphased = target.unphased[match.target_index]
    summary.count_phased(unphased)
    alleles = target.alleles.copy()
    with summary.stage("phase"):
        check_phasing(max_memory, panel.n_haplotypes, len(match.panel_index), threads)
        alleles[match.target_index] = phase(
            panel,
            match.panel_index,
            alleles[match.target_index],
            unphased,
            target.ploidy,
            threads,
            progress,
            jumps_per_cM=part.jumps_per_cM,
        )
    still_unphased = target.unphased.copy()
    still_unphased[match.target_index] = False
    return replace(target, alleles=alleles, unphased=still_unphased)


def _left_out(
    part: Prepared,
    target: Haplotypes,
    quality: LeftOutQuality,
    threads: int,
    progress: Progress | None,
) -> np.ndarray:
    """ER2 of the matched sites, float64 (T,). target: with its phase."""
    panel, match = part.panel, part.match
    assert isinstance(panel, Panel), "refused for others"
    alleles_TQ, index = target.alleles[match.target_index], match.panel_index
    probability_TQ = leave_one_out_probabilities(
        panel, index, alleles_TQ, threads, progress, part.jumps_per_cM
    )
    sites, frequency_T = panel.sites.take(index), panel.frequency[index]
    return quality.add(sites, frequency_T, alleles_TQ, probability_TQ, target.ploidy)


def _header_lines(
    panels: Sequence[AnyPanel], predictor: Predictor, output: OutputSettings, notes: Sequence[str]
) -> list[str]:
    return [
        f"##source=spinimpute {version('spinimpute')}",
        f"##spinimpute_model={predictor.kind} {predictor.fingerprint} {predictor.device_name}",
        *(f"{PANEL_LINE}{panel.checksum}{_made_of(panel)}" for panel in panels),
        *(f"##spinimpute_note={note}" for note in notes),
        *output.header_lines,
    ]


def _made_of(panel: AnyPanel) -> str:
    if isinstance(panel, Panel):
        return ""
    return f" (at most {panel.inducing_points} inducing points of the panel {panel.panel_checksum})"


def _stream(
    engine: Engine,
    records: WindowRecords,
    writer: GenotypeWriter,
    summary: ImputationSummary,
    progress: Progress | None,
) -> None:
    """Compute windows in order; those that are finished are written meanwhile."""
    panel, windows = records.panel, records.windows
    pending: Future[int] | None = None
    results = engine.impute_windows(windows, records.typed_TQ)
    # whatever fails: results end before the engine does
    with closing(results), ThreadPoolExecutor(1, "write") as background:
        for window in windows:
            with summary.stage("impute"):
                p_UQ = next(results)
            with summary.stage("wait for writing"):
                if pending is not None:
                    summary.count_kept(pending.result())
            pending = background.submit(records.write, writer, window, p_UQ)
            low, high = np.searchsorted(engine.typed_index, [window.start, window.stop])
            summary.windows.append(
                WindowSummary(
                    int(panel.position[window.start]),
                    int(panel.position[window.stop - 1]),
                    window.stop - window.start,
                    int(high - low),
                )
            )
            if progress is not None:
                progress((window.stop - windows[0].start) / (windows[-1].stop - windows[0].start))
        with summary.stage("wait for writing"):
            if pending is not None:
                summary.count_kept(pending.result())
    summary.written_sites += windows[-1].stop - windows[0].start
