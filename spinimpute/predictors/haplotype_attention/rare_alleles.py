"""The prior odds of rare alleles, as the panel's own site frequency spectrum shows them.

How many further haplotypes carry an allele that c of n panel haplotypes carry? Not c / n of them: in a
growing population most singletons are private to one family, and a file that leaves out sites with a single
carrier among panel and targets together has singletons that the targets are sure to carry. The spectrum
tells: alleles seen c times are seen again at a rate of (c + 1) S(c + 1) / (c S(c)) times c / n, where S(c) is
the number of sites with c carriers (Good 1953, Biometrika 40:237). This *return ratio* is about 0.5 for
singletons of 1000 Genomes panels.

The network learned from panels with return ratios of its own. Where the ratio of a panel differs, Bayes' rule
multiplies the odds of each prediction by the quotient of the two ratios.

Axes: C numbers of carriers, U sites of a block, Q queries.
"""

from __future__ import annotations

import numpy as np

from spinimpute.runtime.kernels import kernel

# Return ratios of alleles with 1, 2, ... carriers in panels like those of training (benchmarks/simulated).
# Alleles with more carriers return at rates that differ less between panels than they can be estimated.
TRAINED_RATIOS = (0.67, 0.84, 0.84, 0.86, 0.95)
# Variance of the log of a quotient between panels: a ratio of few sites is drawn towards that of training.
RATIO_VARIANCE = 0.09


def rare_allele_odds(carriers_X: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """Factors for the odds of alleles with 0, 1, 2, ... carriers.

    Parameters
    ----------
    carriers_X : integers (n_sites,)
        Carriers of the minor allele at all sites of a panel.
    n_haplotypes : int
        Haplotypes of the panel. Factors are 1 where minor alleles have hardly more carriers in any panel.

    Returns
    -------
    float32 (C,)
        The last factor is 1, and holds for all alleles with more carriers.
    """
    most = len(TRAINED_RATIOS)
    sites_C = np.bincount(np.minimum(carriers_X, most + 2), minlength=most + 3)
    odds_C = np.ones(most + 2, np.float32)
    for c, trained in enumerate(TRAINED_RATIOS, start=1):
        here, beyond = int(sites_C[c]), int(sites_C[c + 1])
        if here and beyond and 2 * (c + 1) < n_haplotypes:
            log_quotient = np.log((c + 1) * beyond / (c * here) / trained)
            odds_C[c] = np.exp(log_quotient * RATIO_VARIANCE / (RATIO_VARIANCE + 1 / here + 1 / beyond))
    return odds_C


@kernel()
def multiply_odds(odds_U, flip_U, p_UQ):  # type: ignore[no-untyped-def]
    """Multiply the odds of minor alleles, in place; flip_U: whether ALT is the major allele."""
    one = np.float32(1)
    for u in range(len(odds_U)):
        if odds_U[u] != one:
            odds = one / odds_U[u] if flip_U[u] else odds_U[u]
            for q in range(p_UQ.shape[1]):
                carried = odds * p_UQ[u, q]
                p_UQ[u, q] = carried / (one - p_UQ[u, q] + carried)
