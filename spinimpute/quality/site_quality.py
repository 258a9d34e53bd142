"""Statistics of a site from its dosages alone: frequency, and how well it was imputed."""

from __future__ import annotations

import numpy as np

from spinimpute.kernels import kernel


@kernel()
def _moments(p_UQ, mean_U, variance_U):  # type: ignore[no-untyped-def]
    for u in range(len(p_UQ)):
        total, n = 0.0, 0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                total += p
                n += 1
        mean = total / n if n else np.nan
        squares = 0.0
        for q in range(p_UQ.shape[1]):
            p = p_UQ[u, q]
            if not np.isnan(p):
                squares += (p - mean) ** 2
        mean_U[u], variance_U[u] = mean, squares / n if n else np.nan


def site_quality(p_UQ: np.ndarray) -> dict[str, np.ndarray | None]:
    """Frequency and estimated R2 of sites.

    R2 is the variance of the haplotype dosages over p (1 - p), p their mean: the estimated r2 of Minimac.

    Parameters
    ----------
    p_UQ : float (U, Q)
        P(ALT) of sites and haplotypes; NaN is ignored.

    Returns
    -------
    dict of str to float64 (U,)
        AF, the mean of P(ALT), and R2, NaN where all dosages are 0 or all are 1.

    References
    ----------
    Das et al. 2016, Nat. Genet. 48:1284.
    """
    frequency, variance = np.empty(len(p_UQ)), np.empty(len(p_UQ))
    _moments(np.ascontiguousarray(p_UQ, dtype=np.float32), frequency, variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = variance / (frequency * (1 - frequency))
    return {"AF": frequency, "R2": np.where(np.isfinite(r2), np.minimum(r2, 1.0), np.nan)}
