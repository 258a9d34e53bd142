"""Tuning of a panel's genetic map to the panel itself and to the typed sites of an array.

A published map gives the recombination rates of some population. Imputation needs to know how often the
haplotypes of this panel switch to another best match between two typed sites. Each of many haplotypes is held
out and copied from all others, by the model of Li and Stephens (2003, Genetics 165:2213). An
expectation-maximization algorithm counts the expected switches in each gap, and sets the length of the gap so
that the model predicts this number.

Axes: T typed sites, S typed sites of a window, N panel haplotypes, X samples, 2 alleles of a state. Widths,
probabilities and switches at index t belong to the gap to the left of typed site t.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.genotypes.bit_rows import unpack_rows
from spinimpute.hmm import parameters
from spinimpute.hmm.maps.expected_switches import expected_switches
from spinimpute.hmm.parameters import MAX_JUMP_PROBABILITY, MIN_HAPLOTYPES, MIN_SITES
from spinimpute.hmm.recombination_scale import content_hash, recombination_scale
from spinimpute.hmm.steps import jump_probabilities, pad_to_lanes
from spinimpute.hmm.windows import PassWindow, PhasedSites, cut_pass_windows
from spinimpute.runtime.progress import Progress

BATCH_QUERIES = 20  # queries of one task


def can_tune(panel: PhasedSites, typed_index: np.ndarray) -> bool:
    """Return whether there are enough typed sites and haplotypes to tune the map."""
    return len(typed_index) >= MIN_SITES and panel.n_haplotypes >= MIN_HAPLOTYPES


def tuned_map(
    panel: PhasedSites, typed_index: np.ndarray, threads: int, progress: Progress | None = None
) -> np.ndarray:
    """Return tuned genetic positions of all panel sites, float64, in cM.

    With too few typed sites or haplotypes (`can_tune`) this is the panel's map. The result depends neither on
    threads nor on the order of the panel's haplotypes.
    """
    if not can_tune(panel, typed_index):
        return panel.cM
    typed_cM_T = panel.cM[typed_index]
    scale = recombination_scale(panel, typed_index)
    windows = cut_pass_windows(panel, typed_index)
    n = min(panel.n_haplotypes, parameters.MAX_HAPLOTYPES)
    start_T = np.diff(typed_cM_T, prepend=typed_cM_T[:1])
    # Each gap gets a minimum length, because a map with widely spaced points may give 0 for some gaps.
    bp_T = np.diff(panel.position[typed_index], prepend=panel.position[typed_index[0]])
    start_T = np.maximum(start_T, parameters.MIN_MAP_RATE * bp_T * start_T.sum() / max(1, bp_T.sum()))
    map_probability_T = -np.expm1(-start_T * scale / n)
    width_T = start_T
    iterations, prior = parameters.TUNING_ITERATIONS, parameters.PRIOR_SWITCHES
    with ThreadPoolExecutor(threads, "tune") as pool:
        for iteration in range(iterations):
            switches_T, queries_T = np.zeros(len(typed_index)), np.zeros(len(typed_index))
            for number, window in enumerate(windows):
                rows, width_S = window.core_sites.slice, width_T[window.sites.slice]
                switches_T[rows], queries_T[rows] = _count_switches(window, width_S, scale, n, pool)
                if progress is not None:
                    progress((iteration + (number + 1) / len(windows)) / iterations)
            ratio_T = (switches_T + prior) / (queries_T * map_probability_T + prior)
            probability_T = (map_probability_T * ratio_T).clip(max=MAX_JUMP_PROBABILITY)
            # Where every query switches anyway, the data say nothing about the length of the gap.
            width_T = np.where(
                map_probability_T < MAX_JUMP_PROBABILITY, -np.log1p(-probability_T) * n / scale, start_T
            )
            width_T[0] = 0
    return _interpolate(panel.cM, panel.position, typed_index, width_T)


def _interpolate(
    cM: np.ndarray, position: np.ndarray, typed_index: np.ndarray, width_T: np.ndarray
) -> np.ndarray:
    """Return genetic positions of all sites from the tuned lengths (width_T) between typed sites.

    A site divides the distance between its two typed neighbours in the same proportion as in the old map. If
    the old map gives both neighbours the same genetic position, base pairs are used instead. Sites before the
    first or after the last typed site are shifted with it.
    """
    tuned_T = cM[typed_index[0]] + np.cumsum(width_T)
    gap = np.searchsorted(typed_index, np.arange(len(cM)), side="right")
    inside = (gap > 0) & (gap < len(typed_index))
    left, right = typed_index[(gap - 1).clip(0)], typed_index[gap.clip(max=len(typed_index) - 1)]
    share = np.zeros(len(cM))
    for along in (position.astype(float), cM):
        length = along[right] - along[left]
        np.divide(along - along[left], length, out=share, where=inside & (length > 0))
    edge = np.where(gap > 0, cM - cM[typed_index[-1]], cM - cM[typed_index[0]])
    before = (gap - 1).clip(0)
    after = gap.clip(max=len(typed_index) - 1)
    tuned = tuned_T[before] + np.where(inside, share * (tuned_T[after] - tuned_T[before]), edge)
    return np.maximum.accumulate(tuned)  # rounding may have put neighbours into the wrong order


def _count_switches(
    window: PassWindow, width_S: np.ndarray, jumps_per_cM: float, n: int, pool: ThreadPoolExecutor
) -> tuple[np.ndarray, int]:
    """Return the expected switches before each place of the window's core, summed over queries.

    Also returns the number of queries.
    """
    alleles_NS = unpack_rows(window.panel_NW, window.sites.n_sites)
    order_N = fair_order([alleles_NS.T])[:n]
    alleles_SN = pad_to_lanes(alleles_NS[order_N].T)
    jump_S = jump_probabilities(np.cumsum(width_S), n, jumps_per_cM)

    def count(queries: range) -> np.ndarray:
        return expected_switches(alleles_SN, n, queries, jump_S, window.core.start)

    n_queries = min(n, parameters.TUNING_QUERIES)
    batches = (range(q, min(q + BATCH_QUERIES, n_queries)) for q in range(0, n_queries, BATCH_QUERIES))
    total_S = np.zeros(len(width_S))
    for switches_QS in pool.map(count, batches):
        for switches_S in switches_QS:  # one after another: rounding does not depend on the batches
            total_S += switches_S
    return total_S[window.core.slice], n_queries


def fair_order(alleles: Iterable[np.ndarray]) -> np.ndarray:
    """Return an order of haplotypes, int64 (N,), whose first n haplotypes are a fair sample for each n.

    The result does not depend on the order in the file. Haplotypes are sorted by a hash of their alleles.
    Equal haplotypes are numbered, and the hash includes the number. alleles: uint8 (S, N), a few sites at a
    time.
    """
    hash_N: np.ndarray | None = None
    for alleles_SN in alleles:
        batch_N = content_hash(alleles_SN)
        hash_N = batch_N if hash_N is None else _mix_bits(hash_N) + batch_N
    assert hash_N is not None, "there are sites"
    return _order_by_hash(hash_N)


def fair_samples(alleles_SN: np.ndarray, sample_N: np.ndarray) -> np.ndarray:
    """Return an order of samples, int64 (X,), whose first n samples are a fair sample for each n.

    The result depends on the order in the file only among samples with equal haplotypes. sample_N:
    int64, the sample of each haplotype.
    """
    hash_X = np.zeros(int(sample_N.max()) + 1, np.uint64)
    np.add.at(hash_X, sample_N, _mix_bits(content_hash(alleles_SN)))
    return _order_by_hash(hash_X)


def _order_by_hash(hash_N: np.ndarray) -> np.ndarray:
    """Return an order by hashes, int64 (N,), in which haplotypes with equal hashes are not adjacent."""
    order_N = np.argsort(hash_N, kind="stable")
    sorted_N = hash_N[order_N]
    number_N = (np.arange(len(order_N)) - np.searchsorted(sorted_N, sorted_N)).astype(np.uint64)
    return order_N[np.argsort(_mix_bits(sorted_N + _mix_bits(number_N)), kind="stable")]


def _mix_bits(key_N: np.ndarray) -> np.ndarray:
    """Mix the bits of uint64 keys by the finalizer of SplitMix64 (Steele et al. 2014)."""
    key_N = key_N + np.uint64(0x9E3779B97F4A7C15)
    key_N = (key_N ^ (key_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key_N = (key_N ^ (key_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = key_N ^ (key_N >> np.uint64(31))
    return mixed
