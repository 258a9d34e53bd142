"""What typed calls would be thought to be without themselves: accuracy without a truth.

Each typed call is predicted from all others of its haplotype, by the model of Li and Stephens over all
haplotypes of the panel. It is no more than a stand-in for the imputed sites: it lacks the network, but has
neighbours closer than most imputed sites do.

Axes: T typed sites, Q haplotypes of targets, L lanes (haplotypes computed side by side).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm.li_stephens import LANES, MISMATCH, SPAN, jump_probabilities, span_patterns
from spinimpute.hmm.recombination_scale import rate_of_panel
from spinimpute.hmm.windows import PassWindow, windows_of
from spinimpute.panels.panel import Panel
from spinimpute.phasing.passes import HALF, pass_backward, pass_forward
from spinimpute.progress import Progress


def leave_one_out_probabilities(
    panel: Panel,
    typed_index: np.ndarray,
    alleles_TQ: np.ndarray,
    threads: int,
    progress: Progress | None = None,
    jumps_per_cM: float | None = None,
) -> np.ndarray:
    """float32 (T, Q): P(ALT) of each call by the other calls of its haplotype.

    typed_index: int64 (T,), the panel sites that are typed, increasing. alleles_TQ: int8, 0, 1, or -1
    (missing), haplotypes with their phase. jumps_per_cM: None for what the typed sites tell
    (`rate_of_panel`). Results do not depend on threads.
    """
    n_typed, n_queries = alleles_TQ.shape
    probability_TQ = np.empty((n_typed, n_queries), np.float32)
    windows = windows_of(panel, typed_index)
    rate = rate_of_panel(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    tasks = [(window, first) for window in windows for first in range(0, n_queries, LANES)]

    def run(task: tuple[PassWindow, int]) -> None:
        window, first = task
        columns = np.arange(first, min(first + LANES, n_queries))
        decided = slice(window.first_decided, window.stop_decided)
        rows = slice(window.first + decided.start, window.first + decided.stop)
        probability_LS = _probabilities(window, alleles_TQ[window.first : window.stop], columns, rate)
        probability_TQ[rows, columns] = probability_LS[: len(columns), decided].T

    with ThreadPoolExecutor(threads, "leave one out") as pool:
        for number, _ in enumerate(pool.map(run, tasks), start=1):
            if progress is not None:
                progress(number / len(tasks))
    return probability_TQ


def _probabilities(
    window: PassWindow, alleles_SQ: np.ndarray, columns: np.ndarray, jumps_per_cM: float
) -> np.ndarray:
    """float32 (L, S) of some haplotypes; the last one fills up the lanes."""
    lanes = np.concatenate([columns, np.repeat(columns[-1:], LANES - len(columns))])
    alleles_SL = alleles_SQ[:, lanes]
    query_LW = pack_rows((alleles_SL == 1).view(np.uint8))
    known_LW = pack_rows((alleles_SL >= 0).view(np.uint8))
    n, n_places = len(window.panel_NW), window.stop - window.first
    patterns = span_patterns(window.panel_NW, n_places)
    jump_S = jump_probabilities(window.cM_S, n, jumps_per_cM)
    right_INL = np.empty((len(patterns.pattern_IN), n, LANES), np.float32)
    stay_DPL, come_DPL = (np.empty((len(patterns.bits_D), SPAN, LANES), np.float32) for _ in range(2))
    mismatch = np.float32(MISMATCH)
    pass_backward(*patterns, query_LW, known_LW, jump_S, mismatch, right_INL, stay_DPL, come_DPL)
    probability_LS = np.zeros((LANES, n_places), np.float32)
    pass_forward(
        *patterns, query_LW, known_LW, np.zeros_like(query_LW), jump_S, mismatch, right_INL, stay_DPL,
        come_DPL, HALF, window.first_decided, window.stop_decided, False, np.zeros((HALF, 2), np.int64),
        True, np.zeros((HALF, n_places), np.uint8), np.ones((HALF, n_places), np.float32), probability_LS,
    )  # fmt: skip
    return probability_LS
