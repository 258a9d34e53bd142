"""Records of sequenced samples, from the probabilities that their chains give.

Axes: S sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.outputs.opening import RecordWriter
from spinimpute.pipeline.sequenced.intervals import SequencedInterval
from spinimpute.quality.site_quality import site_quality
from spinimpute.quality.summary import SequencedSummary

MOST_GENOTYPES, MOST_SITES = 2**18, 8_192  # that are written at once


class SequencedRecords:
    """Writes the records of an interval, and adds their quality to the summary's report data."""

    def __init__(self, interval: SequencedInterval, writer: RecordWriter, summary: SequencedSummary) -> None:
        self._interval, self._writer, self._summary = interval, writer, summary
        self.haploid_X = interval.likelihoods.ploidy == 1
        writer.set_ploidy(interval.likelihoods.ploidy)

    def write_all(self, imputed: Iterator[tuple[int, np.ndarray]]) -> None:
        """Write the sites that were asked for.

        imputed: yields the first panel site of consecutive sites, and P(ALT) there, float (S, 2, X).
        """
        summary = self._summary
        most = max(1, min(MOST_SITES, MOST_GENOTYPES // len(self.haploid_X)))
        while True:
            with summary.stage("impute"):
                start, p_S2X = next(imputed, (0, None))
            if p_S2X is None:
                return
            with summary.stage("write"):
                for sites in self._interval.written_within(start, start + len(p_S2X)):
                    for first in range(*sites, most):
                        rows = slice(first, min(first + most, sites.stop))
                        self._write(rows, p_S2X[rows.start - start : rows.stop - start])
                    summary.written_sites += sites.n_sites

    def _write(self, rows: slice, p_S2X: np.ndarray) -> None:
        panel, haploid_X, data = self._interval.panel, self.haploid_X, self._summary.report_data
        p_SQ = in_columns(p_S2X, haploid_X)
        info, typed_S = site_quality(p_SQ), np.zeros(len(p_SQ), bool)
        if data is not None:
            data.add_window(panel, rows, p_SQ, info, typed_S, np.where(haploid_X, 1, 2))
        alleles_SQ = in_columns(likeliest_alleles(p_S2X, haploid_X), haploid_X)
        self._writer.write_block(panel.chrom, panel.sites.take(rows), p_SQ, info, alleles_SQ, typed_S)


def in_columns(x_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Arrange the values of haplotypes, (S, 2, X), in one column each, (S, Q).

    The haplotypes of a sample are next to each other; of a haploid sample only the first is kept.
    """
    kept_Q = np.stack([np.ones_like(haploid_X), ~haploid_X], axis=1).ravel()
    n_samples = len(haploid_X)
    return np.ascontiguousarray(x_S2X.transpose(0, 2, 1).reshape(len(x_S2X), 2 * n_samples)[:, kept_Q])


def likeliest_alleles(p_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Return the alleles of the likeliest genotypes, int8 (S, 2, X), from P(ALT) of both haplotypes.

    In a heterozygote, ALT is on the haplotype where it is more likely.
    """
    first_SX, second_SX = p_S2X[:, 0], p_S2X[:, 1]
    two_SX = first_SX * second_SX
    none_SX = (1 - first_SX) * (1 - second_SX)
    one_SX = 1 - two_SX - none_SX
    copies_SX = np.where(one_SX >= np.maximum(none_SX, two_SX), 1, np.where(two_SX > none_SX, 2, 0))
    copies_SX = np.where(haploid_X, 2 * (first_SX >= 0.5), copies_SX)
    second_first_SX = second_SX > first_SX
    return np.stack([copies_SX > second_first_SX, copies_SX > ~second_first_SX], axis=1).astype(np.int8)
