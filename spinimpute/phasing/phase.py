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

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm import parameters
from spinimpute.hmm.backward_values import backward_values
from spinimpute.hmm.emissions import MISSING, allele_emissions, side_by_side
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.hmm.windows import PassWindow, windows_of
from spinimpute.panels.panel import Panel
from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_BEHIND, HALF, pass_forward
from spinimpute.progress import Progress, Shares

# Chosen on samples taken out of the real panels, see benchmarks/phasing/README.md.
FACTORS = (12.0, 3.0, 0.5)  # of the panel's recombination scale, one pass after the other; the last fills in
DOUBTFUL = (
    0.99,
    0.9,
    0.6,
)  # probability below which a heterozygote is not used; more such passes bring nothing
VOTES = 3  # passes; twice as many bring nothing
MOST_OTHERS = 2_000  # haplotypes of other targets that a target may copy: without them a tenth more errors


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
    grids = [windows_of(panel, typed_index, shift) for shift in (0, parameters.CORE // 2)]
    n_passes = 1 + len(DOUBTFUL) + VOTES
    passes = Shares(progress, [1] * n_passes)
    scale = recombination_scale(panel, typed_index) if jumps_per_cM is None else jumps_per_cM
    none_TX = np.zeros_like(targets.open_TX)
    votes_TX = np.zeros(none_TX.shape, np.int8)
    with ThreadPoolExecutor(threads, "phase") as pool:

        def run(number: int, settings: _Pass) -> np.ndarray:
            return _run_pass(pool, grids[number % len(grids)], targets, settings, passes.of(number))

        sure_TX = run(0, _Pass(scale, targets.open_TX, starting=True))
        for number in range(1, n_passes):
            factor = FACTORS[(number - 1) % len(FACTORS)]
            voting = number > len(DOUBTFUL)
            doubtful_TX = none_TX if voting else targets.open_TX & (sure_TX < DOUBTFUL[number - 1])
            sure_TX = run(number, _Pass(scale * factor, doubtful_TX, starting=False))
            if voting:
                _vote(targets, votes_TX)
    _elect(targets, votes_TX)
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
    open_TX = unphased_TX[:, chosen]
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
    windows: list[PassWindow],
    targets: _Targets,
    settings: _Pass,
    progress: Progress | None,
) -> np.ndarray:
    """Decide everywhere, then apply the decisions to `targets`.

    Returns float32 (T, X): the posterior probability of each decision, 1 where there was none.
    """
    shape = targets.open_TX.shape
    way_TX, sure_TX = np.zeros(shape, np.uint8), np.ones(shape, np.float32)
    likely_T2X = np.zeros((shape[0], 2, shape[1]), bool)

    def run(task: tuple[PassWindow, np.ndarray]) -> None:
        window, chosen = task
        decided = slice(window.first_decided, window.stop_decided)
        rows = slice(window.first + decided.start, window.first + decided.stop)
        way_HS, sure_HS, probability_SL = _decide_window(window, targets, chosen, settings)
        n = len(chosen)
        way_TX[rows, chosen] = way_HS[:n, decided].T
        sure_TX[rows, chosen] = sure_HS[:n, decided].T
        likely_T2X[rows, 0, chosen] = probability_SL[decided, :n] > 0.5
        likely_T2X[rows, 1, chosen] = probability_SL[decided, HALF : HALF + n] > 0.5

    n_tasks = len(windows) * -(-shape[1] // HALF)
    for done, _ in enumerate(pool.map(run, _tasks(windows, shape[1])), start=1):
        if progress is not None:
            progress(done / n_tasks)
    _apply(targets, way_TX, likely_T2X)
    _give_to_samples_with_the_same_calls(targets)
    return sure_TX


def _tasks(windows: list[PassWindow], n_samples: int) -> Iterator[tuple[PassWindow, np.ndarray]]:
    """Windows with the numbers of up to HALF samples."""
    for window in windows:
        for start in range(0, n_samples, HALF):
            yield window, np.arange(start, min(start + HALF, n_samples))


def _decide_window(
    window: PassWindow, targets: _Targets, chosen: np.ndarray, settings: _Pass
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """way_HS, sure_HS and probability_SL of `pass_forward` for some samples."""
    places = slice(window.first, window.stop)
    lanes = np.concatenate([chosen, np.repeat(chosen[-1:], HALF - len(chosen))])  # the last fills up
    column_L = np.concatenate([targets.column_X2[lanes, 0], targets.column_X2[lanes, 1]])
    known_SL = targets.known_TQ[places, column_L]
    doubtful_SL = settings.doubtful_TX[places, np.concatenate([lanes, lanes])]
    call_SL = np.where(known_SL, targets.alleles_TQ[places, column_L], MISSING)
    open_SH = np.ascontiguousarray(targets.open_TX[places, lanes])  # indexing gives either order
    open_SH[:, len(chosen) :] = False
    wanted_S = ~known_SL.all(axis=1)
    rows_NW = window.panel_NW
    if not settings.starting:
        others = np.flatnonzero(~np.isin(targets.sample_Q, chosen))
        others = others[:: -(-len(others) // MOST_OTHERS)] if len(others) else others
        rows_NW = np.concatenate([rows_NW, pack_rows(targets.alleles_TQ[places, others])])
    patterns = span_patterns(rows_NW, len(call_SL))
    jump_S = jump_probabilities(window.cM_S, len(rows_NW), settings.jumps_per_cM)
    mismatch_S = targets.mismatch_T[places]
    seen_SL = np.where(doubtful_SL, MISSING, call_SL)
    right = backward_values(patterns, _emissions(seen_SL, mismatch_S), jump_S)
    way_HS, sure_HS = np.zeros(open_SH.T.shape, np.uint8), np.ones(open_SH.T.shape, np.float32)
    probability_SL = np.zeros(call_SL.shape, np.float32)
    pass_forward(
        *patterns, _emissions(call_SL, mismatch_S), jump_S, *right, open_SH, wanted_S, window.first_decided,
        window.stop_decided, settings.starting, targets.locked_X2[lanes] - window.first, way_HS, sure_HS,
        probability_SL,
    )  # fmt: skip
    return way_HS, sure_HS, probability_SL


def _emissions(call_SL: np.ndarray, mismatch_S: np.ndarray) -> np.ndarray:
    return side_by_side(allele_emissions(call_SL.T, mismatch_S))[0]


def _apply(targets: _Targets, way_TX: np.ndarray, likely_T2X: np.ndarray) -> None:
    """Exchange alleles as decided, and fill missing calls anew. likely_T2X: bool, whether ALT is likelier."""
    first, second = targets.column_X2[:, 0], targets.column_X2[:, 1]
    alleles_T2X = np.stack([targets.alleles_TQ[:, first], targets.alleles_TQ[:, second]], axis=1)
    known_T2X = np.stack([targets.known_TQ[:, first], targets.known_TQ[:, second]], axis=1)
    exchanged_TX = (way_TX & EXCHANGED).astype(bool)
    alleles_T2X = np.where(exchanged_TX[:, None], alleles_T2X[:, ::-1], alleles_T2X)
    alleles_T2X = np.where(known_T2X, alleles_T2X, likely_T2X)
    behind_TX = np.zeros_like(exchanged_TX)
    behind_TX[1:] = np.logical_xor.accumulate((way_TX & EXCHANGED_BEHIND).astype(bool), axis=0)[:-1]
    alleles_T2X = np.where(behind_TX[:, None], alleles_T2X[:, ::-1], alleles_T2X)
    targets.alleles_TQ[:, first], targets.alleles_TQ[:, second] = alleles_T2X[:, 0], alleles_T2X[:, 1]


def _vote(targets: _Targets, votes_TX: np.ndarray) -> None:
    """Vote for or against a heterozygote having its ALT on the same haplotype as the one before."""
    last_X = np.zeros(votes_TX.shape[1], np.uint8)
    for t, open_X in enumerate(targets.open_TX):
        allele_X = targets.alleles_TQ[t, targets.column_X2[:, 0]]
        votes_TX[t] += np.where(open_X, np.where(allele_X == last_X, 1, -1), 0).astype(np.int8)
        last_X = np.where(open_X, allele_X, last_X)


def _elect(targets: _Targets, votes_TX: np.ndarray) -> None:
    """Take the phase with most votes; samples with some known phase keep that of the last pass."""
    free_X = targets.locked_X2[:, 0] == len(votes_TX)
    last_X = np.zeros(votes_TX.shape[1], np.uint8)
    for t, open_X in enumerate(targets.open_TX):
        chosen = np.flatnonzero(open_X & free_X)
        allele = last_X[chosen] ^ (votes_TX[t, chosen] < 0)
        targets.alleles_TQ[t, targets.column_X2[chosen, 0]] = allele
        targets.alleles_TQ[t, targets.column_X2[chosen, 1]] = 1 - allele
        last_X[chosen] = allele


def _part_alternatives(position_T: np.ndarray, targets: _Targets) -> None:
    """Put two ALT alleles at one position, both unphased, on different haplotypes."""
    first, second = targets.column_X2[:, 0], targets.column_X2[:, 1]
    for t in np.flatnonzero(np.diff(position_T) == 0) + 1:
        begin = int(np.searchsorted(position_T, position_T[t]))
        for earlier in range(begin, t):
            both = targets.open_TX[t] & targets.open_TX[earlier]
            targets.alleles_TQ[t, first[both]] = targets.alleles_TQ[earlier, second[both]]
            targets.alleles_TQ[t, second[both]] = targets.alleles_TQ[earlier, first[both]]
