"""Records of the same site in a target, made into one.

Arrays have several probes of some sites, and merged files several records. Known calls win over missing ones,
and a sample whose calls contradict each other is missing. The order of the records does not matter.

Axes: D records of one site, Q haplotypes, X samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import SiteMatch

CONTRADICTORY = "contradictory calls of records of the same site"


def merge_duplicates(target: Haplotypes, match: SiteMatch) -> tuple[Haplotypes, int]:
    """Give the matched record of a site the calls of all records of that site.

    Parameters
    ----------
    target : Haplotypes
        With the panel's alleles; it is not changed.
    match : SiteMatch
        Of its sites.

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
    unphased = None if target.unphased is None else target.unphased.copy()
    first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
    n_contradictory = 0
    for first, same in records.items():
        alleles_DQ = target.alleles[same]
        # numbers of REF and ALT alleles: the call with the most of both holds all others, or none does
        known_2DX = np.stack(
            [np.add.reduceat(alleles_DQ == allele, first_X, axis=1, dtype=np.int8) for allele in (0, 1)]
        )
        whole_DX = (known_2DX == known_2DX.max(axis=1, keepdims=True)).all(axis=0)
        best_DX = whole_DX.astype(np.int8)
        if unphased is not None:
            best_DX += whole_DX & ~unphased[same]
        chosen_X = best_DX.argmax(axis=0)
        agree_X = whole_DX.any(axis=0)
        n_contradictory += int((~agree_X).sum())
        chosen_Q, agree_Q = (np.repeat(of_X, target.ploidy) for of_X in (chosen_X, agree_X))
        merged_Q = np.take_along_axis(alleles_DQ, chosen_Q[None], axis=0)[0]
        alleles[first] = np.where(agree_Q, merged_Q, -1)
        if unphased is not None:
            unphased[first] = np.take_along_axis(unphased[same], chosen_X[None], axis=0)[0] & agree_X
    return replace(target, alleles=alleles, unphased=unphased), n_contradictory
