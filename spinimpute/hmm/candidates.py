"""Candidates: the panel haplotypes that queries may copy in blocks of gaps.

Axes: B blocks, Q queries, C candidates of all blocks and queries, N panel haplotypes, P places of a block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.runtime.kernels import kernel


class Candidates(NamedTuple):
    """Lists of haplotypes: of each block, query by query.

    Attributes
    ----------
    haplotype_C : int32
        Ascending for each block and query.
    first_BQ1 : int64 (B, Q + 1)
        Where they begin, and where those of a block end.
    """

    haplotype_C: np.ndarray
    first_BQ1: np.ndarray

    @classmethod
    def of(cls, chosen_BQN: np.ndarray) -> Candidates:
        """Those for which an array of truth values says so."""
        count_BQ = chosen_BQN.sum(axis=2)
        last_BQ = np.cumsum(count_BQ.ravel()).reshape(count_BQ.shape)
        first_BQ1 = np.concatenate([(last_BQ - count_BQ)[:, :1], last_BQ], axis=1)
        return cls(np.nonzero(chosen_BQN)[2].astype(np.int32), first_BQ1.astype(np.int64))

    def take(self, block: int, query: int) -> np.ndarray:
        """Those of a query in a block."""
        first, last = self.first_BQ1[block, query : query + 2]
        return self.haplotype_C[first:last]


def in_blocks(
    found_C: np.ndarray, found_CP: np.ndarray, start_QB: np.ndarray, count_QB: np.ndarray
) -> tuple[np.ndarray, Candidates]:
    """Block by block what was found in any order.

    Parameters
    ----------
    found_C : int32
        Haplotypes, ascending for each block and query.
    found_CP : float32
        Their posteriors.
    start_QB, count_QB : int64
        Where those of a query and block begin, and how many they are.

    Returns
    -------
    float32 (C, P)
        Posteriors, in the order of the candidates.
    Candidates
        Of all blocks and queries.
    """
    n_queries, n_blocks = count_QB.shape
    first_BQ1 = np.zeros((n_blocks, n_queries + 1), np.int64)
    np.cumsum(count_QB.T, axis=1, out=first_BQ1[:, 1:])
    first_BQ1[1:] += np.cumsum(first_BQ1[:-1, -1])[:, None]
    kept_C = np.empty(first_BQ1[-1, -1], np.int32)
    kept_CP = np.empty((len(kept_C), found_CP.shape[1]), np.float32)
    _put_in_blocks(found_C, found_CP, start_QB, first_BQ1, kept_C, kept_CP)
    return kept_CP, Candidates(kept_C, first_BQ1)


@kernel()
def _put_in_blocks(found_C, found_CP, start_QB, first_BQ1, kept_C, kept_CP):  # type: ignore[no-untyped-def]
    """Fill kept_C and kept_CP, see `in_blocks`."""
    for b in range(len(first_BQ1)):
        for q in range(len(start_QB)):
            found = start_QB[q, b]
            for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                kept_C[c] = found_C[found]
                kept_CP[c] = found_CP[found]
                found += 1
