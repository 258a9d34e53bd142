"""Posterior probability of each candidate in large panels, where a query's states are its own candidates.

With 100,000 haplotypes, nearly all probability lies on the few thousand that match a query somewhere in the
chunk. Only these, the candidates of all blocks together, are the query's states; using all haplotypes would
take most of the run time. A jump reaches each state with probability jump / N, as in the whole panel. Jumps
to the other haplotypes are dropped, as if their emissions were 0. Each query has its own states, so results
do not depend on which queries are imputed together. `posteriors` calls this module for panels of more than
MAX_PANEL_AS_STATES haplotypes.

The candidates of a block have the longest matches there. After a wrong call, these may differ from the
haplotype that the query copies. If they together have little probability, other likely states are added.

Forward and backward values are stored at the ends of each block. Within a block they are computed again, but
only for the few states whose posterior may reach the threshold. For the others, an upper bound, computed from
the values at both ends, is below the threshold. The bound is the sum, over the places of the block, of the
posteriors that the state would have if it agreed with the query at all of them.

Axes: S typed places of a chunk, N panel haplotypes, K states of a query, Q queries, B blocks of gaps, I words
of 16 places, C candidates, X states of a block that may reach the threshold, P places of a block, W 64-bit
words, 2 alleles of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.parameters import LANES, ROUNDING
from spinimpute.hmm.pbwt import Candidates
from spinimpute.hmm.steps import step_list
from spinimpute.runtime.kernels import kernel


class BlockPlaces(NamedTuple):
    """The places to the left of each block's first gap and to the right of its last gap, int64.

    They are -1 and S at the ends of the chunk, where no such places exist.
    """

    first_B: np.ndarray
    last_B: np.ndarray


class KeptCandidates(NamedTuple):
    """The kept candidates and their posteriors: a list for each query and block; `start_QB` is its start."""

    haplotype_C: np.ndarray  # int32, haplotypes, ascending within a list
    posterior_CP: np.ndarray  # float32, posteriors at the block's places; 0 if the block has fewer places
    # start_QB, count_QB: int64, start and length of the list
    start_QB: np.ndarray
    count_QB: np.ndarray


def order_by_block(kept: KeptCandidates) -> tuple[np.ndarray, Candidates]:
    """Return the posteriors, float32 (C, P), and the candidates, sorted by block, then by query."""
    n_queries, n_blocks = kept.count_QB.shape
    first_BQ1 = np.zeros((n_blocks, n_queries + 1), np.int64)
    np.cumsum(kept.count_QB.T, axis=1, out=first_BQ1[:, 1:])
    first_BQ1[1:] += np.cumsum(first_BQ1[:-1, -1])[:, None]
    haplotype_C = np.empty(first_BQ1[-1, -1], np.int32)
    posterior_CP = np.empty((len(haplotype_C), kept.posterior_CP.shape[1]), np.float32)
    _copy_by_block(kept, first_BQ1, haplotype_C, posterior_CP)
    return posterior_CP, Candidates(haplotype_C, first_BQ1)


@kernel()
def _copy_by_block(kept, first_BQ1, haplotype_C, posterior_CP):  # type: ignore[no-untyped-def]
    for b in range(len(first_BQ1)):
        for q in range(len(kept.start_QB)):
            at = kept.start_QB[q, b]
            for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                haplotype_C[c] = kept.haplotype_C[at]
                posterior_CP[c] = kept.posterior_CP[at]
                at += 1


class _Thresholds(NamedTuple):
    """Thresholds for keeping candidates; `parameters` explains the last two."""

    threshold: np.float32  # minimum posterior, see `copying_posteriors`
    max_share: np.float32  # MAX_THRESHOLD_SHARE
    min_sum: np.float32  # MIN_POSTERIOR_SUM


class _QuerySteps(NamedTuple):
    """The quantities of one query's forward and backward steps, float32."""

    emission_S2: np.ndarray
    jump_S: np.ndarray
    share: np.float32  # 1 / N
    total_S: np.ndarray  # sum of the forward values of all states at each place
    # keep_S, arrive_S: the backward value of place s, without the emission at s, is value * keep_S[s] +
    # arrive_S[s], where `value` is the backward value of place s + 1 times the emission at s + 1.
    keep_S: np.ndarray
    arrive_S: np.ndarray
    joint_S: np.ndarray  # one over the sum of forward times backward values at each place


def fill_posteriors_of_own_states(
    panel_NW: np.ndarray,
    emission_QS2: np.ndarray,
    jump_S: np.ndarray,
    blocks: BlockPlaces,
    candidates: Candidates,
    threshold: np.float32,
    kept: KeptCandidates,
) -> None:
    """Fill `kept` (see `copying_posteriors`): per list, at most as many as the block has candidates."""
    thresholds = _Thresholds(
        threshold, np.float32(parameters.MAX_THRESHOLD_SHARE), np.float32(parameters.MIN_POSTERIOR_SUM)
    )
    _fill_posteriors(panel_NW, emission_QS2, jump_S, blocks, candidates, thresholds, kept)


@kernel()
def _fill_posteriors(panel_NW, emission_QS2, jump_S, blocks, candidates, thresholds, kept):  # type: ignore[no-untyped-def]
    haplotype_C, first_BQ1 = candidates
    n_places, n_blocks, n_haplotypes = len(jump_S), len(first_BQ1), len(panel_NW)
    share, one = np.float32(1) / np.float32(n_haplotypes), np.float32(1)
    state_of_N, state_N = np.full(n_haplotypes, -1, np.int32), np.empty(n_haplotypes, np.int32)
    total_S, keep_S = np.empty(n_places, np.float32), np.empty(n_places, np.float32)
    arrive_S, joint_S = np.empty(n_places, np.float32), np.empty(n_places, np.float32)
    max_states = 1  # largest number of states of a query
    for q in range(len(emission_QS2)):
        max_states = max(max_states, (first_BQ1[:, q + 1] - first_BQ1[:, q]).sum())
    max_states = min(max_states, n_haplotypes)
    index_K = np.full(max_states, -1, np.int32)
    # Allocated once for all queries, because the system clears new memory of this size each time.
    forward_BK = np.empty((n_blocks, max_states), np.float32)
    backward_BK = np.empty((n_blocks, max_states), np.float32)
    n_kept = 0
    for q in range(len(emission_QS2)):
        emission_S2 = emission_QS2[q]
        n, state_C = _list_states(haplotype_C, first_BQ1, q, state_of_N, state_N)
        if n == 0:
            continue
        threshold = min(thresholds.threshold, thresholds.max_share / np.float32(n))
        bits_IK = _bits_by_span(panel_NW, state_N[:n])
        value_K = np.empty(bits_IK.shape[1], np.float32)
        value_K[:n] = share
        value_K[n:] = 0
        total, b = one, 0
        for p in range(n_places):
            keep = (one - jump_S[p]) * (one / total)
            total = step_list(bits_IK, p, n, emission_S2[p], keep, jump_S[p] * share, value_K)
            total_S[p] = total
            while b < n_blocks and max(blocks.first_B[b], 0) == p:
                forward_BK[b, :n] = value_K[:n]
                b += 1
        value_K[:n] = 1
        keep, arrive, joint = one, np.float32(0), one / total
        b = n_blocks - 1
        for p in range(n_places - 1, max(blocks.first_B[0], 0) - 1, -1):
            keep_S[p], arrive_S[p], joint_S[p] = keep, arrive, joint
            while b >= 0 and min(blocks.last_B[b], n_places - 1) == p:
                backward_BK[b, :n] = value_K[:n]
                b -= 1
            divisor = share * step_list(bits_IK, p, n, emission_S2[p], keep, arrive, value_K)
            keep, arrive = (one - jump_S[p]) / divisor, jump_S[p]
            if p > 0:  # the sum of forward times backward values changes from place to place only by scaling
                joint *= divisor / total_S[p - 1]
        steps = _QuerySteps(emission_S2, jump_S, share, total_S, keep_S, arrive_S, joint_S)
        i = len(state_C)
        for b in range(n_blocks - 1, -1, -1):
            begin, end = max(blocks.first_B[b], 0), min(blocks.last_B[b] + 1, n_places)
            block_state_C = state_C[i - (first_BQ1[b, q + 1] - first_BQ1[b, q]) : i]
            i -= len(block_state_C)
            bound_4 = _bound(steps, begin, end)
            # likely_X: states that may reach the threshold. chosen_X: indices in likely_X of the kept ones.
            likely_X = _find_likely(bound_4, forward_BK[b, :n], backward_BK[b, :n], threshold)
            posterior_PX, max_X = _posteriors_between(
                bits_IK, likely_X, steps, forward_BK[b], backward_BK[b], begin, end
            )
            for x in range(len(likely_X)):
                index_K[likely_X[x]] = x
            chosen_X = _choose(
                block_state_C, index_K, posterior_PX, max_X, state_N[likely_X], threshold, thresholds.min_sum
            )
            for k in likely_X:
                index_K[k] = -1
            kept.start_QB[q, b], kept.count_QB[q, b] = n_kept, len(chosen_X)
            first_slot = begin - blocks.first_B[b]
            for x in chosen_X:
                kept.haplotype_C[n_kept] = state_N[likely_X[x]]
                kept.posterior_CP[n_kept] = 0
                for slot in range(end - begin):
                    kept.posterior_CP[n_kept, first_slot + slot] = posterior_PX[slot, x]
                n_kept += 1


@kernel()
def _bound(steps, begin, end):  # type: ignore[no-untyped-def]
    """Return coefficients of an upper bound of the sum of a state's posteriors at the places [begin, end).

    For a state with forward value f at the first place and backward value v at the last place, the bound is

        bound[0] f v + bound[1] f + bound[2] v + bound[3]

    It equals the sum if the state agrees with every observed allele in between.
    """
    n = end - begin
    forward_P2, backward_P2 = np.zeros((n, 2), np.float32), np.zeros((n, 2), np.float32)
    forward_P2[0, 0] = backward_P2[n - 1, 0] = 1
    one = np.float32(1)
    for p in range(begin + 1, end):
        stay, switch = _forward_step(steps, p)
        best = max(steps.emission_S2[p, 0], steps.emission_S2[p, 1])
        forward_P2[p - begin, 0] = forward_P2[p - begin - 1, 0] * stay * best
        forward_P2[p - begin, 1] = (forward_P2[p - begin - 1, 1] * stay + switch) * best
    for p in range(end - 1, begin, -1):
        best = max(steps.emission_S2[p, 0], steps.emission_S2[p, 1])
        backward_P2[p - begin - 1, 0] = backward_P2[p - begin, 0] * steps.keep_S[p] * best
        backward_P2[p - begin - 1, 1] = (
            backward_P2[p - begin, 1] * steps.keep_S[p] + steps.arrive_S[p]
        ) * best
    bound_4 = np.zeros(4, np.float32)
    for p in range(begin, end):
        factor_f, alone = forward_P2[p - begin] * steps.joint_S[p]
        factor_v = backward_P2[p - begin, 0] * steps.keep_S[p]
        rest = backward_P2[p - begin, 1] * steps.keep_S[p] + steps.arrive_S[p]
        bound_4[0] += factor_f * factor_v
        bound_4[1] += factor_f * rest
        bound_4[2] += alone * factor_v
        bound_4[3] += alone * rest
    return bound_4 * (one + ROUNDING)


@kernel(fast=True)
def _find_likely(bound_4, forward_K, backward_K, threshold):  # type: ignore[no-untyped-def]
    """Return the states whose bound reaches the threshold.

    If a query resembles none of its states, bounds may be infinite or NaN. These states are returned, too.
    """
    likely_X, n = np.empty(len(forward_K), np.int32), 0
    factor_fv, factor_f, factor_v, alone = bound_4
    for k in range(len(forward_K)):
        likely_X[n] = k
        f, v = forward_K[k], backward_K[k]
        n += not ((factor_fv * v + factor_f) * f + (factor_v * v + alone) < threshold)
    return likely_X[:n]


@kernel(inline=True)
def _forward_step(steps, place):  # type: ignore[no-untyped-def]
    """Return the factor and the summand that take forward values from the previous place to this one."""
    one, jump = np.float32(1), steps.jump_S[place]
    return (one - jump) * (one / steps.total_S[place - 1]), jump * steps.share


@kernel()
def _posteriors_between(bits_IK, likely_X, steps, forward_K, backward_K, begin, end):  # type: ignore[no-untyped-def]
    """Return the posteriors of the states likely_X at the places [begin, end), and each state's maximum."""
    n, first = len(likely_X), begin >> 4
    width = -(-n // LANES) * LANES
    bits_IX = np.zeros((((end - 1) >> 4) + 1 - first, width), np.uint16)
    for i in range(len(bits_IX)):
        for x in range(n):
            bits_IX[i, x] = bits_IK[first + i, likely_X[x]]
    posterior_PX, backward_X = np.empty((end - begin, width), np.float32), np.zeros(width, np.float32)
    posterior_PX[0, n:] = 0
    max_X = np.zeros(width, np.float32)
    for x in range(n):
        posterior_PX[0, x], backward_X[x] = forward_K[likely_X[x]], backward_K[likely_X[x]]
    for p in range(begin + 1, end):
        forward_X = posterior_PX[p - begin]
        forward_X[:] = posterior_PX[p - begin - 1]
        stay, switch = _forward_step(steps, p)
        step_list(bits_IX, p - 16 * first, n, steps.emission_S2[p], stay, switch, forward_X)
    for p in range(end - 1, begin - 1, -1):
        keep, arrive = steps.keep_S[p], steps.arrive_S[p]
        _multiply(posterior_PX[p - begin], backward_X, keep, arrive, steps.joint_S[p], max_X)
        if p > begin:
            step_list(bits_IX, p - 16 * first, n, steps.emission_S2[p], keep, arrive, backward_X)
    return posterior_PX, max_X


@kernel(fast=True)
def _multiply(forward_X, backward_X, keep, arrive, joint, max_X):  # type: ignore[no-untyped-def]
    """Replace forward values by posteriors, and update each state's maximum posterior, max_X."""
    for x in range(len(forward_X)):
        posterior = forward_X[x] * (backward_X[x] * keep + arrive) * joint
        forward_X[x] = posterior
        max_X[x] = posterior if posterior > max_X[x] else max_X[x]


@kernel()
def _choose(block_state_C, index_K, posterior_PX, max_X, state_X, threshold, min_sum):  # type: ignore[no-untyped-def]
    """Choose the candidates of the block whose posterior reaches the threshold at any place.

    If the sum of their posteriors is below min_sum at any place, other states that reach the threshold are
    added, those with the highest maximum first, until there are as many as the block has candidates.
    block_state_C: the candidates, as states, in order of haplotypes. index_K: index of each state in
    likely_X, or -1. Returns indices in likely_X.
    """
    kept_X, n = np.empty(len(block_state_C), np.int64), 0
    for k in block_state_C:
        x = index_K[k]
        if x >= 0 and max_X[x] >= threshold:
            kept_X[n] = x
            n += 1
    n_others = len(block_state_C) - n
    kept_X = kept_X[:n]
    for p in range(len(posterior_PX)):
        together = np.float32(0)
        for x in kept_X:
            together += posterior_PX[p, x]
        if together < min_sum:
            break
    else:
        return kept_X
    is_other_X = max_X[: len(state_X)] >= threshold
    is_other_X[kept_X] = False
    other_X = np.flatnonzero(is_other_X)
    other_X = other_X[np.argsort(-max_X[other_X], kind="mergesort")[:n_others]]
    both_X = np.concatenate((kept_X, other_X))
    return both_X[np.argsort(state_X[both_X])]


@kernel()
def _list_states(haplotype_C, first_BQ1, q, state_of_N, state_N):  # type: ignore[no-untyped-def]
    """List a query's candidates in state_N without duplicates.

    Returns the number of states, and the state of each candidate, block by block. state_of_N: workspace, the
    state of each haplotype; all -1 before and after.
    """
    n_candidates = 0
    for b in range(len(first_BQ1)):
        n_candidates += first_BQ1[b, q + 1] - first_BQ1[b, q]
    state_C, i = np.empty(n_candidates, np.int32), 0
    n_states = 0
    for b in range(len(first_BQ1)):
        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
            h = haplotype_C[c]
            if state_of_N[h] < 0:
                state_of_N[h] = n_states
                state_N[n_states] = h
                n_states += 1
            state_C[i] = state_of_N[h]
            i += 1
    for k in range(n_states):
        state_of_N[state_N[k]] = -1
    return n_states, state_C


@kernel()
def _bits_by_span(panel_NW, state_K):  # type: ignore[no-untyped-def]
    """Return the states' typed alleles in words of 16 places, uint16 (I, K); K is padded to whole lanes."""
    n_words = panel_NW.shape[1]
    bits_IK = np.zeros((4 * n_words, -(-len(state_K) // LANES) * LANES), np.uint16)
    for k in range(len(state_K)):
        row_W = panel_NW[state_K[k]]
        for w in range(n_words):
            for part in range(4):
                bits_IK[4 * w + part, k] = np.uint16((row_W[w] >> np.uint64(16 * part)) & np.uint64(0xFFFF))
    return bits_IK
