"""K-mers: the alleles of a haplotype at K adjacent typed sites, as one of 2^K tokens.

The typed sites of a block are cut into columns of K places, padded at both ends. A haplotype has one K-mer
per column. Where alleles are only known as probabilities, as in inducing points, a column has a distribution
over 2^K tokens. `predictors.spin.kmers` has the same functions for torch, which training needs.

Axes: X haplotypes or inducing points, S typed places, D columns, K places of a column, V = 2^K tokens.
"""

from __future__ import annotations

import numpy as np

MAX_SNPS = 8  # maximum of K; memory grows with 2^K


def cut_columns(x_XS: np.ndarray, k: int) -> np.ndarray:
    """Cut typed places into columns of K, (..., D, K), padded with zeros at both ends."""
    missing = -x_XS.shape[-1] % k
    padding = [(0, 0)] * (x_XS.ndim - 1) + [(missing // 2, missing - missing // 2)]
    padded = np.pad(x_XS, padding)
    return padded.reshape(*x_XS.shape[:-1], -1, k)


def token_numbers(bit_XS: np.ndarray, k: int) -> np.ndarray:
    """Return the numbers of the tokens with these bits (0 or 1), int64 (X, D); the first is the highest."""
    bit_XDK = cut_columns(bit_XS, k)
    number_XD = np.zeros(bit_XDK.shape[:2], np.int64)
    for i in range(k):
        number_XD = 2 * number_XD + bit_XDK[..., i]
    return number_XD


def mean_alleles(token_XDV: np.ndarray, places: int) -> np.ndarray:
    """Return P(ALT) at each place, (X, S), from the probabilities of tokens; `places` is S."""
    n_kmers = token_XDV.shape[-1]
    k = n_kmers.bit_length() - 1
    allele_VK = (np.arange(n_kmers)[:, None] >> np.arange(k - 1, -1, -1) & 1).astype(token_XDV.dtype)
    left = (-places % k) // 2  # as in `cut_columns`
    allele_XDK = token_XDV @ allele_VK
    return allele_XDK.reshape(len(token_XDV), -1)[:, left : left + places]
