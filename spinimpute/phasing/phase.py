"""Phasing of targets against the panel and against each other.

Passes over all windows (`passes`) repeat: the first one starts from nothing, the next ones leave doubtful
heterozygotes out of what a decision sees on its right, ever fewer of them; the last ones vote. From pass to
pass the recombination scale changes between three multiples of the panel's: common ancestors are recent for
some haplotypes and old for others, and no single scale fits them all.

Nothing is drawn at random. Windows and groups of targets only read the result of the last pass, so that
neither their order nor the number of threads changes a result. Samples stand in the order of a hash of their
calls, so that the file's order changes nothing either: it would decide whose haplotypes are summed first, who
is phased beside whom, and whom others may copy. Samples with the same calls are phased once, and do not copy
each other.

Axes: T typed sites, S those of a window, X samples, Q haplotypes of samples, N panel haplotypes, W 64-bit
words.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm import parameters
from spinimpute.hmm.backward_values import Room, backward_values
from spinimpute.hmm.parameters import LANES
from spinimpute.hmm.patterns import PatternsWithRows, span_patterns
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.hmm.windows import PassWindow, windows_of
from spinimpute.panels.panel import Panel
from spinimpute.phasing.decisions import apply_decisions, elect, vote
from spinimpute.phasing.passes import HALF, pass_forward
from spinimpute.phasing.target_lanes import TargetLanes
from spinimpute.runtime.progress import Progress, Shares

# Chosen on samples taken out of the real panels, see benchmarks/phasing/README.md.
FACTORS = (12.0, 3.0, 0.5)  # of the panel's recombination scale, one pass after the other; the last fills in
DOUBTFUL = (
    0.99,
    0.9,
    0.6,
)  # probability below which a heterozygote is not used; more such passes bring nothing
VOTES = 3  # passes; twice as many bring nothing
MOST_OTHERS = 2_000  # haplotypes of other targets that a target may copy: without them a tenth more errors

# What groups of samples share of a window is made once for all groups of a task.
TASKS, MOST_GROUPS = (
    16,
    8,
)  # tasks of a thread in a pass at least, if there are groups enough; groups of a task

_Task = tuple[PassWindow, int, int]  # a window, the first sample, and where the samples end


@dataclass
class _Targets:
    """Calls of the samples that are phased, and of all others that may be copied.

    X counts samples to be phased, of several with the same calls the first one.

    Attributes
    ----------
    alleles_TQ : uint8 (T, Q)
        0 or 1; missing calls are filled.
    known_TQ : bool (T, Q)
        Calls that are not missing.
    open_TX : bool (T, X)
        Heterozygotes without phase.
    column_X2 : int64 (X, 2)
        The two haplotypes of each sample to be phased.
    sample_Q : int64 (Q,)
        The sample to be phased that has the calls of each haplotype; -1 of those that are not phased.
    locked_X2 : int64 (X, 2)
        A sample's first and last typed site with a known phase; T twice where there is none.
    mismatch_T : float32 (T,)
        Probability that an allele differs from the one that is copied.
    """

    alleles_TQ: np.ndarray
    known_TQ: np.ndarray
    open_TX: np.ndarray
    column_X2: np.ndarray
    sample_Q: np.ndarray
    locked_X2: np.ndarray
    mismatch_T: np.ndarray


@dataclass(frozen=True)
class _Pass:
    """The settings of a pass.

    Attributes
    ----------
    jumps_per_cM : float
        The recombination scale.
    doubtful_TX : bool (T, X)
        Heterozygotes that are missing in what a decision sees on its right.
    starting : bool
        This is the first pass.
    """

    jumps_per_cM: float
    doubtful_TX: np.ndarray
    starting: bool


class _Decided(NamedTuple):
    """What a pass decides.

    Attributes
    ----------
    way_TX : uint8 (T, X)
        How to go on at an open heterozygote, see `passes`.
    sure_TX : float32 (T, X)
        Its posterior probability.
    likely_T2X : bool (T, 2, X)
        Whether ALT is the likelier allele.
    """

    way_TX: np.ndarray
    sure_TX: np.ndarray
    likely_T2X: np.ndarray


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
    """Phase the unphased heterozygotes; what is phased already keeps its phase.

    Parameters
    ----------
    panel : Panel
        Phased haplotypes.
    typed_index : int64 (T,)
        The panel sites that are typed, increasing.
    alleles_TQ : int8 (T, Q)
        0, 1, or -1 (missing); two columns for a diploid sample, one for a haploid one.
    unphased_TX : bool (T, n_samples)
        Where a call is a heterozygote without phase.
    ploidy : integers (n_samples,)
        1 or 2.
    threads : int
        Results do not depend on it.
    progress : callable or None
        Called with the fraction that is done.
    fill : bool
        Whether to impute missing calls of diploid samples.
    jumps_per_cM : float or None
        The recombination scale; None for the one that is estimated at the typed sites.

    Returns
    -------
    int8 (T, Q)
        The calls with phase; what is missing and not filled is still -1.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213 (haplotypes). Browning et al. 2021, Am. J. Hum. Genet. 108:1880
    (deciding heterozygote by heterozygote, the confident ones first).
    """
    ploidy = ploidy.astype(np.int64)
    chosen_X = _samples_to_phase(alleles_TQ, unphased_TX, ploidy, fill)
    if not chosen_X.any():
        return alleles_TQ
    digests = _digests_of_calls(alleles_TQ, unphased_TX, ploidy)
    order = np.array(sorted(range(len(digests)), key=digests.__getitem__))
    column_Q = _columns_of_samples(ploidy, order)
    targets = _targets_of(
        panel,
        typed_index,
        np.ascontiguousarray(alleles_TQ[:, column_Q]),  # indexing gives either order
        np.ascontiguousarray(unphased_TX[:, order]),
        ploidy[order],
        chosen_X[order],
        [digests[x] for x in order],
    )
    # every other pass cuts elsewhere, so that no place is always at an edge
    shifts = 0, parameters.CORE // 2
    n_passes = 1 + len(DOUBTFUL) + VOTES
    passes = Shares(progress, [1] * n_passes)
    scale = recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    none_TX = np.zeros_like(targets.open_TX)
    votes_TX = np.zeros(none_TX.shape, np.int8)
    with ThreadPoolExecutor(threads, "phase") as pool:
        grids = list(pool.map(partial(windows_of, panel, typed_index), shifts))
        tasks = [_tasks(windows, len(targets.column_X2), threads) for windows in grids]

        def run(number: int, settings: _Pass) -> np.ndarray:
            return _run_pass(pool, tasks[number % len(tasks)], targets, settings, passes.of(number))

        sure_TX = run(0, _Pass(scale, targets.open_TX, starting=True))
        for number in range(1, n_passes):
            factor = FACTORS[(number - 1) % len(FACTORS)]
            voting = number > len(DOUBTFUL)
            doubtful_TX = none_TX if voting else targets.open_TX & (sure_TX < DOUBTFUL[number - 1])
            sure_TX = run(number, _Pass(scale * factor, doubtful_TX, starting=False))
            if voting:
                vote(targets.alleles_TQ, targets.open_TX, targets.column_X2, votes_TX)
    free_X = targets.locked_X2[:, 0] == len(typed_index)
    elect(targets.alleles_TQ, targets.open_TX, free_X, targets.column_X2, votes_TX)
    _part_alternatives(panel.position[typed_index], targets)
    _give_to_samples_with_the_same_calls(targets)
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


def _digests_of_calls(alleles_TQ: np.ndarray, unphased_TX: np.ndarray, ploidy: np.ndarray) -> list[bytes]:
    """A hash of each sample's calls; 0/1 and 1/0 are the same."""
    digests = []
    for x, first in enumerate(_first_columns(ploidy).tolist()):
        calls_T2 = np.where(unphased_TX[:, x, None], 2, alleles_TQ[:, first : first + ploidy[x]])
        digests.append(blake2b(calls_T2.astype(np.int8).tobytes(), digest_size=16).digest())
    return digests


def _first_columns(ploidy: np.ndarray) -> np.ndarray:
    return np.cumsum(ploidy) - ploidy


def _columns_of_samples(ploidy: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The haplotypes of samples that are taken in some order, int64 (Q,)."""
    first, copies = _first_columns(ploidy)[order], ploidy[order]
    return np.repeat(first - _first_columns(copies), copies) + np.arange(copies.sum())


def _targets_of(
    panel: Panel,
    typed_index: np.ndarray,
    alleles_TQ: np.ndarray,
    unphased_TX: np.ndarray,
    ploidy: np.ndarray,
    chosen_X: np.ndarray,
    digests: list[bytes],
) -> _Targets:
    """All samples in the order of their digests; chosen_X: those that are to be phased."""
    known_TQ = alleles_TQ >= 0
    common_T = (panel.frequency[typed_index] > 0.5).astype(np.uint8)
    filled_TQ = np.where(known_TQ, alleles_TQ, common_T[:, None]).astype(np.uint8)
    first_column = _first_columns(ploidy)
    new_X = chosen_X & np.array([x == 0 or digests[x] != digests[x - 1] for x in range(len(digests))])
    sample_Q = np.repeat(np.where(chosen_X, np.cumsum(new_X) - 1, -1), ploidy)
    chosen = np.flatnonzero(new_X)
    column_X2 = np.stack([first_column[chosen], first_column[chosen] + 1], axis=1)
    open_TX = np.ascontiguousarray(unphased_TX[:, chosen])  # indexing gives either order
    # 0/1 and 1/0 are the same
    filled_TQ[:, column_X2[:, 0]] &= ~open_TX
    filled_TQ[:, column_X2[:, 1]] |= open_TX
    phased_TX = (filled_TQ[:, column_X2[:, 0]] != filled_TQ[:, column_X2[:, 1]]) & ~open_TX
    phased_TX &= known_TQ[:, column_X2].all(axis=2)
    n_typed = len(typed_index)
    any_X = phased_TX.any(axis=0)
    locked_X2 = np.stack(
        [
            np.where(any_X, phased_TX.argmax(axis=0), n_typed),
            np.where(any_X, n_typed - 1 - phased_TX[::-1].argmax(axis=0), n_typed),
        ],
        axis=1,
    )
    # squared, as chosen on people left out: a heterozygote tells of two alleles
    trust_T = panel.trust[typed_index] ** 2
    mismatch = np.float32(parameters.PHASING_MISMATCH)
    mismatch_T = mismatch + (1 - trust_T) * (np.float32(0.5) - mismatch)  # exactly `mismatch` at a trust of 1
    targets = _Targets(filled_TQ, known_TQ, open_TX, column_X2, sample_Q, locked_X2, mismatch_T)
    _give_to_samples_with_the_same_calls(targets)
    return targets


def _give_to_samples_with_the_same_calls(targets: _Targets) -> None:
    given = targets.sample_Q >= 0
    given[targets.column_X2] = False
    columns = np.flatnonzero(given)  # first and second haplotypes by turns
    source_2 = targets.column_X2[targets.sample_Q[columns], np.arange(len(columns)) % 2]
    targets.alleles_TQ[:, columns] = targets.alleles_TQ[:, source_2]


def _run_pass(
    pool: ThreadPoolExecutor,
    tasks: list[_Task],
    targets: _Targets,
    settings: _Pass,
    progress: Progress | None,
) -> np.ndarray:
    """Decide everywhere, then apply the decisions to `targets`.

    Returns float32 (T, X): the posterior probability of each decision, 1 where there was none.
    """
    shape = targets.open_TX.shape
    decided = _Decided(
        np.zeros(shape, np.uint8), np.ones(shape, np.float32), np.zeros((shape[0], 2, shape[1]), bool)
    )
    for done, _ in enumerate(
        pool.map(lambda task: _decide(task, targets, settings, decided), tasks), start=1
    ):
        if progress is not None:
            progress(done / len(tasks))
    apply_decisions(
        targets.alleles_TQ, targets.known_TQ, targets.column_X2, decided.way_TX, decided.likely_T2X
    )
    _give_to_samples_with_the_same_calls(targets)
    return decided.sure_TX


def _tasks(windows: list[PassWindow], n_samples: int, threads: int) -> list[_Task]:
    """Windows with some groups of HALF samples: more than one if there are tasks enough for all threads."""
    n_groups = -(-n_samples // HALF)
    at_once = min(max(1, len(windows) * n_groups // (TASKS * threads)), MOST_GROUPS) * HALF
    starts = range(0, n_samples, at_once)
    return [(window, start, min(start + at_once, n_samples)) for window in windows for start in starts]


def _decide(task: _Task, targets: _Targets, settings: _Pass, decided: _Decided) -> None:
    """Fill `decided` where the window decides, for its samples."""
    window, first_sample, last_sample = task
    n_places = window.stop - window.first
    here = slice(window.first_decided, window.stop_decided)
    rows = slice(window.first + here.start, window.first + here.stop)
    patterns = span_patterns(window.panel_NW, n_places)
    with_rows = PatternsWithRows(patterns)
    groups = [(start, min(start + HALF, last_sample)) for start in range(first_sample, last_sample, HALF)]
    rows_XW, others = (None, []) if settings.starting else _others(window, targets, groups)
    jumps_of = cache(partial(jump_probabilities, window.cM_S, jumps_per_cM=settings.jumps_per_cM))
    lanes, room = TargetLanes(n_places), Room()
    # of each group those that are asked for; the others are never looked at
    probability_SL = np.zeros((n_places, LANES), np.float32)
    for number, (start, stop) in enumerate(groups):
        n, group = stop - start, slice(start, stop)
        lanes.fill(
            targets.alleles_TQ, targets.known_TQ, targets.open_TX, settings.doubtful_TX, targets.mismatch_T,
            targets.column_X2, window.first, start, stop,
        )  # fmt: skip
        if rows_XW is not None:
            patterns = with_rows.of(rows_XW[others[number]])
        jump_S = jumps_of(patterns.pattern_IN.shape[1])
        right = backward_values(
            patterns, lanes.seen_S2L, jump_S, window.first_decided, window.stop_decided, room
        )
        way_HS, sure_HS = np.zeros((HALF, n_places), np.uint8), np.ones((HALF, n_places), np.float32)
        locked_H2 = targets.locked_X2[np.minimum(np.arange(start, start + HALF), stop - 1)] - window.first
        pass_forward(
            *patterns, lanes.call_S2L, jump_S, *right, lanes.open_SH, lanes.wanted_S, window.first_decided,
            window.stop_decided, settings.starting, locked_H2, way_HS, sure_HS, probability_SL,
        )  # fmt: skip
        decided.way_TX[rows, group] = way_HS[:n, here].T
        decided.sure_TX[rows, group] = sure_HS[:n, here].T
        decided.likely_T2X[rows, 0, group] = probability_SL[here, :n] > 0.5
        decided.likely_T2X[rows, 1, group] = probability_SL[here, HALF : HALF + n] > 0.5
        del right  # else it would keep the room's memory while the next group takes more


def _others(
    window: PassWindow, targets: _Targets, groups: list[tuple[int, int]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Haplotypes of other targets, uint64 (X, W), see `pack_rows`, and which of them each group may copy."""
    alleles_SQ = targets.alleles_TQ[window.first : window.stop]
    others = []
    for start, stop in groups:
        of_all = np.flatnonzero((targets.sample_Q < start) | (targets.sample_Q >= stop))
        others.append(of_all[:: max(1, -(-len(of_all) // MOST_OTHERS))])
    used = np.unique(np.concatenate(others))
    if 2 * len(used) > alleles_SQ.shape[1]:  # taking columns out would cost more than packing all
        return pack_rows(alleles_SQ), others
    return pack_rows(alleles_SQ[:, used]), [np.searchsorted(used, one) for one in others]


def _part_alternatives(position_T: np.ndarray, targets: _Targets) -> None:
    """Put two ALT alleles at one position, both unphased, on different haplotypes."""
    first, second = targets.column_X2[:, 0], targets.column_X2[:, 1]
    for t in np.flatnonzero(np.diff(position_T) == 0) + 1:
        begin = int(np.searchsorted(position_T, position_T[t]))
        for earlier in range(begin, t):
            both = targets.open_TX[t] & targets.open_TX[earlier]
            targets.alleles_TQ[t, first[both]] = targets.alleles_TQ[earlier, second[both]]
            targets.alleles_TQ[t, second[both]] = targets.alleles_TQ[earlier, first[both]]
