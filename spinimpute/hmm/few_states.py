"""The model of `li_stephens` for large panels: a query's states are its own candidates, of all blocks.

With a hundred thousand haplotypes nearly all of the probability lies on the few hundred that match a query
somewhere in the chunk, and going through all of them takes most of the time. A query still leaves a haplotype
for any of the panel: those that are no states are as if no call ever came from them. Each query has states of
its own, so that no result depends on which queries are imputed together.

Axes: S typed places, N panel haplotypes, K states of a query, Q queries, B blocks, C candidates, P places of
a block, W 64-bit words.
"""

from __future__ import annotations

import numpy as np

from spinimpute.kernels import kernel


@kernel()
def _states(candidate_C, first_BQ1, q, number_N, state_N):  # type: ignore[no-untyped-def]
    """List a query's candidates once each in state_N; number_N: -1, then their places in the list. Returns
    how many they are."""
    n_states = 0
    for b in range(len(first_BQ1)):
        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
            h = candidate_C[c]
            if number_N[h] < 0:
                number_N[h] = n_states
                state_N[n_states] = h
                n_states += 1
    return n_states


@kernel(fast=True)
def _forward(differ_WK, jump_S, mismatch, n_haplotypes, first, forward_SK):  # type: ignore[no-untyped-def]
    """Probabilities of the states given the calls up to each place, of the places from `first` on, as far as
    there are rows."""
    n = differ_WK.shape[1]
    one = np.float32(1)
    right = one - mismatch
    value_K = np.full(n, one / np.float32(n))
    for p in range(first + len(forward_SK)):
        keep, arrive = one - jump_S[p], jump_S[p] / np.float32(n_haplotypes)
        word, bit = p >> 6, np.uint64(p & 63)
        total = np.float32(0)
        for k in range(n):
            e = mismatch if (differ_WK[word, k] >> bit) & np.uint64(1) else right
            value = (value_K[k] * keep + arrive) * e
            value_K[k] = value
            total += value
        scale = one / total
        for k in range(n):
            value_K[k] *= scale
        if p >= first:
            forward_SK[p - first] = value_K


@kernel(fast=True)
def _step_back(differ_K, bit, jump, mismatch, n_haplotypes, value_K):  # type: ignore[no-untyped-def]
    """Backward values, whose mean over all haplotypes is about 1, from this place to the one before."""
    n = len(value_K)
    one = np.float32(1)
    right, total = one - mismatch, np.float32(0)
    for k in range(n):
        e = mismatch if (differ_K[k] >> bit) & np.uint64(1) else right
        value_K[k] *= e
        total += value_K[k]
    scale = (one - jump) * np.float32(n_haplotypes) / total
    for k in range(n):
        value_K[k] = value_K[k] * scale + jump


@kernel(fast=True)
def _multiply(forward_K, backward_K, posterior_K):  # type: ignore[no-untyped-def]
    """Posteriors of the states."""
    total = np.float32(0)
    for k in range(len(posterior_K)):
        posterior_K[k] = forward_K[k] * backward_K[k]
        total += posterior_K[k]
    scale = np.float32(1) / total
    for k in range(len(posterior_K)):
        posterior_K[k] *= scale


@kernel()
def posteriors_of_few(  # type: ignore[no-untyped-def]
    panel_NW,
    query_QW,
    known_QW,
    jump_S,
    mismatch,
    block_first_B,
    block_last_B,
    first_BQ1,
    candidate_C,
    out_CP,
):
    """Fill out_CP as `li_stephens._posteriors` does, for the places that there are."""
    n_places, n_blocks = len(jump_S), len(block_first_B)
    n_haplotypes, n_words = panel_NW.shape
    first = max(block_first_B[0], 0)
    stop = min(block_last_B[n_blocks - 1], n_places - 1) + 1
    number_N = np.full(n_haplotypes, -1, np.int32)
    state_N = np.empty(n_haplotypes, np.int32)
    for q in range(len(query_QW)):
        n = _states(candidate_C, first_BQ1, q, number_N, state_N)
        if n == 0:
            continue
        differ_WK = np.empty((n_words, n), np.uint64)
        for k in range(n):
            for w in range(n_words):
                differ_WK[w, k] = (panel_NW[state_N[k], w] ^ query_QW[q, w]) & known_QW[q, w]
        forward_SK = np.empty((stop - first, n), np.float32)
        _forward(differ_WK, jump_S, mismatch, n_haplotypes, first, forward_SK)
        value_K, posterior_K = np.ones(n, np.float32), np.empty(n, np.float32)
        for p in range(n_places - 1, first - 1, -1):
            if p < stop:
                _multiply(forward_SK[p - first], value_K, posterior_K)
                for b in range(n_blocks):
                    if block_first_B[b] <= p <= block_last_B[b]:
                        for c in range(first_BQ1[b, q], first_BQ1[b, q + 1]):
                            out_CP[c, p - block_first_B[b]] = posterior_K[number_N[candidate_C[c]]]
            _step_back(differ_WK[p >> 6], np.uint64(p & 63), jump_S[p], mismatch, n_haplotypes, value_K)
        for k in range(n):
            number_N[state_N[k]] = -1
