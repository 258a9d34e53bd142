"""Bases of fragments: what the molecules of one sample that were sequenced show at a panel's sites.

The alleles of one fragment come from one haplotype. Both mates of a pair are of one fragment, and where they
overlap it is read twice.

Axes: B bases, S sites; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

OTHER_ALLELE = 2
_STEPS = 2.0**20  # of a Phred: sums of such numbers are exact, whatever their order
# chance of a wrong base by its quality; below a quality of 3 it would speak for the other allele
_ERROR = np.minimum(10 ** (-np.arange(256) / 10), 0.5)
_RIGHT, _WRONG, _HALF = (np.round(-10 * np.log10(p) * _STEPS) / _STEPS for p in (1 - _ERROR, _ERROR, 0.5))


@dataclass(frozen=True, eq=False)
class FragmentBases:
    """The counted bases of one sample, sorted by site, then by fragment.

    Attributes
    ----------
    fragment : int32 (B,)
        Numbers in the order of the hashes of their names: that of some of the sites' fragments is the same.
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

    def linked(self, first: int, stop: int) -> FragmentBases:
        """The bases at the panel sites [first, stop) of fragments that have several there."""
        here = self.take(self._at(first, stop))
        return here.take(np.bincount(here.fragment)[here.fragment] > 1)

    def n_at(self, first: int, stop: int) -> int:
        """How many bases are at the panel sites [first, stop)."""
        here = self._at(first, stop)
        return here.stop - here.start

    def _at(self, first: int, stop: int) -> slice:
        return slice(*np.searchsorted(self.panel_index, [first, stop]).tolist())


@dataclass(frozen=True, eq=False)
class ReadBases:
    """Bases as reads have them, in any order.

    Attributes
    ----------
    fragment_hash : uint64 (B,)
        Of the read's fragment: the same for both mates.
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
        """Some of the bases (integers or booleans), in that order."""
        columns = (self.fragment_hash, self.panel_index, self.allele, self.quality)
        return ReadBases(*(column[chosen] for column in columns))


def fragment_bases(bases: ReadBases, max_depth: int, skipped: Counter[str]) -> FragmentBases:
    """Count each fragment once at a site, and so many fragments at most.

    Of mates that overlap the better base counts, and neither where they disagree. Of more than `max_depth`
    fragments those with the smallest hashes count: it does not depend on the order of reads, and most of a
    fragment's bases stay or go together.

    Parameters
    ----------
    bases : ReadBases
        Of one sample.
    max_depth : int
        Fragments that count at a site.
    skipped : Counter
        Counts what is not taken.

    Returns
    -------
    FragmentBases
        Of REF and ALT alone.
    """
    bases = bases.take(np.lexsort((bases.fragment_hash, bases.panel_index)))
    first = np.flatnonzero(
        _changes(bases.panel_index) | _changes(bases.fragment_hash)
    )  # at a site, of a fragment
    if len(first):
        lowest, highest = (f.reduceat(bases.allele, first) for f in (np.minimum, np.maximum))
        best = np.maximum.reduceat(bases.quality, first)
        bases = replace(bases.take(first), allele=lowest, quality=best)
        disagree, other = lowest != highest, lowest == OTHER_ALLELE
        skipped["fragments at a site whose mates disagree"] += int(disagree.sum())
        skipped["fragments at a site with another allele"] += int(other.sum())
        bases = bases.take(~(disagree | other))
        starts = np.flatnonzero(_changes(bases.panel_index))
        n_bases = len(bases.allele)
        rank = np.arange(n_bases) - np.repeat(starts, np.diff(starts, append=n_bases))
        skipped[f"fragments at a site beyond the first {max_depth}"] += int((rank >= max_depth).sum())
        bases = bases.take(rank < max_depth)
    _, fragment = np.unique(bases.fragment_hash, return_inverse=True)
    return FragmentBases(
        fragment.astype(np.int32), bases.panel_index.astype(np.int32), bases.allele, bases.quality
    )


def _changes(values: np.ndarray) -> np.ndarray:
    """bool: where a value is another one than that before it; the first one always is."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def error_of_quality(quality: np.ndarray) -> np.ndarray:
    """Chance of a wrong base, float64, by its quality, uint8."""
    return _ERROR[quality]


def phred_of_bases(bases: FragmentBases, panel_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Likelihoods of genotypes from independent bases.

    A base of quality Q is wrong with chance e = 10^(-Q/10): with 0, 1 or 2 copies of the other allele a
    genotype shows it with chance 1 - e, 1/2 or e.

    Parameters
    ----------
    bases : FragmentBases
        The bases.
    panel_index : int64 (S,)
        Increasing; all their sites are among them.

    Returns
    -------
    phred_S3 : float64 (S, 3)
        Phred-scaled, on any level.
    depth_S : int64 (S,)
        Numbers of bases.
    """
    n_sites = len(panel_index)
    at_B = np.searchsorted(panel_index, bases.panel_index)
    is_ref = bases.allele == 0
    right_B, wrong_B = _RIGHT[bases.quality], _WRONG[bases.quality]
    depth_S = np.bincount(at_B, minlength=n_sites)
    phred_S3 = np.stack(
        [
            np.bincount(at_B, np.where(is_ref, right_B, wrong_B), n_sites),
            depth_S * _HALF,
            np.bincount(at_B, np.where(is_ref, wrong_B, right_B), n_sites),
        ],
        axis=1,
    )
    return phred_S3, depth_S
