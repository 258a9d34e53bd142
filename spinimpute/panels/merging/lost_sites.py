"""Decide why a panel lacks a site: the site was lost, or nobody in the panel carries the rarer allele.

A site is *lost* if somebody carries the rarer allele but the site was not called or was filtered. *Apparent
carriers* are haplotypes that match carriers in the other panel longest (`nearest_carriers`). There may be
some even if nobody carries the allele: their ancestors branched off just before the mutation.

The decision compares numbers of sites. (1) A common allele is not absent by chance. Every common site that a
panel lacks is therefore lost. The number of these sites, divided by the number of shared common sites,
estimates the ratio of lost to kept sites, also for rare alleles. (2) For rare alleles, the ratio times the
number of shared sites with similar counts of carriers is the expected number of lost sites. If it is less
than half of the lacking sites with similar counts, most of these are not lost: the allele is absent.

A panel may have been filtered for a minimum number of copies, such as five. Its sites then show nothing about
rarer alleles, and sites with fewer apparent carriers count as lost.

Axes: U sites in one panel, T sites in both panels.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_BINS = 64
# a common allele has at least this share and this number of copies in both panels (or half of all haplotypes)
COMMON, MIN_COMMON_COPIES = 0.1, 20
FILTER_TOLERANCE = 0.01  # share of a panel's sites that may have fewer copies than its filter's minimum


def lost_sites(
    apparent_U: np.ndarray,
    minor_U: np.ndarray,
    carried_T: np.ndarray,
    minor_T: np.ndarray,
    n_haplotypes: int,
    n_other: int,
    min_copies: int = 1,
) -> np.ndarray:
    """Return which sites are more likely lost than absent, bool (U,).

    apparent_U is the number of apparent carriers in the panel that lacks a site. minor_U is the number of
    carriers of the same allele (the rarer one) in the other panel. carried_T and minor_T are the true numbers
    in these two panels at the sites that both have. `n_haplotypes` is the size of the panel that lacks the
    sites, `n_other` that of the other panel. `min_copies` is the `estimate_min_copies` of the former panel.
    """
    min_apparent, min_carriers = (
        max(COMMON * n, min(MIN_COMMON_COPIES, n / 2)) for n in (n_haplotypes, n_other)
    )
    common_U = (apparent_U >= min_apparent) & (minor_U >= min_carriers)
    common_T = (carried_T >= min_apparent) & (minor_T >= min_carriers)
    lost_to_kept = common_U.sum() / max(int(common_T.sum()), 1)
    lacking, kept = _count_similar(apparent_U, minor_U), _count_similar(carried_T, minor_T)
    mostly_lost = lost_to_kept * kept > 0.5 * lacking
    lost_U = common_U | (apparent_U < min_copies) | mostly_lost[_bins(apparent_U), _bins(minor_U)]
    return (apparent_U > 0) & lost_U


def estimate_min_copies(allele_count: np.ndarray, n_haplotypes: int) -> int:
    """Estimate the minimum copies of the rarer allele with which a panel was filtered; 1 without a filter."""
    minor = np.minimum(allele_count, n_haplotypes - allele_count)
    minor = np.sort(minor[minor > 0])
    return int(minor[int(FILTER_TOLERANCE * len(minor))]) if len(minor) else 1


def _bins(counts: np.ndarray) -> np.ndarray:
    """Return the bin of each count. The bins are 0, 1, 2-3, 4-7, and so on."""
    return np.frexp(counts.astype(np.float64))[1]


def _count_similar(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return for each pair of bins the number of sites with both counts in these or neighbouring bins."""
    counts = np.zeros((_BINS + 2, _BINS + 2), np.int64)
    np.add.at(counts, (1 + _bins(first), 1 + _bins(second)), 1)
    return sliding_window_view(counts, (3, 3)).sum(axis=(2, 3))
