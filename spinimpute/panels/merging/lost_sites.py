"""Distinguish sites that a panel has lost from sites whose rarer allele nobody in the panel carries.

A haplotype seems to carry an allele if it matches a carrier longest (`nearest_carriers`). Even where nobody
carries the allele, some haplotypes seem to: their ancestors branched off just before the mutation. The sites
in both panels show how often a count of seeming carriers is real. Common alleles cannot be absent by chance,
so the share of common sites that a panel lacks is the share of sites that it has lost, common or rare. If
more sites with such counts are lacking than can be lost, their allele is absent.

A panel may have been filtered for a minimum number of copies, such as five. Its sites show nothing about
rarer alleles, which therefore count as lost.

Axes: U sites in one panel, T sites in both panels.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_BINS = 64
# a common allele has this share of the haplotypes of both panels, and at least so many or half of them
COMMON, MIN_COMMON_COPIES = 0.1, 20
FILTER_TOLERANCE = 0.01  # share of a panel's sites that may have fewer copies than the minimum of its filter


def lost_sites(
    apparent_U: np.ndarray,
    minor_U: np.ndarray,
    carried_T: np.ndarray,
    minor_T: np.ndarray,
    n_haplotypes: int,
    n_other: int,
    min_copies: int = 1,
) -> np.ndarray:
    """Sites whose rarer allele is more likely lost than absent, bool (U,).

    apparent_U haplotypes of the panel seem to carry the allele that is rarer in the other panel, where minor_U
    carry it; carried_T and minor_T are the true numbers at sites in both. `n_haplotypes` and `n_other` are
    those of the panel that lacks the sites and of the other, `min_copies` is the panel's `estimate_min_copies`.
    """
    least, other = (max(COMMON * n, min(MIN_COMMON_COPIES, n / 2)) for n in (n_haplotypes, n_other))
    common_U = (apparent_U >= least) & (minor_U >= other)
    common_T = (carried_T >= least) & (minor_T >= other)
    lost_to_kept = common_U.sum() / max(int(common_T.sum()), 1)
    lacking, kept = _count_similar(apparent_U, minor_U), _count_similar(carried_T, minor_T)
    mostly_lost = lost_to_kept * kept > 0.5 * lacking
    lost_U = common_U | (apparent_U < min_copies) | mostly_lost[_bins(apparent_U), _bins(minor_U)]
    return (apparent_U > 0) & lost_U


def estimate_min_copies(allele_count: np.ndarray, n_haplotypes: int) -> int:
    """Copies of the rarer allele that hardly any site of a panel is below: 1 without a filter."""
    minor = np.minimum(allele_count, n_haplotypes - allele_count)
    minor = np.sort(minor[minor > 0])
    return int(minor[int(FILTER_TOLERANCE * len(minor))]) if len(minor) else 1


def _bins(counts: np.ndarray) -> np.ndarray:
    """Bins 0, 1, 2-3, 4-7, ..."""
    return np.frexp(counts.astype(np.float64))[1]


def _count_similar(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Number of sites with counts in the same or neighbouring bins, by the bins of both counts."""
    counts = np.zeros((_BINS + 2, _BINS + 2), np.int64)
    np.add.at(counts, (1 + _bins(one), 1 + _bins(other)), 1)
    return sliding_window_view(counts, (3, 3)).sum(axis=(2, 3))
