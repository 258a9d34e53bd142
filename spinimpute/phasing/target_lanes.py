"""Targets side by side: what is known of HALF of them at the places of a window.

Axes: T typed sites, S those of a window, X samples, Q haplotypes of samples, H = HALF targets, L lanes, 2
alleles of a state.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.passes import HALF
from spinimpute.runtime.kernels import kernel


class TargetLanes:
    """Arrays that are filled again for every group of targets.

    Attributes
    ----------
    call_S2L : float32 (S, 2, L)
        Emissions of the calls (`allele_emissions`): lane l is the first haplotype of target l, lane l + HALF
        its other one. The last target fills up what is left.
    seen_S2L : float32 (S, 2, L)
        The same, with doubtful calls missing.
    open_SH : bool (S, H)
        Heterozygotes without phase.
    wanted_S : bool (S,)
        Places at which a call is missing.
    """

    def __init__(self, n_places: int) -> None:
        self.call_S2L, self.seen_S2L = np.empty((2, n_places, 2, LANES), np.float32)
        self.open_SH, self.wanted_S = np.empty((n_places, HALF), bool), np.empty(n_places, bool)

    def fill(
        self,
        alleles_TQ: np.ndarray,
        known_TQ: np.ndarray,
        open_TX: np.ndarray,
        doubtful_TX: np.ndarray,
        mismatch_T: np.ndarray,
        column_X2: np.ndarray,
        first_place: int,
        first_sample: int,
        last_sample: int,
    ) -> None:
        """Fill them.

        Parameters
        ----------
        alleles_TQ : uint8 (T, Q)
            0 or 1, also where nothing is known.
        known_TQ : bool (T, Q)
            Calls that are not missing.
        open_TX, doubtful_TX : bool (T, X)
            Heterozygotes without phase, and those that are not used.
        mismatch_T : float32 (T,)
            Probability that an allele differs from the one that is copied.
        column_X2 : int64 (X, 2)
            The two haplotypes of each sample.
        first_place : int
            The typed site that is the window's first.
        first_sample, last_sample : int
            The group's samples, [first, last): HALF at most.
        """
        _fill(
            alleles_TQ, known_TQ, open_TX, doubtful_TX, mismatch_T, column_X2, first_place,
            first_sample, last_sample, self.call_S2L, self.seen_S2L, self.open_SH, self.wanted_S,
        )  # fmt: skip


@kernel()
def _fill(  # type: ignore[no-untyped-def]
    alleles_TQ, known_TQ, open_TX, doubtful_TX, mismatch_T, column_X2, first_place, first_sample,
    last_sample, call_S2L, seen_S2L, open_SH, wanted_S,
):  # fmt: skip
    """See `TargetLanes.fill`."""
    for s in range(len(wanted_S)):
        t = first_place + s
        wrong = mismatch_T[t]
        right = np.float32(1) - wrong
        wanted_S[s] = False
        for h in range(HALF):
            x = min(first_sample + h, last_sample - 1)
            open_SH[s, h] = open_TX[t, x] and first_sample + h < last_sample
            for copy in range(2):
                lane, column = h + copy * HALF, column_X2[x, copy]
                allele = alleles_TQ[t, column]
                known = known_TQ[t, column]
                call_S2L[s, 0, lane] = wrong if known and allele == 1 else right
                call_S2L[s, 1, lane] = wrong if known and allele == 0 else right
                seen = known and not doubtful_TX[t, x]
                seen_S2L[s, 0, lane] = wrong if seen and allele == 1 else right
                seen_S2L[s, 1, lane] = wrong if seen and allele == 0 else right
                wanted_S[s] |= not known
