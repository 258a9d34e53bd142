"""Records of likelihoods whose letters are those of the other strand.

A/T and C/G read the same from both strands. Where other records are of the other strand, which one such a
record is of is decided by the panel's frequencies, as for arrays (`targets.repair`).

Axes: S sites, X samples; 3: copies of ALT.
"""

from __future__ import annotations

import math

import numpy as np

from spinimpute.genotypes.sites import Sites, complement
from spinimpute.targets.repair import (
    BOTH,
    EVIDENCE,
    OTHER_STRAND,
    STRAND_BY_FREQUENCY,
    STRAND_UNKNOWN,
    SWAPPED,
)

REPAIRS = {
    (False, False): "",
    (True, False): SWAPPED,
    (False, True): OTHER_STRAND,
    (True, True): BOTH,
}
"""What is done to a record, by whether its REF is the panel's ALT and whether it is of the other strand."""


def is_of_other_strand(repair: str) -> bool:
    """Whether this was done to a record of the other strand."""
    return repair in (OTHER_STRAND, BOTH)


def choose_strands(
    sites: Sites, frequency_S: np.ndarray, phred_SX3: np.ndarray, repairs: list[str]
) -> np.ndarray:
    """Decide on which strand A/T and C/G are, of a file with records of both or of the other one.

    Parameters
    ----------
    sites : Sites
        Of the panel.
    frequency_S : float64 (S,)
        Of ALT in the panel.
    phred_SX3 : uint8 (S, X, 3)
        Likelihoods with the letters taken as they are; those of sites on the other strand are turned here.
    repairs : list of str
        What was done to each site; it is changed here.

    Returns
    -------
    bool (S,)
        Which sites are kept: not those of unknown strand.
    """
    pairs = zip(sites.ref, sites.alt, strict=True)
    ambiguous_S = np.array([complement(ref.upper()) == alt.upper() for ref, alt in pairs])
    others = [repair for repair, ambiguous in zip(repairs, ambiguous_S, strict=True) if not ambiguous]
    flipped = sum(map(is_of_other_strand, others))
    prior = math.log((len(others) - flipped + 1) / (flipped + 1))
    kept_S = np.ones(len(repairs), bool)
    for s in np.flatnonzero(ambiguous_S).tolist():
        p = float(np.clip(frequency_S[s], 1e-3, 1 - 1e-3))
        genotype_3 = np.array([(1 - p) ** 2, 2 * p * (1 - p), p**2])
        likelihood_X3 = 10 ** (phred_SX3[s] / -10.0)
        as_written_X, turned_X = likelihood_X3 @ genotype_3, likelihood_X3 @ genotype_3[::-1]
        evidence = prior + float(np.log(as_written_X / turned_X).sum())
        if evidence >= EVIDENCE:
            continue
        kept_S[s] = evidence <= -EVIDENCE
        repairs[s] = STRAND_BY_FREQUENCY if kept_S[s] else STRAND_UNKNOWN
        phred_SX3[s] = phred_SX3[s, :, ::-1]
    return kept_S
