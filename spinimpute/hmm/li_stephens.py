"""How probable each candidate is as the one a query copies from, by the model of Li and Stephens.

A hidden Markov model (Li & Stephens 2003, Genetics 165:2213) whose states are all haplotypes of the panel:
the query copies one, leaves it for a random one with a probability that grows with genetic length, and
differs from it with a small probability. Its posterior knows what no comparison of a query with one haplotype
does: that another one matches better, here or next to here.

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

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.hmm.few_states import posteriors_of_few
from spinimpute.kernels import kernel

SPAN = 16  # divides 64: a span lies in one word
LANES = 16  # float32 numbers of the widest registers
JUMPS_PER_CM = 400.0  # 4 x 10,000 samples: the probability to leave a haplotype is about this, by cM and N
MISMATCH = 3e-3
MOST_STATES = 8_000
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


def jump_probabilities(cM_S: np.ndarray, n_haplotypes: int, jumps_per_cM: float = JUMPS_PER_CM) -> np.ndarray:
    """float32 (S,): the probability that a query leaves its haplotype before a place; 1 before the first."""
    probability_S = (-np.expm1(-np.diff(cM_S, prepend=cM_S[:1]) * jumps_per_cM / n_haplotypes)).clip(1e-7)
    probability_S[0] = 1
    return probability_S.astype(np.float32)


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
def query_bits(rows_QW, q0, span, out_L):  # type: ignore[no-untyped-def]
    """Bits of LANES queries in a span, its first place lowest; the last query stands in for those there are
    not."""
    word, shift = (span * SPAN) >> 6, np.uint64((span * SPAN) & 63)
    for l in range(LANES):
        out_L[l] = (rows_QW[min(q0 + l, len(rows_QW) - 1), word] >> shift) & np.uint64((1 << SPAN) - 1)


@kernel(fast=True)
def _step_forward(  # type: ignore[no-untyped-def]
    bits_D, count_D, query_L, known_L, bit, mismatch, jump, n, sum_DL, scale_L, stay_DL, come_DL
):
    """From the place before to this one: `stay` is a, `come` is r of the module's text, both unscaled.
    scale_L: one over the sum of all forward values before; afterwards that of now."""
    one, zero = np.float32(1), np.float32(0)
    right, keep, arrive = one - mismatch, one - jump, jump / np.float32(n)
    total_L = np.zeros(LANES, np.float32)
    for d in range(len(bits_D)):
        bits, came = bits_D[d], arrive * count_D[d]
        for l in range(LANES):
            e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
            stay = stay_DL[d, l] * scale_L[l] * keep * e
            stay = stay if stay > SMALLEST else zero
            come = (come_DL[d, l] * scale_L[l] * keep + came) * e
            stay_DL[d, l], come_DL[d, l] = stay, come
            total_L[l] += stay * sum_DL[d, l] + come
    for l in range(LANES):
        scale_L[l] = one / total_L[l]


@kernel(fast=True)
def _step_backward(  # type: ignore[no-untyped-def]
    bits_D, count_D, query_L, known_L, bit, mismatch, jump, n, sum_DL, stay_DL, come_DL
):
    """From this place to the one before, scaled so that the mean of all backward values is about 1."""
    one, zero = np.float32(1), np.float32(0)
    right, keep = one - mismatch, one - jump
    scale_L = np.zeros(LANES, np.float32)
    for d in range(len(bits_D)):
        bits, count = bits_D[d], count_D[d]
        for l in range(LANES):
            e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
            scale_L[l] += e * (stay_DL[d, l] * sum_DL[d, l] + come_DL[d, l] * count)
    for l in range(LANES):
        scale_L[l] = np.float32(n) / scale_L[l]
    for d in range(len(bits_D)):
        bits = bits_D[d]
        for l in range(LANES):
            e = mismatch if ((bits ^ query_L[l]) & known_L[l] & bit) else right
            e *= keep * scale_L[l]
            stay = e * stay_DL[d, l]
            stay_DL[d, l] = stay if stay > SMALLEST else zero
            come_DL[d, l] = e * come_DL[d, l] + jump


@kernel(fast=True)
def _scale_of_place(  # type: ignore[no-untyped-def]
    count_D,
    forward_sum_DL,
    backward_sum_DL,
    product_DL,
    stay_DL,
    come_DL,
    back_stay_DL,
    back_come_DL,
    scale_L,
):
    """One over the sum of forward times backward values of all haplotypes."""
    scale_L[:] = 0
    for d in range(len(count_D)):
        share = np.float32(1) / count_D[d]
        for l in range(LANES):
            f, came, b, later = stay_DL[d, l], come_DL[d, l], back_stay_DL[d, l], back_come_DL[d, l]
            scale_L[l] += f * (b * product_DL[d, l] + later * forward_sum_DL[d, l])
            scale_L[l] += came * (share * b * backward_sum_DL[d, l] + later)
    for l in range(LANES):
        scale_L[l] = np.float32(1) / scale_L[l]


@kernel(fast=True)
def sum_patterns(pattern_N, x_NL, sum_DL):  # type: ignore[no-untyped-def]
    sum_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        for l in range(LANES):
            sum_DL[d, l] += x_NL[h, l]


@kernel(fast=True)
def _sum_patterns_of_both(pattern_N, f_NL, b_NL, f_DL, b_DL, product_DL):  # type: ignore[no-untyped-def]
    f_DL[:] = 0
    b_DL[:] = 0
    product_DL[:] = 0
    for h in range(len(pattern_N)):
        d = pattern_N[h]
        for l in range(LANES):
            f, b = f_NL[h, l], b_NL[h, l]
            f_DL[d, l] += f
            b_DL[d, l] += b
            product_DL[d, l] += f * b


@kernel(fast=True)
def go_through(  # type: ignore[no-untyped-def]
    pattern_N, stay_DL, come_DL, x_NL, out_NL, next_pattern_N, sum_DL
):
    """Values of haplotypes behind a span from those before it, and their sums in the next span's patterns.

    One pass, as it is the memory that takes the time; out_NL may be x_NL.
    """
    sum_DL[:] = 0
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        for l in range(LANES):
            x = stay_DL[d, l] * x_NL[h, l] + come_DL[d, l]
            out_NL[h, l] = x
            sum_DL[e, l] += x


@kernel(fast=True)
def _go_back_through(  # type: ignore[no-untyped-def]
    pattern_N, stay_DL, come_DL, b_NL, next_pattern_N, f_NL, f_DL, b_DL, product_DL
):
    """`go_through` of backward values, in place; the next span's sums are `_sum_patterns_of_both`."""
    f_DL[:] = 0
    b_DL[:] = 0
    product_DL[:] = 0
    for h in range(len(pattern_N)):
        d, e = pattern_N[h], next_pattern_N[h]
        for l in range(LANES):
            f, b = f_NL[h, l], stay_DL[d, l] * b_NL[h, l] + come_DL[d, l]
            b_NL[h, l] = b
            f_DL[e, l] += f
            b_DL[e, l] += b
            product_DL[e, l] += f * b


@kernel(fast=True)
def _write_probabilities(  # type: ignore[no-untyped-def]
    pattern_N, count_D, forward_NL, backward_NL, stay_PDL, come_PDL, back_stay_PDL, back_come_PDL, scale_PL,
    candidate_C, first_Q1, q0, low, high, slot, out_CP,
):  # fmt: skip
    """Of the candidates of LANES queries at the places [low, high) of a span; slot: where the first goes."""
    for l in range(min(LANES, len(first_Q1) - 1 - q0)):
        for c in range(first_Q1[q0 + l], first_Q1[q0 + l + 1]):
            h = candidate_C[c]
            d = pattern_N[h]
            f, b, share = forward_NL[h, l], backward_NL[h, l], np.float32(1) / count_D[d]
            for p in range(low, high):
                forward = stay_PDL[p, d, l] * f + come_PDL[p, d, l] * share
                backward = back_stay_PDL[p, d, l] * b + back_come_PDL[p, d, l]
                out_CP[c, slot + p - low] = forward * backward * scale_PL[p, l]


@kernel(fast=True)
def _posteriors(  # type: ignore[no-untyped-def]
    pattern_IN, first_I1, bits_D, count_D, query_QW, known_QW, jump_S, mismatch, block_first_B, block_last_B,
    first_BQ1, candidate_C, out_CP,
):  # fmt: skip
    n_spans, n = pattern_IN.shape
    n_places, n_queries, n_blocks = len(jump_S), len(query_QW), len(block_first_B)
    # the spans whose probabilities are asked for
    wanted_first = max(block_first_B[0], 0) // SPAN
    wanted_stop = min(block_last_B[n_blocks - 1], n_places - 1) // SPAN + 1
    most = 1
    for i in range(n_spans):
        most = max(most, first_I1[i + 1] - first_I1[i])
    kept_first = first_I1[wanted_first]
    n_kept = first_I1[wanted_stop] - kept_first
    start_INL = np.empty((wanted_stop - wanted_first, n, LANES), np.float32)
    stay_PDL, come_PDL = (
        np.empty((SPAN, n_kept, LANES), np.float32),
        np.empty((SPAN, n_kept, LANES), np.float32),
    )
    back_stay_PDL, back_come_PDL = (
        np.empty((SPAN, most, LANES), np.float32),
        np.empty((SPAN, most, LANES), np.float32),
    )
    forward_NL, backward_NL = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    forward_DL, backward_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    product_DL = np.empty((most, LANES), np.float32)
    stay_DL, come_DL = np.empty((most, LANES), np.float32), np.empty((most, LANES), np.float32)
    scale_L, scale_PL = np.empty(LANES, np.float32), np.empty((SPAN, LANES), np.float32)
    query_L, known_L = np.empty(LANES, np.uint64), np.empty(LANES, np.uint64)
    for q0 in range(0, n_queries, LANES):
        forward_NL[:] = np.float32(1) / n
        if wanted_first == 0:
            start_INL[0] = forward_NL
        sum_patterns(pattern_IN[0], forward_NL, forward_DL[: first_I1[1]])
        for i in range(wanted_stop):
            first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
            query_bits(query_QW, q0, i, query_L)
            query_bits(known_QW, q0, i, known_L)
            stay_DL[:d] = 1
            come_DL[:d] = 0
            scale_L[:] = 1
            for p in range(i * SPAN, min(i * SPAN + SPAN, n_places)):
                _step_forward(
                    bits_D[first : first + d], count_D[first : first + d], query_L, known_L,
                    np.uint64(1) << np.uint64(p - i * SPAN), mismatch, jump_S[p], n, forward_DL, scale_L,
                    stay_DL, come_DL,
                )  # fmt: skip
                if i >= wanted_first:
                    stay_PDL[p - i * SPAN, first - kept_first : first - kept_first + d] = stay_DL[:d]
                    come_PDL[p - i * SPAN, first - kept_first : first - kept_first + d] = come_DL[:d]
            if i + 1 == wanted_stop:
                continue
            for x in range(d):
                for l in range(LANES):
                    stay_DL[x, l] *= scale_L[l]
                    come_DL[x, l] *= scale_L[l] / count_D[first + x]
            go_through(
                pattern_IN[i], stay_DL, come_DL,
                start_INL[i - wanted_first] if i >= wanted_first else forward_NL,
                start_INL[i + 1 - wanted_first] if i + 1 >= wanted_first else forward_NL,
                pattern_IN[i + 1], forward_DL[: first_I1[i + 2] - first_I1[i + 1]],
            )  # fmt: skip
        backward_NL[:] = 1
        last_d = first_I1[n_spans] - first_I1[n_spans - 1]
        if n_spans == wanted_stop:
            _sum_patterns_of_both(
                pattern_IN[n_spans - 1], start_INL[n_spans - 1 - wanted_first], backward_NL,
                forward_DL[:last_d], backward_DL[:last_d], product_DL[:last_d],
            )  # fmt: skip
        else:
            sum_patterns(pattern_IN[n_spans - 1], backward_NL, backward_DL[:last_d])
        for i in range(n_spans - 1, wanted_first - 1, -1):
            first, d = first_I1[i], first_I1[i + 1] - first_I1[i]
            kept = slice(first - kept_first, first - kept_first + d)
            here_D, count_here_D = bits_D[first : first + d], count_D[first : first + d]
            query_bits(query_QW, q0, i, query_L)
            query_bits(known_QW, q0, i, known_L)
            wanted = i < wanted_stop
            stay_DL[:d] = 1
            come_DL[:d] = 0
            for p in range(min(i * SPAN + SPAN, n_places) - 1, i * SPAN - 1, -1):
                at = p - i * SPAN
                if wanted:
                    back_stay_PDL[at, :d] = stay_DL[:d]
                    back_come_PDL[at, :d] = come_DL[:d]
                    _scale_of_place(
                        count_here_D, forward_DL, backward_DL, product_DL, stay_PDL[at, kept],
                        come_PDL[at, kept], stay_DL, come_DL, scale_PL[at],
                    )  # fmt: skip
                _step_backward(
                    here_D, count_here_D, query_L, known_L, np.uint64(1) << np.uint64(at), mismatch,
                    jump_S[p], n, backward_DL, stay_DL, come_DL,
                )  # fmt: skip
            if wanted:
                for block in range(n_blocks):
                    low = max(block_first_B[block], i * SPAN)
                    high = min(block_last_B[block] + 1, i * SPAN + SPAN, n_places)
                    if low < high:
                        _write_probabilities(
                            pattern_IN[i], count_here_D, start_INL[i - wanted_first], backward_NL,
                            stay_PDL[:, kept], come_PDL[:, kept], back_stay_PDL, back_come_PDL, scale_PL,
                            candidate_C, first_BQ1[block], q0, low - i * SPAN, high - i * SPAN,
                            low - block_first_B[block], out_CP,
                        )  # fmt: skip
            if i == wanted_first:
                continue
            next_d = first - first_I1[i - 1]
            if i - 1 < wanted_stop:
                _go_back_through(
                    pattern_IN[i], stay_DL, come_DL, backward_NL, pattern_IN[i - 1],
                    start_INL[i - 1 - wanted_first], forward_DL[:next_d], backward_DL[:next_d],
                    product_DL[:next_d],
                )  # fmt: skip
            else:
                go_through(
                    pattern_IN[i], stay_DL, come_DL, backward_NL, backward_NL, pattern_IN[i - 1],
                    backward_DL[:next_d],
                )  # fmt: skip


@kernel()
def _fill_ends(n_places, block_first_B, block_last_B, first_BQ1, out_CP):  # type: ignore[no-untyped-def]
    """Before the first place and behind the last one: what is known there."""
    for block in range(len(block_first_B)):
        for c in range(first_BQ1[block, 0], first_BQ1[block, -1]):
            if block_first_B[block] < 0:
                out_CP[c, 0] = out_CP[c, 1]
            if block_last_B[block] >= n_places:
                slot = n_places - block_first_B[block]
                out_CP[c, slot] = out_CP[c, slot - 1]


@kernel()
def _keep_likely(candidate_BQW, posterior_CP, first_BQ1, least):  # type: ignore[no-untyped-def]
    """Take out candidates whose probability is nowhere at least this; returns how many stay."""
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
                    for p in range(posterior_CP.shape[1]):
                        likely |= posterior_CP[c, p] >= least
                    if likely:
                        posterior_CP[kept] = posterior_CP[c]
                        kept += 1
                    else:
                        candidate_BQW[b, q, word] ^= lowest
                    c += 1
        first_BQ1[b, n_queries] = kept
    return kept


def copying_posteriors(
    patterns: SpanPatterns | None,
    panel_NW: np.ndarray,
    query_QW: np.ndarray,
    known_QW: np.ndarray,
    jump_S: np.ndarray,
    candidate_BQW: np.ndarray,
    first_B: np.ndarray,
    n_gaps_B: np.ndarray,
    least_share: float,
    mismatch: float = MISMATCH,
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of candidates at the places around the gaps of blocks.

    All haplotypes are states of a panel of MOST_STATES at most, those of larger ones that are a query's
    candidates, and patterns may be None. panel_NW, query_QW, known_QW: `pack_rows`; jump_S:
    `jump_probabilities`; candidate_BQW (those left out are taken from it), first_B, n_gaps_B:
    `find_candidates`; least_share: of the probability of a haplotype taken blindly, candidates with less all
    over a block go. Returns float32 (C, P): candidates of all blocks and queries, in the order of their
    numbers, at the places first - 1 ... first + n_gaps - 1; and int64 (B, Q + 1): where each query's
    candidates begin in it.
    """
    n_blocks, n_queries, _ = candidate_BQW.shape
    first_BQ1 = np.empty((n_blocks, n_queries + 1), np.int64)
    candidate_C = _list_candidates(candidate_BQW, first_BQ1)
    out_CP = np.zeros((len(candidate_C), int(n_gaps_B.max()) + 1), np.float32)
    n_haplotypes = len(panel_NW)
    blocks = first_B - 1, first_B + n_gaps_B - 1, first_BQ1
    model = query_QW, known_QW, jump_S, np.float32(mismatch), *blocks, candidate_C, out_CP
    if n_haplotypes > MOST_STATES:
        posteriors_of_few(panel_NW, *model)
    else:
        assert patterns is not None, "only a large panel needs none"
        _posteriors(*patterns, *model)
    _fill_ends(len(jump_S), *blocks, out_CP)
    kept = _keep_likely(candidate_BQW, out_CP, first_BQ1, np.float32(least_share / n_haplotypes))
    return out_CP[:kept].copy(), first_BQ1  # most candidates go, and so does their memory
