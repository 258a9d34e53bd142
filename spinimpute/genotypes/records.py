"""Records of a panel with several ALT alleles.

A panel stores a multi-allelic record as one biallelic site ("row") for each ALT. The rows of a record are
neighbours: they have equal positions, REF and END, and the panel marks them as split from a multi-allelic
record.
Labels, such as HLA types, are ALTs of one record if they are of the same locus.
Every other row is a record of its own. A haplotype has one allele of a record, so the probabilities of its
ALT alleles and of REF add up to 1.

Axes: T typed sites, U sites of a window, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites, label_parts

LABEL_BACKGROUND = np.float32(1e-3)  # weight of the frequencies of labels in their probabilities
MAX_ALTS = 62  # of records without labels; more would need more than one byte for an allele in BCF
MAX_LABELS = 999  # ALT alleles of a record of labels; the texts of their genotypes have 8 characters


@dataclass(frozen=True, eq=False)
class RecordRows:
    """Which rows of a panel are one record."""

    continues: np.ndarray  # bool (n_sites,), whether a row belongs to the record of the row before
    # float32 (n_sites,), frequency of ALT if it is a label (see `label_parts`), else 0
    label_frequency: np.ndarray

    @classmethod
    def of(cls, sites: Sites, multiallelic: np.ndarray, frequency: np.ndarray) -> RecordRows:
        """Find the records of a panel. Rows of a record with more than MAX_ALTS ALT alleles stay separate.

        A record of labels can have MAX_LABELS.

        `multiallelic`, bool (n_sites,), marks sites that were split from a multi-allelic record. `frequency`,
        (n_sites,), is the frequency of ALT.
        """
        position = sites.position
        continues = np.zeros(len(position), bool)
        continues[1:] = multiallelic[1:] & multiallelic[:-1] & (np.diff(position) == 0)
        for row in np.flatnonzero(continues).tolist():
            same_ref = sites.ref[row].upper() == sites.ref[row - 1].upper()
            same_end = _end(sites, row) == _end(sites, row - 1)
            continues[row] = same_ref and same_end and _locus(sites.alt[row]) == _locus(sites.alt[row - 1])
        is_label = label_rows(sites, multiallelic, Interval(0, len(sites)))
        records = cls(continues, np.where(is_label, frequency, 0).astype(np.float32))
        for rows in records.multiallelic_within(Interval(0, len(position))):
            if rows.n_sites > (MAX_LABELS if is_label[rows.start] else MAX_ALTS):
                continues[rows.slice] = False
        return records

    @classmethod
    def separate(cls, n_sites: int) -> RecordRows:
        """Return records of one row each."""
        return cls(np.zeros(n_sites, bool), np.zeros(n_sites, np.float32))

    def n_records(self, rows: Interval) -> int:
        """Return the number of records in an interval of rows, which must not cut a record."""
        return rows.n_sites - int(self.continues[rows.slice].sum())

    def multiallelic_within(self, rows: Interval) -> list[Interval]:
        """Return the rows of each record with several ALTs in an interval, which must not cut a record."""
        continues = self.continues[rows.slice]
        starts = np.flatnonzero(continues & ~np.append(False, continues[:-1])) - 1 + rows.start
        stops = np.flatnonzero(continues & ~np.append(continues[1:], False)) + 1 + rows.start
        return [Interval(*record) for record in zip(starts.tolist(), stops.tolist(), strict=True)]

    def labels_within(self, sites: Sites, rows: Interval) -> Iterator[tuple[str, list[str], Interval]]:
        """Yield locus, alleles and rows of each record of labels in an interval, which must not cut a record.

        `sites` are the sites of the panel.
        """
        for record in self.multiallelic_within(rows):
            parts = [label_parts(sites.alt[row]) for row in range(*record)]
            labels = [part for part in parts if part is not None]
            if len(labels) == len(parts):
                yield labels[0][0], [allele for _, allele in labels], record

    def keep_whole(self, windows: Sequence[Interval]) -> list[Interval]:
        """Move the bounds of consecutive windows that cut a record to the end of the record."""
        if not windows:
            return []
        bounds = [windows[0].start]
        for window in windows:
            stop = window.stop
            while stop < len(self.continues) and self.continues[stop]:
                stop += 1
            bounds.append(stop)
        return [Interval(start, stop) for start, stop in pairwise(bounds) if start < stop]

    def share_alleles(
        self,
        start: int,
        p_UQ: np.ndarray,
        typed_index: np.ndarray | None = None,
        typed_TQ: np.ndarray | None = None,
    ) -> None:
        """Correct P(ALT) in place, so that the ALT alleles of a record have a sum of at most 1.

        P(REF) is 1 minus the sum. Where the sum is greater than 1, it becomes 1. The sum of labels always
        becomes 1, because their REF stands for an unknown label; they are mixed with LABEL_BACKGROUND times
        their frequencies. The first row of p_UQ is site `start`; p_UQ
        may have further axes. Typed alleles are certain: a haplotype with a typed ALT allele (1) has no other
        ALT allele of the record. `typed_index` are the typed sites, increasing, and typed_TQ their alleles,
        int8, -1 where missing.
        """
        for rows in self.multiallelic_within(Interval(start, start + len(p_UQ))):
            p_KQ = p_UQ[rows.start - start : rows.stop - start]
            if typed_index is not None and typed_TQ is not None:
                first, stop = np.searchsorted(typed_index, rows).tolist()
                typed_KQ = np.full(p_KQ.shape, -1, np.int8)
                typed_KQ[typed_index[first:stop] - rows.start] = typed_TQ[first:stop]
                has_typed_alt_Q = (typed_KQ == 1).any(axis=0)
                p_KQ[...] = np.where((typed_KQ >= 0) | has_typed_alt_Q, typed_KQ == 1, p_KQ)
            frequency_K = self.label_frequency[rows.slice]
            is_label = frequency_K.any()
            if is_label:
                p_KQ += LABEL_BACKGROUND * frequency_K.reshape(-1, *[1] * (p_KQ.ndim - 1))
            total_Q = p_KQ.sum(axis=0)
            np.divide(p_KQ, total_Q, out=p_KQ, where=total_Q > (0 if is_label else 1))


def _end(sites: Sites, row: int) -> int:
    """Return END of a structural variant, otherwise 0."""
    variant = sites.structural.get(row)
    return 0 if variant is None else variant.end


def _locus(alt: str) -> str | None:
    parts = label_parts(alt)
    return None if parts is None else parts[0]


def of_other_records(sites: Sites, multiallelic: np.ndarray, alleles_SN: np.ndarray) -> np.ndarray:
    """Return which sites are not in the record that `RecordRows.of` joins them to, bool (S,).

    If a haplotype has two ALT alleles of a record, these come from two records with the same REF, for example
    one of SNPs and one of insertions. Those whose length differs from REF are then in none, or, if that is
    not enough, all. alleles_SN: 1 for ALT.
    """
    other_S = np.zeros(len(sites), bool)
    records = RecordRows.of(sites, multiallelic, np.zeros(len(sites)))
    for rows in records.multiallelic_within(Interval(0, len(sites))):
        if not _has_two(alleles_SN[rows.slice]):
            continue
        longer_K = np.array([len(sites.alt[row]) != len(sites.ref[row]) for row in range(*rows)])
        other_S[rows.slice] = longer_K | _has_two(alleles_SN[rows.slice][~longer_K])
    return other_S


def _has_two(alleles_KN: np.ndarray) -> bool:
    return bool((np.count_nonzero(alleles_KN, axis=0) > 1).any())


def label_rows(sites: Sites, multiallelic: np.ndarray, rows: Interval) -> np.ndarray:
    """Return which of the rows of a panel have a label as ALT, bool. `multiallelic` as in `RecordRows.of`."""
    is_label = np.zeros(rows.n_sites, bool)
    for row in np.flatnonzero(multiallelic[rows.slice]).tolist():
        is_label[row] = _locus(sites.alt[rows.start + row]) is not None
    return is_label


def record_order(sites: Sites, multiallelic: np.ndarray) -> np.ndarray:
    """Return the order of a panel's rows, int64 (n,): by position, REF, whether biallelic, END, and ALT.

    The END of a site that is no structural variant is 0.
    """
    ends = [0] * len(sites)
    for row in sites.structural:
        ends[row] = _end(sites, row)
    rows = zip(sites.keys(), multiallelic.tolist(), ends, strict=True)
    keys = [(position, ref, not several, end, alt) for (position, ref, alt), several, end in rows]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
