"""Statistics of imputed sites: allele frequency, and accuracy estimated without true genotypes.

They are computed from the imputed P(ALT) of each haplotype. `impute` writes them to INFO of the output.

Every statistic is a function of sums over haplotypes (`site_sums`). The sums are whole numbers, so they are
exact: they depend neither on the order of the haplotypes nor on how the samples are divided among files.
`merge` adds the sums of several files (`quality.stored_sums`) and gets the statistics of a single run.

Axes: U sites, Q haplotypes, X samples, K sums of a site.
"""

import numpy as np

from spinimpute.runtime.kernels import kernel

BITS = 20
LOW = (1 << BITS) - 1
ONE = 1 << BITS  # P(ALT) is rounded to units of 1 / ONE before it is summed
ONE_32, UINT32 = np.float32(ONE), np.int64(0xFFFFFFFF)
MAX_HAPLOTYPES = 2**22  # the sums of more haplotypes might need more than 64 bits
MIN_DOSAGE = 0.0005  # a smaller P(minor allele) is written as 0, because dosages have three decimals

_MIN_UNITS = int(np.ceil(MIN_DOSAGE * ONE))
# minus the logarithm of 1 - p of small p, both in units of 1 / ONE
LOGS = np.rint(-np.log((ONE - np.arange(1 << 12)) / ONE) * ONE).astype(np.int64)
MAX_LOG = 16 * ONE  # larger logs are cut off: exp(-16) = 1e-7 does not change the third decimal of R2
HAS_ALT, HAS_REF, STRAND_CHOSEN = 1, 2, 4  # bits of the last sum
_N_SUMS = 11
_CONSTANT = 1e-12  # dosages whose variance is smaller, relative to their mean square, do not vary


@kernel()
def _to_units(p_UQ, u, q_Q):  # type: ignore[no-untyped-def]
    """Fill q_Q with P(ALT) of a site in units of 1 / ONE, 0 for NaN.

    Return the number of known values, and the smallest of them.
    """
    n, smallest = 0, np.int32(ONE)
    for i in range(len(q_Q)):
        p = p_UQ[u, i]
        known = not np.isnan(p)
        share = min(max(p, np.float32(0)), np.float32(1)) if known else np.float32(0)
        q = np.int32(np.rint(share * ONE_32))
        q_Q[i] = q
        n += known
        smallest = min(smallest, q if known else np.int32(ONE))
    return n, smallest


@kernel()
def _sum_powers(q_Q, u, sums_KU):  # type: ignore[no-untyped-def]
    """Fill the sums of powers of a site. Return the largest value. A loop without branches is vectorised."""
    first = second = high3 = low3 = high4 = middle4 = low4 = doubt = np.int64(0)
    largest = np.int32(0)
    for i in range(len(q_Q)):
        # the compiler multiplies numbers that are known to have at most 32 bits faster
        q = np.int64(q_Q[i]) & UINT32
        square = q * q
        high, low = (square >> BITS) & UINT32, square & LOW
        first += q
        second += square
        high3 += q * high
        low3 += q * low
        high4 += high * high
        middle4 += high * low
        low4 += low * low
        doubt += min(q_Q[i], np.int32(ONE) - q_Q[i])
        largest = max(largest, q_Q[i])
    middle4 = 2 * middle4 + (low4 >> BITS)
    sums_KU[1, u], sums_KU[2, u], sums_KU[7, u] = first, second, doubt
    sums_KU[3, u], sums_KU[4, u] = high3 + (low3 >> BITS), low3 & LOW
    sums_KU[5, u] = high4 + (middle4 >> BITS)
    sums_KU[6, u] = ((middle4 & LOW) << BITS) | (low4 & LOW)
    return largest


@kernel()
def _sum_logs(q_Q):  # type: ignore[no-untyped-def]
    """Return minus the logarithm of the probability that no haplotype has the allele, at most MAX_LOG."""
    log = 0
    for q in q_Q:
        if q == ONE:
            return MAX_LOG
        log += LOGS[q] if q < len(LOGS) else int(np.rint(-np.log((ONE - q) / ONE) * ONE))
    return min(log, MAX_LOG)


@kernel()
def _sum_haplotypes(p_UQ, sums_KU):  # type: ignore[no-untyped-def]
    """Fill sums_KU, see `site_sums`."""
    q_Q = np.empty(p_UQ.shape[1], np.int32)
    for u in range(len(p_UQ)):
        n, smallest = _to_units(p_UQ, u, q_Q)
        largest = _sum_powers(q_Q, u, sums_KU)
        sums_KU[0, u] = n
        sums_KU[10, u] = HAS_ALT * (largest >= _MIN_UNITS) + HAS_REF * (ONE - smallest >= _MIN_UNITS)
        # each log is at least the sum of the probabilities
        sums_KU[8, u] = sums_KU[9, u] = MAX_LOG
        if sums_KU[1, u] < MAX_LOG:
            sums_KU[8, u] = _sum_logs(q_Q)
        if n * ONE - sums_KU[1, u] < MAX_LOG:
            for i in range(len(q_Q)):
                q_Q[i] = 0 if np.isnan(p_UQ[u, i]) else ONE - q_Q[i]
            sums_KU[9, u] = _sum_logs(q_Q)


def site_sums(p_UQ: np.ndarray) -> np.ndarray:
    """Return sums over the haplotypes of each site, int64 (K, U). NaN in `p_UQ`, float32, is ignored.

    q is P(ALT) in units of 1 / ONE. The rows are

    - n, the number of haplotypes, and the sums of q and of q²,
    - the sums of q³ and of q⁴, in two parts, because they need more than 64 bits: high * ONE + low and
      high * ONE² + low, where low is less than ONE and ONE²,
    - the sum of min(q, ONE - q),
    - minus the logarithm of the probability that no haplotype has ALT, in units of 1 / ONE and at most
      16 ONE, and the same of REF,
    - bits: HAS_ALT is set if any P(ALT) reaches MIN_DOSAGE, and HAS_REF if any P(REF) does. The caller may
      set STRAND_CHOSEN: the frequencies of the file switched the strand of the site.
    """
    sums_KU = np.empty((_N_SUMS, len(p_UQ)), np.int64)
    _sum_haplotypes(np.ascontiguousarray(p_UQ, dtype=np.float32), sums_KU)
    return sums_KU


def add_sums(left_KU: np.ndarray, right_KU: np.ndarray) -> np.ndarray:
    """Return the sums over the haplotypes of two files."""
    sums_KU = left_KU + right_KU
    sums_KU[3], sums_KU[4] = _carry(sums_KU[3], sums_KU[4], BITS)
    sums_KU[5], sums_KU[6] = _carry(sums_KU[5], sums_KU[6], 2 * BITS)
    sums_KU[8:10] = np.minimum(sums_KU[8:10], MAX_LOG)
    sums_KU[10] = left_KU[10] | right_KU[10]
    return sums_KU


def _carry(high: np.ndarray, low: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of the number high * 2**bits + low, with low between 0 and 2**bits - 1."""
    return high + (low >> bits), low & ((1 << bits) - 1)


def site_quality(sums_KU: np.ndarray) -> dict[str, np.ndarray | None]:
    """Return AF, MAF, AVG_CS and R2 of sites, float64 (U,) each, from their `site_sums`.

    AVG_CS is the mean probability of the more likely allele. A site at which P(ALT) of all haplotypes is NaN
    gets NaN.

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
    n_U, first_U = sums_KU[0], sums_KU[1]
    known = n_U > 0
    total_U = np.where(known, n_U * float(ONE), np.nan)
    frequency_U = first_U / total_U
    return {
        "AF": frequency_U,
        "MAF": np.minimum(frequency_U, 1 - frequency_U),
        "AVG_CS": 1 - sums_KU[7] / total_U,
        "R2": np.where(known, _expected_r2(sums_KU), np.nan),
    }


def _expected_r2(sums_KU: np.ndarray) -> np.ndarray:
    """Return R2 of sites with any known P(ALT), see `site_quality`."""
    flip_U = 2 * sums_KU[1] > sums_KU[0] * ONE
    total_U, square_U, cube_U, fourth_power_U = _minor_moments(sums_KU, flip_U)
    log_U = np.where(flip_U, sums_KU[9], sums_KU[8])
    carried_U = sums_KU[10] & np.where(flip_U, HAS_REF, HAS_ALT) > 0
    n_U, zeros_U = np.maximum(sums_KU[0], 1), np.zeros(len(flip_U))
    mean_U = total_U / n_U
    second_U = square_U - mean_U * total_U  # sum(d²)
    third_U = cube_U - 2 * mean_U * square_U + mean_U**2 * total_U  # sum(m d²)
    fourth_U = fourth_power_U - 2 * mean_U * cube_U + mean_U**2 * square_U  # sum(m² d²)
    carried_U &= second_U > _CONSTANT * square_U
    p_no_carrier_U = np.where(log_U < MAX_LOG, np.exp(-log_U / ONE), 0)
    # expected number of carriers, given that there is at least one
    carriers_U = np.divide(total_U, 1 - p_no_carrier_U, out=zeros_U + 1, where=carried_U)
    pairs_U = total_U * total_U - square_U
    first_term_U = np.divide(third_U, total_U, out=zeros_U.copy(), where=carried_U)
    second_term_U = np.divide(second_U**2 - fourth_U, pairs_U, out=zeros_U.copy(), where=pairs_U > 1e-12)
    variance_U = second_U * (1 - carriers_U / n_U)
    covariance_U = first_term_U + (carriers_U - 1) * second_term_U
    r2_U = np.divide(covariance_U, variance_U, out=zeros_U, where=carried_U & (variance_U > 0))
    return np.asarray(r2_U.clip(0, 1))


def _minor_moments(sums_KU: np.ndarray, flip_U: np.ndarray) -> np.ndarray:
    """Return the sums of m, m², m³ and m⁴, float64 (4, U). m is P(ALT), or P(REF) where `flip_U`.

    The sums of P(REF) are exact, because ONE - q is put in place of q before the sums become floats.
    """
    n, first, second, high3, low3, high4, low4 = sums_KU[:7]
    n_one = n << 2 * BITS  # n ONE²
    # sum((ONE - q)³) = n ONE³ - 3 ONE² sum(q) + 3 ONE sum(q²) - sum(q³), and so on
    flipped = (
        n * ONE - first,
        n_one - 2 * ONE * first + second,
        *_carry(n_one - 3 * ONE * first + 3 * second - high3, -low3, BITS),
        *_carry(n_one - 4 * ONE * first + 6 * second - 4 * high3 + high4, low4 - 4 * ONE * low3, 2 * BITS),
    )
    first, second, high3, low3, high4, low4 = np.where(flip_U, flipped, sums_KU[1:7])
    cube, fourth_power = high3 + low3 / ONE, high4 + low4 / ONE**2
    return np.stack([first / ONE, second / ONE**2, cube / ONE**2, fourth_power / ONE**2])


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
