"""Records of the same site in a target, made into one.

Arrays have several probes of some sites, and merged files several records. Known alleles win over missing
ones. Phased calls are compared by haplotype. Where only their phases conflict, the merged call is an unphased
heterozygote. A sample whose genotypes contradict each other is missing. The order of the records does not
matter.

Axes: D records of one site, Q haplotypes, X samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import SiteMatch

CONTRADICTORY = "contradictory calls of records of the same site"


def merge_duplicates(
    target: Haplotypes, match: SiteMatch, allow_unphased: bool = True
) -> tuple[Haplotypes, int]:
    """Give the matched record of a site the calls of all records of that site.

    Parameters
    ----------
    target : Haplotypes
        With the panel's alleles; it is not changed.
    match : SiteMatch
        Of its sites.
    allow_unphased : bool
        Whether calls whose phases conflict become unphased heterozygotes. If not, they are set missing.

    Returns
    -------
    target : Haplotypes
        With the merged calls.
    contradictory : int
        How many calls were set missing because records contradict each other.
    """
    if not match.duplicate_of:
        return target, 0
    records: dict[int, list[int]] = {}
    for again, first in match.duplicate_of.items():
        records.setdefault(first, [first]).append(again)
    alleles = target.alleles.copy()
    shape = (len(alleles), len(target.ploidy))
    unphased = np.zeros(shape, bool) if target.unphased is None else target.unphased.copy()
    n_contradictory = 0
    for first, same in records.items():
        merged_Q, unphased_X, contradictory_X = _merged(target.alleles[same], unphased[same], target.ploidy)
        if not allow_unphased:
            contradictory_X |= unphased_X
        n_contradictory += int(contradictory_X.sum())
        alleles[first] = np.where(np.repeat(contradictory_X, target.ploidy), -1, merged_Q)
        unphased[first] = unphased_X & ~contradictory_X
    some_unphased = target.unphased is not None or unphased.any()
    return replace(target, alleles=alleles, unphased=unphased if some_unphased else None), n_contradictory


def _merged(
    alleles_DQ: np.ndarray, unphased_DX: np.ndarray, ploidy: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merged alleles int8 (Q,), and which calls are unphased and which contradict each other, bool (X,)."""
    first_X = np.cumsum(ploidy, dtype=np.int64) - ploidy
    phased_DQ = ~np.repeat(unphased_DX, ploidy, axis=1)
    ref_Q, alt_Q = (((alleles_DQ == allele) & phased_DQ).any(axis=0) for allele in (0, 1))
    merged_Q = np.where(alt_Q, 1, np.where(ref_Q, 0, -1)).astype(np.int8)
    conflict_X = np.logical_or.reduceat(ref_Q & alt_Q, first_X)
    n_ref_DX, n_alt_DX = (
        np.add.reduceat(alleles_DQ == allele, first_X, axis=1, dtype=np.int8) for allele in (0, 1)
    )
    heterozygous_X = ((n_ref_DX == 1) & (n_alt_DX == 1)).any(axis=0)
    homozygous_X = ((n_ref_DX == 2) | (n_alt_DX == 2)).any(axis=0)
    contradictory_X = np.where(heterozygous_X, homozygous_X, conflict_X)
    # a haplotype with a known allele tells that of its sibling
    x = np.flatnonzero(heterozygous_X)
    left, right = merged_Q[first_X[x]], merged_Q[first_X[x] + 1]
    unphased_X = np.zeros(len(ploidy), bool)
    unphased_X[x] = conflict_X[x] | (left == right)
    left = np.where(unphased_X[x], 0, np.where(left < 0, 1 - right, left))
    merged_Q[first_X[x]], merged_Q[first_X[x] + 1] = left, 1 - left
    return merged_Q, unphased_X & ~contradictory_X, contradictory_X
