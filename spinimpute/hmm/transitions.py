"""Transitions: the probability that a query leaves the haplotype that it copies.

Axes: S typed places.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.parameters import JUMPS_PER_CM

LEAST_JUMP = 1e-7  # where the map has no length, too


def jump_probabilities(cM_S: np.ndarray, n_haplotypes: int, jumps_per_cM: float = JUMPS_PER_CM) -> np.ndarray:
    """The probability that a query leaves its haplotype before each place.

    Parameters
    ----------
    cM_S : float64 (S,)
        Genetic positions, increasing.
    n_haplotypes : int
        Number of haplotypes that may be copied. The more there are, the closer is the nearest relative, and
        the rarer are changes.
    jumps_per_cM : float
        The recombination scale.

    Returns
    -------
    float32 (S,)
        Probabilities, 1 before the first place.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    probability_S = -np.expm1(-np.diff(cM_S, prepend=cM_S[:1]) * jumps_per_cM / n_haplotypes)
    probability_S = probability_S.clip(LEAST_JUMP)
    probability_S[0] = 1
    return probability_S.astype(np.float32)
