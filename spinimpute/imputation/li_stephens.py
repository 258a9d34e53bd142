"""How probable each candidate is as the one a query copies from, by the model of Li and Stephens.

A hidden Markov model (Li & Stephens 2003, Genetics 165:2213) whose states are all haplotypes of the panel:
the query copies one, leaves it for a random one with a chance that grows with genetic length, and differs
from it with a small chance. Its posterior knows what no comparison of a query with one haplotype does: that
another one matches better, here or next to here.

Haplotypes with the same alleles at SPAN typed places in a row share their steps there, as in Minimac (Das et
al. 2016, Nat. Genet. 48:1284): within a span, the forward value of haplotype n in pattern d is a_d g_n + r_d
/ c_d, where g_n is its value before the span, a_d belongs to those that never left it and r_d to those that
came since; the backward value likewise, from the span's end. LANES queries go through the model side by side.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, L queries side by side, B blocks of gaps, I
spans, D patterns of a span, C candidates, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.imputation.bit_rows import trailing_zeros
from spinimpute.kernels import kernel

SPAN = 16  # divides 64: a span lies in one word
LANES = 16  # float32 numbers of the widest registers
JUMPS_PER_CM = 400.0  # the chance to leave a haplotype is about this by cM and haplotype: 4 x 10,000 people
MISMATCH = 1e-3
LEAST_SHARE = 0.05  # of the chance of a haplotype taken blindly: candidates with less all over a block go
SMALLEST = np.float32(1e-30)  # smaller products are 0: denormal numbers are slow


class SpanPatterns(NamedTuple):
    """Patterns of the panel in spans of typed places.

    pattern_IN: int32, the pattern of a haplotype; first_I1: int64, where a span's patterns begin in the rest;
    bits_D: uint64, alleles of a pattern, the span's first place lowest; count_D: float32, haplotypes.
    """

    pattern_IN: np.ndarray
    first_I1: np.ndarray
    bits_D: np.ndarray
    count_D: np.ndarray


@kernel()
def _span_patterns(panel_NW, pattern_IN):  # type: ignore[no-untyped-def]
    n_spans, n = pattern_IN.shape
    number_K = np.empty(1 << SPAN, np.int32)
    first_I1 = np.zeros(n_spans + 1, np.int64)
    bits_D, count_D = (
        np.empty(n_spans * min(n, 1 << SPAN), np.uint64),
        np.zeros(n_spans * min(n, 1 << SPAN), np.float32),
    )
    low = np.uint64((1 << SPAN) - 1)
    total = 0
    for i in range(n_spans):
        number_K[:] = -1
        word, shift = (i * SPAN) >> 6, np.uint64((i * SPAN) & 63)
        first_I1[i] = total
        for h in range(n):
            key = (panel_NW[h, word] >> shift) & low
            number = number_K[key]
            if number < 0:
                number = total - first_I1[i]
                number_K[key] = number
                bits_D[total] = key
                total += 1
            pattern_IN[i, h] = number
            count_D[first_I1[i] + number] += 1
    first_I1[n_spans] = total
    return first_I1, bits_D[:total].copy(), count_D[:total].copy()


def span_patterns(panel_NW: np.ndarray, n_places: int) -> SpanPatterns:
    """Patterns in the order of the haplotypes that first show them. panel_NW: `pack_rows`."""
    pattern_IN = np.empty((-(-n_places // SPAN), len(panel_NW)), np.int32)
    return SpanPatterns(pattern_IN, *_span_patterns(panel_NW, pattern_IN))


def jump_chances(cM_S: np.ndarray, n_haplotypes: int) -> np.ndarray:
    """float32 (S,): the chance that a query leaves its haplotype before a place; 1 before the first."""
    chance_S = (-np.expm1(-np.diff(cM_S, prepend=cM_S[:1]) * JUMPS_PER_CM / n_haplotypes)).clip(1e-7)
    chance_S[0] = 1
    return chance_S.astype(np.float32)


@kernel()
def _list_candidates(candidate_BQW, first_BQ1):  # type: ignore[no-untyped-def]
    n_blocks, n_queries, n_words = candidate_BQW.shape
    total = 0
    member_C = np.empty(4096, np.int32)
    for b in range(n_blocks):
        for q in range(n_queries):
            first_BQ1[b, q] = total
            for word in range(n_words):
                bits = candidate_BQW[b, q, word]
                while bits != np.uint64(0):
                    if total == len(member_C):
                        longer = np.empty(2 * total, np.int32)
                        longer[:total] = member_C
                        member_C = longer
                    member_C[total] = (word << 6) + trailing_zeros(bits)
                    bits &= bits - np.uint64(1)
                    total += 1
        first_BQ1[b, n_queries] = total
    return member_C[:total].copy()


@kernel(fast=True)
def _posteriors(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, query_QW, known_QW, jump_S, mismatch, block_first_B, block_last_B,
    first_BQ1, candidate_C, out_CP,
):  # fmt: skip
    n_spans, n = pattern_IN.shape
    n_places, n_queries = len(jump_S), len(query_QW)
    n_blocks = len(block_first_B)
    wanted_first = max(block_first_B[0], 0) // SPAN
    wanted_stop = min(block_last_B[n_blocks - 1], n_places - 1) // SPAN + 1
    most, stored = 1, 0
    stored_I = np.zeros(n_spans + 1, np.int64)
    for i in range(n_spans):
        d = first_I1[i + 1] - first_I1[i]
        most = max(most, d)
        stored_I[i] = stored
        if wanted_first <= i < wanted_stop:
            stored += d * SPAN
    one, zero = np.float32(1), np.float32(0)
    start_WNL = np.empty((wanted_stop - wanted_first, n, LANES), np.float32)
    stay_XL, come_XL = np.empty((stored, LANES), np.float32), np.empty((stored, LANES), np.float32)
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    sum_DL, other_sum_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    a_DL, r_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    total_L, scale_L = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    chance_L = np.empty(LANES, np.float32)
    query_L, known_L = np.empty(LANES, np.uint64), np.empty(LANES, np.uint64)
    low = np.uint64((1 << SPAN) - 1)
    right, wrong = one - mismatch, mismatch
    for q0 in range(0, n_queries, LANES):
        lanes = min(LANES, n_queries - q0)
        forward_NL[:] = one / n
        scale_L[:] = one
        for i in range(wanted_stop):
            first, n_patterns = first_I1[i], first_I1[i + 1] - first_I1[i]
            word, shift = (i * SPAN) >> 6, np.uint64((i * SPAN) & 63)
            for l in range(LANES):
                q = min(q0 + l, n_queries - 1)
                query_L[l] = (query_QW[q, word] >> shift) & low
                known_L[l] = (known_QW[q, word] >> shift) & low
            sum_DL[:n_patterns] = 0
            pattern_N = pattern_IN[i]
            for h in range(n):
                d = pattern_N[h]
                for l in range(LANES):
                    sum_DL[d, l] += forward_NL[h, l]
            wanted = i >= wanted_first
            if wanted:
                start_WNL[i - wanted_first] = forward_NL
            a_DL[:n_patterns] = 1
            r_DL[:n_patterns] = 0
            for p in range(i * SPAN, min(i * SPAN + SPAN, n_places)):
                bit = np.uint64(1) << np.uint64(p - i * SPAN)
                keep, come = one - jump_S[p], jump_S[p] / np.float32(n)
                total_L[:] = 0
                for d in range(n_patterns):
                    bits, came = bits_D[first + d], come * count_D[first + d]
                    for l in range(LANES):
                        e = wrong if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                        a = a_DL[d, l] * scale_L[l] * keep * e
                        a = a if a > SMALLEST else zero
                        r = (r_DL[d, l] * scale_L[l] * keep + came) * e
                        a_DL[d, l], r_DL[d, l] = a, r
                        total_L[l] += a * sum_DL[d, l] + r
                for l in range(LANES):
                    scale_L[l] = one / total_L[l]
                if wanted:
                    at = stored_I[i] + (p - i * SPAN) * n_patterns
                    stay_XL[at : at + n_patterns] = a_DL[:n_patterns]
                    come_XL[at : at + n_patterns] = r_DL[:n_patterns]
            for d in range(n_patterns):
                share = one / count_D[first + d]
                for l in range(LANES):
                    a_DL[d, l] *= scale_L[l]
                    r_DL[d, l] *= scale_L[l] * share
            for h in range(n):
                d = pattern_N[h]
                for l in range(LANES):
                    forward_NL[h, l] = a_DL[d, l] * forward_NL[h, l] + r_DL[d, l]
            scale_L[:] = one
        backward_NL[:] = 1
        for i in range(n_spans - 1, wanted_first - 1, -1):
            first, n_patterns = first_I1[i], first_I1[i + 1] - first_I1[i]
            word, shift = (i * SPAN) >> 6, np.uint64((i * SPAN) & 63)
            for l in range(LANES):
                q = min(q0 + l, n_queries - 1)
                query_L[l] = (query_QW[q, word] >> shift) & low
                known_L[l] = (known_QW[q, word] >> shift) & low
            pattern_N = pattern_IN[i]
            other_sum_DL[:n_patterns] = 0
            wanted = i < wanted_stop
            if wanted:
                start_NL = start_WNL[i - wanted_first]
                sum_DL[:n_patterns] = 0
                product_DL[:n_patterns] = 0
                for h in range(n):
                    d = pattern_N[h]
                    for l in range(LANES):
                        f, b = start_NL[h, l], backward_NL[h, l]
                        sum_DL[d, l] += f
                        other_sum_DL[d, l] += b
                        product_DL[d, l] += f * b
            else:
                for h in range(n):
                    d = pattern_N[h]
                    for l in range(LANES):
                        other_sum_DL[d, l] += backward_NL[h, l]
            a_DL[:n_patterns] = 1
            r_DL[:n_patterns] = 0
            for p in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
                if wanted:
                    at = stored_I[i] + (p - i * SPAN) * n_patterns
                    total_L[:] = 0
                    for d in range(n_patterns):
                        share = one / count_D[first + d]
                        for l in range(LANES):
                            a, r = stay_XL[at + d, l], come_XL[at + d, l]
                            b, s = a_DL[d, l], r_DL[d, l]
                            total_L[l] += (
                                a * b * product_DL[d, l]
                                + a * s * sum_DL[d, l]
                                + r * share * b * other_sum_DL[d, l]
                                + r * s
                            )
                    for l in range(LANES):
                        chance_L[l] = one / total_L[l]
                    for block in range(n_blocks):
                        if not block_first_B[block] <= p <= block_last_B[block]:
                            continue
                        slot = p - block_first_B[block]
                        for l in range(lanes):
                            q = q0 + l
                            for c in range(first_BQ1[block, q], first_BQ1[block, q + 1]):
                                h = candidate_C[c]
                                d = pattern_N[h]
                                f = (
                                    stay_XL[at + d, l] * start_NL[h, l]
                                    + come_XL[at + d, l] / count_D[first + d]
                                )
                                b = a_DL[d, l] * backward_NL[h, l] + r_DL[d, l]
                                out_CP[c, slot] = f * b * chance_L[l]
                bit = np.uint64(1) << np.uint64(p - i * SPAN)
                keep, come = one - jump_S[p], jump_S[p]
                total_L[:] = 0
                for d in range(n_patterns):
                    bits, count = bits_D[first + d], count_D[first + d]
                    for l in range(LANES):
                        e = wrong if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                        total_L[l] += e * (a_DL[d, l] * other_sum_DL[d, l] + r_DL[d, l] * count)
                for l in range(LANES):
                    scale_L[l] = np.float32(n) / total_L[l]
                for d in range(n_patterns):
                    bits = bits_D[first + d]
                    for l in range(LANES):
                        e = wrong if ((bits ^ query_L[l]) & known_L[l] & bit) else right
                        e *= keep * scale_L[l]
                        a = e * a_DL[d, l]
                        a_DL[d, l] = a if a > SMALLEST else zero
                        r_DL[d, l] = e * r_DL[d, l] + come
            for h in range(n):
                d = pattern_N[h]
                for l in range(LANES):
                    backward_NL[h, l] = a_DL[d, l] * backward_NL[h, l] + r_DL[d, l]
    # before the first place and behind the last one, what is known there
    for block in range(n_blocks):
        for c in range(first_BQ1[block, 0], first_BQ1[block, n_queries]):
            if block_first_B[block] < 0:
                out_CP[c, 0] = out_CP[c, 1]
            if block_last_B[block] >= n_places:
                slot = n_places - block_first_B[block]
                out_CP[c, slot] = out_CP[c, slot - 1]


@kernel()
def _keep_likely(candidate_BQW, chance_CP, first_BQ1, least):  # type: ignore[no-untyped-def]
    """Take out candidates whose chance is nowhere at least this; returns how many stay."""
    n_blocks, n_queries, n_words = candidate_BQW.shape
    kept = c = 0
    for b in range(n_blocks):
        for q in range(n_queries):
            first_BQ1[b, q] = kept
            for word in range(n_words):
                bits = candidate_BQW[b, q, word]
                while bits != np.uint64(0):
                    lowest = bits & (~bits + np.uint64(1))
                    bits ^= lowest
                    likely = False
                    for p in range(chance_CP.shape[1]):
                        likely |= chance_CP[c, p] >= least
                    if likely:
                        chance_CP[kept] = chance_CP[c]
                        kept += 1
                    else:
                        candidate_BQW[b, q, word] ^= lowest
                    c += 1
        first_BQ1[b, n_queries] = kept
    return kept


def copying_posteriors(
    patterns: SpanPatterns,
    query_QW: np.ndarray,
    known_QW: np.ndarray,
    jump_S: np.ndarray,
    candidate_BQW: np.ndarray,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    least_share: float = LEAST_SHARE,
    mismatch: float = MISMATCH,
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of candidates at the places around the gaps of blocks.

    query_QW, known_QW: `pack_rows`; jump_S: `jump_chances`; candidate_BQW (those left out are taken from it),
    first_B, n_gaps_B: `find_candidates`. Returns float32 (C, P): candidates of all blocks and queries, in the
    order of their numbers, at the places first - 1 ... first + n_gaps - 1; and int64 (B, Q + 1): where each
    query's candidates begin in it.
    """
    n_blocks, n_queries, _ = candidate_BQW.shape
    first_BQ1 = np.empty((n_blocks, n_queries + 1), np.int64)
    candidate_C = _list_candidates(candidate_BQW, first_BQ1)
    out_CP = np.zeros((len(candidate_C), int(n_gaps_B.max()) + 1), np.float32)
    _posteriors(
        *patterns, query_QW, known_QW, jump_S, np.float32(mismatch), first_B - 1, first_B + n_gaps_B - 1,
        first_BQ1, candidate_C, out_CP,
    )  # fmt: skip
    n_haplotypes = patterns.pattern_IN.shape[1]
    kept = _keep_likely(candidate_BQW, out_CP, first_BQ1, np.float32(least_share / n_haplotypes))
    return out_CP[:kept], first_BQ1
