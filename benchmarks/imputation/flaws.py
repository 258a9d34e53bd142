"""Errors of real panels and targets, added to known alleles: wrong phase, missed alleles, wrong calls.

Error rates depend on the number of panel haplotypes that carry the allele, because rare alleles are hard to
phase and to detect.

Axes: N haplotypes of a panel, in pairs of siblings; Q haplotypes of targets.
"""

from __future__ import annotations

import numpy as np

CARRIERS = (1, 10, 100)  # the last of each class; there is one class beyond
WRONG_PHASE = (0.5, 0.1, 0.02, 0.002)  # an allele stands on the other haplotype of its carrier
MISSED = (0.01, 0.01, 0.001, 0.001)
WRONG_CALL = 0.0005  # of a target's typed allele


def flawed_panel(alleles_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add wrong phase and missed alleles to a site of a panel; only the rarer allele is affected."""
    n_alt = int(alleles_N.sum())
    minor = 1 if 2 * n_alt <= len(alleles_N) else 0
    carrier_C = np.flatnonzero(alleles_N == minor)
    size = int(np.searchsorted(CARRIERS, len(carrier_C)))
    out_N = alleles_N.copy()
    sibling_C = carrier_C ^ 1
    moved_C = (rng.random(len(carrier_C)) < WRONG_PHASE[size]) & (alleles_N[sibling_C] != minor)
    out_N[carrier_C[moved_C]] = 1 - minor
    out_N[sibling_C[moved_C]] = minor
    missed_C = ~moved_C & (rng.random(len(carrier_C)) < MISSED[size])
    out_N[carrier_C[missed_C]] = 1 - minor
    return out_N


def flawed_calls(alleles_Q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return typed alleles of targets, some of which are replaced by the other allele."""
    return np.where(rng.random(len(alleles_Q)) < WRONG_CALL, 1 - alleles_Q, alleles_Q).astype(alleles_Q.dtype)
