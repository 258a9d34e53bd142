"""Statistics of imputed sites: allele frequency, and accuracy estimated without true genotypes.

They are computed from the imputed P(ALT) of each haplotype. `impute` writes them to INFO of the output.

Axes: U sites, Q haplotypes, X samples.
"""

import numpy as np

from spinimpute.runtime.kernels import kernel

MIN_DOSAGE = 0.0005  # a smaller P(minor allele) is written as 0, because dosages have three decimals


@kernel()
def _moments(p_UQ, mean_U, moment_U5, score_U):  # type: ignore[no-untyped-def]
    """Fill moment_U5 with the sums of d², m d², m² d² and m², and the product of 1 - m, see `site_quality`.

    The product is the probability that no haplotype has the minor allele. It is set to 1 if all m are below
    MIN_DOSAGE. mean_U gets the mean of p, score_U the mean of max(p, 1 - p).
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
    """Return AF, MAF, AVG_CS and R2 of sites, float64 (U,) each, from P(ALT) of each haplotype.

    AVG_CS is the mean probability of the more likely allele. NaN in `p_UQ` is ignored. A site at which all
    haplotypes are NaN gets NaN.

    R2 is the squared correlation of dosages and true alleles to expect if the probabilities are calibrated
    and at least one haplotype has the minor allele. (If none has it, the correlation is undefined.) At common
    sites the condition has no effect, and R2 is the variance of the dosages divided by p (1 - p), where p is
    their mean, as in Minimac (Das et al. 2016, Nat. Genet. 48:1284). R2 is 0 if the dosages do not vary, or
    if no P(minor allele) reaches MIN_DOSAGE.

    For each of the n haplotypes let m be the probability of the minor allele, and d the deviation of m from
    its mean. Let M = sum(m), V = sum(d²), and K the number of haplotypes that have the minor allele. If these
    K haplotypes are drawn with probabilities proportional to m, the squared covariance of alleles and dosages
    has the expectation C = K / M sum(m d²) + K (K - 1) / (M² - sum(m²)) (V² - sum(m² d²)). The variance of
    the alleles is A = K (1 - K / n). Then R2 = C / (A V), in which the factor K cancels. The remaining K is
    replaced by its mean, given K > 0.
    """
    frequency, score = np.empty(len(p_UQ)), np.empty(len(p_UQ))
    moment_U5 = np.empty((len(p_UQ), 5))
    _moments(np.ascontiguousarray(p_UQ, dtype=np.float32), frequency, moment_U5, score)
    minor = np.minimum(frequency, 1 - frequency)
    return {"AF": frequency, "MAF": minor, "AVG_CS": score, "R2": _expected_r2(p_UQ, minor, moment_U5)}


def _expected_r2(p_UQ: np.ndarray, minor_U: np.ndarray, moment_U5: np.ndarray) -> np.ndarray:
    """Return R2, see `site_quality`."""
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
    """Return the explained and the residual sum of squares of each site, float64 (U, 2).

    The explained sum is over samples: the squared deviation of the dosage from ploidy times `frequency_U`,
    the ALT frequency in the panel. The residual sum is the variance of the genotypes under their imputed
    probabilities. If the probabilities are calibrated, explained / (explained + residual), with both summed
    over many sites, is the expected r2. It can be computed for a single sample. `ploidy` has one value for
    each sample.
    """
    ploidy = np.asarray(ploidy, np.int64)
    dosage_UX = np.add.reduceat(p_UQ, np.cumsum(ploidy) - ploidy, axis=1, dtype=np.float64)
    explained_U = np.square(dosage_UX - frequency_U[:, None] * ploidy).sum(axis=1)
    return np.stack([explained_U, np.einsum("uq,uq->u", p_UQ, 1 - p_UQ, dtype=np.float64)], axis=1)
