"""Leave-one-out prediction of typed calls, to estimate accuracy without true genotypes.

Each typed call is predicted from all other calls of its haplotype, by the model of Li and Stephens over all
panel haplotypes. `quality.leave_one_out` compares the predictions with the calls. The result approximates the
accuracy at imputed sites, with two differences. The predictor's network is not used, which lowers accuracy.
Typed sites have closer typed neighbours than most imputed sites, which raises accuracy.

Axes: T typed sites, S typed sites of a window, Q target haplotypes, N panel haplotypes, L lanes (target
haplotypes that are computed together), I spans, D patterns of a span, W 64-bit words, 2 alleles of a state.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.hmm.backward_values import backward_values
from spinimpute.hmm.parameters import LANES, MISMATCH, SPAN
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.steps import (
    allele_emissions,
    apply_emissions,
    cross_span_and_sum,
    cross_span_and_sum_around,
    end_span,
    group_lanes,
    jump_probabilities,
    span_sums,
    span_values,
    start_span,
    sum_around,
    sum_by_allele,
    sum_patterns,
    transition,
)
from spinimpute.hmm.windows import PassWindow, cut_pass_windows
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
    """Predict each call from the other calls of its haplotype: P(ALT), float32 (T, Q).

    typed_index: the typed panel sites, increasing. alleles_TQ: int8, 0, 1 or -1 (missing), phased.
    jumps_per_cM: the recombination scale; None estimates it at the typed sites. Threads have no effect.
    """
    n_typed, n_queries = alleles_TQ.shape
    probability_TQ = np.empty((n_typed, n_queries), np.float32)
    windows = cut_pass_windows(panel, typed_index)
    scale = recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    tasks = [(window, first) for window in windows for first in range(0, n_queries, LANES)]

    def run(task: tuple[PassWindow, int]) -> None:
        window, first = task
        columns = slice(first, min(first + LANES, n_queries))
        alleles_SQ = alleles_TQ[window.sites.slice, columns]
        probability_SL = _predict_window(window, alleles_SQ, scale)
        probability_TQ[window.core_sites.slice, columns] = probability_SL[
            window.core.slice, : alleles_SQ.shape[1]
        ]

    with ThreadPoolExecutor(threads, "leave one out") as pool:
        for number, _ in enumerate(pool.map(run, tasks), start=1):
            if progress is not None:
                progress(number / len(tasks))
    return probability_TQ


def _predict_window(window: PassWindow, alleles_SQ: np.ndarray, jumps_per_cM: float) -> np.ndarray:
    """Return P(ALT) of up to LANES haplotypes, float32 (S, L); 0 outside of the window's core."""
    patterns = span_patterns(window.panel_NW, len(alleles_SQ))
    jump_S = jump_probabilities(window.cM_S, len(window.panel_NW), jumps_per_cM)
    emission_S2L = group_lanes(allele_emissions(alleles_SQ.T, MISMATCH))[0]
    right = backward_values(patterns, emission_S2L, jump_S, window.core)
    probability_SL = np.zeros((len(alleles_SQ), LANES), np.float32)
    _predict(patterns, emission_S2L, jump_S, right, window.core, probability_SL)
    return probability_SL


@kernel(fast=True)
def _predict(patterns, emission_S2L, jump_S, right, core, probability_SL):  # type: ignore[no-untyped-def]
    """Fill P(ALT) at each place of the interval `core`, given the calls at all other places."""
    n = patterns.pattern_IN.shape[1]
    values, sums, by_allele_2L = span_values(patterns), span_sums(patterns), np.empty((2, LANES), np.float32)
    left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
    first_span, stop_span = core.start // SPAN, (core.stop - 1) // SPAN + 1
    if first_span == 0:
        sum_around(patterns, 0, left_NL, right.after_INL[0], sums)
    else:
        sum_patterns(patterns, 0, left_NL, sums.left_DL)
    for i in range(stop_span):
        start_span(patterns, i, values)
        for place in range(i * SPAN, min(i * SPAN + SPAN, core.stop)):
            transition(patterns, place, jump_S[place], values)
            if place >= core.start:
                sum_by_allele(patterns, place, values, sums, right, by_allele_2L)
                for l in range(LANES):
                    probability_SL[place, l] = by_allele_2L[1, l] / (by_allele_2L[0, l] + by_allele_2L[1, l])
            apply_emissions(patterns, place, emission_S2L, sums.left_DL, values)
        if i + 1 < stop_span:
            end_span(patterns, i, values)
            if i + 1 < first_span:
                cross_span_and_sum(patterns, i, i + 1, values, left_NL, left_NL, sums.left_DL)
            else:
                cross_span_and_sum_around(
                    patterns, i, values, left_NL, right.after_INL[i + 1 - first_span], sums
                )
