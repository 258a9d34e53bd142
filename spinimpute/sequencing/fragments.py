"""Bases of sequenced fragments of a sample at a panel's sites.

The alleles of a fragment are of one haplotype. Both mates of a pair are of one fragment; where they overlap,
the fragment is read twice.

Axes: B bases, S sites; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from spinimpute.genotypes.intervals import Interval

OTHER_ALLELE = 2
_PHRED_STEPS = 2.0**20  # of a Phred: sums of multiples are exact in any order
# probability of a wrong base by quality; above 0.5 a base would support the other allele
_P_ERROR = np.minimum(10 ** (-np.arange(256) / 10), 0.5)
_PHRED_RIGHT, _PHRED_WRONG, _PHRED_HALF = (
    np.round(-10 * np.log10(p) * _PHRED_STEPS) / _PHRED_STEPS for p in (1 - _P_ERROR, _P_ERROR, 0.5)
)


@dataclass(frozen=True, eq=False)
class FragmentBases:
    """The counted bases of a sample, sorted by site, then by fragment.

    Attributes
    ----------
    fragment : int32 (B,)
        Fragment numbers in the order of the hashes of their names: bases of some sites keep their order.
    panel_index : int32 (B,)
        The panel's site.
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
        """Some of the bases."""
        columns = (self.fragment, self.panel_index, self.allele, self.quality)
        return FragmentBases(*(column[chosen] for column in columns))

    def linked(self, sites: Interval) -> FragmentBases:
        """The bases at consecutive panel sites of fragments with several bases there."""
        here = self.take(self._rows_at(sites))
        return here.take(np.bincount(here.fragment)[here.fragment] > 1)

    def n_at(self, sites: Interval) -> int:
        """The number of bases at consecutive panel sites."""
        here = self._rows_at(sites)
        return here.stop - here.start

    def _rows_at(self, sites: Interval) -> slice:
        return slice(*np.searchsorted(self.panel_index, sites).tolist())


@dataclass(frozen=True, eq=False)
class ReadBases:
    """Bases of reads in any order.

    Attributes
    ----------
    fragment_hash : uint64 (B,)
        Hash of the fragment, equal for both mates.
    panel_index : int64 (B,)
        The panel's site.
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
        """Some of the bases, by index or mask."""
        columns = (self.fragment_hash, self.panel_index, self.allele, self.quality)
        return ReadBases(*(column[chosen] for column in columns))


def fragment_bases(bases: ReadBases, max_depth: int, skipped: Counter[str]) -> FragmentBases:
    """Count each fragment of a sample once at a site, and at most `max_depth` fragments.

    Where mates overlap, the better base counts, and neither if they disagree. Of more than `max_depth`
    fragments those with the smallest hashes count: the choice does not depend on the order of reads, and
    mostly keeps or drops a fragment at all its sites. `skipped` counts the bases that are dropped, by reason.
    """
    bases = bases.take(np.lexsort((bases.fragment_hash, bases.panel_index)))
    # the first base of each fragment at each site
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
    """Mask of the first of equal adjacent values."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def error_of_quality(quality: np.ndarray) -> np.ndarray:
    """Probability of a wrong base by quality, float64."""
    return _P_ERROR[quality]


def phred_of_bases(bases: FragmentBases, panel_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Likelihoods of genotypes from independent bases, float64 (S, 3), and numbers of bases, int64 (S,).

    The Phred scale has any offset. `panel_index` (S,) is increasing and has the sites of all bases. A base of
    quality Q is wrong with probability e = 10^(-Q/10): a genotype with 0, 1 or 2 copies of the other allele
    shows it with probability 1 - e, 1/2 or e.
    """
    n_sites = len(panel_index)
    at_B = np.searchsorted(panel_index, bases.panel_index)
    is_ref = bases.allele == 0
    right_B, wrong_B = _PHRED_RIGHT[bases.quality], _PHRED_WRONG[bases.quality]
    depth_S = np.bincount(at_B, minlength=n_sites)
    phred_S3 = np.stack(
        [
            np.bincount(at_B, np.where(is_ref, right_B, wrong_B), n_sites),
            depth_S * _PHRED_HALF,
            np.bincount(at_B, np.where(is_ref, wrong_B, right_B), n_sites),
        ],
        axis=1,
    )
    return phred_S3, depth_S
