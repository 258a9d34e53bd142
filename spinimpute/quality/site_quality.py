"""Statistics of a site from its dosages alone: frequency, and how well it was imputed.

Axes: U sites, Q haplotypes, X samples.
"""

from __future__ import annotations

import numpy as np

from spinimpute.runtime.kernels import kernel

LEAST_DOSAGE = 0.0005  # P(minor allele) that is 0 in files, which hold three decimals


@kernel()
def _moments(p_UQ, mean_U, moment_U5, score_U):  # type: ignore[no-untyped-def]
    """Fill moment_U5 with sums of d², m d², m² d², m² and the product of 1 - m, see `site_quality`.

    The product is 1 where all m are below LEAST_DOSAGE.
    """
    for u in range(len(p_UQ)):
        total, score, n = 0.0, 0.0, 0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                total += p
                score += max(p, 1 - p)
                n += 1
        mean = total / n if n else np.nan
        flip = mean > 0.5
        center = 1 - mean if flip else mean
        second = third = fourth = square = 0.0
        nobody, most = 1.0, 0.0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                m = 1.0 - p if flip else np.float64(p)
                deviation = (m - center) ** 2
                second += deviation
                third += m * deviation
                fourth += m * m * deviation
                square += m * m
                nobody *= 1 - m
                most = max(most, m)
        mean_U[u] = mean
        moment_U5[u, 0], moment_U5[u, 1], moment_U5[u, 2], moment_U5[u, 3] = second, third, fourth, square
        moment_U5[u, 4] = nobody if most >= LEAST_DOSAGE else 1.0
        score_U[u] = score / n if n else np.nan


def site_quality(p_UQ: np.ndarray) -> dict[str, np.ndarray | None]:
    """Frequency, estimated R2 and average call score of sites.

    R2 is the squared correlation of dosages and true alleles that the probabilities let expect, given that at
    least one of the haplotypes carries the minor allele: where nobody carries it there is no correlation. At
    common sites that condition says nothing, and R2 is the variance of the dosages over p (1 - p), p their
    mean, as in Minimac.

    Let m be the probabilities of the minor allele, M their sum, K the number of carriers, d the deviations of
    m from its mean, and V the sum of d². If K carriers are drawn with odds m, the squared covariance of
    alleles and dosages has the expectation K / M sum(m d²) + K (K - 1) / (M² - sum(m²)) (V² - sum(m² d²)),
    and the alleles vary by K (1 - K / n). R2 is the quotient of both and of V, with the mean of K over K > 0
    for K - 1 and K / n.

    Parameters
    ----------
    p_UQ : float (U, Q)
        P(ALT) of sites and haplotypes; NaN is ignored.

    Returns
    -------
    dict of str to float64 (U,)
        AF, the mean of P(ALT); MAF, AF or 1 - AF, whichever is less; AVG_CS, the mean probability of the
        likelier allele; R2, 0 where the dosages do not vary or nobody has a P(minor allele) of LEAST_DOSAGE.
        All are NaN of a site without a dosage.

    References
    ----------
    Das et al. 2016, Nat. Genet. 48:1284, for the estimate of Minimac.
    """
    frequency, score = np.empty(len(p_UQ)), np.empty(len(p_UQ))
    moment_U5 = np.empty((len(p_UQ), 5))
    _moments(np.ascontiguousarray(p_UQ, dtype=np.float32), frequency, moment_U5, score)
    minor = np.minimum(frequency, 1 - frequency)
    return {"AF": frequency, "MAF": minor, "AVG_CS": score, "R2": _expected_r2(p_UQ, minor, moment_U5)}


def _expected_r2(p_UQ: np.ndarray, minor_U: np.ndarray, moment_U5: np.ndarray) -> np.ndarray:
    """R2, see `site_quality`."""
    second_U, third_U, fourth_U, square_U, nobody_U = moment_U5.T
    n_U = (~np.isnan(p_UQ)).sum(axis=1)
    total_U = minor_U * n_U
    some = (total_U > 0) & (nobody_U < 1)
    zeros_U = np.zeros(len(total_U))
    carriers_U = np.divide(total_U, 1 - nobody_U, out=zeros_U + 1, where=some)  # if there are any
    pairs_U = total_U * total_U - square_U
    one_U = np.divide(third_U, total_U, out=zeros_U.copy(), where=some)
    two_U = np.divide(second_U**2 - fourth_U, pairs_U, out=zeros_U.copy(), where=pairs_U > 1e-12)
    varies_U = second_U * (1 - carriers_U / np.maximum(n_U, 1))
    covaries_U = one_U + (carriers_U - 1) * two_U
    r2_U = np.divide(covaries_U, varies_U, out=zeros_U, where=varies_U > 0)
    return np.where(np.isnan(minor_U), np.nan, r2_U.clip(0, 1))


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
