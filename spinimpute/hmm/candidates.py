"""Candidates: the panel haplotypes that queries may copy in blocks of gaps.

Axes: B blocks, Q queries, C candidates of all blocks and queries, N panel haplotypes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


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
