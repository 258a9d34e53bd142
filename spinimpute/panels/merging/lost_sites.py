"""Which sites a panel has lost, and which it lacks because nobody there carries the rarer allele.

Haplotypes seem to carry an allele where they match a carrier longest (`nearest_carriers`). At a site where
nobody does, some still seem to, whose ancestors branched off just before the mutation. Sites that both panels
have tell how often that is what is seen: of common alleles, which cannot be absent by chance, the share of
sites that are lacking is the share that is lost; so many sites are lost among those with rarer alleles, too.
Where more sites look alike than can be lost, their allele is absent.

A panel may be without all sites of fewer than some copies, such as five; what seems rarer tells nothing then,
and is believed.

Axes: U sites that one panel lacks, T sites that both have.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_BINS = 64
# an allele is common if so many haplotypes of both panels carry it: this share, at least so many, or half
COMMON, LEAST_COMMON = 0.1, 20
FEW = 0.01  # of a panel's sites: so many have fewer copies than it was filtered by


def lost_sites(
    seeming_U: np.ndarray,
    minor_U: np.ndarray,
    carried_T: np.ndarray,
    minor_T: np.ndarray,
    n_haplotypes: int,
    n_other: int,
    least_kept: int = 1,
) -> np.ndarray:
    """The sites whose rarer allele is more likely there than not.

    Parameters
    ----------
    seeming_U : int64 (U,)
        Haplotypes of the panel that seem to carry the allele that is the rarer one in the other panel.
    minor_U : int64 (U,)
        Haplotypes of the other panel that carry it.
    carried_T, minor_T : int64 (T,)
        The same of sites that both have: who does carry it.
    n_haplotypes, n_other : int
        Of the panel that lacks the sites, and of the other one.
    least_kept : int
        Copies of its rarer allele that a site has in that panel (`fewest_copies`).

    Returns
    -------
    bool (U,)
        False where the allele is taken to be absent.
    """
    least, other = (max(COMMON * n, min(LEAST_COMMON, n / 2)) for n in (n_haplotypes, n_other))
    common_U = (seeming_U >= least) & (minor_U >= other)
    common_T = (carried_T >= least) & (minor_T >= other)
    lost_to_kept = common_U.sum() / max(int(common_T.sum()), 1)
    lacking, kept = _alike(seeming_U, minor_U), _alike(carried_T, minor_T)
    mostly_lost = lost_to_kept * kept > 0.5 * lacking
    lost_U = common_U | (seeming_U < least_kept) | mostly_lost[_bins(seeming_U), _bins(minor_U)]
    return (seeming_U > 0) & lost_U


def fewest_copies(allele_count: np.ndarray, n_haplotypes: int) -> int:
    """How many copies of its rarer allele a site of a panel has: 1 unless rarer ones were filtered.

    Parameters
    ----------
    allele_count : int64 (n_sites,)
        Of ALT.
    n_haplotypes : int
        Of the panel.

    Returns
    -------
    int
        The number that hardly any site is below.
    """
    minor = np.minimum(allele_count, n_haplotypes - allele_count)
    minor = np.sort(minor[minor > 0])
    return int(minor[int(FEW * len(minor))]) if len(minor) else 1


def _bins(counts: np.ndarray) -> np.ndarray:
    """0, 1, 2-3, 4-7, ..."""
    return np.frexp(counts.astype(np.float64))[1]


def _alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How many sites have such counts or those of the next bins, by the bins of both."""
    counts = np.zeros((_BINS + 2, _BINS + 2), np.int64)
    np.add.at(counts, (1 + _bins(one), 1 + _bins(other)), 1)
    return sliding_window_view(counts, (3, 3)).sum(axis=(2, 3))
