"""Turns the results of a window into records of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import SiteMatch, Sites
from spinimpute.genotypes.untyped_intervals import far_from_typed
from spinimpute.outputs.opening import RecordWriter
from spinimpute.panels.reference import ReferencePanel
from spinimpute.quality.site_quality import dosage_variance, site_quality

if TYPE_CHECKING:
    from spinimpute.quality.report_data import ReportData


def flags_far(panel: ReferencePanel) -> bool:
    """Whether sites far from typed ones are flagged.

    Not with inducing points: of a region's typed sites no more are read than its blocks see, and others may
    be near.
    """
    return panel.haplotypes is not None


class WindowRecords:
    """Makes the records of windows: typed calls unchanged, R2, AF and FAR, unmatched typed sites.

    Parameters
    ----------
    panel : ReferencePanel
        Its sites are written.
    target : Haplotypes
        With phase.
    match : SiteMatch
        Which of the target's sites the panel has.
    er2_T : float64 (T,), optional
        ER2 of the matched sites, if it is to be written.
    collected : ReportData, optional
        Gets the quality of every panel site, and of every sample at imputed ones.

    Attributes
    ----------
    typed_TQ : int8 (T, Q)
        Alleles of the matched typed sites in panel order, -1 where missing.
    """

    def __init__(
        self,
        panel: ReferencePanel,
        target: Haplotypes,
        match: SiteMatch,
        er2_T: np.ndarray | None = None,
        collected: ReportData | None = None,
    ) -> None:
        self.er2_T, self.collected = er2_T, collected
        self.panel, self.target, self.match = panel, target, match
        self.typed_TQ = target.alleles[match.target_index]
        self._called_index = match.panel_index[self.typed_TQ.max(axis=1) >= 0]

    def write(self, writer: RecordWriter, window: Interval, p_UQ: np.ndarray, extra: np.ndarray) -> None:
        """Write the records of a window.

        Parameters
        ----------
        writer : RecordWriter
            The open output.
        window : Interval
            The next window.
        p_UQ : float32 (U, Q)
            P(ALT) at its panel sites.
        extra : int64 array
            Sites of the target that the panel lacks and that are written with it.
        """
        match, panel = self.match, self.panel
        low, high = np.searchsorted(match.panel_index, [window.start, window.stop])
        typed_rows = match.panel_index[low:high] - window.start
        known = self.typed_TQ[low:high]
        p_UQ[typed_rows] = np.where(known >= 0, known, p_UQ[typed_rows])
        hard_UQ = (p_UQ >= 0.5).astype(np.int8)
        typed = np.zeros(len(p_UQ), dtype=bool)
        typed[typed_rows] = True
        if self.collected is not None:
            frequency_U = panel.frequency[window.start : window.stop]
            self.collected.by_sample.add_dosages(p_UQ[~typed], frequency_U[~typed], self.target.ploidy)
            position_U, r2_U = panel.position[window.start : window.stop], site_quality(p_UQ)["R2"]
            assert r2_U is not None
            variance_U2 = dosage_variance(p_UQ, frequency_U, self.target.ploidy)
            self.collected.imputed.add(panel.chrom, position_U, frequency_U, r2_U, typed, variance_U2)
        far = np.zeros(len(p_UQ), dtype=bool)
        if flags_far(panel):
            far = far_from_typed(panel.cM, self._called_index, window.start, window.stop)
        er2 = np.full(len(p_UQ), np.nan)
        if self.er2_T is not None:
            er2[typed_rows] = self.er2_T[low:high]
        sites = panel.sites.take(slice(window.start, window.stop))
        is_panel = np.ones(len(p_UQ), dtype=bool)
        if len(extra):
            alleles = self.target.alleles[extra]
            p_UQ = np.concatenate([p_UQ, np.where(alleles < 0, np.nan, alleles).astype(np.float32)])
            hard_UQ = np.concatenate([hard_UQ, alleles])
            typed = np.concatenate([typed, np.ones(len(extra), dtype=bool)])
            far = np.concatenate([far, np.zeros(len(extra), dtype=bool)])
            er2 = np.concatenate([er2, np.full(len(extra), np.nan)])
            sites = Sites.concatenate([sites, self.target.sites.take(extra)])
            order = np.argsort(sites.position, kind="stable")
            p_UQ, hard_UQ = p_UQ[order], hard_UQ[order]
            typed, far, er2 = typed[order], far[order], er2[order]
            sites, is_panel = sites.take(order), order < len(is_panel)
        info = site_quality(p_UQ)
        if flags_far(panel):
            info["FAR"] = far
        if self.er2_T is not None:
            info["ER2"] = er2
        writer.write_block(panel.chrom, sites, p_UQ, info, hard_UQ, typed)
