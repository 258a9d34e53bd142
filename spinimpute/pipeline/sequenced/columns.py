"""What the chains of sequenced samples say, in columns as files and arrays have them.

Axes: S sites, X samples, Q haplotypes.
"""

from __future__ import annotations

import numpy as np


def in_columns(x_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Values of haplotypes in a column each.

    Parameters
    ----------
    x_S2X : array (S, 2, X)
        Of the two haplotypes of each sample.
    haploid_X : bool (X,)
        Samples with one copy.

    Returns
    -------
    array (S, Q)
        The haplotypes of each sample side by side; of a haploid sample the first alone.
    """
    kept_Q = np.stack([np.ones_like(haploid_X), ~haploid_X], axis=1).ravel()
    n_samples = len(haploid_X)
    return np.ascontiguousarray(x_S2X.transpose(0, 2, 1).reshape(len(x_S2X), 2 * n_samples)[:, kept_Q])


def likeliest_alleles(p_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Alleles of the likeliest genotype, int8 (S, 2, X); of a heterozygote ALT is where it is likelier.

    Parameters
    ----------
    p_S2X : float (S, 2, X)
        P(ALT) of the two haplotypes of each sample.
    haploid_X : bool (X,)
        Samples with one copy.

    Returns
    -------
    int8 (S, 2, X)
        0 or 1.
    """
    first_SX, second_SX = p_S2X[:, 0], p_S2X[:, 1]
    two_SX = first_SX * second_SX
    none_SX = (1 - first_SX) * (1 - second_SX)
    one_SX = 1 - two_SX - none_SX
    copies_SX = np.where(one_SX >= np.maximum(none_SX, two_SX), 1, np.where(two_SX > none_SX, 2, 0))
    copies_SX = np.where(haploid_X, 2 * (first_SX >= 0.5), copies_SX)
    second_first_SX = second_SX > first_SX
    return np.stack([copies_SX > second_first_SX, copies_SX > ~second_first_SX], axis=1).astype(np.int8)
