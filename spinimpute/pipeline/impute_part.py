"""Imputes one part of a chromosome: phase, leave-one-out quality, windows, records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes, sibling_haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.leave_one_out import leave_one_out_probabilities
from spinimpute.outputs.opening import RecordWriter
from spinimpute.phasing.memory import check_phasing
from spinimpute.phasing.phase import phase_haplotypes
from spinimpute.pipeline.prepare import Prepared
from spinimpute.pipeline.regions import RegionPart
from spinimpute.pipeline.window_records import WindowRecords
from spinimpute.predictors.engine import Engine, ImputationJob
from spinimpute.predictors.interface import Predictor
from spinimpute.quality.summary import ImputationSummary, WindowCounts
from spinimpute.runtime.progress import Progress, Shares, begin_stage


@dataclass(frozen=True)
class Run:
    """What all parts of a chromosome share.

    Attributes
    ----------
    predictor : Predictor
        What imputes.
    options : mapping
        Options of the predictor.
    writer : RecordWriter
        The open output.
    summary : ImputationSummary
        Counts and timings are added to it.
    threads : int
        Results do not depend on it.
    write_er2 : bool
        Write INFO/ER2 of every typed site.
    """

    predictor: Predictor
    options: Mapping[str, Any]
    writer: RecordWriter
    summary: ImputationSummary
    threads: int
    write_er2: bool


def impute_part(
    run: Run, chosen: RegionPart, unmatched: np.ndarray | None, progress: Progress | None
) -> None:
    """Phase what is unphased, impute panel sites of a part, and write them.

    Parameters
    ----------
    run : Run
        The summary's `leave_one_out` and `report_data` are filled if they are there.
    chosen : RegionPart
        The target's part, and the panel sites.
    unmatched : int64 array or None
        Sites of the target that the panel lacks and that are written, too.
    progress : callable, optional
        Called with the fraction that is done.
    """
    part, summary = chosen.part, run.summary
    panel, target, match = part.panel, part.target, part.match
    run.writer.set_ploidy(target.ploidy)
    job = ImputationJob(
        panel,
        match.panel_index,
        run.threads,
        target.alleles.shape[1],
        run.options,
        run.writer.temporary_folder,
        part.jumps_per_cM,
        sibling_haplotypes(target.haplotype_sample),
    )
    shares = Shares(progress, [target.unphased is not None, summary.leave_one_out is not None, 1])
    to_phase = target.unphased is not None and bool(target.unphased[match.target_index].any())
    if to_phase:  # reported now, not later
        run.predictor.check_memory(job)
        _check_phasing(run, part)
    if part.jumps_per_cM is None and (to_phase or summary.leave_one_out is not None):
        begin_stage(progress, "estimating recombination")
        with summary.stage("estimate recombination"):
            part = part.with_rate()  # once for all that need it
        job = replace(job, jumps_per_cM=part.jumps_per_cM)
    if target.unphased is not None:
        target = _phased(run, part, shares.of(0))
    er2_T = None
    if summary.leave_one_out is not None:
        begin_stage(progress, "leaving typed calls out")
        with summary.stage("leave one out"):
            er2_T = _leave_one_out(run, part, target, shares.of(1))
    with run.predictor.engine(job) as engine:
        windows: list[_Written] = []
        for place in chosen.places:
            own = engine.windows(Interval(place.first, place.last))
            extra = np.empty(0, np.int64)
            if unmatched is not None:
                extra = place.rows_within(target.sites.position, unmatched)
            extras = _of_windows(panel.position, target.sites.position, extra, own)
            windows += map(_Written, own, extras)
        records = WindowRecords(panel, target, match, er2_T if run.write_er2 else None, summary.report_data)
        _impute_windows(engine, records, windows, run.writer, summary, shares.of(2))


@dataclass(frozen=True)
class _Written:
    """A window, and sites of the target that the panel lacks and that are written with it: int64 rows."""

    window: Interval
    extra: np.ndarray


def _of_windows(
    panel_position: np.ndarray,
    target_position: np.ndarray,
    unmatched: np.ndarray,
    windows: Sequence[Interval],
) -> list[np.ndarray]:
    """Unmatched sites by window: those up to its end, the rest with the last."""
    ends = [int(panel_position[window.stop - 1]) for window in windows[:-1]]
    return np.split(unmatched, np.searchsorted(target_position[unmatched], ends, side="right"))


def _check_phasing(run: Run, part: Prepared) -> None:
    haplotypes, n_typed = part.panel.haplotypes, len(part.match.panel_index)
    assert haplotypes is not None, "unphased targets are refused without haplotypes"
    check_phasing(run.options.get("max_memory"), haplotypes.n_haplotypes, n_typed, run.threads)


def _phased(run: Run, part: Prepared, progress: Progress | None) -> Haplotypes:
    """The target with the phase of its matched sites; the others' stays unknown."""
    haplotypes, target, match, summary = part.panel.haplotypes, part.target, part.match, run.summary
    assert haplotypes is not None, "unphased targets are refused without haplotypes"
    assert target.unphased is not None
    unphased = target.unphased[match.target_index]
    summary.count_phased(unphased)
    alleles = target.alleles.copy()
    begin_stage(progress, "phasing")
    with summary.stage("phase"):
        alleles[match.target_index] = phase_haplotypes(
            haplotypes,
            match.panel_index,
            alleles[match.target_index],
            unphased,
            target.ploidy,
            run.threads,
            progress,
            jumps_per_cM=part.jumps_per_cM,
        )
    still_unphased = target.unphased.copy()
    still_unphased[match.target_index] = False
    return replace(target, alleles=alleles, unphased=still_unphased)


def _leave_one_out(run: Run, part: Prepared, target: Haplotypes, progress: Progress | None) -> np.ndarray:
    """ER2 of the matched sites, float64 (T,). target: with its phase."""
    haplotypes, index, quality = part.panel.haplotypes, part.match.panel_index, run.summary.leave_one_out
    assert haplotypes is not None, "refused without haplotypes"
    assert quality is not None
    alleles_TQ = target.alleles[part.match.target_index]
    probability_TQ = leave_one_out_probabilities(
        haplotypes, index, alleles_TQ, run.threads, progress, part.jumps_per_cM
    )
    sites, frequency_T = haplotypes.sites.take(index), haplotypes.frequency[index]
    return quality.add(sites, frequency_T, alleles_TQ, probability_TQ, target.ploidy)


def _impute_windows(
    engine: Engine,
    records: WindowRecords,
    windows: Sequence[_Written],
    writer: RecordWriter,
    summary: ImputationSummary,
    progress: Progress | None,
) -> None:
    """Compute windows in order; those that are finished are written meanwhile."""
    n_sites, done = sum(one.window.stop - one.window.start for one in windows), 0
    begin_stage(progress, "imputing")
    pending: Future[None] | None = None
    results = engine.impute_windows([one.window for one in windows], records.typed_TQ)
    # even after an error, results end before the engine does
    with closing(results), ThreadPoolExecutor(1, "write") as background:
        for one in windows:
            window = one.window
            with summary.stage("impute"):
                p_UQ = next(results)
            with summary.stage("wait for writing"):
                if pending is not None:
                    pending.result()
            pending = background.submit(records.write, writer, window, p_UQ, one.extra)
            summary.windows.append(_window_counts(engine, records, window))
            summary.count_kept(len(one.extra))
            done += window.stop - window.start
            if progress is not None:
                progress(done / n_sites)
        with summary.stage("wait for writing"):
            if pending is not None:
                pending.result()
    summary.written_sites += n_sites


def _window_counts(engine: Engine, records: WindowRecords, window: Interval) -> WindowCounts:
    position = records.panel.position
    low, high = np.searchsorted(engine.typed_index, [window.start, window.stop])
    return WindowCounts(
        records.panel.chrom,
        int(position[window.start]),
        int(position[window.stop - 1]),
        window.stop - window.start,
        int(high - low),
    )
