"""A panel's genetic map, tuned to the panel itself and to an array.

A published map says where chromosomes recombine in some population; what imputation needs is where this
panel's haplotypes change whom they copy, as seen from the typed sites. By the model of Li and Stephens
(2003) each of many haplotypes is taken out and copied from all others; by expectation-maximization the
length between two typed sites becomes the one that explains the changes found there. Nothing else of the
panel changes, so that whatever reads it is tuned.

Axes: T typed sites, S typed sites of a window, N panel haplotypes.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from spinimpute.devices import default_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.bit_rows import unpack_rows
from spinimpute.hmm.li_stephens import LANES, MISMATCH, jump_probabilities
from spinimpute.hmm.recombination_scale import LEAST_SITES, content_hash, rate_of_panel
from spinimpute.hmm.windows import PassWindow, windows_of
from spinimpute.kernels import kernel
from spinimpute.output_files import check_output, written_whole
from spinimpute.panels.panel import Panel
from spinimpute.panels.parts import join_panels, open_parts
from spinimpute.panels.writer import package_version, write_with_map
from spinimpute.progress import Progress
from spinimpute.targets.array_sites import NoSiteOfPanel, read_array

TUNED = "map tuned"  # in the provenance
LEAST_HAPLOTYPES = 4
ITERATIONS = 4
QUERIES = 1_000  # haplotypes taken out, one at a time
MOST_HAPLOTYPES = 20_000  # that they copy
PRIOR = 1.0  # changes as the map has them, added to those found between two typed sites
MOST_PROBABILITY = 0.99
LEAST_RATE = 0.02  # of the mean rate between first and last typed site


def tune_panel(
    path: str | Path,
    array: str | Path,
    out: str | Path,
    *,
    threads: int | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> None:
    """Write the panel file `path` to `out` with its genetic map tuned to the sites of an array.

    array: see `read_array`. Parts of chromosome X in which the array has too few sites keep their map.
    Raises InputError if the panel or array cannot be read, the array has fewer than LEAST_SITES sites of the
    panel, or `out` exists without `force`.
    """
    out = check_output(out, force, [path, array])
    threads = default_threads() if threads is None else threads
    with written_whole(out) as partial, open_parts(path) as panels:
        made: list[Path] = []
        typed_P = [_typed(array, panel, alone=len(panels) == 1) for panel in panels]
        found = max(map(len, typed_P))
        if max(panel.n_haplotypes for panel in panels) < LEAST_HAPLOTYPES:
            raise InputError(
                f"panel {path}: it has {panels[0].n_haplotypes} haplotypes, at least {LEAST_HAPLOTYPES} are "
                "needed to tune a map"
            )
        if found < LEAST_SITES:
            raise InputError(
                f"array {array}: {found} of its sites are in the panel {path}, at least {LEAST_SITES} are "
                "needed to tune a map"
            )
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            for number, (panel, typed_index) in enumerate(zip(panels, typed_P, strict=True)):
                if TUNED in panel.provenance:
                    raise InputError(
                        f"panel {path}: its map is tuned already; tune the panel that it was made from"
                    )

                def shown(share: float, number: int = number) -> None:
                    if progress is not None:
                        progress((number + share) / len(panels))

                cM = tuned_map(panel, typed_index, threads, shown)
                tuned = {
                    "array": Path(array).name,
                    "sites": len(typed_index),
                    "spinimpute": package_version(),
                    "command": command,
                }
                made.append(Path(folder) / str(number))
                write_with_map(panel, made[-1], cM, {TUNED: tuned} if _enough(panel, typed_index) else {})
            if len(made) == 1:
                os.replace(made[0], partial)
            else:
                join_panels(made, partial)


def _enough(panel: Panel, typed_index: np.ndarray) -> bool:
    return len(typed_index) >= LEAST_SITES and panel.n_haplotypes >= LEAST_HAPLOTYPES


def _typed(array: str | Path, panel: Panel, alone: bool) -> np.ndarray:
    try:
        return read_array(array, panel.sites, panel.frequency).panel_index
    except NoSiteOfPanel:
        if alone:
            raise
        return np.empty(0, np.int64)  # of one part of several


def tuned_map(
    panel: Panel, typed_index: np.ndarray, threads: int, progress: Progress | None = None
) -> np.ndarray:
    """float64 (n_sites,): genetic positions (cM) of the panel's sites by its own haplotypes.

    typed_index: int64 (T,), the panel sites that are typed, increasing; with fewer than LEAST_SITES the map
    stays as it is. Does not depend on threads, nor on the order of the panel's haplotypes.
    """
    if not _enough(panel, typed_index):
        return panel.cM
    typed_cM_T = panel.cM[typed_index]
    rate = rate_of_panel(panel, typed_index)
    windows = windows_of(panel, typed_index)
    n = min(panel.n_haplotypes, MOST_HAPLOTYPES)
    start_T = np.diff(typed_cM_T, prepend=typed_cM_T[:1])
    # a map says nothing where its own sites are too far apart: no gap is quite without length
    bp_T = np.diff(panel.position[typed_index], prepend=panel.position[typed_index[0]])
    start_T = np.maximum(start_T, LEAST_RATE * bp_T * start_T.sum() / max(1, bp_T.sum()))
    map_probability_T = -np.expm1(-start_T * rate / n)
    width_T = start_T
    with ThreadPoolExecutor(threads, "tune") as pool:
        for iteration in range(ITERATIONS):
            changes_T, queries_T = np.zeros(len(typed_index)), np.zeros(len(typed_index))
            for number, window in enumerate(windows):
                rows = slice(window.first + window.first_decided, window.first + window.stop_decided)
                width_S = width_T[window.first : window.stop]
                changes_T[rows], queries_T[rows] = _changes(window, width_S, rate, n, pool)
                if progress is not None:
                    progress((iteration + (number + 1) / len(windows)) / ITERATIONS)
            more_T = (changes_T + PRIOR) / (queries_T * map_probability_T + PRIOR)
            probability_T = (map_probability_T * more_T).clip(max=MOST_PROBABILITY)
            # where all haplotypes are left anyway, nothing can be learned
            width_T = np.where(
                map_probability_T < MOST_PROBABILITY, -np.log1p(-probability_T) * n / rate, start_T
            )
            width_T[0] = 0
    return _between(panel.cM, panel.position, typed_index, width_T)


def _between(
    cM: np.ndarray, position: np.ndarray, typed_index: np.ndarray, width_T: np.ndarray
) -> np.ndarray:
    """All sites: as far between the typed ones around them as by the map, or by position where it has both
    at one place; shifted before the first and after the last."""
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
    return np.maximum.accumulate(tuned)  # rounding may have put one before its neighbour


def _changes(
    window: PassWindow, width_S: np.ndarray, rate: float, n: int, pool: ThreadPoolExecutor
) -> tuple[np.ndarray, int]:
    """How often the haplotypes taken out are expected to change whom they copy before each decided place,
    and how many were taken out."""
    alleles_NS = unpack_rows(window.panel_NW, window.stop - window.first)
    order_N = _fair_order(alleles_NS.T)[:n]
    alleles_SN = np.zeros((alleles_NS.shape[1], -(-n // LANES) * LANES), np.uint8)
    alleles_SN[:, :n] = alleles_NS[order_N].T
    jump_S = jump_probabilities(np.cumsum(width_S), n, rate)

    def of_query(query: int) -> np.ndarray:
        share_N = np.zeros(alleles_SN.shape[1], np.float32)
        share_N[:n] = 1 / (n - 1)
        share_N[query] = 0
        changes_S: np.ndarray = _expected_changes(
            alleles_SN, alleles_SN[:, query].copy(), share_N, jump_S, np.float32(MISMATCH)
        )
        return changes_S

    n_queries = min(n, QUERIES)
    total_S = sum(pool.map(of_query, range(n_queries)), start=np.zeros(len(width_S)))
    return total_S[window.first_decided : window.stop_decided], n_queries


def _fair_order(alleles_SN: np.ndarray) -> np.ndarray:
    """int64 (N,): the first few haplotypes of this order are a fair sample of all, and the order of the file
    has no part in it: by a hash of their alleles and of their number among those with the same."""
    hash_N = content_hash(alleles_SN)
    order_N = np.argsort(hash_N, kind="stable")
    sorted_N = hash_N[order_N]
    number_N = (np.arange(len(order_N)) - np.searchsorted(sorted_N, sorted_N)).astype(np.uint64)
    return order_N[np.argsort(_stirred(sorted_N + _stirred(number_N)), kind="stable")]


def _stirred(key_N: np.ndarray) -> np.ndarray:
    """Near and small uint64 keys are neither any more: the finalizer of SplitMix64 (Steele et al. 2014)."""
    key_N = key_N + np.uint64(0x9E3779B97F4A7C15)
    key_N = (key_N ^ (key_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key_N = (key_N ^ (key_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    stirred: np.ndarray = key_N ^ (key_N >> np.uint64(31))
    return stirred


@kernel(fast=True)
def _expected_changes(alleles_SN, query_S, share_N, jump_S, mismatch):  # type: ignore[no-untyped-def]
    """float64 (S,): the posterior probability that a query changes before each place. share_N: of every
    haplotype among those that it may change to, N a multiple of LANES."""
    n_places, n = alleles_SN.shape
    one, zero = np.float32(1), np.float32(0)
    hit = one - mismatch
    forward_SN, total_S = np.empty((n_places, n), np.float32), np.empty(n_places, np.float32)
    before_N = share_N.copy()
    scale = one
    sum_L, also_L = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for s in range(n_places):
        keep, jump = (one - jump_S[s]) * scale, jump_S[s]
        sum_L[:] = zero
        for i in range(0, n, LANES):
            for l in range(LANES):  # sums in a fixed order that are side by side
                emitted = hit if alleles_SN[s, i + l] == query_S[s] else mismatch
                value = (before_N[i + l] * keep + jump * share_N[i + l]) * emitted
                forward_SN[s, i + l] = value
                sum_L[l] += value
        total_S[s] = sum_L.sum()
        scale = one / total_S[s]
        before_N = forward_SN[s]  # times scale
    changes_S = np.zeros(n_places)
    backward_N = np.ones(n, np.float32)
    for s in range(n_places - 1, 0, -1):
        sum_L[:] = zero
        also_L[:] = zero
        for i in range(0, n, LANES):
            for l in range(LANES):
                emitted = hit if alleles_SN[s, i + l] == query_S[s] else mismatch
                # what cannot be copied would grow without end
                value = backward_N[i + l] * emitted if share_N[i + l] > zero else zero
                backward_N[i + l] = value
                sum_L[l] += share_N[i + l] * value
                also_L[l] += forward_SN[s - 1, i + l] * value
        come = jump_S[s] * sum_L.sum()
        stayed = (one - jump_S[s]) * also_L.sum() / total_S[s - 1]
        changes_S[s] = come / (come + stayed)
        scale = one / (come + stayed)
        keep, come = (one - jump_S[s]) * scale, come * scale
        for i in range(n):
            backward_N[i] = backward_N[i] * keep + come
    return changes_S
