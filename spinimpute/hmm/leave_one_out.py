"""Leave-one-out prediction of typed calls: accuracy without a truth.

Each typed call is predicted from all others of its haplotype, by the model of Li and Stephens over all
haplotypes of the panel. This is only a proxy for the accuracy at imputed sites: it lacks the network, but
typed sites have closer typed neighbours than most imputed sites.

Axes: T typed sites, S those of a window, Q haplotypes of targets, N panel haplotypes, I spans, P places of a
span, D patterns, L lanes (haplotypes computed side by side), 2 alleles of a state.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.hmm.backward_values import backward_values
from spinimpute.hmm.emissions import allele_emissions, side_by_side
from spinimpute.hmm.parameters import LANES, MISMATCH, SPAN
from spinimpute.hmm.patterns import most_patterns, span_patterns
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.steps import (
    emit,
    end_span,
    go_through,
    go_through_to_meet,
    join,
    leave,
    sum_both,
    sum_patterns,
)
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.hmm.windows import PassWindow, windows_of
from spinimpute.panels.panel import Panel
from spinimpute.runtime.kernels import kernel
from spinimpute.runtime.progress import Progress


def leave_one_out_probabilities(
    panel: Panel,
    typed_index: np.ndarray,
    alleles_TQ: np.ndarray,
    threads: int,
    progress: Progress | None = None,
    jumps_per_cM: float | None = None,
) -> np.ndarray:
    """Predict each call from the other calls of its haplotype.

    Parameters
    ----------
    panel : Panel
        Phased haplotypes.
    typed_index : int64 (T,)
        The panel sites that are typed, increasing.
    alleles_TQ : int8 (T, Q)
        0, 1, or -1 (missing), haplotypes with their phase.
    threads : int
        Results do not depend on it.
    progress : callable or None
        Called with the fraction that is done.
    jumps_per_cM : float or None
        The recombination scale; None for the one that is estimated at the typed sites.

    Returns
    -------
    float32 (T, Q)
        P(ALT).

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    n_typed, n_queries = alleles_TQ.shape
    probability_TQ = np.empty((n_typed, n_queries), np.float32)
    windows = windows_of(panel, typed_index)
    scale = recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    tasks = [(window, first) for window in windows for first in range(0, n_queries, LANES)]

    def run(task: tuple[PassWindow, int]) -> None:
        window, first = task
        columns = slice(first, min(first + LANES, n_queries))
        decided = slice(window.first_decided, window.stop_decided)
        rows = slice(window.first + decided.start, window.first + decided.stop)
        alleles_SQ = alleles_TQ[window.first : window.stop, columns]
        probability_SL = _probabilities_of_window(window, alleles_SQ, scale)
        probability_TQ[rows, columns] = probability_SL[decided, : alleles_SQ.shape[1]]

    with ThreadPoolExecutor(threads, "leave one out") as pool:
        for number, _ in enumerate(pool.map(run, tasks), start=1):
            if progress is not None:
                progress(number / len(tasks))
    return probability_TQ


def _probabilities_of_window(window: PassWindow, alleles_SQ: np.ndarray, jumps_per_cM: float) -> np.ndarray:
    """float32 (S, L) of up to LANES haplotypes, at the places that the window decides on."""
    patterns = span_patterns(window.panel_NW, len(alleles_SQ))
    jump_S = jump_probabilities(window.cM_S, len(window.panel_NW), jumps_per_cM)
    emission_S2L = side_by_side(allele_emissions(alleles_SQ.T, MISMATCH))[0]
    right = backward_values(patterns, emission_S2L, jump_S, window.first_decided, window.stop_decided)
    probability_SL = np.zeros((len(alleles_SQ), LANES), np.float32)
    _predict(
        *patterns, emission_S2L, jump_S, *right, window.first_decided, window.stop_decided, probability_SL
    )
    return probability_SL


@kernel(fast=True)
def _predict(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, emission_S2L, jump_S, behind_INL, right_stay_PDL, right_come_PDL,
    first_decided, stop_decided, probability_SL,
):  # fmt: skip
    """P(ALT) by what is left and right of the places [first_decided, stop_decided)."""
    n = pattern_IN.shape[1]
    most = most_patterns(first_I1)
    left_DL, right_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L, joined_2L = np.empty(LANES, np.float32), np.empty((2, LANES), np.float32)
    left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
    first_span, n_spans = first_decided // SPAN, (stop_decided - 1) // SPAN + 1
    if first_span == 0:
        sum_both(pattern_IN[0], left_NL, behind_INL[0], left_DL, right_DL, product_DL)
    else:
        sum_patterns(pattern_IN[0], left_NL, left_DL)
    for i in range(n_spans):
        first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
        here = slice(first, first + d)
        stay_DL[:d] = 1
        come_DL[:d] = 0
        scale_L[:] = 1
        for place in range(i * SPAN, min(i * SPAN + SPAN, stop_decided)):
            at = place - i * SPAN
            leave(count_D[here], jump_S[place], n, scale_L, stay_DL, come_DL)
            if place >= first_decided:
                join(
                    bits_D[here], count_D[here], at, stay_DL, come_DL, left_DL, right_stay_PDL[at, here],
                    right_come_PDL[at, here], right_DL, product_DL, joined_2L,
                )  # fmt: skip
                for l in range(LANES):
                    probability_SL[place, l] = joined_2L[1, l] / (joined_2L[0, l] + joined_2L[1, l])
            emit(bits_D[here], at, emission_S2L[place], left_DL, scale_L, stay_DL, come_DL)
        if i + 1 < n_spans:
            end_span(count_D[here], scale_L, stay_DL, come_DL)
            if i + 1 < first_span:
                go_through(pattern_IN[i], stay_DL, come_DL, left_NL, left_NL, pattern_IN[i + 1], left_DL)
            else:
                go_through_to_meet(
                    pattern_IN[i], stay_DL, come_DL, left_NL, pattern_IN[i + 1],
                    behind_INL[i + 1 - first_span], left_DL, right_DL, product_DL,
                )  # fmt: skip
