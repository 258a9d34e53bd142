"""Conversion of the imputed probabilities of sequenced samples to records of the output.

Axes: S sites, X samples, Q haplotypes, K sums of a site; a 2 is the two haplotypes of a sample.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows
from spinimpute.outputs.opening import RecordWriter
from spinimpute.pipeline.sequenced.intervals import SequencedInterval
from spinimpute.quality.site_quality import site_quality, site_sums
from spinimpute.quality.stored_sums import SUMS, encode_sums
from spinimpute.quality.summary import SequencedSummary
from spinimpute.vcf.record_block import RecordBlock

MAX_GENOTYPES, MAX_SITES = 2**18, 8_192  # limits of one block of records


def write_records(
    interval: SequencedInterval,
    imputed: Iterator[tuple[int, np.ndarray]],
    writer: RecordWriter,
    summary: SequencedSummary,
    write_sums: bool,
    record_rows: RecordRows,
) -> None:
    """Write the requested sites of an interval, and add them to the report data and to the labels.

    imputed: yields, window by window, the first panel site and P(ALT) of its sites, float (S, 2, X).
    write_sums: whether to write what `merge` needs. record_rows: panel sites that are one record.
    """
    panel, ploidy = interval.panel, interval.likelihoods.ploidy
    haploid_X = ploidy == 1
    writer.set_ploidy(ploidy)
    max_rows = max(1, min(MAX_SITES, MAX_GENOTYPES // len(haploid_X)))
    while True:
        with summary.stage("impute"):
            start, imputed_S2X = next(imputed, (0, None))
        if imputed_S2X is None:
            return
        with summary.stage("write"):
            for sites in interval.written_within(start, start + len(imputed_S2X)):
                if summary.labels is not None:
                    for locus, alleles, rows_K in panel.records.labels_within(panel.sites, sites):
                        p_K2X = imputed_S2X[rows_K.start - start : rows_K.stop - start]
                        p_KQ = to_haplotype_columns(p_K2X, haploid_X)
                        summary.labels.add(locus, alleles, p_KQ, ploidy)
                starts = range(*sites, max_rows)
                blocks = [Interval(first, min(first + max_rows, sites.stop)) for first in starts]
                for block in record_rows.keep_whole(blocks):
                    rows = block.slice
                    p_S2X = imputed_S2X[rows.start - start : rows.stop - start]
                    p_SQ = to_haplotype_columns(p_S2X, haploid_X)
                    sums_KS, typed_S = site_sums(p_SQ), np.zeros(len(p_SQ), bool)
                    info = site_quality(sums_KS)
                    if summary.report_data is not None:
                        copies_X = np.where(haploid_X, 1, 2)
                        summary.report_data.add_window(panel, rows, p_SQ, info, typed_S, copies_X)
                    if write_sums:
                        info[SUMS] = np.array(encode_sums(sums_KS), object)
                    alleles_SQ = to_haplotype_columns(most_likely_alleles(p_S2X, haploid_X), haploid_X)
                    writer.write_block(
                        RecordBlock(
                            panel.chrom,
                            panel.sites.take(rows),
                            p_SQ,
                            info,
                            alleles_SQ,
                            typed_S,
                            continues=record_rows.continues[rows],
                        )
                    )
                summary.written_sites += sites.n_sites


def to_haplotype_columns(x_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Rearrange values (S, 2, X) so that each haplotype is a column, (S, Q).

    The two haplotypes of a sample are adjacent columns. Haploid samples keep only the first one.
    """
    kept_Q = np.stack([np.ones_like(haploid_X), ~haploid_X], axis=1).ravel()
    n_samples = len(haploid_X)
    return np.ascontiguousarray(x_S2X.transpose(0, 2, 1).reshape(len(x_S2X), 2 * n_samples)[:, kept_Q])


def most_likely_alleles(p_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Return the alleles of the most likely genotypes, int8 (S, 2, X), from P(ALT) of both haplotypes.

    In a heterozygote, ALT is on the haplotype with the higher P(ALT).
    """
    first_SX, second_SX = p_S2X[:, 0], p_S2X[:, 1]
    two_SX = first_SX * second_SX
    none_SX = (1 - first_SX) * (1 - second_SX)
    one_SX = 1 - two_SX - none_SX
    copies_SX = np.where(one_SX >= np.maximum(none_SX, two_SX), 1, np.where(two_SX > none_SX, 2, 0))
    copies_SX = np.where(haploid_X, 2 * (first_SX >= 0.5), copies_SX)
    second_first_SX = second_SX > first_SX
    return np.stack([copies_SX > second_first_SX, copies_SX > ~second_first_SX], axis=1).astype(np.int8)
