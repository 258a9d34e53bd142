"""Expected switches of held-out haplotypes (queries) that copy all other haplotypes, for map tuning.

This is the forward-backward algorithm of Li and Stephens with a list of states (`steps`), arranged for speed:

- Two queries are computed together. Each waits for its own sums; the processor computes the other one
  meanwhile.
- Forward values of all places would not fit the processor's cache. They are kept every BLOCK_PLACES places,
  and computed again, block by block, when the backward values need them.
- A step backwards and the division of the values by their sum at the previous place are one loop.
- All states have the same share, so it is not loaded. The few vectors with a query, which must not copy
  itself, or with padding, are *masked*: multiplied by 0 in these lanes.

Axes: S places, N haplotypes, V vectors of L lanes that hold them, Q queries, 2 queries that are computed
together, B blocks of places, P places of a block, M masked vectors and one more number, -1. Tuples of two
have one value for each of the two queries.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import all_lanes, load, select_by_allele, store, sum_lanes
from spinimpute.hmm.parameters import LANES, MISMATCH
from spinimpute.hmm.steps import allele_emissions
from spinimpute.runtime.kernels import kernel

BLOCK_PLACES = 16  # with 5,000 haplotypes, the values of two queries at 512 places take 2 MB


def expected_switches(
    alleles_SN: np.ndarray, n: int, queries: range, jump_S: np.ndarray, first_place: int
) -> np.ndarray:
    """Return the posterior probability that each query switches before each place, float64 (Q, S).

    alleles_SN: uint8, padded by `pad_to_lanes`; the first n haplotypes are copied, and the queries are among
    them. jump_S: see `jump_probabilities`. The result is 0 at places before `first_place` and at place 0.
    """
    n_places, n_padded = alleles_SN.shape
    n_vectors = n_padded // LANES
    right, wrong = allele_emissions(np.zeros(1), MISMATCH)[0]
    switches_QS = np.zeros((len(queries), n_places))
    _fill_switches(
        alleles_SN,
        n,
        queries.start,
        right,
        wrong,
        jump_S,
        max(first_place, 1),
        _aligned(-(-n_places // BLOCK_PLACES), 2, n_vectors, LANES),
        _aligned(BLOCK_PLACES, 2, n_vectors, LANES),
        _aligned(2, n_vectors, LANES),
        _aligned(2, n_vectors, LANES),
        switches_QS,
    )
    return switches_QS


def _aligned(*shape: int) -> np.ndarray:
    """Allocate a float32 array that starts at a multiple of 64 bytes, so that no vector lies in two lines."""
    spare = 64 // np.dtype(np.float32).itemsize
    flat = np.empty(int(np.prod(shape)) + spare, np.float32)
    start = -flat.ctypes.data % 64 // flat.itemsize
    return flat[start : start + len(flat) - spare].reshape(shape)


@kernel()
def _emissions(allele_N, query_0, query_1, right, wrong):  # type: ignore[no-untyped-def]
    """Return, for both queries, the emissions of the query's allele by states with REF and with ALT."""
    emission_0 = (wrong, right) if allele_N[query_0] else (right, wrong)
    emission_1 = (wrong, right) if allele_N[query_1] else (right, wrong)
    return emission_0, emission_1


@kernel(fast=True)
def _step_forward(  # type: ignore[no-untyped-def]
    allele_N, share, masked_M, mask_2VL, emission_22, jump, before_2VL, total_2, forward_2VL
):
    """Take the forward values of two queries to this place, and return their sums.

    share: P(a switch leads to one of the states). masked_M: the masked vectors, increasing. Other arguments:
    see `steps.step_forward_states`.
    """
    one = np.float32(1)
    (ref_0, alt_0), (ref_1, alt_1) = emission_22
    keep_0, keep_1 = (one - jump) * (one / total_2[0]), (one - jump) * (one / total_2[1])
    arrive = all_lanes(jump * share)
    sum_0, sum_1 = all_lanes(np.float32(0)), all_lanes(np.float32(0))
    m, masked = 0, masked_M[0]
    for v in range(forward_2VL.shape[1]):
        emission_0 = select_by_allele(allele_N, v * LANES, ref_0, alt_0)
        emission_1 = select_by_allele(allele_N, v * LANES, ref_1, alt_1)
        value_0 = (load(before_2VL, (0, v)) * keep_0 + arrive) * emission_0
        value_1 = (load(before_2VL, (1, v)) * keep_1 + arrive) * emission_1
        if v == masked:
            value_0 = value_0 * load(mask_2VL, (0, v))
            value_1 = value_1 * load(mask_2VL, (1, v))
            m += 1
            masked = masked_M[m]
        store(forward_2VL, (0, v), value_0)
        store(forward_2VL, (1, v), value_1)
        sum_0 += value_0
        sum_1 += value_1
    return sum_lanes(sum_0), sum_lanes(sum_1)


@kernel(fast=True)
def _step_back(  # type: ignore[no-untyped-def]
    allele_N, share, masked_M, mask_2VL, emission_22, jump, forward_2VL, total_2, keep_2, arrive_2,
    backward_2VL,
):  # fmt: skip
    """Take the backward values of two queries from this place to its left, in place.

    keep_2, arrive_2: the results of the step before, which complete the values that it left. Without a step
    before, they are 1 and 0. forward_2VL, total_2: forward values at the previous place, and their sums.
    Other arguments: see `_step_forward`. Returns keep_2, arrive_2, and the posterior probabilities of a
    switch between the previous place and this one.
    """
    one, zero = np.float32(1), np.float32(0)
    (ref_0, alt_0), (ref_1, alt_1) = emission_22
    (keep_0, keep_1), (arrive_0, arrive_1) = keep_2, arrive_2
    sum_switch_0, sum_switch_1 = all_lanes(zero), all_lanes(zero)
    sum_stay_0, sum_stay_1 = all_lanes(zero), all_lanes(zero)
    shares = all_lanes(share)
    m, masked = 0, masked_M[0]
    for v in range(backward_2VL.shape[1]):
        emission_0 = select_by_allele(allele_N, v * LANES, ref_0, alt_0)
        emission_1 = select_by_allele(allele_N, v * LANES, ref_1, alt_1)
        value_0 = (load(backward_2VL, (0, v)) * keep_0 + arrive_0) * emission_0
        value_1 = (load(backward_2VL, (1, v)) * keep_1 + arrive_1) * emission_1
        if v == masked:
            value_0 = value_0 * load(mask_2VL, (0, v))
            value_1 = value_1 * load(mask_2VL, (1, v))
            m += 1
            masked = masked_M[m]
        store(backward_2VL, (0, v), value_0)
        store(backward_2VL, (1, v), value_1)
        sum_switch_0 += shares * value_0
        sum_switch_1 += shares * value_1
        sum_stay_0 += load(forward_2VL, (0, v)) * value_0
        sum_stay_1 += load(forward_2VL, (1, v)) * value_1
    switch_0, switch_1 = jump * sum_lanes(sum_switch_0), jump * sum_lanes(sum_switch_1)
    stayed_0 = (one - jump) * sum_lanes(sum_stay_0) / total_2[0]
    stayed_1 = (one - jump) * sum_lanes(sum_stay_1) / total_2[1]
    scale_0, scale_1 = one / (switch_0 + stayed_0), one / (switch_1 + stayed_1)
    keep_2 = (one - jump) * scale_0, (one - jump) * scale_1
    arrive_2 = switch_0 * scale_0, switch_1 * scale_1
    return keep_2, arrive_2, (switch_0 / (switch_0 + stayed_0), switch_1 / (switch_1 + stayed_1))


@kernel(fast=True)
def _fill_switches(  # type: ignore[no-untyped-def]
    alleles_SN, n, first_query, right, wrong, jump_S, first_place, start_B2VL, forward_P2VL, mask_2VL,
    backward_2VL, switches_QS,
):  # fmt: skip
    """Fill switches_QS from first_place on.

    start_B2VL: workspace for the forward values before each block. forward_P2VL, mask_2VL, backward_2VL:
    workspaces.
    """
    one, zero, share = np.float32(1), np.float32(0), np.float32(1 / (n - 1))
    n_places, n_queries = len(alleles_SN), len(switches_QS)
    total_B2, total_P2 = np.empty((len(start_B2VL), 2), np.float32), np.empty((BLOCK_PLACES, 2), np.float32)
    for q in range(0, n_queries, 2):
        other = min(q + 1, n_queries - 1)  # an odd last query is computed twice
        query_0, query_1 = first_query + q, first_query + other
        mask_2VL[:] = 0
        for i, query in enumerate((query_0, query_1)):
            mask_N = mask_2VL[i].ravel()
            mask_N[:n] = 1
            mask_N[query] = 0
        masked_M = np.full(4, -1)
        n_masked, n_vectors = 0, mask_2VL.shape[1]
        for v in range(n_vectors):  # the last vector may have padding
            if v in (query_0 // LANES, query_1 // LANES, n_vectors - 1):
                masked_M[n_masked] = v
                n_masked += 1
        start_B2VL[0] = mask_2VL * share
        total_B2[0] = 1
        for b in range(len(start_B2VL) - 1):
            before_2VL, total_2 = start_B2VL[b], (total_B2[b, 0], total_B2[b, 1])
            for s in range(b * BLOCK_PLACES, (b + 1) * BLOCK_PLACES):
                allele_N = alleles_SN[s]
                emission_22 = _emissions(allele_N, query_0, query_1, right, wrong)
                total_2 = _step_forward(
                    allele_N, share, masked_M, mask_2VL, emission_22, jump_S[s], before_2VL, total_2,
                    start_B2VL[b + 1],
                )  # fmt: skip
                before_2VL = start_B2VL[b + 1]
            total_B2[b + 1, 0], total_B2[b + 1, 1] = total_2
        backward_2VL[:] = 1
        keep_2, arrive_2 = (one, one), (zero, zero)
        for b in range(len(start_B2VL) - 1, first_place // BLOCK_PLACES - 1, -1):
            first, last = b * BLOCK_PLACES, min((b + 1) * BLOCK_PLACES, n_places)
            before_2VL, total_2 = start_B2VL[b], (total_B2[b, 0], total_B2[b, 1])
            for s in range(first, last - 1):
                allele_N = alleles_SN[s]
                emission_22 = _emissions(allele_N, query_0, query_1, right, wrong)
                total_2 = _step_forward(
                    allele_N, share, masked_M, mask_2VL, emission_22, jump_S[s], before_2VL, total_2,
                    forward_P2VL[s - first],
                )  # fmt: skip
                total_P2[s - first, 0], total_P2[s - first, 1] = total_2
                before_2VL = forward_P2VL[s - first]
            for s in range(last - 1, max(first, first_place) - 1, -1):
                allele_N = alleles_SN[s]
                emission_22 = _emissions(allele_N, query_0, query_1, right, wrong)
                at_start = s == first
                before_2VL = start_B2VL[b] if at_start else forward_P2VL[s - 1 - first]
                total_of_2 = total_B2[b] if at_start else total_P2[s - 1 - first]
                keep_2, arrive_2, switch_2 = _step_back(
                    allele_N, share, masked_M, mask_2VL, emission_22, jump_S[s], before_2VL, total_of_2,
                    keep_2, arrive_2, backward_2VL,
                )  # fmt: skip
                switches_QS[q, s], switches_QS[other, s] = switch_2
