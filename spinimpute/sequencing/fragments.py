"""Alleles that the sequenced fragments of a sample have at the panel's sites.

A fragment is a piece of DNA that was read from one end or from both ends (mates). All its alleles lie on one
haplotype. Where the mates overlap, the same base was read twice and must be counted once.

A "base" here is one allele of one read at one panel site, with its quality. Axes: B bases, S sites; the axis
of length 3 is for genotypes with 0, 1 and 2 copies of ALT.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from spinimpute.genotypes.intervals import Interval

OTHER_ALLELE = 2
# Phred values are rounded to multiples of 1 / _PHRED_STEPS: their sums are then exact in any order.
_PHRED_STEPS = 2.0**20
# Probability that a base is wrong, by quality. It is at most 0.5, or the base would support the other allele.
_P_ERROR = np.minimum(10 ** (-np.arange(256) / 10), 0.5)
_PHRED_RIGHT, _PHRED_WRONG, _PHRED_HALF = (
    np.round(-10 * np.log10(p) * _PHRED_STEPS) / _PHRED_STEPS for p in (1 - _P_ERROR, _P_ERROR, 0.5)
)


@dataclass(frozen=True, eq=False)
class FragmentBases:
    """The counted bases of a sample, sorted by site and then by fragment.

    Attributes
    ----------
    fragment : int32 (B,)
        Fragment numbers. They follow the order of the hashes of the fragments' names, which does not depend
        on the sites that are read.
    panel_index : int32 (B,)
        Index of the panel site.
    allele : uint8 (B,)
        0 REF, 1 ALT.
    quality : uint8 (B,)
        Phred-scaled probability that the base is wrong.
    """

    fragment: np.ndarray
    panel_index: np.ndarray
    allele: np.ndarray
    quality: np.ndarray

    def take(self, chosen: np.ndarray | slice) -> FragmentBases:
        """Return the bases with the given indices, mask or slice."""
        columns = (self.fragment, self.panel_index, self.allele, self.quality)
        return FragmentBases(*(column[chosen] for column in columns))

    def linked(self, sites: Interval) -> FragmentBases:
        """Return the bases at consecutive panel sites whose fragment has several bases there."""
        bases = self.take(self._rows_at(sites))
        return bases.take(np.bincount(bases.fragment)[bases.fragment] > 1)

    def n_at(self, sites: Interval) -> int:
        """Return the number of bases at consecutive panel sites."""
        rows = self._rows_at(sites)
        return rows.stop - rows.start

    def _rows_at(self, sites: Interval) -> slice:
        return slice(*np.searchsorted(self.panel_index, sites).tolist())


@dataclass(frozen=True, eq=False)
class ReadBases:
    """Bases of reads in any order, before mates are combined.

    Attributes
    ----------
    fragment_hash : uint64 (B,)
        Hash of the fragment, equal for both mates.
    panel_index : int64 (B,)
        Index of the panel site.
    allele : uint8 (B,)
        0 REF, 1 ALT, 2 any other base.
    quality : uint8 (B,)
        As in `FragmentBases`.
    """

    fragment_hash: np.ndarray
    panel_index: np.ndarray
    allele: np.ndarray
    quality: np.ndarray

    def take(self, chosen: np.ndarray) -> ReadBases:
        """Return the bases with the given indices or mask."""
        columns = (self.fragment_hash, self.panel_index, self.allele, self.quality)
        return ReadBases(*(column[chosen] for column in columns))


def fragment_bases(bases: ReadBases, max_depth: int, skipped: Counter[str]) -> FragmentBases:
    """Return at most one base of each fragment at a site, and at most `max_depth` fragments at a site.

    Where mates overlap, the base with the higher quality is used; if their alleles disagree, neither is. At a
    site with more than `max_depth` fragments, the fragments with the smallest hashes are used. This choice
    does not depend on the order of the reads, and usually keeps or drops a fragment at all its sites.
    `skipped` counts the dropped bases by reason.
    """
    bases = bases.take(np.lexsort((bases.fragment_hash, bases.panel_index)))
    # index of the first base of each fragment at each site
    first = np.flatnonzero(_starts_run(bases.panel_index) | _starts_run(bases.fragment_hash))
    if len(first):
        lowest, highest = (f.reduceat(bases.allele, first) for f in (np.minimum, np.maximum))
        best = np.maximum.reduceat(bases.quality, first)
        bases = replace(bases.take(first), allele=lowest, quality=best)
        disagree, other = lowest != highest, lowest == OTHER_ALLELE
        skipped["fragments at a site whose mates disagree"] += int(disagree.sum())
        skipped["fragments at a site with another allele"] += int(other.sum())
        bases = bases.take(~(disagree | other))
        starts = np.flatnonzero(_starts_run(bases.panel_index))
        n_bases = len(bases.allele)
        rank = np.arange(n_bases) - np.repeat(starts, np.diff(starts, append=n_bases))
        skipped[f"fragments at a site beyond the first {max_depth}"] += int((rank >= max_depth).sum())
        bases = bases.take(rank < max_depth)
    _, fragment = np.unique(bases.fragment_hash, return_inverse=True)
    return FragmentBases(
        fragment.astype(np.int32), bases.panel_index.astype(np.int32), bases.allele, bases.quality
    )


def _starts_run(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values that differ from the value before. The first value is included."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def error_of_quality(quality: np.ndarray) -> np.ndarray:
    """Return the probability that a base is wrong, float64, from its Phred-scaled quality."""
    return _P_ERROR[quality]


def phred_of_bases(bases: FragmentBases, panel_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Phred-scaled genotype likelihoods, float64 (S, 3), and numbers of bases, int64 (S,), at sites.

    Bases are treated as independent. A base of quality Q is wrong with probability e = 10^(-Q/10). The
    probability to read it is 1 - e, 1/2 or e, if the genotype has 0, 1 or 2 copies of the other allele.

    `panel_index` (S,) contains the sites of all bases in increasing order. Only differences between the three
    likelihoods of a site have a meaning.
    """
    n_sites = len(panel_index)
    row_B = np.searchsorted(panel_index, bases.panel_index)
    is_ref = bases.allele == 0
    right_B, wrong_B = _PHRED_RIGHT[bases.quality], _PHRED_WRONG[bases.quality]
    depth_S = np.bincount(row_B, minlength=n_sites)
    phred_S3 = np.stack(
        [
            np.bincount(row_B, np.where(is_ref, right_B, wrong_B), n_sites),
            depth_S * _PHRED_HALF,
            np.bincount(row_B, np.where(is_ref, wrong_B, right_B), n_sites),
        ],
        axis=1,
    )
    return phred_S3, depth_S
