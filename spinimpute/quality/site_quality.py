"""Statistics of imputed sites from the dosages alone: allele frequency and estimated accuracy.

Axes: U sites, Q haplotypes, X samples.
"""

import numpy as np

from spinimpute.runtime.kernels import kernel

MIN_DOSAGE = 0.0005  # a smaller P(minor allele) is 0 in files, which have three decimals


@kernel()
def _moments(p_UQ, mean_U, moment_U5, score_U):  # type: ignore[no-untyped-def]
    """Fill moment_U5 with sums of d², m d², m² d², m² and the product of 1 - m, see `site_quality`.

    The product is 1 where all m are below MIN_DOSAGE.
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
        p_no_carrier, largest = 1.0, 0.0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                m = 1.0 - p if flip else np.float64(p)
                deviation = (m - center) ** 2
                second += deviation
                third += m * deviation
                fourth += m * m * deviation
                square += m * m
                p_no_carrier *= 1 - m
                largest = max(largest, m)
        mean_U[u] = mean
        moment_U5[u, 0], moment_U5[u, 1], moment_U5[u, 2], moment_U5[u, 3] = second, third, fourth, square
        moment_U5[u, 4] = p_no_carrier if largest >= MIN_DOSAGE else 1.0
        score_U[u] = score / n if n else np.nan


def site_quality(p_UQ: np.ndarray) -> dict[str, np.ndarray | None]:
    """AF, MAF, AVG_CS and R2 of sites from P(ALT) of haplotypes; NaN is ignored, float64 (U,) each.

    AVG_CS is the mean probability of the likelier allele. All are NaN for a site without a dosage.

    R2 is the squared correlation of dosages and true alleles that the probabilities imply, given that at
    least one haplotype carries the minor allele: without a carrier there is no correlation. At common sites
    the condition has no effect, and R2 is the variance of the dosages over p (1 - p), where p is their mean,
    as in Minimac (Das et al. 2016, Nat. Genet. 48:1284). R2 is 0 where the dosages do not vary or no P(minor
    allele) reaches MIN_DOSAGE.

    Let m be the probabilities of the minor allele, M their sum, K the number of carriers, d the deviations of
    m from its mean, and V the sum of d². If K carriers are drawn with odds m, the squared covariance of
    alleles and dosages has the expectation K / M sum(m d²) + K (K - 1) / (M² - sum(m²)) (V² - sum(m² d²)),
    and the variance of the alleles is K (1 - K / n). R2 is the quotient of the former and of the latter times
    V, with the mean of K over K > 0 for K - 1 and K / n.
    """
    frequency, score = np.empty(len(p_UQ)), np.empty(len(p_UQ))
    moment_U5 = np.empty((len(p_UQ), 5))
    _moments(np.ascontiguousarray(p_UQ, dtype=np.float32), frequency, moment_U5, score)
    minor = np.minimum(frequency, 1 - frequency)
    return {"AF": frequency, "MAF": minor, "AVG_CS": score, "R2": _expected_r2(p_UQ, minor, moment_U5)}


def _expected_r2(p_UQ: np.ndarray, minor_U: np.ndarray, moment_U5: np.ndarray) -> np.ndarray:
    """R2, see `site_quality`."""
    second_U, third_U, fourth_U, square_U, p_no_carrier_U = moment_U5.T
    n_U = (~np.isnan(p_UQ)).sum(axis=1)
    total_U = minor_U * n_U
    carried = (total_U > 0) & (p_no_carrier_U < 1)
    zeros_U = np.zeros(len(total_U))
    # expected number of carriers, given that there is at least one
    carriers_U = np.divide(total_U, 1 - p_no_carrier_U, out=zeros_U + 1, where=carried)
    pairs_U = total_U * total_U - square_U
    first_term_U = np.divide(third_U, total_U, out=zeros_U.copy(), where=carried)
    second_term_U = np.divide(second_U**2 - fourth_U, pairs_U, out=zeros_U.copy(), where=pairs_U > 1e-12)
    variance_U = second_U * (1 - carriers_U / np.maximum(n_U, 1))
    covariance_U = first_term_U + (carriers_U - 1) * second_term_U
    r2_U = np.divide(covariance_U, variance_U, out=zeros_U, where=variance_U > 0)
    return np.where(np.isnan(minor_U), np.nan, r2_U.clip(0, 1))


def dosage_variance(p_UQ: np.ndarray, frequency_U: np.ndarray, ploidy: np.ndarray) -> np.ndarray:
    """Explained and residual sums of squares of the genotypes of each site, float64 (U, 2).

    `frequency_U` is that of ALT in the panel, `ploidy` of each sample. The first is the sum over samples of
    the squared deviation of the dosage from its expectation by frequency, the second the variance of the
    genotypes given the probabilities. If the probabilities are right, their sum is the expected squared
    deviation of the genotypes, and the share of the first, over many sites, is the expected r2. Other samples
    are not needed.
    """
    ploidy = np.asarray(ploidy, np.int64)
    dosage_UX = np.add.reduceat(p_UQ, np.cumsum(ploidy) - ploidy, axis=1, dtype=np.float64)
    explained_U = np.square(dosage_UX - frequency_U[:, None] * ploidy).sum(axis=1)
    return np.stack([explained_U, np.einsum("uq,uq->u", p_UQ, 1 - p_UQ, dtype=np.float64)], axis=1)
