"""Emissions: the probability of what is known of a query at a place, for either allele of what it copies.

The model knows a query by these pairs alone, so that hard alleles, missing ones and likelihoods are the same
to it. Whoever has likelihoods of a haplotype's alleles gives them in place of `allele_emissions`: any
positive numbers, as a factor common to both alleles of a place changes no posterior.

Axes: Q queries, S typed places, 2 alleles of the state (REF, ALT), G groups of queries, L lanes.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.parameters import LANES

MISSING = 2  # of alleles; -1 will do, too


def allele_emissions(alleles: np.ndarray, mismatch: float | np.ndarray) -> np.ndarray:
    """Emissions of alleles that are known, or missing.

    Parameters
    ----------
    alleles : integers (...)
        0, 1, or missing: MISSING or -1.
    mismatch : float, or floats (...)
        Probability that an allele differs from that of the state; an array broadcasts with alleles. A missing
        allele fits either.

    Returns
    -------
    float32 (..., 2)
        P(allele | state has REF), P(allele | state has ALT).
    """
    wrong = np.asarray(mismatch, np.float32)
    right = np.float32(1) - wrong
    of_ref, of_alt = np.where(alleles == 1, wrong, right), np.where(alleles == 0, wrong, right)
    return np.ascontiguousarray(np.stack([of_ref, of_alt], axis=-1))


def side_by_side(emission_QS2: np.ndarray) -> np.ndarray:
    """Emissions of queries in groups of LANES.

    Parameters
    ----------
    emission_QS2 : float32 (Q, S, 2)
        Emissions of the queries, see `allele_emissions`.

    Returns
    -------
    float32 (G, S, 2, L)
        The same by group; the last query fills up the last group.
    """
    n_queries = len(emission_QS2)
    lane_GL = np.arange(-(-n_queries // LANES) * LANES).reshape(-1, LANES).clip(max=n_queries - 1)
    return np.ascontiguousarray(emission_QS2[lane_GL].transpose(0, 2, 3, 1))
