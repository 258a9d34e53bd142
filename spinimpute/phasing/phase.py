"""Phasing of targets against the panel and against each other.

The pipeline calls `phase_haplotypes` before it imputes unphased genotypes.

A pass (`passes`) goes over all windows and decides on each unphased heterozygote. Passes are repeated. The
first one starts without any phase. In the next few passes, heterozygotes whose last decision was doubtful
count as missing in the backward values; their number decreases from pass to pass. The last passes vote: the
final phase of two neighbouring heterozygotes is the one that most of these passes chose. The recombination
scale alternates between three multiples of the panel's scale, because some common ancestors are recent and
others old.

The result is reproducible. Nothing is random. Each pass reads only the result of the previous pass, so the
order of windows and the number of threads have no effect. Samples are sorted by a hash of their calls, so
their order in the file has no effect either; without this it would decide the order of sums and which
haplotypes of other samples may be copied. Samples with equal calls are phased once, and do not copy each
other.

Axes: T typed sites, S typed sites of a window, X samples, Q haplotypes of samples, W 64-bit words.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.backward_values import Workspace, backward_values
from spinimpute.hmm.patterns import PatternsWithRows, span_patterns
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.steps import jump_probabilities
from spinimpute.hmm.windows import PassWindow, cut_pass_windows
from spinimpute.panels.panel import Panel
from spinimpute.phasing.passes import HALF, LaneDecisions, pass_forward
from spinimpute.phasing.targets import (
    Decisions,
    TargetLanes,
    Targets,
    apply_decisions,
    apply_votes,
    fill_lanes,
    vote,
)
from spinimpute.runtime.progress import Progress, split_progress

# These values were chosen on samples held out of the real panels, see benchmarks/phasing/README.md.
# Multiples of the panel's recombination scale, used in turn. The last pass uses the last one, and imputes the
# missing calls.
FACTORS = (12.0, 3.0, 0.5)
# Posterior probability below which a decision is doubtful, for each pass between the first and the votes.
# More passes gain nothing.
DOUBTFUL = (0.99, 0.9, 0.6)
VOTES = 3  # number of passes that vote; twice as many gain nothing
# Haplotypes of other targets that a target may copy. Without them there are a tenth more switch errors.
MAX_OTHER_HAPLOTYPES = 2_000

# A task is a window and up to MAX_GROUPS groups of HALF samples, which share the panel's patterns. A pass has
# at least TASKS tasks per thread, if there are enough groups.
TASKS, MAX_GROUPS = 16, 8

_Task = tuple[PassWindow, Interval]  # a window and an interval of samples


@dataclass(frozen=True)
class _Pass:
    """The settings of a pass."""

    jumps_per_cM: float  # the recombination scale
    doubtful_TX: np.ndarray  # bool, heterozygotes of doubtful phase: missing in the backward values
    is_first: bool


def phase_haplotypes(
    panel: Panel,
    typed_index: np.ndarray,
    alleles_TQ: np.ndarray,
    unphased_TX: np.ndarray,
    ploidy: np.ndarray,
    threads: int,
    progress: Progress | None = None,
    *,
    fill: bool = False,
    jumps_per_cM: float | None = None,
) -> np.ndarray:
    """Phase the unphased heterozygotes and return all calls, int8 (T, Q). Known phase is kept.

    typed_index: the typed panel sites, increasing. alleles_TQ: int8, 0, 1 or -1 (missing), with two columns
    for a diploid sample and one for a haploid sample. unphased_TX: bool. ploidy: 1 or 2 for each sample.
    fill: impute missing calls of diploid samples; otherwise they stay -1. jumps_per_cM: the recombination
    scale; None estimates it at the typed sites. The result does not depend on threads.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213 (haplotypes). Browning et al. 2021, Am. J. Hum. Genet. 108:1880
    (confident heterozygotes are decided first).
    """
    ploidy = ploidy.astype(np.int64)
    chosen_X = _samples_to_phase(alleles_TQ, unphased_TX, ploidy, fill)
    if not chosen_X.any():
        return alleles_TQ
    digests = _hash_calls(alleles_TQ, unphased_TX, ploidy)
    order = np.array(sorted(range(len(digests)), key=digests.__getitem__))
    column_Q = _columns_of_samples(ploidy, order)
    targets = _prepare_targets(
        panel,
        typed_index,
        np.ascontiguousarray(alleles_TQ[:, column_Q]),  # fancy indexing may return Fortran order
        np.ascontiguousarray(unphased_TX[:, order]),
        ploidy[order],
        chosen_X[order],
        [digests[x] for x in order],
    )
    # Two sets of windows alternate, so that no place is at the edge of a window in every pass.
    shifts = 0, parameters.CORE // 2
    n_passes = 1 + len(DOUBTFUL) + VOTES
    passes = split_progress(progress, [1] * n_passes)
    scale = recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    no_doubts_TX = np.zeros_like(targets.open_TX)
    votes_TX = np.zeros(no_doubts_TX.shape, np.int8)
    with ThreadPoolExecutor(threads, "phase") as pool:
        grids = list(pool.map(partial(cut_pass_windows, panel, typed_index), shifts))
        tasks = [_cut_tasks(windows, len(targets.column_X2), threads) for windows in grids]

        def run(number: int, settings: _Pass) -> np.ndarray:
            return _run_pass(pool, tasks[number % len(tasks)], targets, settings, passes[number])

        posterior_TX = run(0, _Pass(scale, targets.open_TX, is_first=True))
        for number in range(1, n_passes):
            factor = FACTORS[(number - 1) % len(FACTORS)]
            voting = number > len(DOUBTFUL)
            doubtful_TX = no_doubts_TX if voting else targets.open_TX & (posterior_TX < DOUBTFUL[number - 1])
            posterior_TX = run(number, _Pass(scale * factor, doubtful_TX, is_first=False))
            if voting:
                vote(targets, votes_TX)
    apply_votes(targets, targets.locked_X2[:, 0] == len(typed_index), votes_TX)
    _separate_alternatives(panel.position[typed_index], targets)
    _copy_to_samples_with_the_same_calls(targets)
    keep_TQ = targets.known_TQ.copy()
    if fill:
        keep_TQ[:, targets.sample_Q >= 0] = True
    phased_TQ = np.empty_like(alleles_TQ)
    phased_TQ[:, column_Q] = np.where(keep_TQ, targets.alleles_TQ, -1)
    return phased_TQ


def _samples_to_phase(
    alleles_TQ: np.ndarray, unphased_TX: np.ndarray, ploidy: np.ndarray, fill: bool
) -> np.ndarray:
    open_X = np.asarray(unphased_TX.any(axis=0))
    if not fill:
        return open_X
    complete_X = np.logical_and.reduceat((alleles_TQ >= 0).all(axis=0), _first_columns(ploidy))
    return open_X | (~complete_X & (ploidy == 2))


def _hash_calls(alleles_TQ: np.ndarray, unphased_TX: np.ndarray, ploidy: np.ndarray) -> list[bytes]:
    """Hash each sample's calls. Unphased 0/1 and 1/0 have the same hash."""
    digests = []
    for x, first in enumerate(_first_columns(ploidy).tolist()):
        calls_T2 = np.where(unphased_TX[:, x, None], 2, alleles_TQ[:, first : first + ploidy[x]])
        digests.append(blake2b(calls_T2.astype(np.int8).tobytes(), digest_size=16).digest())
    return digests


def _first_columns(ploidy: np.ndarray) -> np.ndarray:
    return np.cumsum(ploidy) - ploidy


def _columns_of_samples(ploidy: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the columns of all haplotypes if the samples are put into this order, int64 (Q,)."""
    first, copies = _first_columns(ploidy)[order], ploidy[order]
    return np.repeat(first - _first_columns(copies), copies) + np.arange(copies.sum())


def _prepare_targets(
    panel: Panel,
    typed_index: np.ndarray,
    alleles_TQ: np.ndarray,
    unphased_TX: np.ndarray,
    ploidy: np.ndarray,
    chosen_X: np.ndarray,
    digests: list[bytes],
) -> Targets:
    """Prepare `Targets` from all samples, which are in the order of their digests.

    chosen_X: bool, the samples to phase.
    """
    known_TQ = alleles_TQ >= 0
    common_T = (panel.frequency[typed_index] > 0.5).astype(np.uint8)
    filled_TQ = np.where(known_TQ, alleles_TQ, common_T[:, None]).astype(np.uint8)
    first_column = _first_columns(ploidy)
    new_X = chosen_X & np.array([x == 0 or digests[x] != digests[x - 1] for x in range(len(digests))])
    sample_Q = np.repeat(np.where(chosen_X, np.cumsum(new_X) - 1, -1), ploidy)
    chosen = np.flatnonzero(new_X)
    column_X2 = np.stack([first_column[chosen], first_column[chosen] + 1], axis=1)
    open_TX = np.ascontiguousarray(unphased_TX[:, chosen])  # fancy indexing may return Fortran order
    # An unphased heterozygote starts with ALT on the second haplotype, whether it was 0/1 or 1/0.
    filled_TQ[:, column_X2[:, 0]] &= ~open_TX
    filled_TQ[:, column_X2[:, 1]] |= open_TX
    phased_TX = (filled_TQ[:, column_X2[:, 0]] != filled_TQ[:, column_X2[:, 1]]) & ~open_TX
    phased_TX &= known_TQ[:, column_X2].all(axis=2)
    first_X, last_X = phased_TX.argmax(axis=0), len(typed_index) - 1 - phased_TX[::-1].argmax(axis=0)
    locked_X2 = np.stack([first_X, last_X], axis=1)
    locked_X2[~phased_TX.any(axis=0)] = len(typed_index)
    # The square is best on held-out samples: the decision at a heterozygote depends on two alleles.
    trust_T = panel.trust[typed_index] ** 2
    mismatch = np.float32(parameters.PHASING_MISMATCH)
    mismatch_T = mismatch + (1 - trust_T) * (np.float32(0.5) - mismatch)  # exactly `mismatch` at a trust of 1
    targets = Targets(filled_TQ, known_TQ, open_TX, column_X2, sample_Q, locked_X2, mismatch_T)
    _copy_to_samples_with_the_same_calls(targets)
    return targets


def _copy_to_samples_with_the_same_calls(targets: Targets) -> None:
    copied_Q = targets.sample_Q >= 0
    copied_Q[targets.column_X2] = False
    columns = np.flatnonzero(copied_Q)  # first and second haplotypes alternate
    source_2 = targets.column_X2[targets.sample_Q[columns], np.arange(len(columns)) % 2]
    targets.alleles_TQ[:, columns] = targets.alleles_TQ[:, source_2]


def _run_pass(
    pool: ThreadPoolExecutor, tasks: list[_Task], targets: Targets, settings: _Pass, progress: Progress | None
) -> np.ndarray:
    """Run a pass: decide in all windows, apply the decisions, and return their posteriors, float32 (T, X)."""
    n_typed, n_samples = targets.open_TX.shape
    decisions = Decisions(
        np.zeros((n_typed, n_samples), np.uint8),
        np.ones((n_typed, n_samples), np.float32),
        np.zeros((n_typed, 2, n_samples), bool),
    )
    decided = pool.map(lambda task: _decide(task, targets, settings, decisions), tasks)
    for done, _ in enumerate(decided, start=1):
        if progress is not None:
            progress(done / len(tasks))
    apply_decisions(targets, decisions)
    _copy_to_samples_with_the_same_calls(targets)
    return decisions.posterior_TX


def _cut_tasks(windows: list[PassWindow], n_samples: int, threads: int) -> list[_Task]:
    n_groups = -(-n_samples // HALF)
    n_per_task = min(max(1, len(windows) * n_groups // (TASKS * threads)), MAX_GROUPS) * HALF
    return [(window, samples) for window in windows for samples in _cut(Interval(0, n_samples), n_per_task)]


def _cut(samples: Interval, length: int) -> list[Interval]:
    starts = range(samples.start, samples.stop, length)
    return [Interval(start, min(start + length, samples.stop)) for start in starts]


def _decide(task: _Task, targets: Targets, settings: _Pass, decisions: Decisions) -> None:
    """Fill `Decisions` in the core of a task's window, for the task's samples."""
    window, samples = task
    n_places, core, rows = window.sites.n_sites, window.core.slice, window.core_sites.slice
    patterns = span_patterns(window.panel_NW, n_places)
    with_rows = PatternsWithRows(patterns)
    groups = _cut(samples, HALF)
    rows_XW, rows_of_groups = (None, []) if settings.is_first else _copied_targets(window, targets, groups)
    jumps_of = cache(partial(jump_probabilities, window.cM_S, jumps_per_cM=settings.jumps_per_cM))
    lanes, workspace = TargetLanes.allocate(n_places), Workspace()
    for number, group in enumerate(groups):
        fill_lanes(targets, settings.doubtful_TX, window.sites.start, group, lanes)
        if rows_XW is not None:
            patterns = with_rows.add(rows_XW[rows_of_groups[number]])
        jump_S = jumps_of(patterns.pattern_IN.shape[1])
        right = backward_values(patterns, lanes.confident_S2L, jump_S, window.core, workspace)
        sample_H = np.arange(group.start, group.start + HALF).clip(max=group.stop - 1)
        locked_H2 = targets.locked_X2[sample_H] - window.sites.start
        lane_decisions, n = LaneDecisions.allocate(n_places), group.stop - group.start
        pass_forward(
            patterns, lanes, jump_S, right, window.core, locked_H2, settings.is_first, lane_decisions
        )
        decisions.decision_TX[rows, group.slice] = lane_decisions.decision_SH[core, :n]
        decisions.posterior_TX[rows, group.slice] = lane_decisions.posterior_SH[core, :n]
        decisions.likely_T2X[rows, 0, group.slice] = lane_decisions.probability_SL[core, :n] > 0.5
        decisions.likely_T2X[rows, 1, group.slice] = (
            lane_decisions.probability_SL[core, HALF : HALF + n] > 0.5
        )
        del right  # frees the workspace's memory before the next group allocates more


def _copied_targets(
    window: PassWindow, targets: Targets, groups: list[Interval]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return haplotypes of targets as rows (`pack_rows`), and for each group the rows that it may copy."""
    alleles_SQ = targets.alleles_TQ[window.sites.slice]
    rows_of_groups = []
    for start, stop in groups:
        copied = np.flatnonzero((targets.sample_Q < start) | (targets.sample_Q >= stop))
        rows_of_groups.append(copied[:: max(1, -(-len(copied) // MAX_OTHER_HAPLOTYPES))])
    used = np.unique(np.concatenate(rows_of_groups))
    if 2 * len(used) > alleles_SQ.shape[1]:  # selecting columns would take longer than packing all
        return pack_rows(alleles_SQ), rows_of_groups
    return pack_rows(alleles_SQ[:, used]), [np.searchsorted(used, copied) for copied in rows_of_groups]


def _separate_alternatives(position_T: np.ndarray, targets: Targets) -> None:
    """Put the ALT alleles of two unphased heterozygotes at the same position on different haplotypes.

    Such sites come from a multi-allelic record, and a haplotype has only one of its alleles.
    """
    first, second = targets.column_X2[:, 0], targets.column_X2[:, 1]
    for t in np.flatnonzero(np.diff(position_T) == 0) + 1:
        begin = int(np.searchsorted(position_T, position_T[t]))
        for earlier in range(begin, t):
            both_open_X = targets.open_TX[t] & targets.open_TX[earlier]
            targets.alleles_TQ[t, first[both_open_X]] = targets.alleles_TQ[earlier, second[both_open_X]]
            targets.alleles_TQ[t, second[both_open_X]] = targets.alleles_TQ[earlier, first[both_open_X]]
