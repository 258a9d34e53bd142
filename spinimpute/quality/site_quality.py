"""Statistics of a site from its dosages alone: frequency, and how well it was imputed.

Axes: U sites, Q haplotypes, X samples.
"""

from __future__ import annotations

import numpy as np

from spinimpute.kernels import kernel


@kernel()
def _moments(p_UQ, mean_U, variance_U, score_U):  # type: ignore[no-untyped-def]
    for u in range(len(p_UQ)):
        total, score, n = 0.0, 0.0, 0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                total += p
                score += max(p, 1 - p)
                n += 1
        mean = total / n if n else np.nan
        squares = 0.0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                squares += (p - mean) ** 2
        mean_U[u], variance_U[u] = mean, squares / n if n else np.nan
        score_U[u] = score / n if n else np.nan


def site_quality(p_UQ: np.ndarray) -> dict[str, np.ndarray | None]:
    """Frequency, estimated R2 and average call score of sites.

    R2 is the variance of the haplotype dosages over p (1 - p), p their mean: the estimated r2 of Minimac. If
    probabilities are right it is what can be expected of the squared correlation between imputed and true
    dosages.

    Parameters
    ----------
    p_UQ : float (U, Q)
        P(ALT) of sites and haplotypes; NaN is ignored.

    Returns
    -------
    dict of str to float64 (U,)
        AF, the mean of P(ALT); MAF, AF or 1 - AF, whichever is less; AVG_CS, the mean probability of the
        likelier allele; R2, 0 where the dosages do not vary. All are NaN of a site without a dosage.

    References
    ----------
    Das et al. 2016, Nat. Genet. 48:1284.
    """
    frequency, variance, score = (np.empty(len(p_UQ)) for _ in range(3))
    _moments(np.ascontiguousarray(p_UQ, dtype=np.float32), frequency, variance, score)
    expected = frequency * (1 - frequency)  # of the variance, were all alleles known
    r2 = np.divide(variance, expected, out=np.zeros(len(p_UQ)), where=expected != 0)
    return {
        "AF": frequency,
        "MAF": np.minimum(frequency, 1 - frequency),
        "AVG_CS": score,
        "R2": np.minimum(r2, 1.0),
    }


def dosage_spread(p_UQ: np.ndarray, frequency_U: np.ndarray, ploidy: np.ndarray) -> np.ndarray:
    """Squares about the panel's frequency that the dosages explain, and those that stay open.

    Parameters
    ----------
    p_UQ : float (U, Q)
        P(ALT) of sites and haplotypes.
    frequency_U : float (U,)
        ALT frequency in the panel.
    ploidy : integers (X,)
        1 or 2 for each sample.

    Returns
    -------
    float64 (U, 2)
        Sums over samples: the squared deviation of the dosage from its expectation by frequency, and the
        variance of the genotype that the probabilities leave open. If the probabilities are right, both
        together are the expected squared deviation of the genotypes, and the share of the first, over many
        sites, is the expected r2. It needs no other samples.
    """
    ploidy = np.asarray(ploidy, np.int64)
    dosage_UX = np.add.reduceat(p_UQ, np.cumsum(ploidy) - ploidy, axis=1, dtype=np.float64)
    explained_U = np.square(dosage_UX - frequency_U[:, None] * ploidy).sum(axis=1)
    return np.stack([explained_U, np.einsum("uq,uq->u", p_UQ, 1 - p_UQ, dtype=np.float64)], axis=1)
