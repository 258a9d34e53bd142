"""The calls that phasing works on: their layout for `passes`, and how decisions and votes change them.

Axes: T typed sites, S typed sites of a window, X samples to phase, Q haplotypes of all samples, H = HALF =
LANES / 2 samples that are computed together, L lanes, 2 alleles of a state or haplotypes of a sample.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from spinimpute.hmm.parameters import LANES
from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_RIGHT, HALF
from spinimpute.runtime.kernels import kernel


class Targets(NamedTuple):
    """The calls of all samples: those to phase, and the others, which may be copied.

    If several samples to phase have equal calls, X contains only the first, and the others get its phase.
    """

    alleles_TQ: np.ndarray  # uint8, 0 or 1; missing calls have their current prediction
    known_TQ: np.ndarray  # bool, calls that are not missing
    open_TX: np.ndarray  # bool, unphased heterozygotes
    column_X2: np.ndarray  # int64, columns of the two haplotypes of each sample to phase
    # int64, index in X of each haplotype's sample, or of the sample with equal calls; -1 if not to be phased
    sample_Q: np.ndarray
    locked_X2: np.ndarray  # int64, a sample's first and last heterozygote of known phase; (T, T) if none
    mismatch_T: np.ndarray  # float32, probability that an allele differs from the copied one


class Decisions(NamedTuple):
    """The decisions of a pass on all samples, see `passes.LaneDecisions`."""

    decision_TX: np.ndarray
    posterior_TX: np.ndarray
    likely_T2X: np.ndarray  # bool, whether ALT is more likely than REF on each haplotype


class TargetLanes(NamedTuple):
    """The calls of HALF samples at the places of a window."""

    # float32, emissions of the calls (`allele_emissions`). Lane l is the first haplotype of sample l, lane
    # l + HALF its second. The last sample is repeated to fill the lanes.
    call_S2L: np.ndarray
    confident_S2L: np.ndarray  # float32, call_S2L, but heterozygotes of doubtful phase count as missing
    open_SH: np.ndarray  # bool, unphased heterozygotes
    wanted_S: np.ndarray  # bool, places with a missing call

    @classmethod
    def allocate(cls, n_places: int) -> Self:
        """Allocate lanes, which `fill_lanes` fills for one group of samples after the other."""
        call_S2L, confident_S2L = np.empty((2, n_places, 2, LANES), np.float32)
        return cls(call_S2L, confident_S2L, np.empty((n_places, HALF), bool), np.empty(n_places, bool))


@kernel()
def fill_lanes(targets, doubtful_TX, first_site, samples, lanes):  # type: ignore[no-untyped-def]
    """Fill `TargetLanes`. first_site: first of the window. samples: interval of up to HALF indices in X."""
    call_S2L, confident_S2L, open_SH, wanted_S = lanes
    for s in range(len(wanted_S)):
        t = first_site + s
        wrong = targets.mismatch_T[t]
        right = np.float32(1) - wrong
        wanted_S[s] = False
        for h in range(HALF):
            x = min(samples.start + h, samples.stop - 1)
            open_SH[s, h] = targets.open_TX[t, x] and samples.start + h < samples.stop
            for copy in range(2):
                lane, column = h + copy * HALF, targets.column_X2[x, copy]
                allele, known = targets.alleles_TQ[t, column], targets.known_TQ[t, column]
                call_S2L[s, 0, lane] = wrong if known and allele == 1 else right
                call_S2L[s, 1, lane] = wrong if known and allele == 0 else right
                seen = known and not doubtful_TX[t, x]
                confident_S2L[s, 0, lane] = wrong if seen and allele == 1 else right
                confident_S2L[s, 1, lane] = wrong if seen and allele == 0 else right
                wanted_S[s] |= not known


@kernel()
def apply_decisions(targets, decisions):  # type: ignore[no-untyped-def]
    """Exchange alleles as decided, at a site or at all to its right. Replace predictions of missing calls."""
    alleles_TQ, known_TQ, column_X2 = targets.alleles_TQ, targets.known_TQ, targets.column_X2
    decision_TX, likely_T2X = decisions.decision_TX, decisions.likely_T2X
    exchanged_X = np.zeros(len(column_X2), np.bool_)
    for t in range(len(decision_TX)):
        for x in range(len(column_X2)):
            first, second = column_X2[x]
            one, other = alleles_TQ[t, first], alleles_TQ[t, second]
            if decision_TX[t, x] & EXCHANGED:
                one, other = other, one
            if not known_TQ[t, first]:
                one = np.uint8(likely_T2X[t, 0, x])
            if not known_TQ[t, second]:
                other = np.uint8(likely_T2X[t, 1, x])
            if exchanged_X[x]:
                one, other = other, one
            alleles_TQ[t, first], alleles_TQ[t, second] = one, other
            if decision_TX[t, x] & EXCHANGED_RIGHT:
                exchanged_X[x] = not exchanged_X[x]


@kernel()
def vote(targets, votes_TX):  # type: ignore[no-untyped-def]
    """Add the votes of a pass for each unphased heterozygote.

    The vote is 1 if ALT is on the haplotype that has ALT at the previous unphased heterozygote, else -1.
    """
    open_TX, column_X2 = targets.open_TX, targets.column_X2
    last_X = np.zeros(len(column_X2), np.uint8)
    for t in range(len(open_TX)):
        for x in range(len(column_X2)):
            if open_TX[t, x]:
                allele = targets.alleles_TQ[t, column_X2[x, 0]]
                votes_TX[t, x] += 1 if allele == last_X[x] else -1
                last_X[x] = allele


@kernel()
def apply_votes(targets, free_X, votes_TX):  # type: ignore[no-untyped-def]
    """Where free_X, phase each unphased heterozygote relative to the previous one as most passes voted."""
    alleles_TQ, open_TX, column_X2 = targets.alleles_TQ, targets.open_TX, targets.column_X2
    last_X = np.zeros(len(column_X2), np.uint8)
    for t in range(len(open_TX)):
        for x in range(len(column_X2)):
            if open_TX[t, x] and free_X[x]:
                allele = last_X[x] if votes_TX[t, x] >= 0 else np.uint8(1) - last_X[x]
                alleles_TQ[t, column_X2[x, 0]] = allele
                alleles_TQ[t, column_X2[x, 1]] = np.uint8(1) - allele
                last_X[x] = allele
