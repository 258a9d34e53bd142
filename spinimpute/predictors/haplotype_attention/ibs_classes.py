"""IBS (identical by state) classes: candidates that match a query alike around a gap, and their features.

Candidates whose first two differences from the query going left from a gap, and going right, are at the same
typed places form one class: neither what they share with the query nearby nor where that ends distinguishes
them. Classes are ranked by the information in these two runs of each side; information of a typed site is
-log of the panel frequency of the query's allele there.

Axes: S typed places of a chunk, N panel haplotypes, Q queries, G gaps of a block, K classes, F features,
C candidates, M members of classes, W 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import bit_at_or_after, bit_at_or_before, count_bits
from spinimpute.runtime.fast_math import bits_of_float, fast_log
from spinimpute.runtime.kernels import kernel

DEPTH = 2  # differences on each side
LOG_COUNT = 4 * DEPTH  # this feature is the log of the number of members
FEATURES = 4 * DEPTH + 9
WIDE = 128  # typed places on each side of a block in which all differences are counted
RUN = 32  # candidates that are sorted by insertion
SMALLEST_CM = 1e-4
SMALLEST_INFORMATION = 0.1
SMALLEST_PROBABILITY = 1e-6


class IBSClasses(NamedTuple):
    """Classes of some queries at the gaps of a block.

    Attributes
    ----------
    features_QGFK : float32
        Logs of genetic length and information up to the 1st and 2nd difference on the left, the same on the
        right; log of the number of members; information (not as a log) of the query's allele and of the other
        one at the 1st difference on the left, and on the right (0 where there is none); logs of the density
        of differences near the block on the left, and on the right; logs of the members' mean copying
        probability at the typed sites left and right of the gap (`posteriors`). 0 for absent classes,
        anything at gaps that are not wanted.
    count_QGK : float32
        Members; 0 where there is no such class, and in all later ones.
    first_QGK : int32
        Where a class's members begin in member_M.
    member_M : int32
        Haplotypes.
    """

    features_QGFK: np.ndarray
    count_QGK: np.ndarray
    first_QGK: np.ndarray
    member_M: np.ndarray


@kernel()
def _differences(differ_W, n_places, first_gap_place, n_gaps, out_P):  # type: ignore[no-untyped-def]
    """Places of differences in order: before the block, between its gaps, and behind it.

    DEPTH before the block (-1 where there are none) and DEPTH behind it (n_places where there are none).
    first_gap_place: the first place right of the block's first gap. Returns how many there are between the
    gaps.
    """
    place = first_gap_place - 1
    for j in range(DEPTH):
        place = bit_at_or_before(differ_W, place)
        out_P[DEPTH - 1 - j] = place
        place -= 1
    end = min(first_gap_place + n_gaps - 1, n_places)
    between = 0
    place = bit_at_or_after(differ_W, first_gap_place, n_places)
    while place < end:
        out_P[DEPTH + between] = place
        between += 1
        place = bit_at_or_after(differ_W, place + 1, n_places)
    for j in range(DEPTH):
        out_P[DEPTH + between + j] = place
        place = bit_at_or_after(differ_W, place + 1, n_places)
    return between


@kernel()
def _key(left_1, left_2, right_1, right_2):  # type: ignore[no-untyped-def]
    """One number for four places below 2^15 - 1."""
    base = np.int64(1) << np.int64(15)
    return (((left_1 + 1) * base + left_2 + 1) * base + right_1) * base + right_2


@kernel()
def _information(before_S1, information_S, differences_P, at, n_places):  # type: ignore[no-untyped-def]
    """Information in the two runs of both sides of a gap between differences at - 1 and at."""
    total = before_S1[differences_P[at + 1]] - before_S1[differences_P[at - 2] + 1]
    if differences_P[at - 1] >= 0:
        total -= information_S[differences_P[at - 1]]
    if differences_P[at] < n_places:
        total -= information_S[differences_P[at]]
    return total


@kernel()
def _rate(differences_P, at, before_S1, information_S, n_places):  # type: ignore[no-untyped-def]
    """Key of a candidate's class, and a number that sorts classes.

    They are sorted by information, then in any order that depends on the key only.
    """
    key = _key(differences_P[at - 1], differences_P[at - 2], differences_P[at], differences_P[at + 1])
    score = _information(before_S1, information_S, differences_P, at, n_places)
    mixed = ((key * np.int64(-7046029254386353131)) >> np.int64(33)) & np.int64(0x7FFFFFFF)
    # the bits of floats that are not negative sort as the floats do
    return key, (np.int64(bits_of_float(max(score, np.float32(0)))) << np.int64(32)) | mixed


@kernel()
def _best_member(member_C, first, last, outside_C2):  # type: ignore[no-untyped-def]
    """The member with the fewest differences near the block; of equals the first candidate."""
    best = member_C[first]
    fewest = outside_C2[best, 0] + outside_C2[best, 1]
    for i in range(first + 1, last):
        c = member_C[i]
        outside = outside_C2[c, 0] + outside_C2[c, 1]
        if outside < fewest or (outside == fewest and c < best):
            best, fewest = c, outside
    return best


@kernel()
def _describe(  # type: ignore[no-untyped-def]
    best_K, n_classes, count_K, posterior_2K, differences_CP, at_C, gap_place, log_left_S1, log_right_S1,
    before_S1, information_S, other_S, outside_C2, differs_between_C, wide_2, passed_2K, features_FK,
):  # fmt: skip
    """Features of classes by their best members; the gap lies before gap_place.

    The inner loops go over classes, so that processors can vectorise them. passed_2K: room for the
    information of differences passed; posterior_2K: sums over the members.
    """
    n_places = len(information_S)
    here = before_S1[gap_place]
    least, zero = np.float32(SMALLEST_INFORMATION), np.float32(0)
    passed_2K[:, :n_classes] = 0
    features_FK[LOG_COUNT + 1 :, :n_classes] = 0
    for j in range(DEPTH):
        for k in range(n_classes):
            c = best_K[k]
            left, right = differences_CP[c, at_C[c] - 1 - j], differences_CP[c, at_C[c] + j]
            features_FK[j, k] = log_left_S1[left + 1]
            features_FK[2 * DEPTH + j, k] = log_right_S1[right]
            features_FK[DEPTH + j, k] = here - before_S1[left + 1] - passed_2K[0, k]
            features_FK[3 * DEPTH + j, k] = before_S1[right] - here - passed_2K[1, k]
            if left >= 0:
                passed_2K[0, k] += information_S[left]
            if right < n_places:
                passed_2K[1, k] += information_S[right]
            if j == 0:
                if left >= 0:
                    features_FK[LOG_COUNT + 1, k], features_FK[LOG_COUNT + 2, k] = (
                        information_S[left],
                        other_S[left],
                    )
                if right < n_places:
                    features_FK[LOG_COUNT + 3, k], features_FK[LOG_COUNT + 4, k] = (
                        information_S[right],
                        other_S[right],
                    )
        for k in range(n_classes):
            features_FK[DEPTH + j, k] = fast_log(max(features_FK[DEPTH + j, k], zero) + least)
            features_FK[3 * DEPTH + j, k] = fast_log(max(features_FK[3 * DEPTH + j, k], zero) + least)
    for k in range(n_classes):
        c = best_K[k]
        passed = at_C[c] - DEPTH
        features_FK[LOG_COUNT, k] = fast_log(count_K[k])
        left, right = outside_C2[c, 0] + passed, outside_C2[c, 1] + differs_between_C[c] - passed
        features_FK[LOG_COUNT + 5, k] = (np.float32(left) + np.float32(0.5)) / wide_2[0]
        features_FK[LOG_COUNT + 6, k] = (np.float32(right) + np.float32(0.5)) / wide_2[1]
        for side in range(2):
            features_FK[LOG_COUNT + 7 + side, k] = posterior_2K[side, k] / count_K[k] + np.float32(
                SMALLEST_PROBABILITY
            )
    for j in range(LOG_COUNT + 5, LOG_COUNT + 9):
        for k in range(n_classes):
            features_FK[j, k] = fast_log(features_FK[j, k])


@kernel()
def _comes_before(order_C, one, other):  # type: ignore[no-untyped-def]
    return order_C[one] > order_C[other] or (order_C[one] == order_C[other] and one < other)


@kernel()
def _sort(rank_C, order_C, merged_C):  # type: ignore[no-untyped-def]
    """Sort candidates, greatest order first; of equals the first candidate. merged_C: room.

    So the result does not depend on how they were sorted before. Merges runs that are sorted by insertion:
    quick if few are out of place.
    """
    n = len(rank_C)
    for first in range(0, n, RUN):
        for i in range(first + 1, min(first + RUN, n)):
            c = rank_C[i]
            j = i
            while j > first and _comes_before(order_C, c, rank_C[j - 1]):
                rank_C[j] = rank_C[j - 1]
                j -= 1
            rank_C[j] = c
    width = RUN
    while width < n:
        for first in range(0, n - width, 2 * width):
            middle, last = first + width, min(first + 2 * width, n)
            if _comes_before(order_C, rank_C[middle - 1], rank_C[middle]):
                continue
            for i in range(first, middle):
                merged_C[i] = rank_C[i]
            i, j, to = first, middle, first
            while i < middle:
                if j < last and _comes_before(order_C, rank_C[j], merged_C[i]):
                    rank_C[to] = rank_C[j]
                    j += 1
                else:
                    rank_C[to] = merged_C[i]
                    i += 1
                to += 1
        width *= 2


@kernel()
def _compare(  # type: ignore[no-untyped-def]
    haplotype_W, query_W, known_W, n_places, first_gap_place, n_gaps, wide_first, block_end, wide_last,
    differ_W, differences_P, outside_2,
):  # fmt: skip
    """`_differences`, and how many there are near the block on either side."""
    for word in range(len(differ_W)):
        differ_W[word] = (haplotype_W[word] ^ query_W[word]) & known_W[word]
    outside_2[0] = count_bits(differ_W, wide_first, first_gap_place)
    outside_2[1] = count_bits(differ_W, block_end, wide_last)
    return _differences(differ_W, n_places, first_gap_place, n_gaps, differences_P)


@kernel()
def _classes_of_query(  # type: ignore[no-untyped-def]
    panel_NW, query_W, known_W, information_S, other_S, candidate_C, posterior_CP, wanted_G, first_gap_place,
    log_left_GS1, log_right_GS1, before_S1, differ_W, differences_CP, at_C, differs_between_C, outside_C2,
    key_C, order_C, rank_C, merged_C, best_K, passed_2K, posterior_2K, wide_2, member_M, n_members,
    features_GFK, count_GK, first_GK,
):  # fmt: skip
    """See `_find_ibs_classes`; returns how many members there are with this query's."""
    n_places, n_candidates = len(information_S), len(candidate_C)
    n_gaps, n_classes = count_GK.shape
    wide_first, block_end = max(0, first_gap_place - WIDE), min(first_gap_place + n_gaps - 1, n_places)
    wide_last = min(block_end + WIDE, n_places)
    wide_2[0], wide_2[1] = block_end - wide_first + 1, wide_last - first_gap_place + 1
    before_S1[0] = 0
    for s in range(n_places):
        before_S1[s + 1] = before_S1[s] + information_S[s]
    for c in range(n_candidates):
        differs_between_C[c] = _compare(
            panel_NW[candidate_C[c]], query_W, known_W, n_places, first_gap_place, n_gaps, wide_first,
            block_end, wide_last, differ_W, differences_CP[c], outside_C2[c],
        )  # fmt: skip
        at_C[c], rank_C[c] = DEPTH, c
        key_C[c], order_C[c] = _rate(differences_CP[c], DEPTH, before_S1, information_S, n_places)
    is_sorted = False
    for g in range(n_gaps):
        if not wanted_G[g]:
            continue
        gap_place = first_gap_place + g
        for c in range(n_candidates):
            if differences_CP[c, at_C[c]] < gap_place:
                while differences_CP[c, at_C[c]] < gap_place:
                    at_C[c] += 1
                key_C[c], order_C[c] = _rate(differences_CP[c], at_C[c], before_S1, information_S, n_places)
                is_sorted = False
        if not is_sorted:
            _sort(rank_C[:n_candidates], order_C, merged_C)
            is_sorted = True
        k, i = 0, 0
        while i < n_candidates and k < n_classes:
            first, key = i, key_C[rank_C[i]]
            first_GK[g, k] = n_members
            left = right = np.float32(0)
            while i < n_candidates and key_C[rank_C[i]] == key:
                c = rank_C[i]
                member_M[n_members] = candidate_C[c]
                n_members += 1
                left += posterior_CP[c, g]
                right += posterior_CP[c, g + 1]
                i += 1
            posterior_2K[0, k], posterior_2K[1, k] = left, right
            count_GK[g, k] = i - first
            best_K[k] = _best_member(rank_C, first, i, outside_C2)
            k += 1
        _describe(
            best_K, k, count_GK[g], posterior_2K, differences_CP, at_C, gap_place, log_left_GS1[g],
            log_right_GS1[g], before_S1, information_S, other_S, outside_C2, differs_between_C, wide_2,
            passed_2K, features_GFK[g],
        )  # fmt: skip
        for rest in range(k, n_classes):
            first_GK[g, rest] = n_members
        for f in range(FEATURES):
            for rest in range(k, n_classes):
                features_GFK[g, f, rest] = 0
    return n_members


@kernel()
def _find_ibs_classes(  # type: ignore[no-untyped-def]
    panel_NW, query_QW, known_QW, information_QS, other_QS, candidates_C, posterior_CP, first_Q1,
    wanted_QG, first_gap_place, log_left_GS1, log_right_GS1, features_QGFK, count_QGK, first_QGK,
):  # fmt: skip
    n_queries, n_places = information_QS.shape
    n_gaps, n_classes = count_QGK.shape[1:]
    most = 1
    for q in range(n_queries):
        most = max(most, first_Q1[q + 1] - first_Q1[q])
    member_M, n_members = np.empty(n_queries * n_gaps * n_classes, np.int32), 0
    before_S1, differ_W = np.empty(n_places + 1, np.float32), np.empty(panel_NW.shape[1], np.uint64)
    differences_CP, at_C = np.empty((most, 2 * DEPTH + n_gaps), np.int32), np.empty(most, np.int32)
    differs_between_C, outside_C2 = np.empty(most, np.int32), np.empty((most, 2), np.int32)
    key_C, order_C = np.empty(most, np.int64), np.empty(most, np.int64)
    rank_C, merged_C = np.empty(most, np.int64), np.empty(most, np.int64)
    best_K, passed_2K = np.empty(n_classes, np.int32), np.empty((2, n_classes), np.float32)
    posterior_2K, wide_2 = np.empty((2, n_classes), np.float32), np.empty(2, np.float32)
    for q in range(n_queries):
        n_wanted = wanted_QG[q].sum()
        if n_wanted == 0:
            continue
        here = slice(first_Q1[q], first_Q1[q + 1])
        needed = n_members + n_wanted * (first_Q1[q + 1] - first_Q1[q])
        if needed > len(member_M):
            longer = np.empty(2 * needed, np.int32)
            longer[:n_members] = member_M[:n_members]
            member_M = longer
        n_members = _classes_of_query(
            panel_NW, query_QW[q], known_QW[q], information_QS[q], other_QS[q], candidates_C[here],
            posterior_CP[here], wanted_QG[q], first_gap_place, log_left_GS1, log_right_GS1, before_S1,
            differ_W, differences_CP, at_C, differs_between_C, outside_C2, key_C, order_C, rank_C, merged_C,
            best_K, passed_2K, posterior_2K, wide_2, member_M, n_members, features_QGFK[q], count_QGK[q],
            first_QGK[q],
        )  # fmt: skip
    return member_M[:n_members].copy()


class Information(NamedTuple):
    """Information of alleles at typed places: -log of their panel frequency.

    Attributes
    ----------
    query_QS : float32
        Of queries' alleles; 0 where a call is missing.
    other_QS : float32
        Of the other allele, -log(1 - exp(-information)); 0 where a call is missing.
    """

    query_QS: np.ndarray
    other_QS: np.ndarray

    @classmethod
    def of(cls, query_SQ: np.ndarray, frequency_S: np.ndarray, n_haplotypes: int) -> Information:
        """Of queries' alleles.

        Parameters
        ----------
        query_SQ : uint8
            0, 1 or MISSING.
        frequency_S : float
            Of allele 1 in the panel.
        n_haplotypes : int
            Of the panel. An allele that the panel lacks counts as if half a haplotype carried it.

        Returns
        -------
        Information
            At all places.
        """
        least = 0.5 / n_haplotypes
        table_S3 = np.stack([1 - frequency_S, frequency_S, np.ones_like(frequency_S)], axis=1).clip(least, 1)
        information_S3 = -np.log(table_S3).astype(np.float32)
        with np.errstate(divide="ignore"):
            other_S3 = -np.log(-np.expm1(-information_S3))
        other_S3 = np.where(information_S3 > 0, other_S3, 0).astype(np.float32)
        at_SQ = query_SQ.astype(np.int64)
        return cls(*(np.take_along_axis(x, at_SQ, axis=1).T.copy() for x in (information_S3, other_S3)))


class GapDistances(NamedTuple):
    """Logs of the genetic lengths from a block's gaps to differences.

    Places -1 and S stand for the first and the last typed place.

    Attributes
    ----------
    first_place : int
        The place on the right of the first gap; gap g lies left of place first_place + g.
    log_left_GS1 : float32
        Leftwards, to places -1..S-1.
    log_right_GS1 : float32
        Rightwards, to places 0..S.
    """

    first_place: int
    log_left_GS1: np.ndarray
    log_right_GS1: np.ndarray

    @classmethod
    def of(cls, typed_cM_S: np.ndarray, first_place: int, n_gaps: int) -> GapDistances:
        """Of the gaps on the left of the places from first_place on, with the typed places' positions."""
        n_places = len(typed_cM_S)
        edges = np.clip(first_place + np.arange(n_gaps)[:, None], 0, n_places)
        left_edge = typed_cM_S[np.maximum(edges - 1, 0)]
        right_edge = typed_cM_S[np.minimum(edges, n_places - 1)]
        left = left_edge - np.concatenate([typed_cM_S[:1], typed_cM_S])
        right = np.concatenate([typed_cM_S, typed_cM_S[-1:]]) - right_edge
        logs = (np.log(np.maximum(d, 0) + SMALLEST_CM).astype(np.float32) for d in (left, right))
        return cls(first_place, *logs)


def find_ibs_classes(
    panel_NW: np.ndarray,
    query_QW: np.ndarray,
    known_QW: np.ndarray,
    information: Information,
    candidate_C: np.ndarray,
    posterior_CP: np.ndarray,
    first_Q1: np.ndarray,
    distances: GapDistances,
    n_classes: int,
    wanted_QG: np.ndarray | None = None,
) -> IBSClasses:
    """Classes of every query at the gaps of a block.

    Parameters
    ----------
    panel_NW, query_QW, known_QW : uint64
        Bits at typed places (`pack_rows`): alleles, and where there is a call.
    information : Information
        Of the queries' alleles.
    candidate_C, posterior_CP, first_Q1
        Candidates and their posteriors, as `copying_posteriors` gives them; first_Q1 is that of one block.
    distances : GapDistances
        Of the block's gaps.
    n_classes : int
        K.
    wanted_QG : bool, optional
        Other gaps of a query get no classes.

    Returns
    -------
    IBSClasses
        Ranked by information, best first.
    """
    n_queries, n_gaps = len(information.query_QS), len(distances.log_left_GS1)
    # a large array: what nobody asks for is not written
    features_QGFK = np.empty((n_queries, n_gaps, FEATURES, n_classes), dtype=np.float32)
    count_QGK = np.zeros((n_queries, n_gaps, n_classes), dtype=np.float32)
    first_QGK = np.zeros((n_queries, n_gaps, n_classes), dtype=np.int32)
    member_M = _find_ibs_classes(
        panel_NW, query_QW, known_QW, *information, candidate_C, posterior_CP, first_Q1,
        np.ones((n_queries, n_gaps), bool) if wanted_QG is None else wanted_QG, *distances,
        features_QGFK, count_QGK, first_QGK,
    )  # fmt: skip
    return IBSClasses(features_QGFK, count_QGK, first_QGK, member_M)
