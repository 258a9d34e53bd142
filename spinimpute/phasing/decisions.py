"""What passes have decided, applied to the calls, and the votes of several passes.

Axes: T typed sites, X samples that are phased, Q haplotypes of samples, 2 haplotypes of a sample.
"""

from __future__ import annotations

import numpy as np

from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_BEHIND
from spinimpute.runtime.kernels import kernel


@kernel()
def apply_decisions(alleles_TQ, known_TQ, column_X2, way_TX, likely_T2X):  # type: ignore[no-untyped-def]
    """Exchange alleles as decided, and fill missing calls anew.

    Parameters
    ----------
    alleles_TQ : uint8 (T, Q)
        Alleles; changed.
    known_TQ : bool (T, Q)
        Calls that are not missing.
    column_X2 : int64 (X, 2)
        The two haplotypes of each sample.
    way_TX : uint8 (T, X)
        See `passes`.
    likely_T2X : bool (T, 2, X)
        Whether ALT is the likelier allele.
    """
    n_samples = len(column_X2)
    behind_X = np.zeros(n_samples, np.bool_)
    for t in range(len(way_TX)):
        for x in range(n_samples):
            first, second = column_X2[x]
            one, other = alleles_TQ[t, first], alleles_TQ[t, second]
            if way_TX[t, x] & EXCHANGED:
                one, other = other, one
            if not known_TQ[t, first]:
                one = np.uint8(likely_T2X[t, 0, x])
            if not known_TQ[t, second]:
                other = np.uint8(likely_T2X[t, 1, x])
            if behind_X[x]:
                one, other = other, one
            alleles_TQ[t, first], alleles_TQ[t, second] = one, other
            if way_TX[t, x] & EXCHANGED_BEHIND:
                behind_X[x] = not behind_X[x]


@kernel()
def vote(alleles_TQ, open_TX, column_X2, votes_TX):  # type: ignore[no-untyped-def]
    """Vote for or against a heterozygote having its ALT on the same haplotype as the one before.

    Parameters
    ----------
    alleles_TQ : uint8 (T, Q)
        As of `apply_decisions`.
    open_TX : bool (T, X)
        Heterozygotes without phase.
    column_X2 : int64 (X, 2)
        As of `apply_decisions`.
    votes_TX : int8 (T, X)
        Votes for less votes against; changed.
    """
    n_samples = len(column_X2)
    last_X = np.zeros(n_samples, np.uint8)
    for t in range(len(open_TX)):
        for x in range(n_samples):
            if open_TX[t, x]:
                allele = alleles_TQ[t, column_X2[x, 0]]
                votes_TX[t, x] += 1 if allele == last_X[x] else -1
                last_X[x] = allele


@kernel()
def elect(alleles_TQ, open_TX, free_X, column_X2, votes_TX):  # type: ignore[no-untyped-def]
    """Take the phase with most votes.

    Parameters
    ----------
    alleles_TQ, open_TX
        As of `vote`; alleles are changed.
    free_X : bool (X,)
        Samples of whom no phase is known; the others keep that of the last pass.
    column_X2, votes_TX
        As of `vote`.
    """
    n_samples = len(column_X2)
    last_X = np.zeros(n_samples, np.uint8)
    for t in range(len(open_TX)):
        for x in range(n_samples):
            if open_TX[t, x] and free_X[x]:
                allele = last_X[x] if votes_TX[t, x] >= 0 else np.uint8(1) - last_X[x]
                alleles_TQ[t, column_X2[x, 0]] = allele
                alleles_TQ[t, column_X2[x, 1]] = np.uint8(1) - allele
                last_X[x] = allele
