"""The compiled part of `discordance`: alleles of the haplotype that each one of a panel is nearest to.

Axes: T sites, N haplotypes, P bytes of packed bits.
"""

from __future__ import annotations

import numpy as np

from spinimpute.genotypes.bit_rows import advance, allele_of
from spinimpute.runtime.kernels import kernel


@kernel()
def fill_nearest(bits_TP, passed_T, nobody, near_TN):  # type: ignore[no-untyped-def]
    """Fill near_TN with the allele, at each site, of the haplotype with the longest match before it.

    passed_T: up to which site matches count, int64, never decreasing: those of its index and later ones do
    not. Of two haplotypes that match as long the first one in the order counts. nobody: in place of an allele
    where no other haplotype matches.
    """
    n = near_TN.shape[1]
    order_N, start_N = np.arange(n).astype(np.int32), np.zeros(n, np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1, near_N = np.empty(n + 1, np.int32), np.empty(n, np.int32)
    done, found = 0, -1
    for t in range(len(bits_TP)):
        while done < passed_T[t]:
            advance(
                bits_TP[done], order_N, start_N, done, zeros_N1, ones_N, one_start_N, next_order_N,
                next_start_N,
            )  # fmt: skip
            order_N, next_order_N = next_order_N, order_N
            start_N, next_start_N = next_start_N, start_N
            done += 1
        if found != done:
            found = done
            for i in range(n):
                before = start_N[i] if i else done
                behind = start_N[i + 1] if i + 1 < n else done
                if min(before, behind) == done:
                    near_N[order_N[i]] = -1
                else:
                    near_N[order_N[i]] = order_N[i - 1] if before <= behind else order_N[i + 1]
        for i in range(n):
            near_TN[t, i] = nobody if near_N[i] < 0 else allele_of(bits_TP[t], near_N[i])
