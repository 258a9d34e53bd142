"""Imputation of a target that was matched to a panel.

For each part of a chromosome, `TargetImputer.impute` phases the target if necessary, measures accuracy by
leaving out typed calls if requested, imputes window by window, and writes the records. A window is an
interval of panel sites that is computed in one step.

Axes: T matched sites, U panel sites of a window, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes, sibling_haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.sites import SiteMatch, Sites
from spinimpute.genotypes.untyped_intervals import far_from_typed
from spinimpute.outputs.opening import RecordWriter
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.matched_target import MatchedTarget
from spinimpute.pipeline.regions import RegionTarget
from spinimpute.predictors.interface import Engine, ImputationJob, Predictor
from spinimpute.quality.label_calls import LabelCalls
from spinimpute.quality.leave_one_out import N_CALL_SUMS, empirical_r2
from spinimpute.quality.site_quality import STRAND_CHOSEN, site_quality, site_sums
from spinimpute.quality.stored_sums import ER2_SUMS, SUMS, encode_call_sums, encode_sums
from spinimpute.quality.summary import ImputationSummary, WindowCounts
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.vcf.record_block import RecordBlock

if TYPE_CHECKING:
    from spinimpute.quality.report_data import ReportData


@dataclass(frozen=True)
class TargetImputer:
    """Imputes the targets of a chromosome and writes them with one writer.

    Counts and timings are added to the summary. If the `leave_one_out` and `report_data` of the summary are
    not None, they are filled.
    """

    predictor: Predictor
    options: Mapping[str, Any]  # options of the predictor
    writer: RecordWriter
    summary: ImputationSummary
    threads: int  # results do not depend on the number of threads
    write_er2: bool  # whether to write INFO/ER2 of every typed site
    write_sums: bool  # whether to write what `merge` needs
    record_rows: Callable[[ReferencePanel], RecordRows]  # which sites of a panel are one record

    def impute(self, target: RegionTarget, unmatched: np.ndarray, progress: Progress | None) -> None:
        """Phase a target if necessary, impute the sites of its intervals and write them.

        unmatched: rows of the target whose sites are not in the panel, to be written too, int64.
        """
        matched, summary = target.matched, self.summary
        panel, haplotypes, match = matched.panel, matched.target, matched.match
        measures_quality = summary.leave_one_out is not None
        self.writer.set_ploidy(haplotypes.ploidy)
        job = ImputationJob(
            panel,
            match.panel_index,
            self.threads,
            haplotypes.alleles.shape[1],
            self.options,
            self.writer.temporary_folder,
            matched.jumps_per_cM,
            sibling_haplotypes(np.repeat(np.arange(len(haplotypes.samples)), haplotypes.ploidy)),
            Interval(target.intervals[0].sites.start, target.intervals[-1].sites.stop),
        )
        shares = split_progress(progress, [haplotypes.unphased is not None, measures_quality, 1])
        unphased = haplotypes.unphased is not None and bool(haplotypes.unphased[match.target_index].any())
        if unphased:  # check memory before hours of work
            from spinimpute.phasing.memory import check_phasing  # imported here: it loads many kernels

            self.predictor.check_memory(job)
            assert panel.haplotypes is not None, "unphased targets are refused without haplotypes"
            n_haplotypes, n_typed = panel.haplotypes.n_haplotypes, len(match.panel_index)
            check_phasing(self.options.get("max_memory"), n_haplotypes, n_typed, self.threads)
        if matched.jumps_per_cM is None and (unphased or measures_quality):
            begin_stage(progress, "estimating recombination")
            with summary.stage("estimate recombination"):
                matched = matched.with_recombination_scale()
            job = replace(job, jumps_per_cM=matched.jumps_per_cM)
        if haplotypes.unphased is not None:
            haplotypes = self._phase(matched, shares[0])
        call_sums_KT = self._leave_one_out(matched, haplotypes, shares[1]) if measures_quality else None
        typed_TQ = haplotypes.alleles[match.target_index]
        records = WindowRecords(
            panel,
            haplotypes,
            match,
            typed_TQ,
            match.panel_index[typed_TQ.max(axis=1) >= 0],
            self.record_rows(panel),
            call_sums_KT if self.write_er2 else None,
            matched.strand_chosen() if self.write_sums else None,
            summary.report_data,
            summary.labels,
        )
        with self.predictor.engine(job) as engine:
            windows: list[tuple[Interval, np.ndarray]] = []
            for interval in target.intervals:
                cut_windows, position = engine.windows(interval.sites), haplotypes.sites.position
                unmatched_rows = interval.rows_within(position, unmatched) if len(unmatched) else unmatched
                ends = [window.positions(panel.position)[1] for window in cut_windows[:-1]]
                split = np.searchsorted(position[unmatched_rows], ends, side="right")
                windows += zip(cut_windows, np.split(unmatched_rows, split), strict=True)
            self._impute_windows(engine, records, windows, shares[2])

    def _phase(self, matched: MatchedTarget, progress: Progress | None) -> Haplotypes:
        """Return the target with its matched sites phased. Other sites stay unphased."""
        from spinimpute.phasing.phase import phase_haplotypes

        panel, target, index = matched.panel.haplotypes, matched.target, matched.match.target_index
        assert panel is not None, "unphased targets are refused without haplotypes"
        assert target.unphased is not None
        self.summary.count_phased(target.unphased[index])
        alleles = target.alleles.copy()
        begin_stage(progress, "phasing")
        with self.summary.stage("phase"):
            alleles[index] = phase_haplotypes(
                panel,
                matched.match.panel_index,
                alleles[index],
                target.unphased[index],
                target.ploidy,
                self.threads,
                progress,
                jumps_per_cM=matched.jumps_per_cM,
            )
        still_unphased = target.unphased.copy()
        still_unphased[index] = False
        return replace(target, alleles=alleles, unphased=still_unphased)

    def _leave_one_out(
        self, matched: MatchedTarget, phased: Haplotypes, progress: Progress | None
    ) -> np.ndarray:
        """Add leave-one-out accuracy to the summary. Return `call_sums` of the matched sites, int64."""
        from spinimpute.hmm.leave_one_out import leave_one_out_probabilities

        panel, index, quality = (
            matched.panel.haplotypes,
            matched.match.panel_index,
            self.summary.leave_one_out,
        )
        assert panel is not None, "refused without haplotypes"
        assert quality is not None
        alleles_TQ = phased.alleles[matched.match.target_index]
        begin_stage(progress, "leaving typed calls out")
        with self.summary.stage("leave one out"):
            probability_TQ = leave_one_out_probabilities(
                panel, index, alleles_TQ, self.threads, progress, matched.jumps_per_cM
            )
            sites, frequency_T = panel.sites.take(index), panel.frequency[index]
            return quality.add(sites, frequency_T, alleles_TQ, probability_TQ, phased.ploidy)

    def _impute_windows(
        self,
        engine: Engine,
        records: WindowRecords,
        windows: Sequence[tuple[Interval, np.ndarray]],
        progress: Progress | None,
    ) -> None:
        """Compute windows in order, and write each with its unmatched sites while the next is computed."""
        summary = self.summary
        n_sites, done = sum(window.n_sites for window, _ in windows), 0
        begin_stage(progress, "imputing")
        pending: Future[None] | None = None
        results = engine.impute_windows([window for window, _ in windows], records.typed_TQ)
        # closing() ends the generator before the engine is closed, also after an error.
        with closing(results), ThreadPoolExecutor(1, "write") as background:
            for window, unmatched_rows in windows:
                with summary.stage("impute"):
                    p_UQ = next(results)
                with summary.stage("wait for writing"):
                    if pending is not None:
                        pending.result()
                pending = background.submit(records.write, self.writer, window, p_UQ, unmatched_rows)
                summary.windows.append(_count_window(window, engine, records))
                summary.kept_unmatched += len(unmatched_rows)
                summary.written_sites += len(unmatched_rows)
                done += window.n_sites
                if progress is not None:
                    progress(done / n_sites)
            with summary.stage("wait for writing"):
                if pending is not None:
                    pending.result()
        summary.written_sites += n_sites


def _count_window(window: Interval, engine: Engine, records: WindowRecords) -> WindowCounts:
    """Count the panel sites, typed sites and target sites of a window."""
    first_typed, end_typed = np.searchsorted(engine.typed_index, window).tolist()
    first_match, end_match = np.searchsorted(records.match.panel_index, window).tolist()
    start, end = window.positions(records.panel.position)
    position = records.target.sites.position
    first, stop = np.searchsorted(position, [start, end + 1]).tolist()
    return WindowCounts(
        records.panel.chrom,
        start,
        end,
        window.n_sites,
        end_typed - first_typed,
        stop - first,
        end_match - first_match,
    )


@dataclass(frozen=True)
class WindowRecords:
    """Converts imputed windows to records with R2, AF and FAR; typed calls are written unchanged.

    FAR (far from any typed site) is written only for panels of haplotypes. With inducing points, only the
    typed sites that the region's blocks use are read, so unread typed sites may be near.
    """

    panel: ReferencePanel
    target: Haplotypes  # phased
    match: SiteMatch  # pairs of target sites and panel sites
    typed_TQ: np.ndarray  # alleles at the matched sites, int8; -1: missing
    called_index: np.ndarray  # panel sites at which any sample has a call, int64
    record_rows: RecordRows  # panel sites that are one record
    call_sums_KT: np.ndarray | None = None  # of the matched sites, for ER2; None: do not write ER2
    # panel sites whose strand allele frequencies switched, int64; None: do not write what `merge` needs
    strand_chosen: np.ndarray | None = None
    report_data: ReportData | None = None  # collects the quality of panel sites and samples
    labels: LabelCalls | None = None  # collects the labels of the samples

    def write(self, writer: RecordWriter, window: Interval, p_UQ: np.ndarray, unmatched: np.ndarray) -> None:
        """Write the records of a window from P(ALT), p_UQ, together with the target's unmatched rows."""
        match, panel = self.match, self.panel
        first_typed, end_typed = np.searchsorted(match.panel_index, window)
        typed_rows = match.panel_index[first_typed:end_typed] - window.start
        typed_UQ = self.typed_TQ[first_typed:end_typed]
        p_UQ[typed_rows] = np.where(typed_UQ >= 0, typed_UQ, p_UQ[typed_rows])
        alleles_UQ = (p_UQ >= 0.5).astype(np.int8)
        typed = np.zeros(len(p_UQ), dtype=bool)
        typed[typed_rows] = True
        if self.labels is not None:
            for locus, alleles, rows in panel.records.labels_within(panel.sites, window):
                p_KQ = p_UQ[rows.start - window.start : rows.stop - window.start]
                self.labels.add(locus, alleles, p_KQ, self.target.ploidy)
        if self.report_data is not None:
            quality = site_quality(site_sums(p_UQ))
            self.report_data.add_window(panel, window.slice, p_UQ, quality, typed, self.target.ploidy)
        writes_far = panel.haplotypes is not None
        far = np.zeros(len(p_UQ), dtype=bool)
        if writes_far:
            far = far_from_typed(panel.cM, self.called_index, window)
        call_sums_KU = np.zeros((N_CALL_SUMS, len(p_UQ)), np.int64)
        if self.call_sums_KT is not None:
            call_sums_KU[:, typed_rows] = self.call_sums_KT[:, first_typed:end_typed]
        sites = panel.sites.take(window.slice)
        continues = self.record_rows.continues[window.slice]
        if len(unmatched):
            alleles = self.target.alleles[unmatched]
            p_UQ = np.concatenate([p_UQ, np.where(alleles < 0, np.nan, alleles).astype(np.float32)])
            alleles_UQ = np.concatenate([alleles_UQ, alleles])
            typed = np.concatenate([typed, np.ones(len(unmatched), dtype=bool)])
            far, continues = (
                np.concatenate([flags, np.zeros(len(unmatched), dtype=bool)]) for flags in (far, continues)
            )
            no_sums = np.zeros((N_CALL_SUMS, len(unmatched)), np.int64)
            call_sums_KU = np.concatenate([call_sums_KU, no_sums], axis=1)
            sites = Sites.concatenate([sites, self.target.sites.take(unmatched)])
            order = np.argsort(sites.position, kind="stable")
            p_UQ, alleles_UQ, sites = p_UQ[order], alleles_UQ[order], sites.take(order)
            typed, far, call_sums_KU = typed[order], far[order], call_sums_KU[:, order]
            continues = continues[order]
        sums_KU = site_sums(p_UQ)
        info = site_quality(sums_KU)
        if writes_far:
            info["FAR"] = far
        if self.call_sums_KT is not None:
            info["ER2"] = empirical_r2(call_sums_KU)
        if self.strand_chosen is not None:
            chosen = np.isin(sites.position, panel.position[self.strand_chosen]) & typed
            sums_KU[-1] |= STRAND_CHOSEN * chosen
            info[SUMS] = np.array(encode_sums(sums_KU), object)
            if self.call_sums_KT is not None:
                info[ER2_SUMS] = np.array(encode_call_sums(call_sums_KU), object)
        writer.write_block(
            RecordBlock(panel.chrom, sites, p_UQ, info, alleles_UQ, typed, continues=continues)
        )
